"""Lay out the tables of a bucket in the form that the kernels of sparse rows read.

The layouts are made once per step by :mod:`dmcmc.inference.sparse.join_steps` and read by
:mod:`dmcmc.inference.sparse.row_kernels` and its GPU version.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import starts_of
from dmcmc.inference.sparse.sparse_table import SparseTable, fields_of, group_by_variable, strides


class LookupTables(NamedTuple):
    """Dense tables in which the entries for a row are looked up.

    The first ``exact`` tables are added to the row; the others bound the contribution of tables that are not joined
    yet.

    Attributes
    ----------
    exact : int
        Number of tables that are added.
    offset : (tables,) int64
        Offset of each table in ``data``.
    field_start : (tables + 1,) int64
        Table t depends on the key fields ``field_start[t]`` to ``field_start[t + 1]`` − 1 of the following arrays.
    shift, mask, stride : (fields,) int64
        Shift and mask of the field in the key, and the table's stride of its variable.
    x_stride, y_stride : (tables,) int64
        Stride of the bucket's variable, and of the variable that is being added; 0 if the table does not depend on it.
    data : (entries,)
        The entries of all tables, in the dtype of the arithmetic.
    """

    exact: int
    offset: Ints
    field_start: Ints
    shift: Ints
    mask: Ints
    stride: Ints
    x_stride: Ints
    y_stride: Ints
    data: Array


class JoinPartner(NamedTuple):
    """A sparse table with which rows are joined: vectors over the bucket's variable, grouped by shared variables.

    Attributes
    ----------
    shift, mask, target_shift : (shared variables,) int64
        Shift and mask of each shared variable's field in a row's key, and its shift in the packed values ``shared``.
    shared : (groups,) int64
        Packed values of the shared variables, ascending.
    group_start : (groups + 1,) int64
        First vector of each group.
    new_values : (vectors,) int64
        Packed values of the variables that the join adds.
    start : (vectors + 1,) int64
        Start of each vector's entries in ``x`` and ``values``.
    x : (rows,) int64
        Value of the bucket's variable of each entry.
    values : (rows,)
        Utility of each entry, in the dtype of the arithmetic.
    bits : int
        Number of bits of ``new_values``.
    """

    shift: Ints
    mask: Ints
    target_shift: Ints
    shared: Ints
    group_start: Ints
    new_values: Ints
    start: Ints
    x: Ints
    values: Array
    bits: int


class RowLayout(NamedTuple):
    """Which variables the parts of a row stand for.

    Attributes
    ----------
    scope
        Variables of the keys.
    variable
        The bucket's variable, whose values index the vectors.
    added
        The variable that is being added, or None.
    domains : (variables,) int64
        Domain sizes.
    """

    scope: Sequence[int]
    variable: int
    added: int | None
    domains: Ints


def lay_out_lookups(
    exact: Sequence[EncodedTable], bounds: Sequence[EncodedTable], layout: RowLayout, arithmetic: Arithmetic
) -> LookupTables:
    """Lay out tables for rows: ``exact`` are added to them, ``bounds`` bound what is not joined yet."""
    fields = fields_of(layout.scope, layout.domains)
    position = {v: i for i, v in enumerate(layout.scope)}
    offset, field_start, x_stride, y_stride, data = [0], [0], list[int](), list[int](), list[Array]()
    field_of_axis, stride = list[int](), list[int]()
    for table in (*exact, *bounds):
        sizes = [int(layout.domains[v]) for v in table.scope]
        stride_of = dict(zip(table.scope, strides(sizes).tolist(), strict=True))
        x_stride.append(stride_of.pop(layout.variable, 0))
        y_stride.append(0 if layout.added is None else stride_of.pop(layout.added, 0))
        field_of_axis += [position[v] for v in stride_of]
        stride += stride_of.values()
        field_start.append(len(field_of_axis))
        data.append(np.ascontiguousarray(table.values).reshape(-1))
        offset.append(offset[-1] + data[-1].size)
    field_index = np.array(field_of_axis, dtype=np.int64)
    return LookupTables(
        len(exact),
        np.array(offset[:-1], dtype=np.int64),
        np.array(field_start, dtype=np.int64),
        fields.shift[field_index],
        fields.mask[field_index],
        np.array(stride, dtype=np.int64),
        np.array(x_stride, dtype=np.int64),
        np.array(y_stride, dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=arithmetic.dtype), *data]),
    )


def lay_out_partner(
    table: SparseTable, before: Sequence[int], new: Sequence[int], variable: int, domains: Ints
) -> JoinPartner:
    """Lay out a sparse table for a join with rows over ``before``; the join adds the variables ``new``."""
    shared = [v for v in before if v in table.scope]
    rows = group_by_variable(table, [*shared, *new], variable, domains)
    row_fields, shared_fields, bits = (
        fields_of(before, domains),
        fields_of(shared, domains),
        fields_of(new, domains).bits,
    )
    columns = [list(before).index(v) for v in shared]
    group = starts_of(rows.keys, bits)
    return JoinPartner(
        row_fields.shift[columns],
        row_fields.mask[columns],
        shared_fields.shift,
        rows.keys[group[:-1]] >> bits,
        group,
        rows.keys & ((1 << bits) - 1),
        rows.start,
        rows.x,
        rows.values,
        bits,
    )
