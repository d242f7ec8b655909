"""Information that MPI launchers pass to processes in environment variables; MPI itself is not started."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_OPEN_MPI_VARIABLE = "OMPI_COMM_WORLD_RANK"
_OPEN_MPI_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "prun")  # program names of Open MPI
_MAX_ANCESTORS = 8  # processes between a rank and its launcher to search
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")


def launched(environment: Mapping[str, str]) -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in environment for name in (*_SIZE_VARIABLES, *_RANK_VARIABLES))


def announced_size(environment: Mapping[str, str]) -> int:
    """Return the number of processes that the launcher has started; 1 if it does not report it.

    >>> announced_size({"PMI_SIZE": "3"}), announced_size({})
    (3, 1)
    """
    sizes = [int(environment[name]) for name in _SIZE_VARIABLES if environment.get(name, "").isdecimal()]
    return max(sizes, default=1)


def announced_rank(environment: Mapping[str, str]) -> int:
    """Return this process's rank as reported by the launcher; 0 if it does not report it.

    >>> announced_rank({"PMI_RANK": "3"}), announced_rank({})
    (3, 0)
    """
    ranks = [environment[name] for name in _RANK_VARIABLES if environment.get(name, "").isdecimal()]
    return int(ranks[0]) if ranks else 0


def by_open_mpi(environment: Mapping[str, str]) -> bool:
    """Return whether Open MPI's launcher started this process.

    When that launcher is asked to end, it sends SIGCONT at once, then SIGTERM, and kills soon after (Open MPI 5: a
    quarter of a second each). Most of what ranks print in that time is lost.
    """
    return _OPEN_MPI_VARIABLE in environment


def launcher_of(process: int) -> int | None:
    """Return the process number of the launcher above a process, from ``/proc``; None if none is found."""
    with suppress(OSError, ValueError):
        for _ in range(_MAX_ANCESTORS):
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{process}/comm").read_text().strip() in _OPEN_MPI_LAUNCHERS:
                return process
    return None


def print_as_launcher(process: int) -> None:
    """Redirect standard output and error to those of the launcher, which no longer forwards what ranks print."""
    launcher = launcher_of(process)
    for stream in (1, 2):
        with suppress(OSError):  # the file may not be ours to open
            target = os.open(f"/proc/{launcher}/fd/{stream}", os.O_WRONLY | os.O_APPEND)
            os.dup2(target, stream)
            os.close(target)
