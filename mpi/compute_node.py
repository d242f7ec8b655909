"""The compute node that a rank runs on, the launcher that started it, and on which ranks agents are placed.

The ranks of a node share its cores, memory and GPUs. Each rank uses one GPU, which is selected by setting
``CUDA_VISIBLE_DEVICES`` before CUDA starts. So all threads of a rank see that GPU alone, and no rank has a CUDA context
on another rank's GPU. The launcher is found by its environment variables, without starting MPI.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from heapq import heapreplace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from dmcmc.mpi import tuning

_GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


class RankInfo(NamedTuple):
    """The report of a rank about itself to the other ranks of its node.

    Attributes
    ----------
    process_namespace : str or None
        Name of the namespace of its process id; None if unknown. Process ids are valid only within a namespace.
    process : int
        Process id.
    cores : frozenset of int
        Cores that the rank may run on.
    launcher_cores : int
        Number of cores that the rank's parent process, the launcher, may run on.
    gpus : tuple of str
        GPUs that the rank sees, by CUDA's names.
    """

    process_namespace: str | None
    process: int
    cores: frozenset[int]
    launcher_cores: int
    gpus: tuple[str, ...]


class ComputeNode(NamedTuple):
    """A rank's share of its compute node.

    Attributes
    ----------
    rank, size : int
        Number of the rank within the node, and number of the node's ranks.
    local_processes : tuple of int
        Process ids of the other ranks that it can send signals to.
    core_sharers, gpu_sharers : int
        Number of ranks that may run on any of this rank's cores, and that use the same GPU; this rank included.
    gpu : str or None
        The GPU to use, if the rank sees several and must choose; None leaves the environment unchanged.
    core_binding : (int, int) or None
        Set if the launcher binds ranks so tightly that at least half of its cores stay idle: the number of cores that
        this rank may use, and the number that its launcher may use. None otherwise.
    leader : int
        The rank of the node that combines tables for all ranks of the node: the first that has a GPU, or else rank 0.
    """

    rank: int = 0
    size: int = 1
    local_processes: tuple[int, ...] = ()
    core_sharers: int = 1
    gpu_sharers: int = 1
    gpu: str | None = None
    core_binding: tuple[int, int] | None = None
    leader: int = 0


class NodeRanks(NamedTuple):
    """What a rank keeps about its compute node, as an attribute of the communicator of all ranks.

    Attributes
    ----------
    node : ComputeNode
        This rank's share of the node.
    comm : mpi4py communicator
        The ranks of the node, the leader first; freed with the communicator of all ranks.
    leaders : tuple of int
        For each rank, the rank that leads its node.
    """

    node: ComputeNode
    comm: Any
    leaders: tuple[int, ...]


def find_compute_node(comm: Any) -> NodeRanks:
    """Return this rank's compute node, which is found once per communicator; a collective call."""
    from mpi4py import MPI

    known: NodeRanks | None = comm.Get_attr(_attribute())
    if known is None:
        ranks = comm.Split_type(MPI.COMM_TYPE_SHARED)
        infos: list[RankInfo] = ranks.allgather(_rank_info(os.environ))
        node = arrange_ranks(infos, ranks.Get_rank())
        node_comm = ranks.Split(0, key=-1 if node.rank == node.leader else node.rank)
        ranks.Free()
        known = NodeRanks(node, node_comm, tuple(comm.allgather(node_comm.bcast(comm.Get_rank()))))
        comm.Set_attr(_attribute(), known)
    return known


@cache
def _attribute() -> int:
    """Return the key of the attribute that holds :class:`NodeRanks`; copies of a communicator do not take it over."""
    from mpi4py import MPI

    key: int = MPI.Comm.Create_keyval(delete_fn=lambda _comm, _key, known: known.comm.Free())
    return key


def arrange_ranks(infos: Sequence[RankInfo], rank: int) -> ComputeNode:
    """Return one rank's share of a compute node, from the reports of all its ranks.

    Ranks that see the same GPUs divide them evenly, in blocks. If a launcher has given each rank its own GPU, that
    stays.

    Examples
    --------
    >>> infos = [RankInfo("a", 10 + r, frozenset({0, 1}), 2, ("0", "1")) for r in range(4)]
    >>> [(node.gpu, node.gpu_sharers, node.core_sharers) for node in (arrange_ranks(infos, r) for r in range(4))]
    [('0', 2, 4), ('0', 2, 4), ('1', 2, 4), ('1', 2, 4)]
    >>> arrange_ranks([infos[0]._replace(gpus=()), infos[1]], 0).leader
    1
    """
    this_rank, size = infos[rank], len(infos)
    gpus = [_gpu_of(infos, other) for other in range(size)]
    usable_cores = frozenset().union(*(info.cores for info in infos))
    core_binding = (
        (len(this_rank.cores), this_rank.launcher_cores)
        if 2 * len(usable_cores) <= this_rank.launcher_cores  # bound too tightly: half of the launcher's cores idle
        else None
    )
    return ComputeNode(
        rank=rank,
        size=size,
        local_processes=tuple(
            info.process
            for other, info in enumerate(infos)
            if other != rank
            and this_rank.process_namespace is not None
            and info.process_namespace == this_rank.process_namespace
        ),
        core_sharers=max(1, sum(bool(info.cores & this_rank.cores) for info in infos)),
        gpu_sharers=1 if gpus[rank] is None else gpus.count(gpus[rank]),
        gpu=gpus[rank] if len(this_rank.gpus) > 1 and size > 1 else None,
        core_binding=core_binding,
        leader=next((other for other, gpu in enumerate(gpus) if gpu is not None), 0),
    )


def _gpu_of(infos: Sequence[RankInfo], rank: int) -> str | None:
    """Return the GPU that a rank uses; None if it sees none.

    The ranks that see the same GPUs divide them in blocks of neighbouring ranks.
    """
    gpus = infos[rank].gpus
    same_gpus = [other for other, info in enumerate(infos) if info.gpus == gpus]
    return gpus[same_gpus.index(rank) * len(gpus) // len(same_gpus)] if gpus else None


def use_gpu(gpu: str | None) -> None:
    """Make one GPU the only visible one for this process; without effect once CUDA has started."""
    if gpu is not None:
        os.environ[_GPU_VARIABLE] = gpu


def binding_advice(core_binding: tuple[int, int]) -> str:
    """Return advice for a user whose launcher binds ranks to few cores.

    >>> binding_advice((1, 16))
    'each rank is bound to 1 of 16 cores, and most of them stay idle; start with mpirun --bind-to none'
    """
    cores_of_rank, available = core_binding
    problem = f"each rank is bound to {cores_of_rank} of {available} cores, and most of them stay idle"
    return f"{problem}; start with mpirun --bind-to none"


def _rank_info(environment: Mapping[str, str]) -> RankInfo:
    """Return what this rank reports about itself."""
    cores = _affinity(0)
    return RankInfo(
        _process_namespace(), os.getpid(), cores, len(_affinity(os.getppid()) or cores), visible_gpus(environment)
    )


def visible_gpus(environment: Mapping[str, str], devices: str = "/dev") -> tuple[str, ...]:
    """Return the GPUs that CUDA would find, by CUDA's names, without starting CUDA.

    They are read from ``CUDA_VISIBLE_DEVICES`` or, if it is not set, counted in the folder ``devices``.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2, GPU-8a"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (('2', 'GPU-8a'), ())
    """
    if _GPU_VARIABLE in environment:
        return tuple(name.strip() for name in environment[_GPU_VARIABLE].split(",") if name.strip() not in ("", "-1"))
    try:
        count = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path(devices).iterdir())
    except OSError:
        return ()
    return tuple(map(str, range(count)))


def _affinity(process: int) -> frozenset[int]:
    """Return the cores that a process may run on; an empty set if that is unknown."""
    try:
        return frozenset(os.sched_getaffinity(process))
    except (AttributeError, OSError):
        return frozenset()


def _process_namespace() -> str | None:
    """Return the name of the namespace in which this process's id is valid; None if it is unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


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


def place(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: subtrees of the agents' tree if that balances the work, else :func:`place_agents`.

    Subtrees on one rank need few messages between ranks.

    Parameters
    ----------
    costs : sequence of float
        Estimated work of each agent.
    parent : sequence of int
        The agents' tree; −1 for roots.
    ranks : int
        Number of ranks.

    Examples
    --------
    >>> place([1.0] * 6, [-1, 0, 0, 1, 1, 2], ranks=2)
    (0, 0, 1, 0, 1, 1)
    """
    balanced, on_tree = place_agents(costs, ranks), place_on_tree(costs, parent, ranks)
    return (
        on_tree
        if _busiest(costs, on_tree, ranks) <= tuning.MAX_LOAD_RATIO * _busiest(costs, balanced, ranks)
        else balanced
    )


def place_on_tree(costs: Sequence[float], parent: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the tree in depth-first order, cut into consecutive pieces of about equal work.

    A subtree is consecutive in that order, so most edges stay within a rank. Every rank has an agent if there are
    enough.

    Examples
    --------
    >>> place_on_tree([1.0, 1.0, 1.0, 1.0], [-1, 0, 1, 0], ranks=2)
    (0, 0, 1, 1)
    """
    count = len(parent)
    children: list[list[int]] = [[] for _ in range(count)]
    for agent in range(count - 1, -1, -1):
        if parent[agent] >= 0:
            children[parent[agent]].append(agent)
    order, stack = list[int](), [a for a in range(count - 1, -1, -1) if parent[a] < 0]
    while stack:
        order.append(stack.pop())
        stack.extend(children[order[-1]])
    # Work is positive here and below, so that agents without work are spread over the ranks, too.
    work = [max(costs[agent], 1e-12) for agent in order]
    total, used_ranks = sum(work), min(ranks, count)
    owner, rank = [0] * count, 0
    for position, (agent, cumulated) in enumerate(zip(order, accumulate(work), strict=True)):
        middle = cumulated - work[position] / 2
        if position and rank + 1 < used_ranks and middle >= total * (rank + 1) / used_ranks:
            rank += 1
        rank = max(rank, used_ranks - (count - position))  # at least one agent for each later rank
        owner[agent] = rank
    return tuple(owner)


def place_agents(costs: Sequence[float], ranks: int) -> tuple[int, ...]:
    """Return a rank for each agent: the costliest agents first, each to the rank with the least work so far.

    This is the longest-processing-time rule (Graham, 1969). Ties go to the lower index, so all ranks compute the same
    placement. With more ranks than agents some ranks have no work; with more agents than ranks some ranks have several
    agents.

    Examples
    --------
    >>> place_agents([5.0, 1.0, 4.0], ranks=2)
    (0, 1, 1)
    """
    load = [(0.0, rank) for rank in range(ranks)]
    owner = [0] * len(costs)
    for agent in sorted(range(len(costs)), key=lambda a: (-costs[a], a)):
        least, rank = load[0]
        owner[agent] = rank
        heapreplace(load, (least + max(costs[agent], 1e-12), rank))
    return tuple(owner)


def helpers_of(costs: Sequence[float], owner: Sequence[int], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return for each agent the ranks that help its own rank with its rows.

    Each rank without an agent helps one agent: in turn, the agent with most work per rank.

    Examples
    --------
    >>> helpers_of([5.0, 1.0], (0, 1), ranks=4)
    ((2, 3), ())
    """
    idle = sorted(set(range(ranks)) - set(owner)) if len(owner) else []
    if not idle:
        return ((),) * len(owner)
    helpers: list[list[int]] = [[] for _ in owner]
    for rank in idle:
        busiest = max(range(len(helpers)), key=lambda agent: (costs[agent] / (1 + len(helpers[agent])), -agent))
        helpers[busiest].append(rank)
    return tuple(map(tuple, helpers))


def _busiest(costs: Sequence[float], owner: Sequence[int], ranks: int) -> float:
    """Return the work of the rank that has most."""
    load = [0.0] * ranks
    for cost, rank in zip(costs, owner, strict=True):
        load[rank] += max(cost, 1e-12)
    return max(load, default=0.0)
