"""Ranks that work on the rows of one agent: its own rank, and ranks that own no agent."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.idle_wait import wait_for_all
from dmcmc.mpi.wire_format import slices
from dmcmc.mpi.world import World, shared_form, worst

T = TypeVar("T")

_LIMIT = 1 << 30  # bytes of one broadcast: counts of MPI are 31 bits wide


class Team:
    """The ranks of one agent; a context that all ranks enter and leave together, each in its own team.

    Parameters
    ----------
    agent : int or None
        Whose rows they work on; None for a rank that works alone, which other ranks do not wait for.
    first : bool
        Whether the agent is this rank's own.
    private : bool
        Whether the agent's utilities must not cross between ranks, even if all of these know them.
    """

    rank, size = 0, 1

    def __init__(self, world: World, agent: int | None, first: bool, private: bool = False) -> None:
        self.private = private
        self._world = world
        self._comm: Any = None
        self._agreed: Exception | None = None
        if agent is not None:
            self._comm = world.comm.Split(agent, key=0 if first else 1 + world.rank)
            self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def __enter__(self) -> "Team":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._comm is not None and error is None:  # where ranks part by an error, nobody waits for them
            self._comm.Free()

    def together(self, work: Callable[[], Sequence[Array]]) -> list[Sequence[Array]]:
        """Return what each rank's work makes, in the order of ranks; what it raises on one is raised on all."""
        made, failure = list[Array](), None
        try:
            made = [np.asarray(array, order="C") for array in work()]
        except Exception as error:
            failure = error
        self._agree(failure)
        forms = self._told([(array.dtype.str, array.shape) for array in made])
        return [self._arrays(rank, made, form) for rank, form in enumerate(forms)]

    def run(self, work: Callable[[], T]) -> T:
        """Return what work makes that calls :meth:`together`; what it raises elsewhere is raised on all, too."""
        try:
            made = work()
        except Exception as error:
            if error is not self._agreed:
                self._agree(error)
            raise
        self._agree(None)
        return made

    def _agree(self, failure: Exception | None) -> None:
        """Raise an error on all ranks if there is one on any of them, as :meth:`.World.agree` does."""
        if self.size > 1:
            error = worst(self._told(shared_form(failure, self._world.rank)), failure, self.rank)
            self._agreed = error
            if isinstance(error, DmcmcError) and error is not failure:
                error.order += 1  # of all ranks' errors, that of the rank where it was comes first
            if error is not None:
                raise error
        elif failure is not None:
            raise failure

    def _told(self, value: Any) -> list[Any]:
        """Return every rank's value; those that wait leave the cores to those that work."""
        if self.size == 1:
            return [value]
        wait_for_all(self._comm)
        data = self._world.packed(value, "team", self.size - 1)
        return [self._world.unpacked(found) for found in self._comm.allgather(data)]

    def _arrays(self, rank: int, made: Sequence[Array], form: Sequence[tuple[str, tuple[int, ...]]]) -> Sequence[Array]:
        """Return the arrays of one of the ranks, which sends them to the others."""
        own = rank == self.rank
        arrays = made if own else [np.empty(shape, dtype=dtype) for dtype, shape in form]
        if self._comm is not None:
            for array in arrays:
                for piece in slices(array, _LIMIT):
                    self._comm.Bcast(piece, root=rank)
            if own:
                self._world.count("team", 0, (self.size - 1) * sum(array.nbytes for array in arrays))
        return arrays
