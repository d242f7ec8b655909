"""The utility of an assignment, agent by agent, so that only the agents with a change are evaluated again."""

from collections.abc import Mapping
from typing import NamedTuple

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Exact, exact_sum


class AgentUtility(NamedTuple):
    """The utility of the factors that one agent evaluates: its own, and those between agents that are placed at it.

    Attributes
    ----------
    violations : int
        Number of forbidden entries.
    utility : int or Fraction
        Exact sum of the other entries.
    """

    violations: int = 0
    utility: Exact = 0

    def plus(self, other: "AgentUtility", sign: int = 1) -> "AgentUtility":
        """Return the sum with another utility, or the difference if ``sign`` is −1."""
        return AgentUtility(self.violations + sign * other.violations, self.utility + sign * other.utility)


def agent_utility(
    division: Division, tree: PseudoTree, agent: int, values: Mapping[int, int], context: Mapping[int, int]
) -> AgentUtility:
    """Return the utility of the factors that an agent evaluates.

    Parameters
    ----------
    division
        The divided problem.
    tree
        The agents' pseudo-tree, by which factors between agents are placed.
    agent
        The agent.
    values
        The values of its variables; others are ignored.
    context
        The values of its separator.
    """
    local = division.locals[agent]
    known = {**context, **{v: values[v] for v in (*local.interface, *local.hidden)}}
    factors = [*local.factors, *(division.crossing[i] for i in tree.placed[agent])]
    entries = [factor.entry([known[v] for v in factor.scope]) for factor in factors]
    return AgentUtility(sum(entry is None for entry in entries), exact_sum(e for e in entries if e is not None))
