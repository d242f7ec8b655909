"""A chain model's columns as the GPU reads them: for each hidden variable a record a factor, and then the columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.cuda.layout_kernels import fill, measure, pair_up
from dmcmc.samplers.model.chain_model import ChainModel


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
    begin = measure(model.column_start, model.column_at, ends, model.width, entries)
    columns = model.column_at.size
    counts, record = np.zeros((model.hidden, 2), dtype=np.int32), np.zeros(columns, dtype=np.int32)
    wide = np.zeros(1 + columns + 2 * model.other_variable.size, dtype=np.int32)
    table = np.zeros(begin[-1], dtype=np.uint64)
    words = model.data[: model.data.size // 4 * 4].view(np.uint64) if compact else pair_up(model.data)
    used = fill(model, ends, entries, begin, counts, record, wide, words, table)
    return Layout(table, begin, counts, record, wide[:used])
