"""Which rows of a UTIL message its receiver can use: function filtering between agents.

Before the UTIL phase, each agent sends each child the rows of the child's separator that no hard constraint of the
agent or of its ancestors forbids (:func:`rows_for_children`). The child then sends only these rows, and of them only
those that can be part of a solution at least as good as the best known one (:func:`usable_part`). Every other row is
−∞ for the receiver. A row that is left out is part of no optimal solution, so answers and proofs do not change.

References
----------
.. [1] I. Brito, P. Meseguer: "Improving DPOP with function filtering", AAMAS 2010. There, bounds that agents exchange
   beforehand decide which tuples a message leaves out; here hard constraints do, and one number per agent.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import UtilMessage, UtilNode, project
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, is_allowed
from dmcmc.inference.model.cuda.device_table import largest_entry
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.inference.sparse.sparse_table import (
    AnyTable,
    KeyTooWide,
    SparseBackedTable,
    SparseTable,
    as_dense,
    fields_of,
    substitute_functional,
)
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

_INDEX_BYTES = 8  # bytes of the index of a variable in a message
_RELAXATION = Relaxation("auto", None, "scope", False)  # mini-buckets keep more rows than necessary, which is sound


class UsableRows(NamedTuple):
    """The rows of a separator, or of a part of it, that an agent can use.

    Attributes
    ----------
    scope : tuple of int
        The variables.
    rows : ndarray of bool
        Whether the agent can use the row, one axis per variable.
    """

    scope: tuple[int, ...]
    rows: NDArray[np.bool_]

    @property
    def message_bytes(self) -> int:
        """Bytes of the rows in a message: a bit per row, and the index of each variable."""
        return -(-self.rows.size // 8) + _INDEX_BYTES * len(self.scope)

    def within(self, scope: Sequence[int]) -> "UsableRows":
        """Return which values of the variables in ``scope`` have a usable row."""
        others = tuple(axis for axis, v in enumerate(self.scope) if v not in scope)
        rows: NDArray[np.bool_] = np.asarray(self.rows.any(axis=others))
        return UsableRows(tuple(v for v in self.scope if v in scope), rows)


def rows_for_children(
    node: UtilNode, known: Sequence[UsableRows], child_separators: Sequence[Sequence[int]], resources: Resources
) -> list[tuple[UsableRows, ...]]:
    """Return, for each child, which rows of its separator no hard constraint known to the agent forbids.

    The hard constraints are the −∞ entries of the agent's tables and of the crossing factors placed at it, and
    the rows that its own parent can use. Their variables outside the child's separator are eliminated.

    Parameters
    ----------
    node
        The agent with its tables, without messages of its children.
    known
        The rows that the parent can use; empty for a root.
    child_separators
        The separator of each child.
    resources
        Memory and backend of the eliminations.

    Returns
    -------
    list of tuple of UsableRows
        Empty tuples for children that had better send all rows: the bits that describe the unusable rows have to be
        fewer than the bits of their entries.
    """
    arithmetic = node.arithmetic
    constraints = [_allowed(table, arithmetic) for table in (*node.local_tables, *node.crossing)]
    tables: list[AnyTable] = [table for table in constraints if table is not None]
    tables += [_zero_where(rows, scope, arithmetic) for scope, rows in known]
    if not tables:
        return [() for _ in child_separators]
    limit = 8 * MAX_EXAMINED_ENTRIES
    memory = limit if resources.memory is None else min(resources.memory, limit)
    resources = replace(resources, memory=memory, magnitude_limit=None, owner="the usable rows of an agent")
    usable = list[tuple[UsableRows, ...]]()
    for separator in child_separators:
        hidden = [v for v in (*node.interface, *node.separator) if v not in set(separator)]
        projected = project(node, substitute_functional(tables, hidden)[0], separator, _RELAXATION, resources)
        found = [UsableRows(t.scope, is_allowed(as_dense(t).values)) for t in projected if t.scope]
        usable.append(tuple(rows for rows in found if _is_worth_sending(rows, arithmetic)))
    return usable


def allows_more_rows(before: UtilMessage, after: UtilMessage) -> bool:
    """Return whether tables over the same variables may allow rows that other tables have forbidden.

    The children of an agent with such new tables may have left out rows that it now needs.
    """
    if [table.scope for table in before] != [table.scope for table in after]:
        return True
    pairs = zip(map(as_dense, before), map(as_dense, after), strict=True)
    return any(bool((is_allowed(new.values) & ~is_allowed(old.values)).any()) for old, new in pairs)


def usable_part(
    message: UtilMessage, known: Sequence[UsableRows], least: Number | None, domains: Ints, arithmetic: Arithmetic
) -> UtilMessage:
    """Return a UTIL message without the rows that the receiver cannot use.

    Parameters
    ----------
    message
        Tables whose sum is the message.
    known
        The rows that the receiver can use.
    least
        The encoded utility that a row of the sum has to reach to be part of a solution that is at least as good as the
        best known one; None if no such utility is known.
    domains : (variables,) int64
        Domain sizes of all variables.
    arithmetic
        Encoding of the entries.

    Returns
    -------
    tuple of table
        Unusable rows are −∞. A table is sparse if that is smaller, and a constant if all of its
        usable rows are equal.
    """
    largest = [largest_entry(as_dense(table) if isinstance(table, SparseBackedTable) else table) for table in message]
    if any(map(arithmetic.is_lowest, largest)):
        least = None
    total, parts = sum(largest), list[AnyTable]()
    for table, most in zip(message, largest, strict=True):
        limit = None if least is None else least - (total - most)
        inside = [rows.within(table.scope) for rows in known if set(rows.scope) & set(table.scope)]
        parts.append(_filtered(table, inside, limit, domains, arithmetic))
    constants = absorb([part for part in parts if isinstance(part, EncodedTable) and not part.scope], arithmetic)
    return (*(part for part in parts if part.scope), *constants)


def _filtered(
    table: AnyTable, usable: Sequence[UsableRows], limit: Number | None, domains: Ints, arithmetic: Arithmetic
) -> AnyTable:
    """Return a table with −∞ in rows that are unusable or below the limit; the table itself if there are none."""
    if not table.scope:
        return table
    if isinstance(table, SparseBackedTable):
        fields, rows = fields_of(table.scope, domains), table.rows
        kept = np.ones(rows.rows, dtype=bool) if limit is None else rows.values >= limit
        for scope, allowed in usable:
            axes = [table.scope.index(v) for v in scope]
            kept &= allowed[tuple((rows.keys >> fields.shift[axis]) & fields.mask[axis] for axis in axes)]
        remaining = SparseTable(table.scope, rows.keys[kept], rows.values[kept])
        return table if kept.all() else SparseBackedTable(remaining, table.shape, table.lowest)
    values, unusable = table.values, np.zeros(table.values.shape, dtype=bool)
    for scope, allowed in usable:
        axes = sorted(range(len(scope)), key=lambda axis: table.scope.index(scope[axis]))
        shape = [size if v in scope else 1 for v, size in zip(table.scope, values.shape, strict=True)]
        unusable |= ~allowed.transpose(axes).reshape(shape)
    useful = values[~unusable]
    if useful.size and useful.min() == useful.max():  # unusable rows may have any value: the receiver forbids them
        return EncodedTable((), np.array(useful[0], dtype=arithmetic.dtype))
    removed = unusable if limit is None else unusable | (values < limit)
    if not removed.any():
        return table
    dense = EncodedTable(table.scope, np.where(removed, arithmetic.lowest_scalar, values))
    try:
        return SparseBackedTable.where_smaller(SparseTable.of(dense, domains, arithmetic), domains, arithmetic)
    except KeyTooWide:
        return dense


def _allowed(table: AnyTable, arithmetic: Arithmetic) -> EncodedTable | None:
    """Return a table of 0 for the allowed entries of a table and −∞ for the others; None if it forbids nothing."""
    allowed = is_allowed(as_dense(table).values)
    return None if allowed.all() else _zero_where(allowed, table.scope, arithmetic)


def _zero_where(allowed: NDArray[np.bool_], scope: Sequence[int], arithmetic: Arithmetic) -> EncodedTable:
    """Return a table of 0 for the allowed entries and −∞ for the others."""
    return EncodedTable(tuple(scope), np.where(allowed, arithmetic.dtype.type(0), arithmetic.lowest_scalar))


def _is_worth_sending(usable: UsableRows, arithmetic: Arithmetic) -> bool:
    """Return whether the entries of the unusable rows take more bytes than the message that names them."""
    unusable = usable.rows.size - int(np.count_nonzero(usable.rows))
    return unusable * arithmetic.dtype.itemsize > usable.message_bytes


def usable_size(message: Sequence[UsableRows]) -> int:
    """Return the bytes of a message with usable rows: a bit per row, and one index per variable of a scope."""
    return sum(usable.message_bytes for usable in message)
