"""The MPI ranks that work on the rows of one agent: the rank that owns it, and ranks that own no agent."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.collective_calls import CollectiveCalls
from dmcmc.mpi.wire_format import byte_slices
from dmcmc.mpi.world import World, unpack

_MAX_BROADCAST_BYTES = 1 << 30  # of one broadcast; MPI counts have 31 bits


class MpiTeam:
    """The ranks of one agent; a context that all ranks enter and leave together, each in its own team.

    Parameters
    ----------
    world : World
        All ranks.
    agent : int or None
        The agent whose rows they work on; None for a rank that works alone, which other ranks do not wait for.
    first : bool
        Whether this rank owns the agent.
    private : bool
        Whether the agent's utilities must not be sent between ranks, even if all ranks know them.

    Attributes
    ----------
    rank, size : int
        Number of this rank in the team, and number of its ranks.
    """

    rank, size = 0, 1

    def __init__(self, world: World, agent: int | None, first: bool, private: bool = False) -> None:
        self.private = private
        self._world = world
        self._comm: Any = None
        if agent is not None:
            self._comm = world.comm.Split(agent, key=0 if first else 1 + world.rank)
            self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._calls = None if self._comm is None else CollectiveCalls(self._comm, partial(world.counts.add, "team"))

    def __enter__(self) -> "MpiTeam":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._comm is not None and error is None:  # after an error, ranks do not wait for each other
            self._comm.Free()

    def allgather(self, work: Callable[[], Sequence[Array]]) -> list[Sequence[Array]]:
        """Return the arrays that ``work`` makes on each rank, in rank order; an error on one rank is raised on all."""

        def make() -> list[Array]:
            return [np.asarray(array, order="C") for array in work()]

        arrays_made = make() if self._calls is None else self._calls.after(make)
        forms = self._allgather([(array.dtype.str, array.shape) for array in arrays_made])
        return [self._arrays(rank, arrays_made, form) for rank, form in enumerate(forms)]

    @contextmanager
    def sharing_errors(self) -> Iterator[None]:
        """Raise an error of the body, which may call :meth:`allgather`, on all ranks of all teams.

        All ranks enter and leave the body, each in its own team.
        """
        if self._world.comm is None:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        if self._calls is not None and (failure is None or failure is not self._calls.agreed_error):
            try:
                self._calls.agree(failure)
            except Exception as error:
                failure = error
        self._world.agree(failure)

    def _allgather(self, value: Any) -> list[Any]:
        """Return every rank's value; the ranks have agreed that none has failed."""
        if self.size == 1:
            return [value]
        data = self._world.counts.pack(value, "team", self.size - 1)
        return [unpack(received) for received in self._comm.allgather(data)]

    def _arrays(
        self, rank: int, own_arrays: Sequence[Array], form: Sequence[tuple[str, tuple[int, ...]]]
    ) -> Sequence[Array]:
        """Return the arrays of one rank, which broadcasts them to the others.

        ``form`` has dtype and shape of each of its arrays; ``own_arrays`` are this rank's arrays.
        """
        sends = rank == self.rank
        arrays = own_arrays if sends else [np.empty(shape, dtype=dtype) for dtype, shape in form]
        if self._comm is not None:
            for array in arrays:
                for piece in byte_slices(array, _MAX_BROADCAST_BYTES):
                    self._comm.Bcast(piece, root=rank)
            if sends:
                self._world.counts.add("team", 0, (self.size - 1) * sum(array.nbytes for array in arrays))
        return arrays
