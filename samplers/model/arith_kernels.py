# mypy: ignore-errors
"""Single-precision operations with fixed rounding: fused multiply-add, and access to the bits of a float32.

A compiler may fuse ``a * b + c`` and round once, or round twice. An explicit fused multiply-add makes the CPU and the
GPU draw the same values.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic


@intrinsic
def fma(typingctx, a, b, c):
    """Return a·b + c in float32, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def bits_of(typingctx, number):
    """Return the IEEE 754 bits of a float32 as an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def number_of(typingctx, bits):
    """Return the float32 that has the given bits (int32)."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


if config.DISABLE_JIT:  # for interpreted kernels, in tests and in the CUDA simulator

    def fma(a, b, c):
        """Return a·b + c as float32.

        The product is exact in float64, so only a second rounding of the sum can make the result differ.
        """
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))

    def bits_of(number):
        """Return the IEEE 754 bits of a float32 as an int32."""
        return np.float32(number).view(np.int32)

    def number_of(bits):
        """Return the float32 that has the given bits (int32)."""
        return np.int32(bits).view(np.float32)
