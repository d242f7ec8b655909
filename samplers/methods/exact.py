"""Exact local solving: eliminate the hidden variables and keep the interface variables.

The result consists of small tables over parts of the interface, the agent's boundary variables. They are not joined, so
that the rows (interface assignments) of an agent with many interface variables are never enumerated. A *witness*
returns the hidden values that attain the utility of a row, when the VALUE phase asks for them. The *cells* of an
elimination are the entries of all tables that it joins.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import (
    Elimination,
    EliminationWitness,
    Slices,
    Witness,
    choose_slices,
    eliminate_in_slices,
)
from dmcmc.inference.elimination.plan import EliminationPlan, check_memory, kept_by_first_use, plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.device_table import copy_table
from dmcmc.inference.model.flat_tables import FlatTables, concatenate_tables
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import SINGLE_RANK, SampledTable, Sampling, rows_of_rank


class EliminatedTables(NamedTuple):
    """The outcome of several agents' eliminations.

    Attributes
    ----------
    tables : dict of SampledTable
        Exact tables by agent.
    given_up : dict of float
        Seconds spent on eliminations that were given up, by agent.
    """

    tables: dict[int, SampledTable]
    given_up: dict[int, float]


class ExactSolver:
    """The local solver ``exact``: the lower table V, the utility U and the upper table W of an agent are the same."""

    name = "exact"
    summary = "bucket elimination of the hidden variables; proves its table"

    def check(self, local: LocalProblem, memory: int, arithmetic: Arithmetic) -> None:
        """Raise a ``ResourceError`` if an agent's tables do not fit the memory, not even in slices."""
        if least_entries(local, memory, arithmetic) * arithmetic.dtype.itemsize <= memory:
            return
        what = f"local.method: exact for an agent of {len(local.hidden) + len(local.interface)} variables"
        check_memory(local.plan, arithmetic, memory, what, "use local.method: auto or gibbs, or raise budget.memory")

    def solve(self, problems: Sequence[LocalProblem], sampling: Sampling) -> list[SampledTable]:
        """Eliminate the hidden variables of some agents: large agents one by one, the others in batches.

        Raises
        ------
        OutOfTime
            If the backend's deadline passes.
        """
        if sampling.team.size > 1 and len(problems) == 1:
            found = _solve_in_slices(problems[0], sampling)
            if found is not None or sampling.team.rank > 0:
                return [] if found is None else [found]
        size, limit = sampling.arithmetic.dtype.itemsize, _retained_limit()
        retained = _are_retained([local.plan for local in problems], sampling)
        tables: dict[int, SampledTable] = {}
        batch: list[int] = []
        batch_entries = 0
        for i, local in enumerate(problems):
            entries = local.entries
            large = local.plan.entries * size > limit
            if batch and (large or (batch_entries + entries) * size > limit):
                tables |= zip(batch, _solve([problems[j] for j in batch], sampling, retained), strict=True)
                batch, batch_entries, limit = [], 0, _retained_limit()
            if large:
                alone = replace(sampling, team=SINGLE_RANK)
                tables[i] = _solve_in_slices(local, alone) or _solve_large(local, sampling)
                limit = _retained_limit()
                sampling.progress(1)
            else:
                batch.append(i)
                batch_entries += entries
        tables |= zip(batch, _solve([problems[j] for j in batch], sampling, retained), strict=True)
        return [tables[i] for i in range(len(problems))]


def eliminate_in_turn(
    agents: Sequence[tuple[LocalProblem, float]],
    sampling: Sampling,
    timed: bool,
    use_all_time: bool = False,
    on_finished: Callable[[LocalProblem, SampledTable], None] | None = None,
) -> EliminatedTables:
    """Eliminate some agents, those with small estimated costs first.

    With a time budget, an agent's proportional part of the remaining time is p = left * estimate / (sum of the
    estimates not yet done). Its elimination is given up after min(3 p, max(p, left / 2)) seconds, but not before 0.25
    seconds; so one that takes much longer leaves at least half of the time to the others. Agents that are better
    eliminated together share one such limit. Without a time budget, there is no limit.

    Parameters
    ----------
    agents
        The agents' problems, each with the estimated seconds of its elimination.
    sampling
        Settings with a backend whose deadline is that of all eliminations.
    timed
        Whether there is a time budget.
    use_all_time
        Whether each elimination may take all of the remaining time.
    on_finished
        Called with each table as soon as it is finished; the agents are then eliminated one by one.
    """
    backend, seconds = sampling.backend, {local.agent: estimated for local, estimated in agents}
    problems = sorted((local for local, _ in agents), key=lambda local: (seconds[local.agent], local.agent))
    tables: dict[int, SampledTable] = {}
    given_up: dict[int, float] = {}
    remaining_estimate, solver = sum(seconds.values()), ExactSolver()
    for positions in elimination_batches(problems, backend if timed or on_finished is not None else None):
        group, start = [problems[i] for i in positions], time.perf_counter()
        estimated, stop = sum(seconds[local.agent] for local in group), NO_DEADLINE
        if timed:
            left = max(0.0, backend.stop.until - start)
            time_part = left * estimated / remaining_estimate
            allowed = left if use_all_time else min(tuning.MAX_OVERRUN * time_part, max(time_part, 0.5 * left))
            stop = backend.stop.by(start + max(tuning.SLICE_SECONDS, allowed))
        limited_sampling = replace(sampling, backend=replace(backend, stop=stop))
        try:
            made_tables = solver.solve(group, limited_sampling)
            if sampling.team.rank == 0:
                tables |= {local.agent: table for local, table in zip(group, made_tables, strict=True)}
            if on_finished is not None:
                for local in group:
                    on_finished(local, tables[local.agent])
        except (OutOfTime, OutOfMemory):
            given_up |= {local.agent: time.perf_counter() - start for local in group}
        remaining_estimate -= estimated
    return EliminatedTables(tables, given_up)


def _retained_limit() -> int:
    """Return the maximum bytes of an agent's tables to retain: less once a quarter of the memory budget is used.

    Tables that are not retained are computed again when VALUE asks for them; the answer is the same.
    """
    left, budget = MEMORY_ACCOUNT.available_bytes(), MEMORY_ACCOUNT.budget
    if left is None or budget is None:
        return tuning.MAX_RETAINED_BYTES
    return max(tuning.MIN_RETAINED_BYTES, min(tuning.MAX_RETAINED_BYTES, left - 3 * budget // 4))


def _are_retained(plans: Sequence[EliminationPlan], sampling: Sampling) -> bool:
    """Return whether all tables that are made on a GPU fit its memory at once.

    The limit of tables in the main memory is :func:`_retained_limit`.
    """
    size = sum(plan.entries for plan in plans) * sampling.arithmetic.dtype.itemsize
    return not sampling.backend.eliminates_on_gpu_together(plans) or size <= sampling.backend.limit() // 2


def elimination_batches(problems: Sequence[LocalProblem], backend: Backend | None) -> list[list[int]]:
    """Return which agents, by position, are best eliminated together: all of them, or each by itself.

    Parameters
    ----------
    problems : sequence of LocalProblem
        The agents.
    backend : Backend or None
        The processors; None if no particular result is awaited.
    """
    positions = list(range(len(problems)))
    if positions and (backend is None or backend.eliminates_on_gpu_together([local.plan for local in problems])):
        return [positions]
    return [[position] for position in positions]


def _solve(problems: Sequence[LocalProblem], sampling: Sampling, retained: bool) -> list[SampledTable]:
    """Eliminate agents; the time of a common elimination is divided among its agents in proportion to their cells.

    Without ``retained``, the tables of one batch are dropped before the next one, and only values are stored.
    """
    if not problems:
        return []
    start, arithmetic = time.perf_counter(), sampling.arithmetic
    flat, plans = _encoded_flat(problems, arithmetic), [local.plan for local in problems]
    results = list[SampledTable]()
    for batch in sampling.backend.eliminate_all(flat, plans, arithmetic):
        remaining = [done.remaining() for done in batch]
        if not retained:
            remaining = [tuple(map(copy_table, tables)) for tables in remaining]
        seconds = time.perf_counter() - start
        cells = sum(done.plan.cells for done in batch)
        for done, tables in zip(batch, remaining, strict=True):
            agent_seconds = seconds * done.plan.cells / cells if cells else seconds / len(batch)
            witness = EliminationWitness(done) if retained else _small_witness(problems[len(results)], done, sampling)
            results.append(_table(tables, witness, agent_seconds, done.plan.cells))
        sampling.progress(len(batch))
        start = time.perf_counter()
    return results


def _encoded_flat(problems: Sequence[LocalProblem], arithmetic: Arithmetic) -> FlatTables:
    """Return the encoded tables of all agents, concatenated."""
    parts = [local.flat for local in problems]
    if len({part.data.dtype for part in parts}) > 1:
        return concatenate_tables([arithmetic.encode_flat(part) for part in parts])
    # The offsets depend on the agents' shapes alone, so the first agent's facts cache them by those of the others.
    key = "side by side", *(local.known for local in problems[1:])
    layout: FlatTables | None = problems[0].known.find(key)
    if layout is None:
        combined = concatenate_tables(parts)
        problems[0].known.put(key, combined._replace(data=combined.data[:0].copy()))
        return arithmetic.encode_flat(combined)
    return arithmetic.encode_flat(layout._replace(data=np.concatenate([part.data for part in parts])))


def _solve_large(local: LocalProblem, sampling: Sampling) -> SampledTable:
    """Eliminate an agent whose tables are not retained."""
    start, arithmetic = time.perf_counter(), sampling.arithmetic
    scopes, keep = [f.scope for f in local.factors], kept_by_first_use(local.plan, local.interface)
    plan = plan_elimination(scopes, local.domains, local.order.variables, keep)
    elimination = sampling.backend.eliminate([arithmetic.encode(f) for f in local.factors], plan, arithmetic)
    tables = tuple(
        EncodedTable(s, v.copy() if np.may_share_memory(v, elimination.arena) else v)
        for s, v in elimination.remaining()
    )
    witness = _small_witness(local, elimination, sampling)
    return _table(tables, witness, time.perf_counter() - start, elimination.plan.cells)


def _small_witness(local: LocalProblem, elimination: Elimination, sampling: Sampling) -> Witness:
    """Return a witness that does not retain the tables of an elimination."""
    if local.rows * local.domains.size > tuning.LARGE_ENTRIES:
        return _delayed_witness(local, sampling)
    return partial(_stored_witness, local, elimination.values_of_rows(local.interface, local.hidden))


def _solve_in_slices(local: LocalProblem, sampling: Sampling) -> SampledTable | None:
    """Eliminate an agent on several ranks or in several slices, each for some values of an interface variable.

    Returns
    -------
    SampledTable or None
        None if the first rank does all of the work at once: because there is little that fits the memory, or because
        floats would be added in another order.
    """
    start, team, arithmetic = time.perf_counter(), sampling.team, sampling.arithmetic

    def chosen() -> list[Array]:
        """Return the slices that the first rank chooses, and the variables in its order; nothing without slices."""
        resident = sampling.backend.resident_bytes(local.plan)
        slices = _slices_of(local, team.size, sampling.memory, arithmetic, resident)
        keep = kept_by_first_use(local.plan, local.interface)
        return [] if slices is None else [np.array([*slices, *keep, *local.order.variables], dtype=np.int64)]

    first = team.allgather(chosen)[0]
    if not first:
        return None
    found = first[0].tolist()
    slices, variables = Slices(*found[: len(Slices._fields)]), found[len(Slices._fields) :]
    keep, order = variables[: len(local.interface)], variables[len(local.interface) :]
    v = slices.variable

    def share() -> list[Array]:
        """Eliminate this rank's values of the dividing variable; return scope and entries of each table."""
        values = range(*rows_of_rank(int(local.domains[v]), team))
        tables = [arithmetic.encode(factor) for factor in local.factors]
        remaining = eliminate_in_slices(
            tables,
            local.domains,
            order,
            keep,
            slices,
            values,
            lambda part, plan: sampling.backend.eliminate(part, plan, arithmetic),
        )
        return [array for scope, entries in remaining for array in (np.array(scope, dtype=np.int64), entries)]

    results = [result for result in team.allgather(share) if result]
    tables_found = []
    for number in range(0, len(results[0]), 2):
        scope = tuple(results[0][number].tolist())
        pieces = [result[number + 1] for result in results]
        joined = np.concatenate(pieces, axis=scope.index(v)) if v in scope and len(pieces) > 1 else pieces[0]
        tables_found.append(EncodedTable(scope, joined))
    if team.size > 1:
        sampling.progress(1)
    return _table(tuple(tables_found), _delayed_witness(local, sampling), time.perf_counter() - start, local.plan.cells)


def _slices_of(
    local: LocalProblem, ranks: int, memory: int | None, arithmetic: Arithmetic, resident_bytes: float = float("inf")
) -> Slices | None:
    """Return the slices in which an elimination is best made on some ranks; None for all at once on the first rank.

    Slices fit a GPU's memory if that takes little more work, because streaming tables through it is slower. Without
    that, an elimination that fits the memory is not divided if it is small, or if no division makes the largest part
    much smaller. One is never divided if the arithmetic is not exact: floats would be added in another order.
    """
    size, plan = arithmetic.dtype.itemsize, local.plan
    max_entries = float("inf") if memory is None else memory // size
    fits, small = plan.entries <= max_entries, ranks == 1 or plan.cells < 4 * tuning.MAX_COPIED_ENTRIES
    is_resident = plan.entries * size <= resident_bytes
    if not arithmetic.exact or (fits and is_resident and small):
        return None
    scopes = [f.scope for f in local.factors]
    if not is_resident:
        slices = choose_slices(
            scopes, local.domains, plan, local.interface, min(max_entries, resident_bytes // size), ranks
        )
        if slices is not None and tuning.MAX_DIVIDED_SHARE * slices.cells * ranks <= plan.cells:
            return slices
    slices = choose_slices(scopes, local.domains, plan, local.interface, max_entries, ranks)
    if slices is None or (fits and (small or slices.cells >= tuning.MAX_DIVIDED_SHARE * plan.cells)):
        return None
    return slices


def least_entries(local: LocalProblem, memory: int, arithmetic: Arithmetic) -> int:
    """Return the table entries of an agent's elimination: in slices if it does not fit a memory in bytes otherwise."""
    slices = _slices_of(local, 1, memory, arithmetic)
    return local.plan.entries if slices is None else slices.entries


def _delayed_witness(local: LocalProblem, sampling: Sampling) -> Witness:
    """Return a witness that eliminates an agent's row again when VALUE asks for it."""
    stop = sampling.backend.stop  # VALUE comes after this agent's deadline, but still obeys Ctrl-C
    without_deadline = stop if stop is NO_DEADLINE else replace(stop, until=float("inf"))
    return partial(recompute_witness, local, sampling.arithmetic, replace(sampling.backend, stop=without_deadline))


def _table(tables: tuple[EncodedTable, ...], witness: Witness, seconds: float, cells: int) -> SampledTable:
    """Return the result of an exact agent, whose lower and upper tables are the same."""
    return SampledTable(tables, tables, witness, "exact", seconds, cells)


def _stored_witness(local: LocalProblem, states: NDArray[np.int32], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values of a row from the stored states."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))


def recompute_witness(
    local: LocalProblem, arithmetic: Arithmetic, backend: Backend, values: Mapping[int, int]
) -> dict[int, int]:
    """Return the best hidden values for an interface assignment, by eliminating that one row again.

    No tables need to be retained for it.
    """
    tables = []
    for scope, entries in map(arithmetic.encode, local.factors):
        row = entries[tuple(values.get(v, slice(None)) for v in scope)]
        tables.append(EncodedTable(tuple(v for v in scope if v not in values), np.ascontiguousarray(row)))
    plan = plan_elimination([t.scope for t in tables], local.domains, local.order.variables, ())
    return EliminationWitness(backend.eliminate(tables, plan, arithmetic))({})


SOLVER = ExactSolver()
