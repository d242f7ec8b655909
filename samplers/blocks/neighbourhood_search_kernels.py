# mypy: ignore-errors
"""Many block moves one after the other: which kind is chosen by what each has brought for its work."""

import numpy as np

from dmcmc.inference.orders.greedy_kernels import random_unit, random_word
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_gibbs_kernels import redraw
from dmcmc.samplers.blocks.block_selection_kernels import below, cut, grow, start_near_loss
from dmcmc.samplers.blocks.sweep_kernels import sweep
from dmcmc.samplers.model.rng_kernels import philox

_OVERHEAD = 3000  # cells that a variable of a block counts for: its bucket is planned, filled and read
_READ = 10  # cells that an entry counts for, read for a single variable
SWEEP = 4  # the kind that draws single variables
_FADE = 0.95  # of what an arm has brought, from use to use
_FADED = 0.01  # of a gain: less than that is none
_ROUNDING = 1e-13  # of what a violation costs: less than that is no gain
_SALT = 2


@njit(nogil=True)
def distances(graph, first, out, queue):
    """Write each variable's distance from one, in factors, to ``out``; where there is no way, how many there are."""
    out[:] = out.size
    out[first] = 0.0
    queue[0] = first
    head, tail = 0, 1
    while head < tail:
        v = queue[head]
        head += 1
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                u = graph.scope[s]
                if out[u] == out.size:
                    out[u] = out[v] + 1
                    queue[tail] = u
                    tail += 1


@njit(nogil=True)
def choose_block(graph, z, room, order, rank, kind, limit, state):
    """Choose a block of a kind, 0 or 1 grown, 2 cut at random, 3 cut far from somewhere; return its size."""
    first = start_near_loss(graph, z, state, 64) if random_unit(state) < 0.5 else below(state, graph.free)
    if kind < 2:
        return grow(graph, room, first, limit, 16 * limit, kind == 1, state)
    worth = room.worth
    if kind == 3:
        distances(graph, first, worth, room.waiting)
        for v in range(worth.size):
            worth[v] = random_unit(state) * 2.0 - worth[v]
    else:
        for v in range(worth.size):
            worth[v] = random_unit(state)
    return cut(graph, room, order, rank, worth, limit, min(1024 * limit, np.int64(1 << 23)))


@njit(nogil=True)
def improve(graph, z, room, order, rank, arms, temperature, key, chain, trial, work, halt):
    """Make block moves from an assignment until so many cells are joined; the assignment never gets worse at 0.

    Parameters
    ----------
    arms : (arms, 6) float64
        Kind, cells of a bucket at most, gains lately, their work, how often it was used, variables of its blocks.
    trial : int
        Number of the first move.
    work : int
        Cells.
    halt : (1,) uint8

    Returns
    -------
    gained : float
    trial : int
        Number of the next move.
    """
    gained = 0.0
    state = np.empty(1, dtype=np.uint64)
    while work > 0 and halt[0] == 0:
        words = philox(key[0], key[1], chain, _SALT, trial, 0)
        state[0] = words[0] << np.uint64(32) | words[1] | np.uint64(1)
        random_word(state)
        arm = choose_arm(arms, state)
        kind, limit = np.int64(arms[arm, 0]), np.int64(arms[arm, 1])
        gain, cells, size = 0.0, 0, graph.free
        if kind == SWEEP:
            gain, cells = sweep(graph, z, temperature, state)
            spent = _OVERHEAD + _READ * cells
        else:
            size = choose_block(graph, z, room, order, rank, kind, limit, state)
            if size > 0:
                gain, cells = redraw(graph, z, room, size, temperature, state)
            spent = max(cells, 0) + _OVERHEAD * (size + 10)
            if cells < 0 or size == 0:
                spent += _OVERHEAD * z.size
                arms[arm, 1] = max(2.0, arms[arm, 1] / 2)
        work -= spent
        gained += gain
        arms[arm, 2] = arms[arm, 2] * _FADE + (temperature <= 0 and gain > _ROUNDING * -graph.never)
        arms[arm, 3] = arms[arm, 3] * _FADE + spent
        arms[arm, 4] += 1
        arms[arm, 5] += size
        trial += 1
    return gained, trial


@njit(nogil=True)
def choose_arm(arms, state):
    """Return which kind of move comes next: mostly the one that brought most for its work lately, else any.

    Any: by work, so that a dear kind is chosen as much less often.
    """
    best, rate = -1, 0.0
    for a in range(arms.shape[0]):
        if arms[a, 2] > _FADED and arms[a, 2] / arms[a, 3] > rate:
            best, rate = a, arms[a, 2] / arms[a, 3]
    if best >= 0 and random_unit(state) < 0.5:
        return best
    total, found = 0.0, 0
    for a in range(arms.shape[0]):
        weight = 1.0 / np.sqrt(1.0 + arms[a, 3] / (1.0 + arms[a, 4])) if arms[a, 4] > 0 else 1.0 / np.sqrt(arms[a, 1])
        total += weight
        if random_unit(state) * total < weight:
            found = a
    return found
