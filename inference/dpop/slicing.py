"""Slices of tables that exceed the memory, predicted before they are made, and the memory of a step.

Exact UTIL steps in little memory: some variables of large tables are fixed to one value at a time.

In its UTIL step an agent joins its tables with its children's messages, eliminates its interface and sends the result
to its parent; VALUE then chooses values from the roots down. A *cut* variable has one value at a time in all tables
below its agent. For each value the agent requests its children's messages anew and keeps the maximum of the results
(MB-DPOP, Petcu and Faltings 2007; cycle cutsets, Dechter 1990). Tables shrink by the factor of the variable's domain
size. The work grows only for agents whose tables do not contain it.

An agent cuts the variables that VALUE decides first, so that ties are broken as without cuts.

Divide a memory budget among the data that exist at the same time; the shares were chosen by measurement.

The UTIL steps of DPOP (messages from the leaves up) leave their tables in memory until VALUE has chosen the values from
the roots down.

Predict the agents' exact UTIL steps from scopes alone: elimination orders and message scopes.

In its UTIL step an agent joins its tables, the crossing factors (over variables of several agents) placed at it, and
its children's messages, and eliminates its interface. The prediction estimates memory and time before any table exists,
for example for :mod:`dmcmc.inference.dpop.slicing`.

Workspaces for repeated UTIL steps with the same shapes: planned once, computed in the same memory.

If both agents are in this process, a message is written directly into the input table of its receiver, so it is never
copied. It is valid until the sender's next step.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import UtilMessage, UtilNode, UtilStep
from dmcmc.inference.elimination.eliminate import Elimination, new_arena, run_on_cpu
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import AnyTable, SparseBackedTable
from dmcmc.inference.tuning import DEFAULT_BUDGET, SHORT_BUDGET, STEPS_SHARE, WORK_SHARE

if TYPE_CHECKING:
    from dmcmc.inference.dpop.pseudotree import PseudoTree


Scope = tuple[int, ...]


class PredictedStep(NamedTuple):
    """The predicted UTIL step of one agent.

    Attributes
    ----------
    scopes : tuple of tuple of int
        Scopes of the joined tables: the agent's own tables, crossing factors, and its children's messages.
    order : tuple of int
        Its interface variables in elimination order.
    separator : tuple of int
        Variables of ancestors that the message may range over.
    message : tuple of tuple of int
        Scopes of the tables in its message.
    """

    scopes: tuple[Scope, ...]
    order: tuple[int, ...]
    separator: tuple[int, ...]
    message: tuple[Scope, ...]

    def plan(self, sizes: Ints) -> EliminationPlan:
        """Return the elimination plan of the step for the given domain sizes."""
        return plan_elimination(self.scopes, sizes, self.order, self.separator)


class StepScopes(NamedTuple):
    """The inputs of an agent's UTIL step that exist before any message arrives.

    Attributes
    ----------
    local_scopes, crossing : sequence of tuple of int
        Scopes of the agent's own tables, and of the crossing factors placed at it.
    interface, separator : tuple of int
        Its interface variables, and the variables of ancestors that its message may range over.
    """

    local_scopes: Sequence[Scope]
    crossing: Sequence[Scope]
    interface: Scope
    separator: Scope


def predict_steps(
    tree: "PseudoTree", inputs: Sequence[StepScopes], sizes: Ints, short_search: bool = False
) -> list[PredictedStep]:
    """Return the predicted step of each agent, as ``util_step`` would compute it.

    Parameters
    ----------
    tree
        The agents' pseudo-tree.
    inputs
        Scopes known before the messages, per agent.
    sizes : (variables,) int64
        Domain sizes.
    short_search
        Search less for orders: some tenths of a millisecond per agent. The orders may then differ from those of the
        step.
    """
    predicted: list[PredictedStep | None] = [None] * len(inputs)
    for agent in tree.bottom_up:
        local_scopes, crossing, interface, separator = inputs[agent]
        messages = [step.message for child in tree.children[agent] if (step := predicted[child]) is not None]
        scopes = (*local_scopes, *crossing, *(scope for message in messages for scope in message))
        budget = SHORT_BUDGET if short_search else DEFAULT_BUDGET
        order = best_order(scopes, sizes, interface, separator, budget).variables
        step = PredictedStep(scopes, order, separator, ())
        plan = step.plan(sizes)
        predicted[agent] = step._replace(message=_absorbed([plan.scope(t) for t in plan.remaining]))
    return [step for step in predicted if step is not None]


def _absorbed(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Return the scopes that no larger scope contains: those that ``eliminate.absorb`` leaves."""
    maximal: list[Scope] = []
    for scope in sorted(scopes, key=lambda s: -len(s)):
        if not any(set(scope) <= set(other) for other in maximal):
            maximal.append(scope)
    return tuple(maximal)


_MAX_COUNT = 1e300  # upper limit on counted steps and cells, to avoid overflow


@dataclass(frozen=True)
class Slicing:
    """The cut variables and their cost.

    Attributes
    ----------
    cut : dict of int to tuple of int
        The cut variables of each agent that has some, in the order in which VALUE decides them.
    orders : tuple of tuple of int
        Each agent's elimination order of its interface.
    agent_steps, agent_cells : tuple of float
        Upper bounds on the UTIL steps of each agent until the roots know their best value, and on their joined cells.
    largest, largest_unsliced : float
        Table entries of the largest step, with and without cuts.
    """

    cut: Mapping[int, tuple[int, ...]]
    orders: tuple[tuple[int, ...], ...]
    agent_steps: tuple[float, ...]
    agent_cells: tuple[float, ...]
    largest: float
    largest_unsliced: float

    @property
    def steps(self) -> float:
        """The UTIL steps of all agents."""
        return sum(self.agent_steps)

    @property
    def cells(self) -> float:
        """The joined cells of all agents."""
        return sum(self.agent_cells)


def plan_slices(
    tree: "PseudoTree", steps: Sequence[PredictedStep], sizes: Ints, max_entries: int, max_steps: float = float("inf")
) -> Slicing:
    """Choose the variables to cut, such that no agent's step exceeds a number of table entries.

    Each iteration cuts the variable that occurs in most of the too large steps. Ties go to a variable that forces few
    additional cuts, and whose agent is deep in the tree.

    Parameters
    ----------
    tree
        The agents' pseudo-tree.
    steps
        The predicted steps of all agents without cuts.
    sizes : (variables,) int64
        Domain sizes.
    max_entries
        Upper bound on the table entries of one step.
    max_steps
        Upper bound on the number of steps of all agents together.

    Raises
    ------
    ResourceError
        If no variable is left to cut, or the cuts would need more steps.
    """
    owner_of = {v: agent for agent, step in enumerate(steps) for v in step.order}
    depth = _depths(tree)
    cut: dict[int, tuple[int, ...]] = {}
    remaining_sizes = sizes.copy()
    plans = [step.plan(remaining_sizes) for step in steps]
    largest_unsliced = max((plan.entries for plan in plans), default=0)
    while too_large := [agent for agent, plan in enumerate(plans) if plan.entries > max_entries]:
        open_variables = [
            {v for scope in (*steps[a].scopes, steps[a].separator) for v in scope if remaining_sizes[v] > 1}
            for a in too_large
        ]
        if not any(open_variables):
            raise ResourceError("no slice of the tables fits the memory limit")
        candidates = set().union(*open_variables)

        def priority(v: int, open_variables: Sequence[set[int]] = open_variables) -> tuple[int, int, int, int, int]:
            """Return the sort key of a variable: the smallest key is cut next."""
            forced = _forced_cuts(steps[owner_of[v]], v)
            additional_cuts = sum(int(remaining_sizes[u]) > 1 for u in forced)
            return (
                -sum(v in variables for variables in open_variables),
                additional_cuts,
                -depth[owner_of[v]],
                -int(remaining_sizes[v]),
                v,
            )

        best = min(candidates, key=priority)
        agent = owner_of[best]
        cut[agent] = _forced_cuts(steps[agent], best)
        if sum(_step_counts(tree, steps, cut, sizes)) > max_steps:
            raise ResourceError(f"slicing would need more than {max_steps:,.0f} steps")
        remaining_sizes[list(cut[agent])] = 1
        newly_cut = set(cut[agent])
        for affected, step in enumerate(steps):
            if newly_cut.intersection((*step.order, *step.separator)):
                plans[affected] = step.plan(remaining_sizes)
    counts = _step_counts(tree, steps, cut, sizes)
    return Slicing(
        cut,
        tuple(step.order for step in steps),
        tuple(counts),
        tuple([min(_MAX_COUNT, float(plan.cells) * count) for plan, count in zip(plans, counts, strict=True)]),
        max((plan.entries for plan in plans), default=0),
        largest_unsliced,
    )


def condition_tables(tables: Sequence[AnyTable], fixed: Mapping[int, int]) -> UtilMessage:
    """Return tables conditioned on the values of some variables; their axes remain, with one entry.

    Axes that have one entry already are not changed.

    Parameters
    ----------
    tables
        Dense or sparse tables.
    fixed
        The value index of each fixed variable.
    """
    conditioned = list[AnyTable]()
    for table in tables:
        shape = table.shape if isinstance(table, SparseBackedTable) else table.values.shape
        if not any(v in fixed and size > 1 for v, size in zip(table.scope, shape, strict=True)):
            conditioned.append(table)
            continue
        scope, values = table.scope, table.values
        index = tuple(
            slice(fixed[v], fixed[v] + 1) if v in fixed and values.shape[axis] > 1 else slice(None)
            for axis, v in enumerate(scope)
        )
        conditioned.append(EncodedTable(scope, values[index]))
    return tuple(conditioned)


def _forced_cuts(step: PredictedStep, variable: int) -> tuple[int, ...]:
    """Return a variable and the agent's variables that VALUE decides before it, in that order."""
    return tuple(reversed(step.order[step.order.index(variable) :]))


def _depths(tree: "PseudoTree") -> list[int]:
    """Return the depth of each agent in the tree; roots have depth 0."""
    depth = [0] * len(tree.parent)
    for agent in reversed(tree.bottom_up):
        if tree.parent[agent] >= 0:
            depth[agent] = depth[tree.parent[agent]] + 1
    return depth


def _step_counts(
    tree: "PseudoTree", steps: Sequence[PredictedStep], cut: Mapping[int, tuple[int, ...]], sizes: Ints
) -> list[float]:
    """Return an upper bound on each agent's steps: one per combination of values of the agent's cuts and per request.

    A parent requests a message in each of its steps if the message depends on the parent's own cuts, in each request to
    the parent if it depends on cuts further up, and once if it depends on none.
    """
    all_cut = {v for variables in cut.values() for v in variables}
    requests, steps_made = [1.0] * len(steps), [1.0] * len(steps)
    for agent in reversed(tree.bottom_up):
        parent, separator = tree.parent[agent], all_cut.intersection(steps[agent].separator)
        if parent >= 0 and separator:
            requests[agent] = steps_made[parent] if separator.intersection(cut.get(parent, ())) else requests[parent]
        steps_made[agent] = min(_MAX_COUNT, requests[agent] * prod(float(sizes[v]) for v in cut.get(agent, ())))
    return steps_made


class MemoryShares(NamedTuple):
    """Shares of one rank's memory budget, in bytes.

    Attributes
    ----------
    problem : int
        The problem's tables, which every rank holds.
    work : int
        One elimination at a time, with its copies; after all agents have tables, the UTIL steps of all agents.
    steps : int
        The part of ``work`` for the UTIL steps that stay until VALUE; the remainder is for copies that the current
        step makes.
    agent_data : int
        Tables, chains and bounds of all agents.
    """

    problem: int
    work: int
    steps: int
    agent_data: int


def split_memory(budget: int, *problems: Problem) -> MemoryShares:
    """Divide a memory budget.

    Parameters
    ----------
    budget
        Bytes per rank.
    problems
        The problems in memory; tables that they share count once.

    Raises
    ------
    ResourceError
        If their tables alone exceed the budget.
    """
    return split_memory_after_tables(bytes_of_tables(*problems), budget)


def split_memory_after_tables(size: int, budget: int) -> MemoryShares:
    """Divide a memory budget of which the problem's tables take ``size`` bytes; see ``split_memory``."""
    if size >= budget:
        raise ResourceError(
            f"the problem's own tables take {format_bytes(size)} and budget.memory allows {format_bytes(budget)};"
            " raise budget.memory"
        )
    work = int(WORK_SHARE * (budget - size))
    return MemoryShares(size, work, int(STEPS_SHARE * work), budget - size - work)


def largest_share(needs: Sequence[float], total: float) -> float:
    """Return the max-min fair limit per consumer, such that all consumers together take at most ``total``.

    Consumers that need less than an equal share leave their unused part to the larger ones. If all needs fit,
    the largest consumer gets the remainder.

    Parameters
    ----------
    needs
        The needs of each consumer, in any unit.
    total
        The amount to divide, in the same unit.

    Examples
    --------
    >>> largest_share([1, 2, 30, 40], 23)
    10.0
    >>> largest_share([1, 2], 23)
    22.0
    """
    remaining, n_remaining = float(total), len(needs)
    for need in sorted(needs)[:-1]:
        if need > remaining / n_remaining:
            return remaining / n_remaining
        remaining, n_remaining = remaining - need, n_remaining - 1
    return remaining


Key = Hashable


class _StepInputs(NamedTuple):
    """The inputs of a step; the tables of the children's messages come last.

    Attributes
    ----------
    tables : sequence of table
        The agent's tables, crossing factors and children's messages.
    domains : (variables,) int64
        Domain sizes.
    order, keep : sequence of int
        The eliminated variables in order, and the separator.
    """

    tables: Sequence[AnyTable]
    domains: Ints
    order: Sequence[int]
    keep: Sequence[int]


class StepWorkspace:
    """Memory and plan for one agent's exact steps with the same shapes.

    Attributes
    ----------
    plan : EliminationPlan
        The elimination plan.
    arena : ndarray
        The entries of all tables, inputs first; dtype of the arithmetic.
    arithmetic : Arithmetic
        Encoding of the entries.
    inputs : list of Table
        Views of the input tables in ``arena``.
    """

    def __init__(self, inputs: _StepInputs, arithmetic: Arithmetic) -> None:
        self.plan = plan_elimination([t.scope for t in inputs.tables], inputs.domains, inputs.order, inputs.keep)
        self.arena = new_arena(self.plan, arithmetic)
        self.arithmetic = arithmetic
        elimination = Elimination(self.plan, self.arena, arithmetic)
        self.inputs = [elimination.table(t) for t in range(self.plan.tables - self.plan.buckets)]
        self._shapes = [_shape(table) for table in self.inputs]

    def fits(self, tables: Sequence[AnyTable]) -> bool:
        """Return whether tables have the shapes of this workspace."""
        return (
            all(isinstance(table, EncodedTable) for table in tables)
            and [_shape(table) for table in tables] == self._shapes
        )

    @property
    def message(self) -> int | None:
        """Index of the table that is the whole message; None for several tables, or if it is an input table."""
        first = self.plan.tables - self.plan.buckets
        return self.plan.remaining[0] if len(self.plan.remaining) == 1 and self.plan.remaining[0] >= first else None

    def step(self, tables: Sequence[EncodedTable], backend: Backend, output: Array | None) -> UtilStep:
        """Compute a step.

        Parameters
        ----------
        tables
            The input tables, in the order of the plan.
        backend
            Threads and deadline.
        output
            Array for the message, axes as in the plan; None for the workspace's own memory.
        """
        for (scope, values), target in zip(tables, self.inputs, strict=True):
            source = values.transpose([scope.index(v) for v in target.scope])
            if not _same_memory(source, target.values):
                np.copyto(target.values, source)
        external_tables = {} if output is None or self.message is None else {self.message: output}
        elimination = Elimination(self.plan, self.arena, self.arithmetic, external_tables=external_tables)
        run_on_cpu(elimination, 0, self.plan.buckets, MAX_PLUS, backend.threads, backend.stop)
        return UtilStep(elimination.remaining(), elimination)


class StepWorkspaces:
    """The workspaces of a process's agents, addressed by the caller's keys of steps and messages.

    :meth:`prepare` creates a workspace after a finished step of an agent, and registers the workspace's input tables as
    the targets of its children's messages (``_message_targets``, by the sender's key). From then on :meth:`step`
    computes in the workspace, and writes the message directly into the receiver's input table if that exists and has
    the same axes.

    Parameters
    ----------
    backend
        Threads and deadline of the steps.
    arithmetic
        Encoding of the tables' entries.
    """

    def __init__(self, backend: Backend, arithmetic: Arithmetic) -> None:
        self.backend, self.arithmetic = backend, arithmetic
        self._workspaces: dict[Key, StepWorkspace] = {}
        self._message_targets: dict[Key, EncodedTable] = {}

    def step(self, key: Key, node: UtilNode, senders: Sequence[Key]) -> UtilStep | None:
        """Compute an agent's step in its workspace; None if it has no workspace of these shapes.

        Parameters
        ----------
        key
            Key of the step and of its message.
        node
            The agent and its inputs.
        senders
            Keys of the children's messages.
        """
        workspace, target = self._workspaces.get(key), self._message_targets.get(key)
        inputs = _inputs_of(node)
        if workspace is None or not workspace.fits(inputs.tables):
            return None
        if (
            target is not None
            and workspace.message is not None
            and workspace.plan.scope(workspace.message) != target.scope
        ):
            if set(workspace.plan.scope(workspace.message)) == set(target.scope):
                workspace = self._create(key, node, senders, target.scope)
            if workspace is None or workspace.message is None:
                return None
        fits = (
            target is not None
            and workspace.message is not None
            and workspace.plan.scope(workspace.message) == target.scope
        )
        output = target.values if target is not None and fits else None
        if (
            output is not None
            and workspace.message is not None
            and workspace.plan.shape(workspace.message) != output.shape
        ):
            output = None
        tables = [table for table in inputs.tables if isinstance(table, EncodedTable)]
        return workspace.step(tables, self.backend, output)

    def prepare(self, key: Key, node: UtilNode, senders: Sequence[Key], finished_step: UtilStep) -> None:
        """Create a workspace for further steps like ``finished_step``, if it has dense tables and runs on the CPU."""
        self._release(key)
        dense = self.arithmetic.exact and isinstance(finished_step.elimination, Elimination) and finished_step.z is None
        dense &= all(isinstance(table, EncodedTable) for table in _inputs_of(node).tables)
        if dense and not self.backend.worth_gpu(finished_step.elimination.plan.cells * COSTS.seconds_per_cell):
            self._create(key, node, senders, ())

    def _create(self, key: Key, node: UtilNode, senders: Sequence[Key], scope: Sequence[int]) -> StepWorkspace | None:
        """Create a workspace; None if memory is short.

        Children's messages that consist of one table will be written into the workspace. ``scope`` comes first in the
        order of the message's axes; empty for the order of the separator.
        """
        self._release(key)
        inputs = _inputs_of(node)
        keep = (*scope, *(v for v in inputs.keep if v not in scope))
        try:
            workspace = self._workspaces[key] = StepWorkspace(inputs._replace(keep=keep), self.arithmetic)
        except OutOfMemory:
            return None
        input_index = len(node.local_tables) + len(node.crossing)
        for sender, message in zip(senders, node.child_messages, strict=True):
            if len(message) == 1:
                self._message_targets[sender] = workspace.inputs[input_index]
            input_index += len(message)
        return workspace

    def _release(self, key: Key) -> None:
        """Release a workspace."""
        self._workspaces.pop(key, None)


def _inputs_of(node: UtilNode) -> _StepInputs:
    """Return the inputs of an agent's step."""
    tables = [*node.local_tables, *node.crossing, *(table for message in node.child_messages for table in message)]
    assert node.order is not None, "steps of the same shapes have an order"
    return _StepInputs(tables, node.domains, node.order, node.separator)


def _shape(table: AnyTable) -> dict[int, int]:
    """Return the size of each variable's axis."""
    return dict(zip(table.scope, table.values.shape, strict=True))


def _same_memory(a: Array, b: Array) -> bool:
    """Return whether two arrays of the same shape share the same memory."""
    a_interface, b_interface = a.__array_interface__, b.__array_interface__
    return bool(a_interface["data"][0] == b_interface["data"][0] and a.strides == b.strides)
