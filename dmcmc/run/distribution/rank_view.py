"""The problem as one rank knows it: its agents' parts, and of all others what everybody may know.

Variables and agents have their numbers in the whole problem. A variable that is hidden in somebody else's agent has a
number and nothing more: one value, no name, no factor.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.agent_files import Index
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.model.compact_sequences import Made
from dmcmc.inference.model.problem import Factor, Label, Problem


class View(NamedTuple):
    """What a rank knows.

    Attributes
    ----------
    problem : Problem
        Its factors are those of this rank's agents.
    division : Division
        All agents; others have no factors. Factors between agents that this rank has no part in are all 0.
    """

    problem: Problem
    division: Division

    def counted(self, agents: Sequence[int], placed: Sequence[Sequence[int]]) -> list[Factor]:
        """Return the factors that some agents answer for: their own, and those between agents placed at them."""
        own = [factor for agent in agents for factor in self.division.locals[agent].factors]
        return own + [self.division.crossing[i] for agent in agents for i in placed[agent]]


def view_of(index: Index, parts: Mapping[int, Problem]) -> View:
    """Put this rank's agents' parts together.

    Parameters
    ----------
    parts
        Of this rank's agents.
    """
    domains = index.domains.copy()  # one that can be written to: plans take it as it is
    names: dict[int, str] = {}
    labels: dict[int, tuple[Label, ...] | None] = {}
    own: dict[int, tuple[Factor, ...]] = {}
    crossing: dict[int, Factor] = {}
    for agent, part in parts.items():
        known = index.variables(agent)
        domains[known] = part.domains
        for v, name, values in zip(known, part.variables, part.labels, strict=True):
            names[v] = name
            if values is not None and index.owner[v] == agent:
                labels[v] = values
        factors = [f.renamed(tuple(known[v] for v in f.scope), f.name) for f in part.factors]
        inside = set(index.own[agent])
        own[agent] = tuple(f for f in factors if inside.issuperset(f.scope))
        between = [f for f in factors if not inside.issuperset(f.scope)]
        crossing |= dict(zip(index.shared[agent], between, strict=True))
    count = index.owner.size
    problem = Problem.of_parts(
        variables=Made(count, lambda v: f"#{v} of {index.agents[int(index.owner[v])]}", names),
        domains=domains,
        agents=index.agents,
        owner=index.owner,
        factors=(*(f for agent in own for f in own[agent]), *crossing.values(), *index.constant_factors()),
        labels=Made[tuple[Label, ...] | None](count, lambda _: None, labels),
        sense=index.sense,
        name=index.name,
    )
    return View(problem, _division(index, problem, own, crossing))


def _division(
    index: Index, problem: Problem, own: Mapping[int, tuple[Factor, ...]], crossing: Mapping[int, Factor]
) -> Division:
    """Return all agents, with what is known of each."""
    nothing: dict[tuple[int, ...], NDArray[np.int32]] = {}

    def local(agent: int) -> LocalProblem:
        variables, shared = index.own[agent], index.is_shared
        return LocalProblem(
            agent=agent,
            interface=tuple([v for v in variables if shared[v]]),
            hidden=tuple([v for v in variables if not shared[v]]),
            factors=own.get(agent, ()),
            domains=problem.domains,
        )

    def unknown(number: int) -> Factor:
        return _unknown(index.crossing[number], problem.domains, nothing)

    division = Division(
        locals=Made(len(index.agents), local, {agent: local(agent) for agent in own}),
        crossing=Made(len(index.crossing), unknown, crossing),
        constants=index.constant_factors(),
    )
    division.take_scopes(index.crossing)
    return division


def _unknown(
    scope: tuple[int, ...], domains: NDArray[np.int64], nothing: dict[tuple[int, ...], NDArray[np.int32]]
) -> Factor:
    """Return a factor in place of one that is nobody's here; its table takes no memory."""
    shape = tuple(domains[list(scope)].tolist())
    if shape not in nothing:
        nothing[shape] = np.broadcast_to(np.int32(0), shape)
    return Factor(scope, nothing[shape])
