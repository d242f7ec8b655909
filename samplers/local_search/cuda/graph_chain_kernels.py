# mypy: ignore-errors
"""Chains on a problem as it was asked, on an NVIDIA GPU: a block of threads a chain, a group of them a variable.

Variables of one part share no factor, so groups draw them at the same time, and what comes out is the same in whatever
order: a chain of whole numbers is that of a twin that draws one after the other, to the bit. Draws are those of
:func:`dmcmc.samplers.model.draw_kernels.draw`, by whole-number weights.
"""

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.model.draw_kernels import share_of
from dmcmc.samplers.model.rng_kernels import philox

REGISTERS = 64  # of a thread
SALT = 6  # no other draw with this key has it


@cuda.jit(device=True, inline="always")
def entry_of(i, d, z, data, pairs):
    """Return the entry of record i, a word, for value d. Unsigned places need no look at whether they are negative."""
    other, at = z[np.uint32(pairs[i + np.uint32(1)])], np.uint32(pairs[i])
    at = np.uint32(at + np.uint32(np.uint32(other) * np.uint32(pairs[i + np.uint32(2)])))
    return data[np.uint32(at + np.uint32(d * np.uint32(pairs[i + np.uint32(3)])))]


@cuda.jit(device=True)
def score_of(v, d, z, data, never, pair_start, pairs, wide_start, wide_at, wide):
    """Return violations and utility of the dense factors of v, if it had value d; four entries are on their way."""
    hard, total, own = np.int32(0), 0.0, np.uint32(d)
    i, last = np.uint32(4 * pair_start[v]), np.uint32(4 * pair_start[v + 1])
    while i + np.uint32(16) <= last:
        a, b = entry_of(i, own, z, data, pairs), entry_of(np.uint32(i + np.uint32(4)), own, z, data, pairs)
        c = entry_of(np.uint32(i + np.uint32(8)), own, z, data, pairs)
        e = entry_of(np.uint32(i + np.uint32(12)), own, z, data, pairs)
        hard += np.int32(a == never) + np.int32(b == never) + np.int32(c == never) + np.int32(e == never)
        total += np.float64(a) if a != never else 0.0
        total += np.float64(b) if b != never else 0.0
        total += np.float64(c) if c != never else 0.0
        total += np.float64(e) if e != never else 0.0
        i = np.uint32(i + np.uint32(16))
    while i < last:
        a = entry_of(i, own, z, data, pairs)
        hard += np.int32(a == never)
        total += np.float64(a) if a != never else 0.0
        i = np.uint32(i + np.uint32(4))
    for k in range(wide_start[v], wide_start[v + 1]):
        j, end = np.uint32(wide_at[k]), np.uint32(wide_at[k + 1])
        at = np.uint32(np.uint32(wide[j]) + np.uint32(own * np.uint32(wide[j + np.uint32(1)])))
        j = np.uint32(j + np.uint32(2))
        while j < end:
            other = np.uint32(z[np.uint32(wide[j])])
            at = np.uint32(at + np.uint32(other * np.uint32(wide[j + np.uint32(1)])))
            j = np.uint32(j + np.uint32(2))
        a = data[at]
        hard += np.int32(a == never)
        total += np.float64(a) if a != never else 0.0
    return hard, total


@cuda.jit(device=True)
def pay(v, d, z, f, data, never, domains, scope_start, scope, stride, following, first_step):
    """Return whether an automaton forbids v to have value d, and what it pays else."""
    state, paid = 0, 0.0
    for s in range(scope_start[f], scope_start[f + 1]):
        w = scope[s]
        step = stride[s] + state * domains[w] + (d if w == v else z[w])
        entry = data[first_step + step]
        if entry == never:
            return np.int32(1), 0.0
        paid += np.float64(entry)
        state = following[step]
    return np.int32(0), paid


@cuda.jit(device=True)
def choose(scores, first, shares, at, size, old, rate, word):
    """Return a value by the shares of all, as ``draw`` does; at temperature 0 the best: the old one if it ties.

    Scores begin at place ``first`` of ``scores``, shares at place ``at`` of ``shares``.
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
        total = np.uint32(total + np.uint32(shares[np.uint32(at + d)]))
        d = np.uint32(d + np.uint32(1))
    left = np.int64((word * np.uint64(total)) >> np.uint64(32)) - np.int64(shares[np.uint32(at + old)])
    if left < 0:
        return old
    shares[np.uint32(at + old)] = np.int32(0)
    new = np.uint32(0)
    while new < size - np.uint32(1) and left >= shares[np.uint32(at + new)]:
        left -= np.int64(shares[np.uint32(at + new)])
        new = np.uint32(new + np.uint32(1))
    return new


@cuda_jit(max_registers=REGISTERS)
def anneal_chains(
    domains, data, never, order, part_start, pair_start, pairs, wide_start, wide_at, wide, long_start, long,
    scope_start, scope, stride, following, first_step, schedule, rates, penalties, sweeps, unit, first_turn, last_turn,
    lanes, widest, number, key0, key1, zs, kept, nows, bests,
):  # fmt: skip
    """Go on with all chains: in a turn each draws the variables of one part.

    Parameters
    ----------
    domains, data, never, scope_start, scope, stride, following, first_step
        Of the graph.
    order, part_start, pair_start, pairs, wide_start, wide_at, wide, long_start, long
        See :class:`dmcmc.samplers.local_search.cuda.layout.Layout`.
    schedule : (chains,) int32
        Which of the schedules a chain has.
    rates : (schedules · sweeps,) float32
        log2(e) / temperature of each sweep; 0 at temperature 0.
    penalties : (schedules,) float64
        What a violation costs; a float32, so that times a small whole number it is exact.
    unit : float32
        The weight of the best value.
    first_turn, last_turn : int
        Turn t is part t mod parts of sweep t // parts.
    number : int
        Of the first chain.
    zs, kept : (chains · n,) int32
        States of the chains, and the best of each at the end of a sweep.
    nows, bests : (chains · 2,) float64
        Violations, negated, and utility of these.
    """
    scores = cuda.shared.array(0, types.float64)  # then gains; behind them shares and violations
    ints = cuda.shared.array(0, types.int32)
    chain, t, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    group, lane, groups, n = t // lanes, t % lanes, threads // lanes, domains.size
    first, parts, gains = np.uint32(group * widest), part_start.size - 1, groups * widest
    at = np.uint32(2 * (gains + 2 * groups) + group * widest)
    hards = np.uint32(at + groups * widest)
    z, best = zs[chain * n : (chain + 1) * n], kept[chain * n : (chain + 1) * n]
    mine, penalty = schedule[chain], penalties[schedule[chain]]
    hard_gain, gain = np.int32(0), 0.0
    for turn in range(first_turn, last_turn):
        sweep, part = turn // parts, turn % parts
        rate, begin, end = rates[mine * sweeps + sweep], part_start[part], part_start[part + 1]
        base = begin
        while base < end:
            i = base + group
            v, size = np.uint32(0), np.uint32(0)
            if i < end:
                v = np.uint32(order[i])
                size = np.uint32(domains[v])
            d = np.uint32(lane)
            while d < size:
                hard, total = score_of(v, d, z, data, never, pair_start, pairs, wide_start, wide_at, wide)
                for k in range(long_start[v], long_start[v + np.uint32(1)]):
                    more, paid = pay(
                        v, d, z, long[k], data, never, domains, scope_start, scope, stride, following, first_step
                    )
                    hard += more
                    total += paid
                scores[np.uint32(first + d)] = total - penalty * np.float64(hard)
                ints[np.uint32(hards + d)] = hard
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
                    ints[np.uint32(at + d)] = share_of(np.float32(gap * rate), unit)
                    d = np.uint32(d + np.uint32(lanes))
            cuda.syncthreads()
            if lane == 0 and size > np.uint32(0):
                old = np.uint32(z[v])
                word = np.uint64(0)
                if rate > 0:
                    word = philox(key0, key1, number + chain, SALT, 1 + sweep, v)[0]
                new = choose(scores, first, ints, at, size, old, rate, word)
                if new != old:
                    more = np.int32(ints[np.uint32(hards + new)] - ints[np.uint32(hards + old)])
                    hard_gain = np.int32(hard_gain + more)
                    gain += scores[np.uint32(first + new)] - scores[np.uint32(first + old)] + penalty * np.float64(more)
                    z[v] = np.int32(new)
            cuda.syncthreads()
            base += groups
        if part == parts - 1 or turn == last_turn - 1:
            if lane == 0:
                scores[gains + 2 * group], scores[gains + 2 * group + 1] = np.float64(hard_gain), gain
            hard_gain, gain = np.int32(0), 0.0
            cuda.syncthreads()
            now, utility = nows[2 * chain], nows[2 * chain + 1]
            for g in range(groups):
                now -= scores[gains + 2 * g]
                utility += scores[gains + 2 * g + 1]
            better = now > bests[2 * chain] or (now == bests[2 * chain] and utility > bests[2 * chain + 1])
            better = better and part == parts - 1
            cuda.syncthreads()
            if better:
                i = t
                while i < n:
                    best[i] = z[i]
                    i += threads
            if t == 0:
                nows[2 * chain], nows[2 * chain + 1] = now, utility
                if better:
                    bests[2 * chain], bests[2 * chain + 1] = now, utility
            cuda.syncthreads()
