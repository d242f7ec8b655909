"""Read the environment variables that MPI launchers set, and find the launcher's process, without starting MPI."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Environment variables with the number of ranks: of MPICH and its relatives, Open MPI, MVAPICH2 and HPE PALS.
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_OPEN_MPI_VARIABLE = "OMPI_COMM_WORLD_RANK"
_PMIX_VARIABLE = "PMIX_NAMESPACE"  # the variable by which MPICH recognises PMIx
_OPEN_MPI_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "prun")  # program names of Open MPI
_MAX_ANCESTORS = 8  # ancestors of a rank that are searched for its launcher
# Environment variables with the number of this rank, of the same launchers and of PMIx.
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

    When that launcher is asked to end, it sends SIGCONT to the ranks at once, then SIGTERM, and kills them soon after
    (Open MPI 5: a quarter of a second each). It loses most of what ranks print in that time; see
    :func:`print_as_launcher`.
    """
    return _OPEN_MPI_VARIABLE in environment


def speaks_pmix(environment: Mapping[str, str]) -> bool:
    """Return whether the launcher uses PMIx for its ranks: Open MPI's does, and Slurm's with ``--mpi=pmix``.

    >>> speaks_pmix({"PMIX_NAMESPACE": "prterun-12@1"}), speaks_pmix({"PMI_RANK": "0"})
    (True, False)
    """
    return _PMIX_VARIABLE in environment


def launcher_of(process: int) -> int | None:
    """Return the process id of Open MPI's launcher among the ancestors of a process; None if none is found.

    The ancestors are read from ``/proc``.
    """
    with suppress(OSError, ValueError):
        for _ in range(_MAX_ANCESTORS):
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{process}/comm").read_text().strip() in _OPEN_MPI_LAUNCHERS:
                return process
    return None


def print_as_launcher(process: int) -> None:
    """Redirect this process's standard output and error to those of its launcher.

    Call it when the launcher is ending and no longer forwards what ranks print. ``process`` is this process's id.
    """
    launcher = launcher_of(process)
    for stream in (1, 2):
        with suppress(OSError):  # this user may not have permission to open the file
            target = os.open(f"/proc/{launcher}/fd/{stream}", os.O_WRONLY | os.O_APPEND)
            os.dup2(target, stream)
            os.close(target)
