"""An agent's work, counted wherever the agent is: what :mod:`dmcmc.samplers.auto.choose` chooses by."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import Repeated
from dmcmc.inference.model.flat_tables import magnitudes
from dmcmc.inference.orders.best_order import Order
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import Memo
from dmcmc.samplers import registry
from dmcmc.samplers.auto.effort import bucket_efforts

SAMPLER = "annealing"  # what samples an agent that is not eliminated
_LARGE = 1 << 19  # joined cells of a bucket that all threads work on
_GPU_BUCKET = 1 << 18  # joined cells of a bucket that the GPU works on
_DENSE_GRAPH = 3000  # variables up to which triangles are counted by matrices


class Survey(NamedTuple):
    """An agent's work, counted.

    Attributes
    ----------
    agent, hidden, interface, rows : int
    listed : int
        Rows that sampling would list; 0 for all.
    width : int
        Induced width of the elimination.
    cells : float
        Joined cells.
    effort, shared : float
        Nanoseconds on one core of a nominal machine; those of buckets that all threads work on.
    device, device_effort, device_buckets
        Cells, nanoseconds on the CPU and number of the buckets that a GPU would take.
    bytes : int
        Of the elimination's tables.
    updates : float
        Draws of a first sampling.
    values : float
        Mean domain size.
    pairs, triangles : int
        Of the hidden variables' graph.
    weight : float
        Σ largest entries of the factors: what the agent's gap may be.
    obstacle : str
        Why it cannot be sampled; empty if it can.
    left : tuple of tuple of int
        Scopes of the tables that the elimination leaves, as places in the interface.
    """

    agent: int
    hidden: int
    interface: int
    rows: int
    listed: int
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
    left: tuple[tuple[int, ...], ...] = ()

    def left_over(self, interface: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the scopes of the tables that the elimination leaves, as variables."""
        return tuple(tuple([interface[place] for place in scope]) for scope in self.left)


class Surveys(Sequence[Survey]):
    """All agents' surveys, on every rank: agents that differ in nothing but their number and weight have one.

    Attributes
    ----------
    kinds : Repeated of Survey
        Of each agent all but that.
    weights : (agents,) float64
    """

    def __init__(self, kinds: Repeated[Survey], weights: NDArray[np.float64]) -> None:
        self.kinds, self.weights = kinds, weights

    @classmethod
    def of(cls, works: Sequence[Survey]) -> "Surveys":
        """Return surveys in little memory; which agents' they are is not kept."""
        weights = np.array([work.weight for work in works], dtype=np.float64)
        return cls(Repeated.of(work._replace(agent=0, weight=0.0) for work in works), weights)

    @classmethod
    def merged(cls, count: int, parts: Iterable[tuple[Sequence[int], "Surveys"]]) -> "Surveys":
        """Return all agents' by parts, each with the agents that it is about."""
        number: dict[Survey, int] = {}
        which, weights = np.zeros(count, dtype=np.int64), np.zeros(count)
        for agents, works in parts:
            places = [number.setdefault(work, len(number)) for work in works.kinds.kinds]
            which[list(agents)] = np.array(places, dtype=np.int64)[works.kinds.which]
            weights[list(agents)] = works.weights
        _, first, which = np.unique(which, return_index=True, return_inverse=True)
        kinds, order = list(number), np.argsort(first)  # as agents have them, whatever the ranks
        codes = np.argsort(order)[which.ravel()]
        return cls(Repeated([kinds[kind] for kind in order], codes), weights)

    @staticmethod
    def weights_in(works: Sequence[Survey]) -> list[float]:
        """Return the weights in agents' surveys, without making each of those."""
        weights: list[float] = works.weights.tolist() if isinstance(works, Surveys) else [w.weight for w in works]
        return weights

    def __len__(self) -> int:
        return len(self.kinds)

    @overload
    def __getitem__(self, agent: int) -> Survey: ...
    @overload
    def __getitem__(self, agent: slice) -> list[Survey]: ...
    def __getitem__(self, agent: int | slice) -> Survey | list[Survey]:
        if isinstance(agent, slice):
            return [self[one] for one in range(*agent.indices(len(self)))]
        return self.kinds[agent]._replace(agent=range(len(self))[agent], weight=float(self.weights[agent]))


def survey(
    local: LocalProblem,
    listed: int,
    runs: int,
    samples: int,
    memory: int,
    arithmetic: Arithmetic,
    planned: bool = True,
) -> Survey:
    """Count an agent's work.

    Parameters
    ----------
    listed
        Rows that sampling would list; 0 for all.
    runs, samples
        Of a first sampling.
    planned
        Whether the elimination is of interest: to plan it takes a moment. If not, it counts as nothing.
    """
    if planned:
        order, plan = local.order, local.plan
        places = {v: i for i, v in enumerate(local.hidden)}
        work = _COUNTED.get((local.shape, tuple(places[v] for v in order.variables)), lambda: _count(local, plan))
    else:
        order, plan = Order((), 0.0, 0.0, 0), plan_elimination([], np.zeros(0, dtype=np.int64), [])
        work = _count(local, plan)
    members = np.array(local.hidden or local.interface, dtype=np.int64)
    return Survey(
        agent=local.agent,
        hidden=len(local.hidden),
        interface=len(local.interface),
        rows=local.rows,
        listed=listed,
        width=order.width,
        cells=order.cells,
        **work._asdict(),
        bytes=plan.entries * arithmetic.dtype.itemsize,
        updates=float(listed or local.rows) * runs * samples * len(local.hidden),
        values=float(local.domains[members].mean()) if members.size else 1.0,
        weight=_weight(local),
        obstacle=_obstacle(local, listed, memory, arithmetic),
        left=_left(local, plan) if planned else (tuple(range(len(local.interface))),),
    )


def weights_of(locals_: Iterable[LocalProblem]) -> NDArray[np.float64]:
    """Return each agent's weight, (agents,)."""
    return np.array([_weight(local) for local in locals_], dtype=np.float64)


def _weight(local: LocalProblem) -> float:
    return float(sum(magnitudes(local.flat)))


def _left(local: LocalProblem, plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the scopes of the tables that a plan leaves, as places in the interface."""
    place = {v: number for number, v in enumerate(local.interface)}
    return tuple({tuple([place[v] for v in plan.scope(t)]): None for t in plan.remaining})


class _Counted(NamedTuple):
    """What is counted once for all agents of one shape; as in :class:`Survey`."""

    effort: float
    shared: float
    device: float
    device_effort: float
    device_buckets: int
    pairs: int
    triangles: int


_COUNTED = Memo[_Counted]()


def _count(local: LocalProblem, plan: Plan) -> _Counted:
    """Count what an agent's elimination takes, and its graph."""
    cells = plan.program.cells.astype(np.float64)
    on_gpu, efforts = cells >= _GPU_BUCKET, bucket_efforts(plan)
    return _Counted(
        float(efforts.sum()),
        float(efforts[cells >= _LARGE].sum()),
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
        registry.get(SAMPLER).check(local, memory, arithmetic)
    except ResourceError as error:
        return str(error)
    return ""


def _graph(local: LocalProblem) -> tuple[int, int]:
    """Return the pairs and triangles of the hidden variables' graph, by its factors over two variables."""
    place = {v: i for i, v in enumerate(local.hidden)}
    pairs = {
        tuple(sorted((place[f.scope[0]], place[f.scope[1]])))
        for f in local.factors
        if len(f.scope) == 2 and f.scope[0] in place and f.scope[1] in place
    }
    if len(pairs) < 3 or len(place) > _DENSE_GRAPH:
        return len(pairs), 0
    adjacent = np.zeros((len(place), len(place)), dtype=np.float32)
    for a, b in pairs:
        adjacent[a, b] = adjacent[b, a] = 1
    return len(pairs), round(float((adjacent @ adjacent * adjacent).sum(dtype=np.float64)) / 6)
