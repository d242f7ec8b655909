"""Lay out a chain model's columns for the GPU: per hidden variable, a record per factor and then the columns.

A *column* has the utilities of one factor for all values of one of its variables, given the values of the others. A
*record* says where the columns of a factor begin and which other variables select one of them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.cuda.layout_kernels import fill_layout, pair_up, variable_starts
from dmcmc.samplers.model.chain_model import ChainModel


class GpuColumnLayout(NamedTuple):
    """One agent's part of a batch.

    Attributes
    ----------
    table : (words,) uint64
        For each hidden variable its records, those with one other variable first, and then its columns. A word holds
        four 16-bit or two 32-bit entries. Columns are an odd number of words apart, so that threads that read different
        columns use different banks of shared memory. Two 32-bit entries are stored as high · 2^32 + low, so that sums
        of words are the words of the sums. A record has 16 bits for the other variable, 16 for the distance in words
        between two of its values, and 32 for the offset of the column of value 0, in words from the variable's first.
        With several other variables it has WIDE, their number, and an offset in ``wide``.
    begin : (hidden + 1,) int32
        First word of each variable.
    counts : (hidden, 2) int32
        Number of records with one other variable, and of all records, of each variable.
    record : (columns,) int32
        Number of each column's record within its variable.
    wide : (any,) int32
        For columns with several other variables: offset of the column of values 0, then variable and distance of each.
    """

    table: NDArray[np.uint64]
    begin: NDArray[np.int32]
    counts: NDArray[np.int32]
    record: NDArray[np.int32]
    wide: NDArray[np.int32]


def lay_out(model: ChainModel) -> GpuColumnLayout:
    """Return the records and columns of each variable, one after another."""
    compact = model.data.dtype == np.uint16
    entries_per_word = 4 if compact else 2
    ends = np.append(model.column_at[1:], model.data.size).astype(np.int64)
    starts = variable_starts(model.column_start, model.column_at, ends, model.width, entries_per_word)
    columns = model.column_at.size
    counts, record = np.zeros((model.hidden, 2), dtype=np.int32), np.zeros(columns, dtype=np.int32)
    wide = np.zeros(1 + columns + 2 * model.other_variable.size, dtype=np.int32)
    table = np.zeros(starts[-1], dtype=np.uint64)
    words = model.data[: model.data.size // 4 * 4].view(np.uint64) if compact else pair_up(model.data)
    used = fill_layout(model, ends, entries_per_word, starts, counts, record, wide, words, table)
    return GpuColumnLayout(table, starts, counts, record, wide[:used])
