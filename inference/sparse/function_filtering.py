"""Function filtering: rows that cannot be part of a better answer go.

Eliminate all variables with function filtering: rows that cannot beat the incumbent are not made.

Sánchez, Larrosa and Meseguer, "Tree decomposition with function filtering" (CP 2005). A row of a message is retained
only if its utility plus an upper bound on everything outside the bucket's subtree exceeds the incumbent. If a message
has no row left, or the optimum is not better, the incumbent is proven optimal. Otherwise the best assignment is read
back. Small messages are dense tables; the others are sparse (CUBE calls them incomplete).

Read the best assignment back from the inputs of all buckets.

Bound what lies outside a bucket's subtree: mini-bucket messages up and down the bucket tree.

Function filtering drops a row of a bucket's message if its utility plus a bound on all tables outside the bucket's
subtree does not exceed the incumbent (Sánchez, Larrosa and Meseguer, CP 2005). This file computes these bounds.

Mini-buckets: a bucket's tables are split into groups with at most z variables besides the eliminated one, and each
group is maximised by itself; the sum of these maxima is an upper bound on the bucket's message. Cost shifts move
utility between the groups of a bucket (moment matching), which tightens the bound.

The upward messages are those of one mini-bucket elimination of the whole problem. The downward message from a bucket p
to its child c bounds everything outside c's subtree, as a function of c's separator. It sums p's input tables, the
upward messages of p's other children and the downward message to p, and eliminates the variables that are not in c's
separator (mini-cluster-tree elimination: Dechter, Kask and Larrosa, CP 2001).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.plan import EliminationPlan, EliminationQuery, plan_elimination
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched, with_headroom
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets, plan_within
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.inference.sparse.bucket_rows import RowBuilder, RowDevice
from dmcmc.inference.sparse.join_steps import (
    Bucket,
    BucketInput,
    RowLimits,
    TooManyRows,
    dense_message,
    drop_dominated,
    steps_of,
)
from dmcmc.inference.sparse.sparse_table import (
    BucketCost,
    SizeStatistics,
    SparseTable,
    is_nearly_full,
    max_dense_cells,
    size_of,
)

ROOT = -1  # the parent of buckets without a separator


class MiniBucketRelaxation:
    """Eliminate variables with mini-buckets of at most z variables, or of as many as the widest table needs.

    Attributes
    ----------
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    z : int
        Largest number of variables of a message.
    threads : int
        Number of CPU threads.
    stop : Deadline
        The deadline.
    margin : float
        Upper bound on the rounding error of all bounds so far; 0 for integers.
    """

    def __init__(
        self, domains: Ints, arithmetic: Arithmetic, z: int, threads: int = 1, stop: Deadline = NO_DEADLINE
    ) -> None:
        self.domains, self.arithmetic, self.z = domains, arithmetic, z
        self.threads, self.stop = threads, stop
        self.margin = 0.0

    def __call__(self, tables: Sequence[EncodedTable], variables: Sequence[int]) -> list[EncodedTable]:
        """Return tables over the other variables whose sum is an upper bound on the maximum over ``variables``."""
        remaining = list(tables)
        for v in _min_degree_order(tables, variables):
            with_v = [t for t in remaining if v in t.scope]
            remaining = [t for t in remaining if v not in t.scope]
            if with_v:
                remaining += self._eliminate(with_v, v)
        return list(absorb(remaining, self.arithmetic))

    def _eliminate(self, tables: Sequence[EncodedTable], variable: int) -> list[EncodedTable]:
        """Return tables whose sum is an upper bound on the maximum of the given tables' sum over one variable."""
        self.stop.check()
        scopes = [t.scope for t in tables]
        keep = sorted({v for s in scopes for v in s} - {variable})
        z = max(self.z, least_z(scopes, [variable]))
        plan = plan_mini_buckets(scopes, self.domains, [variable], keep, z, shifts=len(keep) > z)
        if len(keep) <= z:
            elimination = eliminate(tables, plan, self.arithmetic, self.threads, stop=self.stop)
        else:
            matched = eliminate_matched(tables, plan, self.arithmetic, self.threads, stop=self.stop)
            elimination, self.margin = matched.elimination, self.margin + matched.margin
        return [elimination.table(plan.output(b)) for b in range(plan.buckets)]


def _min_degree_order(tables: Sequence[EncodedTable], variables: Sequence[int]) -> list[int]:
    """Return a min-degree elimination order: the next variable always has the fewest neighbours; fill edges count."""
    open_variables, scopes, order = set(variables), [set(t.scope) for t in tables], list[int]()
    while open_variables:
        neighbours: dict[int, set[int]] = {v: set() for v in sorted(open_variables)}
        for scope in scopes:
            for v in scope & open_variables:
                neighbours[v] |= scope
        v = min(neighbours, key=lambda u: (len(neighbours[u]), u))
        order.append(v)
        open_variables.remove(v)
        scopes = [s for s in scopes if v not in s] + [neighbours[v] - {v}]
    return order


class OutsideBounds:
    """Upper bounds on what the tables outside each bucket's subtree can add to its message; computed on demand.

    Buckets are numbered in elimination order; all bounds are lists of encoded tables, to be summed.

    Parameters
    ----------
    query
        The query; all variables are eliminated.
    exact
        The plan of the same elimination with exact (undivided) buckets.
    relaxation
        The mini-bucket elimination that computes the downward messages.

    Attributes
    ----------
    parent : list of int
        The bucket that receives each bucket's message; ``ROOT`` if the message is a number.
    total : number
        Upper bound on the optimum of the whole problem (encoded).
    """

    def __init__(self, query: EliminationQuery, exact: EliminationPlan, relaxation: MiniBucketRelaxation) -> None:
        self.exact, self.relaxation = exact, relaxation
        position = {v: b for b, v in enumerate(query.order)}
        self.parent = [position[s[0]] if (s := self.separator(b)) else ROOT for b in range(exact.buckets)]
        self._children: dict[int, list[int]] = {}
        for b, parent in enumerate(self.parent):
            self._children.setdefault(parent, []).append(b)
        self._input_tables: list[list[EncodedTable]] = [[] for _ in self.parent]
        for table in query.tables:
            if table.scope:
                self._input_tables[min(position[v] for v in table.scope)].append(table)
        self._upward_messages: list[list[EncodedTable]] = [[] for _ in self.parent]
        self.total = self._pass_up(query, position)
        self._downward_messages: dict[int, list[EncodedTable]] = {}

    def _pass_up(self, query: EliminationQuery, position: dict[int, int]) -> int | float:
        """Run the mini-bucket elimination of the whole problem and return its upper bound on the optimum.

        Each message is stored at every bucket whose edge to its parent it crosses, from its sender up to its receiver.
        """
        relaxation = self.relaxation
        z = max(relaxation.z, least_z(query.scopes, query.order))
        plan = plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)
        matched = eliminate_matched(query.tables, plan, relaxation.arithmetic, relaxation.threads, stop=relaxation.stop)
        relaxation.margin += matched.margin
        for b in range(plan.buckets):
            table = matched.elimination.table(plan.output(b))
            bucket = position[int(plan.program.variable[b])]
            receiver = min((position[v] for v in table.scope), default=len(self.parent))
            while bucket != ROOT and bucket < receiver:
                self._upward_messages[bucket].append(table)
                bucket = self.parent[bucket]
        return matched.elimination.total()

    def separator(self, b: int) -> tuple[int, ...]:
        """Return the scope of a bucket's message."""
        return self.exact.scope(self.exact.output(b))

    def inside_bounds(self, b: int) -> tuple[EncodedTable, ...]:
        """Return tables over subsets of a bucket's separator whose sum bounds its message."""
        return tuple(self._upward_messages[b])

    def bounds_of(self, b: int) -> list[EncodedTable]:
        """Return tables over subsets of a bucket's separator whose sum bounds everything outside its subtree."""
        path = [b]
        while self.parent[path[-1]] != ROOT and path[-1] not in self._downward_messages:
            path.append(self.parent[path[-1]])
        for c in reversed(path):
            if c not in self._downward_messages:
                self._downward_messages[c] = self._bounds_from_parent(c)
        return self._downward_messages[b]

    def _bounds_from_parent(self, c: int) -> list[EncodedTable]:
        """Return the downward message to bucket c: tables that bound everything outside its subtree."""
        p = self.parent[c]
        tables = [table for sibling in self._children[p] if sibling != c for table in self._upward_messages[sibling]]
        if p != ROOT:
            tables += [*self._input_tables[p], *self._downward_messages[p]]
        eliminated = {v for table in tables for v in table.scope} - set(self.separator(c))
        return self.relaxation(tables, sorted(eliminated))


def with_wider_numbers(query: EliminationQuery) -> EliminationQuery:
    """Return the query in an arithmetic that can hold cost shifts."""
    old, new = query.arithmetic, with_headroom(query.arithmetic)
    if new.dtype == old.dtype:
        return query
    tables = []
    for scope, values in query.tables:
        entries = values.astype(new.dtype)
        entries[values < old.forbidden_below] = new.lowest
        tables.append(EncodedTable(scope, entries))
    return EliminationQuery(tables, query.domains, query.order, query.keep, new)


def read_back(query: EliminationQuery, inputs: Sequence[Sequence[BucketInput]]) -> NDArray[np.int64]:
    """Return the best values, last bucket first; ties go to the lowest value."""
    values: dict[int, int] = {}
    for b in reversed(range(len(query.order))):
        variable, best = query.order[b], None
        for x in range(int(query.domains[variable])):
            values[variable] = x
            utility = _utility(query, inputs[b], values)
            if utility is not None and (best is None or utility > best[0]):
                best = utility, x
        values[variable] = 0 if best is None else best[1]
    assignment = np.zeros(query.domains.size, dtype=np.int64)
    assignment[list(values)] = list(values.values())
    return assignment


def _utility(query: EliminationQuery, inputs: Sequence[BucketInput], values: Mapping[int, int]) -> Number | None:
    """Return the sum of a bucket's tables for an assignment; None for −∞."""
    total: Number = 0
    for bucket_input in inputs:
        if isinstance(bucket_input.table, SparseTable):
            entry = bucket_input.table.entry(values, query.domains)
        else:
            entry = bucket_input.table.values[tuple(values[v] for v in bucket_input.scope)].item()
        if entry is None or query.arithmetic.is_lowest(entry):
            return None
        total += entry
    return total


_ROUNDING_FACTOR = 8  # the rounding error of a sum of all tables, times this, is added to the cutoff's tolerance


class FilteringResult(NamedTuple):
    """The outcome of an elimination with function filtering.

    Attributes
    ----------
    utility : number or None
        The utility (encoded) of an assignment that is better than the incumbent; None if there is none.
    values : (variables,) int64 or None
        The values of all variables.
    """

    utility: Number | None
    values: NDArray[np.int64] | None


class FilteredMessage(NamedTuple):
    """The sizes of a finished message.

    Attributes
    ----------
    variable : int
        The eliminated variable.
    entries : float
        Number of entries of the dense table.
    rows : int
        Number of stored rows, or of entries if the message is dense.
    bytes : int
        Memory in bytes.
    is_sparse : bool
        Whether the message is stored as a sparse table.
    """

    variable: int
    entries: float
    rows: int
    bytes: int
    is_sparse: bool


class FunctionFiltering:
    """An elimination with function filtering that can be interrupted and resumed.

    Buckets are processed in elimination order. ``_next`` is the first bucket without a finished message. ``_builder``
    is None until that bucket's rows are begun, holds them across interruptions, and is None again when its message is
    passed to the parent.

    Parameters
    ----------
    query
        The query; all its variables are eliminated.
    incumbent
        The utility (encoded) to be exceeded; None accepts any assignment.
    z
        Largest number of variables of the mini-bucket messages from which the outside bounds are computed.
    memory
        Memory limit in bytes, for all messages together with the one that is being made.
    threads
        Number of CPU threads.
    stop
        The deadline.
    work
        Number of rows over all steps after which the elimination gives up; the default 2^62 means no limit.
    dense
        Joined cells up to which a bucket is eliminated with dense tables; larger buckets use the cheaper way by an
        estimate. 0: never dense. None: as many as take less time than the estimate.

    Attributes
    ----------
    bound : number
        Upper bound on the optimum by mini-buckets (encoded).
    messages : list of FilteredMessage
        The finished messages.
    row_device : RowDevice or None
        A GPU, for messages that are large enough.
    joined : set of int
        The buckets that were eliminated with dense tables.
    """

    def __init__(
        self,
        query: EliminationQuery,
        incumbent: Number | None,
        z: int,
        memory: int,
        threads: int = 1,
        stop: Deadline = NO_DEADLINE,
        work: int = 1 << 62,
        dense: int | None = None,
    ) -> None:
        self.query = query = with_wider_numbers(query)
        self.arithmetic: Arithmetic = query.arithmetic
        self.incumbent, self.memory, self.threads = incumbent, memory, threads
        self.dense = max_dense_cells() if dense is None else dense
        self.exact = plan_elimination(query.scopes, query.domains, query.order)
        self.relaxation = MiniBucketRelaxation(query.domains, query.arithmetic, z, threads, stop)
        self.outside = OutsideBounds(query, self.exact, self.relaxation)
        self.bound = self.outside.total
        self.messages: list[FilteredMessage] = []
        self.joined: set[int] = set()
        self._row_limits = RowLimits(0, work)
        self._inputs: list[list[BucketInput]] = [[] for _ in query.order]
        self._total: Number = 0
        self._next, self._builder = 0, None
        position = {v: b for b, v in enumerate(query.order)}
        for table in query.tables:
            if table.scope:
                self._inputs[min(position[v] for v in table.scope)].append(
                    BucketInput.of(table, query.domains, query.arithmetic)
                )
            else:
                self._total = max(self._total + table.values.item(), query.arithmetic.lowest)

    _builder: RowBuilder | None
    row_device: RowDevice | None = None

    @property
    def message_bytes(self) -> int:
        """Memory of the messages in bytes."""
        return sum(message.bytes for message in self.messages)

    @property
    def size_statistics(self) -> SizeStatistics:
        """Sizes of the messages so far."""
        messages = self.messages
        n_sparse = sum(m.is_sparse for m in messages)
        return SizeStatistics(
            len(messages), n_sparse, sum(m.entries for m in messages), sum(m.rows for m in messages), self.message_bytes
        )

    @property
    def message_progress(self) -> tuple[float, float]:
        """The finished fraction of the current message, and the seconds spent on it."""
        return (1.0, 0.0) if self._builder is None else (self._builder.fraction_done, self._builder.seconds)

    def resume(self, stop: Deadline = NO_DEADLINE) -> FilteringResult:
        """Make the missing messages and return an assignment that beats the incumbent, if there is one.

        Raises
        ------
        OutOfTime
            If the deadline passes; finished work is retained.
        TooManyRows
            If a message does not fit the memory, or the rows exceed their limit.
        KeyTooWide
            If a message has more variables than a packed key can hold.
        """
        self.relaxation.stop = stop
        while self._next < len(self.query.order):
            stop.check()
            message = self.message(self._next, stop)
            if isinstance(message, SparseTable) and not message.rows:
                return FilteringResult(None, None)
            self._pass_to_parent(self._next, message)
            self._next, self._builder = self._next + 1, None
        utility = self._total
        if self.arithmetic.is_lowest(utility) or (self.incumbent is not None and utility <= self.incumbent):
            return FilteringResult(None, None)
        return FilteringResult(utility, read_back(self.query, self._inputs))

    def message(self, b: int, stop: Deadline = NO_DEADLINE) -> EncodedTable | SparseTable:
        """Make the message of bucket ``b`` from its inputs, with dense tables if they fit and cost less.

        A dense elimination counts towards the limit on rows with the number of row candidates that would take as long.
        """
        size = int(self.query.domains[self.query.order[b]])
        cells = size_of(self.outside.separator(b), self.query.domains) * size
        fits = self.dense > 0 and self._fits_dense(b)
        if fits and cells <= self.dense:
            return self._dense(b, stop)
        if self._builder is None:
            cost = BucketCost(cells, size)
            # a sample of rows would take as long, unless no entry of the join is expected to be allowed
            if fits and cost.is_short and cells * _fill(self._inputs[b], self.query) >= 1:
                return self._dense(b, stop, int(cost.candidates))
            scope, steps = steps_of(self._bucket(b, self.outside.bounds_of(b)), self.relaxation)
            self._row_limits.message_rows = _max_rows(self.memory - self.message_bytes, self.arithmetic)
            self._builder = RowBuilder(scope, steps, size, self.arithmetic, self._threshold(), self._row_limits)
            if fits and _expects_more(self._builder, cost.candidates_after_start, stop):
                self._builder = None
                return self._dense(b, stop, int(cost.candidates))
        return self._builder.resume(self.threads, stop, self.row_device)

    def _fits_dense(self, b: int) -> bool:
        """Return whether a bucket's tables fit the memory as dense tables.

        Each input counts twice (it may need a dense copy), the message three times (result, copy, filtered table).
        """
        inputs = sum(size_of(bucket_input.scope, self.query.domains) for bucket_input in self._inputs[b])
        message = size_of(self.outside.separator(b), self.query.domains)
        return (2 * inputs + 3 * message) * self.arithmetic.dtype.itemsize <= self.memory - self.message_bytes

    def _threshold(self) -> Number:
        """Return the number that the bound of a row must exceed.

        It is the incumbent less a slack for rounding: ``_ROUNDING_FACTOR`` · (rounding error of a sum of all tables)
        + (rounding error of the bounds); the slack is 0 for integers. Without an incumbent, every allowed row passes.
        """
        if self.incumbent is None:
            return self.arithmetic.forbidden_below
        slack = _ROUNDING_FACTOR * self.arithmetic.rounding(len(self.query.tables) + 1) + self.relaxation.margin
        return self.incumbent - slack if slack else self.incumbent

    def _bucket(self, b: int, outside: Sequence[EncodedTable] = ()) -> Bucket:
        """Return bucket ``b`` with its inputs so far and its outside bounds."""
        variable, separator = self.query.order[b], self.outside.separator(b)
        return Bucket(variable, separator, self._inputs[b], outside, self.query.domains, self.arithmetic)

    def _dense(self, b: int, stop: Deadline, candidates: int = 0) -> EncodedTable | SparseTable:
        """Eliminate a bucket with dense tables, which counts as some row candidates; drop entries that cannot win."""
        if candidates:
            self._row_limits.count(0, candidates)
        message = dense_message(self._bucket(b), self.threads, stop)
        self.joined.add(b)
        if not message.scope:
            return message
        bounds = self.outside.bounds_of(b)
        drop_dominated(message, bounds, self._threshold(), self.arithmetic, self.threads, stop)
        n_allowed = int(np.count_nonzero(message.values > self.arithmetic.lowest))
        if n_allowed and is_nearly_full(n_allowed, message.values.size, message.values.dtype.itemsize):
            return message
        return SparseTable.of(message, self.query.domains, self.arithmetic)

    def _pass_to_parent(self, b: int, message: EncodedTable | SparseTable) -> None:
        """Pass a message to its parent bucket; a nearly full one as a dense table."""
        domains, size = self.query.domains, self.arithmetic.dtype.itemsize
        entries = size_of(message.scope, domains)
        rows = message.rows if isinstance(message, SparseTable) else int(entries)
        if isinstance(message, SparseTable) and (entries <= 1 or is_nearly_full(rows, entries, size)):
            message = message.dense(domains, self.arithmetic)
        memory = message.bytes if isinstance(message, SparseTable) else int(entries) * size
        self.messages.append(
            FilteredMessage(self.query.order[b], entries, rows, memory, isinstance(message, SparseTable))
        )
        if self.outside.parent[b] == ROOT:
            assert isinstance(message, EncodedTable)
            self._total = max(self._total + message.values.item(), self.arithmetic.lowest)
            return
        bounds = self.outside.inside_bounds(b) if isinstance(message, SparseTable) else ()
        self._inputs[self.outside.parent[b]].append(BucketInput(message, bounds))


def _max_rows(free_bytes: int, arithmetic: Arithmetic) -> int:
    """Return the largest number of rows of a message: blocks, the message, and a copy in another order must fit."""
    if free_bytes <= 0:
        raise TooManyRows("the messages of an elimination do not fit the memory")
    return free_bytes // (3 * (8 + arithmetic.dtype.itemsize))


def _expects_more(builder: RowBuilder, rows: float, stop: Deadline) -> bool:
    """Return whether the steps of a bucket are expected to check more candidates than ``rows``."""
    try:
        return builder.estimate_candidates(rows, stop) > rows
    except TooManyRows:
        return True


def _fill(inputs: Sequence[BucketInput], query: EliminationQuery) -> float:
    """Return the expected fraction of a bucket's joined entries that is allowed, if its tables are independent."""
    fill = 1.0
    for table in (bucket_input.table for bucket_input in inputs):
        if isinstance(table, SparseTable):
            fill *= table.rows / max(1.0, size_of(table.scope, query.domains))
        else:
            fill *= np.count_nonzero(table.values >= query.arithmetic.forbidden_below) / table.values.size
    return fill


def z_within(query: EliminationQuery, cells: int) -> int:
    """Return the largest z whose mini-buckets have at most about ``cells`` entries; the smallest z if none has."""
    return plan_within(query.scopes, query.domains, query.order, (), cells, shifts=True)[0]


def filtering_kernels(arithmetic: Arithmetic) -> KernelSet:
    """Return the kernels of filtering for an arithmetic."""
    return KernelSet(f"filtering {with_headroom(arithmetic).dtype}", partial(compile_filtering, arithmetic))


def compile_filtering(arithmetic: Arithmetic) -> None:
    """Compile the code of filtering for an arithmetic, by examples with joins and with dense and sparse messages."""
    scopes = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    equality = np.where(np.eye(3, dtype=np.bool_), 1, arithmetic.lowest).astype(arithmetic.dtype)
    tables = [EncodedTable(scope, equality if scope[0] < 2 else np.zeros_like(equality)) for scope in scopes]
    query = EliminationQuery(tables, np.full(5, 3), range(5), (), arithmetic)
    for dense in (0, None):
        FunctionFiltering(query, None, 1, 1 << 20, 1, Deadline(float("inf")), dense=dense).resume(
            Deadline(float("inf"))
        )
