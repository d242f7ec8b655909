"""Content-based mini-buckets: join the tables whose separation would cost most.

The greedy scheme of Rollon and Dechter ("New mini-bucket partitioning heuristics for bounding the probability of
evidence", AAAI 2010): start with every table by itself and merge, as long as z allows, the two mini-buckets whose
merging tightens the bound most. The gain of a merge, the mean over separator assignments of

    max_x g_i + max_x g_j − max_x (g_i + g_j)  ≥  0,

is taken over a fixed sample of assignments, the same for all pairs: the tables are read once, a pair costs a few
hundred additions. It depends on the messages, so planning and elimination go hand in hand, one variable at a time, and
on the CPU: every message would have to come back from a GPU before the next variable's partition.
"""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import rank_of
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.minibuckets.moment_matching import Matched, eliminate_matched, room_of
from dmcmc.inference.minibuckets.plan import Partition, assemble, check_z
from dmcmc.inference.minibuckets.plan_kernels import greedy_merges
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints

_SAMPLES = 128


def eliminate_by_content(
    query: Query,
    z: int,
    moment_matching: bool = True,
    threads: int = 1,
    entries: int | None = None,
    room: int | float | None = None,
    stop: Stop = NO_STOP,
) -> Matched:
    """Answer a query with content-based mini-buckets.

    Parameters
    ----------
    z
        The most variables a message has.
    entries
        Table entries in all beyond which nothing is merged any more. At the end there are two copies of them.
    room
        As in :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    stop
        When to give up.

    Raises
    ------
    ResourceError
        If a table by itself needs a larger z; :class:`OutOfTime` when it is time to stop.
    """
    check_z(z, query.scopes, query.order)
    work = _Work(query, threads, stop)
    limit = room_of(query.arithmetic) if room is None else room
    for v in query.order:
        stop.check()
        bucket = work.bucket(v)
        groups = work.partition(bucket, v, z, entries)
        if moment_matching and len(groups) > 1:
            outside = work.live - sum(work.bounds[t] for t in bucket)
            work.matched(groups, v, limit - outside)
        else:
            work.plain(groups, v)
    return work.finish(moment_matching)


class _Work:
    """Tables made so far, and which mini-buckets made them."""

    def __init__(self, query: Query, threads: int, stop: Stop) -> None:
        self.domains, self.arithmetic = domains, arithmetic = query.domains, query.arithmetic
        self.threads, self.stop = threads, stop
        self.order, self.rank = list(query.order), rank_of(domains, query.order, query.keep)
        self.tables: list[Table] = []
        self.bounds: list[int | float] = []
        self.homes: dict[int, list[int]] = {v: [] for v in query.order}
        self.remaining: list[int] = []
        self.groups: list[list[int]] = []
        self.variable: list[int] = []
        self.shifts: dict[int, Array] = {}
        self.entries = 0
        self.shift_count = self.skipped = 0
        for table in query.tables:
            stop.check()
            axes = sorted(range(len(table.scope)), key=lambda axis: self.rank[table.scope[axis]])
            scope = tuple(table.scope[axis] for axis in axes)
            values = np.ascontiguousarray(table.values.transpose(axes)).reshape([int(domains[v]) for v in scope])
            finite = values[values > arithmetic.threshold] if arithmetic.exact else values[np.isfinite(values)]
            self.add(Table(scope, values), np.abs(finite).max(initial=0).item())
        self.given = len(self.tables)
        self.live: int | float = sum(self.bounds)
        self.most = self.live

    def add(self, table: Table, bound: int | float) -> None:
        """Take in a table: an input or a message."""
        home = table.scope[0] if table.scope else -1
        self.homes.get(home, self.remaining).append(len(self.tables))
        self.tables.append(table)
        self.bounds.append(bound)
        self.entries += table.values.size

    def bucket(self, v: int) -> list[int]:
        """Return the tables that have ``v`` first."""
        return self.homes[v]

    def partition(self, bucket: Sequence[int], v: int, z: int, entries: int | None) -> list[list[int]]:
        """Return the mini-buckets of a variable, the largest table's first."""
        others = sorted({u for t in bucket for u in self.tables[t].scope[1:]}, key=lambda u: self.rank[u])
        if not others or (len(others) <= z and self._fits(others, entries)):
            return [list(bucket)]
        place = {u: i for i, u in enumerate(others)}
        rng = np.random.Generator(np.random.Philox(len(self.groups)))
        sample = np.stack([rng.integers(0, int(self.domains[u]), _SAMPLES) for u in others])
        ranked = sorted(bucket, key=lambda t: -len(self.tables[t].scope))
        scopes = np.zeros((len(ranked), len(others)), dtype=np.bool_)
        sums = np.empty((len(ranked), _SAMPLES, int(self.domains[v])), dtype=np.float64)
        for i, t in enumerate(ranked):
            scope, values = self.tables[t]
            own = [place[u] for u in scope[1:]]
            scopes[i, own] = True
            seen = values[(slice(None), *(sample[j] for j in own))].T if own else values[None, :]
            sums[i] = np.where(seen > self.arithmetic.threshold, seen, -np.inf)
        weight = 2.0 * float(max(1, sum(self.bounds[t] for t in bucket)))  # of a forbidden assignment that is noticed
        left = np.inf if entries is None else float(entries - self.entries)
        sizes = self.domains[others].astype(np.float64)
        home = greedy_merges(sums, scopes, sizes, z, weight, left)
        return [[ranked[i] for i in np.flatnonzero(home == g)] for g in np.unique(home)]

    def _fits(self, others: Sequence[int], entries: int | None) -> bool:
        if entries is None:
            return True
        return self.entries + float(np.prod(self.domains[list(others)].astype(np.float64))) <= entries

    def plain(self, groups: Sequence[Sequence[int]], v: int) -> None:
        """Eliminate a variable's mini-buckets."""
        for group in groups:
            scopes = [self.tables[t].scope for t in group]
            plan = assemble(_one_variable(scopes, [list(range(len(group)))], v, self.rank), self.domains, self.rank)
            done = eliminate([self.tables[t] for t in group], plan, self.arithmetic, self.threads, stop=self.stop)
            self._take(group, v, done, plan.output(0), sum(self.bounds[t] for t in group))

    def matched(self, groups: Sequence[Sequence[int]], v: int, room: int | float) -> None:
        """Match a variable's mini-buckets and eliminate them."""
        flat = [t for group in groups for t in group]
        numbers = iter(range(len(flat)))
        inner = [[next(numbers) for _ in group] for group in groups]
        scopes = [self.tables[t].scope for t in flat]
        plan = assemble(_one_variable(scopes, inner, v, self.rank), self.domains, self.rank, shifts=True)
        outside = self.live - sum(self.bounds[t] for t in flat)
        inputs = [self.tables[t] for t in flat]
        done = eliminate_matched(inputs, plan, self.arithmetic, self.threads, room, self.stop)
        self.most = max(self.most, outside + done.live)
        self.shift_count += done.shifts
        self.skipped += done.skipped
        for g, group in enumerate(groups):
            self.shifts[len(self.groups)] = done.elimination.table(len(flat) + g).values.copy()
            self._take(group, v, done.elimination, plan.output(g), done.bounds[plan.output(g)].item())

    def _take(self, group: Sequence[int], v: int, done: Elimination, message: int, bound: int | float) -> None:
        """Put a finished mini-bucket's message with the other tables."""
        self.groups.append(list(group))
        self.variable.append(v)
        self.live += bound - sum(self.bounds[t] for t in group)
        self.most = max(self.most, self.live)
        scope, values = done.table(message)
        self.add(Table(scope, values.copy()), bound)  # the arena that it is in can go

    def finish(self, moment_matching: bool) -> Matched:
        """Lay everything out as one plan and one arena."""
        scopes = [t.scope for t in self.tables]
        parts = Partition(
            np.cumsum([0, *(len(s) for s in scopes)]),
            np.array([v for s in scopes for v in s], dtype=np.int64),
            np.array(self.variable, dtype=np.int64),
            np.cumsum([0, *(len(g) for g in self.groups)]),
            np.array([t for g in self.groups for t in g], dtype=np.int64),
            np.array(self.remaining, dtype=np.int64),
        )
        plan = assemble(parts, self.domains, self.rank, moment_matching)
        extra = [self.shifts[g] for g in sorted(self.shifts)]
        messages = [t.values for t in self.tables[self.given :]]
        pieces = [*(t.values for t in self.tables[: self.given]), *extra, *messages]
        size = sum(p.size for p in pieces)
        ACCOUNT.claim(size * self.arithmetic.dtype.itemsize, "mini-buckets, put together")
        arena = np.empty(max(1, size), dtype=self.arithmetic.dtype)
        at = 0
        for piece in pieces:
            self.stop.check()
            arena[at : at + piece.size] = piece.reshape(-1)
            at += piece.size
        done = Elimination(plan, arena, self.arithmetic)
        number = np.int64 if self.arithmetic.exact else np.float64
        bounds = np.array([*self.bounds[: self.given], *[0] * len(extra), *self.bounds[self.given :]], dtype=number)
        margin = 0.0
        if not self.arithmetic.exact:
            margin = 4 * max(1, self.given + self.shift_count) * 2.0**-53 * float(self.most)
        return Matched(done, bounds, self.most, self.shift_count, self.skipped, margin)


def _one_variable(scopes: Sequence[tuple[int, ...]], groups: Sequence[Sequence[int]], v: int, rank: Ints) -> Partition:
    """Return the partition of one variable's bucket."""
    outputs = [sorted({u for t in g for u in scopes[t][1:]}, key=lambda u: rank[u]) for g in groups]
    everything = [*scopes, *outputs]
    return Partition(
        np.cumsum([0, *(len(s) for s in everything)]),
        np.array([u for s in everything for u in s], dtype=np.int64),
        np.full(len(groups), v, dtype=np.int64),
        np.cumsum([0, *(len(g) for g in groups)]),
        np.array([t for g in groups for t in g], dtype=np.int64),
        np.arange(len(scopes), len(everything)),
    )
