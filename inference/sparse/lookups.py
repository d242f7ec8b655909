"""Tables in the layout that the kernels of sparse rows read."""

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
    at : (tables,) int64
        Offset of each table in ``data``.
    first : (tables + 1,) int64
        Table t depends on the key fields ``first[t]`` to ``first[t + 1]`` − 1 of the following three arrays.
    shift, mask, stride : (fields,) int64
        Shift and mask of the field in the key, and the table's stride of its variable.
    of_x, of_y : (tables,) int64
        Stride of the bucket's variable, and of the variable that is being added; 0 if the table does not depend on it.
    data : (entries,)
        The entries of all tables, in the dtype of the arithmetic.
    """

    exact: int
    at: Ints
    first: Ints
    shift: Ints
    mask: Ints
    stride: Ints
    of_x: Ints
    of_y: Ints
    data: Array


class JoinPartner(NamedTuple):
    """A sparse table with which rows are joined.

    Attributes
    ----------
    shift, mask, to : (shared variables,) int64
        Shift and mask of the shared fields in a row's key, and their shift in ``shared``.
    shared : (groups,) int64
        Packed values of the shared variables, ascending.
    group : (groups + 1,) int64
        First vector of each group.
    fresh : (vectors,) int64
        Packed values of the variables that the join adds.
    start, x, values
        As in :class:`GroupedTable`.
    bits : int
        Number of bits of ``fresh``.
    """

    shift: Ints
    mask: Ints
    to: Ints
    shared: Ints
    group: Ints
    fresh: Ints
    start: Ints
    x: Ints
    values: Array
    bits: int


class RowLayout(NamedTuple):
    """The layout of rows.

    Attributes
    ----------
    scope
        Variables of the keys.
    variable
        Variable of the vectors.
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
    at, first, of_x, of_y, data = [0], [0], list[int](), list[int](), list[Array]()
    field_of_axis, stride = list[int](), list[int]()
    for table in (*exact, *bounds):
        sizes = [int(layout.domains[v]) for v in table.scope]
        steps = dict(zip(table.scope, strides(sizes).tolist(), strict=True))
        of_x.append(steps.pop(layout.variable, 0))
        of_y.append(0 if layout.added is None else steps.pop(layout.added, 0))
        field_of_axis += [position[v] for v in steps]
        stride += steps.values()
        first.append(len(field_of_axis))
        data.append(np.ascontiguousarray(table.values).reshape(-1))
        at.append(at[-1] + data[-1].size)
    field_index = np.array(field_of_axis, dtype=np.int64)
    return LookupTables(
        len(exact),
        np.array(at[:-1], dtype=np.int64),
        np.array(first, dtype=np.int64),
        fields.shift[field_index],
        fields.mask[field_index],
        np.array(stride, dtype=np.int64),
        np.array(of_x, dtype=np.int64),
        np.array(of_y, dtype=np.int64),
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
