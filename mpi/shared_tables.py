"""Agents of one node combined by one of its ranks, which has their tables through memory that all of them map.

The first of a node's ranks that has a GPU, or else the first, is its core. Each rank copies its agents' tables into a
shared-memory window; the core reads them there, sends and receives UTIL and VALUE for all of the node's agents, and
tells their ranks what was chosen. Cores of several nodes exchange messages as ranks do. Who is whose core says
:attr:`.World.leaders`.
"""

import os
from collections.abc import Mapping, Sequence
from math import prod
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.message_contents import Clock, Sent, tables_size
from dmcmc.mpi.world import World

_ALIGN = 64  # bytes
_SPARE = 2  # times what is written has to be free where shared memory lies
_PLACE = "/dev/shm"  # where MPI libraries put it on Linux


class Handed(NamedTuple):
    """What an agent hands to its core.

    Attributes
    ----------
    lower : tuple of Table
    upper : tuple of Table or None
        The same object as ``lower`` where they do not differ.
    exact : bool
    clock : Clock
        When it was ready.
    """

    lower: tuple[Table, ...]
    upper: tuple[Table, ...] | None
    exact: bool
    clock: Clock

    @property
    def size(self) -> int:
        """Its bytes as a message."""
        above = () if self.upper is None or self.upper is self.lower else self.upper
        return tables_size([*self.lower, *above])


class _Entry(NamedTuple):
    """Where an agent's tables lie: scope, dtype, shape and offset of each; how many are those from below."""

    tables: list[tuple[tuple[int, ...], str, tuple[int, ...], int]]
    lower: int
    same: bool
    bounded: bool
    exact: bool
    clock: Clock


class SharedTables:
    """The tables of all of a node's agents on its core; empty on its other ranks. To be closed by all ranks.

    Parameters
    ----------
    own
        What this rank's agents hand over.

    Attributes
    ----------
    tables : dict
        On the core, of all agents of its node.
    sent : dict
        What this rank's agents have handed over.
    """

    def __init__(self, world: World, own: Mapping[int, Handed]) -> None:
        self._window: Any = None
        self.sent = {agent: Sent(1, handed.size, "TABLE") for agent, handed in own.items()}
        self.tables: dict[int, Handed] = dict(own)
        if world.comm is None:
            return
        from mpi4py import MPI

        self.tables = {}
        comm = world.node_comm
        entries, total = _laid_out(own)
        self._window = MPI.Win.Allocate_shared(max(total, 1), 1, comm=comm)
        self._window.Fence()
        _write(own, entries, self._mapped(comm.Get_rank()))
        self._window.Fence()
        listed = comm.gather(entries, root=0)
        for rank, of_rank in enumerate(listed or []):
            memory = self._mapped(rank)
            self.tables |= {agent: _read(entry, memory) for agent, entry in of_rank.items()}

    def _mapped(self, rank: int) -> Array:
        buffer, _ = self._window.Shared_query(rank)
        return np.frombuffer(buffer, dtype=np.uint8)

    def __enter__(self) -> "SharedTables":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tables = {}
        if self._window is not None:
            self._window.Free()


def fits(world: World, own: Mapping[int, Handed]) -> bool:
    """Return whether the tables of all ranks fit where shared memory lies; called by all ranks, the same on all."""
    if world.comm is None:
        return True
    total = sum(world.node_comm.allgather(_laid_out(own)[1]))
    try:
        there = os.statvfs(_PLACE)
        free = there.f_bavail * there.f_frsize
    except OSError:
        free = 0
    return all(world.allgather(_SPARE * total <= free))


def cores_of(world: World, owner: Sequence[int]) -> tuple[int, ...]:
    """Return the core of each agent."""
    return tuple(world.leaders[rank] for rank in owner)


def _laid_out(own: Mapping[int, Handed]) -> tuple[dict[int, _Entry], int]:
    """Return where agents' tables go, and how many bytes they take."""
    found, at = dict[int, _Entry](), 0
    for agent, handed in own.items():
        same = handed.upper is handed.lower
        tables = []
        for scope, values in (*handed.lower, *(() if same else handed.upper or ())):
            tables.append((scope, values.dtype.str, values.shape, at))
            at += -(-values.nbytes // _ALIGN) * _ALIGN
        found[agent] = _Entry(tables, len(handed.lower), same, handed.upper is not None, handed.exact, handed.clock)
    return found, at


def _write(own: Mapping[int, Handed], entries: Mapping[int, _Entry], memory: Array) -> None:
    """Copy agents' tables to where they go."""
    for agent, handed in own.items():
        values = [v for _, v in (*handed.lower, *(() if entries[agent].same else handed.upper or ()))]
        for array, (_, dtype, shape, at) in zip(values, entries[agent].tables, strict=True):
            _view(memory, dtype, shape, at)[...] = array


def _read(entry: _Entry, memory: Array) -> Handed:
    """Return what another rank has written, without a copy."""
    tables = tuple(Table(scope, _view(memory, dtype, shape, at)) for scope, dtype, shape, at in entry.tables)
    lower = tables[: entry.lower]
    upper = lower if entry.same else tables[entry.lower :] if entry.bounded else None
    return Handed(lower, upper, entry.exact, entry.clock)


def _view(memory: Array, dtype: str, shape: tuple[int, ...], at: int) -> Array:
    size = prod(shape) * np.dtype(dtype).itemsize
    return memory[at : at + size].view(dtype).reshape(shape)
