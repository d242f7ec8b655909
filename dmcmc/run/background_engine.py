"""A search engine beside a run: when it begins, what it finds and proves, and when it ends."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import NO_STOP, Stop, Wish
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.run.compilation.compile_ahead import warm_up_branching
from dmcmc.run.improvers.background_search import engine_for, has_core, in_time, memory_of
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import BRANCH_AND_BOUND, TOULBAR2, Brought
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.toulbar2.background_search import Beside, Listener
from dmcmc.samplers.toulbar2.costs import Costs
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem

_LOOK = 0.02  # seconds between two looks at it
_TRIAL, _TRIAL_SHARE = 1.0, 0.1  # seconds, and of what is left, that it has before anything else is compiled
_AT_ONCE = 0.3  # seconds in which a plan may show that no search engine is needed
_MOMENT = 2.0  # seconds of exact tables that need none
_MEANWHILE, _LEAST_MEANWHILE = 0.25, 2.0  # of what exact tables take, one may search beside them; and seconds at least


class RunEngine:
    """What all ranks know of a search engine beside a run; its process is rank 0's.

    Parameters
    ----------
    search : LocalSearch
        Makes what the engine finds 1-optimal; gives it a core of its own where that pays.
    stop : Stop
        When the run ends; :meth:`engage` and :meth:`delay` may change it.

    Attributes
    ----------
    beside : Beside or None
        The engine, on rank 0.
    name : str or None
        Which one there is, on all ranks; None without any.
    """

    def __init__(self, parts: Divided, incumbent: Incumbent, world: World, search: LocalSearch, stop: Stop) -> None:
        self.parts, self.incumbent, self.world, self.stop = parts, incumbent, world, stop
        self._search = search
        self.beside: Beside | None = None
        self.name: str | None = None
        self._core, self._in_time = False, True
        self._entered, self._raised, self._lowered = 0.0, 0.0, 0.0

    def end(self) -> None:
        """End it and wait until its process is gone."""
        if self.beside is not None:
            self.beside.end()

    def engage(self, stop: Stop) -> Stop:
        """Let a search engine begin beside the run, where it is wanted; called by all ranks.

        Returns
        -------
        Stop
            When the run ends: also when there is a proof.
        """
        config, problem = self.parts.config, self.parts.problem
        if config.search == "none" or (config.search == "auto" and not self.parts.timed):
            return stop
        self.name = self.world.decided(lambda: engine_for(config, problem))
        if self.name is None:
            return stop
        self._in_time = self.world.decided(lambda: in_time(config, problem))
        if stop is NO_STOP:
            self.stop = stop = Stop(wish=Wish())
        if self.world.rank == 0:
            told = Listener(lambda: self.incumbent.utility, self._found, self._proven, lambda: self.stop.until)
            self._entered = time.perf_counter()
            self.beside = self._engine(told)
        return stop

    def _engine(self, told: Listener) -> Beside:
        """Return the engine: it begins soon, or when it is known to be needed.

        That is waited for where its kernels have to be there, and where it takes long to begin.
        """
        memory = memory_of(self.parts.config)
        if self.name == TOULBAR2:
            return Beside(self._costs, memory, told, _AT_ONCE if self._in_time else math.inf)
        from dmcmc.samplers.branch_and_bound.engine import BranchAndBound

        return Beside(self._costs, memory, told, math.inf, BranchAndBound)

    def compiled(self, setup: Setup, progress: Progress) -> float:
        """Compile what the engine uses where it will be needed; called by all ranks. Returns the seconds it took."""
        if self.name != BRANCH_AND_BOUND or not self._needed(setup):
            return 0.0
        return warm_up_branching(self.world, progress)

    def tries_first(self, setup: Setup) -> bool:
        """Let the engine search alone for a moment; return whether that has ended the run. Called by all ranks."""
        if self.beside is not None and self._needed(setup):
            until = time.perf_counter() + min(_TRIAL, _TRIAL_SHARE * self.stop.left)
            self.beside.go()
            while self.beside.on and not self.stop.over and (left := until - time.perf_counter()) > 0:
                self.beside.wait(min(left, _LOOK))
        self.world.wait()
        return self.won()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """While kernels are compiled or loaded, the clock stands still: what the search engine finds comes later."""
        if self.beside is not None:
            self.beside.hold()
        yield
        if self.beside is not None:
            self.beside.resume()

    def settle(self, setup: Setup) -> Setup:
        """Say whether the search engine is needed, now that all is planned; return the setup less the core it takes.

        Where exact tables prove the answer it has some of the time that they take, and no core of its own; where there
        are several agents, and what they send fits as it is, it has what their work leaves of the cores.
        """
        if self.beside is None or self.name is None:
            return setup
        if not self._needed(setup):
            self.beside.leave()
            return setup
        asked = setup.config.search != "auto"
        if will_prove(setup) and not asked:
            self.beside.go(max(_LEAST_MEANWHILE, _MEANWHILE * self._price(setup)))
            return setup
        core = has_core(setup, self.name)
        self.beside.go(behind=not core and not asked)  # if it is slow then, it waits for what agents' tables prove
        self._core = setup.backend.threads > 1 and core
        return self._with_threads(setup, setup.backend.threads - 1) if self._core else setup

    def _needed(self, setup: Setup) -> bool:
        """Return whether it may bring something: exact tables that prove the answer in a moment need none."""
        if setup.config.search != "auto":
            return True
        if will_prove(setup):
            return self._in_time and self._price(setup) > _MOMENT
        return self._in_time or (self.name is not None and has_core(setup, self.name))

    def _price(self, setup: Setup) -> float:
        """Return the seconds that agents' tables take."""
        return sum(choice.seconds for choice in setup.choices) / (max(1, setup.limits.threads) * self.world.size)

    def go_on(self) -> None:
        """Let the search engine go on if it has paused."""
        if self.beside is not None:
            self.beside.go_on()

    def alone(self) -> None:
        """Let the search engine begin, if it has not: there are no tables."""
        if self.beside is not None:
            self.beside.go()

    def disengage(self, setup: Setup) -> Setup:
        """End the search engine; return the setup with the core that it had."""
        if self.beside is not None:
            self.beside.leave()
        if not self._core:
            return setup
        self._core = False
        return self._with_threads(setup, setup.backend.threads + 1)

    def _with_threads(self, setup: Setup, threads: int) -> Setup:
        self._search.threads = threads
        return replace(setup, backend=replace(setup.backend, threads=threads))

    @property
    def hopeful(self) -> bool:
        """Whether a search engine beside this rank may still bring something."""
        utility, bound = self.incumbent.utility, self.incumbent.bound
        known, proven = None if utility is None else float(utility), None if bound is None else float(bound)
        return self.beside is not None and self.beside.on and not self.beside.hopeless(known, proven)

    def brought(self) -> list[Brought]:
        """Return what a search engine has brought since this was last asked."""
        if self.beside is None or not (self.beside.on or self._raised or self._lowered):
            return []
        now = time.perf_counter()
        one = Brought(self.name or TOULBAR2, now - self._entered, closed=self._lowered, objective=self._raised)
        self._entered, self._raised, self._lowered = now, 0.0, 0.0
        return [one]

    def _costs(self) -> Costs:
        """Return the whole problem as a search engine takes it; constants are added at the end."""
        return costs_of_problem(self.parts.original, self.parts.config.budget.bytes, constants=False)

    def _found(self, values: NDArray[np.int64]) -> None:
        """Take in what the search engine has found, on its thread."""
        before = self.incumbent.utility
        self.incumbent.update(self._search.polish(values), self.name or TOULBAR2)
        after = self.incumbent.utility
        if before is not None and after is not None:
            self._raised += max(0.0, float(after - before))
        self._ask_to_end()

    def _proven(self, bound: Number | None) -> None:
        """Take in what the search engine has proven, on its thread."""
        arithmetic, before = self.parts.arithmetic, self.incumbent.bound
        if bound is None:
            encoded: Number = arithmetic.lowest
        else:
            encoded = math.floor(bound) if arithmetic.exact else float(bound)
        if self.incumbent.update_bound(encoded, self.name or TOULBAR2) and before is not None:
            self._lowered += max(0.0, float(before - encoded))
        self._ask_to_end()

    def _ask_to_end(self) -> None:
        """End all work of this rank where nothing more is wanted."""
        if self.incumbent.reached:
            self.stop.wish.ask()

    def won(self) -> bool:
        """Return whether a search engine has ended the run; called by all ranks."""
        return self.name is not None and self.world.decided(lambda: self.incumbent.reached)

    def delay(self, seconds: float, stop: Stop) -> None:
        """Hear that the run began so much later, and when it ends now."""
        self._entered += seconds
        self.stop = stop
