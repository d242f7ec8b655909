"""Helpers that run problems step by step, and problems that take long."""

import gc
import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.local_search import IncumbentSearch, WholeSearches
from dmcmc.anytime.rank_run import RankRun
from dmcmc.anytime.solve import solve_tiny
from dmcmc.compilation import gpu_components
from dmcmc.compilation.components import agent_work
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.formats import native
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime import compile
from dmcmc.inference.runtime.compile import COMPILED
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.memo import clear_memos
from dmcmc.mpi.world import World
from dmcmc.samplers.contract import tuning
from dmcmc.solving import rank_search
from dmcmc.solving.coordinator import OneFile
from dmcmc.solving.local_tables import team_of
from dmcmc.solving.observe import Interrupt, NoProgress, Watch
from dmcmc.solving.planning import divided_problem as dividing
from dmcmc.solving.planning import presolve as presolve_problem
from dmcmc.solving.planning.plan import prepare
from dmcmc.solving.rank_tables import RankTables
from support.clock import MovableClock


def begin(parts, world, stop, start, progress, **options):
    """Return a local search that has an initial incumbent, with kernels that are compiled when they are called."""
    search_of = partial(IncumbentSearch, components=RunComponents(world, parts.config, progress))
    search = rank_search.begin(parts, world, stop, start, progress, search_of)
    search.first(**options)
    rank_search.take_start(search)
    return search


def solve_with(problem, **sections):
    """Solve a problem with the given settings."""
    return dmcmc.solve(problem, **sections)


def start_run(problem, *, world=None, stop=None, change=lambda setup: setup, explain=lambda setup: None, **sections):
    """Return a run before its first tables.

    Parameters
    ----------
    stop
        Deadline of the run; by the configuration's time budget if None.
    change
        Returns a changed setup.
    """
    world, config = world or World(), settings_of(Document("", sections))
    setup = change(prepare(problem, config, world))
    if config.budget.time is not None:
        KernelSupply(world, config, NoProgress()).request(*agent_work(setup, "none", solve_tiny).tables)
    start = time.perf_counter()
    if stop is None:
        stop = NO_DEADLINE if config.budget.time is None else Deadline(start + config.budget.time)
    search = begin(setup.divided, world, stop, start, NoProgress())
    tables = RankTables(setup.with_stop(stop), world, team_of(setup, world))
    return RankRun(tables, OneFile(search), WholeSearches(world, search), Watch(NoProgress(), (explain,)))


def finish_run(run, direct=lambda directive: directive, improve=RankRun.improve):
    """Finish a run, with changed directives or another improvement step, and return its result."""
    with Interrupt(run.setup.backend.stop, armed=run.setup.divided.timed):
        try:
            run.first_tables()
            while not run.goal_reached and not (directive := direct(run.agree(run.combine()))).stop:
                improve(run, directive)
        except OutOfTime as error:
            run.give_up(error)
        return run.result()


@dataclass(frozen=True)
class SlowBackend(Backend):
    """A backend on which some plans never finish if they can be given up: its clock then moves to the deadline."""

    slow: tuple = ()
    clock: MovableClock | None = None

    def eliminate_all(self, flat, plans, *more):
        while self.stop is not NO_DEADLINE and any(plan is one for plan in plans for one in self.slow):
            self.stop.check()
            self.clock.skip(self.stop.left)
        return super().eliminate_all(flat, plans, *more)

    @classmethod
    def for_agents(cls, setup, agents, clock):
        """Return the setup with such a backend for some agents; ``clock`` replaces ``time.perf_counter``.

        All agents get the same estimate, a share of the time budget, because cheap agents are never given up.
        """
        seconds = setup.divided.config.budget.time / len(setup.choices)
        setup = replace(setup, choices=tuple(choice._replace(seconds=seconds) for choice in setup.choices))
        plans = tuple(setup.divided.division.locals[a].plan for a in agents)
        return replace(setup, backend=cls(setup.backend.device, setup.backend.threads, slow=plans, clock=clock))


class HurriedProgress(NoProgress):
    """A progress that moves the clock past the deadline when a stage begins for the n-th time."""

    def __init__(self, clock, stage, times=1):
        self.clock, self.awaited, self.left = clock, stage, times

    def stage(self, title, total=None):
        self.left -= title.startswith(self.awaited)
        if not self.left:
            self.clock.skip(1e6)


def write_configuration(tmp_path, problem, **sections):
    """Write a problem and its configuration; return the path of the configuration."""
    native.save(problem, tmp_path / "problem.npz")
    lines = ["problem: {file: problem.npz}"]
    lines += [f"{name}: {json.dumps(section)}" for name, section in sections.items()]
    (tmp_path / "run.yaml").write_text("\n".join(lines))
    return str(tmp_path / "run.yaml")


def dense_problem(seed, agents=4, shared=3, domain=4):
    """Return agents that share all but one variable, with larger utilities inside agents than between them."""
    rng = np.random.default_rng(seed)
    n = agents * (shared + 1)
    owner, factors = np.repeat(np.arange(agents), shared + 1), []
    for a in range(agents):
        own = np.flatnonzero(owner == a).tolist()
        factors.append(Factor.of(own[:shared], rng.integers(0, 100, (domain,) * shared)))
        factors += [Factor.of((v, own[-1]), rng.integers(0, 10, (domain, domain))) for v in own[:-1]]
        for b in range(a):
            other = np.flatnonzero(owner == b).tolist()
            pairs = [(own[i], other[j]) for i in range(shared) for j in range(shared) if (i + j) % 2 == 0]
            factors += [Factor.of(pair, rng.integers(0, 4, (domain, domain))) for pair in pairs]
    names = tuple(f"x{v}" for v in range(n)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(n, domain), names[1], owner, tuple(factors))


def hard_problem(variables=14, agents=2, domain=8, seed=0):
    """Return agents with complete local graphs: sampling finds the optimum quickly, but bounds prove it slowly."""
    rng = np.random.default_rng(seed)
    n = variables * agents
    owner = np.repeat(np.arange(agents), variables)
    pairs = [
        (i, j) for j in range(n) for i in range(j) if owner[i] == owner[j] or (i % variables, j % variables) == (0, 0)
    ]
    factors = tuple(Factor.of(pair, rng.integers(0, 1000, (domain, domain))) for pair in pairs)
    names = tuple(f"x{v}" for v in range(n)), tuple(f"a{a}" for a in range(agents))
    return Problem(names[0], np.full(n, domain), names[1], owner, factors)


def large_problem(agents=2):
    """Return a problem whose only table takes more than 32 MiB."""
    names, size = tuple(f"a{a}" for a in range(agents)), 2100
    table = Factor.of((0, 1), np.full((size, size), 0.5))
    return Problem(("x", "y"), np.full(2, size), names, np.arange(2) % agents, (table,))


@contextmanager
def presolving_small_problems():
    """Presolve problems in this block although their eliminations are faster than presolve."""
    clear_memos()  # they hold the sizes of eliminations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presolve_problem, "cells_upper_bound", lambda *_: float("inf"))
        yield patch
    clear_memos()


def forget_compiled_kernels():
    """Forget all compiled kernels, so that they are compiled or read from disk again, and the plans that call them."""
    for one in gc.get_objects():
        if issubclass(type(one), Dispatcher) and one.py_func.__module__.startswith("dmcmc."):
            one._reset_overloads()
    COMPILED.clear()
    clear_memos()


@contextmanager
def record_late_compilation(monkeypatch):
    """Yield a list of the kernels (name and signature) that a run calls without having declared them.

    The declared kernels are compiled before the clock starts, and again after planning.
    """
    late, clock_started, clock_stopped, compile_ = [], [], [True], Dispatcher.compile

    def without_clock(work):
        def worked(*given, **options):
            clock_stopped.append(True)
            try:
                return work(*given, **options)
            finally:
                clock_stopped.pop()

        return worked

    def starting(*given, **options):
        if not clock_started and len(clock_stopped) == 1:  # not in a problem that is solved to compile
            clock_started.append(True)
            clock_stopped.clear()
        return started(*given, **options)

    def record(self, signature):
        if not clock_stopped and self.py_func.__module__.startswith("dmcmc."):
            late.append(f"{self.py_func.__module__}.{self.py_func.__name__} {signature}")
        return compile_(self, signature)

    started = dividing.divide_problem
    with monkeypatch.context() as patched:
        patched.setenv("DMCMC_COMPILE", "first")
        patched.setattr(compile, "compiled_marker", lambda name: None)
        patched.setattr(KernelSupply, "request", without_clock(KernelSupply.request))
        patched.setattr(gpu_components, "prepare_gpu", without_clock(gpu_components.prepare_gpu))
        patched.setattr(dividing, "divide_problem", starting)
        patched.setattr(Dispatcher, "compile", record)
        forget_compiled_kernels()
        yield late


def sizes(**values):
    """Return the constants that packages share, with other values: in place of ``tuning`` in one module."""
    return SimpleNamespace(**vars(tuning) | values)
