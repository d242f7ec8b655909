"""The incumbent: the best assignment and the best proven bound so far (rank 0).

Searches and combinations of tables record assignments and bounds here, also from other threads. Bounds are *encoded*:
upper bounds on the utility in the number type of the tables (``Arithmetic``), in which −∞ is a sentinel.

A run with a time budget saves its best assignment in the checkpoint folder: ``incumbent.npz``, written atomically. The
file has the values of all variables and two digests: of the problem, and of the values. When it is read, all values are
compared with their domains and the utility is computed again, so nothing else is trusted.
"""

import hashlib
import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.files.text import Archive, load_saved
from dmcmc.files.write import open_packed_atomically
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import CheckpointWarning, FileError, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.sparse_table import SizeStatistics
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge, quality_of
from dmcmc.results.result import LOCAL_SEARCH, RetainedEntries, TracePoint
from dmcmc.solving.agent.bounds import ImproverRecord, largest_total
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.tuning import SAVING_INTERVAL

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup

_LOG = logging.getLogger(__name__)


FILE_NAME = "incumbent.npz"


class SavedIncumbent:
    """The file that saves the best assignment: the whole one, by rank 0, or one agent's part in a private run.

    Parameters
    ----------
    folder : str
        Folder of the file; created if it is missing.
    problem : Problem
        The problem with dense tables, to which the assignment belongs.
    name : str
        Name of the file.
    """

    def __init__(self, folder: str, problem: Problem, name: str = FILE_NAME) -> None:
        self.path, self.problem = Path(folder) / name, problem
        self._problem_digest = np.frombuffer(_digest_of(problem), dtype=np.uint8)
        self._unsaved: NDArray[np.int64] | None = None
        self._written, self._failed = 0.0, False

    def load(self) -> NDArray[np.int64] | None:
        """Return the assignment that an earlier run saved; None if there is none for this problem."""
        return load_saved(self.path, self._problem_digest, self._read, ("problem", "the search starts from scratch"))

    def _read(self, archive: Archive) -> NDArray[np.int64]:
        """Return the assignment in a file."""
        digest = archive.array("digest", "|u1")
        values: NDArray[np.int64] = archive.array("values", "<i8")
        if digest.tobytes() != hashlib.sha256(values.tobytes()).digest():
            raise archive.fail("digest", "differs from the digest of the values")
        if values.shape != self.problem.domains.shape or ((values < 0) | (values >= self.problem.domains)).any():
            raise archive.fail("values", "must hold a value of each variable's domain")
        values.flags.writeable = True  # kernels are compiled for writable arrays
        return values

    def save(self, values: NDArray[np.int64]) -> None:
        """Save an assignment now, or once a second has passed since the last write; if the disk is full, warn once."""
        self._unsaved = values
        if time.perf_counter() - self._written >= SAVING_INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Write an assignment that is not saved yet."""
        values, self._unsaved = self._unsaved, None
        if values is None or self._failed:
            return
        digest = np.frombuffer(hashlib.sha256(values.tobytes()).digest(), dtype=np.uint8)
        try:
            with open_packed_atomically(self.path) as stream:
                np.savez(stream, values=values, made_from=self._problem_digest, digest=digest)
        except FileError as error:
            self._failed = True
            warnings.warn(f"{error}; the best assignment is not saved", CheckpointWarning, stacklevel=2)
        self._written = time.perf_counter()


def _digest_of(problem: Problem) -> bytes:
    """Return a digest of the problem's domains and tables."""
    digest = hashlib.sha256(repr((1, problem.sense, problem.domains.tolist())).encode())
    for factor in problem.factors:
        digest.update(repr((factor.scope, factor.table.dtype.str, factor.table.shape)).encode())
        digest.update(np.ascontiguousarray(factor.table).data)
    return digest.digest()


@dataclass
class Incumbent:
    """The best assignment and bound of a run so far, and the trace of their improvements.

    Attributes
    ----------
    original : Problem
        The problem as given, or after presolve.
    settings : Settings
        Settings of the run.
    start : float
        Start of the solve (``time.perf_counter``).
    deadline : float or None
        End of the solve (``time.perf_counter``); None for a single cycle.
    on_trace_point : callable
        Called with each new point of the trace.
    on_better : callable
        Called with this incumbent after each better feasible assignment.
    parts : DividedProblem or None
        The problem divided among its agents; its arithmetic encodes the bounds.
    setup : Setup or None
        The plan of the run; None until there is one.
    values : ndarray of int64 or None
        The best assignment: value indices of all variables of the dense problem.
    quality : AssignmentQuality or None
        Violations and utility of ``values``.
    snapshot : tuple or None
        Consistent pair of ``values`` and their outcome, which other threads may read at any time.
    timed_out : bool
        Whether the run ends because its time is over or because it was asked to end.
    note : str or None
        Why the run ended early.
    combination_seconds : float
        Seconds of the last combination; this time is reserved for the next one.
    improver_records : dict of ImproverRecord
        Totals of the improvers, by name; empty without a time budget.
    assignment_source, bound_source : str
        Improvers that the trace names as the source of the next assignment, and of the next bound if its source is not
        known.
    saved : SavedIncumbent or None
        File that keeps the best assignment.
    filtered : SizeStatistics or None
        Table sizes of the agents that are eliminated by function filtering.
    trace : list of TracePoint
        Improvements so far.
    tables_objective : int, float or None
        Objective of the assignment that the last combination of tables chose.
    bound : int, float or None
        The best proven upper bound on the utility, encoded.
    """

    original: Problem
    settings: Settings
    start: float
    deadline: float | None
    on_trace_point: Callable[[TracePoint], object] = lambda point: None
    parts: DividedProblem | None = None
    setup: "Setup | None" = None
    values: NDArray[np.int64] | None = None
    quality: AssignmentQuality | None = None
    snapshot: tuple[NDArray[np.int64], SolveOutcome] | None = None
    timed_out: bool = False
    note: str | None = None
    combination_seconds: float = 0.0
    improver_records: Mapping[str, ImproverRecord] = field(default_factory=dict)
    assignment_source: str = LOCAL_SEARCH
    bound_source: str = ""
    saved: SavedIncumbent | None = None
    filtered: SizeStatistics | None = None
    trace: list[TracePoint] = field(default_factory=list)
    tables_objective: Number | None = None
    on_better: Callable[["Incumbent"], object] = lambda incumbent: None
    bound: Number | None = None
    # local search and bounds may run in their own threads
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def feasible(self) -> bool:
        """Whether there is an assignment without violations."""
        return self.quality is not None and self.quality.negated_violation == 0

    @property
    def utility(self) -> Number | None:
        """Utility of the best feasible assignment, rounded up to the tables' arithmetic; None if there is none."""
        return None if self.quality is None else self.quality.feasible_utility

    @property
    def outcome(self) -> SolveOutcome:
        """Status, objective, bound and gap of the best assignment and the best bound."""
        assert self.quality is not None, "there is no assignment yet"
        return judge(self.original, self.quality, self._constants, self.proof)

    @property
    def proof(self) -> BoundProof | None:
        """The best bound with its rounding error; None if nothing is proven."""
        if self.bound is None:
            return None
        assert self.parts is not None
        return BoundProof([self.bound], self.parts.arithmetic, self.n_addends)

    @property
    def n_addends(self) -> int:
        """Number of factors whose utilities are summed, which bounds the rounding error."""
        assert self.parts is not None
        return len(self.parts.problem.factors)

    @cached_property
    def _constants(self) -> list[Factor]:
        """Return the factors without variables."""
        return [factor for factor in self.original.factors if not factor.scope]

    @property
    def reached(self) -> bool:
        """Whether the run has reached its goal: optimality or infeasibility is proven, or the requested gap is met."""
        outcome, target = self.outcome, self.settings.budget.gap
        return outcome.status in ("optimal", "infeasible") or (outcome.gap is not None and 0 < target >= outcome.gap)

    def delay(self, seconds: float) -> None:
        """Move the start and the deadline of the run by some seconds."""
        self.start += seconds
        if self.deadline is not None:
            self.deadline += seconds

    def update(self, values: NDArray[np.int64], by: str | None = None) -> bool:
        """Record an assignment if it is better than the best so far; return whether it is.

        Parameters
        ----------
        values
            Value indices of the variables of the dense problem.
        by
            Improver that found it; by default the one named in ``self.assignment_source``.
        """
        quality = quality_of(self.original, values[: self.original.n_variables])
        with self._lock:
            better = quality.is_better_than(self.quality)
            if better:
                self.values, self.quality = values.copy(), quality
                n_points = len(self.trace)
                self._add_trace_point(by)
                if self.saved is not None:
                    self.saved.save(self.values)
                if self._is_contradicted:
                    self._replace_wrong_bound()
                if self.feasible and len(self.trace) > n_points:  # otherwise the first answer is as good
                    self.on_better(self)
        return better

    def record_tables(self, values: NDArray[np.int64]) -> None:
        """Record the objective of the assignment that the tables alone have chosen, before it is improved."""
        quality = quality_of(self.original, values[: self.original.n_variables])
        self.tables_objective = judge(self.original, quality, self._constants, None).objective

    def update_bound(
        self, bound: Number | None, by: str | None = None, parts: Mapping[str, float] | None = None
    ) -> bool:
        """Record an upper bound on the utility (encoded) if it is tighter than the best so far; return whether it is.

        There has to be an assignment first. The bound may hold only for solutions better than the incumbent, because
        rows of worse solutions are pruned; it is therefore raised to at least the incumbent's utility.

        Parameters
        ----------
        bound
            The bound, or None if a table has none.
        by
            Source of the bound to name in the trace; by default the improvers in ``parts``, or ``self.bound_source``.
        parts
            Share of the closed gap per improver; the shares sum to 1.
        """
        if bound is None:
            return False
        with self._lock:
            utility = self.utility
            if utility is not None:
                bound = max(bound, utility)
            tighter = self.bound is None or bound < self.bound
            if tighter:
                self.bound = bound
                self._add_trace_point(by or ", ".join(parts or ()) or self.bound_source, parts)
        return tighter

    @property
    def _is_contradicted(self) -> bool:
        """Whether the best assignment is better than the bound by more than the rounding error of the sums."""
        utility, parts = self.utility, self.parts
        if utility is None or self.bound is None or parts is None:
            return False
        return utility - 4 * parts.arithmetic.rounding(self.n_addends) > self.bound

    def _replace_wrong_bound(self) -> None:
        """Report an error of the program, and replace the bound by the sum of the factors' largest entries."""
        assert self.parts is not None, "there is a bound"
        _LOG.error(
            f"dmcmc: error of the program: an assignment of {self.utility} is better than the bound {self.bound}"
        )
        self.forget_bound()
        if not self.parts.scattered:
            self.update_bound(largest_total(self.parts.problem, self.parts.arithmetic), "largest entries")

    def forget_bound(self) -> None:
        """Drop the bound, which is wrong, here and in the trace."""
        with self._lock:
            self.bound, self.trace[:] = None, [replace_fields(point, bound=None) for point in self.trace]

    def _add_trace_point(self, by: str | None, parts: Mapping[str, float] | None = None) -> None:
        """Append a point to the trace if its objective or bound is new."""
        assert self.values is not None
        outcome = self.outcome
        self.snapshot = self.values, outcome
        retained_entries = None if self.filtered is None else RetainedEntries(*self.filtered)
        source = by or self.assignment_source
        last, elapsed = self.trace[-1] if self.trace else None, time.perf_counter() - self.start
        objective, bound = _not_worse(outcome, last, self.original.sense)
        point = TracePoint(elapsed, objective, bound, source, retained_entries, dict(parts or {}))
        if last is None or (last.objective, last.bound) != (point.objective, point.bound):
            self.trace.append(point)
            self.on_trace_point(point)

    def give_up(self, error: ResourceError) -> None:
        """End the run with the incumbent, because the time or the memory was not enough for the tables."""
        if isinstance(error, OutOfTime):
            self.timed_out = True
        else:
            self.note = f"out of memory: {error}"


def total_of(roots: Mapping[int, Number | None], arithmetic: Arithmetic) -> Number | None:
    """Return the sum of the root agents' encoded upper bounds; −∞ if one of them is −∞, None if one is missing."""
    total: Number = 0
    for value in roots.values():
        if value is None:
            return None
        if arithmetic.is_lowest(value):
            return arithmetic.lowest
        total += value
    return total


def component_cutoffs(incumbent: Incumbent, roots: Mapping[int, Number | None]) -> dict[int, Number | None]:
    """Return the utility that each component must exceed, by root agent: the incumbent's less all other bounds.

    A component is a tree of the agents' pseudo-forest; ``roots`` has the encoded upper bound of each. With the bounds'
    sum B, the cutoff of a component with bound b is (utility of the incumbent) - (B - b) - (rounding error). A cutoff
    is None if the incumbent or a bound is not known.
    """
    assert incumbent.setup is not None
    arithmetic, utility = incumbent.setup.divided.arithmetic, incumbent.utility
    total = total_of(roots, arithmetic)
    if utility is None or total is None or arithmetic.is_lowest(total):
        return dict.fromkeys(roots)
    slack = rounding_slack(incumbent, arithmetic)
    return {a: utility - (total - value) - slack for a, value in roots.items() if value is not None}


def rounding_slack(incumbent: Incumbent, arithmetic: Arithmetic) -> Number:
    """Return by how much a row has to be worse than the incumbent to be removed: the rounding error of the sums."""
    return 4 * arithmetic.rounding(incumbent.n_addends)


def _not_worse(outcome: SolveOutcome, last: TracePoint | None, sense: str) -> tuple[Number | None, Number | None]:
    """Return an outcome's objective and bound, each replaced by that of the last trace point if that is better.

    The first answer to the problem as given may be better than the first assignment of the presolved problem.
    """
    if last is None or outcome.status == "infeasible":
        return outcome.objective, outcome.bound
    better, tighter = (max, min) if sense == "max" else (min, max)
    known_objectives = [n for n in (outcome.objective, last.objective) if n is not None]
    known_bounds = [n for n in (outcome.bound, last.bound) if n is not None]
    return better(known_objectives, default=None), tighter(known_bounds, default=None)
