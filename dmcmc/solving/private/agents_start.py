"""The start of a private run: each rank reads its agents' values, and adds their costs of moving.

The start is the folder of agents' values that an earlier run has written next to its output file. Of the costs of
moving, other ranks learn the sum over all agents, and the number of variables that moved.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.files.write import plain_json
from dmcmc.formats.agent_files import AgentIndex, values_file
from dmcmc.inference.model.arithmetic import nearest
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.mpi.world import World
from dmcmc.results.result import Moves, Result
from dmcmc.solving.warm_start.moving_costs import MovingCosts, Weight, without_cost
from dmcmc.solving.warm_start.start_assignment import NO_VALUE, value_indices


class AgentsStart:
    """The start of some agents, which no other rank knows.

    Parameters
    ----------
    index : AgentIndex
        Public data of all agents.
    parts : dict of int to Problem
        The problems of the agents.
    settings : Settings
        Settings with ``start`` and ``stay``.

    Raises
    ------
    DmcmcError
        If a file cannot be read, or has an unknown variable or value.
    """

    def __init__(self, index: AgentIndex, parts: Mapping[int, Problem], settings: Settings) -> None:
        if settings.stay is not None and settings.start is None:
            raise ConfigError("stay: needs an assignment to stay close to; give start")
        self._index, self._stay = index, settings.stay
        self._costs = dict[int, MovingCosts]()
        for agent, part in parts.items() if settings.start is not None else ():
            start = _own_values(index, agent, part, str(settings.start))
            weight: Weight = 0 if settings.stay is None else settings.stay.weight
            by_name = weight if isinstance(weight, Mapping) else dict.fromkeys(part.variables, weight)
            self._costs[agent] = MovingCosts(part, start, [by_name.get(name, 0) for name in part.variables])

    def with_costs(self, parts: Mapping[int, Problem]) -> dict[int, Problem]:
        """Return the agents' problems with the costs of moving their own variables."""
        if self._stay is None:
            return dict(parts)
        return {agent: self._costs[agent].problem for agent in parts}

    def values(self, agents: Iterable[int]) -> dict[int, int]:
        """Return the values of some agents' own variables in the start, by the numbers of the variables."""
        found = dict[int, int]()
        for agent in agents if self._costs else ():
            numbered = zip(self._index.known_variables(agent), self._costs[agent].start, strict=True)
            found |= {v: value for v, value in numbered if value != NO_VALUE}
        return found

    def report(
        self, result: Result | None, mine: list[int], values: Mapping[int, int], share_assignment: bool, world: World
    ) -> Result | None:
        """Return the result of rank 0 together with what moved; called by all ranks.

        Parameters
        ----------
        result
            The result on rank 0, None on the others.
        mine
            The agents of this rank.
        values
            The values of the variables that this rank knows.
        share_assignment
            Whether rank 0 may know which variables moved.
        world
            The ranks.
        """
        if self._stay is None:
            return result
        cost, count, names = Fraction(0), 0, dict[str, Label]()
        for agent in mine if values else ():
            costs, known = self._costs[agent], self._index.known_variables(agent)
            moved = costs.moved({position: values[v] for position, v in enumerate(known) if v in values})
            cost, count = cost + costs.cost(moved), count + len(moved)
            names |= costs.former_values(moved) if share_assignment else {}
        parts = world.gather((cost, count, names))
        if parts is None or result is None or result.status == "infeasible":
            return result
        total = sum(part[0] for part in parts)
        exact = int(total) if total.denominator == 1 else total
        moves = Moves(
            objective=without_cost(result.objective, exact, result.sense),
            cost=nearest(exact),
            count=sum(part[1] for part in parts),
            moved={name: value for part in parts for name, value in part[2].items()},
        )
        return msgspec.structs.replace(result, moves=moves)


def _own_values(index: AgentIndex, agent: int, part: Problem, folder: str) -> list[int]:
    """Return the start of an agent's problem: value indices of the agent's variables, and −1 for the others."""
    path = values_file(folder, agent)
    try:
        data = plain_json(path.read_bytes())
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise FileError(f"{path}: is not JSON: {' '.join(str(error).split())}") from None
    name = index.agents[agent]
    if not isinstance(data, dict) or data.get("agent") != name or not isinstance(data.get("assignment"), dict):
        raise FileError(f"{path}: is not a file with the values of agent {name!r}")
    values = value_indices(part, data["assignment"], str(path)).tolist()
    owned = set(index.variables_by_agent[agent])
    return [x if v in owned else NO_VALUE for v, x in zip(index.known_variables(agent), values, strict=True)]
