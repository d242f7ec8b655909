# mypy: ignore-errors
"""Triangles' marginals when maxima are smoothed, by a warp or a block of GPU threads; see the CPU's module.

The same numbers as there, but for the order in which terms are added up. Behind the tables in shared memory lie, for
each triangle, the powers of a product's left and right table, a line for each row of the left one and for each column
of the right one, then the largest entry of each line.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import GROUP
from dmcmc.inference.bounds.dual.pair_kernels import DEAD
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import COLD, LEAST_SWEEPS, UP
from dmcmc.inference.bounds.dual.tables.log_sum_exp_kernels import PRODUCT, STEP, TOP, ZERO

_AT_ONCE = 3  # entries that a thread takes before it writes the first power
APART = 4  # words between two lines of powers: a thread takes four powers at once, others those of other banks


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
def above(total, back):
    """Return how far a smoothed maximum is above the sum of its tops, from the sum of its powers.

    ``back`` is one over the slope.
    """
    return np.int32(np.float32(np.float32(total.view(np.int32)) - PRODUCT) * back)


@cuda.jit(device=True)
def rounding_of(temperature):
    """Return what a smoothed maximum at a temperature is rounded up by."""
    return np.int32(np.int32(temperature * UP) + np.int32(1))


@cuda.jit(device=True)
def find_tops(tiles, own, count, octets, k, lane, lanes):
    """Find the largest entry of each row of the left tables and of each column of the right ones, for side k."""
    wide = 8 * len(octets)
    width, lines = np.uint32(wide), np.uint32(2 * wide)
    stride, size = np.uint32(width + 1), np.uint32(width * (width + 1))
    task, total = np.uint32(lane), np.uint32(np.uint32(count) * lines)
    tops = np.uint32(own + np.uint32(count) * np.uint32(np.uint32(3) * size + lines * np.uint32(width + APART)))
    while task < total:
        slot = np.uint32(task // lines)
        i = np.uint32(task - slot * lines)
        at = np.uint32(own + slot * np.uint32(3) * size)
        if i < width:
            at = np.uint32(at + np.uint32(size if k == 0 else 0) + i * np.uint32(1 if k == 2 else stride))
            best = top_of(tiles, np.uint64(at), np.uint64(stride if k == 2 else 1), wide)
        else:
            j = np.uint32(i - width)
            at = np.uint32(at + np.uint32(size if k == 2 else 2 * size) + j * np.uint32(stride if k == 0 else 1))
            best = top_of(tiles, np.uint64(at), np.uint64(1 if k == 0 else stride), wide)
        tiles[np.uint64(tops + task)] = best
        task = np.uint32(task + np.uint32(lanes))


@cuda.jit(device=True)
def top_of(tiles, at, step, size):
    """Return the largest of some entries that are ``step`` words apart."""
    best = DEAD
    for i in range(size):
        best = max(best, tiles[at + np.uint64(i) * step])
    return best


@cuda.jit(device=True)
def find_powers(tiles, own, count, octets, k, slope, lane, lanes):
    """Set the powers of the left and the right tables, for side k: of what each entry is below its line's top."""
    width = np.uint32(8 * len(octets))
    stride, size, line = np.uint32(width + 1), np.uint32(width * (width + 1)), np.uint32(width + APART)
    powers = np.uint32(own + np.uint32(count) * np.uint32(3 * size))
    tops = np.uint32(powers + np.uint32(count) * np.uint32(np.uint32(2) * width * line))
    left, left_line, left_step = (
        np.uint32(size if k == 0 else 0),
        np.uint32(1 if k == 2 else stride),
        np.uint32(stride if k == 2 else 1),
    )
    right, right_line, right_step = (
        np.uint32(size if k == 2 else 2 * size),
        np.uint32(stride if k == 0 else 1),
        np.uint32(1 if k == 0 else stride),
    )
    power_lines(tiles, np.uint32(own + left), left_line, left_step, tops, powers, count, octets, slope, lane, lanes)
    tops, powers = np.uint32(tops + width), np.uint32(powers + width * line)
    power_lines(tiles, np.uint32(own + right), right_line, right_step, tops, powers, count, octets, slope, lane, lanes)


@cuda.jit(device=True)
def power_lines(tiles, table, line, step, tops, powers, count, octets, slope, lane, lanes):
    """Set the powers of one of each triangle's tables, whose lines and entries are so many words apart."""
    taken, width = cuda.local.array(_AT_ONCE, int32), np.uint32(8 * len(octets))
    apart, across = np.uint32(width + APART), np.int32(width // np.uint32(GROUP))
    i, j, groups = (
        np.uint32(lane // np.uint32(GROUP)),
        np.uint32(lane % np.uint32(GROUP)),
        np.uint32(lanes // np.uint32(GROUP)),
    )
    for slot in range(count):
        top_at = np.uint64(np.uint32(tops + np.uint32(slot) * np.uint32(2) * width + i))
        source = np.uint64(
            np.uint32(table + np.uint32(slot) * np.uint32(3) * width * (width + np.uint32(1)) + i * line + j * step)
        )
        target = np.uint64(np.uint32(powers + (np.uint32(slot) * np.uint32(2) * width + i) * apart + j))
        for turn in range(np.int32(np.uint32(width + groups - np.uint32(1)) // groups)):
            if i + np.uint32(turn) * groups < width:
                top, along = tiles[top_at + np.uint64(turn * groups)], source + np.uint64(turn * groups * line)
                for begin in range(0, across, _AT_ONCE):
                    for p in range(_AT_ONCE):
                        if begin + p < across:
                            taken[p] = tiles[along + np.uint64(np.uint32(begin + p) * np.uint32(GROUP) * step)]
                    for p in range(_AT_ONCE):
                        power = max(np.float32(TOP + np.float32(np.float32(np.int32(taken[p] - top)) * slope)), ZERO)
                        if begin + p < across:
                            tiles[target + np.uint64(turn * groups * apart + (begin + p) * GROUP)] = np.int32(power)
