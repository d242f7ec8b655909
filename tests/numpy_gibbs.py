"""The slow, obvious twin of the Gibbs kernel: the same chain, computed with plain NumPy and Python integers.

Scores are recomputed from the factors at every draw; the conditional, its whole-number weights and the random bits are
those that :mod:`dmcmc.samplers.gibbs` documents. So a chain must agree with the kernel's state by state.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.agents import LocalProblem
from dmcmc.samplers.rng import chain_key

_POWERS = np.array([1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 9.9999994e-1], np.float32)


def philox_twin(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 in Python integers (Salmon et al., SC 2011, §3.2)."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right % 2**32, (left >> 32) ^ c3 ^ k1, left % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def weights_twin(scores: NDArray[np.generic], temperature: np.float32, lanes: int) -> NDArray[np.int64]:
    """Return the whole-number weights of a conditional; proportional to exp(scores / temperature)."""
    per_unit = np.float32(1.4426950408889634 / temperature)
    unit = np.float32(2 ** (29 - int(np.ceil(np.log2(lanes)))))
    x = np.maximum((scores - scores.max()).astype(np.float32) * per_unit, np.float32(-31))
    whole = np.floor(x)
    power = np.full_like(x, _POWERS[0])
    for coefficient in _POWERS[1:]:
        power = power * (x - whole) + coefficient
    return (power * unit).astype(np.int64) >> (-whole).astype(np.int64)


def gibbs_twin(
    local: LocalProblem, interface: dict[int, int], seed: int, row: int, run: int, temperatures: NDArray[np.float32]
) -> Iterator[dict[int, int]]:
    """Yield the start of a chain and its state after every sweep."""
    key = chain_key(seed, local.agent)
    lanes = max((int(local.domains[v]) for v in local.hidden), default=1)
    state = dict(interface)
    touching = {v: [f for f in local.factors if v in f.scope] for v in local.hidden}
    for i, v in enumerate(local.hidden):
        word = philox_twin(key, (row, run, 0, i // 4))[i % 4]
        state[v] = int((word + 0.5) * 2.0**-32 * local.domains[v])
    yield dict(state)
    for trial, temperature in enumerate(temperatures, start=1):
        for i, v in enumerate(local.hidden):
            if i % 4 == 0:
                words = philox_twin(key, (row, run, trial, i // 4))
            scores = sum(
                (f.table[tuple(slice(None) if u == v else state[u] for u in f.scope)] for f in touching[v]),
                start=np.zeros(local.domains[v], dtype=np.int64),
            )
            weights = weights_twin(scores, temperature, lanes)
            left = (words[i % 4] * int(weights.sum()) >> 32) - int(weights[state[v]])
            if left >= 0:
                others = [d for d in range(len(weights)) if d != state[v]]
                state[v] = others[int(np.searchsorted(np.cumsum(weights[others]), left, side="right"))]
        yield dict(state)
