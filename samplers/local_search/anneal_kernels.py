# mypy: ignore-errors
"""Annealed Gibbs chains over complete assignments, with all scores kept up to date.

Arguments that several kernels share:

model : ChainModel
    All variables of the problem, numbered in the order of a sweep; see ``dmcmc.samplers.model.chain_model``. Utilities
    are integers in *chain units* (utilities times a power of two, rounded), with −2^k per forbidden entry; draws
    subtract a finite penalty instead.
z : (n,) int32
    The state.
scores : (n, lanes) uint16 or int32
    Utility of each value of each variable, given the others.
scratch : (lanes,) int32
    Workspace of a draw.
key : (2,) uint64
    Key of the random numbers. Their counter is ``chain``, ``trial`` (the sweep's number) and the variable.
halt : (1,) uint8
    Nonzero when the kernel should return.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.draw_kernels import best_value_weight, draw, rate_of
from dmcmc.samplers.model.state_kernels import best_value, change, evaluate, fill_scores, gain_of, philox

HALT_MASK = 1023  # a mask: ``halt`` is read at variables whose number is a multiple of 1024


@njit(nogil=True)
def begin(model, z, scores):
    """Fill the scores of a state and return its utility."""
    fill_scores(model, z, scores)
    return evaluate(model, z)


@njit(allocates=False)
def sweep(model, span, z, scores, scratch, temperature, key, chain, trial, halt):
    """Draw the variables in ``range(span[0], span[1])`` in turn (a Gibbs sweep) and return the utility gain.

    At temperature 0 each variable takes its best value.
    """
    gained = np.int64(0)
    if temperature <= 0:
        for v in range(span[0], span[1]):
            if v & HALT_MASK == 0 and halt[0] != 0:
                break
            new = best_value(scores, v, model.domains[v], z[v])
            if new != z[v]:
                gained += gain_of(scores, v, new, z[v])
                change(model, z, scores, v, new)
        return gained
    rate = rate_of(temperature)
    best_weight = best_value_weight(model.lanes)
    # One block of random bits has four words, one per variable.
    words = philox(key[0], key[1], chain, 0, trial, span[0] >> 2)
    for v in range(span[0], span[1]):
        if v & HALT_MASK == 0 and halt[0] != 0:
            break
        if v & 3 == 0:
            words = philox(key[0], key[1], chain, 0, trial, v >> 2)
        old = z[v]
        new = draw(model, scores, v, rate, best_weight, old, words[v & 3], scratch)
        if new != old:
            gained += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return gained


@njit(nogil=True)
def anneal(model, order, first_part, z, scores, scratch, best, utilities, temperatures, trial, key, chain, halt):
    """Make sweeps over all parts, beginning with part ``first_part``, and keep the best state seen between sweeps.

    The kernel returns early if it is halted, or if a sweep at temperature 0 gains nothing.

    Parameters
    ----------
    order : tuple
        A part has the variables of agents that share no factor; a block is a range of variables, a whole part or one
        agent. The entries are: offsets of the parts in ``blocks`` and the end, (parts + 1,) int64; first variables of
        the blocks and the end, (blocks + 1,) int64; the number of consecutive sweeps that a block makes while its
        tables are in the cache.
    first_part : int
        The part to begin with; the others follow cyclically.
    best : (n,) int32
        The best state.
    utilities : (2,) int64
        Utility of the state and of the best state; updated.
    temperatures : (sweeps,) float32
        Temperature of each sweep, in chain units.
    trial : int
        Number of the first sweep, from 1.

    Returns
    -------
    int
        Sweeps made.
    """
    parts, blocks, sweeps_per_visit = order
    k, t = parts.size - 1, 0
    while t < temperatures.size:
        if halt[0] != 0:
            return t
        gained, end = np.int64(0), min(temperatures.size, t + sweeps_per_visit)
        for i in range(k):
            part = (first_part + i) % k
            for block in range(parts[part], parts[part + 1]):
                span = (blocks[block], blocks[block + 1])
                for s in range(t, end):
                    gained += sweep(model, span, z, scores, scratch, temperatures[s], key, chain, trial + s, halt)
        utilities[0] += gained
        if utilities[0] > utilities[1]:
            utilities[1] = utilities[0]
            for v in range(z.size):
                best[v] = z[v]
        elif temperatures[t] <= 0 and gained == 0:
            return end
        t = end
    return t


@njit(nogil=True, allocates=False)
def pair_moves(model, z, scores, first, last, halt):
    """Make the best 2-opt move of each variable in ``range(first, last)``, together with one neighbour, if it gains.

    Returns
    -------
    int64
        Utility gain of all moves.
    """
    gained = np.int64(0)
    for u in range(first, last):
        if halt[0] != 0:
            break
        old = z[u]
        top, best_a, best_v, best_b = np.int64(0), 0, -1, 0
        for a in range(model.domains[u]):
            if a == old:
                continue
            loss = gain_of(scores, u, a, old)
            change(model, z, scores, u, a)
            for t in range(model.touch_start[u], model.touch_start[u + 1]):
                v = model.touch_variable[t]
                b = best_value(scores, v, model.domains[v], z[v])
                gain = loss + gain_of(scores, v, b, z[v])
                if gain > top:
                    top, best_a, best_v, best_b = gain, a, v, b
            change(model, z, scores, u, old)
        if best_v >= 0:
            change(model, z, scores, u, best_a)
            change(model, z, scores, best_v, best_b)
            gained += top
    return gained
