"""Predict the cost of exact elimination by the agents of a division: joined cells, table entries, message sizes.

A *cell* is an entry of a joined table, which is the unit of work; an *entry* is an entry of a table in memory. An agent
first eliminates its hidden variables. In its UTIL step it joins the result with the crossing factors and its children's
messages, eliminates its interface, and sends the result (the UTIL message) to its parent. VALUE then chooses values
from the roots down.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import SHORT_BUDGET

if TYPE_CHECKING:
    from dmcmc.inference.dpop.pseudotree import PseudoTree


Scope = tuple[int, ...]


class AgentCost(NamedTuple):
    """The cost of exact elimination by one agent.

    Attributes
    ----------
    cells : float
        Joined cells: of its hidden variables' buckets, then of its interface's buckets with the children's messages.
    local_entries : float
        Table entries of the elimination of its hidden variables; 0 if that is not counted.
    step_entries : float
        Table entries of its UTIL step, which stay in memory until VALUE.
    message_cells : float
        Cells of its UTIL message.
    """

    cells: float
    local_entries: float
    step_entries: float
    message_cells: float


class DivisionCost(NamedTuple):
    """The cost of exact elimination by all agents.

    Attributes
    ----------
    cells : float
        Joined cells of all agents.
    message_cells : float
        Cells of the largest UTIL message.
    entries : float
        Table entries of the largest single elimination.
    """

    cells: float
    message_cells: float
    entries: float


def cost_of(problem: Problem, division: Division, tree: "PseudoTree") -> DivisionCost:
    """Return the cost of a division with a given pseudo-tree."""
    costs = agent_costs(problem, division, tree)
    return DivisionCost(
        sum(cost.cells for cost in costs),
        max((cost.message_cells for cost in costs), default=1.0),
        max((max(cost.local_entries, cost.step_entries) for cost in costs), default=0.0),
    )


def agent_costs(
    problem: Problem,
    division: Division,
    tree: "PseudoTree",
    interface_scopes: Mapping[int, Sequence[Scope]] | None = None,
    row_counts: Mapping[int, int] | None = None,
    stop: Deadline = NO_DEADLINE,
) -> list[AgentCost]:
    """Return the cost per agent, for the agents' exact UTIL steps in the order of the tree.

    Parameters
    ----------
    problem, division, tree
        The problem, its division and the agents' pseudo-tree.
    interface_scopes
        Scopes of the tables over some agents' interfaces; the elimination of these agents' hidden variables is not
        counted.
    row_counts
        Number of rows for the agents whose interface is one variable over a list of rows.
    stop
        Deadline, checked before each agent.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    interface_scopes, row_counts = interface_scopes or {}, row_counts or {}
    n, costs = problem.n_variables, [AgentCost(0.0, 0.0, 0.0, 1.0)] * problem.n_agents
    sizes = np.concatenate([problem.domains, [max(1, row_counts.get(a, 1)) for a in range(problem.n_agents)]])
    row_variable = {v: n + a for a in row_counts for v in division.locals[a].interface}
    message_scopes: dict[int, list[Scope]] = {}

    def replace_rows(scope: Sequence[int]) -> Scope:
        """Replace the interface variables of agents with row lists by the variable over that agent's rows."""
        return tuple(dict.fromkeys(row_variable.get(v, v) for v in scope))

    def plan_for(scopes: Sequence[Scope], eliminated: Scope, keep: Scope) -> EliminationPlan:
        """Plan the elimination of the variables ``eliminated`` from tables over ``scopes``, with ``keep`` remaining."""
        order = best_order(scopes, sizes, eliminated, keep, budget=SHORT_BUDGET).variables
        return plan_elimination(scopes, sizes, order, keep)

    for agent in tree.bottom_up:
        stop.check()
        local, interface, separator = division.locals[agent], division.locals[agent].interface, tree.separators[agent]
        cells = entries = 0.0
        if agent in interface_scopes:
            scopes = [replace_rows(scope) for scope in interface_scopes[agent]]
        else:
            local_plan = plan_for([f.scope for f in local.factors], local.hidden, interface)
            cells = float(local_plan.cells)
            entries = float(local_plan.entries)
            scopes = [replace_rows(local_plan.scope(t)) for t in local_plan.remaining]
        scopes += [replace_rows(division.crossing[i].scope) for i in tree.placed[agent]]
        scopes += [scope for child in tree.children[agent] for scope in message_scopes[child]]
        plan = plan_for(maximal_scopes(scopes), replace_rows(interface), replace_rows(separator))
        message_scopes[agent] = maximal_scopes([plan.scope(t) for t in plan.remaining])
        message = sum(_cells(sizes, scope) for scope in message_scopes[agent])
        costs[agent] = AgentCost(cells + plan.cells, entries, float(plan.entries), message)
    return costs


def _cells(sizes: Ints, scope: Scope) -> float:
    """Return the cells of a table over a scope, cut off at 1e300 so that sums of them stay finite."""
    return min(1e300, prod(float(sizes[v]) for v in scope))


def maximal_scopes(scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes that no other scope contains.

    Each scope is compared only with the larger scopes of its rarest variable.
    """
    maximal, all_sets, containing = list[Scope](), list[frozenset[int]](), dict[int, list[frozenset[int]]]()
    for scope in sorted(set(scopes), key=lambda s: (-len(s), s)):
        members = frozenset(scope)
        larger = min((containing.get(v, []) for v in scope), key=len, default=all_sets)
        if not any(members <= larger_scope for larger_scope in larger):
            maximal.append(scope)
            all_sets.append(members)
            for v in scope:
                containing.setdefault(v, []).append(members)
    return maximal
