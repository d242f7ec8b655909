"""Read the inputs of a private run, and refuse settings that need the whole problem on one rank."""

import os

from dmcmc.algorithms import registry
from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import AgentIndex, read_index
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.mpi.world import World
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.private.rank_inputs import RankInputs


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
