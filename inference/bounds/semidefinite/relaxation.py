"""The semidefinite relaxation as a bound of an agent's rows.

Semidefinite upper bounds of the rows of a dual ascent: tighter for dense agents with many hidden variables.

A row is an assignment of an agent's boundary variables; its cutoff is the utility that it has to exceed to matter. One
improvement runs a descent for a term that all rows share, and certifies each row's bound with it. On a GPU, branch and
bound with a term per node follows (``bound_single_rows``).

Bound provider ``semidefinite``: dual ascent on pairs, and a semidefinite relaxation of the rows where that helps.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    next_above,
    run_boundary_searches,
)
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.contract.tuning import (
    CERTIFICATE_STEPS,
    MAX_RELAXED_ROWS,
    MIN_DENSITY,
    MIN_HIDDEN_VARIABLES,
    MIN_HIDDEN_VARIABLES_ON_GPU,
    PLANNED_TIME_SHARE,
    SECONDS_PER_ENTRY,
    SECONDS_PER_PRODUCT,
    START_STEPS,
    STEPS_PER_CHECK,
    TRIAL_STEPS,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, CpuArrays
from dmcmc.inference.bounds.semidefinite.certificate import bounds_with_term, round_psd_term
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_steps import BRANCH_SCHEDULE, ROOT_SCHEDULE, NodeArrays, NodeSchedule
from dmcmc.inference.bounds.semidefinite.utility_matrix import (
    DescentPoint,
    SharedTerm,
    UtilityMatrix,
    build_utility_matrix,
    is_pairwise,
)
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import products_on_one_thread
from dmcmc.inference.runtime.types import Array, Floats, Ints

_MIN_STEPS = TRIAL_STEPS // 2  # steps of the shortest descent: a shorter one gains little
_BYTES_PER_ENTRY = 40  # workspace per pair of values: utilities, products, weights, factor vectors and their gradients
_LOG = logging.getLogger(__name__)


@dataclass
class PerRowState:
    """State of an agent's per-row semidefinite bounds, which follow the descent that all rows share, on a GPU.

    ``expected`` is set at the start if the work runs on a GPU. ``search`` is created before the first batch.
    ``has_branched`` becomes true later and stays so. The search is dropped when no row can be lowered; ``fail`` ends
    the work for good after a device failure.

    Attributes
    ----------
    search : BoundarySearch or None
        Branch and bound over the rows; None before it starts and after it ends.
    nodes : int
        Number of nodes bounded so far.
    expected : bool
        Whether there will be per-row bounds.
    has_branched : bool
        Whether every row that matters has been branched, so that the gain of the method can be judged.
    failed : bool
        Whether the device failed; there are no per-row bounds then.
    """

    search: BoundarySearch | None = None
    nodes: int = 0
    expected: bool = False
    has_branched: bool = False
    failed: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the gain of the per-row bounds cannot be judged yet."""
        return self.expected and not self.has_branched and not self.failed

    def fail(self) -> None:
        """Give up after a device failure."""
        self.failed, self.search = True, None


class SemidefiniteRelaxation:
    """Lowers the upper bounds of a dual ascent's rows by a semidefinite relaxation.

    The relaxation is ``untested`` for the first ``TRIAL_STEPS`` descent steps. Later, it is ``exhausted`` after a
    descent that lowers no bound. On a GPU, per-row bounds follow.

    Parameters
    ----------
    state : DualState
        Holds the rows' bounds.

    Attributes
    ----------
    state : DualState
        Holds the rows' bounds.
    per_row : PerRowState
        State of the per-row bounds.
    steps : int
        Number of descent steps made.
    exhausted : bool
        Whether the relaxation cannot lower any bound further; true from the start if the agent has too many values or
        rows, or hidden variables in factors of more than two variables.
    """

    def __init__(self, state: DualState) -> None:
        self.state, self.per_row, self.steps = state, PerRowState(), 0
        self._matrix: UtilityMatrix | None = None
        self._term: SharedTerm | None = None
        self._measured_step_seconds = 0.0
        local = state.local
        sizes = [int(local.domains[v]) for v in (*local.hidden, *local.interface)]
        self._n_values = len(sizes) * max(sizes, default=0)  # with padding to equal domains
        workspace = _BYTES_PER_ENTRY * self._n_values**2
        fits = workspace <= MEMORY_ACCOUNT.workspace_bytes()
        self.exhausted = not (fits and state.enumerated and is_pairwise(local))

    @property
    def work_done(self) -> int:
        """Amount of work done: descent steps and nodes of the per-row bounds."""
        return self.steps + self.per_row.nodes

    @property
    def step_seconds(self) -> float:
        """Seconds per descent step, measured or estimated."""
        n = self._n_values
        return self._measured_step_seconds or n * n * (SECONDS_PER_ENTRY + SECONDS_PER_PRODUCT * n)

    @property
    def untested(self) -> bool:
        """Whether too few steps were made to judge the relaxation."""
        return not self.exhausted and self.steps < TRIAL_STEPS

    @property
    def trial_seconds(self) -> float:
        """Estimated seconds of one core until the relaxation can be judged."""
        return max(0, TRIAL_STEPS - self.steps) * self.step_seconds + self.overhead_seconds

    @property
    def overhead_seconds(self) -> float:
        """Estimated seconds of one core of a call of ``improve`` besides its steps: the set-up and the certificate."""
        return (CERTIFICATE_STEPS + (0 if self.steps else START_STEPS)) * self.step_seconds

    @property
    def min_seconds(self) -> float:
        """Estimated seconds of one core below which a call of ``improve`` does nothing."""
        return _MIN_STEPS * self.step_seconds + self.overhead_seconds

    def improve(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        rows: Rows | None = None,
        cutoffs: Array | None = None,
    ) -> None:
        """Lower the bounds of rows, on the calling thread.

        Parameters
        ----------
        seconds : float or None
            Time budget; the result then depends on the speed of the machine.
        steps : int or None
            Number of descent steps, in place of a time budget; without either, those of the schedule.
        rows : Rows or None
            Rows that still matter; None for all.
        cutoffs : (rows of the interface,) or None
            Utility that each row has to exceed to be part of a better solution. The row that is furthest above its
            cutoff is lowered.
        """
        start, stop = time.perf_counter(), self.state.backend.stop
        if steps == 0:
            return
        if seconds is not None:
            if seconds < self.min_seconds:
                return  # the set-up would use up the budget
            end = start + seconds - CERTIFICATE_STEPS * self.step_seconds
            stop = stop.by(end)
        with products_on_one_thread():
            task = self.prepare(rows, cutoffs)
            if task is None:
                return
            begun, schedule = time.perf_counter(), self.schedule
            if seconds is not None:
                fitting = int((end - begun) / self.step_seconds)
                steps = max(_MIN_STEPS, min(schedule.steps, fitting))
            if steps is not None:
                schedule = schedule._replace(steps=steps)
            (lowered,) = lower_terms([task], CpuArrays(), schedule, stop)
            self._measured_step_seconds = (time.perf_counter() - begun) / lowered.steps
            self.finish(task, lowered)

    @property
    def schedule(self) -> NodeSchedule:
        """Schedule of the next descent: a shorter one if it continues from an earlier one."""
        return BRANCH_SCHEDULE if self.steps else ROOT_SCHEDULE

    def utility_matrix(self) -> UtilityMatrix:
        """Return the agent's utility matrix; it is built once."""
        self._matrix = self._matrix or build_utility_matrix(self.state.local)
        return self._matrix

    def prepare(self, rows: Rows | None = None, cutoffs: Array | None = None) -> "RelaxationTask | None":
        """Prepare one improvement of the given rows; return None if nothing can be improved.

        The parameters are those of ``improve``. The first call computes the initial term.
        """
        state = self.state
        selected = state.rows(rows)
        selected = selected[state.bounds[selected] > MINUS_INFINITY]
        if self.exhausted or not selected.size or state.backend.stop.over:
            return None
        self._term = self._term or SharedTerm.initial(self.utility_matrix())
        if self._term is None:
            self.exhausted = True
            return None
        return RelaxationTask(self, self._term, selected, self._encoded_cutoffs(selected, cutoffs), cutoffs)

    def finish(self, task: "RelaxationTask", lowered: "LoweredTerm") -> None:
        """Take the term that a descent found, certify it, and lower the rows' bounds; judge the relaxation.

        Parameters
        ----------
        task : RelaxationTask
            What ``prepare`` returned.
        lowered : LoweredTerm
            What ``lower_terms`` returned for it.
        """
        term, self.steps = task.term, self.steps + lowered.steps
        term.take(lowered.point)
        rounded = round_psd_term(term.matrix, *term.scaled(term.point))
        any_fell = False
        if rounded is not None:
            bounds, new_bounds = self.state.bounds, bounds_with_term(term.matrix, rounded, task.rows)
            any_fell = bool((new_bounds < bounds[task.rows]).any())
            bounds[task.rows] = np.minimum(bounds[task.rows], new_bounds)
        self.exhausted = self.steps >= TRIAL_STEPS and not any_fell

    def _encoded_cutoffs(self, selected: Ints, cutoffs: Array | None) -> Floats:
        """Return the cutoffs of rows in the scale; zeros if a row has none."""
        if cutoffs is None:
            return np.zeros(selected.size)
        encoded = self.state.layout.scale.encode_all(np.asarray(cutoffs)[selected])
        return np.zeros(selected.size) if (encoded <= MINUS_INFINITY).any() else encoded.astype(np.float64)


class RelaxationTask(NamedTuple):
    """Input of one improvement of a relaxation.

    Attributes
    ----------
    relaxation : SemidefiniteRelaxation
        The agent's relaxation.
    term : SharedTerm
        The term to start from; ``finish`` replaces its point.
    rows : (k,) int64
        All rows that still matter.
    encoded_cutoffs : (k,) float64
        Their cutoffs, in the scale.
    cutoffs : (rows of the interface,) or None
        The cutoffs of all rows, as utilities.
    """

    relaxation: SemidefiniteRelaxation
    term: SharedTerm
    rows: Ints
    encoded_cutoffs: Floats
    cutoffs: Array | None


class LoweredTerm(NamedTuple):
    """Result of a descent.

    Attributes
    ----------
    point : DescentPoint
        The best point on the way.
    steps : int
        Number of steps made.
    """

    point: DescentPoint
    steps: int


class RelaxationRequest(NamedTuple):
    """A relaxation with the rows and cutoffs to improve.

    Attributes
    ----------
    relaxation : SemidefiniteRelaxation
        The agent's relaxation.
    rows : Rows or None
        Rows that still matter; None for all.
    cutoffs : (rows of the interface,) or None
        Utility that each row has to exceed to be part of a better solution.
    """

    relaxation: SemidefiniteRelaxation
    rows: Rows | None
    cutoffs: Array | None


def lower_terms(
    tasks: Sequence[RelaxationTask], arrays: NodeArrays, schedule: NodeSchedule, stop: Deadline = NO_DEADLINE
) -> list[LoweredTerm]:
    """Lower the bounds of several agents by one descent each, all at once; see ``SharedTerm``.

    Each agent is one node of a batch: the joint agent, with all of its values.

    Parameters
    ----------
    tasks : sequence of RelaxationTask
        The agents' terms, rows and cutoffs.
    arrays : NodeArrays
        The array library.
    schedule : NodeSchedule
        Number of steps, temperatures and step sizes.
    stop : Deadline
        The descents end early at this time.
    """
    buffers = AgentBuffers([task.term.joint(task.rows, task.encoded_cutoffs) for task in tasks], arrays, 0)
    agents, allowed = np.arange(len(tasks)), np.arange(buffers.shape.d) < buffers.sizes[:, :, None]
    batch = RowNodeBatch(buffers, NodeStarts(agents, np.zeros_like(agents), allowed, agents))
    steps = batch.run(schedule, stop)
    return [LoweredTerm(batch.point(agent), steps) for agent in agents.tolist()]


def bound_single_rows(
    tasks: Sequence[RelaxationTask], seconds: float | None = None, batches: int | None = None
) -> None:
    """Lower rows until the time is over or no row can be lowered; a relaxation without such rows is exhausted.

    Parameters
    ----------
    tasks : sequence of RelaxationTask
        Tasks of relaxations that have a search.
    seconds : float or None
        Time budget; None for no limit.
    batches : int or None
        Maximum number of batches; None for no limit.
    """
    start, requests = time.perf_counter(), list[BoundarySearchRequest]()
    for task in tasks:
        search, cutoffs = task.relaxation.per_row.search, task.cutoffs
        assert search is not None
        if cutoffs is None:
            cutoffs = np.full(task.relaxation.state.bounds.size, -np.inf)
        thresholds = next_above(cutoffs) if search.bounder.scale.integral else cutoffs
        requests.append(BoundarySearchRequest(search, thresholds, cutoffs, task.rows))
    run_boundary_searches(requests, seconds, batches)
    for task, (search, *_) in zip(tasks, requests, strict=True):
        per_row = task.relaxation.per_row
        per_row.has_branched, per_row.nodes = per_row.has_branched or search.all_branched, search.nodes
        if search.exhausted:
            task.relaxation.exhausted, per_row.search = True, None
    nodes = sum(search.nodes for search, *_ in requests)
    _LOG.info(
        f"per-row semidefinite bounds of {len(tasks)} agents in {time.perf_counter() - start:.2f} s:"
        f" {nodes} nodes so far"
    )


def is_suitable(local: Subproblem, on_gpu: bool = False) -> bool:
    """Return whether a relaxation may bound an agent better than dual ascent with triangles.

    Parameters
    ----------
    local : Subproblem
        The agent's problem.
    on_gpu : bool
        Whether the relaxation would run on a GPU, where it pays for smaller agents.
    """
    hidden, min_variables = set(local.hidden), MIN_HIDDEN_VARIABLES_ON_GPU if on_gpu else MIN_HIDDEN_VARIABLES
    if len(hidden) < min_variables or local.rows > MAX_RELAXED_ROWS or not is_pairwise(local):
        return False
    pairs = {frozenset(hidden.intersection(factor.scope)) for factor in local.factors}
    return sum(len(pair) == 2 for pair in pairs) >= MIN_DENSITY * len(hidden) * (len(hidden) - 1) / 2


def runs_after_branch_and_bound(local: Subproblem) -> bool:
    """Return whether branch and bound goes first: it closes the rows of small agents, which a relaxation does not."""
    return len(local.hidden) < MIN_HIDDEN_VARIABLES


def compile_relaxation() -> None:
    """Compile the CPU kernels of a relaxation."""
    tables = [Factor.of(scope, [[0, 1], [1, 0]]) for scope in ((0, 1), (1, 2), (0, 2))]
    local = Subproblem(0, (2,), (0, 1), tuple(tables), np.full(3, 2))
    SemidefiniteRelaxation(DualState(local, triangles=True)).improve(steps=2)


RELAXATION_KERNELS = KernelSet("semidefinite relaxation", compile_relaxation)


class SemidefiniteState:
    """Bound of an agent's rows by dual ascent on pairs and a semidefinite relaxation; a ``PruningState``.

    Attributes
    ----------
    dual : DualState
        Holds the bounds, which both methods lower.
    relaxation : SemidefiniteRelaxation
        The relaxation of the rows.
    """

    def __init__(self, local: Subproblem, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles=False, backend=backend)
        self.relaxation = SemidefiniteRelaxation(self.dual)

    @property
    def backend(self) -> Backend:
        """Resources that the work may use."""
        return self.dual.backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self.dual.backend = backend

    @property
    def integral(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.integral

    @property
    def exhausted(self) -> bool:
        """Whether neither method can tighten the bound any further."""
        return self.dual.exhausted and self.relaxation.exhausted

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound: first by the relaxation, then by the dual ascent."""
        self.dual.improve(self._improve_relaxation(seconds, sweeps, rows, None), sweeps, rows)

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> None:
        """Tighten the bounds of rows; values with which a row cannot reach its threshold do not count."""
        seconds_left = self._improve_relaxation(seconds, sweeps, rows, thresholds)
        self.dual.prune(thresholds, rows, seconds_left, sweeps)

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return the bound as one table over the interface; as tables over parts of it if it has too many rows."""
        return self.dual.tables(arithmetic)

    def _improve_relaxation(
        self, seconds: float | None, sweeps: int | None, rows: Rows | None, cutoffs: NDArray[Any] | None
    ) -> float | None:
        """Improve the rows' bounds by the relaxation; return the seconds that are left for the dual ascent.

        The result is None without a time budget, and all of ``seconds`` if the relaxation is exhausted. Without a time
        budget the relaxation makes ``STEPS_PER_CHECK`` steps per sweep of the ascent, whose default are 10 sweeps.
        """
        if self.relaxation.exhausted:
            return seconds
        # 10 sweeps: the default of the dual ascent
        steps = None if seconds is not None else STEPS_PER_CHECK * (10 if sweeps is None else sweeps)
        self.relaxation.improve(None if seconds is None else PLANNED_TIME_SHARE * seconds, steps, rows, cutoffs)
        return None if seconds is None else (1 - PLANNED_TIME_SHARE) * seconds
