# mypy: ignore-errors
"""How tables lie on a GPU, for chains.

Compiled passes that lay out a chain model's columns for the GPU: per hidden variable, its records and its columns.

A *column* holds the utilities of one factor for all values of one of its variables, given values of the others. A
*record* says where the columns of a factor begin and which other variables select one of them.

The table of an agent has, for each hidden variable, its records, those with one other variable first, and then its
columns. A word holds four 16-bit or two 32-bit entries. Columns are an odd number of words apart, so that threads that
read different columns use different banks of shared memory. Two 32-bit entries are stored as high · 2^32 + low, so that
sums of words are the words of the sums. A record has 16 bits for the other variable, 16 for the distance in words
between two of its values, and 32 for the offset of the column of value 0, in words from the variable's first. With
several other variables it has WIDE, their number, and an offset in the lists of other variables: these have the offset
of the column of values 0, then variable and distance of each.

Layout of the int64 descriptors that launches of chains pass to GPU kernels: agents' headers and launch parts.

One launch runs the chains of many rows of several agents. A row is an assignment of the agent's boundary variables (its
interface); several chains, the runs, sample its hidden variables. An agent's variables are numbered with the hidden
ones first.

Headers are (agents, HEADER_SIZE) int64 and parts are (parts, PART_SIZE) int64; the constants name their columns. Names
ending in ``_AT`` are offsets, in the array of int32 (``ints``) of the batch unless stated otherwise. Names ending in
``_BEFORE`` count what belongs to the agents before.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

# Columns of an agent's header.
(
    TABLE_AT,  # offset of the agent's columns: in ``ModelBatch.table``, or in ``JointBatch.data``
    VARIABLES,  # number of variables, hidden and interface
    HIDDEN,  # number of hidden variables
    DOMAINS_AT,  # (variables,): domain sizes
    VARIABLE_STARTS_AT,  # (hidden + 1): first words of variables; for joint proposals (hidden): offsets of jump tables
    COUNTS_AT,  # (hidden, 2): number of columns with one other variable, and of all columns
    ROWS,  # number of rows: the product of the domain sizes of the interface variables
    ROWS_BEFORE,  # number of rows of earlier agents
    CHOICES_AT,  # for each interface variable, the number of earlier ones with more than one value
    KEY_0,  # first key word of the random numbers of the agent's chains
    KEY_1,  # second key word
    VIOLATION_SHIFT,  # k, if a forbidden entry adds −2^k to the integer utility of a state; 0 if no entry is forbidden
    INTERFACE_BEFORE,  # number of interface variables of earlier agents
    WIDE_AT,  # lists of the other variables of columns that have several
    INTERFACE_CHOICES,  # number of interface variables with more than one value
    FACTORS_AT,  # (factors, 2): record and variable of each factor; for joint proposals (4, factors)
    FACTORS,  # number of factors with a hidden variable
    STATES_BEFORE,  # values stored for the rows of earlier agents
    RUNS,  # chains per row
) = range(19)
HEADER_SIZE = 19  # columns of a header

# Columns of a part of a launch: consecutive rows of one agent, in consecutive thread blocks.
# The columns are: index of the agent's header; number of the first row; number of rows; number of the first block.
AGENT, FIRST_ROW, PART_ROWS, FIRST_BLOCK = range(4)
PART_SIZE = 4  # columns of a part


WIDE = 0xFFFF  # in a record: the factor has several other variables, which are in a list


@njit()
def variable_starts(column_start, column_at, entries, width, entries_per_word):
    """Return the first word of each variable, (hidden + 1,) int32.

    Parameters
    ----------
    column_start : (hidden + 1,) int32
        Columns of each variable.
    column_at : (columns,) int32
        Offset in the model's data where each column's factor begins.
    entries : int
        Number of entries of the model's data.
    width : (hidden,) int32
        Padded domain sizes.
    entries_per_word : int
        4 or 2.
    """
    starts = np.zeros(width.size + 1, dtype=np.int32)
    for v in range(width.size):
        starts[v + 1] = starts[v] + column_start[v + 1] - column_start[v]
        for c in range(column_start[v], column_start[v + 1]):
            rows = _entries_of(c, column_at, entries) // width[v]
            starts[v + 1] += rows * (width[v] // entries_per_word | 1)
    return starts


@njit()
def write_layout(model, header, entries_per_word, starts, source, ints, table):
    """Write the part of a batch that belongs to one agent: its table and its parts of the array of integers.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    header : (HEADER_SIZE,) int64
        Where the parts begin, see :mod:`dmcmc.samplers.cuda.layout_kernels`.
    entries_per_word : int
        4 or 2.
    starts : (hidden + 1,) int32
        The result of :func:`variable_starts`.
    source : (words,) uint64
        The model's data as words.
    ints : (any,) int32
        Written: domains, starts, counts, numbers of choices, lists of other variables, and factors.
    table : (words,) uint64
        Written: records and columns.
    """
    record = np.empty(model.column_at.size, dtype=np.int32)
    counts, lists, lists_used = header[COUNTS_AT], header[WIDE_AT], 1
    for v in range(model.hidden):
        first, last = model.column_start[v], model.column_start[v + 1]
        words = np.int64(model.width[v] // entries_per_word)
        step = words | 1
        simple_columns = 0
        for c in range(first, last):
            simple_columns += _is_simple(model, c)
        ints[counts + 2 * v], ints[counts + 2 * v + 1] = simple_columns, last - first
        next_simple, next_wide = 0, simple_columns
        column_offset = last - first
        for c in range(first, last):
            rows = _entries_of(c, model.column_at, model.data.size) // model.width[v]
            if _is_simple(model, c):
                other, stride, offset = model.other_variable[model.other_start[c]], step, column_offset
                record[c] = next_simple
                next_simple += 1
            else:
                other, stride, offset = WIDE, model.other_start[c + 1] - model.other_start[c], lists_used
                record[c] = next_wide
                next_wide += 1
                ints[lists + lists_used] = column_offset
                lists_used += 1
                for o in range(model.other_start[c], model.other_start[c + 1]):
                    ints[lists + lists_used] = model.other_variable[o]
                    ints[lists + lists_used + 1] = model.other_stride[o] // model.width[v] * step
                    lists_used += 2
            table[starts[v] + record[c]] = (np.uint64(other) << 48) | (np.uint64(stride) << 32) | np.uint64(offset)
            _copy_rows(
                table, starts[v] + column_offset, step, source, model.column_at[c] // entries_per_word, words, rows
            )
            column_offset += rows * step
    for v in range(model.hidden + 1):
        ints[header[VARIABLE_STARTS_AT] + v] = starts[v]
    choices = 0
    for v in range(model.domains.size):
        ints[header[DOMAINS_AT] + v] = model.domains[v]
        if v >= model.hidden:
            ints[header[CHOICES_AT] + v - model.hidden] = choices
            choices += model.domains[v] > 1
    for f in range(model.factor_column.size):
        ints[header[FACTORS_AT] + 2 * f] = record[model.factor_column[f]]
        ints[header[FACTORS_AT] + 2 * f + 1] = model.factor_variable[f]


@njit(inline="always", allocates=False)
def _entries_of(c, column_at, entries):
    """Return the number of entries of all columns of one factor and variable; ``entries`` are those of the data."""
    return (np.int64(column_at[c + 1]) if c + 1 < column_at.size else np.int64(entries)) - column_at[c]


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
