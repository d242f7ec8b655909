"""Elimination of some variables with incomplete tables throughout: for joins of which dense tables are mostly −∞."""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints, Number
from dmcmc.inference.sparse.join import joined, maximised
from dmcmc.inference.sparse.sparse_table import AnyTable, Incomplete, ListedTable, TooWide, as_rows

_ROW = 40  # bytes of a row while tables are joined
_SLOWER = 200  # times longer a row takes than a dense cell
_MOST = 1 << 24  # rows: a join of so many takes some seconds, without a look at the time
_LARGE = 1 << 20  # joined cells; less is not worth a look


@dataclass(frozen=True)
class ListedElimination:
    """An elimination that was carried out with incomplete tables.

    Attributes
    ----------
    plan : Plan
        Of the same elimination with dense tables.
    tables : list of Incomplete
        The plan's: inputs, then a message a bucket.
    domains : (variables,) int64
    arithmetic : Arithmetic
    """

    plan: Plan
    tables: Sequence[Incomplete]
    domains: Ints
    arithmetic: Arithmetic

    def remaining(self) -> tuple[AnyTable, ...]:
        """Return the tables over kept variables, none's scope inside another's; their sum is the result."""
        scopes = {t: self.plan.scope(t) for t in self.plan.remaining}
        rows = [self.tables[t].reordered(scope, self.domains) for t, scope in scopes.items()]
        if any(set(a) <= set(b) for a, b in permutations(scopes.values(), 2)):
            return absorb([one.dense(self.domains, self.arithmetic) for one in rows], self.arithmetic)
        rows.sort(key=lambda one: -len(one.scope))
        return tuple(ListedTable.where_smaller(one, self.domains, self.arithmetic) for one in rows)

    def maximise(self, values: MutableMapping[int, int]) -> None:
        """Add the maximising value of every eliminated variable to a mapping; ties go to the lowest value.

        Where nothing is possible it is the one that dense tables would choose: sums are clamped in their order.
        """
        lowest = self.arithmetic.lowest
        for b in reversed(range(self.plan.buckets)):
            variable, best = int(self.plan.program.variable[b]), None
            inputs = [self.tables[t] for t in self.plan.inputs(b)]
            for x in range(int(self.domains[variable])):
                values[variable] = x
                total: Number = 0
                for table in inputs:
                    entry = table.entry(values, self.domains)
                    total = max(total + (lowest if entry is None else entry), lowest)
                if best is None or total > best[0]:
                    best = total, x
            values[variable] = 0 if best is None else best[1]


@dataclass(frozen=True)
class ListedQuery:
    """What is eliminated, as a :class:`.Query` has it; some of its tables may be incomplete ones."""

    tables: Sequence[AnyTable]
    domains: Ints
    arithmetic: Arithmetic


def listed_elimination(
    query: ListedQuery, plan: Plan, memory: int | None, stop: Stop = NO_STOP
) -> ListedElimination | None:
    """Return the elimination with incomplete tables where that is worth it: None where dense ones should be taken.

    That is where dense tables do not fit, or what is possible of the joins is so little, if tables were unrelated, that
    listing it takes less time. More rows than that are not made. Whole numbers only: sums are the same to the bit.

    Parameters
    ----------
    plan
        Of the query, exact.
    memory
        Bytes of tables; None for no limit.
    """
    if not query.arithmetic.exact or plan.cells < _LARGE:
        return None
    size, cells = query.arithmetic.dtype.itemsize, float(plan.program.cells.astype(np.float64).sum())
    kept = sum(int(plan.sizes[t]) for t in plan.remaining)
    fits = memory is None or plan.entries * size <= memory
    if not fits and kept * size * 2 > (memory or 0):
        return None
    most = min(_MOST, int(cells / _SLOWER) if fits else (memory or 0) // (2 * _ROW))
    if _expected(plan, query) > most:
        return None
    try:
        return _carry_out(query, plan, most, stop)
    except (OutOfMemory, TooWide):
        return None


def _expected(plan: Plan, query: ListedQuery) -> float:
    """Return about how many rows all joins have, if tables were unrelated."""
    fill = {t: _fill(table, query.arithmetic) for t, table in enumerate(query.tables)}
    rows, cells = 0.0, plan.program.cells.tolist()
    for b, variable in enumerate(plan.program.variable.tolist()):
        part = 1.0
        for t in plan.inputs(b):
            part *= fill[t]
        fill[plan.output(b)] = 1.0 - (1.0 - part) ** int(query.domains[variable])
        rows += part * cells[b]
    return rows


def _fill(table: AnyTable, arithmetic: Arithmetic) -> float:
    if isinstance(table, ListedTable):
        return table.rows.rows / max(1, prod(table.shape))
    if isinstance(table, DeviceTable):
        return table.count(arithmetic.threshold) / max(1, prod(table.shape))
    return int(np.count_nonzero(table.values > arithmetic.threshold)) / max(1, table.values.size)


def _carry_out(query: ListedQuery, plan: Plan, most: int, stop: Stop) -> ListedElimination:
    """Join and maximise bucket by bucket; rows of all messages together are at most ``most``."""
    domains = query.domains
    tables = [as_rows(table, domains, query.arithmetic) for table in query.tables]
    for b, variable in enumerate(plan.program.variable.tolist()):
        stop.check()
        parts = sorted((tables[t] for t in plan.inputs(b)), key=lambda one: one.rows)
        joint = parts[0] if parts else Incomplete((variable,), np.arange(domains[variable]), _zeros(query, variable))
        for part in parts[1:]:
            joint = joined(joint, part, domains, most)
        message = maximised(joint, [variable], domains)
        ACCOUNT.claim(message.bytes, "rows of an elimination")
        most -= message.rows
        tables.append(message)
    return ListedElimination(plan, tables, domains, query.arithmetic)


def _zeros(query: ListedQuery, variable: int) -> Array:
    return np.zeros(int(query.domains[variable]), dtype=query.arithmetic.dtype)
