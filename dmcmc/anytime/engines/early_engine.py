"""Start a search engine on the problem as given, before the problem is presolved, divided and planned.

Engines that take global constraints as they are need none of these steps, and no kernels. What such an engine finds
before the run has an incumbent is kept, and delivered when the run takes the engine over.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Event, Lock, RLock
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.engines import choose_engine
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.presolve import PresolvedProblem
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.types import Number
from dmcmc.results.outcome import quality_of
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.toulbar2.background_search import BackgroundSearch, CostSearchEngine, SearchObserver
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.solving.planning.presolve import FirstAnswer


@dataclass(frozen=True)
class EngineReceiver:
    """The part of a run that takes the results of an engine, in terms of the problem as given.

    Attributes
    ----------
    observer : SearchObserver
        Takes assignments and bounds, and knows the best utility and the deadline.
    known_values : callable
        Returns the best known assignment; None before there is one.
    """

    observer: SearchObserver
    known_values: Callable[[], NDArray[np.int64] | None]


class EarlyEngine:
    """A search engine on the problem as given, on rank 0; a context manager that ends it.

    It is chosen and started on its own thread once there is a first answer, or a small part of the time is over. Very
    short runs end before it starts.

    Parameters
    ----------
    problem : Problem
        The problem as given.
    settings : Settings
        Settings of the run.
    until : float
        Deadline of the run (``time.perf_counter``), until the engine is taken over.

    Attributes
    ----------
    search : BackgroundSearch
        The search on its thread.
    """

    def __init__(self, problem: Problem, settings: Settings, until: float) -> None:
        self._problem, self._settings, self._until = problem, settings, until
        self._deciding, self._delivering = Lock(), RLock()
        self._name: str | None = None
        self._is_decided = False
        self._is_answered, now = Event(), time.perf_counter()
        self._latest_start = now + tuning.UNTRIED_SHARE / 2 * (until - now)
        self._first: FirstAnswer | None = None
        self._receiver: EngineReceiver | None = None
        self._found: NDArray[np.int64] | None = None
        self._bounds = list[Number | None]()
        observer = SearchObserver(self._known_utility, self._take_found, self._take_bound, self._deadline)
        self.search = BackgroundSearch(
            self._costs, choose_engine.engine_memory(settings), observer, tuning.SLICE_SECONDS, self._process
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.search.end()

    def name(self) -> str | None:
        """Return the engine that searches the problem as given; None if the problem's engine waits for the plan.

        Raises
        ------
        Unavailable
            If the settings ask for an engine that is not installed.
        """
        with self._deciding:
            if not self._is_decided:
                self._name = choose_engine.engine_for_given(self._settings, self._problem)
                self._is_decided = True
            return self._name

    def take_first_answer(self, first: FirstAnswer | None) -> None:
        """Let the engine start, from the first answer of the run if that breaks no hard constraint."""
        if first is not None and first.quality.negated_violation == 0:
            self._first = first
        self._is_answered.set()

    def better_answer(self, first: FirstAnswer) -> FirstAnswer:
        """Return the first answer of the run, or one with the engine's assignment if that is better."""
        if self._found is None:
            return first
        quality = quality_of(self._problem, self._found)
        return first._replace(values=self._found, quality=quality) if quality.is_better_than(first.quality) else first

    def hand_over(self, receiver: EngineReceiver) -> None:
        """Deliver all results so far, the first answer included, and deliver all later results at once."""
        with self._delivering:
            self._receiver = receiver
            for values in (None if self._first is None else self._first.values, self._found):
                if values is not None:
                    receiver.observer.on_assignment(values)
            for bound in self._bounds[-1:]:  # each bound is tighter than those before
                receiver.observer.on_bound(bound)

    def _costs(self, check: Callable[[], None]) -> CostProblem:
        """Return the problem as costs for the engine; called on the thread of the search."""
        while time.perf_counter() < self._latest_start and not self._is_answered.wait(tuning.CHECK_SECONDS):
            check()
        name = self.name()
        if name is None:
            raise OutOfTime("the engine waits for the plan")
        return choose_engine.problem_costs(self._settings.budget.bytes, self._problem, name, check)

    def _process(self, memory: int) -> CostSearchEngine:
        """Start the engine's process."""
        return choose_engine.start_of(self.name(), self._known_values).start(memory)

    def _known_values(self) -> NDArray[np.int64] | None:
        """Return the best known assignment; None before there is one."""
        if self._receiver is not None:
            return self._receiver.known_values()
        return None if self._first is None else self._first.values

    def _known_utility(self) -> Number | None:
        """Return the utility of the best known assignment; None if there is none without violations."""
        if self._receiver is not None:
            return self._receiver.observer.known_utility()
        return None if self._first is None else self._first.quality.feasible_utility

    def _deadline(self) -> float:
        """Return the deadline of the run."""
        return self._until if self._receiver is None else self._receiver.observer.deadline()

    def _take_found(self, values: NDArray[np.int64]) -> None:
        """Keep or deliver an assignment."""
        with self._delivering:
            if self._receiver is None:
                self._found = values
            else:
                self._receiver.observer.on_assignment(values)

    def _take_bound(self, bound: Number | None) -> None:
        """Keep or deliver a bound."""
        with self._delivering:
            if self._receiver is None:
                self._bounds.append(bound)
            else:
                self._receiver.observer.on_bound(bound)


def early_engine(problem: Problem | None, settings: Settings, rank: int) -> AbstractContextManager[EarlyEngine | None]:
    """Return the engine that searches the problem as given from the beginning of a timed run, on rank 0; or None."""
    seconds = settings.budget.time
    if (
        rank
        or problem is None
        or seconds is None
        or not choose_engine.wanted(settings)
        or not choose_engine.has_many_constraints(problem)
    ):
        return nullcontext()
    return EarlyEngine(problem, settings, time.perf_counter() + seconds)


def keeps_all_solutions(reduction: PresolvedProblem | None) -> bool:
    """Return whether presolve keeps all solutions: it removes only values that no solution has.

    Assignments and bounds of the problem as given then hold for the presolved problem.
    """
    if reduction is None:
        return True
    removed = reduction.removed
    return not any((removed.dominated, removed.fixed, removed.merged, removed.eliminated, removed.free))
