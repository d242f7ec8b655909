# mypy: ignore-errors
"""Annealed Gibbs chains on a factor graph on an NVIDIA GPU: a block per chain, a group of threads per variable.

Within a group each thread (lane) scores some values of the variable. Variables of one part share no factor, so the
groups draw them simultaneously without a change of the result: with integer utilities a chain is bitwise equal to one
that draws the variables one by one. Draws use the integer weights of :func:`dmcmc.samplers.model.draw_kernels.draw`.

Arguments that several functions share:

z : (n,) int32
    The state of the chain.
data : (entries,) int32 or float64
    Tables and automaton utilities, see ``FactorGraph``; ``forbidden_entry`` marks forbidden entries.
pair_start, pairs, wide_start, wide_at, wide : int32 arrays
    Dense factors of the variables, see ``DeviceFactorGraph``.
"""

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.model.draw_kernels import weight_of
from dmcmc.samplers.model.rng_kernels import philox

REGISTERS = 64  # per thread
SALT = 6  # last counter word of the random numbers; no other draw with this key uses it


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
    hard, total, value = np.int32(0), 0.0, np.uint32(d)
    i, last = np.uint32(4 * pair_start[v]), np.uint32(4 * pair_start[v + 1])
    while i + np.uint32(16) <= last:
        a, b = entry_of(i, value, z, data, pairs), entry_of(np.uint32(i + np.uint32(4)), value, z, data, pairs)
        c = entry_of(np.uint32(i + np.uint32(8)), value, z, data, pairs)
        e = entry_of(np.uint32(i + np.uint32(12)), value, z, data, pairs)
        hard += (
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
        hard += np.int32(a == forbidden_entry)
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
        hard += np.int32(a == forbidden_entry)
        total += np.float64(a) if a != forbidden_entry else 0.0
    return hard, total


@cuda.jit(device=True)
def pay(v, d, z, f, data, forbidden_entry, domains, scope_start, scope, stride, following, first_step):
    """Return whether automaton f forbids value d of v (1 or 0), and its utility if not."""
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

    The variable's scores begin at ``scores[first]`` and its weights at ``weights[at]``.
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
    left = np.int64((word * np.uint64(total)) >> np.uint64(32)) - np.int64(weights[np.uint32(at + old)])
    if left < 0:
        return old
    weights[np.uint32(at + old)] = np.int32(0)
    new = np.uint32(0)
    while new < size - np.uint32(1) and left >= weights[np.uint32(at + new)]:
        left -= np.int64(weights[np.uint32(at + new)])
        new = np.uint32(new + np.uint32(1))
    return new


@cuda_jit(max_registers=REGISTERS)
def anneal_chains(
    domains, data, forbidden_entry, order, part_start, pair_start, pairs, wide_start, wide_at, wide, automaton_start,
    automata, scope_start, scope, stride, following, first_step, schedule, rates, penalties, sweeps, unit, begin_step,
    end_step, lanes, widest, number, key0, key1, states, best_states, chain_scores, best_scores,
):  # fmt: skip
    """Advance all chains: block c runs chain c, and in each step draws the variables of one part.

    Parameters
    ----------
    domains : (n,) int32
        Domain sizes.
    data, forbidden_entry, scope_start, scope, stride, following, first_step
        See :class:`dmcmc.samplers.local_search.factor_graph.FactorGraph`.
    order, part_start, pair_start, pairs, wide_start, wide_at, wide, automaton_start, automata
        See :class:`dmcmc.samplers.local_search.cuda.layout.DeviceFactorGraph`.
    schedule : (chains,) int32
        Index of each chain's temperature schedule.
    rates : (schedules · sweeps,) float32
        log2(e) / temperature of each sweep; 0 stands for temperature 0.
    penalties : (schedules,) float64
        Penalty of a violation, representable as float32, so that its product with a small integer is exact.
    sweeps : int
        Sweeps per schedule.
    unit : float32
        Weight of the best value.
    begin_step, end_step : int
        Steps to make: step t is part t mod parts of sweep t // parts.
    lanes, widest : int
        Threads per variable; largest domain size.
    number : int
        Random-number index of the first chain.
    key0, key1 : uint64
        Key of the random numbers.
    states, best_states : (chains · n,) int32
        Current state of each chain, and its best state at the end of a sweep.
    chain_scores, best_scores : (chains · 2,) float64
        Violations, negated, and utility of these states.
    """
    # Shared memory: scores, then gains of the groups; behind them, as int32, weights and violations.
    scores = cuda.shared.array(0, types.float64)
    ints = cuda.shared.array(0, types.int32)
    chain, t, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    group, lane, groups, n = t // lanes, t % lanes, threads // lanes, domains.size
    first, parts, gains = np.uint32(group * widest), part_start.size - 1, groups * widest
    weights_at = np.uint32(2 * (gains + 2 * groups) + group * widest)
    violations_at = np.uint32(weights_at + groups * widest)
    z, best = states[chain * n : (chain + 1) * n], best_states[chain * n : (chain + 1) * n]
    own_schedule, penalty = schedule[chain], penalties[schedule[chain]]
    hard_gain, gain = np.int32(0), 0.0
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
                hard, total = score_of(v, d, z, data, forbidden_entry, pair_start, pairs, wide_start, wide_at, wide)
                for k in range(automaton_start[v], automaton_start[v + np.uint32(1)]):
                    extra_violations, automaton_utility = pay(
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
                    hard += extra_violations
                    total += automaton_utility
                scores[np.uint32(first + d)] = total - penalty * np.float64(hard)
                ints[np.uint32(violations_at + d)] = hard
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
                    ints[np.uint32(weights_at + d)] = weight_of(np.float32(gap * rate), unit)
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
                    hard_gain = np.int32(hard_gain + extra_violations)
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
                scores[gains + 2 * group], scores[gains + 2 * group + 1] = np.float64(hard_gain), gain
            hard_gain, gain = np.int32(0), 0.0
            cuda.syncthreads()
            now, utility = chain_scores[2 * chain], chain_scores[2 * chain + 1]
            for g in range(groups):
                now -= scores[gains + 2 * g]
                utility += scores[gains + 2 * g + 1]
            better = now > best_scores[2 * chain] or (
                now == best_scores[2 * chain] and utility > best_scores[2 * chain + 1]
            )
            better = better and part == parts - 1
            cuda.syncthreads()
            if better:
                i = t
                while i < n:
                    best[i] = z[i]
                    i += threads
            if t == 0:
                chain_scores[2 * chain], chain_scores[2 * chain + 1] = now, utility
                if better:
                    best_scores[2 * chain], best_scores[2 * chain + 1] = now, utility
            cuda.syncthreads()
