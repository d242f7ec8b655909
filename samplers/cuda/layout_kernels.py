# mypy: ignore-errors
"""The passes that lay out a chain model's columns as the GPU reads them."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

WIDE = 0xFFFF  # in a record: the factor has several other variables


@njit()
def measure(column_start, column_at, ends, width, entries):
    """Return the first word of each variable."""
    begin = np.zeros(width.size + 1, dtype=np.int32)
    for v in range(width.size):
        begin[v + 1] = begin[v] + column_start[v + 1] - column_start[v]
        for c in range(column_start[v], column_start[v + 1]):
            begin[v + 1] += (ends[c] - column_at[c]) // width[v] * (width[v] // entries | 1)
    return begin


@njit()
def fill(model, ends, entries, begin, counts, record, wide, source, table):
    """Write everything else; return how much of ``wide`` is used."""
    used = 1
    for v in range(model.hidden):
        first, last = model.column_start[v], model.column_start[v + 1]
        words = np.int64(model.width[v] // entries)
        step = words | 1
        simple = 0
        for c in range(first, last):
            simple += _is_simple(model, c)
        counts[v, 0], counts[v, 1] = simple, last - first
        next_simple, next_wide = 0, simple
        at = last - first
        for c in range(first, last):
            rows = (ends[c] - model.column_at[c]) // model.width[v]
            if _is_simple(model, c):
                other, stride, place = model.other_variable[model.other_start[c]], step, at
                record[c] = next_simple
                next_simple += 1
            else:
                other, stride, place = WIDE, model.other_start[c + 1] - model.other_start[c], used
                record[c] = next_wide
                next_wide += 1
                wide[used] = at
                used += 1
                for o in range(model.other_start[c], model.other_start[c + 1]):
                    wide[used] = model.other_variable[o]
                    wide[used + 1] = model.other_stride[o] // model.width[v] * step
                    used += 2
            table[begin[v] + record[c]] = (np.uint64(other) << 48) | (np.uint64(stride) << 32) | np.uint64(place)
            _copy_rows(table, begin[v] + at, step, source, model.column_at[c] // entries, words, rows)
            at += rows * step
    return used


@njit(inline="always")
def _is_simple(model, c):
    o = model.other_start[c]
    return model.other_start[c + 1] - o == 1 and model.other_variable[o] < WIDE


@njit()
def _copy_rows(table, to, step, source, at, words, rows):
    """Copy rows of some words each, ``step`` apart in the table."""
    for _ in range(rows):
        for w in range(words):
            table[to + w] = source[at + w]
        to += step
        at += words


@njit()
def pair_up(data):
    """Return pairs of numbers as words whose sums are the words of sums."""
    words = np.empty(data.size // 2, dtype=np.uint64)
    for w in range(words.size):
        words[w] = np.uint64((np.int64(data[2 * w + 1]) << 32) + np.int64(data[2 * w]))
    return words
