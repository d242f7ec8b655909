"""Bounds of an agent's rows: tightened in sweeps, by branch and bound, and by the semidefinite relaxation.

Create branch-and-bound searches over the rows of an agent, on the CPU or on a GPU where that is faster.

A row is one assignment of an agent's interface (boundary) variables; the search branches on the hidden variables. A
node is a subproblem with a part of their values. Nodes are bounded in batches, on a GPU those of several agents
together.

Bounders of branch and bound by name: those of this package, and those registered under ``dmcmc.bounders``.

``dmcmc.bounders`` is an entry-point group: an installed package with such an entry point adds a ``BounderFactory``.
``create_boundary_search`` in ``branch_and_bound_rows`` compares their bounders by a short trial.

Create and improve the semidefinite relaxations of agents' rows, on the CPU or on a GPU where that is faster.

A row is one assignment of an agent's interface (boundary) variables. A relaxation lowers the rows' upper bounds in the
agent's ``DualState``. A per-row relaxation belongs to a single row; only a GPU computes them.

Tighten the bounds of several agents: all at once on a GPU where that is faster, else one after the other.

A bound has one entry per row; a row is an assignment of an agent's interface (boundary) variables. Tightening with
thresholds, utilities that rows have to reach, also removes the values with which a row cannot reach its threshold.

An agent's problem with its factors replaced by the potentials of a dual ascent.

Mini-bucket bounds of these tables are much tighter than those of the factors. So an elimination that filters rows by
such bounds keeps far fewer of them.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.bounder import Bounder
from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import GpuDualBounder
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import CpuDualBounder
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    SearchedPart,
    run_boundary_searches,
)
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState
from dmcmc.inference.bounds.contract.tuning import (
    MIN_SECONDS_AFTER_SEARCH,
    MIN_SECONDS_FOR_TRIAL,
    STEP_FRACTION,
    TRIAL_SECONDS,
)
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.cuda.device_ascent import fits_gpu, place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import elimination_of, table_width, tables_of, triplets_fit
from dmcmc.inference.bounds.mini_bucket import MINI_BUCKET_BOUNDS
from dmcmc.inference.bounds.mini_bucket_bounder import mini_bucket_bounder
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import bound_on_gpu
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import relaxation_gpu_problem
from dmcmc.inference.bounds.semidefinite.relaxation import (
    RelaxationRequest,
    SemidefiniteRelaxation,
    is_suitable,
    runs_after_branch_and_bound,
)
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import TimeShares
from dmcmc.inference.runtime.device import CpuFallback
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.plugins import Plugins
from dmcmc.inference.runtime.threads import run_parallel

_LOG = logging.getLogger(__name__)


@runtime_checkable
class BounderFactory(Protocol):
    """Creates the bounder of an agent's branch and bound; a plug-in."""

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def create(self, state: DualState, memory_limit: int) -> Bounder | None:
        """Return a bounder of an agent's nodes; None if it does not suit the agent.

        Parameters
        ----------
        state : DualState
            The agent's dual ascent: its factors (``local``), integer scale, potentials, and the bounds of its rows.
        memory_limit : int
            Bytes for what the bounder stores.
        """
        ...


class OwnFactory(NamedTuple):
    """A ``BounderFactory`` of this package.

    Attributes
    ----------
    summary : str
        One line of help.
    create : callable
        See ``BounderFactory.create``.
    """

    summary: str
    create: Callable[[DualState, int], Bounder | None]


DUAL = "dual"
_PLUGINS: Plugins[BounderFactory] = Plugins(
    group="dmcmc.bounders",
    noun="bounder",
    built_in={
        DUAL: OwnFactory("dual ascent at each node, which inherits its parent's tables", CpuDualBounder),
        "mini-bucket": OwnFactory(
            "messages of mini-buckets, computed once: many nodes a second in sparse problems",
            lambda state, limit: (
                mini_bucket_bounder(state, limit) if state.has_mini_buckets and MINI_BUCKET_BOUNDS.is_ready() else None
            ),
        ),
    },
    accept=lambda loaded: loaded if isinstance(loaded, BounderFactory) else None,
    expected="is not a BounderFactory",
)
names = _PLUGINS.names
get = _PLUGINS.get


def other_bounders(state: DualState, memory_limit: int) -> Iterator[Bounder]:
    """Yield the bounders of all factories but dual ascent that suit an agent; plug-ins that fail are logged."""
    for name in names():
        try:
            bounder = None if name == DUAL else get(name).create(state, memory_limit)
        except ConfigError as error:
            _LOG.warning(f"dmcmc: {error}")
            continue
        if bounder is not None:
            yield bounder


def create_boundary_search(
    state: DualState, memory_limit: int, seconds: float = 0.0, part: SearchedPart = SearchedPart.ALL
) -> BoundarySearch:
    """Return a branch-and-bound search over the rows of a bound, on a GPU if that is faster.

    A GPU that has too little memory is not used. On the CPU and with time, an agent without boundary variables tries
    each bounder that suits it.

    Parameters
    ----------
    state : DualState
        Its bounds are lowered by the search.
    memory_limit : int
        Memory limit for the nodes' tables on the CPU, in bytes.
    seconds : float
        Estimated time of this search and of those of other agents in the same batches.
    part : SearchedPart
        Which of the rows' nodes it holds.
    """
    if state.backend.bounds_on_gpu(seconds * state.backend.threads) and fits_gpu(state):
        with CpuFallback():
            return BoundarySearch(state, GpuDualBounder(state), part)
        state.fetch_potentials()
    search = BoundarySearch(state, CpuDualBounder(state, memory_limit), part)
    left = state.backend.stop.left
    if state.local.interface or part != SearchedPart.ALL or not MIN_SECONDS_FOR_TRIAL <= left < float("inf"):
        return search
    others = [BoundarySearch(state, bounder, part) for bounder in other_bounders(state, memory_limit)]
    return fastest_search(state, [search, *others], TRIAL_SECONDS) if others else search


def fastest_search(state: DualState, searches: Sequence[BoundarySearch], seconds: float) -> BoundarySearch:
    """Return the search that lowers the largest bound of the rows most within a time; all bounds found are kept.

    Every search starts from the bounds that ``state`` has now, without cutoffs.

    Parameters
    ----------
    state : DualState
        Its bounds are lowered.
    searches : sequence of BoundarySearch
        Searches of the rows of ``state``; of equal ones, the first is returned.
    seconds : float
        Time of each search.
    """
    before, no_cutoffs, found = state.bounds.copy(), np.full(state.bounds.size, -np.inf), []
    for search in searches:
        state.bounds[:] = before
        run_boundary_searches([BoundarySearchRequest(search, no_cutoffs, no_cutoffs)], seconds)
        found.append(state.bounds.copy())
    state.bounds[:] = np.min(found, axis=0)
    return searches[int(np.argmin([bounds.max() for bounds in found]))]


def place_together(states: Sequence[DualState], seconds: float) -> None:
    """Place several bounds in the same group on the GPU, so that their searches share node batches.

    Parameters
    ----------
    states : sequence of DualState
    seconds : float
        Estimated time of the searches.
    """
    if states and states[0].backend.bounds_on_gpu(seconds * states[0].backend.threads):
        with CpuFallback():
            place_on_device([state for state in states if fits_gpu(state)], states[0].backend.processes_per_gpu)


def compile_boundary_search() -> None:
    """Compile the CPU kernels of the search."""
    local = Subproblem(0, (), (0, 1), (Factor.of((0, 1), [[0, 1], [1, 0]]),), np.full(2, 2))
    state = DualState(local, triangles=True)
    no_cutoff = np.array([-np.inf])
    # 1 MiB for the nodes' tables is more than enough for two variables of two values.
    search = BoundarySearch(state, CpuDualBounder(state, 1 << 20))
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=1)


BOUNDARY_SEARCH = KernelSet("branch and bound", compile_boundary_search)


def runs_on_gpu(backend: Backend, seconds: float) -> bool:
    """Return whether relaxations that may take ``seconds`` in all run on a GPU."""
    if not backend.bounds_on_gpu(seconds * backend.threads):
        return False
    return relaxation_gpu_problem() is None


def relaxation_pays(local: Subproblem, backend: Backend) -> bool:
    """Return whether a semidefinite relaxation of an agent would be useful in the time left until the deadline.

    If branch and bound runs first on the agent, the relaxation needs ``MIN_SECONDS_AFTER_SEARCH`` to improve on its
    bound.
    """
    left = backend.stop.left
    return is_suitable(local, runs_on_gpu(backend, left)) and (
        left >= MIN_SECONDS_AFTER_SEARCH or not runs_after_branch_and_bound(local)
    )


def relaxation_of(
    local: Subproblem, state: DualState, relaxation: SemidefiniteRelaxation | None = None
) -> SemidefiniteRelaxation | None:
    """Return an agent's relaxation, a new one if it has none; None if it would not be useful in the time left.

    Per-row relaxations are expected if the relaxation would run on a GPU.

    Parameters
    ----------
    local : Subproblem
    state : DualState
        The dual ascent of the agent, whose bounds the relaxation lowers.
    relaxation : SemidefiniteRelaxation or None
        The relaxation that the agent has already.
    """
    if not relaxation_pays(local, state.backend):
        return None
    relaxation = relaxation or SemidefiniteRelaxation(state)
    relaxation.per_row.expected = runs_on_gpu(state.backend, state.backend.stop.left)
    return relaxation


def improve_relaxations(requests: Sequence[RelaxationRequest], seconds: Sequence[float], backend: Backend) -> None:
    """Lower the bounds of several agents' rows: all at once on a GPU, or each agent on one thread.

    If the GPU cannot take the requests, the CPU carries them out.

    Parameters
    ----------
    requests : sequence of RelaxationRequest
    seconds : sequence of float
        Time for each request. On a GPU they share the sum. On threads each gets its own time multiplied by the number
        of requests that run at the same time.
    backend : Backend
        Threads, device and deadline.
    """
    total_seconds = sum(seconds)
    if runs_on_gpu(backend, total_seconds):
        if bound_on_gpu(requests, backend, total_seconds):
            return
        for request in requests:
            request.relaxation.per_row.fail()  # per-row relaxations are not available then
    at_once = min(backend.threads, len(requests))
    tasks = [
        partial(request.relaxation.improve, at_once * own_seconds, None, request.rows, request.cutoffs)
        for request, own_seconds in zip(requests, seconds, strict=True)
    ]
    run_parallel(tasks, at_once, backend.stop)


_GPU_PROVIDERS = ("dual", "triangles")  # providers whose bounds a GPU can tighten


class TighteningBudget(NamedTuple):
    """Time or work for tightening some bounds.

    Attributes
    ----------
    effort : float
        Estimated seconds of the whole work on one core; decides whether the GPU is worth using.
    seconds : sequence of float or None
        Time for each bound. The result then depends on the machine. None if ``sweeps`` is given.
    sweeps : int or None
        Amount of work in the provider's own unit (sweeps of a dual ascent, steps of mini-buckets), instead of
        ``seconds``.
    pass_on : bool
        Whether unused time of one bound goes to the later ones.
    """

    effort: float
    seconds: Sequence[float] | None = None
    sweeps: int | None = None
    pass_on: bool = False


def tighten(
    requests: Sequence[BoundRequest],
    backend: Backend,
    budget: TighteningBudget,
    enough: Callable[[int], bool] | None = None,
) -> list[float]:
    """Tighten the bounds of several agents; return the seconds that each one took.

    Parameters
    ----------
    requests : sequence of BoundRequest
        One per bound.
    backend : Backend
        Threads, device and deadline.
    budget : TighteningBudget
    enough : callable, optional
        ``enough(i)`` says whether the i-th request needs no more work. It is called after a fifth of the bound's time,
        if the bounds are tightened one after the other.
    """
    if not requests:
        return []
    start, seconds = time.perf_counter(), budget.seconds
    if backend.bounds_on_gpu(budget.effort) and not backend.stop.is_cancelled:
        total = None if seconds is None else sum(seconds)
        if improve_on_gpu(requests, backend, total, budget.sweeps):
            return [(time.perf_counter() - start) / len(requests)] * len(requests)
    time_shares = TimeShares(seconds or []) if budget.pass_on else None
    spent = []
    for index, request in enumerate(requests):
        start = time.perf_counter()
        own_seconds = None if seconds is None else seconds[index] if time_shares is None else time_shares.next()
        if own_seconds is None or enough is None:
            request.carry_out(own_seconds, budget.sweeps)
        else:
            request.carry_out(STEP_FRACTION * own_seconds)
            if not enough(index):
                request.carry_out((1 - STEP_FRACTION) * own_seconds)
        spent.append(time.perf_counter() - start)
    return spent


def gpu_table_widths(bounds: Sequence[tuple[str, Subproblem]], backend: Backend, effort: float) -> list[int]:
    """Return the widths of the tables that are tightened on a GPU, if that much work is worth one.

    Parameters
    ----------
    bounds : sequence of (str, Subproblem)
        Each agent's provider, by name, and its problem.
    backend : Backend
    effort : float
        Estimated seconds of the work on one core.
    """
    widths = {table_width(local) for name, local in bounds if name in _GPU_PROVIDERS}
    return sorted(widths) if widths and backend.bounds_on_gpu(effort) else []


class Reparametrised(NamedTuple):
    """Tables whose sum equals that of an agent's factors, multiplied by 2^``shift``.

    Attributes
    ----------
    query : EliminationQuery
        Elimination of all variables, with int64 entries.
    shift : int
        Binary logarithm of the factor between utilities and table entries.
    """

    query: EliminationQuery
    shift: int

    def encode(self, utility: int) -> int:
        """Convert a utility to the scale of the tables."""
        return utility << self.shift


def reparametrised(state: BoundState | None, local: LocalProblem) -> Reparametrised | None:
    """Return the tables of a dual ascent's potentials, or None.

    A triangle (a triplet region of the dual ascent) becomes a table of three variables if there are few enough;
    otherwise its three tables are added to those of its pairs.

    The result is None if ``state`` has no dual ascent, the agent has an interface, or the utilities are not integers
    that were scaled up exactly.
    """
    dual = getattr(state, "dual", state)
    if not isinstance(dual, DualState) or local.interface or not dual.integral or dual.layout.scale.shift < 0:
        return None
    graph, names = dual.layout.whole, list(local.hidden)
    as_triplets = triplets_fit(graph)
    tables = [t for t in tables_of(graph, dual.potentials, names, as_triplets) if t.scope]
    return Reparametrised(elimination_of(tables, local.domains, local.order.variables, ()), dual.layout.scale.shift)
