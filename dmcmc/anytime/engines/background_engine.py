"""Run an external search engine in the background of a run: start it, take its solutions and bounds, and end it.

The engine (toulbar2, CP-SAT or MaxSAT in its own process, or our branch and bound) searches the whole problem. It may
get a dedicated core, or share the cores with the agents' work. It records results in the incumbent, from its own
thread.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.engines.choose_engine import (
    choose_engine,
    engine_memory,
    has_own_core,
    problem_costs,
    start_of,
    starts_in_time,
)
from dmcmc.anytime.engines.early_engine import EarlyEngine, EngineReceiver, keeps_all_solutions
from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken, Deadline
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.tuning import MIN_TRIED_SECONDS
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.registry import own_engine
from dmcmc.samplers.toulbar2.background_search import BackgroundSearch, SearchObserver
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.combination_plan import may_split_buckets
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.warm_start.start_assignment import carried_over

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup


class EngineResults:
    """Record the results of an engine in the incumbent, and measure their gains (rank 0).

    Parameters
    ----------
    name : str
        Name of the engine.
    parts : DividedProblem
        The divided problem.
    incumbent : Incumbent
        Receives assignments and bounds.
    search : LocalSearch
        Makes the engine's assignments 1-optimal (no change of a single variable improves them).
    stop : Deadline
        Deadline of the run, whose cancellation ends all work of this rank once the run has reached its goal.

    Attributes
    ----------
    stop : Deadline
        The deadline, which :meth:`BackgroundEngine.shift_clock` replaces.
    """

    def __init__(
        self,
        name: str,
        parts: DividedProblem,
        incumbent: Incumbent,
        search: LocalSearch,
        stop: Deadline,
    ) -> None:
        self._name, self._parts, self._incumbent = name, parts, incumbent
        self._search, self.stop = search, stop
        self._recorded_until, self._objective_gain, self._bound_gain = time.perf_counter(), 0.0, 0.0

    def known_values(self) -> NDArray[np.int64] | None:
        """Return the best known assignment; None before there is one."""
        values = self._incumbent.values
        return None if values is None else values[: self._parts.original.n_variables]

    def known_given_values(self) -> NDArray[np.int64] | None:
        """Return the best known assignment of the problem as given; None before there is one."""
        values, reduction = self.known_values(), self._parts.given.reduction
        return values if values is None or reduction is None else reduction.restore(values)

    def take_assignment(self, values: NDArray[np.int64]) -> None:
        """Take an assignment that the engine has found; called on the engine's thread."""
        before = self._incumbent.utility
        self._incumbent.update(self._search.one_opt(values), self._name)
        after = self._incumbent.utility
        if before is not None and after is not None:
            self._objective_gain += max(0.0, float(after - before))
        self._end_if_reached()

    def take_given_assignment(self, values: NDArray[np.int64]) -> None:
        """Take an assignment of the problem as given; called on the engine's thread.

        No solution has a value that presolve has removed. In an assignment with violations, the incumbent's values
        replace such values.
        """
        if self._parts.given.reduction is not None:
            values, known = carried_over(values, self._parts.given.problem, self._parts.original), self.known_values()
            values = values if known is None else np.where(values < 0, known, values)
        self.take_assignment(values)

    def take_bound(self, bound: Number | None) -> None:
        """Take a proven bound (None: no better assignment exists); called on the engine's thread."""
        arithmetic, before = self._parts.arithmetic, self._incumbent.bound
        if bound is None:
            encoded: Number = arithmetic.lowest
        else:
            encoded = math.floor(bound) if arithmetic.exact else float(bound)
        if self._incumbent.update_bound(encoded, self._name) and before is not None:
            self._bound_gain += max(0.0, float(before - encoded))
        self._end_if_reached()

    def _end_if_reached(self) -> None:
        """Cancel all work of this rank if the run has reached its goal."""
        if self._incumbent.reached:
            self.stop.cancellation.request()

    def take_gains(self, is_on: bool) -> list[MeasuredGain]:
        """Return the seconds and gains of the engine since the last call.

        The result is empty if the engine is not on any more and has gained nothing.
        """
        if not (is_on or self._objective_gain or self._bound_gain):
            return []
        now = time.perf_counter()
        gain = MeasuredGain(
            self._name,
            now - self._recorded_until,
            closed_gap=self._bound_gain,
            objective_gain=self._objective_gain,
        )
        self._recorded_until, self._objective_gain, self._bound_gain = now, 0.0, 0.0
        return [gain]

    def delay(self, seconds: float) -> None:
        """Do not count some seconds of compilation as time of the engine."""
        self._recorded_until += seconds


class BackgroundEngine:
    """An external search engine in the background of a run; all ranks have this object, rank 0 the engine's process.

    Its life on rank 0: :meth:`engage` takes over the engine that searches the problem as given, or prepares a process,
    which starts by itself after a short delay or waits; :meth:`searches_first` lets it search alone;
    :meth:`assign_cores` starts it with or without a dedicated core, or ends it; :meth:`resume` ends a pause;
    :meth:`disengage` and :meth:`end` end it.

    Parameters
    ----------
    parts : DividedProblem
        The divided problem as this rank knows it.
    incumbent : Incumbent
        Receives assignments and bounds, on rank 0.
    world : World
        The ranks.
    search : LocalSearch
        Makes the engine's assignments 1-optimal (no change of a single variable improves them); gives up a thread if
        the engine gets a dedicated core.
    stop : Deadline
        Deadline of the run; :meth:`engage` and :meth:`shift_clock` may change it.
    early : EarlyEngine or None
        The engine that may already search the problem as given, on rank 0.

    Attributes
    ----------
    process : BackgroundSearch or None
        The engine, on rank 0.
    name : str or None
        Name of the engine, on all ranks; None without an engine.
    results : EngineResults or None
        Takes what the engine finds, on rank 0.
    """

    def __init__(
        self,
        parts: DividedProblem,
        incumbent: Incumbent,
        world: World,
        search: LocalSearch,
        stop: Deadline,
        early: EarlyEngine | None = None,
    ) -> None:
        self.parts, self.incumbent, self.world, self.stop = parts, incumbent, world, stop
        self._search, self._early = search, early
        self.process: BackgroundSearch | None = None
        self.name: str | None = None
        self.results: EngineResults | None = None
        self._has_own_core, self._starts_in_time = False, True

    def end(self) -> None:
        """End the engine and wait until its process is gone."""
        if self.process is not None:
            self.process.end()

    def engage(self, stop: Deadline) -> Deadline:
        """Start the engine in the background if the settings want it; called by all ranks.

        Returns
        -------
        Deadline
            Deadline of the run, which also ends with a proof.
        """
        config, problem = self.parts.config, self.parts.original
        if config.search == "none" or (config.search == "auto" and not self.parts.timed):
            return stop
        early = self.world.on_first_rank(lambda: _name_of_early(self._early, self.parts))
        self.name = early or self.world.on_first_rank(lambda: choose_engine(config, problem))
        if self.name is None:
            return stop
        if early is None:
            self._starts_in_time = self.world.on_first_rank(lambda: starts_in_time(config, problem))
        if stop is NO_DEADLINE:
            self.stop = stop = Deadline(cancellation=CancellationToken())
        if self.world.rank == 0:
            incumbent = self.incumbent
            self.results = results = EngineResults(self.name, self.parts, incumbent, self._search, self.stop)
            # The engine refers to the results, and not to this object, which refers to the engine.
            observer = SearchObserver(
                lambda: incumbent.utility, results.take_assignment, results.take_bound, lambda: results.stop.until
            )
            if early is not None and self._early is not None:
                self.process = self._early.search
                observer = replace(observer, on_assignment=results.take_given_assignment)
                self._early.hand_over(EngineReceiver(observer, results.known_given_values))
            else:
                self.process = self._make_process(observer, results.known_values)
        return stop

    def _make_process(
        self, observer: SearchObserver, known_values: Callable[[], NDArray[np.int64] | None]
    ) -> BackgroundSearch:
        """Return the engine, which is not started yet.

        It starts by itself after a short delay. It waits for :meth:`assign_cores` or :meth:`searches_first` if it is
        our own engine, which needs kernels, or if its start takes long.
        """
        assert self.name is not None, "there is an engine"
        memory = engine_memory(self.parts.config)
        start, is_process = start_of(self.name, known_values)
        wait = tuning.SLICE_SECONDS if is_process and self._starts_in_time else math.inf
        costs = partial(_costs_when_ready, self.parts, self.name)
        return BackgroundSearch(costs, memory, observer, wait, start)

    def searches_first(self, setup: "Setup") -> bool:
        """Let the engine search alone for a short time; return whether that has ended the run. Called by all ranks."""
        if self.process is not None and self._is_needed(setup):
            until = time.perf_counter() + min(MIN_TRIED_SECONDS / 2, tuning.UNTRIED_SHARE * self.stop.left)
            self.process.begin()
            while self.process.on and not self.stop.over and (left := until - time.perf_counter()) > 0:
                self.process.wait(min(left, tuning.CHECK_SECONDS))
        self.world.wait()
        return self.has_ended_run()

    def assign_cores(self, setup: "Setup") -> "Setup":
        """Start or end the engine, now that the run is planned; return the setup without the engine's core.

        If exact tables will prove the optimum, the engine gets a part of their time and no dedicated core. If there are
        several agents, and their messages fit without splitting, it gets the time that other work leaves idle.
        """
        if self.process is None or self.name is None:
            return setup
        if not self._is_needed(setup):
            self.process.cancel()
            return setup
        requested = setup.divided.config.search != "auto"
        if setup.will_prove and not requested:
            self.process.begin(max(MIN_TRIED_SECONDS, tuning.FIRST_SHARE * _table_seconds(setup, self.world.size)))
            return setup
        own_core = _has_own_core(setup, self.name)
        self.process.begin(
            low_priority=not own_core and not requested
        )  # if it is slow then, it pauses until the tables are finished
        self._has_own_core = setup.backend.threads > 1 and own_core
        return self._with_threads(setup, setup.backend.threads - 1) if self._has_own_core else setup

    def next_plan(self, plan: "Callable[[], Setup | None]") -> "Setup | None":
        """Return the next plan of the run with the cores that the engine leaves; None if there is none yet."""
        setup = plan()
        return None if setup is None else self.assign_cores(setup)

    def _is_needed(self, setup: "Setup") -> bool:
        """Return whether the engine may gain something; exact tables that soon prove the optimum need no engine."""
        if setup.divided.config.search != "auto":
            return True
        if setup.will_prove:
            return self._starts_in_time and _table_seconds(setup, self.world.size) > MIN_TRIED_SECONDS
        return self._starts_in_time or (self.name is not None and _has_own_core(setup, self.name))

    def resume(self) -> None:
        """Let the engine continue if it has paused."""
        if self.process is not None:
            self.process.end_pause()

    def disengage(self, setup: "Setup") -> "Setup":
        """End the engine; return the setup with the core that the engine had."""
        if self.process is not None:
            self.process.cancel()
        if not self._has_own_core:
            return setup
        self._has_own_core = False
        return self._with_threads(setup, setup.backend.threads + 1)

    def _with_threads(self, setup: "Setup", threads: int) -> "Setup":
        """Return the setup with another number of threads, which the local search uses, too."""
        self._search.threads = threads
        return replace(setup, backend=replace(setup.backend, threads=threads))

    @property
    def may_improve(self) -> bool:
        """Whether the engine of this rank may still improve the incumbent or the bound."""
        found = (self.incumbent.utility, self.incumbent.bound)
        known, bound = (None if number is None else float(number) for number in found)
        return self.process is not None and self.process.on and not self.process.speed.is_unpromising(known, bound)

    def take_gains(self) -> list[MeasuredGain]:
        """Return the seconds and gains of the engine since the last call; empty if it has ended and gained nothing."""
        return [] if self.process is None or self.results is None else self.results.take_gains(self.process.on)

    def has_ended_run(self) -> bool:
        """Return whether the engine has ended the run; called by all ranks."""
        return self.name is not None and self.world.on_first_rank(lambda: self.incumbent.reached)

    def shift_clock(self, seconds: float, stop: Deadline) -> None:
        """Shift the start of the run by some seconds, and set its new deadline."""
        self.stop = stop
        if self.results is not None:
            self.results.stop = stop
            self.results.delay(seconds)


def _costs_when_ready(parts: DividedProblem, name: str, check: Callable[[], None]) -> CostProblem:
    """Return the whole problem as costs for an engine, once it can begin; constants are added at the end."""
    for needed in own_engine(name):
        while not needed.is_ready():
            check()
            time.sleep(tuning.CHECK_SECONDS)
    return problem_costs(parts.config.budget.bytes, parts.original, name, check)


def _name_of_early(early: EarlyEngine | None, parts: DividedProblem) -> str | None:
    """Return the name of the engine that searches the problem as given; None if there is none (rank 0).

    It is ended if presolve has changed the set of solutions, because its assignments may then be lost.
    """
    if early is None or (name := early.name()) is None:
        return None
    if keeps_all_solutions(parts.given.reduction) and not parts.given.moved_utility:
        return name
    early.search.cancel()
    return None


def _has_own_core(setup: "Setup", engine: str) -> bool:
    """Return whether the engine gets a dedicated core."""
    return has_own_core(setup.divided.config, setup.divided.original, engine, may_split_buckets(setup))


def _table_seconds(setup: "Setup", ranks: int) -> float:
    """Return the estimated seconds of all agents' tables."""
    return sum(choice.seconds for choice in setup.choices) / (max(1, setup.limits.threads) * ranks)
