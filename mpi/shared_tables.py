"""Combine the agents of one compute node on one rank, which reads their tables from shared memory.

The leader of a node is its first rank that has a GPU, or else its first rank. Each rank copies its agents' tables to a
shared-memory window. The leader reads them there, sends and receives UTIL and VALUE messages for all of the node's
agents, and sends the chosen values to their ranks. Leaders of several nodes exchange messages as ranks do.
``World.leaders`` has the leader of each rank.
"""

import os
from collections.abc import Mapping, Sequence
from math import prod
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import Clock, SentMessages, UtilMessage, tables_size
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.world import World

_ALIGNMENT = 64  # bytes, a cache line; tables begin at multiples of it
_SHARED_MEMORY = "/dev/shm"  # where MPI libraries place shared memory on Linux


class SharedAgentTables(NamedTuple):
    """The tables that an agent passes to the leader of its node, or to all ranks.

    Attributes
    ----------
    lower : tuple of Table
        Tables of lower bounds.
    upper : tuple of Table or None
        Tables of upper bounds; the same object as ``lower`` if they do not differ.
    exact : bool
        Whether the tables are exact.
    clock : Clock
        The agent's simulated clock when the tables were ready.
    """

    lower: tuple[EncodedTable, ...]
    upper: tuple[EncodedTable, ...] | None
    exact: bool
    clock: Clock

    @classmethod
    def on_host(cls, lower: UtilMessage, upper: UtilMessage | None, exact: bool, clock: Clock) -> "SharedAgentTables":
        """Return an agent's dense tables, copied to the host."""
        lower_tables = tuple([EncodedTable(table.scope, table.values) for table in lower])
        if upper is None or upper is lower:
            return cls(lower_tables, None if upper is None else lower_tables, exact, clock)
        return cls(lower_tables, tuple([EncodedTable(table.scope, table.values) for table in upper]), exact, clock)

    @property
    def size(self) -> int:
        """Bytes of the tables as a message."""
        upper = () if self.upper is None or self.upper is self.lower else self.upper
        return tables_size([*self.lower, *upper])


class _SharedEntry(NamedTuple):
    """Where an agent's tables lie in shared memory.

    Attributes
    ----------
    tables : list of (scope, dtype, shape, offset)
        One entry per table, the lower tables first; the offset counts bytes from the begin of its rank's part of the
        window. Upper tables are left out if they are the lower ones.
    lower : int
        Number of lower tables.
    same, bounded : bool
        Whether the upper tables are the lower ones, and whether there are upper tables.
    exact : bool
        Whether the tables are exact.
    clock : Clock
        The agent's simulated clock when the tables were ready.
    """

    tables: list[tuple[tuple[int, ...], str, tuple[int, ...], int]]
    lower: int
    same: bool
    bounded: bool
    exact: bool
    clock: Clock


class SharedTables:
    """The tables of all agents of a node, on its leader; a context that all ranks of the node leave together.

    Parameters
    ----------
    world : World
        The ranks.
    local_tables : dict
        The tables of this rank's agents, {agent: SharedAgentTables}.

    Attributes
    ----------
    tables : dict
        On the leader, the tables of all agents of its node; empty on other ranks.
    sent : dict
        Message statistics of this rank's agents.
    """

    def __init__(self, world: World, local_tables: Mapping[int, SharedAgentTables]) -> None:
        self._window: Any = None
        self.sent = {agent: SentMessages(1, agent_tables.size, "TABLE") for agent, agent_tables in local_tables.items()}
        self.tables: dict[int, SharedAgentTables] = dict(local_tables)
        if world.comm is None:
            return
        from mpi4py import MPI

        self.tables = {}
        comm = world.node_comm
        entries, total = _layout(local_tables)
        self._window = MPI.Win.Allocate_shared(max(total, 1), 1, comm=comm)
        self._window.Fence()
        _write(local_tables, entries, self._memory_of(comm.Get_rank()))
        self._window.Fence()
        all_entries = comm.gather(entries, root=0)
        for rank, rank_entries in enumerate(all_entries or []):
            memory = self._memory_of(rank)
            self.tables |= {agent: _read(entry, memory) for agent, entry in rank_entries.items()}

    def _memory_of(self, rank: int) -> Array:
        """Return a rank's part of the window as bytes."""
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


def fits_shared_memory(world: World, local_tables: Mapping[int, SharedAgentTables]) -> bool:
    """Return whether the tables of all ranks fit the nodes' shared memory, the same on all ranks; a collective call."""
    if world.comm is None:
        return True
    total = sum(world.node_comm.allgather(_layout(local_tables)[1]))
    try:
        file_system = os.statvfs(_SHARED_MEMORY)
        free = file_system.f_bavail * file_system.f_frsize
    except OSError:
        free = 0
    return all(world.allgather(2 * total <= free))  # other programs share this memory


def leaders_of(world: World, owner: Sequence[int]) -> tuple[int, ...]:
    """Return the leader of each agent's rank."""
    return tuple(world.leaders[rank] for rank in owner)


def _layout(local_tables: Mapping[int, SharedAgentTables]) -> tuple[dict[int, _SharedEntry], int]:
    """Return the position of each agent's tables, and the bytes of all of them."""
    entries, offset = dict[int, _SharedEntry](), 0
    for agent, agent_tables in local_tables.items():
        same = agent_tables.upper is agent_tables.lower
        tables = []
        for scope, values in (*agent_tables.lower, *(() if same else agent_tables.upper or ())):
            tables.append((scope, values.dtype.str, values.shape, offset))
            offset += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
        entries[agent] = _SharedEntry(
            tables,
            len(agent_tables.lower),
            same,
            agent_tables.upper is not None,
            agent_tables.exact,
            agent_tables.clock,
        )
    return entries, offset


def _write(local_tables: Mapping[int, SharedAgentTables], entries: Mapping[int, _SharedEntry], memory: Array) -> None:
    """Copy agents' tables to their positions in shared memory."""
    for agent, agent_tables in local_tables.items():
        values = [v for _, v in (*agent_tables.lower, *(() if entries[agent].same else agent_tables.upper or ()))]
        for array, (_, dtype, shape, offset) in zip(values, entries[agent].tables, strict=True):
            _view(memory, dtype, shape, offset)[...] = array


def _read(entry: _SharedEntry, memory: Array) -> SharedAgentTables:
    """Return an agent's tables from another rank's memory, without a copy."""
    tables = tuple(
        EncodedTable(scope, _view(memory, dtype, shape, offset)) for scope, dtype, shape, offset in entry.tables
    )
    lower = tables[: entry.lower]
    upper = lower if entry.same else tables[entry.lower :] if entry.bounded else None
    return SharedAgentTables(lower, upper, entry.exact, entry.clock)


def _view(memory: Array, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    """Return an array that lies in shared memory."""
    size = prod(shape) * np.dtype(dtype).itemsize
    return memory[offset : offset + size].view(dtype).reshape(shape)
