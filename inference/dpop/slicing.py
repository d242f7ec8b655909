"""Exact UTIL steps in little memory: variables of large tables are worked off value by value.

A variable that is *cut* has one value at a time in all tables below its agent, which asks its children for their
messages anew for each (MB-DPOP, Petcu and Faltings 2007; cycle cuts, Dechter 1990) and keeps the largest of what comes
out. So tables get smaller by its domain, and there is as much work as before: more only for agents whose tables do not
range over it.

An agent cuts variables that it decides first, so that ties go to the values that they go to otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dmcmc.inference.dpop.predicted_steps import StepAhead
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.sparse.sparse_table import AnyTable, ListedTable

_MOST = 1e300


@dataclass(frozen=True)
class Slicing:
    """Which variables are cut, and what that takes.

    Attributes
    ----------
    cut : dict
        Of each agent that cuts some: its variables, first the one that is decided first.
    orders : tuple of tuple of int
        In which each agent eliminates its interface.
    steps, cells : float
        UTIL steps of all agents until the roots know their best value, and joined cells of these, at most.
    largest, whole : float
        Entries of the tables of the largest step; what it would be if nothing was cut.
    """

    cut: Mapping[int, tuple[int, ...]]
    orders: tuple[tuple[int, ...], ...]
    steps: float
    cells: float
    largest: float
    whole: float


def plan_slices(
    tree: PseudoTree, steps: Sequence[StepAhead], sizes: Ints, room: int, most: float = float("inf")
) -> Slicing:
    """Choose variables to cut, so that no agent's step has more entries than there is room for.

    The next one is in the most steps that are too large; of several, one that brings few others along, and whose
    agent is deep in the tree.

    Parameters
    ----------
    steps
        Of all agents, as they are without slices.
    sizes : (variables,) int64
    room
        Entries.
    most
        Steps that all agents may make.

    Raises
    ------
    ResourceError
        If there is nothing left to cut, or it would take more steps.
    """
    home = {v: agent for agent, step in enumerate(steps) for v in step.order}
    depth = _depths(tree)
    cut: dict[int, tuple[int, ...]] = {}
    left = sizes.copy()
    plans = [step.plan(left) for step in steps]
    whole = max((plan.entries for plan in plans), default=0)
    while large := [agent for agent, plan in enumerate(plans) if plan.entries > room]:
        seen = [{v for scope in (*steps[a].scopes, steps[a].separator) for v in scope if left[v] > 1} for a in large]
        if not any(seen):
            raise ResourceError("no slice of the tables fits")
        open_ones = set().union(*seen)

        def worth(v: int, seen: Sequence[set[int]] = seen) -> tuple[int, int, int, int, int]:
            along = _suffix(steps[home[v]], v)
            more = sum(int(left[u]) > 1 for u in along)
            return (-sum(v in one for one in seen), more, -depth[home[v]], -int(left[v]), v)

        best = min(open_ones, key=worth)
        agent = home[best]
        cut[agent] = _suffix(steps[agent], best)
        if sum(_times(tree, steps, cut, sizes)) > most:
            raise ResourceError(f"slices take more than {most:,.0f} steps")
        left[list(cut[agent])] = 1
        fresh = set(cut[agent])
        for other, step in enumerate(steps):
            if fresh.intersection((*step.order, *step.separator)):
                plans[other] = step.plan(left)
    times = _times(tree, steps, cut, sizes)
    return Slicing(
        cut,
        tuple(step.order for step in steps),
        sum(times),
        sum(min(_MOST, float(plan.cells) * count) for plan, count in zip(plans, times, strict=True)),
        max((plan.entries for plan in plans), default=0),
        whole,
    )


def restricted(tables: Sequence[AnyTable], fixed: Mapping[int, int]) -> UtilMessage:
    """Return tables with one value of some variables; those axes stay, with one entry.

    Axes that have one entry already are left as they are.
    """
    found = list[AnyTable]()
    for table in tables:
        shape = table.shape if isinstance(table, ListedTable) else table.values.shape
        if not any(v in fixed and size > 1 for v, size in zip(table.scope, shape, strict=True)):
            found.append(table)
            continue
        scope, values = table.scope, table.values
        place = tuple(
            slice(fixed[v], fixed[v] + 1) if v in fixed and values.shape[axis] > 1 else slice(None)
            for axis, v in enumerate(scope)
        )
        found.append(Table(scope, values[place]))
    return tuple(found)


def _suffix(step: StepAhead, variable: int) -> tuple[int, ...]:
    """Return a variable and those that are decided before it, in that order."""
    return tuple(reversed(step.order[step.order.index(variable) :]))


def _depths(tree: PseudoTree) -> list[int]:
    depth = [0] * len(tree.parent)
    for agent in reversed(tree.bottom_up):
        if tree.parent[agent] >= 0:
            depth[agent] = depth[tree.parent[agent]] + 1
    return depth


def _times(
    tree: PseudoTree, steps: Sequence[StepAhead], cut: Mapping[int, tuple[int, ...]], sizes: Ints
) -> list[float]:
    """Return how many steps each agent makes, at most: one for every value that its own cuts and its parent have."""
    all_cut = {v for variables in cut.values() for v in variables}
    asked, made = [1.0] * len(steps), [1.0] * len(steps)
    for agent in reversed(tree.bottom_up):
        parent, separator = tree.parent[agent], all_cut.intersection(steps[agent].separator)
        if parent >= 0 and separator:
            asked[agent] = made[parent] if separator.intersection(cut.get(parent, ())) else asked[parent]
        made[agent] = min(_MOST, asked[agent] * prod(float(sizes[v]) for v in cut.get(agent, ())))
    return made
