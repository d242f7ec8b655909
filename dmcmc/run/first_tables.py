"""Every agent's first table: exact, or sampled and bounded. With a time budget, what takes too long is given up."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.dual.cuda.together import improve_on_gpu
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.stop import NO_STOP
from dmcmc.mpi.world import World
from dmcmc.run.agent import FIRST_SWEEPS, AgentWork, gather_sides
from dmcmc.run.cycle import Sides
from dmcmc.run.setup import Task
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import FIRST_SHARE, Choice, bound_seconds, sampled_choice
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.contract.protocol import Resumable, SampledTable, Settings
from dmcmc.samplers.cpu.launch import ChainSolver
from dmcmc.samplers.row_choice import choose_rows

_CHOSEN, _ASKED = 0.5, 0.8  # of the time budget: then exact agents give up; where local.method asks for them
_LEAST = 0.1  # seconds that exact agents get even when the budget is over
_AMPLE = 3.0  # times its part of that is what one agent may take: most estimates are wrong by the same factor
_GRACE = 0.25  # seconds beyond the budget, and after Ctrl-C, for a first answer that is worth something
_FIRST_LEAST = 0.02  # seconds of an agent's first bound


def first_work(
    task: Task, world: World, mine: Sequence[int], advance: Callable[[int], None]
) -> tuple[Task, dict[int, AgentWork], Sides]:
    """Return the first table of each of this rank's agents, and the task as it is now.

    An exact elimination that takes too long is given up; the agent is sampled instead, and ``task.choices`` say so on
    all ranks.
    """
    timed = task.config.budget.time is not None
    settings = replace(task.settings(), progress=advance)
    tables, given_up = _exact_tables(task, mine, settings)
    task = _with_choices(task, world, given_up)
    backend = replace(task.backend, stop=task.backend.stop.later(_GRACE) if timed else NO_STOP)
    settings = replace(settings, backend=backend)
    lists = {a: choose_rows(task.division.locals[a], task.listed[a], settings) for a in mine if task.listed[a]}
    sides = gather_sides(task, world, lists, {})
    works = {a: AgentWork(task, task.division.locals[a], task.division.locals[a], table) for a, table in tables.items()}
    rest = [a for a in mine if a not in works]
    for method in sorted({task.methods[a] for a in rest}):
        batch = [a for a in rest if task.methods[a] == method]
        solver, locals_ = registry.get(method), [sides.lower.local(task.division.locals[a]) for a in batch]
        chains: Sequence[Resumable | None] = [None] * len(batch)
        if timed and isinstance(solver, ChainSolver):
            started = solver.start(locals_, settings)
            chains, found = started, [run.table() for run in started]
        else:
            found = solver.solve(locals_, settings)
        for agent, local, run, table in zip(batch, locals_, chains, found, strict=True):
            whole = task.division.locals[agent]
            if local is not whole:  # exact for the listed rows only
                table = replace(table, upper=None)
            works[agent] = AgentWork(task, whole, local, table, run)
    _first_bounds(task, [works[a] for a in mine if works[a].table.upper is None])
    return task, works, sides


def _exact_tables(
    task: Task, mine: Sequence[int], settings: Settings
) -> tuple[dict[int, SampledTable], dict[int, Choice]]:
    """Return the tables of this rank's exact agents, and what those do instead that were given up.

    The quick ones come first. Each has time in proportion to its estimate: one that takes much longer than expected
    leaves at least half of what is left to the others. Without a time budget, and where a GPU takes them together,
    there are no turns.
    """
    budget, stop = task.config.budget.time, task.backend.stop
    seconds = {a: task.choices[a].seconds for a in mine if task.methods[a] == "exact"}
    tables: dict[int, SampledTable] = {}
    given_up: dict[int, Choice] = {}
    end, total = 0.0, sum(seconds.values())
    if budget is not None:
        share = _ASKED if task.config.local.method == "exact" else _CHOSEN
        end = max(stop.until - (1 - share) * budget, time.perf_counter() + _LEAST)
    agents = sorted(seconds, key=lambda a: (seconds[a], a))
    together = budget is None or task.backend.takes_at_once([task.division.locals[a].plan for a in agents])
    for group in [agents] if together and agents else [[a] for a in agents]:
        start, own, expected = time.perf_counter(), settings, sum(seconds[a] for a in group)
        if budget is not None and not any(task.surveys[a].obstacle for a in group):
            left = max(0.0, end - start)
            part = left * expected / total
            until = min(end, start + max(_LEAST, min(_AMPLE * part, max(part, 0.5 * left))))
            own = replace(settings, backend=replace(settings.backend, stop=stop.by(until)))
        else:
            own = replace(settings, backend=replace(settings.backend, stop=NO_STOP))
        try:
            found = registry.get("exact").solve([task.division.locals[a] for a in group], own)
            tables |= zip(group, found, strict=True)
        except OutOfTime:
            why = f"exact elimination was given up after {time.perf_counter() - start:.2g} s"
            for agent in group:
                given_up[agent] = sampled_choice(task.surveys[agent], SAMPLER, why, task.limits, task.rates)
        total -= expected
    return tables, given_up


def _with_choices(task: Task, world: World, mine: Mapping[int, Choice]) -> Task:
    """Return the task with the changes of all ranks; the same object if there is none."""
    changed: dict[int, Choice] = {}
    for theirs in world.allgather(dict(mine)):
        changed |= theirs
    if not changed:
        return task
    return replace(task, choices=tuple(changed.get(agent, choice) for agent, choice in enumerate(task.choices)))


def _first_bounds(task: Task, works: Sequence[AgentWork]) -> None:
    """Bound tables from above; where there is no time, by the sum of what each factor can be worth."""
    timed, stop = task.config.budget.time is not None, task.backend.stop.later(_GRACE)
    started: list[AgentWork] = []
    for work in works:
        if timed and stop.over and task.choices[work.local.agent].bound != "none":
            work.table = replace(work.table, upper=(_constant(task, work),))
        elif work.start_bound():
            started.append(work)
    if started and not _first_on_gpu(task, started):
        for work in started:
            work.first_bound(_first_seconds(task, work, len(started)) if timed else None)


def _first_seconds(task: Task, work: AgentWork, works: int) -> float:
    """Return what an agent's first bound may take."""
    left = FIRST_SHARE * max(0.0, task.backend.stop.until - time.perf_counter()) / works
    return min(left, max(_FIRST_LEAST, task.choices[work.local.agent].first_bound))


def _first_on_gpu(task: Task, works: Sequence[AgentWork]) -> bool:
    """Tighten all agents' bounds at once on the GPU, if that is quicker."""
    timed, core = task.config.budget.time is not None, replace(task.limits, gpu=False, threads=1)
    seconds = sum(
        bound_seconds(task.surveys[a], core, task.rates, FIRST_SWEEPS, task.choices[a].bound)
        for a in (work.local.agent for work in works)
    )
    if not task.backend.bounds_on_gpu(seconds):
        return False
    start = time.perf_counter()
    requests = [work.request(None) for work in works]
    most = sum(_first_seconds(task, work, len(works)) for work in works) if timed else None
    if improve_on_gpu(requests, task.backend, most, None if timed else FIRST_SWEEPS) is None:
        return False
    each = (time.perf_counter() - start) / len(works)
    for work in works:
        work.take_bound(each)
    return True


def _constant(task: Task, work: AgentWork) -> Table:
    """Return the least that needs no work as a table: the sum of all factors' largest entries, for every row."""
    arithmetic, total = task.arithmetic, 0
    for factor in work.local.factors:
        total = max(total + arithmetic.encode(factor).values.max().item(), arithmetic.lowest)
    return Table((), np.array(arithmetic.outward(total, len(work.local.factors)), dtype=arithmetic.dtype))
