# mypy: ignore-errors
"""Gibbs sampling on an NVIDIA GPU: a thread a chain, the columns of the current variable in shared memory.

The picture. A block's threads are chains of one agent, neighbouring runs and rows. They draw the same variable at the
same time, so they read the same few tables::

    shared memory:  a record a factor of v, and its column         of all of the agent's variables where they fit,
                    (v's axis last), rows an odd number of words   else of this variable and the next, taking turns,
                    apart so that threads hit different banks      else of this variable alone
                    z[variable, thread], one or two bytes a value

    a thread:       scores of all values of v = Σ over v's factors of the column that the neighbour's value picks;
                    four 16-bit scores (or two 32-bit ones) are one 64-bit word, so an addition adds four
                    top, shares, a value: as :func:`dmcmc.samplers.methods.gibbs.draw` does, to the bit

Scores are not kept between draws: reading a variable's columns anew costs less than a branch in which some of 32
threads bring their neighbours' scores up to date, and the only state is z.

The file is long because it is one kernel: from the first column to the draw everything of a variable is in a thread's
registers.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda.descriptors import (
    AGENT,
    CHOICES,
    CHOICES_AT,
    COUNTS_AT,
    DOMAINS_AT,
    FACTORS,
    FACTORS_AT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER,
    HIDDEN,
    KEY_0,
    KEY_1,
    PART,
    PART_ROWS,
    ROWS,
    RUNS,
    STARTS_AT,
    STATES_BEFORE,
    TABLE,
    VARIABLES,
    VIOLATION,
    WIDE_AT,
)
from dmcmc.samplers.cuda.exchange_kernels import exchange_rungs
from dmcmc.samplers.cuda.layout_kernels import WIDE
from dmcmc.samplers.model.draw_kernels import eased_score, rate_of, share_of
from dmcmc.samplers.model.rng_kernels import philox, uniform
from dmcmc.samplers.model.start_kernels import START_BLOCK

# Where columns are read from: device memory; shared memory, a variable's, two variables' in turns, all of the agent's.
STAGES = GLOBAL, SINGLE, TURNS, WHOLE = range(4)
WORD = np.uint64


class Shape(NamedTuple):
    """What a kernel is compiled for.

    Attributes
    ----------
    words : int
        64-bit words of scores that a thread adds up at once.
    most : int
        Words of the largest variable, a multiple of ``words``.
    compact : bool
        Scores of 16 bits, otherwise of 32.
    hard : bool
        Whether scores count violations.
    stage : int
        GLOBAL, SINGLE, TURNS or WHOLE.
    small : bool
        Whether values fit a byte.
    full : bool
        Whether every domain has ``most`` words of values, so that no score is padding.
    exchange : bool
        Whether the runs of a row exchange temperatures.
    """

    words: int
    most: int
    compact: bool
    hard: bool
    stage: int
    small: bool
    full: bool
    exchange: bool = False


# Not inside the kernel's builder: what is there becomes a part of the kernel's name on disk, and the CPU's function
# that this one calls has another name in every process.
@cuda.jit(device=True, inline="always")
def gap_of(hard, score, top, worth, shift, penalty):
    """Return a score less the best one, as float32; violations, if there are any, at their present price."""
    if hard:
        return eased_score(score, np.int32(np.int32(1) << np.int32(shift - 1)), shift, penalty) - worth
    return np.float32(np.int32(score - top))


@lru_cache
def gibbs_kernel(shape: Shape, registers: int) -> Any:
    """Return the kernel for a shape, compiled when it is first launched."""
    words, most, compact, hard, stage, small, full, exchange = shape
    pack = 4 if compact else 2
    value_type = types.uint8 if small else types.uint16
    once = most == words  # all scores of a variable stay in registers
    held = 1 if once else most
    on_chip = stage != GLOBAL

    @cuda.jit(device=True, inline="always")
    def score_in(word, j):
        """Return score j of a word as a whole number."""
        if compact:
            return np.int32((word >> WORD(16 * j)) & WORD(0xFFFF))
        low = np.int32(np.uint32(word))  # a negative lower half has borrowed from the upper one
        return low if j == 0 else np.int32(np.int32(np.uint32(word >> WORD(32))) - np.int32(low >> np.int32(31)))

    @cuda.jit(device=True, inline="always")
    def place_of(record, ints, general, shared_z, zs, threads):
        """Return where a column starts, in words from its variable's first, for the others' values."""
        u, at = np.uint32(record >> WORD(48)), np.uint32(record)
        if u != np.uint32(WIDE):
            return at + np.uint32(shared_z[zs + u * threads]) * (np.uint32(record >> WORD(32)) & np.uint32(0xFFFF))
        count = np.uint32(record >> WORD(32)) & np.uint32(0xFFFF)
        listed = general + at
        at = np.uint32(ints[listed])
        for o in range(count):
            w = np.uint32(ints[listed + np.uint32(1 + 2 * o)])
            at += np.uint32(shared_z[zs + w * threads]) * np.uint32(ints[listed + np.uint32(2 + 2 * o)])
        return at

    @cuda.jit(device=True, inline="always")
    def stage_words(shared, to, table, source, count, tid, threads):
        """Copy words to shared memory, all threads together; four loads in flight each."""
        i = tid
        while i + np.uint32(3) * threads < count:
            a, b = table[source + np.uint64(i)], table[source + np.uint64(i + threads)]
            c, d = (
                table[source + np.uint64(i + np.uint32(2) * threads)],
                table[source + np.uint64(i + np.uint32(3) * threads)],
            )
            shared[to + i], shared[to + i + threads] = a, b
            shared[to + i + np.uint32(2) * threads], shared[to + i + np.uint32(3) * threads] = c, d
            i += np.uint32(4) * threads
        while i < count:
            shared[to + i] = table[source + np.uint64(i)]
            i += threads

    @cuda.jit(device=True, inline="always")
    def simple_place(record, shared_z, zs, threads):
        """Return the same for a column with one other variable."""
        value = np.uint32(shared_z[zs + np.uint32(record >> WORD(48)) * threads])
        return np.uint32(record) + value * (np.uint32(record >> WORD(32)) & np.uint32(0xFFFF))

    @cuda_jit(max_registers=registers)
    def gibbs(
        table, ints, heads, scales, penalties, entries, where, temperatures, ladders, trials, first, descent, warm,
        buffer,
        row_states, best_states, best_utility, mates, worths,
    ):  # fmt: skip
        shared = cuda.shared.array(0, types.uint64)
        shared_z = cuda.shared.array(0, value_type)
        scores = cuda.local.array(held, types.uint64)
        parts = cuda.local.array(held, types.int32)
        tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
        e = where[cuda.blockIdx.x]
        agent = np.int64(entries[PART * e + AGENT])
        h = agent * HEADER
        base, n, hidden = np.uint64(heads[h + TABLE]), np.uint32(heads[h + VARIABLES]), np.uint32(heads[h + HIDDEN])
        domains, starts, counts = (
            np.uint32(heads[h + DOMAINS_AT]),
            np.uint32(heads[h + STARTS_AT]),
            np.uint32(heads[h + COUNTS_AT]),
        )
        general = np.uint32(heads[h + WIDE_AT])
        shift, penalty, runs = np.int32(heads[h + VIOLATION]), scales[2 * agent], np.uint32(heads[h + RUNS])
        unit = scales[2 * agent + 1]
        group = runs if exchange else np.uint32(1)
        used = np.uint32(threads - threads % group)  # exchange: whole rows
        index = (np.uint32(cuda.blockIdx.x) - np.uint32(entries[PART * e + FIRST_BLOCK])) * used + tid
        live = tid < used and index < np.uint32(entries[PART * e + PART_ROWS]) * runs
        if not live:
            index = np.uint32(0)  # repeats a chain; never written
        row, run = np.uint32(entries[PART * e + FIRST_ROW]) + index // runs, index % runs
        k0, k1 = np.uint64(heads[h + KEY_0]), np.uint64(heads[h + KEY_1])
        zs = np.uint32(buffer) * np.uint32(8 if small else 4) + tid  # z of variable v is at zs + v·threads
        slot = np.uint64(cuda.blockIdx.x) * np.uint64(threads) + np.uint64(tid)
        slots = np.uint64(cuda.gridDim.x) * np.uint64(threads)

        # The first state: interface values from the row's number, hidden ones drawn or a neighbouring row's.
        rest, source, stride = row, row, np.uint32(1)
        chosen, other = np.uint32(0), np.uint32(0)
        if warm and run > 0:
            w0, w1, w2, w3 = philox(k0, k1, row, run, first, START_BLOCK)
            chosen = np.uint32((w0 * WORD(np.uint32(heads[h + CHOICES]))) >> WORD(32)) + np.uint32(1)
            other = np.uint32(w1)
        v = n
        while v > hidden:
            v -= np.uint32(1)
            size = np.uint32(ints[domains + v])
            value = np.uint32(rest % size)
            rest = np.uint32(rest // size)
            shared_z[zs + v * threads] = value
            choice_at = np.uint32(heads[h + CHOICES_AT]) + v - hidden
            if chosen > 0 and size > 1 and np.uint32(ints[choice_at]) + 1 == chosen:
                moved = np.uint32((WORD(other) * WORD(size - np.uint32(1))) >> WORD(32))
                if moved >= value:
                    moved += np.uint32(1)
                source = np.uint32(np.int64(row) + (np.int64(moved) - np.int64(value)) * np.int64(stride))
            stride *= size
        if warm:
            for v in range(hidden):
                at = np.uint64(heads[h + STATES_BEFORE]) + np.uint64(v) * np.uint64(heads[h + ROWS]) + np.uint64(source)
                shared_z[zs + np.uint32(v) * threads] = row_states[at]
        else:
            for v in range(hidden):
                if v & 3 == 0:
                    w0, w1, w2, w3 = philox(k0, k1, row, run, 0, v >> 2)
                word = w0 if v & 3 == 0 else (w1 if v & 3 == 1 else (w2 if v & 3 == 2 else w3))
                size = np.int64(ints[domains + np.uint32(v)])
                shared_z[zs + np.uint32(v) * threads] = min(np.int64(uniform(word) * size), size - 1)
        utility = np.int64(0)
        for f in range(heads[h + FACTORS]):
            pair = np.uint32(heads[h + FACTORS_AT]) + np.uint32(2) * np.uint32(f)
            v = np.uint32(ints[pair + np.uint32(1)])
            begin = base + np.uint64(np.uint32(ints[starts + v]))
            record = table[begin + np.uint64(np.uint32(ints[pair]))]
            at = place_of(record, ints, general, shared_z, zs, threads)
            value = np.int64(shared_z[zs + v * threads])
            word = table[begin + np.uint64(at) + np.uint64(value // pack)]
            utility += np.int64(score_in(word, np.int32(value % pack)))
        top = utility
        for v in range(hidden):
            best_states[np.uint64(v) * slots + slot] = shared_z[zs + np.uint32(v) * threads]

        if stage == WHOLE:
            stage_words(shared, np.uint32(0), table, base, np.uint32(ints[starts + hidden]), tid, threads)
        turn, half = np.uint32(0), np.uint32(buffer >> 1)
        if stage == TURNS:
            begin, end = np.uint32(ints[starts]), np.uint32(ints[starts + np.uint32(1)])
            stage_words(shared, np.uint32(0), table, base + np.uint64(begin), end - begin, tid, threads)
        cuda.syncthreads()

        trials, trial = np.uint32(trials), np.uint32(0)
        rung, ladder_at = run, np.uint32(agent) * runs
        while trial < trials + np.uint32(descent):
            rate = np.float32(0)
            if trial < trials:
                heat = temperatures[np.uint32(agent) * trials + trial]
                if exchange:
                    heat = np.float32(heat * ladders[ladder_at + rung])
                if not heat <= 0:
                    rate = rate_of(heat)
            if trial == trials:  # the descent starts from the best state
                for v in range(hidden):
                    shared_z[zs + np.uint32(v) * threads] = best_states[np.uint64(v) * slots + slot]
                utility = top
            changed = np.int32(0)
            v = np.uint32(0)
            while v < hidden:
                begin = np.uint32(ints[starts + v])
                if stage == TURNS:
                    ahead = v + np.uint32(1)
                    if ahead == hidden:
                        ahead = np.uint32(0)
                    begin, end = np.uint32(ints[starts + ahead]), np.uint32(ints[starts + ahead + np.uint32(1)])
                    stage_words(shared, half - turn, table, base + np.uint64(begin), end - begin, tid, threads)
                    begin = turn
                if stage == SINGLE:
                    end = np.uint32(ints[starts + v + np.uint32(1)])
                    stage_words(shared, np.uint32(0), table, base + np.uint64(begin), end - begin, tid, threads)
                    begin = np.uint32(0)
                    cuda.syncthreads()
                far = base + np.uint64(begin)
                if v & np.uint32(3) == 0:
                    w0, w1, w2, w3 = philox(k0, k1, row, run, np.uint32(first) + trial, v >> np.uint32(2))
                lane = v & np.uint32(3)
                word = w0 if lane == 0 else (w1 if lane == 1 else (w2 if lane == 2 else w3))
                size = np.uint32(ints[domains + v])
                old = np.uint32(shared_z[zs + v * threads])
                old_word, old_part = old // np.uint32(pack), np.int32(old % np.uint32(pack))
                simple = np.uint32(ints[counts + np.uint32(2) * v])
                columns = np.uint32(ints[counts + np.uint32(2) * v + np.uint32(1)])

                # Scores of all values, and the best.
                sums = cuda.local.array(words, types.uint64)
                top_score, worth = np.int32(-2147483647), np.float32(-3.0e38)
                packed_old = WORD(0)
                chunk, used = np.uint32(0), np.uint32((size + np.uint32(pack - 1)) // np.uint32(pack))
                while chunk < used:
                    for g in range(words):
                        sums[g] = WORD(0)
                    c = np.uint32(0)
                    while c + np.uint32(1) < simple:  # two at a time: more loads in flight
                        if on_chip:
                            one = simple_place(shared[begin + c], shared_z, zs, threads)
                            two = simple_place(shared[begin + c + np.uint32(1)], shared_z, zs, threads)
                            one, two = one + begin + chunk, two + begin + chunk
                            for g in range(words):
                                sums[g] += shared[one + np.uint32(g)] + shared[two + np.uint32(g)]
                        else:
                            one = simple_place(table[far + np.uint64(c)], shared_z, zs, threads)
                            two = simple_place(table[far + np.uint64(c + np.uint32(1))], shared_z, zs, threads)
                            one64, two64 = far + np.uint64(one + chunk), far + np.uint64(two + chunk)
                            for g in range(words):
                                sums[g] += table[one64 + np.uint64(g)] + table[two64 + np.uint64(g)]
                        c += np.uint32(2)
                    while c < columns:
                        if on_chip:
                            one = place_of(shared[begin + c], ints, general, shared_z, zs, threads) + begin + chunk
                            for g in range(words):
                                sums[g] += shared[one + np.uint32(g)]
                        else:
                            one = place_of(table[far + np.uint64(c)], ints, general, shared_z, zs, threads)
                            one64 = far + np.uint64(one + chunk)
                            for g in range(words):
                                sums[g] += table[one64 + np.uint64(g)]
                        c += np.uint32(1)
                    for g in range(words):
                        if once:
                            if np.uint32(g) == old_word:
                                packed_old = sums[g]
                        else:
                            scores[np.uint32(g) + chunk] = sums[g]
                        for j in range(pack):
                            if full or np.uint32(g * pack + j) + chunk * np.uint32(pack) < size:
                                score = score_in(sums[g], j)
                                top_score = max(top_score, score)
                                if hard:
                                    worth = max(worth, gap_of(hard, score, 0, np.float32(0), shift, penalty))
                    chunk += np.uint32(words)
                if not once:
                    packed_old = scores[old_word]
                score_old = score_in(packed_old, old_part)

                new, score_new = old, score_old
                if rate == np.float32(0):
                    if score_old != top_score:
                        score_new = top_score
                        new = np.uint32(0xFFFFFFFF)
                        chunk = np.uint32(0)
                        while chunk < used:
                            for g in range(words):
                                packed = sums[g] if once else scores[np.uint32(g) + chunk]
                                for j in range(pack):
                                    d = np.uint32(g * pack + j) + chunk * np.uint32(pack)
                                    if d < size and score_in(packed, j) == top_score:
                                        new = min(new, d)
                            chunk += np.uint32(words)
                else:
                    total = np.int32(0)
                    shares = cuda.local.array(words, types.int32)
                    chunk = np.uint32(0)
                    while chunk < used:
                        for g in range(words):
                            packed = sums[g] if once else scores[np.uint32(g) + chunk]
                            part = np.int32(0)
                            for j in range(pack):
                                if full or np.uint32(g * pack + j) + chunk * np.uint32(pack) < size:
                                    gap = gap_of(hard, score_in(packed, j), top_score, worth, shift, penalty)
                                    part += share_of(np.float32(gap * rate), unit)
                            if once:
                                shares[g] = part
                            else:
                                parts[np.uint32(g) + chunk] = part
                            total += part
                        chunk += np.uint32(words)
                    gap = gap_of(hard, score_old, top_score, worth, shift, penalty)
                    kept = share_of(np.float32(gap * rate), unit)
                    left = np.int32(np.uint32((word * WORD(np.uint32(total))) >> WORD(32))) - kept
                    if left >= 0:
                        at, packed = np.uint32(0), WORD(0)
                        if once:
                            found = False
                            for g in range(words):
                                part = shares[g]
                                if np.uint32(g) == old_word:
                                    part -= kept
                                if not found:
                                    if left >= part:
                                        left -= part
                                    else:
                                        at, packed, found = np.uint32(g), sums[g], True
                        else:
                            parts[old_word] -= kept
                            while left >= parts[at] and at + np.uint32(1) < used:
                                left -= parts[at]
                                at += np.uint32(1)
                            packed = scores[at]
                        found = False
                        for j in range(pack):
                            d = at * np.uint32(pack) + np.uint32(j)
                            if d != old and (full or d < size) and not found:
                                score = score_in(packed, j)
                                gap = gap_of(hard, score, top_score, worth, shift, penalty)
                                left -= share_of(np.float32(gap * rate), unit)
                                if left < 0:
                                    new, score_new, found = d, score, True
                if new != old:
                    utility += np.int64(score_new) - np.int64(score_old)
                    shared_z[zs + v * threads] = new
                    changed = np.int32(1)
                if stage in (TURNS, SINGLE):
                    cuda.syncthreads()
                    turn = half - turn
                v += np.uint32(1)
            if utility > top:
                top = utility
                for v in range(hidden):
                    best_states[np.uint64(v) * slots + slot] = shared_z[zs + np.uint32(v) * threads]
            if exchange and trial < trials:
                worth_now = np.float64(utility)
                if hard:
                    violations = (np.int64(np.int64(1) << np.int64(shift - 1)) - utility) >> np.int64(shift)
                    worth_now = np.float64(utility + (violations << np.int64(shift)))
                    worth_now -= np.float64(penalties[agent]) * np.float64(violations)
                rung = exchange_rungs(
                    live, mates, worths, slot, run, runs, rung, worth_now,
                    temperatures[np.uint32(agent) * trials + trial],
                    ladders, ladder_at, k0, k1, row, np.uint32(first) + trial,
                )  # fmt: skip
            trial += np.uint32(1)
            if trial > trials and not cuda.syncthreads_or(changed):
                break
        if live:
            best_utility[slot] = top

    return gibbs
