# mypy: ignore-errors
"""Chains on the factor graph, and its colouring, on a GPU.

Annealed Gibbs chains on a factor graph on an NVIDIA GPU: a thread block per chain, a group of threads per variable.

Within a group each thread (lane) scores some values of the variable. Variables of one part share no factor, so the
groups draw them simultaneously without a change of the result: with integer utilities a chain is bitwise equal to one
that draws the variables one by one. Draws use the integer weights of :func:`dmcmc.samplers.model.draw_kernels.draw`:
round(w · 2^(gap · rate)) with w = ``best_weight``, gap = score less the best score, and rate = log2(e) / temperature. A
*part* is a set of variables without a common factor; a *step* draws one part, a *sweep* all parts.

Arguments that several functions share:

v, d : uint32
    A variable and one of its values.
z : (n,) int32
    The state of the chain.
data : (entries,) int32 or float64
    Tables and automaton utilities, see ``FactorGraph``; ``forbidden_entry`` marks forbidden entries.
pair_start, pairs : (n + 1,), (4 · records,) int32
    Records ``pair_start[v]`` to ``pair_start[v + 1]`` - 1 are the factors of v with one or two variables. Four words
    each: offset of the table in ``data``, the other variable, its stride, the stride of v.
wide_start, wide_at, wide : (n + 1,), (records + 1,), (words,) int32
    Likewise the dense factors of v with three or more variables. Record k begins at ``wide[wide_at[k]]``: offset of
    the table, the stride of v, then each other variable and its stride.

Greedy colouring of the variables: variables of one colour share no factor, so a GPU can draw them simultaneously.
"""

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit, njit
from dmcmc.samplers.model.draw_kernels import weight_of
from dmcmc.samplers.model.state_kernels import philox

REGISTERS = 64  # maximum number of registers per thread
SALT = 6  # second counter word of the random numbers; no other draw with this key uses it


@cuda.jit(device=True, inline="always")
def entry_of(i, d, z, data, pairs):
    """Return the entry for value d of the pair record at word i; unsigned offsets spare a check for negative ones."""
    other, at = z[np.uint32(pairs[i + np.uint32(1)])], np.uint32(pairs[i])
    at = np.uint32(at + np.uint32(np.uint32(other) * np.uint32(pairs[i + np.uint32(2)])))
    return data[np.uint32(at + np.uint32(d * np.uint32(pairs[i + np.uint32(3)])))]


@cuda.jit(device=True)
def score_of(v, d, z, data, forbidden_entry, pair_start, pairs, wide_start, wide_at, wide):
    """Return the violations and the utility of v's dense factors for value d.

    Four independent reads per loop iteration hide the memory latency.
    """
    violations, total, value = np.int32(0), 0.0, np.uint32(d)
    i, last = np.uint32(4 * pair_start[v]), np.uint32(4 * pair_start[v + 1])
    while i + np.uint32(16) <= last:
        a, b = entry_of(i, value, z, data, pairs), entry_of(np.uint32(i + np.uint32(4)), value, z, data, pairs)
        c = entry_of(np.uint32(i + np.uint32(8)), value, z, data, pairs)
        e = entry_of(np.uint32(i + np.uint32(12)), value, z, data, pairs)
        violations += (
            np.int32(a == forbidden_entry)
            + np.int32(b == forbidden_entry)
            + np.int32(c == forbidden_entry)
            + np.int32(e == forbidden_entry)
        )
        total += np.float64(a) if a != forbidden_entry else 0.0
        total += np.float64(b) if b != forbidden_entry else 0.0
        total += np.float64(c) if c != forbidden_entry else 0.0
        total += np.float64(e) if e != forbidden_entry else 0.0
        i = np.uint32(i + np.uint32(16))
    while i < last:
        a = entry_of(i, value, z, data, pairs)
        violations += np.int32(a == forbidden_entry)
        total += np.float64(a) if a != forbidden_entry else 0.0
        i = np.uint32(i + np.uint32(4))
    for k in range(wide_start[v], wide_start[v + 1]):
        j, end = np.uint32(wide_at[k]), np.uint32(wide_at[k + 1])
        at = np.uint32(np.uint32(wide[j]) + np.uint32(value * np.uint32(wide[j + np.uint32(1)])))
        j = np.uint32(j + np.uint32(2))
        while j < end:
            other = np.uint32(z[np.uint32(wide[j])])
            at = np.uint32(at + np.uint32(other * np.uint32(wide[j + np.uint32(1)])))
            j = np.uint32(j + np.uint32(2))
        a = data[at]
        violations += np.int32(a == forbidden_entry)
        total += np.float64(a) if a != forbidden_entry else 0.0
    return violations, total


@cuda.jit(device=True)
def score_automaton(v, d, z, f, data, forbidden_entry, domains, scope_start, scope, stride, following, first_step):
    """Return whether automaton f forbids value d of v (1 or 0), and its utility if not.

    The automaton reads the values of ``scope[scope_start[f]:scope_start[f + 1]]`` in turn. Transition
    ``stride[s] + state · domain + value`` has its utility in ``data``, from ``first_step`` on, and its next state in
    ``following``.
    """
    state, total = 0, 0.0
    for s in range(scope_start[f], scope_start[f + 1]):
        w = scope[s]
        step = stride[s] + state * domains[w] + (d if w == v else z[w])
        entry = data[first_step + step]
        if entry == forbidden_entry:
            return np.int32(1), 0.0
        total += np.float64(entry)
        state = following[step]
    return np.int32(0), total


@cuda.jit(device=True)
def choose(scores, first, weights, at, size, old, rate, word):
    """Return a value drawn by the weights as ``draw`` does; at temperature 0 the best value, the old one on a tie.

    Parameters
    ----------
    scores, weights : float64, int32 arrays in shared memory
        The variable's scores begin at ``scores[first]`` and its weights at ``weights[at]``. The weight of ``old`` is
        overwritten.
    size, old : uint32
        Domain size, and the present value.
    rate : float32
        log2(e) / temperature; 0 stands for temperature 0.
    word : uint64
        32 random bits.
    """
    if rate <= 0:
        best, d = np.uint32(0), np.uint32(1)
        while d < size:
            if scores[np.uint32(first + d)] > scores[np.uint32(first + best)]:
                best = d
            d = np.uint32(d + np.uint32(1))
        return old if scores[np.uint32(first + old)] == scores[np.uint32(first + best)] else best
    total, d = np.uint32(0), np.uint32(0)
    while d < size:
        total = np.uint32(total + np.uint32(weights[np.uint32(at + d)]))
        d = np.uint32(d + np.uint32(1))
    remaining = np.int64((word * np.uint64(total)) >> np.uint64(32)) - np.int64(weights[np.uint32(at + old)])
    if remaining < 0:
        return old
    weights[np.uint32(at + old)] = np.int32(0)
    new = np.uint32(0)
    while new < size - np.uint32(1) and remaining >= weights[np.uint32(at + new)]:
        remaining -= np.int64(weights[np.uint32(at + new)])
        new = np.uint32(new + np.uint32(1))
    return new


@cuda_jit(max_registers=REGISTERS)
def anneal_chains(
    domains, data, forbidden_entry, order, part_start, pair_start, pairs, wide_start, wide_at, wide, automaton_start,
    automata, scope_start, scope, stride, following, first_step, schedule, rates, penalties, sweeps, best_weight,
    begin_step, end_step, lanes, widest, number, key0, key1, states, best_states, chain_scores, best_scores,
):  # fmt: skip
    """Advance all chains: thread block c runs chain c, and in each step draws the variables of one part.

    A group of ``lanes`` threads draws one variable at a time. At the end of a sweep, a better state is stored as the
    best.

    Parameters
    ----------
    domains : (n,) int32
        Domain sizes.
    order, part_start : (n,), (parts + 1,) int32
        Variables in the order of a sweep; ``order[part_start[p]:part_start[p + 1]]`` share no factor.
    data, forbidden_entry, pair_start, pairs, wide_start, wide_at, wide
        See above.
    automaton_start, automata : (n + 1,), (scope entries of automata,) int32
        The automata of v are factors ``automata[automaton_start[v]:automaton_start[v + 1]]``.
    scope_start, scope, stride, following, first_step
        Scopes and transitions of the factors, see :class:`dmcmc.inference.model.factor_graph.FactorGraph`.
    schedule : (chains,) int32
        Index of each chain's temperature schedule.
    rates : (schedules · sweeps,) float32
        log2(e) / temperature of each sweep; 0 stands for temperature 0.
    penalties : (schedules,) float64
        Penalty of a violation, representable as float32, so that its product with a small integer is exact.
    sweeps : int
        Sweeps per schedule.
    best_weight : float32
        Integer weight w of the best value in a draw, so small that the sum of all weights fits 31 bits.
    begin_step, end_step : int
        Steps to make (the end exclusive): step t is part t mod parts of sweep t // parts.
    lanes, widest : int
        Threads per variable; largest domain size.
    number : int
        Counter of the random numbers of the first chain; chain c has ``number`` + c.
    key0, key1 : uint64
        Key of the random numbers.
    states, best_states : (chains · n,) int32
        Current state of each chain, and its best state at the end of a sweep.
    chain_scores, best_scores : (chains · 2,) float64
        Violations, negated, and utility of these states.
    """
    # Shared memory: scores, (groups, widest) float64, then (violations added, utility gained) per group, (groups, 2);
    # behind them, as int32, weights and violations, (groups, widest) each. A float64 takes two int32.
    scores = cuda.shared.array(0, types.float64)
    ints = cuda.shared.array(0, types.int32)
    chain, t, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    group, lane, groups, n = t // lanes, t % lanes, threads // lanes, domains.size
    first, parts, gains = np.uint32(group * widest), part_start.size - 1, groups * widest
    weights_at = np.uint32(2 * (gains + 2 * groups) + group * widest)
    violations_at = np.uint32(weights_at + groups * widest)
    z, best = states[chain * n : (chain + 1) * n], best_states[chain * n : (chain + 1) * n]
    own_schedule, penalty = schedule[chain], penalties[schedule[chain]]
    added_violations, gain = np.int32(0), 0.0
    for step in range(begin_step, end_step):
        sweep, part = step // parts, step % parts
        rate, begin, end = rates[own_schedule * sweeps + sweep], part_start[part], part_start[part + 1]
        base = begin
        while base < end:
            i = base + group
            v, size = np.uint32(0), np.uint32(0)
            if i < end:
                v = np.uint32(order[i])
                size = np.uint32(domains[v])
            d = np.uint32(lane)
            while d < size:
                violations, total = score_of(
                    v, d, z, data, forbidden_entry, pair_start, pairs, wide_start, wide_at, wide
                )
                for k in range(automaton_start[v], automaton_start[v + np.uint32(1)]):
                    extra_violations, automaton_utility = score_automaton(
                        v,
                        d,
                        z,
                        automata[k],
                        data,
                        forbidden_entry,
                        domains,
                        scope_start,
                        scope,
                        stride,
                        following,
                        first_step,
                    )
                    violations += extra_violations
                    total += automaton_utility
                scores[np.uint32(first + d)] = total - penalty * np.float64(violations)
                ints[np.uint32(violations_at + d)] = violations
                d = np.uint32(d + np.uint32(lanes))
            cuda.syncthreads()
            if rate > 0 and size > np.uint32(0):
                top, d = scores[first], np.uint32(1)
                while d < size:
                    top = max(top, scores[np.uint32(first + d)])
                    d = np.uint32(d + np.uint32(1))
                d = np.uint32(lane)
                while d < size:
                    gap = np.float32(scores[np.uint32(first + d)] - top)
                    ints[np.uint32(weights_at + d)] = weight_of(np.float32(gap * rate), best_weight)
                    d = np.uint32(d + np.uint32(lanes))
            cuda.syncthreads()
            if lane == 0 and size > np.uint32(0):
                old = np.uint32(z[v])
                word = np.uint64(0)
                if rate > 0:
                    word = philox(key0, key1, number + chain, SALT, 1 + sweep, v)[0]
                new = choose(scores, first, ints, weights_at, size, old, rate, word)
                if new != old:
                    extra_violations = np.int32(
                        ints[np.uint32(violations_at + new)] - ints[np.uint32(violations_at + old)]
                    )
                    added_violations = np.int32(added_violations + extra_violations)
                    gain += (
                        scores[np.uint32(first + new)]
                        - scores[np.uint32(first + old)]
                        + penalty * np.float64(extra_violations)
                    )
                    z[v] = np.int32(new)
            cuda.syncthreads()
            base += groups
        if part == parts - 1 or step == end_step - 1:
            if lane == 0:
                scores[gains + 2 * group], scores[gains + 2 * group + 1] = np.float64(added_violations), gain
            added_violations, gain = np.int32(0), 0.0
            cuda.syncthreads()
            negated_violations, utility = chain_scores[2 * chain], chain_scores[2 * chain + 1]
            for g in range(groups):
                negated_violations -= scores[gains + 2 * g]
                utility += scores[gains + 2 * g + 1]
            better = negated_violations > best_scores[2 * chain] or (
                negated_violations == best_scores[2 * chain] and utility > best_scores[2 * chain + 1]
            )
            better = better and part == parts - 1
            cuda.syncthreads()
            if better:
                i = t
                while i < n:
                    best[i] = z[i]
                    i += threads
            if t == 0:
                chain_scores[2 * chain], chain_scores[2 * chain + 1] = negated_violations, utility
                if better:
                    best_scores[2 * chain], best_scores[2 * chain + 1] = negated_violations, utility
            cuda.syncthreads()


@njit(nogil=True)
def colour_variables(start, factor, scope_start, scope, order):
    """Return a colour for each variable, in the given order: the smallest colour that no neighbour has.

    Parameters
    ----------
    start, factor, scope_start, scope : int64 arrays
        As in ``FactorGraph``.
    order : (n,) int64
        Variables in the order in which they get their colours.

    Returns
    -------
    (n,) int32
        The colours, from 0.
    """
    n = start.size - 1
    colour, last_taken_by = np.full(n, -1, dtype=np.int32), np.full(n + 1, -1, dtype=np.int32)
    for v in order:
        for i in range(start[v], start[v + 1]):
            for s in range(scope_start[factor[i]], scope_start[factor[i] + 1]):
                if colour[scope[s]] >= 0:
                    last_taken_by[colour[scope[s]]] = v
        free = 0
        while last_taken_by[free] == v:
            free += 1
        colour[v] = free
    return colour
