"""Runs of other algorithms than this project's own: cycles, or our own way on a problem made anew."""

from collections.abc import Callable

import msgspec

from dmcmc.algorithms import registry
from dmcmc.algorithms.contract import Rewriting, checked
from dmcmc.config.document import Document
from dmcmc.config.settings import Settings, settings_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run import solve as own
from dmcmc.run.algorithms.synchronous_cycles import solve_in_cycles
from dmcmc.run.monitoring.interrupt import Ending
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.setup import Setup


def solve(
    problem: Problem,
    settings: Settings,
    world: World | None,
    progress: Progress | None,
    explain: Callable[[Setup], None] | None,
    ending: Ending | None,
) -> Result | None:
    """Solve a problem with another algorithm; parameters are those of :func:`dmcmc.run.solve.solve`."""
    asked = settings.asked_algorithm
    algorithm = registry.get(asked.name)
    values = checked(algorithm, asked.parameters, "algorithm.parameters")
    if not isinstance(algorithm, Rewriting):
        return solve_in_cycles(algorithm, values, problem, settings, world, progress, ending)
    if asked.cycles != "auto":
        raise ConfigError(f"algorithm.cycles: {algorithm.name} has none; leave it out")
    data = msgspec.to_builtins(settings) | {"algorithm": registry.OWN, "search": "none", "reduce": "none"}
    data.pop("problem", None)
    sections = {name: {**data[name], **keys} for name, keys in algorithm.sections(values).items()}
    changed = settings_of(Document("", data | sections))
    found = own.solve(algorithm.rewrite(problem), changed, world, progress, explain, ending)
    if found is None:
        return None
    config = msgspec.to_builtins(settings)
    return msgspec.structs.replace(found, provenance={**found.provenance, "config": config})
