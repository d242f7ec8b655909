"""Bucket elimination on the CPU, also in slices.

Bucket elimination: run a plan, keep its tables, and read an optimal assignment back.

Dechter's bucket elimination (GpuBE journal paper, §2.1); the join and the projection of a bucket are fused. The tables
are kept because the VALUE phase, which assigns the variables in reverse order, looks maximising values up in them.

Small eliminations that do not share a variable are run together, by one merged plan (:class:`MergedPlan`).

Eliminate in slices: for some values of one kept variable at a time, so that the tables fit the memory.

A *slice* has some consecutive values of a variable that is kept. Its messages are smaller by the ratio of these values
to all, and the remaining tables of all slices together are those of the undivided elimination. This is the idea of
MB-DPOP (Petcu and Faltings 2007) within one agent: there, values of *cut* variables are taken one at a time between
agents (:mod:`dmcmc.inference.dpop.slicing`). Messages without the variable are made once per slice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.arena_kernels import choose_values, choose_values_in_rows, place_inputs
from dmcmc.inference.elimination.join_kernels import join, run_buckets, split_bucket
from dmcmc.inference.elimination.plan import BucketProgram, EliminationPlan, plan_elimination, table_offsets
from dmcmc.inference.elimination.semirings import LOG_SUM, MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.device_table import sum_on_device
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.tables import spread
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import Memo, digest
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Ints

_CONTIGUOUS = (-1, -1)  # key of the contiguous plan in ``EliminationPlan.derived_plans``


@dataclass(frozen=True)
class Elimination:
    """A finished elimination with all its tables, from which maximising values can be looked up.

    Attributes
    ----------
    plan : EliminationPlan
        The plan that was run.
    arena : (plan.entries,) ndarray
        The entries of all tables, in the dtype of the arithmetic.
    arithmetic : Arithmetic
        The number type of the tables and its −∞.
    semiring : Semiring
        The semiring of the elimination; min-plus tables in the arena are negated.
    external_tables : dict
        Entries of those tables over kept variables that are stored outside the arena, by table number.
    """

    plan: EliminationPlan
    arena: Array
    arithmetic: Arithmetic
    semiring: Semiring = field(default=MAX_PLUS, kw_only=True)
    external_tables: Mapping[int, Array] = field(default_factory=dict, kw_only=True)

    def table(self, t: int) -> EncodedTable:
        """Return table ``t`` of the plan as a view."""
        if t in self.external_tables:
            return EncodedTable(self.plan.scope(t), self.external_tables[t])
        location = self.plan.locations[t]
        return EncodedTable(location.scope, self.arena[location.begin : location.end].reshape(location.shape))

    def remaining(self) -> tuple[EncodedTable, ...]:
        """Return the tables over kept variables; their sum is the result. No scope is a subset of another."""
        tables = tuple([self.table(t) for t in self.plan.remaining])
        if len(tables) > 1:
            tables = absorb(tables, self.arithmetic)
        if self.semiring.sign > 0:
            return tables
        return tuple(EncodedTable(scope, signed(values, self.semiring, self.arithmetic)) for scope, values in tables)

    def total(self) -> int | float:
        """Return the sum of the remaining tables if no variable was kept (encoded)."""
        value: int | float = 0
        for t in self.plan.remaining:
            value = max(value + self.table(t).values.item(), self.arithmetic.lowest)
        return value if self.arithmetic.is_lowest(value) else self.semiring.sign * value

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising value of every eliminated variable.

        Parameters
        ----------
        values : (variables,) int64
            Holds the values of the kept variables; the eliminated ones are written in place.
        """
        choose_values(self.plan.program, self.arena, values, self.arithmetic.lowest_scalar, 0, self.plan.buckets)

    @property
    def chooser(self) -> "ValueChooser":
        """The object that looks up values for all eliminations that ran with this one; itself if none did."""
        return self

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values in every row of ``values`` (rows, variables) int64; see ``choose``."""
        choose_values_in_rows(
            self.plan.program, self.arena, values, self.arithmetic.lowest_scalar, 0, self.plan.buckets
        )

    def values_of_rows(self, kept: Sequence[int], wanted: Sequence[int]) -> NDArray[np.int32]:
        """Return the maximising values of some eliminated variables for every assignment of the kept variables.

        Returns
        -------
        (rows, wanted) int32
            The last kept variable changes fastest from row to row.
        """
        domains = self.plan.program.domains
        values = np.zeros((int(np.prod(domains[list(kept)])), domains.size), dtype=np.int64)
        values[:, list(kept)] = assignments_of(domains[list(kept)])
        self.choose_all(values)
        return values[:, list(wanted)].astype(np.int32)

    def maximise(self, values: MutableMapping[int, int]) -> None:
        """Add the maximising value of every eliminated variable to a mapping that holds the kept variables.

        Buckets are processed last to first; ties go to the lowest value index. One row of each table of a bucket is
        read.
        """
        assignment = np.zeros(self.plan.program.domains.size, dtype=np.int64)
        for v, value in values.items():
            assignment[v] = value
        self.choose(assignment)
        eliminated = self.plan.program.variable
        values.update(zip(eliminated.tolist(), assignment[eliminated].tolist(), strict=True))


def assignments_of(domains: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all assignments of variables with these domain sizes, (rows, variables) int64, in C order."""
    return np.indices(domains.tolist()).reshape(domains.size, -1).T if domains.size else np.zeros((1, 0), np.int64)


class ValueChooser(Protocol):
    """Sets the maximising values of the variables that one or several eliminations have eliminated."""

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set maximising values in ``values`` (variables,) int64, which holds the values of all kept variables."""


def maximise_together(eliminations: Sequence[Elimination], values: Sequence[MutableMapping[int, int]]) -> None:
    """Add the maximising values of the variables of each elimination to a mapping that holds those it has kept.

    Eliminations that ran as one batch have no variables in common; they are looked up together.
    """
    groups: dict[int, list[int]] = {}
    for number, elimination in enumerate(eliminations):
        groups.setdefault(id(elimination.chooser), []).append(number)
    for group in groups.values():
        first = eliminations[group[0]]
        assignment = np.zeros(first.plan.program.domains.size, dtype=np.int64)
        for number in group:
            for v, value in values[number].items():
                assignment[v] = value
        (first if len(group) == 1 else first.chooser).choose(assignment)
        for number in group:
            eliminated = eliminations[number].plan.program.variable
            values[number].update(zip(eliminated.tolist(), assignment[eliminated].tolist(), strict=True))


Witness = Callable[[Mapping[int, int]], dict[int, int]]


@dataclass(frozen=True)
class EliminationWitness:
    """The best hidden values for an interface assignment, from the tables of an elimination."""

    elimination: Elimination

    def __call__(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return the best hidden values for an interface assignment."""
        return best_hidden_values([(self, values)])


def best_hidden_values(rows: Iterable[tuple[Witness, Mapping[int, int]]]) -> dict[int, int]:
    """Return the best hidden values of several agents, given the witness and the interface assignment of each one.

    Agents that were eliminated as one batch are looked up together.
    """
    hidden, eliminations = dict[int, int](), list[tuple[Elimination, Mapping[int, int]]]()
    for witness, values in rows:
        if isinstance(witness, EliminationWitness):
            eliminations.append((witness.elimination, values))
        else:
            hidden |= witness(values)
    chosen = [dict(values) for _, values in eliminations]
    maximise_together([elimination for elimination, _ in eliminations], chosen)
    for (_, values), found in zip(eliminations, chosen, strict=True):
        hidden |= {v: found[v] for v in found if v not in values}
    return hidden


def eliminate(
    tables: Sequence[EncodedTable] | FlatTables,
    plan: EliminationPlan,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    stop: Deadline = NO_DEADLINE,
) -> Elimination:
    """Run a plan: eliminate its variables from the sum of ``tables``.

    Parameters
    ----------
    tables
        Encoded tables, one for each input of the plan.
    plan
        The plan to run.
    arithmetic
        The arithmetic in which the tables are encoded.
    threads
        Number of threads for the large buckets. The result does not depend on it.
    semiring
        The semiring; −∞ forbids an entry in all of them.
    stop
        The deadline.

    Returns
    -------
    Elimination

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    entries = max(1, plan.entries)
    MEMORY_ACCOUNT.claim(entries * arithmetic.dtype.itemsize, f"tables of {plan.buckets} buckets")
    done = Elimination(plan, np.empty(entries, dtype=arithmetic.dtype), arithmetic, semiring=semiring)
    flat = flat_tables(tables, arithmetic, semiring)
    lowest = arithmetic.lowest_scalar
    place_tables(plan, done.arena, flat, lowest, stop)
    del flat  # a copy of all inputs
    if plan.cells + tuning.CELLS_PER_BUCKET * plan.buckets >= tuning.MIN_PARALLEL_CELLS:
        run_on_cpu(done, 0, plan.buckets, semiring, threads, stop)
    elif plan.buckets:  # no bucket is large
        stop.check()
        run_buckets(plan.program, done.arena, 0, plan.buckets, lowest, semiring.operation)
    return done


class MergedPlan(NamedTuple):
    """A plan made of several plans.

    Attributes
    ----------
    plan : EliminationPlan
        The merged plan: inputs of the first plan, of the second, ...; buckets likewise.
    numbers : list of (tables,) int64
        The number in the merged plan of each table, for each plan.
    bucket_start : (plans + 1,) int64
        First bucket of each plan in the merged plan.
    entry_start : list of int
        Arena offset of each plan's tables in :meth:`contiguous_plan`, and the end of the last plan's.
    """

    plan: EliminationPlan
    numbers: list[Ints]
    bucket_start: Ints
    entry_start: list[int]

    def contiguous_plan(self, plans: Sequence[EliminationPlan]) -> EliminationPlan:
        """Return the merged plan with each plan's tables contiguous in the arena, in the layout of the plan itself.

        The result is cached.
        """
        found: EliminationPlan | None = self.plan.derived_plans.get(_CONTIGUOUS)
        if found is None:
            at = np.empty_like(self.plan.program.at)
            for numbers, start, plan in zip(self.numbers, self.entry_start[:-1], plans, strict=True):
                at[numbers] = start + plan.program.at
            found = EliminationPlan(self.plan.program._replace(at=at), self.plan.sizes, self.plan.remaining)
            self.plan.derived_plans[_CONTIGUOUS] = found
        return found


_MERGED = Memo[MergedPlan].for_shapes()  # the merged plans of this process


def mergeable(plans: Sequence[EliminationPlan]) -> bool:
    """Return whether the plans have the same domain array and no variable in common."""
    if not plans:
        return False
    domains = plans[0].program.domains
    used = np.zeros(domains.size, dtype=np.bool_)
    for program in (plan.program for plan in plans):
        if program.domains is not domains and not np.array_equal(program.domains, domains):
            return False
        if used[program.scope].any() or used[program.variable].any():
            return False
        used[program.scope] = True
        used[program.variable] = True
    return True


def merge_plans_cached(plans: Sequence[EliminationPlan]) -> MergedPlan | None:
    """Return the merged plan, cached for equal plans; None if the plans cannot be merged.

    Plans derived from the merged plan (``divide_work``) are cached with it.
    """
    if not plans or sum(plan.tables for plan in plans) > tuning.MAX_CACHED_PLANS:
        return merge_plans(plans) if mergeable(plans) else None
    domains = plans[0].program.domains  # plans may hold copies of it
    if not all(plan.program.domains is domains or np.array_equal(plan.program.domains, domains) for plan in plans):
        return None
    key = tuple(plan.shape_key for plan in plans), digest(domains)
    found = _MERGED.find(key)
    if found is None and mergeable(plans):
        found = merge_plans(plans)
        _MERGED.put(key, found)
    return found


def merge_plans(plans: Sequence[EliminationPlan]) -> MergedPlan:
    """Merge plans; :func:`mergeable` must hold."""
    programs = [plan.program for plan in plans]
    n_inputs = [plan.tables - plan.buckets for plan in plans]
    input_at = np.cumsum([0, *n_inputs])
    bucket_start = np.cumsum([0, *(plan.buckets for plan in plans)])
    message_at = input_at[-1] + bucket_start
    numbers = [
        np.concatenate([np.arange(input_at[i], input_at[i + 1]), np.arange(message_at[i], message_at[i + 1])])
        for i in range(len(plans))
    ]

    def inputs_first(pieces: Sequence[Ints], edges: Sequence[int]) -> Ints:
        """Return the parts that belong to the inputs of all plans, then those that belong to their messages."""
        heads = [piece[:edge] for piece, edge in zip(pieces, edges, strict=True)]
        return np.concatenate(heads + [piece[edge:] for piece, edge in zip(pieces, edges, strict=True)])

    lengths = inputs_first([np.diff(p.scope_start) for p in programs], n_inputs)
    sizes = inputs_first([plan.sizes for plan in plans], n_inputs)
    edges = [int(p.scope_start[g]) for p, g in zip(programs, n_inputs, strict=True)]
    program = BucketProgram(
        domains=programs[0].domains,
        scope_start=np.concatenate([[0], np.cumsum(lengths)]),
        scope=inputs_first([p.scope for p in programs], edges),
        at=table_offsets(sizes),
        variable=np.concatenate([p.variable for p in programs]),
        input_start=np.cumsum(np.concatenate([[0], *(np.diff(p.input_start) for p in programs)])),
        inputs=np.concatenate([number[p.inputs] for number, p in zip(numbers, programs, strict=True)]),
        cells=np.concatenate([p.cells for p in programs]),
        row_axes=np.concatenate([p.row_axes for p in programs]),
    )
    remaining = [number[t] for number, plan in zip(numbers, plans, strict=True) for t in plan.remaining]
    plan = EliminationPlan(program, sizes, tuple(map(int, remaining)))
    return MergedPlan(plan, numbers, bucket_start, [0, *accumulate(plan.entries for plan in plans)])


def separated(done: Elimination, merged: MergedPlan, plans: Sequence[EliminationPlan]) -> list[Elimination]:
    """Return the eliminations of single plans that were run together, because starting each costs more than running it.

    The tables equal those of single runs, bit by bit.

    Parameters
    ----------
    done
        The elimination by ``merged.contiguous_plan(plans)``; the results are views of its arena.
    merged
        The merged plan.
    plans
        The single plans.
    """
    bounds = zip(merged.entry_start[:-1], merged.entry_start[1:], strict=True)
    return [
        Elimination(plan, done.arena[begin : max(end, begin + 1)], done.arithmetic, semiring=done.semiring)
        for plan, (begin, end) in zip(plans, bounds, strict=True)
    ]


def new_arena(plan: EliminationPlan, arithmetic: Arithmetic) -> Array:
    """Return uninitialised memory for all tables of a plan.

    Raises
    ------
    OutOfMemory
        If the memory limit of the run would be exceeded.
    """
    entries = max(1, plan.entries)
    MEMORY_ACCOUNT.claim(entries * arithmetic.dtype.itemsize, f"tables of {len(plan.program.variable)} buckets")
    return np.empty(entries, dtype=arithmetic.dtype)


def place_tables(
    plan: EliminationPlan, arena: Array, flat: FlatTables, lowest: np.generic, stop: Deadline = NO_DEADLINE
) -> None:
    """Copy the input tables to the front of the arena, with axes in the plan's order.

    Parameters
    ----------
    plan
        The plan of the elimination.
    arena : (plan.entries,)
        Memory of all tables, in the dtype of ``flat``.
    flat
        The encoded input tables.
    lowest
        The −∞ of the arithmetic.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    program = plan.program
    if stop is NO_DEADLINE or flat.data.size < tuning.CELLS_PER_CHECK:
        if stop is not NO_DEADLINE:
            stop.check()
        place_inputs(program, arena, *flat, lowest)
        return
    sizes = np.diff(flat.at)
    cuts = np.unique(
        [0, *(1 + np.flatnonzero(np.diff(np.cumsum(sizes) // tuning.CELLS_PER_CHECK))).tolist(), flat.tables]
    )
    for first, last in pairwise(cuts.tolist()):
        stop.check()
        if last == first + 1 and sizes[first] > tuning.CELLS_PER_CHECK:
            _place_large(plan, arena, flat, first, stop)
            continue
        program_part = program._replace(at=program.at[first:], scope_start=program.scope_start[first:])
        place_inputs(program_part, arena, *flat.table_range(first, last), lowest)


def _place_large(plan: EliminationPlan, arena: Array, flat: FlatTables, t: int, stop: Deadline) -> None:
    """Copy one large table in parts of limited size."""
    scope, target_scope = flat.table_range(t, t + 1).scope.tolist(), plan.scope(t)
    sizes = plan.program.domains[scope].tolist()
    source = flat.data[flat.at[t] : flat.at[t + 1]].reshape(sizes).transpose([scope.index(v) for v in target_scope])
    at = int(plan.program.at[t])
    target = arena[at : at + source.size].reshape(source.shape)
    for index in pieces_of(source.shape, tuning.CELLS_PER_CHECK):
        stop.check()
        target[index] = source[index]


def pieces_of(shape: Sequence[int], entries: int = tuning.CELLS_PER_CHECK) -> Iterator[tuple[int | slice, ...]]:
    """Yield indices that cover an array in parts of at most about ``entries`` entries; each fixes the first few axes.

    >>> list(pieces_of((2, 3, 4), 12)) == [(0,), (1,)]
    True
    """
    fixed = 0
    while fixed < len(shape) and int(np.prod(shape[fixed:], dtype=np.int64)) > entries:
        fixed += 1
    yield from np.ndindex(*shape[:fixed])


def run_on_cpu(
    elimination: Elimination, first: int, last: int, semiring: Semiring, threads: int, stop: Deadline = NO_DEADLINE
) -> None:
    """Run buckets ``first`` to ``last`` − 1: large buckets on all threads, the others on one.

    Parameters
    ----------
    elimination
        The elimination; its arena holds the inputs of these buckets, and receives their messages.
    first, last
        The range of buckets.
    semiring
        The semiring.
    threads
        Number of CPU threads.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes. It is checked between buckets, and between ranges of rows of a large bucket.
    """
    program, lowest = elimination.plan.program, elimination.arithmetic.lowest_scalar
    # no bucket is large, nor is their sum
    if (
        not elimination.external_tables
        and elimination.plan.cells + tuning.CELLS_PER_BUCKET * elimination.plan.buckets < tuning.MIN_PARALLEL_CELLS
    ):
        if first < last:
            stop.check()
            run_buckets(program, elimination.arena, first, last, lowest, semiring.operation)
        return
    cells = program.cells[first:last]
    large = cells > (
        tuning.MIN_PARALLEL_CELLS if threads > 1 else tuning.CELLS_PER_CHECK if stop is not NO_DEADLINE else np.inf
    )
    for t in elimination.external_tables:
        large[t - elimination.plan.output(first)] = True
    large_buckets = first + np.flatnonzero(large)
    next_bucket = first
    for b in (*large_buckets.tolist(), last):
        for begin, end in pairwise(_deadline_checks(program.cells, next_bucket, b, stop)):
            stop.check()
            run_buckets(program, elimination.arena, begin, end, lowest, semiring.operation)
        if b < last and not run_parallel(_tasks(elimination, b, semiring, threads), threads, stop):
            stop.check()
        next_bucket = b + 1


def _deadline_checks(cells: NDArray[np.int64], first: int, last: int, stop: Deadline) -> list[int]:
    """Return the bucket numbers at which to check the deadline; all these buckets are small."""
    if stop is NO_DEADLINE:
        return [first, last]
    count = np.cumsum(np.maximum(cells[first:last], tuning.CELLS_PER_BUCKET)) // tuning.CELLS_PER_CHECK
    return [first, *(first + 1 + np.flatnonzero(np.diff(count))).tolist(), last]


def flat_tables(
    tables: Sequence[EncodedTable] | FlatTables, arithmetic: Arithmetic, semiring: Semiring = MAX_PLUS
) -> FlatTables:
    """Return encoded tables in one array, with the sign that the semiring's kernels expect.

    Raises
    ------
    ValueError
        If the semiring is log-sum-exp and the tables are integers.
    """
    if semiring.operation == LOG_SUM and arithmetic.exact:
        raise ValueError(f"{semiring.name} needs float64 tables, not {arithmetic.dtype}")
    if not isinstance(tables, FlatTables):
        tables = flatten([t.scope for t in tables], [t.values for t in tables], arithmetic.dtype)
    return tables if semiring.sign > 0 else tables._replace(data=signed(tables.data, semiring, arithmetic))


def signed(values: Array, semiring: Semiring, arithmetic: Arithmetic) -> Array:
    """Return encoded numbers, negated for min-plus; −∞ is unchanged."""
    if semiring.sign > 0:
        return values
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    is_forbidden = (values == lowest) | (values < arithmetic.forbidden_below)
    return np.where(is_forbidden, lowest, -values)


def run_rows(
    elimination: Elimination,
    b: int,
    semiring: Semiring,
    threads: int,
    entries: tuple[int, int],
    stop: Deadline = NO_DEADLINE,
) -> None:
    """Compute a range of entries of one bucket's message, from ``entries[0]`` to before ``entries[1]``.

    Parameters
    ----------
    elimination
        The elimination; its arena holds the inputs of the bucket, and receives the entries.
    b
        The bucket.
    semiring
        The semiring.
    threads
        Number of CPU threads.
    entries
        First entry and end of the entries of the message.
    stop
        The deadline.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    if not run_parallel(_tasks(elimination, b, semiring, threads, *entries), threads, stop):
        stop.check()


def compile_joins(arithmetic: Arithmetic) -> None:
    """Compile the join of large buckets, or read it from the disk cache."""
    plan = plan_elimination([(0, 1)], np.full(2, 2), [0], [1])
    elimination = eliminate([EncodedTable((0, 1), np.zeros((2, 2), dtype=arithmetic.dtype))], plan, arithmetic)
    run_rows(elimination, 0, MAX_PLUS, 1, (0, 2))


def _tasks(
    elimination: Elimination, b: int, semiring: Semiring, threads: int, begin: int = 0, end: int | None = None
) -> list[Callable[[], None]]:
    """Prepare one large bucket and return the tasks that compute its message, one range of rows per task.

    The tasks write the entries ``begin`` to ``end`` − 1 of the message; None stands for its end.
    """
    plan = elimination.plan
    lowest = elimination.arithmetic.lowest_scalar
    parts = split_bucket(plan.program, b)
    message = elimination.table(plan.output(b)).values.reshape(-1)
    end_entry = message.size if end is None else end
    if begin % parts[1] or end_entry % parts[1]:  # the range does not consist of whole rows: use rows of one entry
        parts = split_bucket(plan.program._replace(row_axes=np.zeros_like(plan.program.row_axes)), b)
    out = message.reshape(-1, parts[1])
    first, last = begin // parts[1], end_entry // parts[1]
    kernel = partial(cast(Callable[..., None], join), elimination.arena, out, *parts, lowest, semiring.operation)
    cells = (last - first) * parts[1] * parts[2]
    # 4 tasks per thread, so that uneven tasks balance out; more if a task would exceed CELLS_PER_CHECK cells
    pieces = max(
        1, min(last - first, max(4 * threads, cells // tuning.CELLS_PER_CHECK), cells // tuning.MIN_TASK_CELLS)
    )
    bounds = [first + (last - first) * i // pieces for i in range(pieces + 1)]
    return [partial(kernel, a, b) for a, b in pairwise(bounds)]


def absorb(tables: Sequence[EncodedTable], arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
    """Add each table whose scope is a subset of another's to that table; the sum of all tables does not change.

    Parameters
    ----------
    tables
        Encoded tables.
    arithmetic
        The arithmetic of the tables.

    Returns
    -------
    tuple of EncodedTable
        A table to which nothing is added is returned itself. Any other result is a new table, copied once however many
        tables are added to it.
    """
    result: list[EncodedTable] = []
    copied = set[int]()
    for table in sorted(tables, key=lambda t: -len(t.scope)):
        scope = table.scope
        superset = next((i for i, t in enumerate(result) if set(scope) <= set(t.scope)), None)
        if superset is None:
            result.append(table)
            continue
        into = result[superset]
        on_device = sum_on_device(into, table, arithmetic, superset in copied)
        if on_device is not None:
            result[superset] = on_device
            copied.add(superset)
            continue
        values = spread(table.values, scope, into.scope)
        result[superset] = EncodedTable(
            into.scope, arithmetic.add(into.values, values, into.values if superset in copied else None)
        )
        copied.add(superset)
    return tuple(result)


class Slices(NamedTuple):
    """A division of an elimination into slices.

    Attributes
    ----------
    variable : int
        The kept variable whose values are divided.
    values : int
        Maximum number of its values in a slice.
    entries : int
        Table entries of the largest slice, and of the remaining tables of all slices.
    cells : int
        Joined cells of all slices of a part.
    """

    variable: int
    values: int
    entries: int
    cells: int


def choose_slices(
    scopes: Sequence[Sequence[int]],
    domains: Ints,
    plan: EliminationPlan,
    keep: Sequence[int],
    max_entries: float,
    parts: int = 1,
) -> Slices | None:
    """Choose the variable and the slices that join the fewest cells, so that each slice fits a number of entries.

    Parameters
    ----------
    scopes
        The scope of each input table.
    domains : (variables,) int64
        Domain sizes.
    plan
        The undivided elimination.
    keep
        The kept variables, candidates for the division.
    max_entries
        Upper bound on the entries of the tables that exist at the same time.
    parts
        Number of processes that share the values of the variable; each makes its part in slices.

    Returns
    -------
    Slices or None
        None if no division fits. If the undivided elimination fits and ``parts`` is 1, there is one slice.

    Examples
    --------
    >>> scopes, domains = [(0, 1), (1, 2), (2, 3)], np.array([8, 6, 6, 8])
    >>> plan = plan_elimination(scopes, domains, order=[1, 2], keep=[0, 3])
    >>> plan.entries, choose_slices(scopes, domains, plan, [0, 3], max_entries=240)
    (244, Slices(variable=0, values=4, entries=228, cells=672))
    """
    order, remaining = plan.program.variable.tolist(), sum(int(plan.sizes[t]) for t in plan.remaining)
    best: Slices | None = None
    for v in keep:
        part = -(-int(domains[v]) // parts)
        if plan.entries > max_entries * int(domains[v]):
            continue  # not even slices of one value fit
        values, sizes = part, domains.copy()
        while True:
            sizes[v] = values
            slice_plan = plan_elimination(scopes, sizes, order, keep)
            entries = slice_plan.entries + (remaining if values < int(domains[v]) else 0)
            if entries <= max_entries or values == 1:
                break
            values = -(-values // 2)
        cells = slice_plan.cells * -(-part // values)
        if entries <= max_entries and (best is None or cells < best.cells):
            best = Slices(v, values, entries, cells)
    return best


def eliminate_in_slices(
    tables: Sequence[EncodedTable],
    domains: Ints,
    order: Sequence[int],
    keep: Sequence[int],
    slices: Slices,
    values: range,
    eliminate: Callable[[Sequence[EncodedTable], EliminationPlan], Elimination],
) -> list[EncodedTable]:
    """Return the remaining tables for a range of values of the divided variable.

    Parameters
    ----------
    tables
        The input tables.
    domains : (variables,) int64
        Domain sizes.
    order, keep
        The eliminated and the kept variables.
    slices
        The division.
    values
        Consecutive values of the divided variable, of which all slices are made.
    eliminate
        Carries out a plan.

    Returns
    -------
    list of EncodedTable
        Axes of the divided variable have ``len(values)`` entries.
    """
    v, found = slices.variable, list[EncodedTable]()
    for begin in range(values.start, values.stop, slices.values):
        end = min(begin + slices.values, values.stop)
        part = [
            EncodedTable(scope, entries[tuple(slice(begin, end) if u == v else slice(None) for u in scope)])
            for scope, entries in tables
        ]
        sizes = domains.copy()
        sizes[v] = end - begin
        remaining = eliminate(part, plan_elimination([t.scope for t in part], sizes, order, keep)).remaining()
        for number, (scope, entries) in enumerate(remaining):
            if begin == values.start:
                shape = tuple(len(values) if u == v else n for u, n in zip(scope, entries.shape, strict=True))
                found.append(EncodedTable(scope, np.empty(shape, dtype=entries.dtype)))
            place = slice(begin - values.start, end - values.start)
            found[number].values[tuple(place if u == v else slice(None) for u in scope)] = entries
    return found
