"""Workspaces for repeated UTIL steps with the same shapes: planned once, computed in the same memory.

If both agents are in this process, a message is written directly into the input table of its receiver, so it is never
copied. It is valid until the sender's next step.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import UtilNode, UtilStep
from dmcmc.inference.elimination.eliminate import Elimination, new_arena, run_on_cpu
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import AnyTable

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
