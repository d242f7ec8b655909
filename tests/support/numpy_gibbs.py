"""Reference implementation of the Gibbs kernel in plain NumPy and Python integers.

Scores are recomputed from the factors at every draw. The conditional, its integer weights and the random bits are those
that :mod:`dmcmc.samplers.methods.gibbs` documents, so a chain must agree with the kernel's state by state.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.tables import forbidden
from dmcmc.samplers.model.chain_model import ChainModel, chain_key

_POWERS = np.array([0.00132647273, 0.00967151299, 0.0555073358, 0.240222424, 0.693147004, 1.0], np.float32)


def philox_twin(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return Philox4x32-10 in Python integers (Salmon et al., SC 2011, §3.2)."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right % 2**32, (left >> 32) ^ c3 ^ k1, left % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def fma_twin(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a·b + c rounded once: the float64 product is exact, and a sum rounded to odd can be rounded again."""
    product, addend = np.float64(a) * np.float64(b), np.float64(c)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = np.asarray(total).view(np.int64) % 2 == 0
    odd = np.where((lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
    return odd.astype(np.float32)


def eased_twin(utilities: NDArray[np.int64], violations: NDArray[np.int64], model: ChainModel) -> NDArray[np.float32]:
    """Return each value's score less the best one's, in float32."""
    if not model.violation:
        return (utilities - utilities.max()).astype(np.float32)
    penalty = np.float32(-model.penalty)
    eased = fma_twin(penalty, violations.astype(np.float32), utilities.astype(np.float32))
    return eased - eased.max()


def weights_twin(scores: NDArray[np.float32], temperature: np.float32, lanes: int) -> NDArray[np.int64]:
    """Return the integer weights of a conditional, proportional to exp(scores / temperature)."""
    unit = 22 if lanes <= 512 else 31 - int(np.ceil(np.log2(lanes)))
    x = np.maximum(scores * np.float32(1.4426950408889634 / temperature), np.float32(-24))
    integer_part = np.rint(x)
    power = np.full_like(x, _POWERS[0])
    for coefficient in _POWERS[1:]:
        power = fma_twin(x - integer_part, power, coefficient)
    weight = np.ldexp(power, integer_part.astype(np.int64))
    return np.rint(weight.astype(np.float64) * 2.0**unit).astype(np.int64)


def gibbs_twin(
    local: LocalProblem,
    model: ChainModel,
    interface: dict[int, int],
    seed: int,
    row: int,
    run: int,
    temperatures: NDArray[np.float32],
) -> Iterator[dict[int, int]]:
    """Yield the start of a chain and its state after every sweep, for integer utilities without scaling."""
    key = chain_key(seed, local.agent)
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
            utilities, violations = np.zeros((2, local.domains[v]), dtype=np.int64)
            for f in touching[v]:
                column = f.table[tuple(slice(None) if u == v else state[u] for u in f.scope)]
                hard = forbidden(column)
                utilities += np.where(hard, 0, column - f.table.max())
                violations += hard
            if temperature == 0:
                best = np.lexsort((-utilities, violations))[0]  # stable sort: the lowest index at a tie
                ties = (utilities[best], violations[best]) == (utilities[state[v]], violations[state[v]])
                state[v] = state[v] if ties else int(best)
                continue
            weights = weights_twin(eased_twin(utilities, violations, model), temperature, model.lanes)
            left = (words[i % 4] * int(weights.sum()) >> 32) - int(weights[state[v]])
            if left >= 0:
                others = [d for d in range(len(weights)) if d != state[v]]
                state[v] = others[int(np.searchsorted(np.cumsum(weights[others]), left, side="right"))]
        yield dict(state)
