"""Messages between the agents of DPOP, within a rank and between MPI ranks, received in any order.

The kinds are UTIL (tables, from child to parent), VALUE (chosen values, from parent to child), OUTSIDE (bounds on what
all other agents can add, from parent to child), REQUEST (fixed values, from parent to child) and USABLE (rows of a UTIL
message that its receiver can use, from parent to child). A tree edge between two agents is named by its lower agent,
the child.

The agents of one compute node may also be combined on one rank, which reads their tables from shared memory. The leader
of a node is its first rank that has a GPU, or else its first rank. Each rank copies its agents' tables to a
shared-memory window. The leader reads them there, sends and receives UTIL and VALUE messages for all of the node's
agents, and sends the chosen values to their ranks. Leaders of several nodes exchange messages as ranks do.
``World.leaders`` has the leader of each rank.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import Clock, SentMessages, UtilMessage, tables_size
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi import tuning
from dmcmc.mpi.collective_calls import IdleWait
from dmcmc.mpi.wire_format import KINDS, AgentMessage, Envelope, MessageHeader, inline_arrays, pack, read_header, unpack
from dmcmc.mpi.world import World, byte_slices

START = Clock()  # a clock at 0


class Mailbox:
    """Sends and receives messages between agents; kind and lower agent of the tree edge identify a message.

    A message is sent as a header, which any rank may receive next, and slices of its tables, which follow from the same
    rank in the same order. So there are two tags per kind, whatever the number of agents: the MPI standard guarantees
    only 32,768 tags. Messages that are received before they are asked for are stored.

    Parameters
    ----------
    world : World
        The ranks.
    owner : tuple of int
        The rank of each agent.

    Attributes
    ----------
    limit : int
        Bytes of one slice, equal on all ranks; MPI counts have 31 bits.
    sent_to_ranks : SentMessages
        Messages that this rank has sent to other ranks, in bytes as transmitted.
    _received : dict
        Messages that have arrived and have not been asked for, {(kind, lower agent): (contents, clock)}.
    _unreported : list
        Keys of the messages that ``arrived`` or ``new_messages`` has not returned yet.
    _pending : list
        Requests of ``Isend`` and their data, until ``close``.
    """

    limit = 1 << 30

    def __init__(self, world: World, owner: tuple[int, ...]) -> None:
        self.world, self.owner, self.sent_to_ranks = world, owner, SentMessages()
        self._received: dict[tuple[str, int], tuple[Any, Clock]] = {}
        self._unreported: list[tuple[str, int]] = []
        self._pending: list[tuple[Any, Any]] = []

    def send(self, kind: str, agent: int, receiver: int, message: AgentMessage, clock: Clock = START) -> None:
        """Send a message without waiting.

        Parameters
        ----------
        kind : str
            UTIL, VALUE, OUTSIDE, REQUEST or USABLE.
        agent : int
            The lower agent of the tree edge.
        receiver : int
            The agent that receives the message.
        message
            The contents; None if the sender has failed.
        clock : Clock
            The sender's simulated clock.
        """
        rank = self.owner[receiver]
        if rank == self.world.rank:
            self._store(Envelope(kind, agent, message, clock))
            return
        header, arrays = pack(Envelope(kind, agent, message, clock), min(tuning.MAX_INLINE_BYTES, self.limit))
        tag, size = 2 * KINDS.index(kind), len(header)  # even tags: headers; odd ones: slices of tables
        self._isend(np.frombuffer(header, dtype=np.uint8), rank, tag)
        for array in arrays:
            size += array.nbytes
            for piece in byte_slices(array, self.limit):
                self._isend(piece, rank, tag + 1)
        self.sent_to_ranks = SentMessages(self.sent_to_ranks.count + 1, self.sent_to_ranks.size + size)

    def receive(self, kind: str, agent: int, sender: int | None = None) -> tuple[Any, Clock]:
        """Wait for the message of a tree edge; return it with its sender's clock.

        Parameters
        ----------
        kind : str
            The kind of message.
        agent : int
            The lower agent of the tree edge.
        sender : int, optional
            The sending agent; if it is on this rank, the message must have been sent already.
        """
        while (kind, agent) not in self._received:
            here = sender is not None and self.owner[sender] == self.world.rank
            assert not here and self.world.size > 1, "an agent of this rank has sent nothing"
            self._store(self._wait_for(kind))
        return self._received.pop((kind, agent))

    def arrived(self, kind: str, wait: bool) -> list[int]:
        """Return the lower agents of the edges along which messages of a kind have arrived since the last call.

        Parameters
        ----------
        kind : str
            The kind of message.
        wait : bool
            Whether to wait for at least one message.
        """
        if not self._unreported and self.world.size == 1:
            return []
        while self.world.size > 1:
            has_unreported = any(other_kind == kind for other_kind, _ in self._unreported)
            envelope = self._wait_for(kind) if wait and not has_unreported else self._poll(kind)
            if envelope is None:
                break
            self._store(envelope)
        agents = [agent for other_kind, agent in self._unreported if other_kind == kind]
        self._unreported = [(other_kind, agent) for other_kind, agent in self._unreported if other_kind != kind]
        return agents

    def new_messages(self, kinds: Sequence[str], wait: bool) -> set[tuple[str, int]]:
        """Return (kind, lower agent) of the messages of some kinds that have arrived since the last call.

        Parameters
        ----------
        kinds : sequence of str
            The kinds.
        wait : bool
            Whether to wait for at least one message.
        """
        while self.world.size > 1:
            envelopes = [envelope for kind in kinds if (envelope := self._poll(kind)) is not None]
            if wait and not envelopes and not self._unreported:
                envelopes = [self._wait_for_any(kinds)]
            for envelope in envelopes:
                self._store(envelope)
            if not envelopes:
                break
        new = set(self._unreported)
        self._unreported.clear()
        return new

    def pop(self, kind: str, agent: int) -> tuple[Any, Clock]:
        """Remove and return a message that has arrived, with its sender's clock."""
        return self._received.pop((kind, agent))

    def discard(self) -> None:
        """Discard the received messages of this process, after the phase that they belong to has failed."""
        self._received.clear()
        self._unreported.clear()

    def close(self) -> None:
        """Wait until all messages have been sent."""
        for request, _ in self._pending:
            request.Wait()
        self._pending.clear()
        self._unreported.clear()

    def local_agents(self, agents: Iterable[int]) -> list[int]:
        """Return the agents of this rank among some agents, in their order."""
        return [agent for agent in agents if self.owner[agent] == self.world.rank]

    def _store(self, envelope: Envelope) -> None:
        """Store a message that has arrived."""
        self._received[envelope.kind, envelope.agent] = envelope.message, envelope.clock
        self._unreported.append((envelope.kind, envelope.agent))

    def _isend(self, data: Array, rank: int, tag: int) -> None:
        """Start sending bytes to a rank; they must not change until :meth:`close`."""
        self._pending.append((self.world.comm.Isend(data, dest=rank, tag=tag), data))

    def _wait_for(self, kind: str) -> Envelope:
        """Wait for the next message of a kind from any rank."""
        return self._wait_for_any((kind,))

    def _wait_for_any(self, kinds: Sequence[str]) -> Envelope:
        """Wait for a message of some kinds from any rank, and leave the core to ranks that work."""
        idle = IdleWait()
        while True:
            for kind in kinds:
                if (envelope := self._poll(kind)) is not None:
                    return envelope
            idle.take()

    def _poll(self, kind: str) -> Envelope | None:
        """Return the next message of a kind from any rank, completely received; None if there is none."""
        from mpi4py import MPI

        status, tag = MPI.Status(), 2 * KINDS.index(kind)
        message = self.world.comm.Improbe(source=MPI.ANY_SOURCE, tag=tag, status=status)
        if message is None:
            return None
        received = bytearray(status.Get_count(MPI.BYTE))
        message.Recv(received)
        header = read_header(received)
        return unpack(header, self._arrays(header, status.Get_source(), tag + 1))

    def _arrays(self, header: MessageHeader, rank: int, tag: int) -> list[Array]:
        """Return a message's arrays: those in its header, or the slices that follow it."""
        inline = inline_arrays(header) if header.inline or not any(prod(shape) for _, shape in header.arrays) else None
        if inline is not None:
            return inline
        arrays = list[Array]()
        for dtype, shape in header.arrays:
            array = np.empty(shape, dtype=dtype)
            for piece in byte_slices(array, self.limit):
                self.world.comm.Recv(piece, source=rank, tag=tag)
            arrays.append(array)
        return arrays


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
