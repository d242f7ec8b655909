"""Which algorithm a run is: this project's own way, or another one."""

from collections.abc import Callable

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run import solve as own
from dmcmc.run.monitoring.interrupt import Ending
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.setup import Setup


def solve(
    problem: Problem | None,
    settings: Settings,
    world: World | None = None,
    progress: Progress | None = None,
    explain: Callable[[Setup], None] | None = None,
    ending: Ending | None = None,
) -> Result | None:
    """Solve a problem with the algorithm that the settings name; called by every rank with the same arguments.

    Parameters and what is returned and raised are those of :func:`dmcmc.run.solve.solve`.
    """
    if settings.asked_algorithm.name == "dmcmc":
        return own.solve(problem, settings, world, progress, explain, ending)
    lacking = problem is None if world is None else any(world.allgather(problem is None))  # an error on all ranks alike
    if problem is None or lacking:
        name = settings.asked_algorithm.name
        raise ConfigError(f"rank 0 alone has the problem: algorithm: {name} needs it on every rank")
    from dmcmc.run.algorithms import run_algorithm  # what compiles other algorithms is not needed for ours

    return run_algorithm.solve(problem, settings, world, progress, explain, ending)
