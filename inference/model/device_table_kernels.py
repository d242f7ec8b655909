# mypy: ignore-errors
"""Kernels over a table on the device, one thread per entry with a grid-stride loop.

``entries`` holds the table's utilities (int32, int64 or float64, shape (size,)).

``place_entries`` and ``add_entries`` compute a permutation of axes with an int64 ``descriptor``, shape (1 + 2 n,): the
number of axes n of the target, the n sizes of these axes, and for each of them its stride in ``entries``.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def count_above(entries, size, threshold, count):
    """Add the number of entries larger than ``threshold`` to ``count[0]`` (int64, shape (1,))."""
    thread_count = 0
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        if entries[i] > threshold:
            thread_count += 1
    if thread_count:
        cuda.atomic.add(count, 0, thread_count)


@cuda_jit()
def keep_largest(entries, size, maximum):
    """Raise ``maximum[0]`` (dtype of ``entries``, shape (1,)) to the largest entry."""
    first = cuda.grid(1)
    if first < size:
        thread_maximum = entries[first]
        for i in range(first + cuda.gridsize(1), size, cuda.gridsize(1)):
            thread_maximum = max(thread_maximum, entries[i])
        cuda.atomic.max(maximum, 0, thread_maximum)


@cuda.jit(device=True)
def source_of(descriptor, i):
    """Return the position in ``entries`` of the target's entry ``i``."""
    axes, remaining, source = descriptor[0], np.int64(i), np.int64(0)
    for axis in range(axes, 0, -1):
        quotient = remaining // descriptor[axis]
        source += (remaining - quotient * descriptor[axis]) * descriptor[axes + axis]
        remaining = quotient
    return source


@cuda_jit()
def place_entries(entries, size, descriptor, target, offset):
    """Copy the table to ``target[offset:offset + size]`` (same dtype), in the target's axis order."""
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        target[offset + i] = entries[source_of(descriptor, i)]


@cuda_jit()
def add_entries(entries, size, descriptor, target, lowest):
    """Add the table to ``target`` (shape (size,)), a table over more variables; clamp each sum to at least ``lowest``.

    Here ``entries`` may be shorter than ``size``: the stride is 0 for an axis that the added table does not have.
    """
    number = target.dtype.type
    for i in range(cuda.grid(1), size, cuda.gridsize(1)):
        target[i] = max(number(target[i] + entries[source_of(descriptor, i)]), lowest)
