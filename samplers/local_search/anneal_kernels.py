# mypy: ignore-errors
"""Chains over the whole assignment: some agents' variables in turn, by Gibbs draws; scores are kept up to date."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.draw_kernels import draw, rate_of, share_unit
from dmcmc.samplers.model.rng_kernels import philox
from dmcmc.samplers.model.state_kernels import best_value, change, evaluate, fill_scores, gain_of

LOOK = 1023  # variables between two looks at the time; one less than a power of two


@njit(nogil=True)
def begin(model, z, scores):
    """Fill the scores of a state; return its utility."""
    fill_scores(model, z, scores)
    return evaluate(model, z)


@njit(_nrt=False)
def sweep(model, part, z, scores, scratch, temperature, key, chain, trial, halt):
    """Draw the variables ``part[0]`` to ``part[1]`` - 1 in turn; at temperature 0 take the best; return the gain."""
    gained = np.int64(0)
    if temperature <= 0:
        for v in range(part[0], part[1]):
            if v & LOOK == 0 and halt[0] != 0:
                break
            new = best_value(scores, v, model.domains[v], z[v])
            if new != z[v]:
                gained += gain_of(scores, v, new, z[v])
                change(model, z, scores, v, new)
        return gained
    per_unit = rate_of(temperature)
    unit = share_unit(model.lanes)
    words = philox(key[0], key[1], chain, 0, trial, part[0] >> 2)
    for v in range(part[0], part[1]):
        if v & LOOK == 0 and halt[0] != 0:
            break
        if v & 3 == 0:
            words = philox(key[0], key[1], chain, 0, trial, v >> 2)
        old = z[v]
        new = draw(model, scores, v, per_unit, unit, old, words[v & 3], scratch)
        if new != old:
            gained += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return gained


@njit(nogil=True)
def anneal(model, order, first_part, z, scores, scratch, kept, worth, temperatures, trial, key, chain, halt):
    """Make sweeps over all parts, beginning with part ``first_part``, and keep the best state of their ends.

    Parameters
    ----------
    order : tuple
        Places in ``blocks`` where the parts begin, and their end; the blocks' first variables, and the end; how many
        sweeps a block makes in turn, while its tables are in the processor's cache.
    kept : (n,) int32
        The best state.
    worth : (2,) int64
        Utility of the state and of the best one.
    temperatures : (sweeps,) float32
    trial : int
        Number of the first sweep, from 1.
    halt : (1,) uint8
        Not 0 when it is time to end.

    Returns
    -------
    int
        Sweeps made.
    """
    parts, blocks, visit = order
    k, t = parts.size - 1, 0
    while t < temperatures.size:
        if halt[0] != 0:
            return t
        gained, end = np.int64(0), min(temperatures.size, t + visit)
        for i in range(k):
            part = (first_part + i) % k
            for block in range(parts[part], parts[part + 1]):
                span = (blocks[block], blocks[block + 1])
                for s in range(t, end):
                    gained += sweep(model, span, z, scores, scratch, temperatures[s], key, chain, trial + s, halt)
        worth[0] += gained
        if worth[0] > worth[1]:
            worth[1] = worth[0]
            for v in range(z.size):
                kept[v] = z[v]
        elif temperatures[t] <= 0 and gained == 0:
            return end
        t = end
    return t


@njit(nogil=True)
def pair_moves(model, z, scores, first, last, halt):
    """Let each of the variables ``first`` to ``last`` - 1 change together with one neighbour, where that gains most.

    Returns
    -------
    int64
        What was gained.
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
