"""What MPI launchers tell the processes that they start, by environment variables: without starting MPI."""

from collections.abc import Mapping

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
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
