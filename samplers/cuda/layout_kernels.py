# mypy: ignore-errors
"""Compiled passes that lay out a chain model's columns for the GPU; see :mod:`dmcmc.samplers.cuda.layout`.

A *column* holds the utilities of one factor for all values of one of its variables, given values of the others. The
columns are packed into 64-bit words, four 16-bit or two 32-bit entries each. A *record* says where the columns of one
factor begin and which other variables select one of them.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

WIDE = 0xFFFF  # in a record: the factor has several other variables, which are in a list


@njit()
def variable_starts(column_start, column_at, ends, width, entries_per_word):
    """Return the first word of each variable, (hidden + 1,) int32.

    Parameters
    ----------
    column_start : (hidden + 1,) int32
        Columns of each variable.
    column_at, ends : (columns,) int32 and int64
        Offsets in the model's data where each column's factor begins and ends.
    width : (hidden,) int32
        Padded domain sizes.
    entries_per_word : int
        4 or 2.
    """
    starts = np.zeros(width.size + 1, dtype=np.int32)
    for v in range(width.size):
        starts[v + 1] = starts[v] + column_start[v + 1] - column_start[v]
        for c in range(column_start[v], column_start[v + 1]):
            starts[v + 1] += (ends[c] - column_at[c]) // width[v] * (width[v] // entries_per_word | 1)
    return starts


@njit(allocates=False)
def fill_layout(model, ends, entries_per_word, starts, counts, record, wide_lists, source, table):
    """Write counts, records, lists and columns; return the used length of ``wide_lists``.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    ends : (columns,) int64
        Offset in the model's data where each column's factor ends.
    entries_per_word : int
        4 or 2.
    starts : (hidden + 1,) int32
        First word of each variable.
    counts, record, wide_lists, table
        Written; fields of ``GpuColumnLayout``.
    source : (words,) uint64
        The model's data as words.
    """
    lists_used = 1
    for v in range(model.hidden):
        first, last = model.column_start[v], model.column_start[v + 1]
        words = np.int64(model.width[v] // entries_per_word)
        step = words | 1
        simple_columns = 0
        for c in range(first, last):
            simple_columns += _is_simple(model, c)
        counts[v, 0], counts[v, 1] = simple_columns, last - first
        next_simple, next_wide = 0, simple_columns
        column_offset = last - first
        for c in range(first, last):
            rows = (ends[c] - model.column_at[c]) // model.width[v]
            if _is_simple(model, c):
                other, stride, offset = model.other_variable[model.other_start[c]], step, column_offset
                record[c] = next_simple
                next_simple += 1
            else:
                other, stride, offset = WIDE, model.other_start[c + 1] - model.other_start[c], lists_used
                record[c] = next_wide
                next_wide += 1
                wide_lists[lists_used] = column_offset
                lists_used += 1
                for o in range(model.other_start[c], model.other_start[c + 1]):
                    wide_lists[lists_used] = model.other_variable[o]
                    wide_lists[lists_used + 1] = model.other_stride[o] // model.width[v] * step
                    lists_used += 2
            table[starts[v] + record[c]] = (np.uint64(other) << 48) | (np.uint64(stride) << 32) | np.uint64(offset)
            _copy_rows(
                table, starts[v] + column_offset, step, source, model.column_at[c] // entries_per_word, words, rows
            )
            column_offset += rows * step
    return lists_used


@njit(inline="always", allocates=False)
def _is_simple(model, c):
    """Return whether a column has one other variable, whose number fits a record."""
    o = model.other_start[c]
    return model.other_start[c + 1] - o == 1 and model.other_variable[o] < WIDE


@njit(allocates=False)
def _copy_rows(table, to, step, source, at, words, rows):
    """Copy columns of ``words`` words each; in the table they are ``step`` words apart."""
    for _ in range(rows):
        for w in range(words):
            table[to + w] = source[at + w]
        to += step
        at += words


@njit()
def pair_up(data):
    """Return pairs of 32-bit entries as 64-bit words, such that sums of words are the words of the sums."""
    words = np.empty(data.size // 2, dtype=np.uint64)
    for w in range(words.size):
        words[w] = np.uint64((np.int64(data[2 * w + 1]) << 32) + np.int64(data[2 * w]))
    return words
