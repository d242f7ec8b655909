"""Eliminate variables whose value follows from another variable: by substitution, without joining tables.

A constraint over two variables is *functional* in c if it allows at most one value f(x) of c for each value of x. Then
max over c of Σ T_i(c, ...) = Σ T_i(f(x), ...): each table is looked up at f(x), and none are joined. The copies of a
meeting that its participants have (PEAV) are the usual case.

References
----------
.. [1] Y. Zhang, R. H. C. Yap, J. Jaffar: "Functional elimination and 0/1/all constraints", AAAI 1999.
"""

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import EncodedTable, is_allowed
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.sparse.sparse_table import AnyTable, as_dense
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES


class Substitution(NamedTuple):
    """A variable that has been replaced by a function of another one.

    Attributes
    ----------
    variable : int
        The variable that has been eliminated.
    source : int
        The variable that determines it.
    value : (values of ``source``,) int64
        Its value for each value of ``source``.
    """

    variable: int
    source: int
    value: Ints


def substitute_functional(
    tables: Sequence[AnyTable], variables: Collection[int]
) -> tuple[list[AnyTable], list[Substitution]]:
    """Replace variables that are functions of other variables, one after the other.

    Parameters
    ----------
    tables
        Encoded tables; their sum is maximised over ``variables``.
    variables
        The variables that may be replaced.

    Returns
    -------
    tables : list of table
        Tables whose sum, maximised over the remaining variables, is the same.
    substitutions : list of Substitution
        In the order in which they were made: the source of one may be the variable of a later one.
    """
    remaining, replaced, substitutions = list(tables), set[int](), list[Substitution]()
    while True:
        found = _find(remaining, [v for v in variables if v not in replaced])
        if found is None:
            return remaining, substitutions
        remaining = [_substituted(table, found) for table in remaining]
        replaced.add(found.variable)
        substitutions.append(found)


def _find(tables: Sequence[AnyTable], variables: Collection[int]) -> Substitution | None:
    """Return the first variable that a table makes a function of another one; None if there is none."""
    fixed = {v for table in tables if not _is_replaceable(table) for v in table.scope}
    for table in tables:
        if len(table.scope) != 2 or not any(v in variables and v not in fixed for v in table.scope):
            continue
        allowed = is_allowed(as_dense(table).values)
        for axis, variable in enumerate(table.scope):
            if variable in variables and variable not in fixed and allowed.sum(axis=axis).max(initial=0) <= 1:
                return Substitution(variable, table.scope[1 - axis], allowed.argmax(axis=axis).astype(np.int64))
    return None


def _is_replaceable(table: AnyTable) -> bool:
    """Return whether a variable of the table can be replaced: the table is on the host, and dense or small."""
    if isinstance(table, DeviceTable):
        return False
    return isinstance(table, EncodedTable) or prod(table.shape) <= MAX_EXAMINED_ENTRIES


def _substituted(table: AnyTable, substitution: Substitution) -> AnyTable:
    """Return a table with a variable replaced; the table itself if it does not have the variable."""
    variable, source, value = substitution
    if variable not in table.scope:
        return table
    axis, values = table.scope.index(variable), as_dense(table).values
    if source not in table.scope:
        scope = (*table.scope[:axis], source, *table.scope[axis + 1 :])
        return EncodedTable(scope, np.ascontiguousarray(values.take(value, axis=axis)))
    rest = tuple(v for v in table.scope if v not in (variable, source))
    first = np.moveaxis(values, (axis, table.scope.index(source)), (0, 1))
    return EncodedTable((source, *rest), np.ascontiguousarray(first[value, np.arange(value.size)]))
