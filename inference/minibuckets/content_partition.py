"""Content-based mini-buckets: merge the tables whose separation would loosen the bound most.

This is the greedy scheme of Rollon and Dechter ("New mini-bucket partitioning heuristics for bounding the probability
of evidence", AAAI 2010). It starts with one mini-bucket per table of the variable x to be eliminated. As long as a
merged message has at most z variables, it merges the two mini-buckets whose merging tightens the bound most. With g_i
the sum of the tables of mini-bucket i, the gain of a merge is the mean over separator assignments of

    max_x g_i + max_x g_j − max_x (g_i + g_j)  ≥  0.

It is estimated over a fixed sample of assignments, the same for all pairs. The tables are read once, and a pair costs a
few hundred additions. The partition of a variable depends on the messages of earlier ones, so planning and elimination
alternate, one variable at a time. This runs on the CPU, because every message would have to be copied back from a GPU
before the next variable is partitioned.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import EliminationQuery, rank_of
from dmcmc.inference.minibuckets.moment_matching import MatchedElimination, eliminate_matched, magnitude_limit_of
from dmcmc.inference.minibuckets.plan import Partition, assemble, check_z
from dmcmc.inference.minibuckets.plan_kernels import greedy_merges
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.tuning import SAMPLE_SIZE


def eliminate_by_content(
    query: EliminationQuery,
    z: int,
    moment_matching: bool = True,
    threads: int = 1,
    entries: int | None = None,
    magnitude_limit: int | float | None = None,
    stop: Deadline = NO_DEADLINE,
) -> MatchedElimination | None:
    """Answer a query with content-based mini-buckets; return None if their tables have too many entries.

    Parameters
    ----------
    query
        The query.
    z
        Largest number of variables of a message.
    moment_matching
        Whether the mini-buckets of a variable are matched before they are eliminated.
    threads
        Number of CPU threads.
    entries
        Number of table entries beyond which nothing is merged any more. Tables that are never merged may still have
        more; then there is no result. At the end there are two copies of the tables.
    magnitude_limit
        As in :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    stop
        The deadline.

    Returns
    -------
    MatchedElimination or None

    Raises
    ------
    ResourceError
        If a single table needs a larger z. :class:`OutOfTime` if the deadline passes.
    """
    check_z(z, query.scopes, query.order)
    state = _ContentElimination(query, threads, stop)
    total_limit = magnitude_limit_of(query.arithmetic) if magnitude_limit is None else magnitude_limit
    for v in query.order:
        stop.check()
        groups = state.partition(state.buckets[v], v, z, entries)
        state.eliminate(groups, v, total_limit if moment_matching and len(groups) > 1 else None)
        if entries is not None and state.entries > entries:
            return None
    return state.finish(moment_matching)


class _ContentElimination:
    """The tables made so far, and the mini-buckets that made them.

    Variables are processed in the elimination order: ``partition``, then ``eliminate``;
    ``finish`` at the end. The magnitude of a table is its largest finite |entry|. A cost
    shift is a table over the eliminated variable that is added to a mini-bucket; the shifts of a variable add up to
    zero.

    Attributes
    ----------
    tables : list of EncodedTable
        The inputs, then one message per mini-bucket; axes follow the elimination order.
    magnitudes : list
        Largest finite |entry| of each table.
    buckets : dict of int to list of int
        The tables that wait for each variable's elimination.
    remaining : list of int
        Tables over kept variables.
    groups : list of list of int
        The tables of each mini-bucket that was eliminated.
    variable : list of int
        The variable of each mini-bucket.
    shifts : dict of int to array
        The cost shift of each matched mini-bucket, (x_size,), by its index in ``groups``.
    entries : int
        Entries of all tables.
    total_magnitude, peak_magnitude
        Sum of the magnitudes of all tables that are not joined yet, and its largest value so far.
    shift_count, skipped : int
        Number of cost shifts that were made, and that were omitted because the numbers could not hold them.
    """

    def __init__(self, query: EliminationQuery, threads: int, stop: Deadline) -> None:
        self.domains, self.arithmetic = domains, arithmetic = query.domains, query.arithmetic
        self.threads, self.stop = threads, stop
        self.order, self.rank = list(query.order), rank_of(domains, query.order, query.keep)
        self.tables: list[EncodedTable] = []
        self.magnitudes: list[int | float] = []
        self.buckets: dict[int, list[int]] = {v: [] for v in query.order}
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
            finite = values[values > arithmetic.forbidden_below] if arithmetic.exact else values[np.isfinite(values)]
            self.add(EncodedTable(scope, values), np.abs(finite).max(initial=0).item())
        self.n_inputs = len(self.tables)
        self.total_magnitude: int | float = sum(self.magnitudes)
        self.peak_magnitude = self.total_magnitude

    def add(self, table: EncodedTable, magnitude: int | float) -> None:
        """Add a table, an input or a message, to its bucket."""
        first_variable = table.scope[0] if table.scope else -1
        self.buckets.get(first_variable, self.remaining).append(len(self.tables))
        self.tables.append(table)
        self.magnitudes.append(magnitude)
        self.entries += table.values.size

    def partition(self, bucket: Sequence[int], v: int, z: int, entries: int | None) -> list[list[int]]:
        """Return the mini-buckets of a variable, in the order of their largest table.

        Parameters
        ----------
        bucket : sequence of int
            The tables with the variable.
        v : int
            The variable.
        z : int
            Largest number of variables of a message.
        entries : int or None
            Number of table entries beyond which nothing is merged any more.
        """
        separator = sorted({u for t in bucket for u in self.tables[t].scope[1:]}, key=lambda u: self.rank[u])
        if not separator or (len(separator) <= z and self._fits(separator, entries)):
            return [list(bucket)]
        axis_of = {u: i for i, u in enumerate(separator)}
        rng = np.random.Generator(np.random.Philox(len(self.groups)))
        sample = np.stack([rng.integers(0, int(self.domains[u]), SAMPLE_SIZE) for u in separator])
        ranked = sorted(bucket, key=lambda t: -len(self.tables[t].scope))
        scopes = np.zeros((len(ranked), len(separator)), dtype=np.bool_)
        sums = np.empty((len(ranked), SAMPLE_SIZE, int(self.domains[v])), dtype=np.float64)
        for i, t in enumerate(ranked):
            scope, values = self.tables[t]
            axes = [axis_of[u] for u in scope[1:]]
            scopes[i, axes] = True
            sampled = values[(slice(None), *(sample[j] for j in axes))].T if axes else values[None, :]
            sums[i] = np.where(sampled > self.arithmetic.forbidden_below, sampled, -np.inf)
        # gain of a sampled assignment that only the merged tables show to be forbidden
        weight = 2.0 * float(max(1, sum(self.magnitudes[t] for t in bucket)))
        max_entries = np.inf if entries is None else float(entries - self.entries)
        sizes = self.domains[separator].astype(np.float64)
        group_of = greedy_merges(sums, scopes, sizes, z, weight, max_entries)
        return [[ranked[i] for i in np.flatnonzero(group_of == g)] for g in np.unique(group_of)]

    def _fits(self, variables: Sequence[int], entries: int | None) -> bool:
        """Return whether a message over these variables, with all tables so far, is within the limit of entries."""
        if entries is None:
            return True
        return self.entries + float(np.prod(self.domains[list(variables)].astype(np.float64))) <= entries

    def eliminate(self, groups: Sequence[Sequence[int]], v: int, magnitude_limit: int | float | None) -> None:
        """Eliminate a variable's mini-buckets; match them unless the limit on the sum of magnitudes is None."""
        flat, numbers = [t for group in groups for t in group], itertools.count()
        local_groups = [[next(numbers) for _ in group] for group in groups]
        inputs = [self.tables[t] for t in flat]
        parts = _one_variable([table.scope for table in inputs], local_groups, v, self.rank)
        plan = assemble(parts, self.domains, self.rank, shifts=magnitude_limit is not None)
        if magnitude_limit is None:
            done = eliminate(inputs, plan, self.arithmetic, self.threads, stop=self.stop)
            magnitudes = [sum(self.magnitudes[t] for t in group) for group in groups]
        else:
            others = self.total_magnitude - sum(self.magnitudes[t] for t in flat)
            limit = magnitude_limit - others
            matched = eliminate_matched(inputs, plan, self.arithmetic, self.threads, limit, self.stop)
            done, magnitudes = matched.elimination, matched.magnitudes[plan.tables - plan.buckets :].tolist()
            self.peak_magnitude = max(self.peak_magnitude, others + matched.peak_magnitude)
            self.shift_count += matched.shifts
            self.skipped += matched.skipped
        for g, (group, magnitude) in enumerate(zip(groups, magnitudes, strict=True)):
            if magnitude_limit is not None:
                self.shifts[len(self.groups)] = done.table(len(flat) + g).values.copy()
            self.groups.append(list(group))
            self.variable.append(v)
            self.total_magnitude += magnitude - sum(self.magnitudes[t] for t in group)
            self.peak_magnitude = max(self.peak_magnitude, self.total_magnitude)
            scope, values = done.table(plan.output(g))
            # a copy, so that the arena of this elimination can be freed
            self.add(EncodedTable(scope, values.copy()), magnitude)

    def finish(self, moment_matching: bool) -> MatchedElimination:
        """Combine all mini-buckets into one plan and one arena: inputs, cost shifts, messages.

        ``moment_matching`` says whether the plan has cost-shift tables.
        """
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
        shift_tables = [self.shifts[g] for g in sorted(self.shifts)]
        messages = [t.values for t in self.tables[self.n_inputs :]]
        pieces = [*(t.values for t in self.tables[: self.n_inputs]), *shift_tables, *messages]
        size = sum(p.size for p in pieces)
        MEMORY_ACCOUNT.claim(size * self.arithmetic.dtype.itemsize, "mini-buckets, put together")
        arena = np.empty(max(1, size), dtype=self.arithmetic.dtype)
        at = 0
        for piece in pieces:
            self.stop.check()
            arena[at : at + piece.size] = piece.reshape(-1)
            at += piece.size
        done = Elimination(plan, arena, self.arithmetic)
        number = np.int64 if self.arithmetic.exact else np.float64
        magnitudes = np.array(
            [*self.magnitudes[: self.n_inputs], *[0] * len(shift_tables), *self.magnitudes[self.n_inputs :]],
            dtype=number,
        )
        margin = 0.0
        if not self.arithmetic.exact:
            # rounding: each addition is off by at most 2^-53 of the total magnitude; the factor 4 adds slack
            margin = 4 * max(1, self.n_inputs + self.shift_count) * 2.0**-53 * float(self.peak_magnitude)
        return MatchedElimination(done, magnitudes, self.peak_magnitude, self.shift_count, self.skipped, margin)


def _one_variable(scopes: Sequence[tuple[int, ...]], groups: Sequence[Sequence[int]], v: int, rank: Ints) -> Partition:
    """Return the partition of one variable's bucket into the given groups of tables.

    Parameters
    ----------
    scopes : sequence of tuple
        Scope of each table of the bucket; the variable is the first.
    groups : sequence of sequence of int
        The tables of each mini-bucket, by their index in ``scopes``.
    v : int
        The variable.
    rank : (variables,) int64
        Each variable's position in the elimination order.
    """
    outputs = [sorted({u for t in g for u in scopes[t][1:]}, key=lambda u: rank[u]) for g in groups]
    all_scopes = [*scopes, *outputs]
    return Partition(
        np.cumsum([0, *(len(s) for s in all_scopes)]),
        np.array([u for s in all_scopes for u in s], dtype=np.int64),
        np.full(len(groups), v, dtype=np.int64),
        np.cumsum([0, *(len(g) for g in groups)]),
        np.array([t for g in groups for t in g], dtype=np.int64),
        np.arange(len(scopes), len(all_scopes)),
    )
