# mypy: ignore-errors
"""The passes of a step over all cases of a batch.

Everything is laid out as in :mod:`dmcmc.inference.bounds.semidefinite.per_row.node_steps`, flat: h variables of d values a case,
n values in all and m rows of its points, the n-th of which is the row's own. Variables that a case has not are left
out; values that a variable has not are forbidden in their tables. A block of pairs has one variable u of a case and
some others, v: a thread has a value of v and all values of u, a column of their table, so that all that is read and
written in a row is side by side. Each pair is so looked at twice, from both sides, which is less to read and write than
turning tables round.

A step's pass over vectors has some threads for each.

Places are unsigned and the number of values is a constant of each kernel: half of all instructions went to places.
"""

import math
from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import MOST_THREADS
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import DAMPED, DEEP, LEAST_LENGTH, MOMENTUM, SPREAD
from dmcmc.inference.runtime.compile import cuda_jit

SLOPE, STEP, EVEN = range(3)  # what a step has
WORDS = 3
SHARED = 40 << 10  # bytes of a block's own memory for tables: some is left for sums
PARTS = 8  # of a variable's values, whose best are found at once
TOGETHER = 4  # numbers that a thread moves at once
_LOW = np.float32(-1e30)


def pairs_together(domain: int) -> int:
    """Return how many pairs' tables of so many values each a block has at most; 0 where one is too large for it."""
    return min(MOST_THREADS // domain, SHARED // (4 * domain * (domain + 1)))


@cache
def reach_kernel(domain):
    """Return the kernel for variables of so many values."""
    d, wide, entries = np.uint32(domain), np.uint32(domain + 1), pairs_together(domain) * domain * (domain + 1)

    @cuda_jit(fastmath=True)
    def reach(utilities, agents, products, shifts, sizes, schedule, reached, variables, rows, at):
        """Set the smooth maxima of each value's entries in the tables of its pairs.

        In: utilities (agents, n, n); agents (cases,); products (cases, m, m); shifts (cases, h, n); sizes (cases, h),
        0 where there is no variable; schedule (steps, WORDS), of which step ``at`` counts; rows: m. Out: reached
        (cases, h, n), laid out as shifts.
        """
        turned = cuda.shared.array(entries, np.float32)
        column = cuda.local.array(domain, np.float32)
        h, m, n = np.uint32(variables), np.uint32(rows), np.uint32(variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(u + np.uint32(1) + cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        there = v < h and sizes[b * h + u] > 0 and sizes[b * h + v] > 0
        here = np.uint32(cuda.threadIdx.y * d * wide)
        slope, total, two = schedule[np.uint32(at * WORDS + SLOPE)], np.float32(0), np.float32(2)
        if there and j < sizes[b * h + v]:
            place = np.uint32((b * m + u * d) * m + v * d + j)
            worth = np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            given, mine = np.uint32((b * h + v) * n + u * d), np.uint32((b * h + u) * n + v * d + j)
            taken, best = shifts[mine], _LOW
            for i in range(domain):
                x = utilities[worth] + two * np.float32(products[place]) - shifts[np.uint32(given + i)] - taken
                column[i] = x
                turned[np.uint32(here + np.uint32(i) * wide + j)] = x
                best = max(best, x)
                worth, place = np.uint32(worth + n), np.uint32(place + m)
            for i in range(domain):
                total += np.float32(math.exp((column[i] - best) * slope))
            reached[mine] = best + np.float32(math.log(total)) / slope
        else:
            for i in range(domain):
                turned[np.uint32(here + np.uint32(i) * wide + j)] = _LOW
        cuda.syncthreads()
        if there and j < sizes[b * h + u]:  # from now on j is a value of u
            best, total, place = _LOW, np.float32(0), np.uint32(here + j * wide)
            for i in range(domain):
                column[i] = turned[np.uint32(place + np.uint32(i))]
                best = max(best, column[i])
            for i in range(domain):
                total += np.float32(math.exp((column[i] - best) * slope))
            reached[np.uint32((b * h + v) * n + u * d + j)] = best + np.float32(math.log(total)) / slope

    return reach


@cache
def alone_kernel(domain):
    """Return the kernel for variables of so many values."""
    d, parts = np.uint32(domain), min(PARTS, domain)

    @cuda_jit(fastmath=True)
    def alone(products, shifts, reached, values, sizes, tables, schedule, weights, best, variables, rows, at):
        """Shift what values reach in their tables towards their mean; set how much each value counts by itself.

        A block has one variable w of a case; its threads have a value of it each, and share the other variables.

        In: products (cases, m, m); values (cases, n), what each is worth by itself; sizes (cases, h); tables (cases,),
        in how many tables a variable is, its own counted; schedule (steps, WORDS). In and out: shifts (cases, h, n);
        reached (cases, h, n), less each table's best then. Out: weights (cases, m, m) of values and row; best
        (cases, h).
        """
        first = cuda.shared.array(MOST_THREADS, np.float32)
        second = cuda.shared.array(MOST_THREADS, np.float32)
        h, m, n = np.uint32(variables), np.uint32(rows), np.uint32(variables * d)
        j, g, groups = np.uint32(cuda.threadIdx.x), np.uint32(cuda.threadIdx.y), np.uint32(cuda.blockDim.y)
        w, b = np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        deep, zero, damped = np.float32(-DEEP), np.float32(0), np.float32(DAMPED)
        if sizes[b * h + w] > 0:  # the same for all of a block
            mine, start = j < sizes[b * h + w], np.uint32(g * d)
            own_at, found, taken = np.uint32(start + j), zero, zero
            turns = np.uint32((h + groups - np.uint32(1)) // groups)
            for turn in range(turns):
                v = np.uint32(turn * groups + g)
                place = np.uint32((b * h + v) * n + w * d + j)
                x, used = _LOW, False
                if v < h and v != w and mine:
                    used = sizes[b * h + v] > 0
                if used:
                    x = reached[place]
                first[own_at] = x
                cuda.syncthreads()
                top = _LOW
                if j < PARTS:  # the best of some values each, then of those: fewer reads than of all values
                    for q in range(np.int32(j), domain, PARTS):
                        top = max(top, first[np.uint32(start + np.uint32(q))])
                    second[own_at] = top
                cuda.syncthreads()
                for q in range(parts):
                    top = max(top, second[np.uint32(start + q)])
                if used:
                    x = max(x - top, deep)
                    reached[place] = x
                    found += x
                    taken += shifts[place]
            cuda.syncthreads()
            first[own_at] = found
            second[own_at] = taken
            cuda.syncthreads()
            found, taken = zero, zero
            for q in range(groups):
                found += first[np.uint32(q * d + j)]
                taken += second[np.uint32(q * d + j)]
            cuda.syncthreads()
            line, column = np.uint32((b * m + w * d + j) * m), np.uint32(w * d + j)
            own = _LOW
            if mine:
                own = np.float32(2) * np.float32(products[np.uint32(line + n)]) + values[np.uint32(b * n + column)]
                own += np.float32(products[np.uint32(line + column)]) + taken
            first[own_at] = own
            cuda.syncthreads()
            top, many = _LOW, tables[b]
            for q in range(domain):
                top = max(top, first[np.uint32(start + q)])
            mean = (max(own - top, deep) + found) / many
            for turn in range(turns):
                v = np.uint32(turn * groups + g)
                used = False
                if v < h and v != w and mine:
                    used = sizes[b * h + v] > 0
                if used:
                    place = np.uint32((b * h + v) * n + column)
                    shifts[place] += damped * (reached[place] - mean)
            if mine:
                own += damped * (found - (many - np.float32(1)) * mean)
            second[own_at] = own
            cuda.syncthreads()
            top, total, slope = _LOW, zero, schedule[np.uint32(at * WORDS + SLOPE)]
            for q in range(domain):
                top = max(top, second[np.uint32(start + q)])
            for q in range(domain):
                total += np.float32(math.exp((second[np.uint32(start + q)] - top) * slope))
            if mine and g == 0:
                share = np.float16(np.float32(math.exp((own - top) * slope)) / total)
                weights[np.uint32(line + column)] = share
                weights[np.uint32(line + n)] = share
                weights[np.uint32((b * m + n) * m + column)] = share
                if j == 0:
                    best[b * h + w] = top

    return alone


@cache
def smooth_kernel(domain):
    """Return the kernel for variables of so many values."""
    d, wide, entries = np.uint32(domain), np.uint32(domain + 1), pairs_together(domain) * domain * (domain + 1)

    @cuda_jit(fastmath=True)
    def smooth(utilities, agents, products, shifts, sizes, schedule, weights, maxima, variables, rows, at):
        """Set how much each entry of a pair's table counts in its maximum, and the maxima.

        Given as for :func:`reach_kernel`. Out: weights (cases, m, m), maxima (cases, h, h).
        """
        turned = cuda.shared.array(entries, np.float32)
        bests = cuda.shared.array(MOST_THREADS, np.float32)
        masses = cuda.shared.array(MOST_THREADS, np.float32)
        column = cuda.local.array(domain, np.float32)
        h, m, n = np.uint32(variables), np.uint32(rows), np.uint32(variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(u + np.uint32(1) + cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        start, here = np.uint32(cuda.threadIdx.y * d), np.uint32(cuda.threadIdx.y * d * wide)
        own_at, there = np.uint32(start + j), v < h and sizes[b * h + u] > 0
        live = there and j < sizes[b * h + v]
        factor = schedule[np.uint32(at * WORDS + SLOPE)] / np.float32(POWER)
        best, zero, one, two = _LOW, np.float32(0), np.float32(1), np.float32(2)
        entry = np.uint32((b * m + u * d) * m + v * d + j)
        if live:
            place, worth = entry, np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            given, taken = np.uint32((b * h + v) * n + u * d), shifts[np.uint32((b * h + u) * n + v * d + j)]
            for i in range(domain):
                x = utilities[worth] + two * np.float32(products[place]) - shifts[np.uint32(given + i)] - taken
                column[i] = x
                best = max(best, x)
                worth, place = np.uint32(worth + n), np.uint32(place + m)
        bests[own_at] = best
        cuda.syncthreads()
        for q in range(domain):
            best = max(best, bests[np.uint32(start + q)])
        mass = zero
        if live:
            for i in range(domain):
                x = max(zero, one + (column[i] - best) * factor)
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                column[i] = x
                mass += x
        masses[own_at] = mass
        cuda.syncthreads()
        total = zero
        for q in range(domain):
            total += masses[np.uint32(start + q)]
        part, place = one / max(total, one), entry
        if live:
            for i in range(domain):
                x = column[i] * part
                weights[place] = np.float16(x)
                turned[np.uint32(here + np.uint32(i) * wide + j)] = x
                place = np.uint32(place + m)
            if j == 0:
                maxima[(b * h + u) * h + v] = best
                maxima[(b * h + v) * h + u] = best
        cuda.syncthreads()
        if there and j < sizes[b * h + u]:  # from now on j is a value of u
            place, around = np.uint32((b * m + v * d) * m + u * d + j), np.uint32(here + j * wide)
            for i in range(sizes[b * h + v]):
                weights[place] = np.float16(turned[np.uint32(around + np.uint32(i))])
                place = np.uint32(place + m)

    return smooth


@cuda_jit(fastmath=True)
def move(points, halves, slopes, means, spreads, schedule, vectors, width, at):
    """Move vectors against the means of their slopes, as if all of a vector's entries had its spread.

    Threads side by side have a vector; each moves some numbers at once: what is read of all comes before anything is
    written.

    In: slopes (vectors, width); schedule (steps, WORDS), of which step ``at`` counts. In and out: points and means
    (vectors, width), spreads (vectors,). Out: halves, as points.
    """
    squares = cuda.shared.array(MOST_THREADS, np.float32)
    here, mean = cuda.local.array(TOGETHER, np.float32), cuda.local.array(TOGETHER, np.float32)
    slope = cuda.local.array(TOGETHER, np.float32)
    lane, lanes = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    row = np.uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    own, words, long = np.uint32(cuda.threadIdx.y * lanes), np.uint32(at * WORDS), np.uint32(width)
    live, start, square, spread = row < vectors, np.uint32(row * long), np.float32(0), np.float32(0)
    if live:
        spread = spreads[row]
        q = lane
        while q < long:
            x = np.float32(slopes[np.uint32(start + q)])
            square += x * x
            q = np.uint32(q + lanes)
    squares[np.uint32(own + lane)] = square
    cuda.syncthreads()
    if live:
        square = np.float32(0)
        for i in range(lanes):
            square += squares[np.uint32(own + np.uint32(i))]
        spread = np.float32(SPREAD) * spread + np.float32(1 - SPREAD) * square / np.float32(width)
        if lane == 0:
            spreads[row] = spread
        length = np.float32(math.sqrt(spread)) * schedule[np.uint32(words + EVEN)] + np.float32(LEAST_LENGTH)
        step, last = schedule[np.uint32(words + STEP)] / length, np.uint32(long - np.uint32(1))
        first = lane
        while first < long:
            for i in range(TOGETHER):
                place = np.uint32(start + min(np.uint32(first + np.uint32(i) * lanes), last))
                here[i], slope[i], mean[i] = points[place], np.float32(slopes[place]), np.float32(means[place])
            for i in range(TOGETHER):
                mean[i] = np.float32(MOMENTUM) * mean[i] + np.float32(1 - MOMENTUM) * slope[i]
                here[i] -= step * mean[i]
            for i in range(TOGETHER):
                q = np.uint32(first + np.uint32(i) * lanes)
                if q < long:
                    place = np.uint32(start + q)
                    points[place], halves[place], means[place] = here[i], np.float16(here[i]), np.float16(mean[i])
            first = np.uint32(first + np.uint32(TOGETHER) * lanes)
