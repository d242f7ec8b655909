"""Count an agent's work on the rank that has the agent; :mod:`dmcmc.samplers.auto.choose` decides by the counts.

An agent's hidden variables are eliminated (each in a *bucket*, which joins tables; *cells* are the entries of a joined
table) or sampled for each *row*, an assignment of its boundary variables (its interface).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import RepeatedRecords
from dmcmc.inference.orders.best_order import Order
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import Memo
from dmcmc.samplers.auto.rates import bucket_efforts
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods.exact import least_entries
from dmcmc.samplers.model.chain_model import check_chain_memory

SAMPLER = "annealing"  # sampler of agents that are not eliminated


class AgentWorkCounts(NamedTuple):
    """Counts of an agent's work.

    Attributes
    ----------
    agent : int
        Number of the agent.
    hidden, interface : int
        Number of hidden variables, and of boundary variables (the agent's interface).
    rows : int
        Number of boundary assignments.
    listed_rows : int
        Number of rows that sampling would list; 0 for all.
    width : int
        Induced width of the elimination.
    cells : float
        Joined cells of the elimination.
    effort, shared : float
        Nanoseconds on one core of a nominal machine; the part of the buckets on which all threads work.
    device, device_effort, device_buckets : float, float, int
        Cells, CPU nanoseconds and number of the buckets that a GPU would eliminate.
    bytes : int
        Memory of the elimination's tables; in slices, if it does not fit the memory otherwise.
    updates : float
        Draws of a first sampling.
    values : float
        Mean domain size.
    pairs, triangles : int
        Pairs of hidden variables with a common binary factor, and triples of variables that are pairwise such pairs.
    weight : float
        Sum of the factors' largest absolute entries: a scale of the agent's possible gap.
    obstacle : str
        Why the agent cannot be sampled; empty if it can.
    remaining_scopes : tuple of tuple of int
        Scopes of the tables that remain after the elimination, as indices of boundary variables.
    """

    agent: int
    hidden: int
    interface: int
    rows: int
    listed_rows: int
    width: int
    cells: float
    effort: float
    shared: float
    device: float
    device_effort: float
    device_buckets: int
    bytes: int
    updates: float
    values: float
    pairs: int
    triangles: int
    weight: float
    obstacle: str
    remaining_scopes: tuple[tuple[int, ...], ...] = ()

    def remaining_tables(self, interface: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the scopes of the tables that remain after the elimination, as variables."""
        return tuple(tuple([interface[place] for place in scope]) for scope in self.remaining_scopes)


class WorkCountList(Sequence[AgentWorkCounts]):
    """The counts of all agents, on every rank; agents with equal counts share one record.

    Attributes
    ----------
    kinds : RepeatedRecords of AgentWorkCounts
        The counts of each agent without its number and weight.
    weights : (agents,) float64
        The weights of the agents.
    """

    def __init__(self, kinds: RepeatedRecords[AgentWorkCounts], weights: NDArray[np.float64]) -> None:
        self.kinds, self.weights = kinds, weights

    @classmethod
    def of(cls, works: Sequence[AgentWorkCounts]) -> "WorkCountList":
        """Return a compact list of counts; the agents' numbers are dropped."""
        weights = np.array([work.weight for work in works], dtype=np.float64)
        return cls(RepeatedRecords.of(work._replace(agent=0, weight=0.0) for work in works), weights)

    @classmethod
    def merged(cls, count: int, parts: Iterable[tuple[Sequence[int], "WorkCountList"]]) -> "WorkCountList":
        """Merge parts into one list of ``count`` agents; each part names its agents."""
        number: dict[AgentWorkCounts, int] = {}
        record_of, weights = np.zeros(count, dtype=np.int64), np.zeros(count)
        for agents, works in parts:
            places = [number.setdefault(work, len(number)) for work in works.kinds.distinct]
            record_of[list(agents)] = np.array(places, dtype=np.int64)[works.kinds.record_index]
            weights[list(agents)] = works.weights
        _, first, record_of = np.unique(record_of, return_index=True, return_inverse=True)
        kinds, order = list(number), np.argsort(first)  # in the order of the agents, independent of the ranks
        codes = np.argsort(order)[record_of.ravel()]
        return cls(RepeatedRecords([kinds[kind] for kind in order], codes), weights)

    def __len__(self) -> int:
        return len(self.kinds)

    @overload
    def __getitem__(self, agent: int) -> AgentWorkCounts: ...
    @overload
    def __getitem__(self, agent: slice) -> list[AgentWorkCounts]: ...
    def __getitem__(self, agent: int | slice) -> AgentWorkCounts | list[AgentWorkCounts]:
        if isinstance(agent, slice):
            return [self[one] for one in range(*agent.indices(len(self)))]
        return self.kinds[agent]._replace(agent=range(len(self))[agent], weight=float(self.weights[agent]))


def count_agent_work(
    local: LocalProblem,
    listed: int,
    runs: int,
    samples: int,
    memory: int,
    arithmetic: Arithmetic,
    planned: bool = True,
    bounded: bool = True,
) -> AgentWorkCounts:
    """Count an agent's work.

    Parameters
    ----------
    local : LocalProblem
        The agent's subproblem.
    listed : int
        Rows that sampling would list; 0 for all.
    runs, samples : int
        Runs per row and trials per run of a first sampling.
    memory : int
        Bytes that the tables of the agent may take.
    arithmetic : Arithmetic
        Number format of the tables.
    planned : bool
        Whether to plan the elimination, which takes a moment; if not, it counts as no work, and the agent is known to
        be one that can be sampled.
    bounded : bool
        Whether the table of a sampled agent may get an upper bound; if not, pairs and triangles, whose number the time
        of a bound depends on, may count as none.
    """
    if planned:
        order, plan = local.order, local.plan
        places = {v: i for i, v in enumerate(local.hidden)}
        key = local.structure_key, tuple(places[v] for v in order.variables)
        work, remaining = _COUNTS_BY_SHAPE.get(key, lambda: _count(local, plan)), _remaining_scopes(local, plan)
        entries = least_entries(local, memory, arithmetic)
    else:
        order, graph = Order((), 0.0, 0.0, 0), _graph(local) if bounded else (0, 0)
        work = _ShapeCounts(0.0, 0.0, 0.0, 0.0, 0, *graph)
        remaining, entries = (tuple(range(len(local.interface))),), 0
    members = list(local.hidden or local.interface)
    return AgentWorkCounts(
        agent=local.agent,
        hidden=len(local.hidden),
        interface=len(local.interface),
        rows=local.rows,
        listed_rows=listed,
        width=order.width,
        cells=order.cells,
        **work._asdict(),
        bytes=entries * arithmetic.dtype.itemsize,
        updates=float(listed or local.rows) * runs * samples * len(local.hidden),
        values=int(local.domains[members].sum()) / len(members) if members else 1.0,
        weight=_weight(local),
        obstacle=_obstacle(local, listed, memory, arithmetic) if planned else "",
        remaining_scopes=remaining,
    )


def weights_of(locals_: Iterable[LocalProblem]) -> NDArray[np.float64]:
    """Return each agent's weight, (agents,) float64."""
    return np.array([_weight(local) for local in locals_], dtype=np.float64)


def _weight(local: LocalProblem) -> float:
    """Return the sum of the agent's largest absolute entries."""
    return float(sum(local.ranges.magnitudes))


def _remaining_scopes(local: LocalProblem, plan: EliminationPlan) -> tuple[tuple[int, ...], ...]:
    """Return the scopes of the tables that a plan leaves, as indices of boundary variables."""
    place = {v: number for number, v in enumerate(local.interface)}
    return tuple({tuple([place[v] for v in plan.scope(t)]): None for t in plan.remaining})


class _ShapeCounts(NamedTuple):
    """The counts that agents of one shape share, see ``AgentWorkCounts``."""

    effort: float
    shared: float
    device: float
    device_effort: float
    device_buckets: int
    pairs: int
    triangles: int


_COUNTS_BY_SHAPE = Memo[_ShapeCounts]()


def _count(local: LocalProblem, plan: EliminationPlan) -> _ShapeCounts:
    """Count the work of an agent's elimination, and its graph."""
    cells = plan.program.cells.astype(np.float64)
    on_gpu, efforts = cells >= tuning.PARALLEL_CELLS, bucket_efforts(plan)
    return _ShapeCounts(
        float(efforts.sum()),
        float(efforts[cells >= tuning.PARALLEL_CELLS].sum()),
        float(cells[on_gpu].sum()),
        float(efforts[on_gpu].sum()),
        int(on_gpu.sum()),
        *_graph(local),
    )


def _obstacle(local: LocalProblem, listed: int, memory: int, arithmetic: Arithmetic) -> str:
    """Return why an agent cannot be sampled, or an empty string."""
    if listed:
        hidden = (*local.interface, *local.hidden)
        local = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
    try:
        check_chain_memory(SAMPLER, local, memory, arithmetic)
    except ResourceError as error:
        return str(error)
    return ""


def _graph(local: LocalProblem) -> tuple[int, int]:
    """Return the number of pairs and triangles in the graph of the hidden variables' binary factors.

    With the adjacency matrix A, the number of triangles is Σ (A² ∘ A) / 6; 0 if the graph is too large for A.
    """
    start, scope = local.scope_arrays
    first = start[:-1][np.diff(start) == 2]
    variables, hidden = scope[first[:, np.newaxis] + np.arange(2)], np.array(local.hidden, dtype=np.int64)
    low, high = np.sort(variables[np.isin(variables, hidden).all(axis=1)], axis=1).T
    pairs = np.unique(np.searchsorted(hidden, low) * hidden.size + np.searchsorted(hidden, high))
    if len(pairs) < 3 or hidden.size**2 > tuning.LARGE_ENTRIES:
        return len(pairs), 0
    low, high = np.divmod(pairs, hidden.size)
    adjacent = np.zeros((hidden.size, hidden.size), dtype=np.float32)
    adjacent[low, high] = adjacent[high, low] = 1
    return len(pairs), round(float((adjacent @ adjacent * adjacent).sum(dtype=np.float64)) / 6)
