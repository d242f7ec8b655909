# mypy: ignore-errors
"""Kernels over a table that lies on the device; a thread takes every so many-th entry."""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def count_above(entries, size, least, found):
    """Add to ``found[0]`` how many entries are larger than a number."""
    mine = 0
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        if entries[i] > least:
            mine += 1
    if mine:
        cuda.atomic.add(found, 0, mine)


@cuda_jit()
def keep_largest(entries, size, found):
    """Raise ``found[0]`` to the largest entry."""
    first = cuda.grid(1)
    if first < size:
        mine = entries[first]
        for i in range(first + cuda.gridsize(1), size, cuda.gridsize(1)):
            mine = max(mine, entries[i])
        cuda.atomic.max(found, 0, mine)


@cuda_jit()
def place_entries(entries, size, words, target, at):
    """Copy entries to a place, axes in another order.

    words (int64): the number of axes n, their sizes as the target has them (n), their strides in ``entries`` (n).
    """
    axes = words[0]
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        rest, source = np.int64(i), np.int64(0)
        for axis in range(axes, 0, -1):
            above = rest // words[axis]
            source += (rest - above * words[axis]) * words[axes + axis]
            rest = above
        target[at + i] = entries[source]


@cuda_jit()
def add_entries(entries, size, words, target, lowest):
    """Add a table to one over more variables; sums are at least ``lowest``.

    words (int64): as above, with a stride of 0 where the table has no such axis.
    """
    number = target.dtype.type
    axes = words[0]
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        rest, source = np.int64(i), np.int64(0)
        for axis in range(axes, 0, -1):
            above = rest // words[axis]
            source += (rest - above * words[axis]) * words[axes + axis]
            rest = above
        target[i] = max(number(target[i] + entries[source]), lowest)
