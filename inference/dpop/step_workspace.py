"""UTIL steps of the same shapes one after another: planned once, made in the same memory.

A message lies where the agent above joins it, if both are of this process: so a slice is written once, and never
copied. It holds until its agent's next step.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.util_and_value import Node, UtilStep
from dmcmc.inference.elimination.eliminate import Elimination, new_arena, run_on_cpu
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import AnyTable

Key = Hashable


class _Made(NamedTuple):
    """What a step is made of; tables of the agent's children come last."""

    tables: Sequence[AnyTable]
    domains: Ints
    order: Sequence[int]
    keep: Sequence[int]


class StepRoom:
    """Memory for one agent's exact steps of the same shapes, and their plan.

    Attributes
    ----------
    inputs : list of Table
        Where tables lie: views.
    """

    def __init__(self, made: _Made, arithmetic: Arithmetic) -> None:
        self.plan = plan_elimination([t.scope for t in made.tables], made.domains, made.order, made.keep)
        self.arena = new_arena(self.plan, arithmetic)
        self.arithmetic = arithmetic
        whole = Elimination(self.plan, self.arena, arithmetic)
        self.inputs = [whole.table(t) for t in range(self.plan.tables - self.plan.buckets)]
        self._shapes = [_shape(table) for table in self.inputs]

    def fits(self, tables: Sequence[AnyTable]) -> bool:
        """Return whether a step of these tables is one of this room's."""
        return all(isinstance(table, Table) for table in tables) and [_shape(table) for table in tables] == self._shapes

    @property
    def message(self) -> int | None:
        """The table that is the whole of the message; None where there are several, or it is made of none."""
        first = self.plan.tables - self.plan.buckets
        return self.plan.remaining[0] if len(self.plan.remaining) == 1 and self.plan.remaining[0] >= first else None

    def step(self, tables: Sequence[Table], backend: Backend, into: Array | None) -> UtilStep:
        """Make a step.

        Parameters
        ----------
        into
            Where its message is to lie, axes as in the plan; None for the room's own memory.
        """
        for (scope, values), target in zip(tables, self.inputs, strict=True):
            source = values.transpose([scope.index(v) for v in target.scope])
            if not _same(source, target.values):
                np.copyto(target.values, source)
        apart = {} if into is None or self.message is None else {self.message: into}
        done = Elimination(self.plan, self.arena, self.arithmetic, apart=apart)
        run_on_cpu(done, 0, self.plan.buckets, MAX_PLUS, backend.threads, backend.stop)
        return UtilStep(done.remaining(), done)


class StepRooms:
    """The rooms of a process's agents, by what a user calls a step and a message."""

    def __init__(self, backend: Backend, arithmetic: Arithmetic) -> None:
        self.backend, self.arithmetic = backend, arithmetic
        self._rooms: dict[Key, StepRoom] = {}
        self._places: dict[Key, Table] = {}

    def step(self, key: Key, node: Node, senders: Sequence[Key]) -> UtilStep | None:
        """Make an agent's step in its room; None where it has none that fits.

        Parameters
        ----------
        senders
            What the messages of its children are called.
        """
        room, place = self._rooms.get(key), self._places.get(key)
        made = _made_of(node)
        if room is None or not room.fits(made.tables):
            return None
        if place is not None and room.message is not None and room.plan.scope(room.message) != place.scope:
            if set(room.plan.scope(room.message)) == set(place.scope):
                room = self._open(key, node, senders, place.scope)
            if room is None or room.message is None:
                return None
        fits = place is not None and room.message is not None and room.plan.scope(room.message) == place.scope
        into = place.values if place is not None and fits else None
        if into is not None and room.message is not None and room.plan.shape(room.message) != into.shape:
            into = None
        tables = [table for table in made.tables if isinstance(table, Table)]
        return room.step(tables, self.backend, into)

    def prepare(self, key: Key, node: Node, senders: Sequence[Key], step: UtilStep) -> None:
        """Give an agent a room for more steps like one that has been made, if that is of dense tables on the CPU."""
        self._close(key)
        dense = self.arithmetic.exact and isinstance(step.elimination, Elimination) and step.z is None
        dense &= all(isinstance(table, Table) for table in _made_of(node).tables)
        if dense and not self.backend.worth(step.elimination.plan.cells * COSTS.cell):
            self._open(key, node, senders, ())

    def _open(self, key: Key, node: Node, senders: Sequence[Key], scope: Sequence[int]) -> StepRoom | None:
        """Make a room; messages of the agent's children that are one table each will lie in it."""
        self._close(key)
        made = _made_of(node)
        keep = (*scope, *(v for v in made.keep if v not in scope))
        try:
            room = self._rooms[key] = StepRoom(made._replace(keep=keep), self.arithmetic)
        except OutOfMemory:
            return None
        number = len(node.own) + len(node.crossing)
        for sender, message in zip(senders, node.children, strict=True):
            if len(message) == 1:
                self._places[sender] = room.inputs[number]
            number += len(message)
        return room

    def _close(self, key: Key) -> None:
        self._rooms.pop(key, None)


def _made_of(node: Node) -> _Made:
    tables = [*node.own, *node.crossing, *(table for message in node.children for table in message)]
    assert node.order is not None, "steps of the same shapes have an order"
    return _Made(tables, node.domains, node.order, node.separator)


def _shape(table: AnyTable) -> dict[int, int]:
    return dict(zip(table.scope, table.values.shape, strict=True))


def _same(one: Array, other: Array) -> bool:
    """Return whether two arrays of the same shape are the same memory."""
    ours, theirs = one.__array_interface__, other.__array_interface__
    return bool(ours["data"][0] == theirs["data"][0] and one.strides == other.strides)
