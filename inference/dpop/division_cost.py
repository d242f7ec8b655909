"""What a division among agents makes of a problem, before any work: cells that are joined, tables, messages."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.division import Division, divide
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.types import Ints

_SEARCH = 100_000  # words of search for an agent's order: some tenths of a millisecond

Scope = tuple[int, ...]


class AgentCost(NamedTuple):
    """What exact elimination takes an agent.

    Attributes
    ----------
    cells : float
        That it joins: of its hidden variables, then of its interface with its children's messages.
    local : float
        Entries of the tables of its own elimination; 0 where that is not made.
    step : float
        Entries of the tables of its UTIL step, which are kept until VALUE.
    message : float
        Cells of its UTIL message.
    """

    cells: float
    local: float
    step: float
    message: float


class DivisionCost(NamedTuple):
    """What exact elimination takes all agents.

    Attributes
    ----------
    cells : float
        Joined by all.
    message : float
        Cells of the largest UTIL message.
    entries : float
        Of the tables of the elimination that has most of them.
    """

    cells: float
    message: float
    entries: float


def division_cost(problem: Problem) -> DivisionCost:
    """Return what the agents that a problem has make of it; orders are searched for briefly."""
    division = divide(problem)
    return cost_of(problem, division, build_pseudotree(problem, division))


def cost_of(problem: Problem, division: Division, tree: PseudoTree) -> DivisionCost:
    """Return what a division and a pseudo-tree make of a problem."""
    costs = agent_costs(problem, division, tree)
    return DivisionCost(
        sum(cost.cells for cost in costs),
        max((cost.message for cost in costs), default=1.0),
        max((max(cost.local, cost.step) for cost in costs), default=0.0),
    )


def agent_costs(
    problem: Problem,
    division: Division,
    tree: PseudoTree,
    known: Mapping[int, Sequence[Scope]] | None = None,
    listed: Mapping[int, int] | None = None,
) -> list[AgentCost]:
    """Return what each agent takes.

    Parameters
    ----------
    known
        Scopes of the tables over agents' interfaces, where their own eliminations are not to be counted.
    listed
        Rows of agents whose tables are over lists of them.
    """
    known, listed = known or {}, listed or {}
    n, costs = problem.n_variables, [AgentCost(0.0, 0.0, 0.0, 1.0)] * problem.n_agents
    sizes = np.concatenate([problem.domains, [max(1, listed.get(a, 1)) for a in range(problem.n_agents)]])
    lists = {v: n + a for a in listed for v in division.locals[a].interface}
    sent: dict[int, list[Scope]] = {}

    def read(scope: Sequence[int]) -> Scope:
        """Return a scope with the variables of lists of rows in place of those that they list."""
        return tuple(dict.fromkeys(lists.get(v, v) for v in scope))

    def planned(scopes: Sequence[Scope], away: Scope, keep: Scope) -> Plan:
        order = best_order(scopes, sizes, away, keep, budget=_SEARCH).variables
        return plan_elimination(scopes, sizes, order, keep)

    for agent in tree.bottom_up:
        local, interface, separator = division.locals[agent], division.locals[agent].interface, tree.separators[agent]
        cells = entries = 0.0
        if agent in known:
            scopes = [read(scope) for scope in known[agent]]
        else:
            own = planned([f.scope for f in local.factors], local.hidden, interface)
            cells, entries, scopes = float(own.cells), float(own.entries), [read(own.scope(t)) for t in own.remaining]
        scopes += [read(division.crossing[i].scope) for i in tree.placed[agent]]
        scopes += [scope for child in tree.children[agent] for scope in sent[child]]
        plan = planned(_maximal(scopes), read(interface), read(separator))
        sent[agent] = _maximal([plan.scope(t) for t in plan.remaining])
        message = sum(_cells(sizes, scope) for scope in sent[agent])
        costs[agent] = AgentCost(cells + plan.cells, entries, float(plan.entries), message)
    return costs


def _cells(sizes: Ints, scope: Scope) -> float:
    """Return the cells of a table, at most 1e300."""
    return min(1e300, prod(float(sizes[v]) for v in scope))


def _maximal(scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes that lie in no other one: those of the variable that is in fewest larger ones are looked at."""
    kept, every, containing = list[Scope](), list[frozenset[int]](), dict[int, list[frozenset[int]]]()
    for scope in sorted(set(scopes), key=lambda s: (-len(s), s)):
        inside = frozenset(scope)
        larger = min((containing.get(v, []) for v in scope), key=len, default=every)
        if not any(inside <= other for other in larger):
            kept.append(scope)
            every.append(inside)
            for v in scope:
                containing.setdefault(v, []).append(inside)
    return kept
