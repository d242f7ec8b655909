# mypy: ignore-errors
"""Products of small tables, max-plus of integers and plus-times of floats: what sweeps over triangles mostly do.

Loops over arrays store and load each entry of a product again and again. Here a tile of it, :data:`ROWS` or
:data:`FEW` rows of 8 or 16 columns, stays in registers until it is done: three times as fast at 24 values, ten times
at 8.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import FLOAT, INTEGER, Table, constant, larger, repeated, splat
from dmcmc.inference.runtime.compile import njit

ROWS, FEW, NARROW, WIDE = 8, 4, 8, 16  # of a tile; so many sums are under way at once


def _tile(rows, lanes, number, start, step, naive):
    """Return what sets ``out[i : i + rows, j : j + lanes]`` of a product: tile(left, right, out, i, j, inner).

    Parameters
    ----------
    number
        LLVM's type of an entry.
    start
        What each entry begins with.
    step
        ``step(builder, entry, left, right)`` emits what an entry becomes with one more pair of numbers.
    naive
        The same of a tile in NumPy, ``naive(left, right)``; also where nothing is compiled.
    """
    if config.DISABLE_JIT:

        def plain(left, right, out, i, j, inner):
            out[i : i + rows, j : j + lanes] = naive(left[i : i + rows, :inner], right[:inner, j : j + lanes])

        return plain

    def emit(context, builder, signature, arguments):
        *tables, i, j, inner = arguments
        left, right, out = (
            Table(context, builder, kind, table) for kind, table in zip(signature.args, tables, strict=False)
        )
        lines, first = [builder.add(i, ir.Constant(i.type, row)) for row in range(rows)], constant(number, lanes, start)

        def turn(k, entries):
            there = right.load(k, j, first.type)
            return [
                step(builder, entry, splat(builder, left.load(line, k, number), lanes), there)
                for line, entry in zip(lines, entries, strict=True)
            ]

        for line, entries in zip(lines, repeated(builder, inner, [first] * rows, turn), strict=True):
            out.store(line, j, entries)
        return context.get_dummy_value()

    @intrinsic
    def tile(context, left, right, out, i, j, inner):
        return types.void(left, right, out, types.intp, types.intp, types.intp), emit

    return tile


def _larger(builder, entry, left, right):
    return larger(builder, builder.add(left, right), entry)


def _sum(builder, entry, left, right):
    return builder.fadd(entry, builder.fmul(left, right))  # not fused: the same on every processor


def _maxima(left, right):
    return np.maximum((left[:, :, None] + right[None]).max(axis=1), DEAD)


def _larger_tile(rows, lanes):
    return _tile(rows, lanes, INTEGER, int(DEAD), _larger, _maxima)


def _sum_tile(rows, lanes):
    return _tile(rows, lanes, FLOAT, 0.0, _sum, np.matmul)


larger_narrow, _larger_wide, _sum_narrow, _sum_wide = (
    of(ROWS, lanes) for of in (_larger_tile, _sum_tile) for lanes in (NARROW, WIDE)
)
_few_larger_narrow, _few_larger_wide, _few_sums_narrow, _few_sums_wide = (
    of(FEW, lanes) for of in (_larger_tile, _sum_tile) for lanes in (NARROW, WIDE)
)


@njit(nogil=True)
def max_plus(left, right, out, rows, inner, columns):
    """Set out[i, j] to the largest left[i, k] + right[k, j], or DEAD, of int32.

    ``rows`` is a multiple of 4, ``columns`` of 8, ``inner`` is 1 at least; entries of rows of ``right`` and ``out`` lie
    side by side.
    """
    wide, most = columns // WIDE * WIDE, rows // ROWS * ROWS
    for i in range(0, most, ROWS):
        for j in range(0, wide, WIDE):
            _larger_wide(left, right, out, i, j, inner)
        if wide < columns:
            larger_narrow(left, right, out, i, wide, inner)
    if most < rows:
        for j in range(0, wide, WIDE):
            _few_larger_wide(left, right, out, most, j, inner)
        if wide < columns:
            _few_larger_narrow(left, right, out, most, wide, inner)


@njit(nogil=True)
def plus_times(left, right, out, rows, inner, columns):
    """Set out[i, j] to the sum of left[i, k] · right[k, j], of float32; sizes as for :func:`max_plus`."""
    wide, most = columns // WIDE * WIDE, rows // ROWS * ROWS
    for i in range(0, most, ROWS):
        for j in range(0, wide, WIDE):
            _sum_wide(left, right, out, i, j, inner)
        if wide < columns:
            _sum_narrow(left, right, out, i, wide, inner)
    if most < rows:
        for j in range(0, wide, WIDE):
            _few_sums_wide(left, right, out, most, j, inner)
        if wide < columns:
            _few_sums_narrow(left, right, out, most, wide, inner)
