"""Tables laid out as the kernels of rows read them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import starts_of
from dmcmc.inference.sparse.sparse_table import Incomplete, fields_of, grouped, strides


class Lookups(NamedTuple):
    """Dense tables to look rows up in; the first ``exact`` are added, the others bound what is not in a row yet.

    Attributes
    ----------
    exact : int
    at : (tables,) int64
        Where each begins in ``data``.
    first, shift, mask, stride : int64
        The fields of the key that table t varies with are ``first[t]`` to ``first[t + 1]`` - 1 of the others.
    of_x, of_y : (tables,) int64
        Strides of the bucket's variable, and of the one that is being added.
    data : (entries,)
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


class Partner(NamedTuple):
    """An incomplete table that rows are joined with.

    Attributes
    ----------
    shift, mask, to : int64
        The fields of a row's key that are shared, and where they stand in ``shared``.
    shared : (groups,) int64
        Packed shared values, ascending.
    group : (groups + 1,) int64
        Where the vectors of each begin.
    fresh : (vectors,) int64
        Packed values of the other variables.
    start, x, values
        As in :class:`.Grouped`.
    bits : int
        Of ``fresh``.
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


class Place(NamedTuple):
    """Where rows stand: the ``scope`` of their keys, the ``variable`` of their vectors, and one that is ``added``."""

    scope: Sequence[int]
    variable: int
    added: int | None
    domains: Ints


def lookups(exact: Sequence[Table], rest: Sequence[Table], place: Place, arithmetic: Arithmetic) -> Lookups:
    """Lay tables out for rows: those that are added, and those that bound."""
    fields = fields_of(place.scope, place.domains)
    position = {v: i for i, v in enumerate(place.scope)}
    at, first, of_x, of_y, data = [0], [0], list[int](), list[int](), list[Array]()
    where, stride = list[int](), list[int]()
    for table in (*exact, *rest):
        sizes = [int(place.domains[v]) for v in table.scope]
        steps = dict(zip(table.scope, strides(sizes).tolist(), strict=True))
        of_x.append(steps.pop(place.variable, 0))
        of_y.append(0 if place.added is None else steps.pop(place.added, 0))
        where += [position[v] for v in steps]
        stride += steps.values()
        first.append(len(where))
        data.append(np.ascontiguousarray(table.values).reshape(-1))
        at.append(at[-1] + data[-1].size)
    fielded = np.array(where, dtype=np.int64)
    return Lookups(
        len(exact),
        np.array(at[:-1], dtype=np.int64),
        np.array(first, dtype=np.int64),
        fields.shift[fielded],
        fields.mask[fielded],
        np.array(stride, dtype=np.int64),
        np.array(of_x, dtype=np.int64),
        np.array(of_y, dtype=np.int64),
        np.concatenate([np.zeros(0, dtype=arithmetic.dtype), *data]),
    )


def partner(table: Incomplete, before: Sequence[int], new: Sequence[int], variable: int, domains: Ints) -> Partner:
    """Lay an incomplete table out for joining rows over ``before`` with it, which adds ``new`` variables."""
    shared = [v for v in before if v in table.scope]
    rows = grouped(table, [*shared, *new], variable, domains)
    here, there, bits = fields_of(before, domains), fields_of(shared, domains), fields_of(new, domains).bits
    at = [list(before).index(v) for v in shared]
    group = starts_of(rows.keys, bits)
    return Partner(
        here.shift[at],
        here.mask[at],
        there.shift,
        rows.keys[group[:-1]] >> bits,
        group,
        rows.keys & ((1 << bits) - 1),
        rows.start,
        rows.x,
        rows.values,
        bits,
    )
