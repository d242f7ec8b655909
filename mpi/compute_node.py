"""What the ranks of one node share: its cores, its memory and its GPUs.

A GPU is chosen by ``CUDA_VISIBLE_DEVICES``, before CUDA starts: so all threads of a rank see that one alone, and no
rank has a context on another's.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_DEVICES = "CUDA_VISIBLE_DEVICES"
_IDLE = 2  # times as many cores as all ranks of a node may use: then a launcher has bound them without need


class Seat(NamedTuple):
    """What a rank says of itself to the others of its node.

    Attributes
    ----------
    space : str or None
        A name of the space that its process's number is from; None where that is not known.
    process : int
    cores : frozenset of int
        That it may run on.
    launcher : int
        How many cores its parent may run on.
    gpus : tuple of str
        That it sees, as CUDA calls them.
    """

    space: str | None
    process: int
    cores: frozenset[int]
    launcher: int
    gpus: tuple[str, ...]


class Node(NamedTuple):
    """What a rank has on its node.

    Attributes
    ----------
    rank, size : int
        Which of the node's ranks it is, of how many.
    neighbours : tuple of int
        The processes of those others that it can send signals to.
    core_sharers, gpu_sharers : int
        Ranks that run on the same cores; that use the same GPU; itself among them.
    gpu : str or None
        The GPU that it is to use, where it sees several; None leaves things as they are.
    bound : tuple of int or None
        Cores that it may use, and those that its launcher could have let it use, where most of them stay idle.
    core : int
        Which of the node's ranks combines for all of them where one does: the first that has a GPU, if one has.
    """

    rank: int = 0
    size: int = 1
    neighbours: tuple[int, ...] = ()
    core_sharers: int = 1
    gpu_sharers: int = 1
    gpu: str | None = None
    bound: tuple[int, int] | None = None
    core: int = 0


def node_of(comm: Any) -> tuple[Node, Any]:
    """Return what this rank has on its node, and the communicator of its ranks; called by all ranks."""
    from mpi4py import MPI

    there = comm.Split_type(MPI.COMM_TYPE_SHARED)
    seats: list[Seat] = there.allgather(_seat(os.environ))
    return arranged(seats, there.Get_rank()), there


def arranged(seats: Sequence[Seat], rank: int) -> Node:
    """Return what one of a node's ranks has, by what all of them say.

    Ranks that see the same GPUs divide them evenly, in blocks; where a launcher has given each its own, they stay.

    Examples
    --------
    >>> seats = [Seat("a", 10 + r, frozenset({0, 1}), 2, ("0", "1")) for r in range(4)]
    >>> [(node.gpu, node.gpu_sharers, node.core_sharers) for node in (arranged(seats, r) for r in range(4))]
    [('0', 2, 4), ('0', 2, 4), ('1', 2, 4), ('1', 2, 4)]
    >>> arranged([seats[0]._replace(gpus=()), seats[1]], 0).core
    1
    """
    own, size = seats[rank], len(seats)
    gpus = [_gpu_of(seats, other) for other in range(size)]
    used = frozenset().union(*(seat.cores for seat in seats))
    bound = (len(own.cores), own.launcher) if _IDLE * len(used) <= own.launcher else None
    return Node(
        rank=rank,
        size=size,
        neighbours=tuple(
            seat.process
            for other, seat in enumerate(seats)
            if other != rank and own.space is not None and seat.space == own.space
        ),
        core_sharers=max(1, sum(bool(seat.cores & own.cores) for seat in seats)),
        gpu_sharers=1 if gpus[rank] is None else gpus.count(gpus[rank]),
        gpu=gpus[rank] if len(own.gpus) > 1 and size > 1 else None,
        bound=bound,
        core=next((other for other, gpu in enumerate(gpus) if gpu is not None), 0),
    )


def _gpu_of(seats: Sequence[Seat], rank: int) -> str | None:
    """Return the GPU that a rank uses; None where it sees none."""
    own = seats[rank].gpus
    alike = [other for other, seat in enumerate(seats) if seat.gpus == own]
    return own[alike.index(rank) * len(own) // len(alike)] if own else None


def use_gpu(gpu: str | None) -> None:
    """Let this process see one GPU only; without effect once CUDA has started."""
    if gpu is not None:
        os.environ[_DEVICES] = gpu


def advice(bound: tuple[int, int]) -> str:
    """Return what a user should do about ranks that are bound to few cores.

    >>> advice((1, 16))
    'each rank is bound to 1 of 16 cores, and most of them stay idle; start with mpirun --bind-to none'
    """
    own, there = bound
    cores = f"each rank is bound to {own} of {there} cores, and most of them stay idle"
    return f"{cores}; start with mpirun --bind-to none"


def _seat(environment: Mapping[str, str]) -> Seat:
    own = _affinity(0)
    return Seat(_process_space(), os.getpid(), own, len(_affinity(os.getppid()) or own), visible_gpus(environment))


def visible_gpus(environment: Mapping[str, str], devices: str = "/dev") -> tuple[str, ...]:
    """Return the GPUs that CUDA would find, as it calls them, without starting it.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2, GPU-8a"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (('2', 'GPU-8a'), ())
    """
    if _DEVICES in environment:
        return tuple(name.strip() for name in environment[_DEVICES].split(",") if name.strip() not in ("", "-1"))
    try:
        count = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path(devices).iterdir())
    except OSError:
        return ()
    return tuple(map(str, range(count)))


def _affinity(process: int) -> frozenset[int]:
    """Return the cores that a process may run on; none where nothing says."""
    try:
        return frozenset(os.sched_getaffinity(process))
    except (AttributeError, OSError):
        return frozenset()


def _process_space() -> str | None:
    """Return a name of the space that this process's number is from; None where that is not known."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
