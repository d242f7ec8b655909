"""The processes of a run: one process, or the ranks that an MPI launcher started.

MPI is loaded only if a launcher started this process, so a plain ``dmcmc run`` needs no MPI library.
"""

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi.collective_calls import CollectiveCalls, gathered, gathered_on_all
from dmcmc.mpi.compute_node import ComputeNode, find_compute_node, use_gpu
from dmcmc.mpi.launcher import announced_size, by_open_mpi, launched, speaks_pmix
from dmcmc.samplers.tuning import common

K = TypeVar("K")
T = TypeVar("T")


class LauncherError(DmcmcError):
    """The launcher does not belong to the MPI library, so that each rank would be a world of one."""


class MessageCounts:
    """Numbers and bytes of messages to other ranks, by the name of their purpose.

    Messages between agents are counted where they are sent; these are all others.
    """

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, int]] = {}

    def add(self, what: str, count: int, size: int) -> None:
        """Count some messages, and their bytes, under the name ``what``."""
        before = self._counted.get(what, (0, 0))
        self._counted[what] = before[0] + count, before[1] + size

    def pack(self, value: Any, what: str, receivers: int) -> bytes:
        """Return a value as the bytes to send to a number of receivers, and count them under the name ``what``.

        Values are pickled here, so that their bytes are known; mpi4py's own pickling is not changed.
        """
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if receivers:
            self.add(what, receivers, receivers * len(data))
        return data

    def take(self) -> dict[str, tuple[int, int]]:
        """Return the number and bytes of messages since the last call, {name: (count, bytes)}."""
        counted, self._counted = self._counted, {}
        return counted


def unpack(data: bytes) -> Any:
    """Return the value that :meth:`MessageCounts.pack` has made bytes of."""
    return pickle.loads(data)


class World:
    """The ranks of a run; without a communicator, this process alone.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        The communicator of all ranks.

    Attributes
    ----------
    rank, size : int
        Number of this rank, and number of ranks.
    local_rank, local_size : int
        Number of this rank among the ranks of its compute node, which share cores and memory; and number of those
        ranks.
    local_processes : tuple of int
        Process numbers of the other ranks of the node that this process can send signals to.
    core_sharers, gpu_sharers : int
        How many ranks run on the same cores, and use the same GPU; this rank included.
    core_binding : (int, int) or None
        Number of cores of this rank, and of those that its launcher could have given it, if most of them stay idle.
    leaders : tuple of int
        For each rank, the rank that leads its compute node: the first with a GPU, or else the first. A leader combines
        the tables of its node.
    counts : MessageCounts
        The messages that this rank has sent to other ranks, without those between agents.
    node_comm : mpi4py communicator or None
        The communicator of this node's ranks, the leader first; None without MPI.
    """

    node_comm: Any
    _calls: CollectiveCalls  # set only with a communicator
    leaders: tuple[int, ...] = (0,)
    core_sharers = gpu_sharers = 1  # without MPI: this process alone
    core_binding: tuple[int, int] | None = None

    def __init__(self, comm: Any = None) -> None:
        self.comm, self.counts = comm, MessageCounts()
        self.rank, self.size = 0, 1
        node, self.node_comm = ComputeNode(), None
        if comm is not None:
            self._calls = CollectiveCalls(comm, partial(self.counts.add, "agree"))
            self.rank, self.size = comm.Get_rank(), comm.Get_size()
            node, self.node_comm = find_compute_node(comm)
            use_gpu(node.gpu)
            if node.leader:
                self.node_comm = self.node_comm.Split(0, key=-1 if node.rank == node.leader else node.rank)
            self.leaders = tuple(comm.allgather(self.node_comm.bcast(self.rank)))
        self.local_rank, self.local_size, self.local_processes = node.rank, node.size, node.local_processes
        self.core_sharers, self.gpu_sharers, self.core_binding = node.core_sharers, node.gpu_sharers, node.core_binding

    def bcast(self, value: Any, what: str = "bcast") -> Any:
        """Return rank 0's value on every rank.

        Parameters
        ----------
        value : object
            The value; only rank 0's is used.
        what : str
            Name under which ``counts`` reports the messages.
        """
        if self.comm is None:
            return value
        self._calls.begin(what)
        return self._bcast(value, what)

    def _bcast(self, value: Any, what: str) -> Any:
        """Return rank 0's value on every rank; the ranks have begun this call together."""
        data = self.counts.pack(value, what, self.size - 1) if self.rank == 0 else None
        received = self.comm.bcast(data, root=0)
        return value if self.rank == 0 else unpack(received)

    def gather(self, value: Any, what: str = "gather") -> list[Any] | None:
        """Return every rank's value on rank 0, in the order of ranks, and None on the others."""
        if self.comm is None:
            return [value]
        data = self.counts.pack(value, what, 1 if self.rank else 0)
        parts = gathered(self.comm, data, self._calls.begin(what, size=len(data)))
        return [unpack(part) for part in parts] if self.rank == 0 else None

    def allgather(self, value: Any, what: str = "allgather") -> list[Any]:
        """Return every rank's value on every rank, in the order of ranks."""
        if self.comm is None:
            return [value]
        data = self.counts.pack(value, what, self.size - 1)
        parts = gathered_on_all(self.comm, data, self._calls.begin(what, size=len(data)))
        return [unpack(part) for part in parts]

    def exchange(self, parts: Sequence[Array], what: str) -> list[Array] | None:
        """Send each rank its part, and return the parts for this rank; None if no rank has sent anything.

        Parameters
        ----------
        parts : sequence of arrays
            Data for each rank.
        what : str
            Name under which ``counts`` reports the messages.
        """
        if self.comm is None:
            return None
        self._calls.begin(what)
        if not self.comm.allreduce(sum(map(len, parts))):
            return None
        received: list[Array] = self.comm.alltoall(list(parts))
        self.counts.add(what, self.size - 1, sum(part.nbytes for part in parts))
        return received

    def agree(self, failure: Exception | None) -> None:
        """Raise an error on all ranks if there is one on any of them; a collective call.

        Each rank calls this when its part of some work has ended, with the exception of that part. The worst error is
        raised. The rank where it occurred raises the error itself. The others raise it too if it is meant for users,
        otherwise a :class:`dmcmc.mpi.collective_calls.OtherRankError`.

        Parameters
        ----------
        failure : Exception or None
            The exception of this rank's part.
        """
        if self.comm is not None:
            self._calls.agree(failure)
        elif failure is not None:
            raise failure

    def is_agreed(self, error: Exception) -> bool:
        """Return whether all ranks have raised an error; otherwise other ranks continue, and may wait for this one."""
        return self.comm is None or error is self._calls.agreed_error

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of work that makes collective calls; an exception on one rank is raised on all.

        The work may wait for other ranks in calls of this class only, not for messages between agents.
        """
        return work() if self.comm is None else self._calls.run(work)

    def on_all_ranks(self, work: Callable[[], T]) -> T:
        """Return the result of this rank's part of some work; an exception on one rank is raised on all.

        Parameters
        ----------
        work : callable
            The part. It must not wait for other ranks.
        """
        return work() if self.comm is None else self._calls.after(work)

    def on_first_rank(self, work: Callable[[], T]) -> T:
        """Return the result of rank 0's work on every rank; an exception on rank 0 is raised on all."""
        if self.comm is None:
            return work()
        result = self.on_all_ranks(lambda: work() if self.rank == 0 else None)
        return cast(T, self._bcast(result, "decided"))

    def abort_on_exit(self, error: BaseException) -> None:
        """Make the launcher end all ranks when this one exits, unless they have agreed on the error."""
        if self.comm is not None and error is not self._calls.agreed_error:
            from mpi4py.run import set_abort_status

            set_abort_status(1)

    def union(self, parts: Mapping[K, T]) -> dict[K, T]:
        """Return the union of all ranks' dictionaries on every rank."""
        union: dict[K, T] = {}
        for part in self.allgather(dict(parts), "merged"):
            union |= part
        return union

    def wait(self) -> None:
        """Wait for all ranks, and leave the cores to those that still work."""
        if self.comm is not None:
            self._calls.begin("wait", common.CHECK_SECONDS)

    def abort(self, code: int) -> None:
        """End every rank at once with this exit code; does nothing without MPI."""
        if self.comm is not None:
            self.comm.Abort(code)


def connect() -> World:
    """Return the world that this process was started in.

    Raises
    ------
    LauncherError
        If a launcher started several processes and the MPI library sees only one, if the library cannot talk to the
        launcher, or if no MPI library can be loaded.
    """
    if not launched(os.environ):
        return World()
    try:
        MPI = _initialised_library()
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


def _initialised_library() -> Any:
    """Return mpi4py's module of the MPI library, after a check that the library can talk to the launcher.

    MPICH ends the process in ``MPI_Init`` with several lines if the launcher speaks PMIx, as Open MPI's does, and
    MPICH was built without it. Therefore the library is loaded, asked for its name, and initialised only then.
    """
    import mpi4py

    if speaks_pmix(os.environ):
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        if library.startswith("MPICH") and "pmix" not in library.lower():
            name = " ".join(library.split("\n")[0].replace("Version:", "").split())
            launcher = "Open MPI's launcher" if by_open_mpi(os.environ) else "a launcher that speaks PMIx"
            own = Path(sys.executable).with_name("mpirun")  # that of the extra "mpi"
            raise LauncherError(
                f"started by {launcher}, which the MPI library ({name}) cannot talk to; use the mpirun of that"
                f" library{f' ({own})' if own.exists() else ''}, or an mpi4py with the launcher's library"
            )
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return MPI
