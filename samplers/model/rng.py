"""Counter-based random bits: Philox4x32-10 (Salmon et al., SC 2011), the same on every processor and in any order.

A chain is keyed, not seeded: the key comes from (seed, agent), the counter from (row, run, trial, block). So the bits
that a chain sees do not depend on ranks, threads or what else runs.
"""


def chain_key(seed: int, agent: int) -> tuple[int, int]:
    """Return the two key words of an agent's chains: a SplitMix64 hash of (seed, agent).

    Seeds may have any size; they are folded to 64 bits.
    """
    mask = (1 << 64) - 1
    state = 0
    for part in (seed ^ (seed >> 64), agent):  # the seed is hashed first: seed 1, agent 0 is not seed 0, agent 1
        state = (state + part + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state & 0xFFFFFFFF, state >> 32
