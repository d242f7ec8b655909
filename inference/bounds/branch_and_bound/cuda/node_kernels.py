# mypy: ignore-errors
"""Nodes of a search in rows by blocks of GPU threads; see the kernels of the CPU, with whose nodes these agree.

To the bit they agree where there are no warm sweeps: those add up in another order. Tables are not packed here: their
width is a constant of the compiled kernel, and to leave out rows and columns took longer than what was left out.
"""

import numpy as np
from numba import cuda, int32, int64

from dmcmc.inference.bounds.branch_and_bound.cuda.branching_kernels import choose, find_marginals, score
from dmcmc.inference.bounds.branch_and_bound.cuda.node_storage_kernels import fetch, store
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    JOB,
    JOB_AGENT,
    JOB_ROW,
    JOB_SOURCE,
    JOB_SWEEPS,
    JOB_TARGET,
    JOB_THRESHOLD,
    STUCK,
    UNFIT,
)
from dmcmc.inference.bounds.dual.cuda.condition_kernels import fix
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    ENDS,
    PAIR_AT,
    PAIRS,
    N,
)
from dmcmc.inference.bounds.dual.cuda.row_kernels import (
    AGENT,
    BASE,
    DIGITS,
    HIDDEN,
    INTERFACE,
    PARTS,
    REGISTERS,
    SHAPE,
    WHOLE,
    ascend,
    bound,
    remove_values,
    row_warmth_of,
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import anywhere, shared_words
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD
from dmcmc.inference.bounds.dual.row_kernels import PRUNE_EVERY
from dmcmc.inference.runtime.compile import cuda_jit, cuda_part

NOTE = 3  # words that go with a slot: its row's constant, sweeps made, by how many bits triangles' tables are shifted


@cuda.jit(device=True)
def take_out(words, g, part, octets):
    """Make the dead values of variables dead in pairs too: a thread goes through a row or a column of a pair."""
    width = np.uint32(8 * len(octets))
    at, ends = np.uint32(words[g + PAIR_AT]), np.uint32(words[g + ENDS])
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(np.uint32(words[g + PAIRS]) * np.uint32(2 * width))
    while task < total:
        e = np.uint32(task // np.uint32(2 * width))
        i = np.uint32(task - e * np.uint32(2 * width))
        second = i >= width
        i = np.uint32(i - width) if second else i
        v = np.uint32(words[np.uint32(ends + e + e + (np.uint32(1) if second else np.uint32(0)))])
        if part[np.uint32(v * width + i)] < THRESHOLD:
            cell = np.uint32(at + e * width * width + (i if second else i * width))
            for _ in range(8 * len(octets)):
                part[cell] = DEAD
                cell = np.uint32(cell + (width if second else np.uint32(1)))
        task = np.uint32(task + np.uint32(cuda.blockDim.x))
    cuda.syncthreads()


@cuda_part
def bound_node(words, g, part, parts, tiles, octets, room, constant, made, threshold, sweeps, warmth):
    """Ascend, and remove values; return the node's bound, the sweeps made in all, ``made`` of them before, and whether
    its entries are within the limits.

    ``warmth`` (float32) is the temperature of the first sweep.
    """
    done, fits = np.int32(0), True
    take_out(words, g, part, octets)
    while True:
        best = bound(words, g, part, parts, octets)
        if best == NEVER or constant + best < threshold:
            break
        remove_values(words, g, part, octets, best, constant, threshold)
        take_out(words, g, part, octets)
        if not fits or done >= sweeps:
            best = bound(words, g, part, parts, octets)
            break
        until = min(np.int32(sweeps), np.int32(done + PRUNE_EVERY))
        last = np.int32(made + until - done)
        reached = ascend(words, g, part, tiles, room, octets, made, last, warmth, done, np.int32(sweeps))
        fits = reached == last
        made, done = np.int32(reached), until
        cuda.syncthreads()
    return np.int64(NEVER) if best == NEVER else best + constant, made, fits


@cuda.jit(device=True)
def next_of(turn, told):
    """Return the next number for the block; ``told`` (1,) int32 is shared."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        told[0] = cuda.atomic.add(turn, 0, 1)
    cuda.syncthreads()
    return told[0]


@cuda_jit(max_registers=REGISTERS)
def run_nodes(
    words, agents, arena, jobs, groups, turn, areas, area, work, slot, notes, found, variables, firsts, masks,
    mask_size, marginals, room, octets,
):  # fmt: skip
    """Bound nodes: a block takes the next group of jobs, until there is none.

    jobs (int64, JOB words each), groups (g + 1,) int64; turn (1,) int32: 0 at first; areas (int32), ``area`` entries
    for each block, where it works; work (int32), ``slot`` entries each; notes (int64), :data:`NOTE` words a slot;
    found, variables (jobs,) int64; firsts (jobs × W,) uint8; masks (jobs × mask_size,) uint8, an agent's n × W first:
    values that may be live, in the end those that are; marginals (blocks × (mask_size + mask_size / W),) int64: room.
    Tables are kept of what has a variable to branch on, or is inherited next. Where a row has no tables, those of its
    group that would inherit them are worth the same.
    """
    tiles = shared_words()
    parts = cuda.shared.array(PARTS, int64)
    digits = cuda.shared.array(DIGITS, int32)
    told = cuda.shared.array(1, int32)  # to all threads of the block
    tid, threads, width = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x), np.int32(8 * len(octets))
    each, block = np.int64(mask_size + mask_size // width), np.int64(cuda.blockIdx.x)
    own, part = marginals[block * each : (block + 1) * each], areas[block * area : (block + 1) * area]
    while True:
        group = next_of(turn, told)
        if group >= groups.size - 1:
            break
        lost = np.int64(0)
        for job in range(groups[group], groups[group + 1]):
            cuda.syncthreads()
            agent = jobs[job * JOB + JOB_AGENT] * AGENT
            whole, hidden = np.int32(agents[agent + WHOLE]), np.int32(agents[agent + HIDDEN])
            tables, size = arena[agents[agent + BASE] :], np.int32(words[hidden + N] * width)
            target, source = jobs[job * JOB + JOB_TARGET], jobs[job * JOB + JOB_SOURCE]
            threshold = jobs[job * JOB + JOB_THRESHOLD]
            constant, made = np.int64(0), np.int32(0)
            if source < 0:
                if tid == 0:
                    number = jobs[job * JOB + JOB_ROW]
                    for k in range(agents[agent + INTERFACE] - 1, -1, -1):
                        sizes = words[agents[agent + SHAPE] + k]
                        digits[k] = number % sizes
                        number = number // sizes
                cuda.syncthreads()
                constant, over = fix(words, whole, hidden, tables, part, octets, digits)
                unfit = anywhere(over)
                if unfit or constant == NEVER:
                    lost = np.int64(NEVER if constant == NEVER and not unfit else UNFIT)
                    if tid == 0:
                        found[job] = lost
                        variables[job] = STUCK
                    continue
            elif lost != 0:
                if tid == 0:
                    found[job] = lost
                    variables[job] = STUCK
                continue
            else:
                constant, made = notes[source * NOTE], np.int32(notes[source * NOTE + 1])
                shift = np.int32(notes[source * NOTE + 2])
                fetch(words, hidden, work[source * slot : (source + 1) * slot], part, shift, octets)
            cuda.syncthreads()
            mask, first = masks[job * mask_size : (job + 1) * mask_size], firsts[job * width : (job + 1) * width]
            for i in range(tid, size, threads):
                if mask[i] == 0:
                    part[np.uint32(i)] = DEAD
            cuda.syncthreads()
            sweeps, warmth = jobs[job * JOB + JOB_SWEEPS], row_warmth_of(agents, agent)
            best, made, fits = bound_node(
                words, hidden, part, parts, tiles, octets, room, constant, made, threshold, sweeps, warmth
            )
            for i in range(tid, size, threads):
                mask[i] = part[np.uint32(i)] >= THRESHOLD
            chosen = np.int64(STUCK)
            if fits and best != NEVER and best >= threshold:
                find_marginals(words, hidden, part, own, octets)
                score(words, hidden, part, own, octets)
                chosen = choose(words, hidden, own, best - threshold, first, octets)
            inherited = False
            if job + 1 < groups[group + 1] and source != target:
                inherited = jobs[(job + 1) * JOB + JOB_SOURCE] == target
            if chosen >= 0 or inherited:
                shift = store(words, hidden, part, work[target * slot : (target + 1) * slot], told, octets)
                if tid == 0:
                    notes[target * NOTE] = constant
                    notes[target * NOTE + 1] = made
                    notes[target * NOTE + 2] = shift
            if tid == 0:
                found[job] = best
                variables[job] = chosen
