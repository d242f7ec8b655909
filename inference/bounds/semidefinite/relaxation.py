"""Semidefinite upper bounds of the rows of a dual ascent: tighter for dense agents with many hidden variables.

A row is an assignment of an agent's boundary variables; its cutoff is the utility that it has to exceed to matter. One
improvement runs a descent for the rows furthest above their cutoffs, certifies the result for all rows, and may follow
it with a dual ascent of single rows.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.dual_bound import WHOLE_SWEEPS_PER_ROW_SWEEP, DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.certificate import PsdTerm, bounds_with_term, round_psd_term
from dmcmc.inference.bounds.semidefinite.descent import TRIAL_STEPS, Descent, DescentPoint, Target, workspace_bytes
from dmcmc.inference.bounds.semidefinite.descent_batch import DescentBatch
from dmcmc.inference.bounds.semidefinite.initial_factors import EQUIVALENT_STEPS
from dmcmc.inference.bounds.semidefinite.numpy_arrays import NumpyArrays
from dmcmc.inference.bounds.semidefinite.row_dual_ascent import ascent_bounds
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix, build_utility_matrix, is_pairwise
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Floats, Ints

_MAX_RANK_SHARE = 1 / 2  # estimated rank r of the factorisation, as a share of the number of hidden values
_MAX_VALUES = 4096  # hidden values of an agent
_MAX_BYTES = 1 << 30  # workspace of one agent
_MEMORY_SHARE = 1 / 16  # of the memory, for the workspace of one agent
_MAX_ROWS = 1 << 12  # rows of an agent
_MIN_DENSITY = 0.2  # share of the variable pairs with a factor; below it, triangles bound as well
_MIN_HIDDEN_VARIABLES = 30  # hidden variables of an agent, at least
_MIN_HIDDEN_VARIABLES_ON_GPU = 16  # hidden variables of an agent, at least, on a GPU
MAX_ROWS_PER_DESCENT = 64  # rows per descent: those furthest above their cutoffs
# After its trial, a descent is expected to gain at most this many times the gain of the trial's second half.
_EXTRAPOLATION = 2.0
_MIN_TIMED_STEPS = 5  # steps before their measured duration is used
_MIN_STEPS = 8  # a call with time for fewer steps does nothing
_CERTIFICATE_STEPS = 3  # estimated duration of a certificate, in steps
_MAX_ASCENT_SHARE = 0.25  # of the time may go to the dual ascent that follows a descent
_ASCENT_SECONDS = 1e-8  # estimated seconds of a dual ascent per pair of values and row
_SECONDS_PER_ENTRY = 7e-9  # estimated seconds of a step per pair of values
_SECONDS_PER_PRODUCT = 3e-11  # estimated seconds of a step per pair of values and component of the factor vectors


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


class RelaxationTask(NamedTuple):
    """Input of one improvement of a relaxation.

    Attributes
    ----------
    descent : Descent
        The agent's descent.
    target : Target
        The rows that the descent minimises over, with their cutoffs.
    rows : (k,) int64
        All rows that still matter.
    cutoffs : (k,) float64
        Their cutoffs, in the matrix's scale.
    """

    descent: Descent
    target: Target
    rows: Ints
    cutoffs: Floats


class SemidefiniteRelaxation:
    """Lowers the upper bounds of a dual ascent's rows by a semidefinite relaxation.

    The relaxation is ``untested`` for the first ``TRIAL_STEPS`` / 2 descent steps. After ``TRIAL_STEPS`` steps it is
    judged once: it is ``exhausted`` if the extrapolated gain of the descent lowers no bound. Dual ascents follow the
    descents until one of them lowers no row. On a GPU, per-row bounds follow after the shared steps.

    Parameters
    ----------
    state : DualState
        Holds the rows' bounds.

    Attributes
    ----------
    state : DualState
        Holds the rows' bounds.
    per_row : PerRowState
        State of the per-row bounds, which follow the descent that all rows share, on a GPU.
    exhausted : bool
        Whether the relaxation cannot lower any bound further; true from the start if the agent has too many values or
        rows, or hidden variables in factors of more than two variables.
    """

    def __init__(self, state: DualState) -> None:
        self.state, self.per_row = state, PerRowState()
        self._matrix: UtilityMatrix | None = None
        self._descent: Descent | None = None
        self._trial_judged, self._ascent_helps, self._last_ascent_seconds, self._last_certificate_seconds = (
            False,
            True,
            0.0,
            0.0,
        )
        self._measured_step_seconds = 0.0
        self._n_values = sum(int(state.local.domains[v]) for v in state.local.hidden)
        fits = self._n_values <= _MAX_VALUES and workspace_bytes(self._n_values) <= MEMORY_ACCOUNT.budget_share(
            _MEMORY_SHARE, _MAX_BYTES
        )
        self.exhausted = not (fits and state.enumerated and is_pairwise(state.local))

    @property
    def steps(self) -> int:
        """Number of descent steps made."""
        return 0 if self._descent is None else self._descent.steps

    @property
    def work_done(self) -> int:
        """Amount of work done: descent steps and nodes of the per-row bounds."""
        return self.steps + self.per_row.nodes

    @property
    def step_seconds(self) -> float:
        """Seconds per descent step, measured or estimated."""
        n = self._n_values
        return self._measured_step_seconds or n * n * (_SECONDS_PER_ENTRY + _SECONDS_PER_PRODUCT * _MAX_RANK_SHARE * n)

    @property
    def untested(self) -> bool:
        """Whether too few steps were made to judge the relaxation."""
        return not self.exhausted and self.steps < TRIAL_STEPS // 2

    @property
    def trial_seconds(self) -> float:
        """Estimated seconds of one core until the relaxation can be judged."""
        return (max(0, TRIAL_STEPS // 2 - self.steps) + self._setup_steps) * self.step_seconds

    @property
    def _setup_steps(self) -> int:
        """Time of the set-up before the first step, in steps."""
        return 0 if self.steps else EQUIVALENT_STEPS

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
            Number of descent steps, in place of a time budget; without either, ``TRIAL_STEPS``.
        rows : Rows or None
            Rows that still matter; None for all.
        cutoffs : (rows of the interface,) or None
            Utility that each row has to exceed to be part of a better solution. The row that is furthest above its
            cutoff is lowered.
        """
        start = time.perf_counter()
        if seconds is not None and seconds < self.min_seconds:
            return  # the set-up would use up the budget
        with products_on_one_thread():
            task = self.prepare(rows, cutoffs)
            if task is None:
                return
            first_step_time, stop = [start], self.state.backend.stop
            will_ascend = self.will_ascend(task, seconds)

            def should_continue(made: int) -> bool:
                if seconds is None:
                    return made < (TRIAL_STEPS if steps is None else steps) and not stop.over
                now = time.perf_counter()
                if not made:
                    first_step_time[0] = now
                elif made >= _MIN_TIMED_STEPS:
                    self._measured_step_seconds = (now - first_step_time[0]) / made
                return now + self.finishing_seconds(task, will_ascend) < start + seconds and not stop.over

            batch = DescentBatch([task.descent], [task.target], NumpyArrays(task.descent.matrix))
            (point,) = batch.run(lambda made: int(should_continue(made)))
            self.finish(task, point, will_ascend)

    @property
    def min_seconds(self) -> float:
        """Estimated seconds of one core below which a call of ``improve`` does nothing."""
        return max(_MIN_STEPS, self._setup_steps) * self.step_seconds

    def utility_matrix(self) -> UtilityMatrix:
        """Return the agent's utility matrix; it is built once."""
        self._matrix = self._matrix or build_utility_matrix(self.state.local)
        return self._matrix

    def prepare(self, rows: Rows | None = None, cutoffs: Array | None = None) -> RelaxationTask | None:
        """Prepare one improvement of the given rows; return None if nothing can be improved.

        The parameters are those of ``improve``. The first call builds the descent. The descent minimises over the rows
        furthest above their cutoffs, at most ``MAX_ROWS_PER_DESCENT``.
        """
        state = self.state
        selected = state.rows(rows)
        selected = selected[state.bounds[selected] > MINUS_INFINITY]
        if self.exhausted or not selected.size or state.backend.stop.over:
            return None
        if self._descent is None:
            self._descent = Descent(self.utility_matrix())
        if self._descent.unit <= 0:
            self.exhausted = True
            return None
        encoded = self._encoded_cutoffs(selected, cutoffs)
        furthest = np.sort(np.argsort(encoded - state.bounds[selected], kind="stable")[:MAX_ROWS_PER_DESCENT])
        target = Target(self._descent.matrix.digits(selected[furthest]), encoded[furthest])
        return RelaxationTask(self._descent, target, selected, encoded)

    def will_ascend(self, task: RelaxationTask, seconds: float | None) -> bool:
        """Return whether a dual ascent follows the descent within the given seconds."""
        return self._ascent_helps and (
            seconds is None or self._ascent_seconds(task.rows.size) <= _MAX_ASCENT_SHARE * seconds
        )

    def finishing_seconds(self, task: RelaxationTask, will_ascend: bool) -> float:
        """Return the estimated seconds of one core that certificate and ascent take after the last step."""
        certificate = max(_CERTIFICATE_STEPS * self.step_seconds, self._last_certificate_seconds)
        return certificate + will_ascend * self._ascent_seconds(task.rows.size)

    def finish(self, task: RelaxationTask, point: DescentPoint, will_ascend: bool) -> None:
        """Certify the point that the descent found and lower the rows' bounds; judge the relaxation after its trial.

        The trial's gain in its second half, times ``_EXTRAPOLATION``, estimates the gain still to come.

        Parameters
        ----------
        task : RelaxationTask
            What ``prepare`` returned.
        point : DescentPoint
            Factor vectors and messages, in units.
        will_ascend : bool
            Whether a dual ascent of the rows furthest above their cutoffs follows.
        """
        (descent, _, selected, cutoffs), start = task, time.perf_counter()
        if not self._trial_judged and len(descent.trial) == 2:
            self._trial_judged = True
            excess_at_half, excess_at_end = descent.trial
            excess = float((self.state.bounds[selected] - cutoffs).max())
            self.exhausted = excess_at_end - _EXTRAPOLATION * (excess_at_half - excess_at_end) >= excess
        term = round_psd_term(descent.matrix, *descent.scaled(point))
        if term is not None:
            self.tighten(selected, bounds_with_term(descent.matrix, term, selected))
            self._last_certificate_seconds = time.perf_counter() - start
            if will_ascend and not self.state.backend.stop.over:
                self._ascend(descent.matrix, term, selected, cutoffs)

    def _ascent_seconds(self, rows: int) -> float:
        """Return the estimated seconds of the dual ascent of the given number of rows."""
        return (
            self._last_ascent_seconds
            or _ASCENT_SECONDS * (WHOLE_SWEEPS_PER_ROW_SWEEP + min(rows, MAX_ROWS_PER_DESCENT)) * self._n_values**2
        )

    def _encoded_cutoffs(self, selected: Ints, cutoffs: Array | None) -> Floats:
        """Return the cutoffs of rows in the scale; zeros if a row has none."""
        if cutoffs is None:
            return np.zeros(selected.size)
        encoded = self.state.layout.scale.encode_all(np.asarray(cutoffs)[selected])
        return np.zeros(selected.size) if (encoded <= MINUS_INFINITY).any() else encoded.astype(np.float64)

    def _ascend(self, matrix: UtilityMatrix, term: PsdTerm, selected: Ints, cutoffs: Floats) -> None:
        """Improve the rows furthest above their cutoffs by dual ascent; switch the ascent off if no row gains."""
        state, start = self.state, time.perf_counter()
        furthest = np.sort(np.argsort(cutoffs - state.bounds[selected], kind="stable")[:MAX_ROWS_PER_DESCENT])
        rows = selected[furthest][state.bounds[selected[furthest]] > MINUS_INFINITY]
        if rows.size:
            self._ascent_helps = self.tighten(rows, ascent_bounds(state.local, matrix, term, rows, state.backend.stop))
            self._last_ascent_seconds = time.perf_counter() - start

    def tighten(self, rows: Ints, new_bounds: Ints) -> bool:
        """Lower the bounds of rows to the given ones; return whether any bound fell."""
        bounds = self.state.bounds
        any_fell = bool((new_bounds < bounds[rows]).any())
        bounds[rows] = np.minimum(bounds[rows], new_bounds)
        return any_fell


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


class ActiveRelaxation(NamedTuple):
    """A relaxation with its request and the task that was prepared for it.

    Attributes
    ----------
    request : RelaxationRequest
        The relaxation, rows and cutoffs.
    task : RelaxationTask
        What ``prepare`` returned.
    """

    request: RelaxationRequest
    task: RelaxationTask

    @property
    def relaxation(self) -> SemidefiniteRelaxation:
        """The agent's relaxation."""
        return self.request.relaxation


def is_suitable(local: LocalProblem, on_gpu: bool = False) -> bool:
    """Return whether a relaxation may bound an agent better than dual ascent with triangles.

    Parameters
    ----------
    local : LocalProblem
        The agent's problem.
    on_gpu : bool
        Whether the relaxation would run on a GPU, where it pays for smaller agents.
    """
    hidden, min_variables = set(local.hidden), _MIN_HIDDEN_VARIABLES_ON_GPU if on_gpu else _MIN_HIDDEN_VARIABLES
    if len(hidden) < min_variables or local.rows > _MAX_ROWS or not is_pairwise(local):
        return False
    pairs = {frozenset(hidden.intersection(factor.scope)) for factor in local.factors}
    return sum(len(pair) == 2 for pair in pairs) >= _MIN_DENSITY * len(hidden) * (len(hidden) - 1) / 2


def runs_after_branch_and_bound(local: LocalProblem) -> bool:
    """Return whether branch and bound goes first: it closes the rows of small agents, which a relaxation does not."""
    return len(local.hidden) < _MIN_HIDDEN_VARIABLES


def compile_relaxation() -> None:
    """Compile the CPU kernels of a relaxation."""
    tables = [Factor.of(scope, [[0, 1], [1, 0]]) for scope in ((0, 1), (1, 2), (0, 2))]
    local = LocalProblem(0, (2,), (0, 1), tuple(tables), np.full(3, 2))
    SemidefiniteRelaxation(DualState(local, triangles=True)).improve(steps=1)
