# mypy: ignore-errors
"""Kernels of dual ascent: graphs with their interface free, and rows with it fixed, a block each.

:mod:`dmcmc.inference.bounds.dual.row_kernels` on a GPU: every row's bound and live values are the same, to the bit.
"""

import numpy as np
from numba import cuda, int32, int64

from dmcmc.inference.bounds.dual.cuda.condition_kernels import fix
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    DOMAINS,
    ENTRY_AT,
    INCIDENT,
    INCIDENT_AT,
    IS_FIRST,
    MAXIMA_AT,
    OTHER,
    PAIR_AT,
    PAIRS,
    SIDE,
    STAR_AT,
    STARS,
    TABLE,
    TRIANGLES,
    N,
)  # fmt: skip
from dmcmc.inference.bounds.dual.cuda.higher_order_kernels import star_pass
from dmcmc.inference.bounds.dual.cuda.pair_kernels import variable_pass
from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import cooled
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import anywhere, shared_words
from dmcmc.inference.bounds.dual.cuda.triangle_kernels import recentre, triangle_pass
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD
from dmcmc.inference.bounds.dual.row_kernels import FIRST_SHIFTS, PRUNE_EVERY, RECENTRE_EVERY
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import ROWS
from dmcmc.inference.runtime.compile import cuda_jit

STATE, ROW, LIMIT_AT, JOB = 0, 1, 2, 3  # words of a job: which agent, which row, the threshold or NEVER
# Words of an agent: its graphs, tables, interface sizes, the temperature of its first sweeps in parts of WARM_UNIT.
WHOLE, HIDDEN, BASE, SHAPE, INTERFACE, WARMTH, AGENT = range(7)
WARM_UNIT = 1 << 16
PARTS = 32  # of a sum
DIGITS = 32  # interface variables at most
REGISTERS = 128  # of a thread: two blocks of 256 share a multiprocessor
UNFIT = NEVER + 1  # a row whose entries left the limits: its bound stays what it was


@cuda.jit(device=True)
def sweep(words, g, tables, tiles, room, octets, forward, temperature):
    """Make all three passes."""
    if words[g + TRIANGLES] > 0 and not triangle_pass(words, g, tables, tiles, room, octets, temperature):
        return False
    if words[g + STARS] > 0 and not star_pass(words, g, tables, tiles, octets):
        return False
    return variable_pass(words, g, tables, tiles, room, octets, forward)


@cuda.jit(device=True)
def ascend(words, g, tables, tiles, room, octets, first, last, warmth, begin, sweeps):
    """Make sweeps ``first`` to ``last`` - 1 in turning directions; return how many were made in all.

    They are those from ``begin`` on of ``sweeps``, which cool from ``warmth`` (float32).
    """
    for step in range(first, last):
        temperature = cooled(warmth, np.int32(begin + step - first), sweeps)
        if not sweep(words, g, tables, tiles, room, octets, step % 2 == 0, temperature):
            return step
        if words[g + TRIANGLES] > 0 and step % RECENTRE_EVERY == RECENTRE_EVERY - 1:
            recentre(words, g, tables, tiles, room, octets)
    return last


@cuda.jit(device=True)
def warmth_of(agents, agent):
    """Return the temperature of an agent's first sweeps."""
    return np.float32(np.float32(agents[agent + WARMTH]) / np.float32(WARM_UNIT))


@cuda.jit(device=True)
def row_warmth_of(agents, agent):
    """Return the temperature of the first sweeps of an agent's rows, and of their nodes."""
    return np.float32(warmth_of(agents, agent) * ROWS)


@cuda.jit(device=True)
def bound(words, g, tables, parts, octets):
    """Return Σ of all tables' largest entries, NEVER if one is all dead; leave those of variables and pairs behind."""
    n, m, width = np.int32(words[g + N]), np.int32(words[g + PAIRS]), np.int32(8 * len(octets))
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    maxima = np.int32(words[g + MAXIMA_AT])
    for q in range(tid, np.int32(n + m), threads):
        tables[np.uint32(maxima + q)] = DEAD
    cuda.syncthreads()
    for task in range(tid, np.int32((n + m) * width), threads):
        q = np.int32(task // width)
        column = np.int32(task - q * width)
        best = DEAD
        if q < n:
            best = tables[np.uint32(task)]
        else:
            at = np.int32(words[g + PAIR_AT] + (q - n) * width * width + column)
            for _ in range(width):
                best = max(best, tables[np.uint32(at)])
                at = np.int32(at + width)
        if best >= THRESHOLD:
            cuda.atomic.max(tables, np.int64(maxima + q), best)
    cuda.syncthreads()
    lanes = min(np.int32(PARTS), threads)
    if tid < lanes:
        total = np.int64(0)
        for q in range(tid, np.int32(n + m), lanes):
            x = tables[np.uint32(maxima + q)]
            total = np.int64(NEVER) if x < THRESHOLD or total == NEVER else total + x
        for s in range(tid, np.int32(words[g + STARS]), lanes):
            best = DEAD
            for cell in range(words[words[g + ENTRY_AT] + s], words[words[g + ENTRY_AT] + s + 1]):
                best = max(best, tables[np.uint32(words[g + STAR_AT] + cell)])
            total = np.int64(NEVER) if best < THRESHOLD or total == NEVER else total + best
        parts[tid] = total
    cuda.syncthreads()
    total = np.int64(0)
    for q in range(lanes):
        total = np.int64(NEVER) if parts[q] == NEVER or total == NEVER else total + parts[q]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def remove_values(words, g, tables, octets, everything, constant, threshold):
    """Kill values with which the bound is below ``threshold``; ``everything`` is what :func:`bound` just returned."""
    n, width = np.int32(words[g + N]), np.int32(8 * len(octets))
    maxima = np.int32(words[g + MAXIMA_AT])
    for task in range(np.int32(cuda.threadIdx.x), np.int32(n * width), np.int32(cuda.blockDim.x)):
        v = np.int32(task // width)
        i = np.int32(task - v * width)
        own = tables[np.uint32(task)]
        if own < THRESHOLD:
            continue
        value = np.int64(own)
        rest = constant + everything - tables[np.uint32(maxima + v)]
        for position in range(words[words[g + INCIDENT_AT] + v], words[words[g + INCIDENT_AT] + v + 1]):
            side = np.int32(words[g + INCIDENT] + position * SIDE)
            around = np.int32(words[words[g + DOMAINS] + words[side + OTHER]])
            is_first = words[side + IS_FIRST] != 0
            at = np.int32(words[side + TABLE] + (i * width if is_first else i))
            e = np.int32((words[side + TABLE] - words[g + PAIR_AT]) // (width * width))
            step = np.int32(1) if is_first else width
            best = DEAD
            for _ in range(around):
                best = max(best, tables[np.uint32(at)])
                at = np.int32(at + step)
            value += best
            rest -= tables[np.uint32(maxima + n + e)]
        if value < THRESHOLD or rest + value < threshold:
            tables[np.uint32(task)] = DEAD
    cuda.syncthreads()


@cuda_jit(max_registers=REGISTERS)
def shift_graphs(words, agents, arena, chosen, firsts, lasts, done, room, octets):
    """Ascend with the interface free: block k agent ``chosen[k]``, sweeps ``firsts[k]`` to ``lasts[k]`` - 1.

    words (int32), agents (int64, :data:`AGENT` words each), arena (int32) with all agents' tables; done (k,) int64
    becomes the number of sweeps made in all.
    """
    tiles = shared_words()
    block = cuda.blockIdx.x
    agent = np.int64(chosen[block]) * AGENT
    g = np.int32(agents[agent + WHOLE])
    tables = arena[agents[agent + BASE] :]
    first, last = np.int32(firsts[block]), np.int32(lasts[block])
    warmth = warmth_of(agents, agent)
    made = ascend(words, g, tables, tiles, room, octets, first, last, warmth, first, FIRST_SHIFTS)
    if cuda.threadIdx.x == 0:
        done[block] = made


@cuda_jit(max_registers=REGISTERS)
def run_rows(words, agents, arena, jobs, work, slot, sweeps, found, live, live_size, room, octets):
    """Bound rows: a block takes one job after the other.

    jobs (int64, :data:`JOB` words each); work (int32), ``slot`` entries a block, at least a hidden part's;
    found (jobs,) int64: a bound in the agent's scale, NEVER or UNFIT; live (jobs × live_size,) uint8: what was not
    removed, where live_size is not 0.
    """
    tiles = shared_words()
    parts = cuda.shared.array(PARTS, int64)
    digits = cuda.shared.array(DIGITS, int32)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    part = work[np.int64(cuda.blockIdx.x) * slot :]
    for job in range(cuda.blockIdx.x, found.size, cuda.gridDim.x):
        agent = jobs[job * JOB + STATE] * AGENT
        whole, hidden = np.int32(agents[agent + WHOLE]), np.int32(agents[agent + HIDDEN])
        tables = arena[agents[agent + BASE] :]
        threshold, warmth = jobs[job * JOB + LIMIT_AT], row_warmth_of(agents, agent)
        cuda.syncthreads()
        if tid == 0:
            number = jobs[job * JOB + ROW]
            for k in range(agents[agent + INTERFACE] - 1, -1, -1):
                size = words[agents[agent + SHAPE] + k]
                digits[k] = number % size
                number = number // size
        cuda.syncthreads()
        constant, over = fix(words, whole, hidden, tables, part, octets, digits)
        fits = not anywhere(over)
        prune = threshold > NEVER
        best = np.int64(UNFIT)
        if constant == NEVER:
            best = np.int64(NEVER)
        elif fits:
            done = np.int32(0)
            while True:
                best = bound(words, hidden, part, parts, octets)
                if best == NEVER or (prune and constant + best < threshold):
                    break
                if prune:
                    remove_values(words, hidden, part, octets, best, constant, threshold)
                if done >= sweeps or not fits:
                    best = bound(words, hidden, part, parts, octets)
                    break
                until = min(np.int32(sweeps), np.int32(done + PRUNE_EVERY)) if prune else np.int32(sweeps)
                made = ascend(words, hidden, part, tiles, room, octets, done, until, warmth, done, np.int32(sweeps))
                fits = made == until
                done = until
                cuda.syncthreads()
            if best != NEVER:
                best += constant
            if prune:
                best = max(best, threshold - 1)
        if tid == 0:
            found[job] = best
        if live_size > 0:
            size = np.int32(words[hidden + N] * 8 * len(octets))
            source = part if best != UNFIT else tables
            for i in range(tid, size, threads):
                live[job * live_size + i] = constant != NEVER and source[np.uint32(i)] >= THRESHOLD
        cuda.syncthreads()
