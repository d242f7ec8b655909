"""The processes of a run: one, or the ranks of an MPI launcher.

MPI is only loaded where a launcher started this process, so a plain ``dmcmc run`` needs no MPI library.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from dmcmc.inference.runtime.errors import DmcmcError

# What launchers tell their processes about the size of the world.
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")

_NAP = 0.02  # seconds


class LauncherError(DmcmcError):
    """A launcher that does not fit the MPI library: every rank would be a world of one."""


class World:
    """The ranks that work together; without a communicator, this process alone.

    Attributes
    ----------
    rank, size : int
    local_rank, local_size : int
        Which of the ranks that share this node, and so its cores and memory, this is, and how many do.
    """

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm
        self.rank: int = 0 if comm is None else comm.Get_rank()
        self.size: int = 1 if comm is None else comm.Get_size()
        self.local_rank, self.local_size = (0, 1) if comm is None else _place_on_this_node(comm)

    def bcast(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        return value if self.comm is None else self.comm.bcast(value, root=0)

    def gather(self, value: Any) -> list[Any] | None:
        """Return every rank's value on rank 0, in the order of ranks, and None elsewhere."""
        gathered: list[Any] | None = [value] if self.comm is None else self.comm.gather(value, root=0)
        return gathered

    def allgather(self, value: Any) -> list[Any]:
        """Return every rank's value on every rank."""
        gathered: list[Any] = [value] if self.comm is None else self.comm.allgather(value)
        return gathered

    def wait(self) -> None:
        """Wait for all ranks, and leave the cores to those that still work: messages are waited for by asking."""
        if self.comm is not None:
            everyone = self.comm.Ibarrier()
            while not everyone.Test():
                time.sleep(_NAP)

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


def launched(environment: Mapping[str, str]) -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in environment for name in (*_SIZE_VARIABLES, *_RANK_VARIABLES))


def announced_size(environment: Mapping[str, str]) -> int:
    """Return how many processes the launcher says it started; 1 if it does not say."""
    sizes = [int(environment[name]) for name in _SIZE_VARIABLES if environment.get(name, "").isdecimal()]
    return max(sizes, default=1)


def _place_on_this_node(comm: Any) -> tuple[int, int]:
    """Return which of the ranks that share this node's memory this is, and how many there are."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    place: tuple[int, int] = node.Get_rank(), node.Get_size()
    node.Free()
    return place
