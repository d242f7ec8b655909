# mypy: ignore-errors
"""Smoothed maxima by a block of GPU threads, and temperatures: what the CPU's kernels of this name say.

A product of powers is what it is there but for the order in which terms are added, and for products that are not
rounded before they are: the margin for rounding covers both. So a smoothed maximum is never below the maximum, and all
bounds hold, but they are not the CPU's to the bit.

Behind the tables of ``count`` triangles in shared memory lie, for each triangle, the powers of a product's left and
right table, where their entries are in those, then the largest entry of each row of the left one and of each column of
the right one.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.words import CLIQUE, CORNER_WIDTH
from dmcmc.inference.bounds.dual.pair_kernels import DEAD
from dmcmc.inference.bounds.dual.soft_kernels import COLD, LEAST_SWEEPS, UP
from dmcmc.inference.bounds.dual.tables.power_kernels import PRODUCT, STEP, TOP, ZERO


@cuda.jit(device=True)
def cooled(warmth, sweep, sweeps):
    """Return the temperature of a sweep of so many: two thirds of them cool, the others have none; none of a few."""
    warm = np.int32(sweeps * 2 // 3) if sweeps >= LEAST_SWEEPS else np.int32(0)
    if warmth == 0 or sweep >= warm:
        return np.float32(0)
    return np.float32(warmth * COLD ** np.float32(np.float32(sweep) / np.float32(warm)))


@cuda.jit(device=True)
def slope_at(temperature):
    """Return by how much a power's bits rise with its exponent at a temperature."""
    return np.float32(np.float32(STEP * np.float32(1.4426950408889634)) / temperature)


@cuda.jit(device=True)
def above(total, slope, temperature):
    """Return how far a smoothed maximum is above the sum of its tops: from the sum of its powers, rounded up."""
    beyond = np.int32(np.float32(np.float32(total.view(np.int32)) - PRODUCT) * np.float32(np.float32(1) / slope))
    return np.int32(beyond + np.int32(temperature * UP) + np.int32(1))


@cuda.jit(device=True)
def find_tops(words, begin, tiles, count, octets, k):
    """Find the largest entry of each row of the left tables and of each column of the right ones, for side k."""
    width = 8 * len(octets)
    stride, size = width + 1, width * (width + 1)
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * (2 * width))
    while task < total:
        slot = np.uint32(task // np.uint32(2 * width))
        i = np.uint32(task - slot * np.uint32(2 * width))
        inner = words[np.uint32(begin + slot * np.uint32(CLIQUE)) + np.uint32(CORNER_WIDTH + 2 - k)]
        at = np.uint32(slot * np.uint32(3 * size))
        if i < np.uint32(width):
            at = np.uint32(at + np.uint32(size if k == 0 else 0) + i * np.uint32(1 if k == 2 else stride))
            step = np.uint32(stride if k == 2 else 1)
        else:
            j = np.uint32(i - np.uint32(width))
            at = np.uint32(at + np.uint32(size if k == 2 else 2 * size) + j * np.uint32(stride if k == 0 else 1))
            step = np.uint32(1 if k == 0 else stride)
        best = DEAD
        for _ in range(inner):
            best = max(best, tiles[at])
            at = np.uint32(at + step)
        tiles[np.uint32(count * (5 * size) + task)] = best
        task = np.uint32(task + np.uint32(cuda.blockDim.x))


@cuda.jit(device=True)
def find_powers(words, begin, tiles, count, octets, k, slope):
    """Set the powers of the left and the right tables, for side k: of what each entry is below its row's top."""
    width = 8 * len(octets)
    size = width * (width + 1)
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * (2 * width * width))
    while task < total:
        table = np.uint32(task // np.uint32(width * width))
        cell = np.uint32(task - table * np.uint32(width * width))
        slot = np.uint32(table // np.uint32(2))
        row = np.uint32(cell // np.uint32(width))
        column = np.uint32(cell - row * np.uint32(width))
        place = np.uint32(cell + row)
        at = np.uint32(slot * np.uint32(3 * size) + place)
        top = np.uint32(count * (5 * size) + slot * np.uint32(2 * width))
        if table % np.uint32(2) == 0:
            at = np.uint32(at + np.uint32(size if k == 0 else 0))
            top = np.uint32(top + (column if k == 2 else row))
        else:
            at = np.uint32(at + np.uint32(size if k == 2 else 2 * size))
            top = np.uint32(top + np.uint32(width) + (row if k == 0 else column))
        power = np.float32(TOP + np.float32(np.float32(np.int32(tiles[at] - tiles[top])) * slope))
        bits = np.int32(power if power > ZERO else np.float32(0))
        tiles[np.uint32(count * (3 * size) + table * np.uint32(size) + place)] = bits
        task = np.uint32(task + np.uint32(cuda.blockDim.x))
