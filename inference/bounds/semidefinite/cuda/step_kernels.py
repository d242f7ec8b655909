# mypy: ignore-errors
"""The passes of a step over all agents of a batch: smooth maxima of all pairs, and Adam's step.

Everything is laid out as in :mod:`dmcmc.inference.bounds.semidefinite.batched_steps`, flat: h variables of d values an agent, n
values in all, those that an agent has not are left out.
"""

import math
from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SPREAD
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.runtime.compile import cuda_jit

MOST_THREADS = 256  # of a block of pairs: a variable's values side by side
SLOPE, ROWS, STEP, EVEN = range(4)  # what a step has for an agent
WORDS = 4


@cache
def smooth_kernel(width):
    """Return the kernel for variables of so many values at most."""

    @cuda_jit()
    def smooth_pairs(
        utilities, products, shifts, sizes, schedule, weights, marginals, maxima, variables, domain, parts, agents, at
    ):
        """Set how much each entry of a pair's table counts in its maximum, and the maxima.

        A block has one variable u of an agent and some others, v: a thread has a value of v and all values of u, a
        column of their table, so that all that is read and written in a row is side by side. Each pair is so looked at
        twice, from both sides, which is less to read and write than turning tables round.

        In: utilities, products (agents, n, n); shifts (agents, h, n); sizes (agents, h), 0 where there is no variable;
        schedule (steps, agents, WORDS), of which step ``at`` counts; parts: blocks of one u.
        Out: weights (agents, n, n), marginals (agents, h, n), maxima (agents, h, h).
        """
        bests = cuda.shared.array(MOST_THREADS, np.float32)
        masses = cuda.shared.array(MOST_THREADS, np.float32)
        column = cuda.local.array(width, np.float32)
        h, d, n = np.int32(variables), np.int32(domain), np.int32(variables * domain)
        tid, block = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        u, b = np.int32((block // parts) % h), np.int32(block // (parts * h))
        v = np.int32((block % parts) * (cuda.blockDim.x // d) + tid // d)
        j = np.int32(tid % d)
        many, live = np.int32(sizes[b * h + u]), False
        if v < h and v != u:
            live = many > 0 and j < sizes[b * h + v]
        entry = np.int32((b * n + u * d) * n + v * d + j)
        given = np.int32((b * h + v) * n + u * d)
        mine = np.int32((b * h + u) * n + v * d + j)
        factor = schedule[(at * agents + b) * WORDS + SLOPE] / np.float32(POWER)
        best, zero, one, two = np.float32(-3e38), np.float32(0), np.float32(1), np.float32(2)
        if live:
            taken = shifts[mine]
            for i in range(width):
                if i < many:
                    place = np.int32(entry + i * n)
                    x = utilities[place] + two * products[place] - shifts[given + i] - taken
                    column[i] = x
                    best = max(best, x)
        bests[tid] = best
        cuda.syncthreads()
        first = np.int32(tid - j)
        for q in range(d):
            best = max(best, bests[first + q])
        mass = zero
        if live:
            for i in range(width):
                if i < many:
                    x = max(zero, one + (column[i] - best) * factor)
                    x = x * x
                    x = x * x
                    x = x * x
                    x = x * x
                    x = x * x
                    column[i] = x
                    mass += x
        masses[tid] = mass
        cuda.syncthreads()
        if live:
            total = zero
            for q in range(d):
                total += masses[first + q]
            part = one / total
            for i in range(width):
                if i < many:
                    weights[np.int32(entry + i * n)] = column[i] * part
            marginals[mine] = mass * part
            if j == 0:
                maxima[(b * h + u) * h + v] = best

    return smooth_pairs


@cuda_jit()
def adam(here, slopes, means, squares, schedule, entries, agents, at):
    """Make a step: ``entries`` numbers of each agent are moved against their slopes; all arrays are as large."""
    size, threads = np.int32(entries * agents), np.int32(cuda.gridsize(1))
    for q in range(np.int32(cuda.grid(1)), size, threads):
        words = np.int32((at * agents + q // entries) * WORDS)
        slope = slopes[q]
        mean = np.float32(MOMENTUM) * means[q] + np.float32(1 - MOMENTUM) * slope
        square = np.float32(SPREAD) * squares[q] + np.float32(1 - SPREAD) * slope * slope
        means[q] = mean
        squares[q] = square
        length = np.float32(math.sqrt(square)) * schedule[words + EVEN] + np.float32(1e-8)
        here[q] -= schedule[words + STEP] * mean / length
