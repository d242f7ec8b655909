"""Rows that are part of no better solution: removed from agents' tables, and left out of UTIL messages.

A *row* is one assignment of an agent's boundary variables. A *component* is a tree of the agents' pseudo-forest. After
a combination of upper tables, the *outside bound* of a row is an upper bound on what all other agents can add to it. A
row is removed if its upper bound and its outside bound together do not exceed the component's cutoff.

With ``combine.rows: usable``, two things are known before the UTIL phase. Each agent's parent has sent the rows that no
hard constraint forbids (messages ``USABLE``). And each agent has an upper bound on its own utility, which gives a lower
bound on what a subtree adds to a solution as good as the best known one. See :mod:`dmcmc.inference.dpop.agent_step`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.division import InterfaceCompression
from dmcmc.inference.execution.exact_or_mini_buckets import Resources
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.device_table import largest_entry
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_phases import UtilStepPair, send_down
from dmcmc.mpi.world import World
from dmcmc.solving.agent.bounds import clamped_sum
from dmcmc.solving.agent.tables import rows_of
from dmcmc.solving.agent_steps import MessageInputs, crossing_tables, encoded_crossing, node_of

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent
    from dmcmc.solving.planning.plan import Setup
    from dmcmc.solving.rank_tables import RankTables


def outside_rows(
    setup: "Setup", agent: "Agent", outside: agent_step.UtilMessage, upper: InterfaceCompression
) -> NDArray[Any]:
    """Return an upper bound on what all other agents can add to each row of an agent's table, (rows,) encoded.

    Rows that are not listed any more have −∞.

    Parameters
    ----------
    outside
        The bound as tables.
    upper
        How these tables, and the upper tables, are indexed.
    """
    number = agent.local.agent
    if number not in upper.rows:
        return agent.rows(outside)
    listed_bounds = rows_of(outside, (upper.row_variable(number),), upper.sizes, setup.divided.arithmetic)
    bounds = np.full(agent.local.rows, setup.divided.arithmetic.lowest, dtype=listed_bounds.dtype)
    bounds[np.ravel_multi_index(tuple(upper.rows[number].T), agent.local.interface_shape)] = listed_bounds
    return bounds


def component_roots(setup: "Setup") -> dict[int, int]:
    """Return the root agent of each agent's component."""
    root_of: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root_of[agent] = agent if parent < 0 else root_of[parent]
    return root_of


class Cutoffs(NamedTuple):
    """The decision of rank 0 to remove rows, and by which utilities.

    Attributes
    ----------
    by_component : dict
        For each root agent, the encoded utility that a solution of its component must exceed to improve the incumbent;
        None if every solution would.
    best : (n,) int64 or None
        Values of the best assignment so far, if it violates no hard constraint.
    bounded : bool
        Whether every component has an upper bound.
    """

    by_component: Mapping[int, Number | None]
    best: NDArray[np.int64] | None
    bounded: bool


def prune(tables: "RankTables", cutoffs: Cutoffs) -> bool:
    """Remove rows of this rank's agents that cannot be part of a better solution; called by all ranks.

    Returns
    -------
    bool
        Whether rows of this rank's agents have been removed.
    """
    outsides = tables.outside_bounds() if cutoffs.bounded else {}
    setup, upper = tables.setup, tables.sides.upper
    roots = component_roots(setup)

    def prune_rows() -> bool:
        tables.check_bounds(cutoffs.best)
        before = sum(agent.pruning.count for agent in tables.agents.values())
        for number, agent in tables.agents.items():
            start, outside = time.perf_counter(), None
            if number in outsides and agent.enumerated:
                outside = outside_rows(setup, agent, outsides[number], upper)
            agent.prune_rows(outside, cutoffs.by_component.get(roots[number]))
            agent.finish(cutoffs.best, time.perf_counter() - start)
        return sum(agent.pruning.count for agent in tables.agents.values()) > before

    pruned = tables.world.on_all_ranks(prune_rows)
    tables.index_again()
    return pruned


Work = Callable[[int, list[agent_step.UtilTables]], UtilStepPair]


class NeededRows(NamedTuple):
    """The rows of the UTIL messages of this rank's agents that may be part of an optimal solution.

    Attributes
    ----------
    usable : mapping of int to tuple of UsableRows
        By agent: the rows that its parent can use.
    least : mapping of int to (int, float or None)
        By agent: the utility that its subtree adds at least to a solution as good as the best known one.
    """

    usable: Mapping[int, tuple[agent_step.UsableRows, ...]]
    least: Mapping[int, Number | None]


def needed_rows(
    setup: "Setup", mailbox: Mailbox, inputs: MessageInputs
) -> tuple[NeededRows, dict[int, agent_step.SentMessages]]:
    """Return which rows the next UTIL messages need, and the messages sent for it; called by all ranks."""
    least = _least_utilities(setup, mailbox.world, inputs)
    usable, sent = send_down(setup.tree, mailbox, "USABLE", _usable_row_steps(setup, inputs), agent_step.usable_size)
    return NeededRows(usable, least), sent


def with_needed_rows(setup: "Setup", inputs: MessageInputs, needed: NeededRows, work: Work) -> Work:
    """Return a function that computes an agent's UTIL steps as ``work`` does; the messages have needed rows only."""

    def part(agent: int, side: InterfaceCompression, step: agent_step.UtilStep) -> agent_step.UtilStep:
        usable, least = needed.usable.get(agent, ()), needed.least.get(agent)
        return replace(
            step, message=agent_step.usable_part(step.message, usable, least, side.sizes, setup.divided.arithmetic)
        )

    def filtered(agent: int, messages: list[agent_step.UtilTables]) -> UtilStepPair:
        steps = work(agent, messages)
        if setup.tree.parent[agent] < 0:
            return steps
        lower = part(agent, inputs.sides.lower, steps.lower)
        if steps.upper is None or steps.upper is steps.lower:
            return steps._replace(lower=lower, upper=None if steps.upper is None else lower)
        return steps._replace(lower=lower, upper=part(agent, inputs.sides.upper, steps.upper))

    return filtered


def _usable_row_steps(
    setup: "Setup", inputs: MessageInputs
) -> Callable[
    [int, tuple[agent_step.UsableRows, ...]],
    tuple[tuple[agent_step.UsableRows, ...], list[tuple[agent_step.UsableRows, ...]]],
]:
    """Return a function that computes which rows an agent can use of its children's messages.

    All rows count as usable where the lower and the upper tables are indexed in different ways.

    Returns
    -------
    callable
        ``work(agent, usable)``: what the parent can use of the agent's message, as received, and what the agent can use
        of each child's.
    """
    side, resources = inputs.sides.upper, Resources(setup.step_bytes, inputs.backend)

    def work(
        agent: int, known: tuple[agent_step.UsableRows, ...]
    ) -> tuple[tuple[agent_step.UsableRows, ...], list[tuple[agent_step.UsableRows, ...]]]:
        children, table = setup.tree.children[agent], inputs.tables[agent]
        if inputs.sides.lower is not side or not children:
            return known, [() for _ in children]
        own, crossing = table.lower if table.upper is None else table.upper, () if inputs.includes_crossing else None
        node = node_of(setup, agent, side, own, [], inputs.backend.stop, crossing)
        separators = [side.scope(setup.tree.separators[child]) for child in children]
        return known, agent_step.rows_for_children(node, known, separators, resources)

    return work


def _least_utilities(setup: "Setup", world: World, inputs: MessageInputs) -> dict[int, Number | None]:
    """Return the utility that each subtree adds at least to a solution as good as the best known one.

    That is the utility of the best known solution less what all agents outside the subtree can add at most. Each agent
    sends one number to all others: an upper bound on its own utility. Called by all ranks.

    Returns
    -------
    dict
        By agent; None if no solution is known or an agent has no upper bound.
    """
    side, parent = inputs.sides.upper, setup.tree.parent
    assert inputs.row_filter is not None
    least = inputs.row_filter.least

    def bound_of(agent: int) -> Number | None:
        upper = inputs.tables[agent].upper
        if upper is None:
            return None
        crossing: Sequence[EncodedTable] = ()
        if not inputs.includes_crossing:
            crossing = crossing_tables(setup, agent, side, inputs.backend.stop, encoded_crossing(setup))
        return clamped_sum([largest_entry(table) for table in (*upper, *crossing)], setup.divided.arithmetic)

    if least is None:
        return {}
    own = world.on_all_ranks(lambda: {agent: bound_of(agent) for agent in inputs.tables})
    bounds = {agent: bound for agent, bound in world.union(own).items() if bound is not None}
    if len(bounds) < len(parent) or any(map(setup.divided.arithmetic.is_lowest, bounds.values())):
        return {}
    of_subtree = dict(bounds)
    for agent in setup.tree.bottom_up:
        if parent[agent] >= 0:
            of_subtree[parent[agent]] += of_subtree[agent]
    total = sum(bounds[agent] for agent in sorted(bounds))
    return {agent: least - (total - of_subtree[agent]) for agent in inputs.tables}
