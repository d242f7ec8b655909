"""The whole path: Problem → agents' local problems → tables → UTIL up → VALUE down → Result.

The only place that sees all of it. The same code runs in one process and on every rank of a run. With a time budget the
middle is repeated: what a cycle has proven tells every agent which of its rows can still matter, and the agents improve
those.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.messages import UtilMessage
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.stop import NO_STOP, Stop
from dmcmc.mpi.phases import Post, Sent
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.agent import AgentWork
from dmcmc.run.cycle import Cycle, run_cycle, run_outside
from dmcmc.run.first_tables import first_work
from dmcmc.run.improve import improve_all
from dmcmc.run.incumbent import Order, Standing
from dmcmc.run.interrupt import Interrupt
from dmcmc.run.metrics import Share, metrics_of, result_of
from dmcmc.run.progress import Progress, Silent
from dmcmc.run.setup import Task, prepare
from dmcmc.run.warm_up import warm_up_planning, warm_up_solving
from dmcmc.run.warm_up_gpu import warm_up_gpu

_GRACE = 0.5  # seconds beyond the deadline, and after Ctrl-C, to take in what the last slice of time has found


def solve(
    problem: Problem,
    config: Settings,
    world: World | None = None,
    progress: Progress | None = None,
    explain: Callable[[Task], None] | None = None,
) -> Result | None:
    """Solve a problem; called by every rank with the same arguments.

    Parameters
    ----------
    problem
        What to solve.
    config
        How.
    world
        The ranks, from :func:`dmcmc.mpi.world.connect`; this process alone if None.
    progress
        Told how far this rank is.
    explain
        Called on rank 0 with what was chosen, before the work begins; and again if some agents had to change.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a table does not fit the memory, or a method is not known; on every rank alike.
    """
    world, progress = world or World(), progress or Silent()
    if config.budget.time is not None:
        warm_up_planning(config, world, progress)
    start = time.perf_counter()
    task = prepare(problem, config, world)
    deadline, stop = None, NO_STOP
    if config.budget.time is not None:
        start += warm_up_solving(task, world, progress, solve) + warm_up_gpu(task, world, progress)
        deadline = start + config.budget.time
        stop = Stop(deadline)
    task = replace(task, backend=replace(task.backend, stop=stop))
    if explain is not None and world.rank == 0:
        explain(task)
    mine = [agent for agent, rank in enumerate(task.owner) if rank == world.rank]
    progress.stage("local tables", len(mine))
    with Interrupt(stop, armed=deadline is not None):
        chosen = task
        task, works, sides = first_work(task, world, mine, progress.advance)
        if explain is not None and world.rank == 0 and task is not chosen:
            explain(task)
        post, standing = Post(world, task.owner), Standing(task, start, deadline, progress.point)
        clocks = {agent: works[agent].table.seconds for agent in mine}
        sent: list[Mapping[int, Sent]] = []
        extra: list[Mapping[int, Sent]] = []
        cycles, pruned = 0, True
        while True:
            cycles += 1
            progress.stage("combining")
            exported = {agent: works[agent].exported() for agent in mine}
            begun = time.perf_counter()
            late = None if cycles == 1 else stop.later(_GRACE, longer=standing.combining)
            found = run_cycle(task, post, clocks, exported, sides, late)
            if isinstance(found, ResourceError):  # no time, or lists of rows took more memory than what they stand for
                standing.timed_out |= isinstance(found, OutOfTime)
                break
            cycle, tables, standing.combining = found, exported, time.perf_counter() - begun
            (sent if cycles == 1 else extra).extend(cycle.sent)
            order = _agree(world, cycle, works, standing, pruned, stop)
            if order.stop:
                break
            progress.stage(_progress_title(standing))
            rests: Mapping[int, UtilMessage] = {}
            if order.bounded:
                rests, down = run_outside(task, post, cycle, tables, sides.upper)
                extra.append(down)
            sides, pruned = improve_all(task, world, works, cycle, sides, rests, order)
            for agent in mine:
                clocks[agent] += works[agent].last
    metrics = {
        agent: metrics_of(
            task, agent, tables[agent], cycle.steps[agent], cycle.chosen[agent], world.rank,
            *([phase[agent] for phase in phases if agent in phase] for phases in (sent, extra)),
        )
        for agent in mine
    }  # fmt: skip
    shares = world.gather(Share(metrics, max(clocks.values(), default=0.0), opened()))
    if shares is None:
        return None
    return result_of(task, standing, shares, world.size, time.perf_counter() - start, cycles)


def _agree(
    world: World,
    cycle: Cycle,
    works: Mapping[int, AgentWork],
    standing: Standing,
    pruned: bool,
    stop: Stop,
) -> Order:
    """Let rank 0 take in what this cycle found, and tell all ranks whether to go on."""
    may_improve = any(work.may_improve for work in works.values())
    relaxed = any(step.upper is not None and step.upper.z is not None for step in cycle.steps.values())
    gathered = world.gather((cycle.values, cycle.roots, may_improve, relaxed, pruned, stop.asked))
    order: Order | None = None
    if gathered is not None:
        chosen: dict[int, int] = {}
        roots: dict[int, int | float | None] = {}
        for values, totals, *_ in gathered:
            chosen |= values
            roots |= totals
        assignment = np.array([chosen[v] for v in range(len(chosen))], dtype=np.int64)
        ordered = {agent: roots[agent] for agent in sorted(roots)}
        standing.update(assignment, ordered)
        may_improve, relaxed, pruned, asked = (any(share[i] for share in gathered) for i in range(2, 6))
        order = standing.order(ordered, may_improve, relaxed and pruned, asked)
    agreed: Order = world.bcast(order)
    return agreed


def _progress_title(standing: Standing) -> str:
    """Return what a user wants to see while it works on."""
    if standing.outcome is None:  # not rank 0
        return "improving"
    gap = standing.outcome.gap
    return f"improving: {standing.outcome.objective}, gap {'unknown' if gap is None else f'{100 * gap:.3g} %'}"
