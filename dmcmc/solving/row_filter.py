"""Leave rows out of UTIL messages that are part of no optimal solution (``combine.rows: usable``).

Two things are known before the UTIL phase. Each agent's parent has sent the rows that no hard constraint forbids
(messages ``USABLE``). And each agent has an upper bound on its own utility, so that the utility is known that a subtree
adds at least to a solution as good as the best known one. See :mod:`dmcmc.inference.dpop.usable_rows`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dmcmc.inference.dpop.agent_step import SentMessages, UtilStep, UtilTables
from dmcmc.inference.dpop.division import InterfaceCompression
from dmcmc.inference.dpop.usable_rows import UsableRows, rows_for_children, usable_part, usable_size
from dmcmc.inference.execution.exact_or_mini_buckets import Resources
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.cuda.device_table import largest_entry
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_phases import UtilStepPair, send_down
from dmcmc.mpi.world import World
from dmcmc.solving.agent.uncombined_bound import clamped_sum
from dmcmc.solving.agent_steps import MessageInputs, crossing_tables, encoded_crossing, node_of

if TYPE_CHECKING:
    from dmcmc.solving.planning.setup import Setup

Work = Callable[[int, list[UtilTables]], UtilStepPair]


class NeededRows(NamedTuple):
    """The rows of the UTIL messages of this rank's agents that may be part of an optimal solution.

    Attributes
    ----------
    usable : mapping of int to tuple of UsableRows
        By agent: the rows that its parent can use.
    least : mapping of int to (int, float or None)
        By agent: the utility that its subtree adds at least to a solution as good as the best known one.
    """

    usable: Mapping[int, tuple[UsableRows, ...]]
    least: Mapping[int, Number | None]


def needed_rows(setup: "Setup", mailbox: Mailbox, inputs: MessageInputs) -> tuple[NeededRows, dict[int, SentMessages]]:
    """Return which rows the next UTIL messages need, and the messages sent for it; called by all ranks."""
    least = _least_utilities(setup, mailbox.world, inputs)
    usable, sent = send_down(setup.tree, mailbox, "USABLE", _usable_row_steps(setup, inputs), usable_size)
    return NeededRows(usable, least), sent


def with_needed_rows(setup: "Setup", inputs: MessageInputs, needed: NeededRows, work: Work) -> Work:
    """Return a function that computes an agent's UTIL steps as ``work`` does; the messages have needed rows only."""

    def part(agent: int, side: InterfaceCompression, step: UtilStep) -> UtilStep:
        usable, least = needed.usable.get(agent, ()), needed.least.get(agent)
        return replace(step, message=usable_part(step.message, usable, least, side.sizes, setup.arithmetic))

    def filtered(agent: int, messages: list[UtilTables]) -> UtilStepPair:
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
) -> Callable[[int, tuple[UsableRows, ...]], tuple[tuple[UsableRows, ...], list[tuple[UsableRows, ...]]]]:
    """Return a function that computes which rows an agent can use of its children's messages.

    All rows count as usable where the lower and the upper tables are indexed in different ways.

    Returns
    -------
    callable
        ``work(agent, usable)``: what the parent can use of the agent's message, as received, and what the agent can use
        of each child's.
    """
    side, resources = inputs.sides.upper, Resources(setup.step_bytes, inputs.backend)

    def work(agent: int, known: tuple[UsableRows, ...]) -> tuple[tuple[UsableRows, ...], list[tuple[UsableRows, ...]]]:
        children, table = setup.tree.children[agent], inputs.tables[agent]
        if inputs.sides.lower is not side or not children:
            return known, [() for _ in children]
        own, crossing = table.lower if table.upper is None else table.upper, () if inputs.includes_crossing else None
        node = node_of(setup, agent, side, own, [], inputs.backend.stop, crossing)
        separators = [side.scope(setup.tree.separators[child]) for child in children]
        return known, rows_for_children(node, known, separators, resources)

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
        return clamped_sum([largest_entry(table) for table in (*upper, *crossing)], setup.arithmetic)

    if least is None:
        return {}
    own = world.on_all_ranks(lambda: {agent: bound_of(agent) for agent in inputs.tables})
    bounds = {agent: bound for agent, bound in world.union(own).items() if bound is not None}
    if len(bounds) < len(parent) or any(map(setup.arithmetic.is_lowest, bounds.values())):
        return {}
    of_subtree = dict(bounds)
    for agent in setup.tree.bottom_up:
        if parent[agent] >= 0:
            of_subtree[parent[agent]] += of_subtree[agent]
    total = sum(bounds[agent] for agent in sorted(bounds))
    return {agent: least - (total - of_subtree[agent]) for agent in inputs.tables}
