"""Solve a problem of which each rank reads only its own agents' parts (a private run).

The pipeline is that of a problem of one file: with a fixed amount of work, or with a time budget. The ranks agree on
the answer in another way (:mod:`dmcmc.solving.private.private_inputs`), and no factor leaves its rank. There are no
searches over the whole assignment; the improvers sample tables further, tighten bounds and eliminate exactly.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import msgspec

from dmcmc.algorithms import registry
from dmcmc.anytime.rank_run import NextPlan, SliceEnd, improve_until_stop
from dmcmc.anytime.solve import solve_tiny
from dmcmc.compilation.run_components import PlanComponents, RunComponents
from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import AgentIndex, read_index
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.samplers.local_search.local_search import Ascent, UncompiledAscent, ascent_of
from dmcmc.solving.observe import NoProgress, ProgressReporter, RunHandle, Watch
from dmcmc.solving.planning.divided_problem import DividedProblem, with_memory_limit, work_deadline
from dmcmc.solving.private.private_inputs import PrivateAnswer, PrivateInputs, RankInputs
from dmcmc.solving.solve import carry_out
from dmcmc.solving.warm_start.retained_work import RetainedWork


def read_inputs(folder: str | os.PathLike[str], settings: Settings, world: World) -> RankInputs:
    """Read the files of this rank's agents, for a session; called by all ranks.

    Raises
    ------
    DmcmcError
        If a file is wrong, or a setting needs the whole problem.
    """
    index = allowed_index(folder, settings, world)
    return RankInputs.read(folder, index, with_memory_limit(settings, world), world)


def allowed_index(folder: str | os.PathLike[str], settings: Settings, world: World) -> AgentIndex:
    """Return the public data of all agents, if the settings are possible without the whole problem on one rank."""
    _refuse(settings)
    return world.on_first_rank(lambda: read_index(folder))


def _refuse(config: Settings) -> None:
    """Raise an error for settings that need the whole problem on one rank."""
    if config.local.order is not None:
        raise Unavailable("problem.directory: agents find their orders themselves; leave local.order out")
    if (algorithm_name := config.algorithm_settings.name) != registry.OWN:
        raise Unavailable(f"problem.directory: is solved by {registry.OWN}, not {algorithm_name}; leave algorithm out")
    if isinstance(config.start, dict):
        raise Unavailable("problem.directory: start: is the folder of agents' values that an earlier run has written")
    if config.search not in ("auto", "none"):
        raise Unavailable(f"problem.directory: search: {config.search} needs the whole problem; give problem.file")


def solve_directory(
    folder: str | os.PathLike[str],
    config: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    share_assignment: bool = False,
    ending: RunHandle | None = None,
) -> Result | None:
    """Solve a problem that ``dmcmc split`` has written; called by every rank with the same arguments.

    Parameters
    ----------
    folder
        Folder of the agents' files. Rank 0 reads the index, every rank its own agents' files.
    config
        Settings of the run.
    world
        The ranks; this process alone if None.
    progress
        Receives this rank's progress.
    share_assignment
        Whether to gather the assignment. Otherwise each rank keeps its agents' values, and writes one file per agent
        into a folder next to ``config.output``, if that is given.
    ending
        As for :func:`dmcmc.anytime.solve.solve`. A result that is delivered early, without other ranks, has no
        assignment; each rank then writes its agents' values next to ``config.output``.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a file is wrong or a table does not fit the memory; raised on every rank.
    """
    world, progress = world or World(), progress or NoProgress()
    try:
        index = allowed_index(folder, config, world)
        config = with_memory_limit(config, world)
        with (
            MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()),
            RunComponents(world, config, progress, solve_tiny) as components,
        ):
            components.begin_private()
            start = time.perf_counter()
            inputs = RankInputs.read(folder, index, config, world)
            watch = Watch(progress, handle=ending, handles_signals=ending is not None)
            return solve_inputs(inputs, world, watch, components, start, share_assignment).result
    except BaseException as error:
        world.abort_on_exit(error)
        raise


def solve_parts(
    inputs: RankInputs,
    parts: Mapping[int, Problem],
    settings: Settings,
    world: World,
    share_assignment: bool,
    retained: RetainedWork,
    known: Mapping[int, int] | None,
) -> tuple[RankInputs, PrivateAnswer]:
    """Solve a problem of a session, of which the ranks have changed their parts; called by all ranks.

    Parameters
    ----------
    inputs
        The inputs of an earlier run.
    parts
        The problems of this rank's agents.
    settings
        Settings of the run.
    world, share_assignment, retained, known
        As for :func:`solve_inputs`.

    Returns
    -------
    RankInputs, PrivateAnswer
        The present inputs, and the answer as this rank knows it.
    """
    config = with_memory_limit(settings, world)
    with (
        MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()),
        RunComponents(world, config, NoProgress(), solve_tiny) as components,
    ):
        components.begin_private()
        start = time.perf_counter()
        inputs = inputs.with_parts(parts, config, world)
        given = inputs, world, Watch(NoProgress()), components, start, share_assignment, retained, known
        return inputs, solve_inputs(*given)


def solve_inputs(
    inputs: RankInputs,
    world: World,
    watch: Watch,
    components: RunComponents,
    start: float,
    share_assignment: bool,
    retained: RetainedWork | None = None,
    known: Mapping[int, int] | None = None,
) -> PrivateAnswer:
    """Solve a problem whose parts the ranks have read; called by all ranks.

    Parameters
    ----------
    inputs
        The parts of this rank's agents.
    world
        The ranks.
    watch
        The observer of the run.
    components
        The components of the run.
    start
        Time at which the run's clock started (``time.perf_counter``).
    share_assignment
        Whether rank 0 gathers the assignment.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.
    known
        An assignment to start from, as this rank knows it, in a run with a time budget; None on all ranks without one.
    """
    if inputs.config.budget.time is None:
        result, coordinator = _solve(inputs, world, watch, components, start, share_assignment, retained)
    else:
        given = inputs, world, watch, components, start, share_assignment, retained, known
        result, coordinator = solve_inputs_in_time(*given)
    seconds = sum(world.allgather(components.seconds))
    result = None if result is None else msgspec.structs.replace(result, time_compiling=seconds)
    by_agent = coordinator.storage.by_name(coordinator.known) if coordinator.known else {}
    own = {name: value for values in by_agent.values() for name, value in values.items()}
    return PrivateAnswer(result, coordinator.known, own, coordinator.factors)


def _solve(
    inputs: RankInputs,
    world: World,
    watch: Watch,
    components: RunComponents,
    start: float,
    share_assignment: bool,
    retained: RetainedWork | None,
) -> tuple[Result | None, PrivateInputs]:
    """Solve with a fixed amount of work."""
    divided, factors = inputs.divided(world, retained)
    setup = inputs.plan(divided, world, NO_DEADLINE)
    coordinator = inputs.coordinator(world, setup.divided, factors, start, None, watch.progress.point, share_assignment)
    watch = components.ahead(watch, can_end_early=False)
    return coordinator.with_moves(carry_out(setup, coordinator, watch)), coordinator


def solve_inputs_in_time(
    inputs: RankInputs,
    world: World,
    watch: Watch,
    components: RunComponents,
    start: float,
    share_assignment: bool,
    retained: RetainedWork | None,
    known: Mapping[int, int] | None,
) -> tuple[Result | None, PrivateInputs]:
    """Combine and improve tables until the time is over or the goal is reached."""
    seconds, handle = inputs.config.budget.time or 0.0, watch.handle or RunHandle()
    stop = Deadline(work_deadline(start, seconds, len(inputs.index.agents)), cancellation=handle.cancellation)
    components.stop = stop
    divided, factors = inputs.divided(world, retained)
    report = watch.progress.point

    def begun(divided: DividedProblem, start: float, stop: Deadline) -> PrivateInputs:
        """Return the coordinator, with an assignment that every rank has found in its own factors."""
        coordinator = inputs.coordinator(world, divided, factors, start, stop.until, report, share_assignment)
        with handle.deliver_if_late(stop):
            coordinator.take_initial(_ascent(inputs.view.problem, components, stop))
            if known is not None:
                coordinator.take(dict(known))
        handle.save_partial = coordinator.save_partial
        return coordinator

    try:
        setup = inputs.plan(divided, world, stop)
    except OutOfTime as error:
        if not world.is_agreed(error):
            raise
        coordinator = begun(divided, start, stop)
        return coordinator.with_moves(coordinator.result_without_plan()), coordinator
    setup, seconds, gpu, goes_on_with_gpu = components.open_gpu(setup, watch.progress)
    delays = [seconds]
    methods = PlanComponents(components, setup, delay=delays.append, gpu=gpu)
    methods.request()
    next_plan = None
    if gpu is not None and goes_on_with_gpu:
        next_plan = NextPlan(gpu.next_plan, SliceEnd(stop.cancellation, gpu.loaded))
        stop = replace(stop, cancellation=next_plan.slice_end)
    start, stop = start + sum(delays), replace(stop, until=stop.until + sum(delays))
    setup = setup.with_stop(stop)
    coordinator = begun(setup.divided, start, stop)
    result = improve_until_stop(
        setup, coordinator, None, watch.with_handle(handle), methods.is_ready, next_plan=next_plan
    )
    return coordinator.with_moves(result), coordinator


def _ascent(problem: Problem, components: RunComponents, stop: Deadline) -> Ascent:
    """Return hill climbing on the factors that a rank knows: with kernels if they are compiled or there is time."""
    if problem.tabular and not components.is_first_search_ready(problem):
        return UncompiledAscent(problem, stop)
    threads = max(1, cores() // components.world.core_sharers)
    return ascent_of(problem, threads, stop, partial(components.is_first_search_ready, problem))
