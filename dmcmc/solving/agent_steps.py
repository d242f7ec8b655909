"""The agents' UTIL steps of a cycle: collect an agent's tables, crossing factors and messages; eliminate with them.

``combine_tables`` passes the step functions made here to the message phases of ``dmcmc.mpi``. An agent has lower tables
(attained utilities) and upper tables (upper bounds); a step pair has one elimination per side, or a single one if both
sides have the same tables. A *crossing factor* is a factor between variables of several agents; it is added at the
deepest of these agents in the pseudo-tree.

A *row* is one assignment of an agent's boundary variables (its interface). *Cut* variables are fixed while messages are
computed in slices: one slice per combination of their values. *Mini-buckets* split an elimination step into groups of
at most z variables, which gives an upper bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.division import InterfaceCompression, Rows
from dmcmc.inference.dpop.slicing import PredictedStep, Slicing, StepWorkspaces, condition_tables
from dmcmc.inference.elimination.eliminate import best_hidden_values, pieces_of
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import EXACT, Relaxation, Resources
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.mpi.mailbox import SharedAgentTables
from dmcmc.mpi.message_phases import UtilStepPair
from dmcmc.mpi.world import World
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.planning.combination_plan import matching_headroom, refused_step, step_attempts

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent
    from dmcmc.solving.planning.plan import Setup

_MAX_CACHED_FACTORS = 1 << 10  # factors between agents that are cached encoded, at most
_MAX_CACHED_ENTRIES = 1 << 16  # entries of these factors in all, at most
_OUTSIDE_RELAXATION = Relaxation("auto", None, "scope", False)


@dataclass(frozen=True)
class Sides:
    """How the lower and the upper tables are indexed: over full interface domains, or over lists of rows.

    For an agent with a list of rows, one *row variable* stands in for its interface; its values are the listed rows.

    Attributes
    ----------
    lower : InterfaceCompression
        Index of lower-bound tables, in which a sampled agent may have the sampled rows only.
    upper : InterfaceCompression
        Index of upper-bound tables, in which an agent may have the unpruned rows only.
    """

    lower: InterfaceCompression
    upper: InterfaceCompression


def gather_sides(
    setup: "Setup", world: World, own_sampled_rows: Mapping[int, Rows], own_unpruned_rows: Mapping[int, Rows]
) -> Sides:
    """Exchange between all ranks which agents' tables are indexed by lists of rows; called by all ranks.

    Parameters
    ----------
    own_sampled_rows
        Sampled rows of this rank's agents whose lower tables have only these rows.
    own_unpruned_rows
        Unpruned rows of this rank's agents whose lower and upper tables have only these rows.
    """
    sampled_rows: dict[int, Rows] = {}
    unpruned_rows: dict[int, Rows] = {}
    for sampled, unpruned in world.allgather((dict(own_sampled_rows), dict(own_unpruned_rows)), "rows"):
        sampled_rows |= sampled
        unpruned_rows |= unpruned
    interfaces = {a: setup.divided.division.locals[a].interface for a in (*sampled_rows, *unpruned_rows)}
    problem = setup.divided.problem
    upper = InterfaceCompression(problem.domains, problem.owner, interfaces, unpruned_rows)
    lower = (
        InterfaceCompression(problem.domains, problem.owner, interfaces, sampled_rows | unpruned_rows)
        if sampled_rows
        else upper
    )
    return Sides(lower, upper)


_MAX_CACHED_FACTORS = 1 << 10  # factors between agents that are cached encoded, at most
_MAX_CACHED_ENTRIES = 1 << 16  # entries of these factors in all, at most


class RowFilter(NamedTuple):
    """Rows that are part of no optimal solution are left out of UTIL messages (:mod:`.row_filter`).

    Attributes
    ----------
    least : int, float or None
        Encoded utility of the best known solution, lowered by the rounding error; None without one.
    """

    least: int | float | None


def exported_table(agent: "Agent") -> SampledTable:
    """Return an agent's table for the combination: pruned rows have an upper bound of −∞.

    If the remaining rows are listed (``RowPruning.listing``), both tables have one axis: the *row variable*,
    numbered (number of variables + agent), which is no variable of the problem. Its values are the listed rows.
    """
    table, local, pruned, listing = agent.table, agent.local, agent.pruning.pruned, agent.pruning.listing
    if pruned is None or table.upper is None or (listing is None and table.exact):
        return table
    lowest = agent.context.arithmetic.lowest
    if listing is None:
        upper_rows = agent.rows(table.upper).copy()
        upper_rows[pruned] = lowest
        return replace(table, upper=(EncodedTable(local.interface, upper_rows.reshape(local.interface_shape)),))
    variable, rows = len(local.domains) + local.agent, agent.pruning.listed_values(local)
    lower = (EncodedTable((variable,), agent.rows(table.lower)[listing]),)
    pruned, upper_bounds = pruned[listing], agent.rows(table.upper)[listing]
    upper = lower
    if not table.exact or pruned.any():
        upper = (EncodedTable((variable,), np.where(pruned, lowest, upper_bounds).astype(lower[0].values.dtype)),)

    def witness(values: Mapping[int, int]) -> dict[int, int]:
        row = rows[values[variable]].tolist()
        return table.witness(dict(zip(local.interface, row, strict=True)))

    return replace(table, lower=lower, upper=upper, witness=witness)


class MessageInputs(NamedTuple):
    """The inputs of UTIL messages: tables, their index, where the work runs, and how large it may be.

    Attributes
    ----------
    tables : mapping of int to SampledTable or SharedAgentTables
        Tables of each agent.
    sides : Sides
        How the tables are indexed.
    backend : Backend
        Where the work runs, and its deadline.
    size_factor : float
        Factor on the table size that the time budget allows.
    includes_crossing : bool
        Whether the tables come from :func:`shared_tables_of` and already include the crossing factors.
    row_filter : RowFilter or None
        Given if messages leave out rows; then variables that are functions of others are replaced.
    """

    tables: Mapping[int, SampledTable | SharedAgentTables]
    sides: Sides
    backend: Backend
    size_factor: float
    includes_crossing: bool = False
    row_filter: RowFilter | None = None


def shared_tables_of(
    setup: "Setup",
    tables: Mapping[int, SampledTable],
    sides: Sides,
    stop: Deadline,
    clocks: Mapping[int, agent_step.Clock],
) -> dict[int, SharedAgentTables]:
    """Return the tables that agents pass to their node's leader: their own, and the crossing factors placed there."""
    tables_by_agent: dict[int, SharedAgentTables] = {}
    for agent, table in tables.items():
        lower = (*table.lower, *crossing_tables(setup, agent, sides.lower, stop, encoded_crossing(setup)))
        upper: tuple[EncodedTable, ...] | None = None
        if table.upper is table.lower and sides.lower is sides.upper:
            upper = lower
        elif table.upper is not None:
            upper = (*table.upper, *crossing_tables(setup, agent, sides.upper, stop, encoded_crossing(setup)))
        tables_by_agent[agent] = SharedAgentTables(lower, upper, table.exact, clocks[agent])
    return tables_by_agent


def values_of(
    chosen: Mapping[int, agent_step.ChosenValues], sides: Sides, tables: Mapping[int, SampledTable]
) -> dict[int, int]:
    """Return all values of this rank's agents by variable: boundary values and the best hidden values for them."""
    values: dict[int, int] = {}
    for choice in chosen.values():
        values |= sides.lower.expand(choice.lower)
    return values | best_hidden_values((tables[agent].witness, choice.lower) for agent, choice in chosen.items())


def util_steps(
    setup: "Setup", inputs: MessageInputs, limits: Mapping[int, int]
) -> Callable[[int, list[agent_step.UtilTables]], UtilStepPair]:
    """Return a function that computes an agent's UTIL steps from its children's messages.

    Parameters
    ----------
    limits
        Largest z of the mini-buckets, for agents whose earlier messages were too wide for their parent.

    Returns
    -------
    callable
        ``work(agent, messages)``: the steps of an agent, given the lower and upper tables that its children sent.
    """
    tables, sides = inputs.tables, inputs.sides
    key = "attempts", inputs.size_factor, setup.step_bytes
    attempts = setup.facts.get_or_compute(key, partial(step_attempts, setup, inputs.size_factor))
    stop, encoded = inputs.backend.stop, encoded_crossing(setup)
    eliminate = agent_step.util_step if inputs.row_filter is None else agent_step.util_step_by_substitution

    @cache
    def headrooms() -> list[int | float]:
        return matching_headroom(setup.divided.division, setup.tree, setup.divided.arithmetic)

    def work(agent: int, messages: list[agent_step.UtilTables]) -> UtilStepPair:
        table, z_limit = tables[agent], limits.get(agent, float("inf"))
        sides_to_do: list[tuple[InterfaceCompression, agent_step.UtilMessage, list[agent_step.UtilMessage]]]
        sides_to_do = [(sides.lower, table.lower, [message.lower for message in messages])]
        uppers = [message.upper for message in messages if message.upper is not None]
        has_upper = table.upper is not None and len(uppers) == len(messages)
        same = (
            table.exact and sides.lower is sides.upper and all(message.upper is message.lower for message in messages)
        )
        if table.upper is not None and has_upper and not same:
            sides_to_do.append((sides.upper, table.upper, uppers))
        attempts_here = [
            (relaxation if relaxation.max_z == z_limit else replace(relaxation, max_z=z_limit), memory)
            for relaxation, memory in attempts
        ]
        resources = Resources(None, inputs.backend, lambda: headrooms()[agent], setup.divided.problem.agents[agent])
        steps = list[agent_step.UtilStep]()
        for side, own_tables, children in sides_to_do:
            try:
                crossing = () if inputs.includes_crossing else crossing_tables(setup, agent, side, stop, encoded)
                node = node_of(setup, agent, side, own_tables, children, stop, crossing)
                steps.append(eliminate(node, attempts_here, resources))
                continue
            except OutOfTime:
                raise
            except ResourceError as error:
                refusal = error
            raise refused_step(refusal, setup.tree, agent, children) if attempts[-1][0].chooses_z else refusal
        return UtilStepPair(steps[0], steps[-1] if has_upper else None, tuple(messages))

    return work


def sliced_steps(
    setup: "Setup", inputs: MessageInputs, slicing: Slicing
) -> Callable[[int, agent_step.ChosenValues, list[agent_step.UtilTables]], UtilStepPair]:
    """Return a function that computes an agent's UTIL steps for one slice (fixed values of the cut variables).

    Steps of the same shape reuse one workspace, so a slice allocates nothing.

    Returns
    -------
    callable
        ``work(agent, fixed, messages)``: the steps of an agent, given the fixed values and its children's messages.
    """
    tables, side, orders = inputs.tables, inputs.sides.lower, {True: dict(enumerate(slicing.orders)), False: {}}
    crossing = cache(lambda agent: crossing_tables(setup, agent, side, inputs.backend.stop, encoded_crossing(setup)))
    workspaces = StepWorkspaces(inputs.backend, setup.divided.arithmetic)

    def step(
        agent: int,
        lower_side: bool,
        table: agent_step.UtilMessage,
        fixed: agent_step.Values,
        children: list[agent_step.UtilMessage],
    ) -> agent_step.UtilStep:
        node = node_of(setup, agent, side, table, children, inputs.backend.stop, crossing(agent))
        if agent not in orders[lower_side]:  # upper tables may have other scopes: their order is computed once
            scopes = [
                t.scope for t in (*node.local_tables, *node.crossing, *(t for message in children for t in message))
            ]
            orders[lower_side][agent] = best_order(scopes, side.sizes, node.interface, node.separator).variables
        sizes = side.sizes.copy()
        sizes[list(fixed)] = 1
        node = replace(
            node,
            local_tables=condition_tables(node.local_tables, fixed),
            crossing=condition_tables(node.crossing, fixed),
            child_messages=[condition_tables(message, fixed) for message in children],
            domains=sizes,
            order=orders[lower_side][agent],
        )
        key, senders = (agent, lower_side), [(child, lower_side) for child in setup.tree.children[agent]]
        result = workspaces.step(key, node, senders)
        if result is None:
            resources = Resources(None, inputs.backend, None, setup.divided.problem.agents[agent])
            result = agent_step.util_step(node, [(EXACT, setup.step_bytes)], resources)
            workspaces.prepare(key, node, senders, result)
        return result

    def work(agent: int, fixed: agent_step.ChosenValues, messages: list[agent_step.UtilTables]) -> UtilStepPair:
        table = tables[agent]
        lower = step(agent, True, table.lower, fixed.lower, [m.lower for m in messages])
        uppers = [m.upper for m in messages if m.upper is not None]
        if table.upper is None or fixed.upper is None or len(uppers) < len(messages):
            return UtilStepPair(lower, None)
        if table.exact and fixed.upper == fixed.lower and all(m.upper is m.lower for m in messages):
            return UtilStepPair(lower, lower)
        return UtilStepPair(lower, step(agent, False, table.upper, fixed.upper, uppers))

    return work


def subtree_steps(
    setup: "Setup",
    inputs: MessageInputs,
    subtrees: Sequence[Sequence[int]],
    predicted: tuple[list[PredictedStep], list[PredictedStep]],
) -> Callable[[int, list[agent_step.UtilTables]], UtilStepPair]:
    """Return a function that computes the step of a subtree: one joint elimination of all variables of its agents.

    Parameters
    ----------
    subtrees
        Agents of each subtree, children before parents.
    predicted
        Predicted step of each agent, with lower and with upper tables.

    Returns
    -------
    callable
        ``work(subtree, messages)``: the steps of a subtree, given the messages from the subtrees below it.
    """
    assert inputs.includes_crossing, "a node leader may not know the factors between agents"
    tables, sides = inputs.tables, inputs.sides

    def step(
        agents: Sequence[int],
        lower_side: bool,
        agent_tables: Sequence[agent_step.UtilMessage],
        children: list[agent_step.UtilMessage],
    ) -> agent_step.UtilStep:
        side, orders = (sides.lower, predicted[0]) if lower_side else (sides.upper, predicted[1])
        order = [v for agent in agents for v in orders[agent].order]
        node = agent_step.UtilNode(
            [table for message in agent_tables for table in message],
            (),
            children,
            order,
            orders[agents[-1]].separator,
            side.sizes,
            setup.divided.arithmetic,
            order,
        )
        return agent_step.util_step(node, resources=Resources(None, inputs.backend, None, f"of {len(agents)} agents"))

    def work(subtree: int, messages: list[agent_step.UtilTables]) -> UtilStepPair:
        agents = subtrees[subtree]
        subtree_tables = [tables[agent] for agent in agents]
        lower = step(agents, True, [table.lower for table in subtree_tables], [m.lower for m in messages])
        upper_tables = [table.upper for table in subtree_tables if table.upper is not None]
        uppers = [m.upper for m in messages if m.upper is not None]
        if len(upper_tables) < len(agents) or len(uppers) < len(messages):
            return UtilStepPair(lower, None)
        same = all(table.exact for table in subtree_tables) and sides.lower is sides.upper
        if same and all(m.upper is m.lower for m in messages):
            return UtilStepPair(lower, lower)
        return UtilStepPair(lower, step(agents, False, upper_tables, uppers))

    return work


def outside_bound_steps(
    setup: "Setup",
    tables: Mapping[int, SampledTable | SharedAgentTables],
    received: Callable[[int], Sequence[agent_step.UtilTables]],
    side: InterfaceCompression,
) -> Callable[[int, agent_step.UtilMessage], tuple[agent_step.UtilMessage, list[agent_step.UtilMessage]]]:
    """Return a function that computes the outside bounds of an agent and of its children.

    Parameters
    ----------
    tables
        The tables of the combination; those of other agents' ranks include the crossing factors.
    received
        Returns the messages that an agent has received from its children.
    side
        How the upper tables are indexed.
    """

    def work(
        agent: int, outside: agent_step.UtilMessage
    ) -> tuple[agent_step.UtilMessage, list[agent_step.UtilMessage]]:
        table = tables[agent]
        assert table.upper is not None, "only after a cycle in which all had bounds"
        crossing = () if isinstance(table, SharedAgentTables) else None
        children = [message.upper or () for message in received(agent)]
        node = node_of(setup, agent, side, table.upper, children, setup.backend.stop, crossing)
        separators = [side.scope(setup.tree.separators[child]) for child in setup.tree.children[agent]]
        return agent_step.outside_steps(
            node, outside, separators, _OUTSIDE_RELAXATION, Resources(setup.step_bytes, setup.backend)
        )

    return work


def node_of(
    setup: "Setup",
    agent: int,
    side: InterfaceCompression,
    agent_tables: agent_step.UtilMessage,
    children: Sequence[agent_step.UtilMessage],
    stop: Deadline,
    crossing: Sequence[EncodedTable] | None = None,
) -> agent_step.UtilNode:
    """Return the input of an agent's elimination on one side: its tables, crossing factors and children's messages.

    Parameters
    ----------
    side
        How the tables of this side are indexed.
    agent_tables
        The agent's own tables.
    children
        Messages of its children.
    crossing
        Encoded crossing factors placed at this agent; computed if None.
    """
    return agent_step.UtilNode(
        agent_tables,
        crossing_tables(setup, agent, side, stop, encoded_crossing(setup)) if crossing is None else crossing,
        children,
        side.scope(setup.divided.division.locals[agent].interface),
        side.scope(setup.tree.separators[agent]),
        side.sizes,
        setup.divided.arithmetic,
    )


def encoded_crossing(setup: "Setup") -> Sequence[EncodedTable]:
    """Return all factors between agents, encoded, once per problem; nothing if they are many or large.

    It is also nothing on ranks that know only some of these factors.
    """
    factors = setup.divided.division.crossing
    if not isinstance(factors, tuple) or len(factors) > _MAX_CACHED_FACTORS:
        return ()

    def encoded() -> Sequence[EncodedTable]:
        small = sum([factor.table.size for factor in factors]) <= _MAX_CACHED_ENTRIES
        return [EncodedTable(f.scope, setup.divided.arithmetic.encoded(f.table)) for f in factors] if small else ()

    return setup.divided.problem.facts.get_or_compute(("crossing", setup.divided.arithmetic), encoded)


def crossing_tables(
    setup: "Setup", agent: int, side: InterfaceCompression, stop: Deadline, encoded: Sequence[EncodedTable]
) -> list[EncodedTable]:
    """Return the encoded factors between agents that are placed at an agent, indexed as the tables of one side.

    ``encoded`` has all factors between agents (:func:`encoded_crossing`); it is empty if they have to be encoded.

    Tables over the same row lists are summed. If a factor touches two row lists, the first agent's variables are
    replaced by its row variable last, after tables with equal scopes were added: a table over two row lists is large.

    Raises
    ------
    OutOfTime
        If the deadline is over.
    """
    if not side.rows and encoded:
        return [encoded[i] for i in setup.tree.placed[agent]]
    tables, half_compressed, compressed = (
        list[EncodedTable](),
        dict[tuple[int, ...], EncodedTable](),
        dict[tuple[int, ...], EncodedTable](),
    )
    for i in setup.tree.placed[agent]:
        scope, values = setup.divided.arithmetic.encode(setup.divided.division.crossing[i])
        if listed := side.compressed_agents(scope):
            stop.check()
            _add_up(setup, half_compressed, side.table(scope, values, listed[0]), stop)
        else:
            tables.append(EncodedTable(scope, values))
    for table in half_compressed.values():
        stop.check()
        _add_up(setup, compressed, side.table(*table), stop)
    return tables + list(compressed.values())


def _add_up(setup: "Setup", tables: dict[tuple[int, ...], EncodedTable], table: EncodedTable, stop: Deadline) -> None:
    """Add a table in place to the sum over the same variables, with axes in ascending order of variables."""
    axes = sorted(range(len(table.scope)), key=table.scope.__getitem__)
    scope, values = tuple(table.scope[axis] for axis in axes), table.values.transpose(axes)
    if scope not in tables:
        tables[scope] = EncodedTable(scope, values)
        return
    total = tables[scope].values
    for piece in pieces_of(total.shape):
        stop.check()
        total[piece] = setup.divided.arithmetic.add(total[piece], values[piece])
