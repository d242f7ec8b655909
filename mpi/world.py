"""The processes of a run: one, or the ranks of an MPI launcher.

MPI is only loaded where a launcher started this process, so a plain ``dmcmc run`` needs no MPI library.
"""

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from dmcmc.inference.runtime.errors import DmcmcError, OutOfTime
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.compute_node import Node, node_of, use_gpu
from dmcmc.mpi.idle_wait import wait_for_all
from dmcmc.mpi.launcher import announced_size, launched

K = TypeVar("K")
T = TypeVar("T")

_NAP = 0.02  # seconds of a rest where others may work for long


class FailedElsewhere(DmcmcError):
    """Another rank has failed by an error that is not meant for users; that rank has the error itself."""

    exit_code = 1


class LauncherError(DmcmcError):
    """A launcher that does not fit the MPI library: every rank would be a world of one."""


class World:
    """The ranks that work together; without a communicator, this process alone.

    Attributes
    ----------
    rank, size : int
    local_rank, local_size : int
        Which of the ranks that share this node, and so its cores and memory, this is, and how many do.
    neighbours : tuple of int
        The processes of those others that this one can send signals to.
    core_sharers, gpu_sharers : int
        How many ranks run on the same cores, and use the same GPU.
    bound : tuple of int or None
        Cores of this rank, and those that its launcher could have let it use, where most of them stay idle.
    leaders : tuple of int
        For each rank the rank of its node that combines for all of them where one does: the first with a GPU, if any.
    node_comm
        The communicator of this node's ranks, that rank first; None in a world of one.
    agreed : Exception or None
        The error that was last raised on all ranks.
    """

    node_comm: Any

    core_sharers = gpu_sharers = 1
    _control: dict[str, tuple[int, int]] | None = None
    bound: tuple[int, int] | None = None

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm
        self.agreed: Exception | None = None
        self.rank: int = 0 if comm is None else comm.Get_rank()
        self.size: int = 1 if comm is None else comm.Get_size()
        node, self.node_comm = (Node(), None) if comm is None else node_of(comm)
        if node.core:
            self.node_comm = self.node_comm.Split(0, key=-1 if node.rank == node.core else node.rank)
        first = 0 if comm is None else self.node_comm.bcast(self.rank)
        self.leaders: tuple[int, ...] = (0,) if comm is None else tuple(comm.allgather(first))
        self.local_rank, self.local_size, self.neighbours = node.rank, node.size, node.neighbours
        self.core_sharers, self.gpu_sharers, self.bound = node.core_sharers, node.gpu_sharers, node.bound
        use_gpu(node.gpu)

    def bcast(self, value: Any, what: str = "bcast") -> Any:
        """Return rank 0's value on every rank; ``what`` it is for names it in :meth:`counted`."""
        if self.comm is None:
            return value
        data = self.packed(value, what, self.size - 1) if self.rank == 0 else None
        found = self.comm.bcast(data, root=0)
        return value if self.rank == 0 else self.unpacked(found)

    def gather(self, value: Any, what: str = "gather") -> list[Any] | None:
        """Return every rank's value on rank 0, in the order of ranks, and None elsewhere."""
        if self.comm is None:
            return [value]
        gathered = self.comm.gather(self.packed(value, what, 1 if self.rank else 0), root=0)
        return [self.unpacked(data) for data in gathered] if self.rank == 0 else None

    def allgather(self, value: Any, what: str = "allgather") -> list[Any]:
        """Return every rank's value on every rank."""
        if self.comm is None:
            return [value]
        data = self.packed(value, what, self.size - 1)
        wait_for_all(self.comm)
        return [self.unpacked(found) for found in self.comm.allgather(data)]

    def exchange(self, parts: Sequence[Array], what: str) -> list[Array] | None:
        """Hand each rank its part, and return what all ranks have for this one; None if no rank has anything."""
        if self.comm is None or not self.comm.allreduce(sum(map(len, parts))):
            return None
        found: list[Array] = self.comm.alltoall(list(parts))
        self.count(what, self.size - 1, sum(part.nbytes for part in parts))
        return found

    def counted(self) -> dict[str, tuple[int, int]]:
        """Return the messages that this rank has sent to others since this was last asked, and their bytes, by name.

        Agents' messages are counted where they are sent; these are all others.
        """
        counted, self._control = self._control, None
        return counted or {}

    def packed(self, value: Any, what: str, receivers: int) -> bytes:
        """Return a value as the bytes that other ranks get, and count them; mpi4py's own pickling stays as it is."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if receivers:
            self.count(what, receivers, receivers * len(data))
        return data

    @staticmethod
    def unpacked(data: bytes) -> Any:
        """Return the value that :meth:`packed` has made bytes of."""
        return pickle.loads(data)

    def count(self, what: str, count: int, size: int) -> None:
        """Count messages to other ranks, and their bytes, by name."""
        self._control = self._control or {}
        before = self._control.get(what, (0, 0))
        self._control[what] = before[0] + count, before[1] + size

    def agree(self, failure: Exception | None) -> None:
        """Raise an error on all ranks if there is one on any of them.

        Each rank calls this when it has done its part of something, with what went wrong there. The worst is raised:
        as itself where it was, and everywhere if it is meant for users; else as :class:`FailedElsewhere`.
        """
        if self.comm is None:
            if failure is not None:
                raise failure
            return
        told = self.allgather(shared_form(failure, self.rank), "agree")
        error = worst(told, failure, self.rank)
        if error is not None:
            self.agreed = error
            raise error

    def is_agreed(self, error: Exception) -> bool:
        """Return whether all ranks have raised an error; else others go on, and wait for this one."""
        return self.comm is None or error is self.agreed

    def together(self, work: Callable[[], T]) -> T:
        """Return what this rank's part of something makes; an error on one rank is raised on all.

        The work must not wait for other ranks.
        """
        if self.comm is None:
            return work()
        made, failure = None, None
        try:
            made = work()
        except Exception as error:
            failure = error
        self.agree(failure)
        return cast(T, made)

    def decided(self, work: Callable[[], T]) -> T:
        """Return what rank 0 makes on every rank, and raise what it raises."""
        made = self.together(lambda: work() if self.rank == 0 else None)
        return cast(T, self.bcast(made, "decided"))

    def give_up(self, error: BaseException) -> None:
        """Let the launcher end all ranks when this one ends, as others may wait for it; not after an agreed error."""
        if self.comm is not None and error is not self.agreed:
            from mpi4py.run import set_abort_status

            set_abort_status(1)

    def merged(self, parts: Mapping[K, T]) -> dict[K, T]:
        """Return every rank's entries on every rank."""
        together: dict[K, T] = {}
        for part in self.allgather(dict(parts), "merged"):
            together |= part
        return together

    def wait(self) -> None:
        """Wait for all ranks, and leave the cores to those that still work for long."""
        if self.comm is not None:
            wait_for_all(self.comm, _NAP)

    def abort(self, code: int) -> None:
        """End every rank at once with this exit code; does nothing in a world of one."""
        if self.comm is not None:
            self.comm.Abort(code)


def connect() -> World:
    """Return the world that this process was started in.

    Raises
    ------
    LauncherError
        If a launcher started several processes and the MPI library sees one, or no MPI library loads.
    """
    if not launched(os.environ):
        return World()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if announced_size(os.environ) == 1:
            return World()
        raise LauncherError(
            f"started by an MPI launcher, but no MPI library loads ({' '.join(str(error).split())});"
            " install one (pip install 'dmcmc[mpi]') or load your site's module"
        ) from error
    world = World(MPI.COMM_WORLD)
    expected = announced_size(os.environ)
    if world.size == 1 and expected > 1:
        library = MPI.Get_library_version().split("\n")[0].strip("\0 ")
        raise LauncherError(
            f"the launcher started {expected} processes, but each sees a world of one: it belongs to another MPI than"
            f" {library}; use the mpirun of that library"
        )
    return world


def shared_form(failure: Exception | None, rank: int) -> DmcmcError | None:
    """Return what other ranks are told of an error: itself if it is meant for users, else whose it is."""
    if failure is None or isinstance(failure, DmcmcError):
        return failure
    message = " ".join(str(failure).split())[:500]
    return FailedElsewhere(f"rank {rank} has failed: {type(failure).__name__}{message and ': '}{message}")


def worst(told: Sequence[DmcmcError | None], failure: Exception | None, rank: int) -> Exception | None:
    """Return the worst of all ranks' errors, this rank's as it is; None where there is none."""
    failures = [(_severity(e), e.order, number, e) for number, e in enumerate(told) if e is not None]
    if not failures:
        return None
    _, _, whose, error = min(failures, key=lambda found: found[:3])
    return failure if failure is not None and whose == rank else error


def _severity(error: Exception) -> int:
    """Return 0 for what nobody foresaw, 1 for the end of time, 2 for the rest."""
    return 0 if isinstance(error, FailedElsewhere) else 1 if isinstance(error, OutOfTime) else 2
