"""The problem as one rank knows it: its agents' parts, and the public data of all other agents.

Variables and agents have the same numbers as in the whole problem. A hidden variable of another rank's agent has only
a number: its domain has one value, and it has no name and no factor.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.model.problem import Factor, Label, Problem

if TYPE_CHECKING:
    from dmcmc.formats.agent_files import AgentIndex


class RankView(NamedTuple):
    """A rank's knowledge of the problem.

    Attributes
    ----------
    problem : Problem
        The problem with the factors of this rank's agents only.
    division : Division
        All agents; those of other ranks have no factors. Unknown factors between agents are replaced by zero tables.
    """

    problem: Problem
    division: Division

    def counted(self, agents: Sequence[int], placed: Sequence[Sequence[int]]) -> list[Factor]:
        """Return the factors that some agents evaluate, so that each factor of the problem is evaluated by one agent.

        They are the agents' own factors, and those between agents that are placed at them (``PseudoTree.placed``).
        """
        own = [factor for agent in agents for factor in self.division.locals[agent].factors]
        return own + [self.division.crossing[i] for agent in agents for i in placed[agent]]


def rank_view_of(index: "AgentIndex", parts: Mapping[int, Problem], constants: tuple[Factor, ...] = ()) -> RankView:
    """Return the problem as this rank knows it.

    Parameters
    ----------
    index
        Public data of all agents: names, owners and domains of shared variables, scopes of factors between agents.
    parts
        Problem of each agent of this rank.
    constants
        Further factors without variables, besides those of the index.
    """
    constants = (*index.constant_factors(), *constants)
    domains = index.domains.copy()  # a writable copy, which plans use directly
    names: dict[int, str] = {}
    labels: dict[int, tuple[Label, ...] | None] = {}
    own_factors: dict[int, tuple[Factor, ...]] = {}
    crossing: dict[int, Factor] = {}
    for agent, part in parts.items():
        known_variables = index.known_variables(agent)
        domains[known_variables] = part.domains
        for v, name, values in zip(known_variables, part.variables, part.labels, strict=True):
            names[v] = name
            if values is not None and index.owner[v] == agent:
                labels[v] = values
        factors = [f.renamed(tuple(known_variables[v] for v in f.scope), f.name) for f in part.factors]
        own_variables = set(index.variables_by_agent[agent])
        own_factors[agent] = tuple(f for f in factors if own_variables.issuperset(f.scope))
        crossing_factors = [f for f in factors if not own_variables.issuperset(f.scope)]
        crossing |= dict(zip(index.shared_factors[agent], crossing_factors, strict=True))
    count = index.owner.size
    problem = Problem.of_parts(
        variables=LazySequence(count, lambda v: f"#{v} of {index.agents[int(index.owner[v])]}", names),
        domains=domains,
        agents=index.agents,
        owner=index.owner,
        factors=(
            *(f for agent in own_factors for f in own_factors[agent]),
            *crossing.values(),
            *constants,
        ),
        labels=LazySequence[tuple[Label, ...] | None](count, lambda _: None, labels),
        sense=index.sense,
        name=index.name,
    )
    return RankView(problem, _division(index, problem, own_factors, crossing, constants))


def _division(
    index: "AgentIndex",
    problem: Problem,
    own: Mapping[int, tuple[Factor, ...]],
    crossing: Mapping[int, Factor],
    constants: tuple[Factor, ...],
) -> Division:
    """Return the division into all agents, with what this rank knows of each."""
    zero_tables: dict[tuple[int, ...], NDArray[np.int32]] = {}

    def local(agent: int) -> LocalProblem:
        variables, shared = index.variables_by_agent[agent], index.is_shared
        return LocalProblem(
            agent=agent,
            interface=tuple([v for v in variables if shared[v]]),
            hidden=tuple([v for v in variables if not shared[v]]),
            factors=own.get(agent, ()),
            domains=problem.domains,
        )

    def unknown(number: int) -> Factor:
        return _unknown(index.shared_scopes[number], problem.domains, zero_tables)

    division = Division(
        locals=LazySequence(len(index.agents), local, {agent: local(agent) for agent in own}),
        crossing=LazySequence(len(index.shared_scopes), unknown, crossing),
        constants=constants,
    )
    division.set_scopes(index.shared_scopes)
    return division


def _unknown(
    scope: tuple[int, ...], domains: NDArray[np.int64], zero_tables: dict[tuple[int, ...], NDArray[np.int32]]
) -> Factor:
    """Return a zero factor in place of one that this rank does not know; its table takes no memory."""
    shape = tuple(domains[list(scope)].tolist())
    if shape not in zero_tables:
        zero_tables[shape] = np.broadcast_to(np.int32(0), shape)
    return Factor(scope, zero_tables[shape])
