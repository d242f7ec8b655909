"""Messages between agents, within a rank and between ranks, taken in as they come."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.idle_wait import Rest
from dmcmc.mpi.message_contents import Clock, Sent
from dmcmc.mpi.wire_format import KINDS, Head, Letter, Message, inline_arrays, open_letter, pack, read_head, slices
from dmcmc.mpi.world import World

START = Clock()
_INLINE = 1 << 15  # bytes of tables that go with the head


class Post:
    """Messages between agents, each known by its kind and the lower agent of its edge.

    A message goes as a head, which any rank's may be the next of, and its tables' slices, which come from the same rank
    in the same order. So tags are twice as many as kinds, whatever the number of agents: the MPI standard promises no
    more than 32,768 of them. What comes before it is asked for is kept.

    Parameters
    ----------
    owner
        The rank of each agent.

    Attributes
    ----------
    limit : int
        Bytes of one slice; the same on all ranks. Counts of MPI are 31 bits wide.
    between : Sent
        What this rank has sent to others, in bytes as they went.
    """

    limit = 1 << 30

    def __init__(self, world: World, owner: tuple[int, ...]) -> None:
        self.world, self.owner, self.between = world, owner, Sent()
        self._here: dict[tuple[str, int], tuple[Any, Clock]] = {}
        self._fresh: list[tuple[str, int]] = []
        self._pending: list[tuple[Any, Any]] = []

    def send(self, kind: str, agent: int, receiver: int, message: Message, clock: Clock = START) -> None:
        """Send the message of the tree edge below which ``agent`` is; returns at once."""
        rank = self.owner[receiver]
        if rank == self.world.rank:
            self._take(Letter(kind, agent, message, clock))
            return
        head, arrays = pack(Letter(kind, agent, message, clock), min(_INLINE, self.limit))
        tag, size = 2 * KINDS.index(kind), len(head)
        self._isend(np.frombuffer(head, dtype=np.uint8), rank, tag)
        for array in arrays:
            size += array.nbytes
            for piece in slices(array, self.limit):
                self._isend(piece, rank, tag + 1)
        self.between = Sent(self.between.count + 1, self.between.size + size)

    def receive(self, kind: str, agent: int, sender: int | None = None) -> tuple[Any, Clock]:
        """Wait for the message of the tree edge below which ``agent`` is; return it with its sender's clock."""
        while (kind, agent) not in self._here:
            here = sender is not None and self.owner[sender] == self.world.rank
            assert not here and self.world.size > 1, "an agent of this rank has sent nothing"
            self._take(self._next(kind))
        return self._here.pop((kind, agent))

    def arrived(self, kind: str, wait: bool) -> list[int]:
        """Return the lower agents of the edges along which messages of a kind have come since this was last asked.

        Parameters
        ----------
        wait
            Wait for at least one.
        """
        if not self._fresh and self.world.size == 1:
            return []
        while self.world.size > 1:
            new = any(fresh == kind for fresh, _ in self._fresh)
            letter = self._next(kind) if wait and not new else self._next_if_any(kind)
            if letter is None:
                break
            self._take(letter)
        found = [agent for fresh, agent in self._fresh if fresh == kind]
        self._fresh = [(fresh, agent) for fresh, agent in self._fresh if fresh != kind]
        return found

    def news(self, kinds: Sequence[str], wait: bool) -> set[tuple[str, int]]:
        """Return kinds and lower agents of edges along which messages of some kinds have come; :meth:`taken` has them.

        Parameters
        ----------
        wait
            Wait for at least one.
        """
        while self.world.size > 1:
            letters = [letter for kind in kinds if (letter := self._next_if_any(kind)) is not None]
            if wait and not letters and not self._fresh:
                letters = [self._first_of(kinds)]
            for letter in letters:
                self._take(letter)
            if not letters:
                break
        found = set(self._fresh)
        self._fresh.clear()
        return found

    def taken(self, kind: str, agent: int) -> tuple[Any, Clock]:
        """Return a message that has come, with its sender's clock."""
        return self._here.pop((kind, agent))

    def forget(self) -> None:
        """Forget what has come within this process and was not asked for: what it belongs to has failed."""
        self._here.clear()
        self._fresh.clear()

    def close(self) -> None:
        """Wait until everything sent has left."""
        for request, _ in self._pending:
            request.Wait()
        self._pending.clear()
        self._fresh.clear()

    def mine(self, agents: Iterable[int]) -> list[int]:
        """Return those of some agents that this rank works for, in their order."""
        return [agent for agent in agents if self.owner[agent] == self.world.rank]

    def _take(self, letter: Letter) -> None:
        self._here[letter.kind, letter.agent] = letter.message, letter.clock
        self._fresh.append((letter.kind, letter.agent))

    def _isend(self, data: Array, rank: int, tag: int) -> None:
        self._pending.append((self.world.comm.Isend(data, dest=rank, tag=tag), data))

    def _next(self, kind: str) -> Letter:
        """Wait for the next message of a kind from any rank."""
        return self._first_of((kind,))

    def _first_of(self, kinds: Sequence[str]) -> Letter:
        """Wait for a message of some kinds from any rank, and leave the cores to those that still work."""
        rest = Rest()
        while True:
            for kind in kinds:
                if (letter := self._next_if_any(kind)) is not None:
                    return letter
            rest.take()

    def _next_if_any(self, kind: str) -> Letter | None:
        """Return the next message of a kind from any rank that is there, all of it; None if none is."""
        from mpi4py import MPI

        status, tag = MPI.Status(), 2 * KINDS.index(kind)
        there = self.world.comm.Improbe(source=MPI.ANY_SOURCE, tag=tag, status=status)
        if there is None:
            return None
        given = bytearray(status.Get_count(MPI.BYTE))
        there.Recv(given)
        head = read_head(given)
        return open_letter(head, self._arrays(head, status.Get_source(), tag + 1))

    def _arrays(self, head: Head, rank: int, tag: int) -> list[Array]:
        """Return a message's arrays: those of its head, or what follows it."""
        small = inline_arrays(head) if head.inline or not any(prod(shape) for _, shape in head.arrays) else None
        if small is not None:
            return small
        found = list[Array]()
        for dtype, shape in head.arrays:
            array = np.empty(shape, dtype=dtype)
            for piece in slices(array, self.limit):
                self.world.comm.Recv(piece, source=rank, tag=tag)
            found.append(array)
        return found
