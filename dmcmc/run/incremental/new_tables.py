"""Make the exact tables of agents with new local problems."""

from collections.abc import Iterable

from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.planning.setup import Setup


def new_tables(setup: Setup, changed: Iterable[int], rank: int) -> dict[int, SampledTable]:
    """Return the exact tables of a rank's agents whose own factors or variables have changed."""
    agents = sorted(agent for agent in changed if setup.owner[agent] == rank)
    pairs = [(setup.division.locals[agent], setup.choices[agent].seconds) for agent in agents]
    found = eliminate_in_turn(pairs, setup.sampling_settings(), timed=False)
    if found.given_up:
        raise OutOfMemory("the tables of the changed agents do not fit the time or the memory")
    if setup.retained is not None:
        for local, _ in pairs:
            name = setup.problem.agents[local.agent]
            setup.retained.keep_table(name, local, setup.arithmetic, found.tables[local.agent])
    return found.tables
