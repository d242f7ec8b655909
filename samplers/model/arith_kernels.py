# mypy: ignore-errors
"""Single-precision operations with fixed rounding: fused multiply-add, and access to the bits of a float32.

A compiler may fuse ``a * b + c`` and round once, or round twice. An explicit fused multiply-add makes the CPU and the
GPU draw the same values.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.runtime.interpreted import intrinsic


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
