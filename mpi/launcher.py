"""What MPI launchers tell the processes that they start, by environment variables: without starting MPI."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_OPEN_MPI = "OMPI_COMM_WORLD_RANK"
_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "prun")  # of Open MPI
_ABOVE = 8  # processes between a rank and its launcher, at most
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")


def launched(environment: Mapping[str, str]) -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in environment for name in (*_SIZES, *_RANKS))


def announced_size(environment: Mapping[str, str]) -> int:
    """Return how many processes the launcher says it started; 1 if it does not say.

    >>> announced_size({"PMI_SIZE": "3"}), announced_size({})
    (3, 1)
    """
    sizes = [int(environment[name]) for name in _SIZES if environment.get(name, "").isdecimal()]
    return max(sizes, default=1)


def announced_rank(environment: Mapping[str, str]) -> int:
    """Return this process's rank as the launcher says it; 0 if it does not.

    >>> announced_rank({"PMI_RANK": "3"}), announced_rank({})
    (3, 0)
    """
    ranks = [environment[name] for name in _RANKS if environment.get(name, "").isdecimal()]
    return int(ranks[0]) if ranks else 0


def by_open_mpi(environment: Mapping[str, str]) -> bool:
    """Return whether Open MPI's launcher started this process.

    When that is told to end, it sends SIGCONT at once, then SIGTERM, and kills soon after (Open MPI 5: a quarter of a
    second each); what ranks print meanwhile is mostly lost.
    """
    return _OPEN_MPI in environment


def launcher_of(process: int) -> int | None:
    """Return the process of the launcher above one on this machine, by what Linux tells; None where none is seen."""
    with suppress(OSError, ValueError):
        for _ in range(_ABOVE):
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{process}/comm").read_text().strip() in _LAUNCHERS:
                return process
    return None


def print_as_launcher(process: int) -> None:
    """Let standard output and error go where the launcher's go, without it: it passes nothing on any more."""
    launcher = launcher_of(process)
    for stream in (1, 2):
        with suppress(OSError):  # is not ours to open
            there = os.open(f"/proc/{launcher}/fd/{stream}", os.O_WRONLY | os.O_APPEND)
            os.dup2(there, stream)
            os.close(there)
