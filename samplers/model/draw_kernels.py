# mypy: ignore-errors
"""Drawing values, and the arithmetic for it.

Draw a variable's value from its conditional distribution by integer weights, bitwise equal on CPU and GPU.

Single-precision operations with fixed rounding: fused multiply-add, and access to the bits of a float32.

A compiler may fuse ``a * b + c`` and round once, or round twice. An explicit fused multiply-add makes the CPU and the
GPU draw the same values.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import intrinsic
from dmcmc.samplers.model.state_kernels import ROW_MULTIPLE


def _naive_fma(a, b, c):
    """Return a·b + c in float32, rounded once.

    The product is exact in float64. Its sum with ``c`` is rounded to odd, so that the second rounding, to float32,
    gives what one rounding would (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).
    """
    product, addend = float(a) * float(b), float(c)
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)  # exact (Knuth's two-sum)
    if math.isfinite(total) and error != 0.0 and int(np.float64(total).view(np.int64)) & 1 == 0:
        total = math.nextafter(total, math.copysign(math.inf, error))
    return np.float32(total)


def _naive_bits_of(number):
    """Return the IEEE 754 bits of a float32 as an int32."""
    return np.float32(number).view(np.int32)


def _naive_number_of(bits):
    """Return the float32 that has the given bits (int32)."""
    return np.int32(bits).view(np.float32)


@intrinsic(_naive_fma)
def fma(typingctx, a, b, c):
    """Return a·b + c in float32, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic(_naive_bits_of)
def bits_of(typingctx, number):
    """Return the IEEE 754 bits of a float32 as an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic(_naive_number_of)
def number_of(typingctx, bits):
    """Return the float32 that has the given bits (int32)."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


# 2^f on [-1/2, 1/2] is approximated by 1 + f·(_C1 + f·(_C2 + ...)) with relative error 1.1e-7.
_C1 = np.float32(0.693147004)
_C2 = np.float32(0.240222424)
_C3 = np.float32(0.0555073358)
_C4 = np.float32(0.00967151299)
_C5 = np.float32(0.00132647273)
_ONE = np.float32(1.0)
_MIN_EXPONENT = np.float32(-24.0)  # smaller weights are below 2^22 · 2^−24 = 1/4, so they are rounded to 0
_ROUNDING_SHIFT = np.float32(12582912.0)  # 1.5·2^23: adding it rounds to the nearest integer, left in the low bits
_INTEGER_SHIFT = np.float32(8388608.0)  # 2^23: likewise, for numbers from 0 to 2^23
_INTEGER_SHIFT_BITS = np.int32(0x4B000000)  # the bits of ``_INTEGER_SHIFT``
_LOG2_E = 1.4426950408889634  # log2(e)
_MIN_RATE = np.float32(2.0**-100)
_MAX_RATE = np.float32(2.0**100)
_INT32_MIN = np.int32(-(2**31))
_INT32_MAX = np.int32(2**31 - 1)


@njit(allocates=False)
def rate_of(temperature):
    """Return log2(e) / temperature as float32 for a temperature above 0, limited to [2^−100, 2^100].

    A temperature that is denormal, infinite or NaN gives the rate of a very cold or very hot one. An infinite rate
    would give NaN weights (0 · ∞), and the draw would end beyond the domain.
    """
    rate = np.float32(_LOG2_E / np.float64(temperature))
    if not rate <= _MAX_RATE:
        return _MAX_RATE
    return max(rate, _MIN_RATE)


@njit(allocates=False)
def weight_of(x, best_weight):
    """Return round(best_weight · 2^max(x, −24)) for x ≤ 0, as int32.

    x is (score − best score) · log2(e) / temperature, so the weight is proportional to exp(score / temperature).
    """
    x = max(x, _MIN_EXPONENT)
    shifted = np.float32(x + _ROUNDING_SHIFT)
    fraction = np.float32(x - np.float32(shifted - _ROUNDING_SHIFT))
    power = fma(fraction, fma(fraction, fma(fraction, fma(fraction, fma(fraction, _C5, _C4), _C3), _C2), _C1), _ONE)
    weight = number_of(np.int32(bits_of(power) + np.int32(bits_of(shifted) << 23)))
    return np.int32(bits_of(fma(weight, best_weight, _INTEGER_SHIFT)) - _INTEGER_SHIFT_BITS)


@njit(allocates=False)
def draw(model, scores, v, rate, best_weight, old, word, scratch):
    """Draw a value of v with probability ∝ exp(score / temperature), without a normalising constant.

    The weight of score s is round(w · 2^((s − best score) · rate)), with w = ``best_weight``. The weights are integers,
    so their sum is the same in any order and on any processor. If entries are forbidden, s is an eased score: a finite
    penalty per violation instead of 2^k.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    scores : (hidden, lanes) uint16 or int32
        Scores of all values of all hidden variables.
    v : int
        The variable.
    rate : float32
        log2(e) / temperature, from :func:`rate_of`.
    best_weight : float32
        The weight of the best value, from :func:`best_value_weight`: 2^22, or less if the sum of all weights would
        exceed 31 bits.
    old : int
        The present value; its weight is subtracted first, since cold chains mostly stay.
    word : uint64
        32 random bits.
    scratch : (lanes,) int32
        Workspace for the weights.

    Returns
    -------
    int
        The value drawn.
    """
    size = np.int32(model.domains[v])
    padded = -(-size // ROW_MULTIPLE) * ROW_MULTIPLE
    row, weights = scores[v, :padded], scratch[:padded]
    total = np.uint32(0)
    if model.violation == 0:
        best_score = np.int32(row[0])
        for d in range(size):
            best_score = max(best_score, np.int32(row[d]))
        for d in range(padded):
            x = np.float32(np.float32(np.int32(np.int32(row[d]) - best_score)) * rate)
            weights[d] = weight_of(x, best_weight) if d < size else np.int32(0)
            total = np.uint32(total + np.uint32(weights[d]))
    else:
        half, penalty = np.int32(1 << (model.violation - 1)), np.float32(model.penalty)
        highest = _INT32_MIN  # scores as integers of the same order: their maximum vectorises
        for d in range(size):
            highest = max(highest, order_preserving(bits_of(eased_score(row[d], half, model.violation, penalty))))
        best = number_of(order_preserving(highest))
        for d in range(padded):
            gap = np.float32(eased_score(row[d], half, model.violation, penalty) - best)
            weights[d] = weight_of(np.float32(gap * rate), best_weight) if d < size else np.int32(0)
            total = np.uint32(total + np.uint32(weights[d]))
    remaining = np.int64((word * np.uint64(total)) >> np.uint64(32)) - weights[old]
    if remaining < 0:
        return old
    weights[old] = 0
    new = 0
    while remaining >= weights[new] and new < size - 1:  # for any weights the draw ends inside the domain
        remaining -= weights[new]
        new += 1
    return new


@njit(allocates=False)
def eased_score(score, half, violation, penalty):
    """Return a score as float32 with ``penalty`` subtracted per violation, instead of 2^violation.

    ``half`` is 2^(violation − 1). The number of violations is recovered from the score, whose other utilities stay
    below ``half`` in absolute value.
    """
    violations = np.int32(np.int32(half - score) >> violation)
    return fma(-penalty, np.float32(violations), np.float32(np.int32(score + np.int32(violations << violation))))


@njit(allocates=False)
def order_preserving(bits):
    """Map the bits of a float32 to an int32 of the same order; the mapping is its own inverse."""
    return np.int32(bits ^ (np.int32(bits >> 31) & _INT32_MAX))


@njit(allocates=False)
def best_value_weight(lanes):
    """Return the largest weight of a best value, at most 2^22, for which ``lanes`` weights fit 31 bits."""
    weight = 1 << 22
    while weight * lanes > 1 << 31:
        weight >>= 1
    return np.float32(weight)
