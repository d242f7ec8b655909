"""Keys for counter-based random bits: Philox4x32-10 (Salmon et al., SC 2011), equal on every processor in any order.

A chain is keyed, not seeded: the key is made from (seed, agent), the counter from (row, run, trial, block). So the bits
of a chain do not depend on ranks, threads or other chains.
"""


def chain_key(seed: int, agent: int) -> tuple[int, int]:
    """Return the two 32-bit key words of an agent's chains: a SplitMix64 hash of (seed, agent).

    Parameters
    ----------
    seed : int
        Any integer; it is folded to 64 bits.
    agent : int
        Number of the agent.
    """
    mask = (1 << 64) - 1
    state = 0
    for part in (seed ^ (seed >> 64), agent):  # the seed is hashed first: seed 1, agent 0 is not seed 0, agent 1
        state = (state + part + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state & 0xFFFFFFFF, state >> 32
