"""Elimination of all variables with function filtering: what cannot beat the incumbent is not made.

Sánchez, Larrosa and Meseguer, "Tree decomposition with function filtering" (CP 2005). A row of a message stays only if
its value and a bound on all that is outside of it exceed the incumbent. Where no row is left, or none better, the
incumbent is optimal: that is the proof. Else the best assignment is read back. Small messages are dense tables, as
elsewhere; the others are incomplete.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.minibuckets.choose_z import largest_fitting, most_z
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Number
from dmcmc.inference.sparse.bucket_rows import Elsewhere, Making, Room, TooMuch
from dmcmc.inference.sparse.join_steps import Bucket, Input, steps_of
from dmcmc.inference.sparse.outside_bounds import ROOT, Outside, Relaxing
from dmcmc.inference.sparse.size_statistics import DENSE, FULL, Kept
from dmcmc.inference.sparse.sparse_table import Incomplete, TooWide, size_of

_ROW, _VALUE = 200.0, 3.0  # a candidate for a row costs so many dense cells, and so many for each value of its vector
_ENTRY = 30.0  # likewise an entry of a dense message, which is compared with what can still win
_SOME = 16  # joined entries that are possible, from which on rows take as long as a small dense table
_START = 1.1e7  # likewise to carry rows on all cores at all: some milliseconds
_LARGE, _LITTLE = 1 << 16, 8  # inputs of so many entries, of which at most one in so many is possible, are listed
_PIECE = 1 << 16  # entries of a dense message that are compared at once
_SLACK = 8  # times the rounding of a sum of all tables: rows are dropped that are worse by more


class Answer(NamedTuple):
    """What is better than the incumbent: its utility (encoded) and all values; or None for both."""

    utility: Number | None
    values: NDArray[np.int64] | None


class Message(NamedTuple):
    """What became of a bucket: entries of the dense message, rows made of it, bytes that it takes, whether it lists."""

    variable: int
    entries: float
    rows: int
    bytes: int
    incomplete: bool


class Filtering:
    """An elimination with function filtering, which can be interrupted and taken up again.

    Parameters
    ----------
    query
        All of whose variables are eliminated.
    incumbent
        Utility (encoded) that has to be exceeded; None if anything would do.
    z
        Of the mini-buckets that bound the rest.
    memory
        Bytes of all messages, and of one that is being made.
    work
        Rows, in all steps, after which it is given up.
    dense
        Joined cells of a bucket up to which it is eliminated as dense tables; beyond, what is estimated to cost less.
        0: never.

    Attributes
    ----------
    bound : number
        On the whole, by mini-buckets (encoded).
    messages : list of Message
        Those that were made.
    elsewhere : Elsewhere or None
        A GPU, for messages that are worth it.
    joined : set of int
        The buckets that were joined as dense tables.
    """

    def __init__(
        self,
        query: Query,
        incumbent: Number | None,
        z: int,
        memory: int,
        threads: int = 1,
        stop: Stop = NO_STOP,
        work: int = 1 << 62,
        dense: int = DENSE,
    ) -> None:
        self.query = query = with_room(query)
        self.arithmetic: Arithmetic = query.arithmetic
        self.incumbent, self.memory, self.threads, self.dense = incumbent, memory, threads, dense
        self.exact = plan_elimination(query.scopes, query.domains, query.order)
        self.relaxing = Relaxing(query.domains, query.arithmetic, z, threads, stop)
        self.outside = Outside(query, self.exact, self.relaxing)
        self.bound = self.outside.total
        self.messages: list[Message] = []
        self.joined: set[int] = set()
        self._room = Room(0, work)
        self._inputs: list[list[Input]] = [[] for _ in query.order]
        self._total: Number = 0
        self._next, self._making = 0, None
        position = {v: b for b, v in enumerate(query.order)}
        for table in query.tables:
            if table.scope:
                self._inputs[min(position[v] for v in table.scope)].append(self._input(table))
            else:
                self._total = max(self._total + table.values.item(), query.arithmetic.lowest)

    _making: Making | None
    elsewhere: Elsewhere | None = None

    @property
    def held(self) -> int:
        """Bytes of the messages."""
        return sum(message.bytes for message in self.messages)

    @property
    def kept(self) -> Kept:
        """What the messages so far hold."""
        made = self.messages
        listed = sum(one.incomplete for one in made)
        return Kept(len(made), listed, sum(m.entries for m in made), sum(m.rows for m in made), self.held)

    @property
    def under_way(self) -> tuple[float, float]:
        """Return how much of the message that is being made is done, and the seconds that it has taken."""
        return (1.0, 0.0) if self._making is None else (self._making.part, self._making.seconds)

    def go_on(self, stop: Stop = NO_STOP) -> Answer:
        """Make the messages that are missing; return what beats the incumbent, if anything does.

        Raises
        ------
        OutOfTime
            What is done is kept.
        TooMuch
            If a message does not fit the memory, or the work is more than is allowed.
        TooWide
            If a message has more variables than a packed key has room for.
        """
        self.relaxing.stop = stop
        while self._next < len(self.query.order):
            stop.check()
            message = self.message(self._next, stop)
            if isinstance(message, Incomplete) and not message.rows:
                return Answer(None, None)
            self._send(self._next, message)
            self._next, self._making = self._next + 1, None
        worth = self._total
        if self.arithmetic.is_lowest(worth) or (self.incumbent is not None and worth <= self.incumbent):
            return Answer(None, None)
        return Answer(worth, self._read_back())

    def message(self, b: int, stop: Stop = NO_STOP) -> Table | Incomplete:
        """Make a bucket's message, whose inputs are there: from dense tables where that fits and costs less."""
        variable, separator, inputs = self.query.order[b], self.outside.separator(b), self._inputs[b]
        size = int(self.query.domains[variable])
        cells = size_of(separator, self.query.domains) * size
        fits = self.dense > 0 and self._fits_dense(b)
        if fits and cells <= self.dense:
            return self._dense(b, stop)
        if self._making is None:
            bucket = Bucket(variable, separator, inputs, self.outside.of(b), self.query.domains, self.arithmetic)
            work = cells * (1 + _ENTRY / size)  # of dense tables
            if fits and work <= _START and cells * self._fill(b) >= _SOME:  # a sample of rows takes as long
                self._room.take(0, int(work / (_ROW + _VALUE * size)))
                return self._dense(b, stop)
            scope, steps = steps_of(bucket, self.relaxing)
            self._room.rows = self._room_for_rows()
            self._making = Making(scope, steps, size, self.arithmetic, self._threshold(), self._room)
            if fits and self._expected(max(0.0, work - _START) / (_ROW + _VALUE * size), stop):
                self._making = None
                self._room.take(0, int(work / (_ROW + _VALUE * size)))
                return self._dense(b, stop)
        return self._making.go_on(self.threads, stop, self.elsewhere)

    def _input(self, table: Table) -> Input:
        """Return a table as an input: listed where it is large, and little of it possible; bounded by itself then."""
        if table.values.size >= _LARGE:
            possible = int(np.count_nonzero(table.values > self.arithmetic.threshold))
            if possible * _LITTLE <= table.values.size:
                with suppress(TooWide):
                    return Input(Incomplete.of(table, self.query.domains, self.arithmetic), (table,))
        return Input(table)

    def _expected(self, rows: float, stop: Stop) -> bool:
        """Return whether the steps of the bucket that is begun are expected to judge more candidates than so many."""
        assert self._making is not None
        try:
            return self._making.expected(rows, stop) > rows
        except TooMuch:
            return True

    def _fill(self, b: int) -> float:
        """Return the part of a bucket's joined entries that is possible, if its tables' possible ones are unrelated."""
        fill = 1.0
        for table in (one.table for one in self._inputs[b]):
            if isinstance(table, Incomplete):
                fill *= table.rows / max(1.0, size_of(table.scope, self.query.domains))
            else:
                fill *= np.count_nonzero(table.values >= self.arithmetic.threshold) / table.values.size
        return fill

    def _fits_dense(self, b: int) -> bool:
        """Return whether a bucket's tables have room as dense ones."""
        inputs = sum(size_of(one.scope, self.query.domains) for one in self._inputs[b])
        message = size_of(self.outside.separator(b), self.query.domains)
        return (2 * inputs + 3 * message) * self.arithmetic.dtype.itemsize <= self.memory - self.held

    def _room_for_rows(self) -> int:
        """Return the rows that a message may have: blocks, the message of them, and a copy in another order."""
        left = self.memory - self.held
        if left <= 0:
            raise TooMuch("the messages of an elimination do not fit the memory")
        return left // (3 * (8 + self.arithmetic.dtype.itemsize))

    def _threshold(self) -> Number:
        """Return what a row, and what bounds the rest, have to exceed."""
        if self.incumbent is None:
            return self.arithmetic.threshold
        slack = _SLACK * self.arithmetic.rounding(len(self.query.tables) + 1) + self.relaxing.margin
        return self.incumbent - slack if slack else self.incumbent

    def _dense(self, b: int, stop: Stop) -> Table | Incomplete:
        """Eliminate a bucket as dense tables; drop what cannot win."""
        variable, separator = self.query.order[b], self.outside.separator(b)
        tables = [one.table for one in self._inputs[b]]
        dense = [t if isinstance(t, Table) else t.dense(self.query.domains, self.arithmetic) for t in tables]
        plan = plan_elimination([t.scope for t in dense], self.query.domains, [variable], separator)
        made = eliminate(dense, plan, self.arithmetic, self.threads, stop=stop).table(plan.output(0))
        message = Table(made.scope, made.values.copy())
        self.joined.add(b)
        if not separator:
            return message
        self._drop_hopeless(message, [_spread(table, message.scope) for table in self.outside.of(b)], stop)
        left = int(np.count_nonzero(message.values > self.arithmetic.lowest))
        if left and left * FULL >= message.values.size:
            return message
        return Incomplete.of(message, self.query.domains, self.arithmetic)

    def _drop_hopeless(self, message: Table, bounds: Sequence[Array], stop: Stop) -> None:
        """Let entries be −∞ that cannot win with what bounds the rest, in pieces that stay in a core's cache."""
        number = np.int64 if self.arithmetic.exact else np.float64
        lowest, threshold, values = number(self.arithmetic.lowest), self._threshold(), message.values
        axes, piece = 0, values.size
        while piece > _PIECE and axes < values.ndim:
            piece //= values.shape[axes]
            axes += 1

        def judge(places: Sequence[tuple[int, ...]]) -> None:
            for place in places:
                part = values[place]
                bound = part.astype(number)
                for table in bounds:
                    bound += table[tuple(i if n > 1 else 0 for i, n in zip(place, table.shape, strict=False))]
                    np.maximum(bound, lowest, out=bound)
                hopeless = bound <= threshold
                hopeless |= part < self.arithmetic.threshold
                part[hopeless] = self.arithmetic.lowest

        places = list(np.ndindex(values.shape[:axes]))
        some = -(-len(places) // (4 * self.threads))
        tasks = [partial(judge, places[i : i + some]) for i in range(0, len(places), some)]
        if not run_parallel(tasks, self.threads if axes else 1, stop):
            stop.check()

    def _send(self, b: int, message: Table | Incomplete) -> None:
        """Give a message to the bucket above; dense where it is nearly full."""
        domains, size = self.query.domains, self.arithmetic.dtype.itemsize
        entries = size_of(message.scope, domains)
        rows = message.rows if isinstance(message, Incomplete) else int(entries)
        if isinstance(message, Incomplete) and entries <= max(1, FULL * rows):
            message = message.dense(domains, self.arithmetic)
        taken = message.bytes if isinstance(message, Incomplete) else int(entries) * size
        self.messages.append(Message(self.query.order[b], entries, rows, taken, isinstance(message, Incomplete)))
        if self.outside.parent[b] == ROOT:
            assert isinstance(message, Table)
            self._total = max(self._total + message.values.item(), self.arithmetic.lowest)
            return
        bounds = self.outside.inside(b) if isinstance(message, Incomplete) else ()
        self._inputs[self.outside.parent[b]].append(Input(message, bounds))

    def _read_back(self) -> NDArray[np.int64]:
        """Return the best values, last bucket first; ties go to the lowest value."""
        values: dict[int, int] = {}
        for b in reversed(range(len(self.query.order))):
            variable, best = self.query.order[b], None
            for x in range(int(self.query.domains[variable])):
                values[variable] = x
                worth = self._worth(self._inputs[b], values)
                if worth is not None and (best is None or worth > best[0]):
                    best = worth, x
            values[variable] = 0 if best is None else best[1]
        found = np.zeros(self.query.domains.size, dtype=np.int64)
        found[list(values)] = list(values.values())
        return found

    def _worth(self, inputs: Sequence[Input], values: Mapping[int, int]) -> Number | None:
        """Return what a bucket's tables add up to; None for −∞."""
        total: Number = 0
        for one in inputs:
            if isinstance(one.table, Incomplete):
                entry = one.table.entry(values, self.query.domains)
            else:
                entry = one.table.values[tuple(values[v] for v in one.scope)].item()
            if entry is None or self.arithmetic.is_lowest(entry):
                return None
            total += entry
        return total


def _spread(table: Table, scope: Sequence[int]) -> Array:
    """Return a table's entries with an axis for each variable of a scope that holds its own."""
    axes = sorted(range(len(table.scope)), key=lambda axis: scope.index(table.scope[axis]))
    shape = [table.values.shape[table.scope.index(v)] if v in table.scope else 1 for v in scope]
    return table.values.transpose(axes).reshape(shape)


def with_room(query: Query) -> Query:
    """Return a query in numbers that have room for shifts."""
    old, new = query.arithmetic, with_headroom(query.arithmetic)
    if new.dtype == old.dtype:
        return query
    tables = []
    for scope, values in query.tables:
        entries = values.astype(new.dtype)
        entries[values < old.threshold] = new.lowest
        tables.append(Table(scope, entries))
    return Query(tables, query.domains, query.order, query.keep, new)


def z_within(query: Query, cells: int) -> int:
    """Return the largest z whose mini-buckets have at most about so many entries; the least z if none has."""
    least = least_z(query.scopes, query.order)
    most = most_z(query.domains, query.order, cells)

    def plan_of(z: int) -> Plan:
        return plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)

    return largest_fitting(most, least, cells, plan_of)[0]


def compile_filtering(arithmetic: Arithmetic) -> None:
    """Compile what filtering uses in these numbers: messages are joined, become dense, and are listed again."""
    scopes = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    same = np.where(np.eye(3, dtype=np.bool_), 1.0, -np.inf)
    tables = [arithmetic.encode(Factor.of(scope, same if scope[0] < 2 else np.zeros((3, 3)))) for scope in scopes]
    query = Query(tables, np.full(5, 3), range(5), (), arithmetic)
    for dense in (0, DENSE):
        Filtering(query, None, 1, 1 << 20, 1, Stop(float("inf")), dense=dense).go_on(Stop(float("inf")))
