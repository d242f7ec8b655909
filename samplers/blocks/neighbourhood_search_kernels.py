# mypy: ignore-errors
"""Sequences of block moves on one assignment; a multi-armed bandit chooses the type of the next move.

A *block move* redraws a set of variables exactly, given all others, by bucket elimination. An *arm* is a type of move
with a limit on the cells (entries) of the table that one bucket joins. It is chosen by its number of successes, moves
that gain utility, per unit of work. The types of moves are 0 and 1: redraw a grown block (random or breadth-first); 2
and 3: redraw a block that is cut from the whole graph (at random, or near a variable); 4 (``SWEEP``): draw every single
variable. Work is counted in table cells.

Shared arguments: ``graph`` (FactorGraph), ``z`` (n,) int64 (the assignment), ``workspace`` (BlockWorkspace) and
``state`` (1,) uint64 (of the random number generator) are described in ``block_selection_kernels``. ``order`` and
``rank``, (n,) int64, are an elimination order and each variable's index in it. In short: the graph holds dense tables
and automata in which a violation is a finite loss, ``graph.forbidden_entry``; variables from ``graph.free`` on are
fixed; ``workspace.block`` receives the variables of a block in elimination order.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import random_unit, random_word
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_gibbs_kernels import redraw, sweep
from dmcmc.samplers.blocks.block_selection_kernels import cut, grow, random_below, start_near_loss
from dmcmc.samplers.model.state_kernels import philox

_CELLS_PER_VARIABLE = 3000  # cells that each variable of a block is counted as: its bucket is planned, filled and read
_CELLS_PER_READ = 10  # cells that an entry is counted as if a sweep reads it
SWEEP = 4  # the type of move that draws single variables
_DISCOUNT = 0.95  # factor by which an arm's statistics of successes and work decrease per use
_MIN_SUCCESSES = 0.01  # an arm with fewer (discounted) successes counts as unsuccessful
_ROUNDING = 1e-13  # relative to the loss of a violation: a smaller gain is rounding
_MOVE_SALT = 2  # second counter word of the random numbers: no other draw with this key uses it


@njit(nogil=True)
def distances(graph, first, out, queue):
    """Write each variable's distance from ``first`` to ``out``, by breadth-first search; ``out.size`` without a path.

    The distance is the smallest number of factors on a path. ``out`` is (n,) float64, ``queue`` (at least n,) int64.
    """
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
def choose_block(graph, z, workspace, order, rank, move_type, limit, state):
    """Select a block of move type 0 to 3 and return its size.

    Types 0 and 1 grow a block from one variable. Type 2 cuts a block and fixes random variables. Type 3 cuts a block
    and preferably fixes variables far from one variable. In half of the cases this variable belongs to a factor with a
    loss (its entry is below its largest one), selected from 64 drawn factors in proportion to the loss. ``limit`` is
    the maximum of cells per bucket; the total of all buckets may be 16 times that for a grown block, and for a cut one
    1024 times that up to 2^23 (factors chosen by measurement). The size is 0 if a cut block exceeds its total.
    """
    first = (
        start_near_loss(graph, z, workspace.best, state, 64)
        if random_unit(state) < 0.5
        else random_below(state, graph.free)
    )
    if move_type < 2:
        return grow(graph, workspace, first, limit, 16 * limit, move_type == 1, state)
    priority = workspace.priority
    if move_type == 3:
        distances(graph, first, priority, workspace.queue)
        for v in range(priority.size):
            priority[v] = random_unit(state) * 2.0 - priority[v]  # far is low; random among similar distances
    else:
        for v in range(priority.size):
            priority[v] = random_unit(state)
    return cut(graph, workspace, order, rank, priority, limit, min(1024 * limit, np.int64(1 << 23)))


@njit(nogil=True)
def improve(graph, z, workspace, order, rank, arms, temperature, key, chain, trial, work, halt):
    """Make block moves until ``work`` cells are joined or ``halt[0]`` is nonzero.

    A type that fails to find a block within its limit has its limit halved. Successes are counted only at temperature
    0.

    Parameters
    ----------
    arms : (arms, 6) float64
        Columns per arm: type of move, maximum of cells per bucket, discounted number of successes, discounted work,
        number of uses, sum of block sizes. All but the type are updated.
    temperature : float
        At 0 the assignment never gets worse.
    key : (2,) uint64
        Key of the random numbers; ``chain`` and ``trial`` are counters.
    trial : int
        Number of the first move.
    work : int
        Cells to join.
    halt : (1,) uint8
        Nonzero when the kernel should return.

    Returns
    -------
    gained : float
        Gain of utility.
    trial : int
        Number of the next move.
    """
    gained = 0.0
    state = np.empty(1, dtype=np.uint64)
    while work > 0 and halt[0] == 0:
        words = philox(key[0], key[1], chain, _MOVE_SALT, trial, 0)
        state[0] = words[0] << np.uint64(32) | words[1] | np.uint64(1)
        random_word(state)
        arm = choose_arm(arms, state)
        move_type, limit = np.int64(arms[arm, 0]), np.int64(arms[arm, 1])
        gain, cells, size = 0.0, 0, graph.free
        if move_type == SWEEP:
            gain, cells = sweep(graph, z, temperature, state)
            spent = _CELLS_PER_VARIABLE + _CELLS_PER_READ * cells
        else:
            size = choose_block(graph, z, workspace, order, rank, move_type, limit, state)
            if size > 0:
                gain, cells = redraw(graph, z, workspace, size, temperature, state)
            # A move costs as much as 10 variables besides its block (chosen by measurement).
            spent = max(cells, 0) + _CELLS_PER_VARIABLE * (size + 10)
            if cells < 0 or size == 0:  # the arena is too small, or there is no block within the limit
                spent += _CELLS_PER_VARIABLE * z.size
                arms[arm, 1] = max(2.0, arms[arm, 1] / 2)
        work -= spent
        gained += gain
        arms[arm, 2] = arms[arm, 2] * _DISCOUNT + (temperature <= 0 and gain > _ROUNDING * -graph.forbidden_entry)
        arms[arm, 3] = arms[arm, 3] * _DISCOUNT + spent
        arms[arm, 4] += 1
        arms[arm, 5] += size
        trial += 1
    return gained, trial


@njit(nogil=True, allocates=False)
def choose_arm(arms, state):
    """Return the index of the next arm: in half of the cases that with most successes per work, else a random one.

    A random arm is drawn with weight 1 / sqrt(work per use), so that expensive types of moves are rarer (weighted
    reservoir sampling). The work of an unused arm is taken to be its limit of cells.
    """
    best, rate = -1, 0.0
    for a in range(arms.shape[0]):
        if arms[a, 2] > _MIN_SUCCESSES and arms[a, 2] / arms[a, 3] > rate:
            best, rate = a, arms[a, 2] / arms[a, 3]
    if best >= 0 and random_unit(state) < 0.5:
        return best
    total, drawn = 0.0, 0
    for a in range(arms.shape[0]):
        weight = 1.0 / np.sqrt(1.0 + arms[a, 3] / (1.0 + arms[a, 4])) if arms[a, 4] > 0 else 1.0 / np.sqrt(arms[a, 1])
        total += weight
        if random_unit(state) * total < weight:
            drawn = a
    return drawn
