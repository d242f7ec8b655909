"""The processes of a run: one process, or the ranks that an MPI launcher started.

MPI is loaded only if a launcher started this process, so a plain ``dmcmc run`` needs no MPI library.

With more ranks than agents, ranks that own no agent work on the rows of an agent with the rank that owns it: they are a
team (:class:`MpiTeam`).
"""

import atexit
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Array
from dmcmc.mpi import compute_node
from dmcmc.mpi.collective_calls import CollectiveCalls, gathered, gathered_on_all
from dmcmc.samplers.contract import tuning

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

    node_comm: Any = None
    _calls: CollectiveCalls  # set only with a communicator
    leaders: tuple[int, ...] = (0,)
    core_sharers = gpu_sharers = 1  # without MPI: this process alone
    core_binding: tuple[int, int] | None = None

    def __init__(self, comm: Any = None) -> None:
        self.comm, self.counts = comm, MessageCounts()
        self.rank, self.size = 0, 1
        node = compute_node.ComputeNode()
        if comm is not None:
            self._calls = CollectiveCalls(comm, partial(self.counts.add, "agree"))
            self.rank, self.size = comm.Get_rank(), comm.Get_size()
            node, self.node_comm, self.leaders = compute_node.find_compute_node(comm)
            compute_node.use_gpu(node.gpu)
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
        return self.decided(value, what)

    def decided(self, value: T, what: str = "decided") -> T:
        """Return rank 0's value on every rank; the ranks have begun this call together, or left :meth:`together`."""
        if self.comm is None:
            return value
        data = self.counts.pack(value, what, self.size - 1) if self.rank == 0 else None
        received = self.comm.bcast(data, root=0)
        return value if self.rank == 0 else cast(T, unpack(received))

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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise an error of the block on all ranks, which all enter it; it must not wait for other ranks."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            if self.comm is None:
                raise
            failure = error
        self.agree(failure)

    def on_first_rank(self, work: Callable[[], T]) -> T:
        """Return the result of rank 0's work on every rank; an exception on rank 0 is raised on all."""
        if self.comm is None:
            return work()
        result = self.on_all_ranks(lambda: work() if self.rank == 0 else None)
        return cast(T, self.decided(result))

    def abort_on_exit(self, error: BaseException) -> None:
        """Make the launcher end all ranks when this one exits, unless they have agreed on the error."""
        if self.comm is not None and error is not self._calls.agreed_error:
            from mpi4py.run import set_abort_status

            set_abort_status(1)
            atexit.unregister(_leave)

    def union(self, parts: Mapping[K, T]) -> dict[K, T]:
        """Return the union of all ranks' dictionaries on every rank."""
        union: dict[K, T] = {}
        for part in self.allgather(dict(parts), "merged"):
            union |= part
        return union

    def wait(self) -> None:
        """Wait for all ranks, and leave the cores to those that still work."""
        if self.comm is not None:
            self._calls.begin("wait", tuning.CHECK_SECONDS)

    def abort(self, code: int) -> None:
        """End every rank at once with this exit code; does nothing without MPI."""
        if self.comm is not None:
            self.comm.Abort(code)


def exchange(world: World, parts: Sequence[Array], what: str) -> list[Array] | None:
    """Send each rank its part, and return the parts for this rank; None if no rank has sent anything.

    Parameters
    ----------
    parts : sequence of arrays
        Data for each rank.
    what : str
        Name under which :meth:`World.message_counts` reports the messages.
    """
    if world.comm is None:
        return None
    world._calls.begin(what)
    if not world.comm.allreduce(sum(map(len, parts))):
        return None
    received: list[Array] = world.comm.alltoall(list(parts))
    world.counts.add(what, world.size - 1, sum(part.nbytes for part in parts))
    return received


def have_same(world: World, number: int) -> bool:
    """Return whether all ranks pass the same number; a collective call that is cheaper than collecting the numbers."""
    return world.comm is None or len(set(world._calls.begin("same number", size=number).tolist())) == 1


def announce_end(world: World) -> None:
    """Let the other ranks know when this process ends, so that they do not wait for it in a collective call."""
    if world.comm is not None:
        atexit.register(_leave, world)


def _leave(world: World) -> None:
    """Announce the end of this process, unless the communicator has ended before."""
    from mpi4py import MPI

    if not MPI.Is_finalized() and world.comm != MPI.COMM_NULL:
        world._calls.leave()


def connect() -> World:
    """Return the world that this process was started in.

    Raises
    ------
    LauncherError
        If a launcher started several processes and the MPI library sees only one, if the library cannot talk to the
        launcher, or if no MPI library can be loaded.
    """
    if not compute_node.launched(os.environ):
        return World()
    try:
        MPI = _initialised_library()
    except (ImportError, RuntimeError) as error:
        if compute_node.announced_size(os.environ) == 1:
            return World()
        raise LauncherError(
            f"started by an MPI launcher, but no MPI library loads ({' '.join(str(error).split())});"
            " install one (pip install 'dmcmc[mpi]') or load your site's module"
        ) from error
    world = World(MPI.COMM_WORLD)
    expected = compute_node.announced_size(os.environ)
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

    if compute_node.speaks_pmix(os.environ):
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        if library.startswith("MPICH") and "pmix" not in library.lower():
            name = " ".join(library.split("\n")[0].replace("Version:", "").split())
            launcher = "Open MPI's launcher" if compute_node.by_open_mpi(os.environ) else "a launcher that speaks PMIx"
            own = Path(sys.executable).with_name("mpirun")  # that of the extra "mpi"
            raise LauncherError(
                f"started by {launcher}, which the MPI library ({name}) cannot talk to; use the mpirun of that"
                f" library{f' ({own})' if own.exists() else ''}, or an mpi4py with the launcher's library"
            )
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return MPI


_MAX_BROADCAST_BYTES = 1 << 30  # of one broadcast; MPI counts have 31 bits


def byte_slices(array: Array, limit: int) -> Iterator[NDArray[np.uint8]]:
    """Yield an array's bytes in slices of at most ``limit`` bytes."""
    flat = array.reshape(-1).view(np.uint8)
    for begin in range(0, flat.size, limit):
        yield flat[begin : begin + limit]


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
        agreed = error is None or (isinstance(error, Exception) and self._world.is_agreed(error))
        if self._comm is not None and agreed:  # after other errors, ranks do not wait for each other
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
