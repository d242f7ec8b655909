"""What a division among agents makes of a problem: cells that are joined, and the largest message, before any work."""

from math import prod
from typing import NamedTuple

from dmcmc.inference.dpop.division import Division, divide
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order

_SEARCH = 100_000  # words of search for an agent's order: some tenths of a millisecond

Scope = tuple[int, ...]


class DivisionCost(NamedTuple):
    """What exact elimination takes agent by agent.

    Attributes
    ----------
    cells : float
        Joined by all agents: their own hidden variables, then their interfaces with their children's messages.
    message : float
        Of the largest UTIL message: the cells of all its tables.
    entries : float
        Of the tables of the agent that has most of them.
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
    cells = message = entries = 0.0
    sent: dict[int, list[Scope]] = {}

    def eliminate(scopes: list[Scope], away: tuple[int, ...], keep: Scope) -> Plan:
        nonlocal cells, entries
        order = best_order(scopes, problem.domains, away, keep, budget=_SEARCH).variables
        plan = plan_elimination(scopes, problem.domains, order, keep)
        cells, entries = cells + plan.cells, max(entries, float(plan.entries))
        return plan

    for agent in tree.bottom_up:
        local, separator = division.locals[agent], tree.separators[agent]
        own = eliminate([f.scope for f in local.factors], local.hidden, local.interface)
        scopes = [own.scope(t) for t in own.remaining]
        scopes += [division.crossing[i].scope for i in tree.placed[agent]]
        scopes += [scope for child in tree.children[agent] for scope in sent[child]]
        plan = eliminate(_maximal(scopes), local.interface, separator)
        sent[agent] = _maximal([plan.scope(t) for t in plan.remaining])
        message = max(message, sum(_cells(problem, scope) for scope in sent[agent]))
    return DivisionCost(cells, message, entries)


def _cells(problem: Problem, scope: Scope) -> float:
    """Return the cells of a table, at most 1e300."""
    return min(1e300, prod(float(problem.domains[v]) for v in scope))


def _maximal(scopes: list[Scope]) -> list[Scope]:
    """Return the scopes that lie in no other one."""
    kept: list[Scope] = []
    for scope in sorted(set(scopes), key=lambda s: (-len(s), s)):
        inside = set(scope)
        if not any(inside <= set(other) for other in kept):
            kept.append(scope)
    return kept
