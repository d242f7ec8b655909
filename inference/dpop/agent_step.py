"""The step of one agent: its messages, and the rows that can still be used.

DPOP's steps as pure functions (DMCMC paper §2 and Algorithm 2), used both in one process and over MPI.

A *crossing* factor has variables of several agents. An agent's *interface* are its variables in crossing factors, its
*separator* the variables of ancestors that its message ranges over. In the UTIL phase each agent, leaves first, joins
its tables with its children's messages, maximises over its interface variables and sends the result to its parent
(:func:`util_step`). In the VALUE phase each agent, roots first, looks up its best values given those of its ancestors
(:func:`value_step`). :func:`outside_steps` computes bounds from the roots down.

The contents of the messages are here, too: tables (:class:`UtilTables`) and assignments (:class:`ChosenValues`), with
their sizes in bytes and the senders' simulated clocks (:class:`Clock`).

Which rows of a UTIL message its receiver can use: function filtering between agents.

Before the UTIL phase, each agent sends each child the rows of the child's separator that no hard constraint of the
agent or of its ancestors forbids (:func:`rows_for_children`). The child then sends only these rows, and of them only
those that can be part of a solution at least as good as the best known one (:func:`usable_part`). Every other row is −∞
for the receiver. A row that is left out is part of no optimal solution, so answers and proofs do not change.

References
----------
.. [1] I. Brito, P. Meseguer: "Improving DPOP with function filtering", AAMAS 2010. There, bounds that agents exchange
   beforehand decide which tuples a message leaves out; here hard constraints do, and one number per agent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination, absorb
from dmcmc.inference.elimination.plan import EliminationPlan, EliminationQuery, plan_elimination
from dmcmc.inference.execution.exact_or_mini_buckets import (
    EXACT,
    UNLIMITED,
    Relaxation,
    RelaxedElimination,
    Resources,
    eliminate_first_fitting,
    eliminate_within,
)
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, is_allowed
from dmcmc.inference.model.device_table import DeviceTable, copy_table, largest_entry
from dmcmc.inference.model.flat_tables import FlatTables, flatten_scopes
from dmcmc.inference.model.tables import spread
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import Memo, is_short_key
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.inference.sparse.sparse_table import (
    AnyTable,
    KeyTooWide,
    SparseBackedTable,
    SparseElimination,
    SparseQuery,
    SparseTable,
    Substitution,
    as_dense,
    eliminate_sparse,
    fields_of,
    substitute_functional,
)
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

# Tables over parts of the sender's separator. Their sum is UTIL_i, or with mini-buckets (ADPOP) an upper bound on it.
# Tables with mostly −∞ entries may be sparse (the CUBE paper calls them incomplete).
UtilMessage = tuple[AnyTable, ...]
Values = dict[int, int]

_INDEX_BYTES = 8  # bytes of the index of a variable or a value in a message


@dataclass(frozen=True)
class UtilStep:
    """The result of an agent's UTIL step: the message it sends, and its tables for the VALUE phase.

    Attributes
    ----------
    message : tuple of table
        The UTIL message, over parts of the separator; dense or sparse tables.
    elimination : Elimination or SparseElimination
        The tables of all buckets, for the choice of values.
    z : int or None
        Size limit of the mini-buckets; None if the interface was eliminated exactly.
    substitutions : sequence of Substitution
        Interface variables that were replaced by functions of other variables before the elimination.
    """

    message: UtilMessage
    elimination: Elimination | SparseElimination
    z: int | None = None
    substitutions: Sequence[Substitution] = ()

    def without_tables(self) -> "UtilStep":
        """Return the step without its bucket tables, which are not needed after VALUE."""
        elimination = self.elimination
        empty = Elimination(elimination.plan, np.zeros(0, dtype=elimination.arithmetic.dtype), elimination.arithmetic)
        return replace(self, elimination=empty)

    @property
    def total(self) -> int | float:
        """The UTIL value of a root: the best utility of its subtree or an upper bound on it (encoded)."""
        assert not any(table.scope for table in self.message), "only a root has no separator"
        lowest = self.elimination.arithmetic.lowest
        value: int | float = 0
        for table in self.message:
            value = max(value + table.values.item(), lowest)
        return value


@dataclass(frozen=True)
class UtilNode:
    """An agent in the pseudo-tree with all inputs of its UTIL step.

    Attributes
    ----------
    local_tables : sequence of table
        The agent's tables over its interface, encoded.
    crossing : sequence of table
        The crossing factors placed at the agent, encoded.
    child_messages : sequence of tuple of table
        UTIL messages, in the order of the children.
    interface, separator : sequence of int
        B_i and sep_i: the agent's boundary variables, and the variables of ancestors that its message ranges over.
    domains : (variables,) int64
        Domain sizes of all variables.
    arithmetic : Arithmetic
        Encoding of the tables' entries.
    order : tuple of int or None
        Elimination order of the interface; None to search for one.
    """

    local_tables: Sequence[AnyTable]
    crossing: Sequence[AnyTable]
    child_messages: Sequence[UtilMessage]
    interface: Sequence[int]
    separator: Sequence[int]
    domains: NDArray[np.int64]
    arithmetic: Arithmetic
    order: Sequence[int] | None = None


class _StepPlan(NamedTuple):
    """The elimination order and plan of a step.

    Attributes
    ----------
    order : tuple of int
        The eliminated variables, first to last.
    plan : EliminationPlan
        The elimination plan.
    layout : FlatTables or None
        Scopes and offsets of the input tables in one flat array, without entries; None if the tables are not small.
    """

    order: tuple[int, ...]
    plan: EliminationPlan
    layout: FlatTables | None


_PLANS = Memo[_StepPlan]()  # plans of steps by their structure, for this process


def util_step(
    node: UtilNode,
    attempts: Sequence[tuple[Relaxation, int | None]] = ((EXACT, None),),
    resources: Resources = UNLIMITED,
) -> UtilStep:
    """Join an agent's tables with its children's messages and maximise over its interface variables.

    UTIL_i(sep_i) = max over b_i of [V_i(b_i) + Σ crossing factors + Σ UTIL_c]. The interface is eliminated variable by
    variable: B_i ∪ sep_i is never enumerated at once. With mini-buckets the step is ADPOP's (GpuBE journal paper,
    §4.2): still one message, with more and smaller tables.

    Parameters
    ----------
    node
        The agent and its inputs.
    attempts
        Relaxations (exact, or with mini-buckets) and the bytes of tables that each may take; the first that fits is
        used.
    resources
        Backend and magnitude limit of moment matching (:mod:`dmcmc.inference.minibuckets.moment_matching`). The owner
        is the agent's name, for messages; the memory is not used.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    OutOfTime
        If the backend's deadline passes.
    """
    arithmetic = node.arithmetic
    tables = [*node.local_tables, *node.crossing, *(table for message in node.child_messages for table in message)]
    scopes, stop = [t.scope for t in tables], resources.backend.stop
    planned = _step_plan(scopes, node.domains, node.interface, node.separator, node.order, stop)
    (order, exact, layout), (relaxation, memory) = planned, attempts[0]
    may_be_exact = relaxation.method != "mini-bucket" and exact.width <= relaxation.max_z
    is_large = layout is None  # only large tables may be stored as sparse ones
    if is_large and may_be_exact and relaxation.z is None:
        sparse_result = eliminate_sparse(SparseQuery(tables, node.domains, arithmetic), exact, memory, stop)
        if sparse_result is not None:
            return UtilStep(sparse_result.remaining(), sparse_result)
    in_host_memory = all(type(table) is EncodedTable for table in tables)
    fits = memory is None or exact.entries * arithmetic.dtype.itemsize <= memory
    if layout is not None and in_host_memory and may_be_exact and fits:
        stop.check()
        entries = [table.values.reshape(-1) for table in tables]
        data = np.concatenate(entries) if entries else np.zeros(0, dtype=arithmetic.dtype)
        # The first three fields of the layout are the scopes and offsets.
        small_result = resources.backend.eliminate(FlatTables(*layout[:3], data), exact, arithmetic)
        # Copies: views would keep the whole array of intermediate tables in memory.
        message = tuple([EncodedTable(scope, values.copy()) for scope, values in small_result.remaining()])
        return UtilStep(message, small_result)
    query = EliminationQuery(
        [as_dense(table) for table in tables], node.domains, order, node.separator, arithmetic, exact
    )
    named_resources = replace(resources, owner=f"agent {resources.owner}: its UTIL step")
    relaxed = eliminate_first_fitting(query, attempts, named_resources)
    return UtilStep(_remaining(relaxed), relaxed.elimination, relaxed.z)


def _step_plan(
    scopes: Sequence[tuple[int, ...]],
    domains: NDArray[np.int64],
    eliminate: Sequence[int],
    keep: Sequence[int],
    given: Sequence[int] | None = None,
    stop: Deadline = NO_DEADLINE,
) -> _StepPlan:
    """Return the order and plan of an exact elimination, from the cache if there is one of the same structure.

    Parameters
    ----------
    scopes
        Scopes of the input tables.
    domains : (variables,) int64
        Domain sizes of all variables.
    eliminate, keep
        The variables to eliminate, and those that remain.
    given
        The elimination order; None to search for one.
    stop
        Deadline of the search for an order.
    """

    def make_plan() -> _StepPlan:
        """Search for the order and plan the elimination."""
        order = best_order(scopes, domains, eliminate, keep, stop=stop).variables if given is None else tuple(given)
        plan = plan_elimination(scopes, domains, order, keep)
        return _StepPlan(order, plan, _layout(scopes, plan) if plan.is_small else None)

    if not is_short_key(len(scopes) + len(eliminate) + len(keep)):
        return make_plan()
    full_key = is_short_key(domains.nbytes)  # the domain sizes of all variables are in the key if it stays small
    sizes = (domains if full_key else domains[np.array([*eliminate, *keep], dtype=np.int64)]).tobytes()
    key = tuple(scopes), tuple(eliminate), tuple(keep), sizes, domains.size, None if given is None else tuple(given)
    step = _PLANS.find(key)
    if step is None:
        step = make_plan()
        if not stop.over:  # otherwise the order may depend on the clock
            _PLANS.put(key, step)
    if full_key:
        return step
    program = step.plan.program._replace(domains=writable_once(domains))
    return step._replace(plan=replace(step.plan, program=program))


def _layout(scopes: Sequence[tuple[int, ...]], plan: EliminationPlan) -> FlatTables:
    """Return scopes and offsets of a plan's input tables, in the given order, in one flat array."""
    at = np.append(0, np.cumsum(plan.sizes[: len(scopes)]))
    return FlatTables(*flatten_scopes(scopes), at, np.zeros(0, dtype=np.int32))


def util_step_by_substitution(
    node: UtilNode,
    attempts: Sequence[tuple[Relaxation, int | None]] = ((EXACT, None),),
    resources: Resources = UNLIMITED,
) -> UtilStep:
    """Return the same as :func:`util_step`, but replace variables that are functions of other variables beforehand.

    The message then has more and smaller tables; equal copies of a variable are not joined. The parameters and
    errors are those of :func:`util_step`.
    """
    tables = [*node.local_tables, *node.crossing, *(table for message in node.child_messages for table in message)]
    remaining, substitutions = substitute_functional(tables, node.interface)
    if not substitutions:
        return util_step(node, attempts, resources)
    replaced = {substitution.variable for substitution in substitutions}
    interface = [v for v in node.interface if v not in replaced]
    order = None if node.order is None else [v for v in node.order if v not in replaced]
    shorter = replace(node, local_tables=remaining, crossing=(), child_messages=(), interface=interface, order=order)
    return replace(util_step(shorter, attempts, resources), substitutions=tuple(substitutions))


def outside_steps(
    node: UtilNode,
    outside: UtilMessage,
    child_separators: Sequence[Sequence[int]],
    relaxation: Relaxation = EXACT,
    resources: Resources = UNLIMITED,
) -> tuple[UtilMessage, list[UtilMessage]]:
    """Compute outside bounds from the top down: upper bounds on what all other agents can add.

    Two kinds are computed: per row of the agent, and per assignment of each child's separator. For each row,
    the sum of ``node.local_tables`` and ``interface_tables`` is the best utility of the whole component, or
    with relaxed tables an upper bound on it. An agent's own tables are part of its children's outside bounds
    only.

    Parameters
    ----------
    node
        The agent and its inputs.
    outside
        The outside bound over the agent's separator; empty for a root.
    child_separators
        The separator of each child.
    relaxation
        Exact, or with mini-buckets.
    resources
        Memory and backend of the eliminations.

    Returns
    -------
    interface_tables : tuple of table
        The outside bound over parts of the interface.
    child_tables : list of tuple of table
        The outside bound over parts of each child's separator.
    """
    resources = replace(resources, magnitude_limit=None, owner="the outside bound of an agent")
    all_messages = [t for message in node.child_messages for t in message]
    interface_tables = project(node, [*node.crossing, *all_messages, *outside], node.interface, relaxation, resources)
    child_tables = []
    for child, keep in enumerate(child_separators):
        sibling_messages = [
            t for sibling, message in enumerate(node.child_messages) if sibling != child for t in message
        ]
        tables = [*node.local_tables, *node.crossing, *sibling_messages, *outside]
        child_tables.append(project(node, tables, keep, relaxation, resources))
    return interface_tables, child_tables


def project(
    node: UtilNode, tables: Sequence[AnyTable], keep: Sequence[int], relaxation: Relaxation, resources: Resources
) -> UtilMessage:
    """Return an upper bound on a sum of tables over some of an agent's variables: maximise over all others.

    If the elimination does not fit the memory, the result is a constant upper bound.

    Parameters
    ----------
    node
        The agent; the tables are over its interface and separator.
    tables
        The tables to add up.
    keep
        The variables that remain.
    relaxation
        Exact, or with mini-buckets.
    resources
        Memory and backend of the elimination.
    """
    domains, arithmetic = node.domains, node.arithmetic
    dense = [as_dense(table) for table in tables]
    eliminated = [v for v in (*node.interface, *node.separator) if v not in set(keep)]
    order = best_order([t.scope for t in dense], domains, eliminated, keep, stop=resources.backend.stop).variables
    try:
        return _remaining(
            eliminate_within(EliminationQuery(dense, domains, order, keep, arithmetic), relaxation, resources)
        )
    except ResourceError:  # a solution exists already, so a loose bound is enough
        return (EncodedTable((), np.array(_sum_of_maxima(dense, arithmetic), dtype=arithmetic.dtype)),)


def _remaining(relaxed: RelaxedElimination) -> UtilMessage:
    """Return the remaining tables, raised by the rounding margin: their sum is an upper bound on the exact one."""
    elimination = relaxed.elimination
    # Copy the tables: a view would keep the whole array of intermediate tables in memory.
    tables = tuple(map(copy_table, elimination.remaining()))
    if relaxed.margin > 0:
        margin = np.array(relaxed.margin, dtype=elimination.arithmetic.dtype)
        tables = absorb([*tables, EncodedTable((), margin)], elimination.arithmetic)
    return tables


def _sum_of_maxima(tables: Sequence[EncodedTable], arithmetic: Arithmetic) -> int | float:
    """Return an upper bound on the sum of the tables: the sum of their maxima, rounded up."""
    total: int | float = 0
    for table in tables:
        total = max(total + table.values.max().item(), arithmetic.lowest)
    return arithmetic.outward(total, len(tables))


def value_step(step: UtilStep, separator: Sequence[int], context: Mapping[int, int]) -> dict[int, int]:
    """Return the best values of the interface variables, given the values of the separator in ``context``."""
    values = {v: context[v] for v in separator}
    step.elimination.maximise(values)
    for variable, source, value in reversed(step.substitutions):
        values[variable] = int(value[values[source]])
    return values


@dataclass(frozen=True)
class SentMessages:
    """Statistics of the messages that an agent has sent.

    Attributes
    ----------
    count : int
        Number of messages.
    size : int
        Bytes of all of them.
    kind : str
        Kind of the messages, such as ``UTIL``.
    entries : int
        Table entries in UTIL messages.
    """

    count: int = 0
    size: int = 0
    kind: str = ""
    entries: int = 0


def added(sent: SentMessages, more: SentMessages) -> SentMessages:
    """Return the statistics of two groups of messages of one kind together."""
    return SentMessages(sent.count + more.count, sent.size + more.size, sent.kind, sent.entries + more.entries)


class Clock(NamedTuple):
    """An agent's simulated clock, as if every agent had a machine to itself and messages took no time.

    Attributes
    ----------
    seconds : float
        Simulated time (Sultanik et al. 2008).
    checks : int
        Non-concurrent constraint checks (Meisels et al. 2002): joined cells of eliminations, and values of a variable
        that draws have examined.
    """

    seconds: float = 0.0
    checks: int = 0

    def after(self, seconds: float, checks: int = 0) -> "Clock":
        """Return the clock after some work."""
        return Clock(self.seconds + seconds, self.checks + checks)


def latest(clocks: Iterable[Clock]) -> Clock:
    """Return the maximum of some clocks, separately of seconds and of checks."""
    seconds, checks = 0.0, 0
    for clock in clocks:
        seconds, checks = max(seconds, clock.seconds), max(checks, clock.checks)
    return Clock(seconds, checks)


class UtilTables(NamedTuple):
    """The contents of a UTIL message.

    Attributes
    ----------
    lower, upper : tuple of tables
        Tables of lower bounds, and of upper bounds or None; the same object if they do not differ.
    """

    lower: UtilMessage
    upper: UtilMessage | None


class ChosenValues(NamedTuple):
    """The contents of a VALUE message: values of variables, {variable: value}.

    Attributes
    ----------
    lower, upper : dict
        Values that maximise the lower tables, and values that maximise the upper tables or None.
    """

    lower: Values
    upper: Values | None


def util_size(message: UtilTables | None) -> int:
    """Return the bytes of a UTIL message: the entries of its tables, and one index per variable of a scope."""
    if message is None:
        return 0
    tables = [*message.lower, *(message.upper or () if message.upper is not message.lower else ())]
    return tables_size(tables)


def util_entries(message: UtilTables | None) -> int:
    """Return the number of entries of the lower tables of a UTIL message that are not −∞.

    Upper tables of the same entries are bounds on them, or the same numbers.
    """
    return 0 if message is None else sum(map(_entries_of, message.lower))


def _entries_of(table: AnyTable) -> int:
    """Return the number of entries of a table that are not −∞, all entries of a table on a GPU; 0 for a constant."""
    if not table.scope:
        return 0
    if isinstance(table, SparseBackedTable):
        return table.rows.rows
    if isinstance(table, DeviceTable):
        return prod(table.shape)
    return int(np.count_nonzero(is_allowed(table.values)))


def tables_size(tables: Sequence[AnyTable]) -> int:
    """Return the bytes of some tables in a message; a sparse table counts its stored entries only."""
    return sum(bytes_of(table) + _INDEX_BYTES * len(table.scope) for table in tables)


def bytes_of(table: AnyTable) -> int:
    """Return the bytes of a table in its present form."""
    return table.nbytes if isinstance(table, SparseBackedTable | DeviceTable) else table.values.nbytes


def value_size(message: ChosenValues | None) -> int:
    """Return the bytes of a VALUE message: two indices per value, and the upper values if they differ."""
    if message is None:
        return 0
    lower, upper = message
    differs = upper is not None and upper is not lower and upper != lower
    return 2 * _INDEX_BYTES * (len(message.lower) + (len(message.upper or ()) if differs else 0))


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
        unusable |= ~spread(allowed, scope, table.scope)
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
