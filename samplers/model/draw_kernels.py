# mypy: ignore-errors
"""A draw from a variable's conditional by whole-number weights: the same, to the bit, on CPU and GPU."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.arith_kernels import bits_of, fma, number_of
from dmcmc.samplers.model.state_kernels import ROW

# 2^f on [-1/2, 1/2] is 1 + f·(_C1 + f·(_C2 + ...)), relative error 1.1e-7.
_C1, _C2, _C3 = np.float32(0.693147004), np.float32(0.240222424), np.float32(0.0555073358)
_C4, _C5 = np.float32(0.00967151299), np.float32(0.00132647273)
_ONE = np.float32(1.0)
_FLOOR = np.float32(-24.0)
_ROUND = np.float32(12582912.0)  # 1.5·2^23: adding it rounds to the nearest whole number, left in the low bits
_WHOLE = np.float32(8388608.0)  # 2^23: likewise, for numbers from 0 to 2^23
_WHOLE_BITS = np.int32(0x4B000000)
_LOG2_E = 1.4426950408889634
_SLOWEST, _FASTEST = np.float32(2.0**-100), np.float32(2.0**100)
_LOWEST, _LARGEST = np.int32(-(2**31)), np.int32(2**31 - 1)


@njit(inline="always")
def rate_of(temperature):
    """Return log2(e) / temperature as float32 for a temperature above 0, within what weights can be made of.

    A temperature that is denormal, infinite or no number gives a rate like that of a very cold or hot one: with an
    infinite rate, 0 · ∞ would make weights that are no numbers, and the draw would end beyond the domain.
    """
    rate = np.float32(_LOG2_E / np.float64(temperature))
    if not rate <= _FASTEST:
        return _FASTEST
    return max(rate, _SLOWEST)


@njit(inline="always")
def share_of(x, unit):
    """Return round(unit · 2^max(x, −24)) for x ≤ 0, as int32."""
    x = max(x, _FLOOR)
    y = np.float32(x + _ROUND)
    f = np.float32(x - np.float32(y - _ROUND))
    power = fma(f, fma(f, fma(f, fma(f, fma(f, _C5, _C4), _C3), _C2), _C1), _ONE)
    weight = number_of(np.int32(bits_of(power) + np.int32(bits_of(y) << 23)))
    return np.int32(bits_of(fma(weight, unit, _WHOLE)) - _WHOLE_BITS)


@njit(inline="always")
def draw(model, scores, v, per_unit, unit, old, word, scratch):
    """Draw a value of v with probability ∝ exp(score / temperature), without a normalising constant.

    The weights are whole numbers, so that their sum is the same in any order and on any processor.

    Parameters
    ----------
    scores : (hidden, lanes) uint16 or int32
    per_unit : float32
        log2(e) / temperature, from :func:`rate_of`.
    unit : float32
        The weight of the best value: 2^22, less where more than 512 of them would not fit 31 bits.
    old : int
        The present value; it is looked at first, since cold chains mostly stay.
    word : uint64
        32 random bits.
    scratch : (lanes,) int32
    """
    size = np.int32(model.domains[v])
    padded = -(-size // ROW) * ROW
    row, shares = scores[v, :padded], scratch[:padded]
    total = np.uint32(0)
    if model.violation == 0:
        top = np.int32(row[0])
        for d in range(size):
            top = max(top, np.int32(row[d]))
        for d in range(padded):
            x = np.float32(np.float32(np.int32(np.int32(row[d]) - top)) * per_unit)
            shares[d] = share_of(x, unit) if d < size else np.int32(0)
            total = np.uint32(total + np.uint32(shares[d]))
    else:
        half, penalty = np.int32(1 << (model.violation - 1)), np.float32(model.penalty)
        highest = _LOWEST  # as whole numbers that order like the scores: their maximum vectorises
        for d in range(size):
            highest = max(highest, ordered(bits_of(eased_score(row[d], half, model.violation, penalty))))
        best = number_of(ordered(highest))
        for d in range(padded):
            gap = np.float32(eased_score(row[d], half, model.violation, penalty) - best)
            shares[d] = share_of(np.float32(gap * per_unit), unit) if d < size else np.int32(0)
            total = np.uint32(total + np.uint32(shares[d]))
    left = np.int64((word * np.uint64(total)) >> np.uint64(32)) - shares[old]
    if left < 0:
        return old
    shares[old] = 0
    new = 0
    while left >= shares[new] and new < size - 1:  # whatever the weights, the draw ends inside the domain
        left -= shares[new]
        new += 1
    return new


@njit(inline="always")
def eased_score(score, half, violation, penalty):
    """Return a score as float32 with ``penalty`` for each violation; ``half`` is 2^(violation − 1)."""
    violations = np.int32(np.int32(half - score) >> violation)
    return fma(-penalty, np.float32(violations), np.float32(np.int32(score + np.int32(violations << violation))))


@njit(inline="always")
def ordered(bits):
    """Turn the bits of a float32 into an int32 that orders like it, and back."""
    return np.int32(bits ^ (np.int32(bits >> 31) & _LARGEST))


@njit()
def share_unit(lanes):
    """Return the weight of the best value: as large as the sum of ``lanes`` of them allows, at most 2^22."""
    unit = 1 << 22
    while unit * lanes > 1 << 31:
        unit >>= 1
    return np.float32(unit)
