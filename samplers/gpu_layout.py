"""A chain model's columns as the GPU reads them: for each hidden variable a record a factor, and then the columns."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dmcmc.samplers.model import ChainModel

WIDE = 0xFFFF  # in a record: the factor has several other variables
HEADER = 24  # words of an agent's header, see gpu_batch


class Layout(NamedTuple):
    """One agent's part of a batch.

    Attributes
    ----------
    table : (words,) uint64
        For each hidden variable its records, those with one other variable first, and then its columns, four 16-bit or
        two 32-bit entries a word, rows an odd number of words apart: threads that read different rows hit different
        banks. Two 32-bit entries are high · 2^32 + low, so that sums of words are the words of sums.
        A record is the other variable, the stride of its values and the place of the column for value 0, in words from
        the variable's first: 16 + 16 + 32 bits. With several other variables it is WIDE, their number, and where
        ``wide`` has place, variable, stride, variable, stride, ...
    begin : (hidden + 1,) int32
        First word of each variable.
    counts : (hidden, 2) int32
        Records with one other variable, and all records, of each variable.
    record : (columns,) int32
        Number of each column's record in its variable.
    wide : (any,) int32
    """

    table: NDArray[np.uint64]
    begin: NDArray[np.int32]
    counts: NDArray[np.int32]
    record: NDArray[np.int32]
    wide: NDArray[np.int32]


def lay_out(model: ChainModel) -> Layout:
    """Put each variable's records and columns one after another."""
    compact = model.data.dtype == np.uint16
    entries = 4 if compact else 2
    ends = np.append(model.column_at[1:], model.data.size).astype(np.int64)
    begin = _measure(model.column_start, model.column_at, ends, model.width, entries)
    columns = model.column_at.size
    counts, record = np.zeros((model.hidden, 2), dtype=np.int32), np.zeros(columns, dtype=np.int32)
    wide = np.zeros(1 + columns + 2 * model.other_variable.size, dtype=np.int32)
    table = np.zeros(begin[-1], dtype=np.uint64)
    words = model.data[: model.data.size // 4 * 4].view(np.uint64) if compact else _pair_up(model.data)
    used = _fill(model, ends, entries, begin, counts, record, wide, words, table)
    return Layout(table, begin, counts, record, wide[:used])


@njit(cache=True)
def _measure(column_start, column_at, ends, width, entries):
    """Return the first word of each variable."""
    begin = np.zeros(width.size + 1, dtype=np.int32)
    for v in range(width.size):
        begin[v + 1] = begin[v] + column_start[v + 1] - column_start[v]
        for c in range(column_start[v], column_start[v + 1]):
            begin[v + 1] += (ends[c] - column_at[c]) // width[v] * (width[v] // entries | 1)
    return begin


@njit(cache=True)
def _fill(model, ends, entries, begin, counts, record, wide, source, table):
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


@njit(cache=True, inline="always")
def _is_simple(model, c):
    o = model.other_start[c]
    return model.other_start[c + 1] - o == 1 and model.other_variable[o] < WIDE


@njit(cache=True)
def _copy_rows(table, to, step, source, at, words, rows):
    """Copy rows of some words each, ``step`` apart in the table."""
    for _ in range(rows):
        for w in range(words):
            table[to + w] = source[at + w]
        to += step
        at += words


@njit(cache=True)
def _pair_up(data):
    """Return pairs of numbers as words whose sums are the words of sums."""
    words = np.empty(data.size // 2, dtype=np.uint64)
    for w in range(words.size):
        words[w] = np.uint64((np.int64(data[2 * w + 1]) << 32) + np.int64(data[2 * w]))
    return words
