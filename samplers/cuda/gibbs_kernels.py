# mypy: ignore-errors
"""Gibbs sampling on an NVIDIA GPU: one thread per chain, the columns of the current variable in shared memory.

A *row* is an assignment of an agent's boundary variables (its interface); several chains, the runs, sample its hidden
variables. A *column* has the utilities of one factor for all values of one hidden variable v, given the values of the
factor's other variables; a value's *score* is the sum of v's columns. Scores are integers in *chain units* (utilities
times a power of two, rounded). A forbidden entry is −2^k, k = ``shift``; draws use *eased* scores, with a finite
penalty per violation instead.

A block's threads run chains of one agent, neighbouring runs and rows. They draw the same variable at the same time, so
they read the same few columns::

    shared memory:  a record per factor of v, and its columns     of all of the agent's variables if they fit, else of
                    (v's axis last), an odd number of words       this variable and the next, double-buffered, else of
                    apart so that threads use different banks     this variable alone
                    z[variable, thread], one or two bytes per value

    one thread:     scores of all values of v = Σ over v's factors of the column that the neighbour's value selects;
                    four 16-bit scores (or two 32-bit scores) are one 64-bit word, so one addition adds four
                    best score, weights, a value: as :func:`dmcmc.samplers.model.draw_kernels.draw`, bitwise equal

Scores are not kept between draws. Reading a variable's columns again costs less than a branch in which some of 32
threads update their neighbours' scores, and the only state is z.

The file is long because it is one kernel: from the first column to the draw, everything about a variable is in a
thread's registers.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda import layout_kernels as layout
from dmcmc.samplers.cuda.chain_kernels import chain_of_thread, exchange_rungs
from dmcmc.samplers.model.draw_kernels import eased_score, rate_of, weight_of
from dmcmc.samplers.model.state_kernels import START_BLOCK, philox, uniform

# Where columns are read from: device memory, or shared memory with one variable, two variables, or all variables.
STAGES = GLOBAL, SINGLE_BUFFER, DOUBLE_BUFFER, ALL_COLUMNS = range(4)
WORD = np.uint64


class GibbsKernelShape(NamedTuple):
    """Compile-time parameters of a Gibbs kernel.

    Attributes
    ----------
    words_at_once : int
        64-bit words of scores that a thread sums at a time.
    max_words : int
        Words of the largest variable's scores, a multiple of ``words_at_once``.
    compact : bool
        Whether scores have 16 bits, otherwise 32.
    counts_violations : bool
        Whether scores count violations.
    stage : int
        GLOBAL, SINGLE_BUFFER, DOUBLE_BUFFER or ALL_COLUMNS.
    byte_values : bool
        Whether values fit a byte.
    no_padding : bool
        Whether every domain exactly fills ``max_words`` words, so that no score is padding.
    exchange : bool
        Whether the runs of a row exchange temperatures.
    """

    words_at_once: int
    max_words: int
    compact: bool
    counts_violations: bool
    stage: int
    byte_values: bool
    no_padding: bool
    exchange: bool = False


# Defined outside the kernel's builder: functions inside it become part of the kernel's name in the disk cache, and the
# CPU function that this one calls has a different name in every process.
@cuda.jit(device=True, inline="always")
def gap_of(counts_violations, score, best_score, best_eased, shift, penalty):
    """Return a score less the best one as float32.

    If scores count violations, both are eased scores: ``penalty`` is subtracted per violation instead of 2^``shift``.
    """
    if counts_violations:
        return eased_score(score, np.int32(np.int32(1) << np.int32(shift - 1)), shift, penalty) - best_eased
    return np.float32(np.int32(score - best_score))


@lru_cache
def gibbs_kernel(shape: GibbsKernelShape, registers: int) -> Any:
    """Return the kernel for a shape; it is compiled when it is first launched.

    Parameters
    ----------
    shape : GibbsKernelShape
        The compile-time parameters.
    registers : int
        Maximum number of registers per thread.
    """
    words_at_once, max_words, compact, counts_violations, stage, byte_values, no_padding, exchange = shape
    entries_per_word = 4 if compact else 2
    value_type = types.uint8 if byte_values else types.uint16
    in_registers = max_words == words_at_once  # all scores of a variable stay in registers
    local_words = 1 if in_registers else max_words
    in_shared = stage != GLOBAL

    @cuda.jit(device=True, inline="always")
    def score_in(word, j):
        """Return score j of a word as an integer."""
        if compact:
            return np.int32((word >> WORD(16 * j)) & WORD(0xFFFF))
        low = np.int32(np.uint32(word))  # a negative lower half has borrowed from the upper half
        return low if j == 0 else np.int32(np.int32(np.uint32(word >> WORD(32))) - np.int32(low >> np.int32(31)))

    @cuda.jit(device=True, inline="always")
    def column_offset(record, ints, wide_at, shared_z, zs, threads):
        """Return the offset of a column for the others' values, in words from its variable's first word.

        ``record`` is a word of ``GpuColumnLayout.table``: the other variable (16 bits), the words between two of its
        values (16 bits), the offset of the column of value 0 (32 bits). If the first field is ``WIDE``, the second is
        the number of other variables and the third the offset of their list in ``ints``, from ``wide_at`` on: the
        offset of the column for which all are 0, then (variable, distance in words) of each. ``zs`` is the thread's
        offset in ``shared_z``, in which the values of variables are ``threads`` apart.
        """
        u, at = np.uint32(record >> WORD(48)), np.uint32(record)
        if u != np.uint32(layout.WIDE):
            return at + np.uint32(shared_z[zs + u * threads]) * (np.uint32(record >> WORD(32)) & np.uint32(0xFFFF))
        count = np.uint32(record >> WORD(32)) & np.uint32(0xFFFF)
        list_at = wide_at + at
        at = np.uint32(ints[list_at])
        for o in range(count):
            w = np.uint32(ints[list_at + np.uint32(1 + 2 * o)])
            at += np.uint32(shared_z[zs + w * threads]) * np.uint32(ints[list_at + np.uint32(2 + 2 * o)])
        return at

    @cuda.jit(device=True, inline="always")
    def stage_words(shared, to, table, source, count, tid, threads):
        """Copy words to shared memory, with all threads of the block and four loads in flight per thread."""
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
    def simple_column_offset(record, shared_z, zs, threads):
        """Return the offset of a column with one other variable, for that variable's value."""
        value = np.uint32(shared_z[zs + np.uint32(record >> WORD(48)) * threads])
        return np.uint32(record) + value * (np.uint32(record >> WORD(32)) & np.uint32(0xFFFF))

    @cuda_jit(max_registers=registers)
    def gibbs(
        table, ints, headers, scales, penalties, parts, part_of_block, temperatures, ladders, trials, first, descent,
        warm, buffer, row_states, best_states, best_utility, run_on_rung, eased_utilities,
    ):  # fmt: skip
        """Run one round; one thread runs one chain.

        Parameters
        ----------
        table : (words,) uint64
            Per agent and hidden variable: its records, then its columns, four 16-bit or two 32-bit scores per word; see
            :mod:`dmcmc.samplers.cuda.layout_kernels`.
        ints : (any,) int32
            Domain sizes, offsets and lists of all agents; the headers have the offsets, in columns named ``..._AT``.
        headers : (agents · HEADER_SIZE,) int64
            Sizes, offsets and random key of each agent; ``layout`` names the columns.
        scales : (2 · agents,) float32
            Per agent: penalty of a violation in chain units, and integer weight of the best value in a draw.
        penalties : (agents,) float64
            Penalty of a violation, in chain units.
        parts : (parts · PART_SIZE,) int64
            Parts of the launch, consecutive rows of one agent each: agent, first row, number of rows, first block.
        part_of_block : (blocks,) int32
            The part that each block works on.
        temperatures : (agents · trials,) float32
            In chain units; 0 or less takes the best value.
        ladders : (agents · runs,) float32
            Factors of the temperatures of the rungs, for exchange (parallel tempering): run r starts on rung r, and
            neighbouring rungs may exchange their runs after each trial.
        trials, first : int
            Number of trials, and number of the first one.
        descent : int
            Maximum number of greedy sweeps at the end, from each chain's best state; fewer if no chain of the block
            changes in one.
        warm : bool
            Whether chains start from ``row_states``: run 0 from its own row, the others from a row that differs in one
            interface variable. If not, from random states.
        buffer : int
            64-bit words of shared memory for columns; the states follow.
        row_states : (values,) uint8 or uint16
            States of rows, per agent (hidden, rows).
        best_states : (hidden · all threads,) uint8 or uint16
            Written: best state of each chain; variables first, then threads.
        best_utility : (all threads,) int64
            Written: its utility in chain units, with −2^k per violation.
        run_on_rung, eased_utilities : (all threads,) int32 and float64
            Workspace of exchanges.
        """
        shared = cuda.shared.array(0, types.uint64)
        shared_z = cuda.shared.array(0, value_type)
        scores = cuda.local.array(local_words, types.uint64)
        word_weights = cuda.local.array(local_words, types.int32)
        tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
        runs = np.uint32(headers[layout.RUNS])
        group = runs if exchange else np.uint32(1)
        used = np.uint32(threads - threads % group)  # with exchange, a block holds whole rows
        # An idle thread repeats chain 0 without writing.
        agent, h, row, run, active = chain_of_thread(parts, part_of_block, headers, used, tid)
        base, n, hidden = (
            np.uint64(headers[h + layout.TABLE_AT]),
            np.uint32(headers[h + layout.VARIABLES]),
            np.uint32(headers[h + layout.HIDDEN]),
        )
        domains, starts, counts = (
            np.uint32(headers[h + layout.DOMAINS_AT]),
            np.uint32(headers[h + layout.VARIABLE_STARTS_AT]),
            np.uint32(headers[h + layout.COUNTS_AT]),
        )
        wide_at = np.uint32(headers[h + layout.WIDE_AT])
        shift, penalty = np.int32(headers[h + layout.VIOLATION_SHIFT]), scales[2 * agent]
        best_weight = scales[2 * agent + 1]
        k0, k1 = np.uint64(headers[h + layout.KEY_0]), np.uint64(headers[h + layout.KEY_1])
        zs = np.uint32(buffer) * np.uint32(8 if byte_values else 4) + tid  # z of variable v is at zs + v·threads
        thread = np.uint64(cuda.blockIdx.x) * np.uint64(threads) + np.uint64(tid)
        all_threads = np.uint64(cuda.gridDim.x) * np.uint64(threads)

        # First state: interface values from the row's number, hidden values drawn, or those of a neighbouring row.
        quotient, source, stride = row, row, np.uint32(1)
        chosen, other = np.uint32(0), np.uint32(0)
        if warm and run > 0:
            w0, w1, w2, w3 = philox(k0, k1, row, run, first, START_BLOCK)
            chosen = np.uint32((w0 * WORD(np.uint32(headers[h + layout.INTERFACE_CHOICES]))) >> WORD(32)) + np.uint32(1)
            other = np.uint32(w1)
        v = n
        while v > hidden:
            v -= np.uint32(1)
            size = np.uint32(ints[domains + v])
            value = np.uint32(quotient % size)
            quotient = np.uint32(quotient // size)
            shared_z[zs + v * threads] = value
            choice_at = np.uint32(headers[h + layout.CHOICES_AT]) + v - hidden
            if chosen > 0 and size > 1 and np.uint32(ints[choice_at]) + 1 == chosen:
                moved = np.uint32((WORD(other) * WORD(size - np.uint32(1))) >> WORD(32))
                if moved >= value:
                    moved += np.uint32(1)
                source = np.uint32(np.int64(row) + (np.int64(moved) - np.int64(value)) * np.int64(stride))
            stride *= size
        if warm:
            for v in range(hidden):
                at = (
                    np.uint64(headers[h + layout.STATES_BEFORE])
                    + np.uint64(v) * np.uint64(headers[h + layout.ROWS])
                    + np.uint64(source)
                )
                shared_z[zs + np.uint32(v) * threads] = row_states[at]
        else:
            for v in range(hidden):
                if v & 3 == 0:
                    w0, w1, w2, w3 = philox(k0, k1, row, run, 0, v >> 2)
                word = w0 if v & 3 == 0 else (w1 if v & 3 == 1 else (w2 if v & 3 == 2 else w3))
                size = np.int64(ints[domains + np.uint32(v)])
                shared_z[zs + np.uint32(v) * threads] = min(np.int64(uniform(word) * size), size - 1)
        utility = np.int64(0)
        for f in range(headers[h + layout.FACTORS]):
            pair = np.uint32(headers[h + layout.FACTORS_AT]) + np.uint32(2) * np.uint32(f)
            v = np.uint32(ints[pair + np.uint32(1)])
            begin = base + np.uint64(np.uint32(ints[starts + v]))
            record = table[begin + np.uint64(np.uint32(ints[pair]))]
            at = column_offset(record, ints, wide_at, shared_z, zs, threads)
            value = np.int64(shared_z[zs + v * threads])
            word = table[begin + np.uint64(at) + np.uint64(value // entries_per_word)]
            utility += np.int64(score_in(word, np.int32(value % entries_per_word)))
        best = utility
        for v in range(hidden):
            best_states[np.uint64(v) * all_threads + thread] = shared_z[zs + np.uint32(v) * threads]

        if stage == ALL_COLUMNS:
            stage_words(shared, np.uint32(0), table, base, np.uint32(ints[starts + hidden]), tid, threads)
        buffer_at, half = np.uint32(0), np.uint32(buffer >> 1)
        if stage == DOUBLE_BUFFER:
            begin, end = np.uint32(ints[starts]), np.uint32(ints[starts + np.uint32(1)])
            stage_words(shared, np.uint32(0), table, base + np.uint64(begin), end - begin, tid, threads)
        cuda.syncthreads()

        trials, trial = np.uint32(trials), np.uint32(0)
        rung, ladder_at = run, np.uint32(agent) * runs
        while trial < trials + np.uint32(descent):
            rate = np.float32(0)
            if trial < trials:
                temperature = temperatures[np.uint32(agent) * trials + trial]
                if exchange:
                    temperature = np.float32(temperature * ladders[ladder_at + rung])
                if not temperature <= 0:
                    rate = rate_of(temperature)
            if trial == trials:  # descent starts from the best state
                for v in range(hidden):
                    shared_z[zs + np.uint32(v) * threads] = best_states[np.uint64(v) * all_threads + thread]
                utility = best
            changed = np.int32(0)
            v = np.uint32(0)
            while v < hidden:
                begin = np.uint32(ints[starts + v])
                if stage == DOUBLE_BUFFER:
                    ahead = v + np.uint32(1)
                    if ahead == hidden:
                        ahead = np.uint32(0)
                    begin, end = np.uint32(ints[starts + ahead]), np.uint32(ints[starts + ahead + np.uint32(1)])
                    stage_words(shared, half - buffer_at, table, base + np.uint64(begin), end - begin, tid, threads)
                    begin = buffer_at
                if stage == SINGLE_BUFFER:
                    end = np.uint32(ints[starts + v + np.uint32(1)])
                    stage_words(shared, np.uint32(0), table, base + np.uint64(begin), end - begin, tid, threads)
                    begin = np.uint32(0)
                    cuda.syncthreads()
                device_begin = base + np.uint64(begin)
                if v & np.uint32(3) == 0:
                    w0, w1, w2, w3 = philox(k0, k1, row, run, np.uint32(first) + trial, v >> np.uint32(2))
                lane = v & np.uint32(3)
                word = w0 if lane == 0 else (w1 if lane == 1 else (w2 if lane == 2 else w3))
                size = np.uint32(ints[domains + v])
                old = np.uint32(shared_z[zs + v * threads])
                old_word, old_part = old // np.uint32(entries_per_word), np.int32(old % np.uint32(entries_per_word))
                simple = np.uint32(ints[counts + np.uint32(2) * v])
                columns = np.uint32(ints[counts + np.uint32(2) * v + np.uint32(1)])

                # Scores of all values, and the best score.
                sums = cuda.local.array(words_at_once, types.uint64)
                best_score, best_eased = np.int32(-2147483647), np.float32(-3.0e38)  # below all scores
                packed_old = WORD(0)
                chunk, used = (
                    np.uint32(0),
                    np.uint32((size + np.uint32(entries_per_word - 1)) // np.uint32(entries_per_word)),
                )
                while chunk < used:
                    for g in range(words_at_once):
                        sums[g] = WORD(0)
                    c = np.uint32(0)
                    while c + np.uint32(1) < simple:  # two columns at a time: more loads in flight
                        if in_shared:
                            first_column = simple_column_offset(shared[begin + c], shared_z, zs, threads)
                            second_column = simple_column_offset(
                                shared[begin + c + np.uint32(1)], shared_z, zs, threads
                            )
                            first_column, second_column = first_column + begin + chunk, second_column + begin + chunk
                            for g in range(words_at_once):
                                sums[g] += shared[first_column + np.uint32(g)] + shared[second_column + np.uint32(g)]
                        else:
                            first_column = simple_column_offset(
                                table[device_begin + np.uint64(c)], shared_z, zs, threads
                            )
                            second_column = simple_column_offset(
                                table[device_begin + np.uint64(c + np.uint32(1))], shared_z, zs, threads
                            )
                            first_address, second_address = (
                                device_begin + np.uint64(first_column + chunk),
                                device_begin + np.uint64(second_column + chunk),
                            )
                            for g in range(words_at_once):
                                sums[g] += table[first_address + np.uint64(g)] + table[second_address + np.uint64(g)]
                        c += np.uint32(2)
                    while c < columns:
                        if in_shared:
                            first_column = (
                                column_offset(shared[begin + c], ints, wide_at, shared_z, zs, threads) + begin + chunk
                            )
                            for g in range(words_at_once):
                                sums[g] += shared[first_column + np.uint32(g)]
                        else:
                            first_column = column_offset(
                                table[device_begin + np.uint64(c)], ints, wide_at, shared_z, zs, threads
                            )
                            first_address = device_begin + np.uint64(first_column + chunk)
                            for g in range(words_at_once):
                                sums[g] += table[first_address + np.uint64(g)]
                        c += np.uint32(1)
                    for g in range(words_at_once):
                        if in_registers:
                            if np.uint32(g) == old_word:
                                packed_old = sums[g]
                        else:
                            scores[np.uint32(g) + chunk] = sums[g]
                        for j in range(entries_per_word):
                            if (
                                no_padding
                                or np.uint32(g * entries_per_word + j) + chunk * np.uint32(entries_per_word) < size
                            ):
                                score = score_in(sums[g], j)
                                best_score = max(best_score, score)
                                if counts_violations:
                                    best_eased = max(
                                        best_eased, gap_of(counts_violations, score, 0, np.float32(0), shift, penalty)
                                    )
                    chunk += np.uint32(words_at_once)
                if not in_registers:
                    packed_old = scores[old_word]
                score_old = score_in(packed_old, old_part)

                new, score_new = old, score_old
                # At temperature 0 the smallest best value is taken, unless the present one is as good.
                if rate == np.float32(0):
                    if score_old != best_score:
                        score_new = best_score
                        new = np.uint32(0xFFFFFFFF)
                        chunk = np.uint32(0)
                        while chunk < used:
                            for g in range(words_at_once):
                                packed = sums[g] if in_registers else scores[np.uint32(g) + chunk]
                                for j in range(entries_per_word):
                                    d = np.uint32(g * entries_per_word + j) + chunk * np.uint32(entries_per_word)
                                    if d < size and score_in(packed, j) == best_score:
                                        new = min(new, d)
                            chunk += np.uint32(words_at_once)
                else:
                    # Draw by integer weights round(best_weight · 2^(gap · rate)): a uniform number below their sum is
                    # compared first with the weight of the present value, then with the others in turn.
                    total = np.int32(0)
                    weights = cuda.local.array(words_at_once, types.int32)
                    chunk = np.uint32(0)
                    while chunk < used:
                        for g in range(words_at_once):
                            packed = sums[g] if in_registers else scores[np.uint32(g) + chunk]
                            part = np.int32(0)
                            for j in range(entries_per_word):
                                if (
                                    no_padding
                                    or np.uint32(g * entries_per_word + j) + chunk * np.uint32(entries_per_word) < size
                                ):
                                    gap = gap_of(
                                        counts_violations, score_in(packed, j), best_score, best_eased, shift, penalty
                                    )
                                    part += weight_of(np.float32(gap * rate), best_weight)
                            if in_registers:
                                weights[g] = part
                            else:
                                word_weights[np.uint32(g) + chunk] = part
                            total += part
                        chunk += np.uint32(words_at_once)
                    gap = gap_of(counts_violations, score_old, best_score, best_eased, shift, penalty)
                    old_weight = weight_of(np.float32(gap * rate), best_weight)
                    remaining = np.int32(np.uint32((word * WORD(np.uint32(total))) >> WORD(32))) - old_weight
                    if remaining >= 0:
                        at, packed = np.uint32(0), WORD(0)
                        if in_registers:
                            found = False
                            for g in range(words_at_once):
                                part = weights[g]
                                if np.uint32(g) == old_word:
                                    part -= old_weight
                                if not found:
                                    if remaining >= part:
                                        remaining -= part
                                    else:
                                        at, packed, found = np.uint32(g), sums[g], True
                        else:
                            word_weights[old_word] -= old_weight
                            while remaining >= word_weights[at] and at + np.uint32(1) < used:
                                remaining -= word_weights[at]
                                at += np.uint32(1)
                            packed = scores[at]
                        found = False
                        for j in range(entries_per_word):
                            d = at * np.uint32(entries_per_word) + np.uint32(j)
                            if d != old and (no_padding or d < size) and not found:
                                score = score_in(packed, j)
                                gap = gap_of(counts_violations, score, best_score, best_eased, shift, penalty)
                                remaining -= weight_of(np.float32(gap * rate), best_weight)
                                if remaining < 0:
                                    new, score_new, found = d, score, True
                if new != old:
                    utility += np.int64(score_new) - np.int64(score_old)
                    shared_z[zs + v * threads] = new
                    changed = np.int32(1)
                if stage in (DOUBLE_BUFFER, SINGLE_BUFFER):
                    cuda.syncthreads()
                    buffer_at = half - buffer_at
                v += np.uint32(1)
            if utility > best:
                best = utility
                for v in range(hidden):
                    best_states[np.uint64(v) * all_threads + thread] = shared_z[zs + np.uint32(v) * threads]
            if exchange and trial < trials:
                eased_utility = np.float64(utility)
                if counts_violations:
                    violations = (np.int64(np.int64(1) << np.int64(shift - 1)) - utility) >> np.int64(shift)
                    eased_utility = np.float64(utility + (violations << np.int64(shift)))
                    eased_utility -= np.float64(penalties[agent]) * np.float64(violations)
                rung = exchange_rungs(
                    active, run_on_rung, eased_utilities, thread, run, runs, rung, eased_utility,
                    temperatures[np.uint32(agent) * trials + trial],
                    ladders, ladder_at, k0, k1, row, np.uint32(first) + trial,
                )  # fmt: skip
            trial += np.uint32(1)
            if trial > trials and not cuda.syncthreads_or(changed):
                break
        if active:
            best_utility[thread] = best

    return gibbs
