"""Solve a problem with private inputs within a time budget, for :mod:`dmcmc.run.solve_directory`."""

from collections.abc import Mapping
from dataclasses import replace

from dmcmc.anytime.improve_until_stop import improve_until_stop
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.compilation.gpu.prepare_gpu import prepare_agents
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.run.solve_tiny import solve_tiny
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Watch
from dmcmc.solving.planning.divided_problem import work_deadline
from dmcmc.solving.private.private_inputs import PrivateInputs
from dmcmc.solving.private.rank_inputs import RankInputs
from dmcmc.solving.warm_start.retained_work import RetainedWork


def solve_inputs_in_time(
    inputs: RankInputs,
    world: World,
    watch: Watch,
    kernels: KernelSupply,
    start: float,
    share_assignment: bool,
    retained: RetainedWork | None,
    known: Mapping[int, int] | None,
) -> tuple[Result | None, PrivateInputs]:
    """Combine and improve tables until the time is over or the goal is reached."""
    seconds, handle = inputs.config.budget.time or 0.0, watch.handle or RunHandle()
    stop = Deadline(work_deadline(start, seconds, len(inputs.index.agents)), cancellation=handle.cancellation)
    kernels.stop = stop
    try:
        setup, factors = inputs.plan(world, stop, retained)
    except OutOfTime as error:  # an answer needs a plan, also after the deadline
        if not world.is_agreed(error):
            raise
        setup, factors = inputs.plan(world, NO_DEADLINE, retained)
    prepared = prepare_agents(setup, world, watch.progress, kernels, solve_tiny)
    setup, compile_seconds, is_ready, next_plan = prepared
    start, stop = start + compile_seconds, replace(stop, until=stop.until + compile_seconds)
    setup = setup.with_stop(stop)
    coordinator = inputs.coordinator(world, setup, factors, start, watch.progress.point, share_assignment)
    with handle.deliver_if_late(stop):
        coordinator.take_initial(setup)
        if known is not None:
            coordinator.take(dict(known))
    handle.save_partial = coordinator.save_partial
    result = improve_until_stop(setup, coordinator, None, watch.with_handle(handle), is_ready, next_plan=next_plan)
    return coordinator.with_moves(result), coordinator
