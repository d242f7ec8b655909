"""Run a baseline algorithm of :mod:`dmcmc.algorithms`: in message cycles, or as a run on a reformulated problem."""

import msgspec

from dmcmc.algorithms import registry
from dmcmc.algorithms.contract import Rewriting, checked
from dmcmc.config.settings import Settings, settings_of
from dmcmc.files.document import Document
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run import solve as dmcmc_run
from dmcmc.run.algorithms.synchronous_cycles import solve_in_cycles
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Explain, ProgressReporter


def solve(
    problem: Problem | None,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None,
    explain: Explain | None,
    ending: RunHandle | None,
) -> Result | None:
    """Solve a problem with a baseline algorithm; the parameters are those of :func:`dmcmc.run.solve.solve`.

    Raises
    ------
    ConfigError
        On all ranks, if one of them has no problem, or a parameter is wrong.
    """
    algorithm_settings = settings.algorithm_settings
    rank_0_only = any(world.allgather(problem is None))  # on all ranks, which have to raise the error
    if problem is None or rank_0_only:
        name = algorithm_settings.name
        raise ConfigError(f"only rank 0 has the problem, but algorithm: {name} needs it on all ranks")
    algorithm = registry.get(algorithm_settings.name)
    values = checked(algorithm, algorithm_settings.parameters, "algorithm.parameters")
    if not isinstance(algorithm, Rewriting):
        return solve_in_cycles(algorithm, values, problem, settings, world, progress, ending)
    if algorithm_settings.cycles != "auto":
        raise ConfigError(f"algorithm.cycles: {algorithm.name} has none; leave it out")
    data = msgspec.to_builtins(settings) | {"algorithm": registry.OWN, "search": "none", "presolve": "none"}
    data.pop("problem", None)
    sections = {name: {**data[name], **keys} for name, keys in algorithm.sections(values).items()}
    changed = settings_of(Document("", data | sections))
    result = dmcmc_run.solve(algorithm.rewrite(problem), changed, world, progress, explain, ending)
    if result is None:
        return None
    config = msgspec.to_builtins(settings)
    return msgspec.structs.replace(result, provenance={**result.provenance, "config": config})
