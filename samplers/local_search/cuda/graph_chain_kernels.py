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


@cuda.jit(device=True)
def score_of(v, d, z, data, never, pair_start, pairs, wide_start, wide_at, wide):
    """Return violations and utility of the dense factors of v, if it had value d; four entries are on their way."""
    hard, total = 0.0, 0.0
    j, last = pair_start[v], pair_start[v + 1]
    while j + 4 <= last:
        i = 4 * j
        a = data[pairs[i] + z[pairs[i + 1]] * pairs[i + 2] + d * pairs[i + 3]]
        b = data[pairs[i + 4] + z[pairs[i + 5]] * pairs[i + 6] + d * pairs[i + 7]]
        c = data[pairs[i + 8] + z[pairs[i + 9]] * pairs[i + 10] + d * pairs[i + 11]]
        e = data[pairs[i + 12] + z[pairs[i + 13]] * pairs[i + 14] + d * pairs[i + 15]]
        if a == never:
            hard += 1.0
        else:
            total += np.float64(a)
        if b == never:
            hard += 1.0
        else:
            total += np.float64(b)
        if c == never:
            hard += 1.0
        else:
            total += np.float64(c)
        if e == never:
            hard += 1.0
        else:
            total += np.float64(e)
        j += 4
    while j < last:
        i = 4 * j
        a = data[pairs[i] + z[pairs[i + 1]] * pairs[i + 2] + d * pairs[i + 3]]
        if a == never:
            hard += 1.0
        else:
            total += np.float64(a)
        j += 1
    for k in range(wide_start[v], wide_start[v + 1]):
        i, end = wide_at[k], wide_at[k + 1]
        at = wide[i] + d * wide[i + 1]
        i += 2
        while i < end:
            at += z[wide[i]] * wide[i + 1]
            i += 2
        a = data[at]
        if a == never:
            hard += 1.0
        else:
            total += np.float64(a)
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
            return 1.0, 0.0
        paid += np.float64(entry)
        state = following[step]
    return 0.0, paid


@cuda.jit(device=True)
def choose(shared, first, shares, size, old, rate, word):
    """Return a value by the shares of all, as ``draw`` does; at temperature 0 the best: the old one if it ties.

    Scores begin at place ``first`` of ``shared``, shares at ``shares``.
    """
    if rate <= 0:
        best = 0
        for d in range(1, size):
            if shared[first + d] > shared[first + best]:
                best = d
        return old if shared[first + old] == shared[first + best] else best
    total = np.uint64(0)
    for d in range(size):
        total += np.uint64(shared[shares + d])
    left = np.int64((word * total) >> np.uint64(32)) - np.int64(shared[shares + old])
    if left < 0:
        return old
    new = 0
    while new < size - 1:
        share = np.int64(0) if new == old else np.int64(shared[shares + new])
        if left < share:
            break
        left -= share
        new += 1
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
    shared = cuda.shared.array(0, types.float64)
    chain, t, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    group, lane, groups, n = t // lanes, t % lanes, threads // lanes, domains.size
    hards, shares, gains = groups * widest, 2 * groups * widest, 3 * groups * widest
    first, parts = group * widest, part_start.size - 1
    z, best = zs[chain * n : (chain + 1) * n], kept[chain * n : (chain + 1) * n]
    mine, penalty = schedule[chain], penalties[schedule[chain]]
    hard_gain, gain = 0.0, 0.0
    for turn in range(first_turn, last_turn):
        sweep, part = turn // parts, turn % parts
        rate, begin, end = rates[mine * sweeps + sweep], part_start[part], part_start[part + 1]
        base = begin
        while base < end:
            i = base + group
            v, size = 0, 0
            if i < end:
                v = order[i]
                size = domains[v]
            d = lane
            while d < size:
                hard, total = score_of(v, d, z, data, never, pair_start, pairs, wide_start, wide_at, wide)
                for k in range(long_start[v], long_start[v + 1]):
                    more, paid = pay(
                        v, d, z, long[k], data, never, domains, scope_start, scope, stride, following, first_step
                    )
                    hard += more
                    total += paid
                shared[first + d] = total - penalty * hard
                shared[hards + first + d] = hard
                d += lanes
            cuda.syncthreads()
            if rate > 0 and size > 0:
                top = shared[first]
                for d in range(1, size):
                    top = max(top, shared[first + d])
                d = lane
                while d < size:
                    gap = np.float32(shared[first + d] - top)
                    shared[shares + first + d] = np.float64(share_of(np.float32(gap * rate), unit))
                    d += lanes
            cuda.syncthreads()
            if lane == 0 and size > 0:
                old = z[v]
                word = np.uint64(0)
                if rate > 0:
                    word = philox(key0, key1, number + chain, SALT, 1 + sweep, v)[0]
                new = choose(shared, first, shares + first, size, old, rate, word)
                if new != old:
                    more = shared[hards + first + new] - shared[hards + first + old]
                    hard_gain += more
                    gain += shared[first + new] - shared[first + old] + penalty * more
                    z[v] = new
            cuda.syncthreads()
            base += groups
        if part == parts - 1 or turn == last_turn - 1:
            if lane == 0:
                shared[gains + 2 * group], shared[gains + 2 * group + 1] = hard_gain, gain
            hard_gain, gain = 0.0, 0.0
            cuda.syncthreads()
            now, utility = nows[2 * chain], nows[2 * chain + 1]
            for g in range(groups):
                now -= shared[gains + 2 * g]
                utility += shared[gains + 2 * g + 1]
            better = now > bests[2 * chain] or (now == bests[2 * chain] and utility > bests[2 * chain + 1])
            better = better and part == parts - 1
            cuda.syncthreads()
            if better:
                v = t
                while v < n:
                    best[v] = z[v]
                    v += threads
            if t == 0:
                nows[2 * chain], nows[2 * chain + 1] = now, utility
                if better:
                    bests[2 * chain], bests[2 * chain + 1] = now, utility
            cuda.syncthreads()
