"""Test the external search: the run gets its solutions and bounds, and its process never outlives the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.engines import background_engine
from dmcmc.anytime.engines import choose_engine as engines
from dmcmc.anytime.engines.background_engine import BackgroundEngine
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.mpi.world import World
from dmcmc.report.explain import plan_of
from dmcmc.samplers.auto.rates import NOMINAL
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.toulbar2 import background_search as module
from dmcmc.samplers.toulbar2.background_search import (
    BackgroundSearch,
    SearchObserver,
    SearchSpeed,
    Toulbar2Process,
    available,
)
from dmcmc.samplers.toulbar2.costs import costs_of
from dmcmc.solving.planning.plan import prepare

pytestmark = pytest.mark.skipif(not available(), reason="needs pytoulbar2")


def ring(n, seed=0, floats=False):
    """Return random factors over a ring with chords."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + step) % n) for i in range(n) for step in (1, 3)]
    draw = rng.normal if floats else lambda size: rng.integers(0, 100, size)
    return [Factor.of(pair, draw(size=(3, 3))) for pair in pairs]


def undivided(factors, n):
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, 3), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def costs_of_all(factors, n):
    return costs_of([f.scope for f in factors], [f.table for f in factors], np.full(n, 3))


def hard(n=70):
    """Return costs that no search can finish in time."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(n, 4))


class Reported:
    """Collects what a search reports, and defines its deadline."""

    def __init__(self, known=None, seconds=300):
        self.values, self.bounds, self.known = [], [], known
        self.until = time.perf_counter() + seconds

    def listener(self):
        return SearchObserver(lambda: self.known, self.values.append, self.bounds.append, lambda: self.until)


def finished_search(costs, reported, **options):
    """Return a search that has run to its end."""
    with BackgroundSearch(lambda check: costs, 0, reported.listener(), **options) as search:
        search.wait(300)
        assert not search.on
    return search


@pytest.mark.parametrize("floats", [False, True])
def test_its_solutions_and_bounds_are_reported(floats):
    factors = ring(9, floats=floats)
    best, reported = dmcmc.solve(undivided(factors, 9), method="exact"), Reported()
    assert finished_search(costs_of_all(factors, 9), reported).complete
    entries = [f.entry(reported.values[-1][list(f.scope)]) for f in factors]
    assert sum(entries) == pytest.approx(best.objective, rel=1e-12)
    assert reported.bounds[-1] == pytest.approx(best.objective, rel=1e-12)
    assert all(bound >= best.objective for bound in reported.bounds)
    assert floats or reported.bounds[-1] == best.objective


@pytest.mark.parametrize("floats", [False, True])
def test_a_known_optimum_is_proven(floats):
    factors = ring(9, floats=floats)
    known = dmcmc.solve(undivided(factors, 9), method="exact").objective
    reported = Reported(known)
    finished_search(costs_of_all(factors, 9), reported)
    assert reported.bounds[-1] == pytest.approx(known, rel=1e-12)
    assert floats or (not reported.values and reported.bounds[-1] == known)


def test_infeasibility_is_proven():
    unequal = np.where(np.eye(3, dtype=bool), -np.inf, 0)
    factors, reported = [Factor.of((i, j), unequal) for i in range(4) for j in range(i)], Reported()
    finished_search(costs_of_all(factors, 4), reported)
    assert reported.bounds == [None]


class Recorded(Toulbar2Process):
    """A toulbar2 process that keeps the first assignment it prints."""

    first = None

    def _lines(self):
        for line in super()._lines():
            if self.first is None and len(words := line.split()) == 12 and all(word.isdigit() for word in words):
                self.first = [int(word) for word in words]
            yield line


def test_toulbar2_tries_the_values_of_a_given_start_first():
    rng = np.random.default_rng(0)
    scopes = [(i, j) for i in range(12) for j in range(i)]
    costs = costs_of(scopes, [rng.integers(0, 100, (4, 4)) for _ in scopes], np.full(12, 4))
    start = rng.integers(0, 4, 12)
    agreeing = []
    for known in (None, start):
        with Recorded(known=lambda known=known: known) as engine:
            engine.search(costs, None, 60)
        agreeing.append(int((np.array(engine.first) == start).sum()))
    assert agreeing[1] >= 8 > agreeing[0]


class Scripted(Toulbar2Process):
    """An engine that first finds a poor assignment, and proves the given one in its second start."""

    beats: ClassVar = []

    def __init__(self, memory):
        pass

    def close(self):
        pass

    def start(self, costs, beat, seconds):
        self.beats.append(beat)
        second = len(self.beats) == 2
        return SearchProgress(values=None if second else np.zeros(9, dtype=np.int64), complete=second, ended=second)


def test_the_engine_restarts_with_a_much_better_assignment(monkeypatch):
    monkeypatch.setattr(module, "Toulbar2Process", Scripted)
    monkeypatch.setattr(Scripted, "beats", [])
    factors = ring(9)
    best, reported = dmcmc.solve(undivided(factors, 9), method="exact").objective, Reported()
    with BackgroundSearch(lambda check: costs_of_all(factors, 9), 0, reported.listener()) as search:
        while not reported.values and search.on:
            time.sleep(0.001)
        reported.known = best
        search.wait(300)
    assert Scripted.beats == [None, best]
    assert reported.bounds == [best]


@pytest.mark.parametrize(
    ("bounds", "own", "unpromising"), [([90, 80], 12, False), ([90, 89], 12, True), ([90, 89], 70, False)]
)
def test_a_slow_engine_with_a_loose_bound_is_ended(bounds, own, unpromising):
    now = time.perf_counter()
    speed = SearchSpeed(Reported(seconds=20).listener().deadline)
    speed.begun = now - 20
    speed.add_bound(bounds[0], now - 15)
    speed.add_bound(bounds[1], now - 1)
    assert speed.is_unpromising(10, own) == unpromising
    assert not speed.is_unpromising(None, own)


@pytest.mark.parametrize(("spent", "own", "unpromising"), [(20, 30, True), (20, 60, False), (8, 30, False)])
def test_an_engine_without_a_bound_is_ended_if_the_runs_bound_is_much_tighter(spent, own, unpromising):
    speed = SearchSpeed(Reported(seconds=20).listener().deadline)
    speed.begun, speed.initial_bound = time.perf_counter() - spent, 100.0
    assert speed.is_unpromising(10, own) == unpromising


def test_a_slow_engine_on_shared_cores_pauses_until_it_is_resumed(monkeypatch):
    monkeypatch.setattr(tuning, "MIN_TRIED_SECONDS", 0.2)
    monkeypatch.setattr(tuning, "UNTRIED_SHARE", 0.0)
    with BackgroundSearch(lambda check: hard(), 0, Reported(known=-(10**9), seconds=60).listener(), wait=600) as search:
        search.begin(low_priority=True)
        pids = waited_for(lambda: search.speed.paused and [p for p in children() if state_of(p) == "T"])
        assert pids
        search.end_pause()
        assert waited_for(lambda: all(state_of(p) != "T" for p in pids))
    assert not waited_for(lambda: [p for p in pids if Path("/proc", str(p)).exists()], until=False)


def waited_for(condition, until=True, seconds=200):
    """Wait until a condition has the wanted truth value; return its value."""
    end = time.perf_counter() + seconds
    while bool(found := condition()) != until and time.perf_counter() < end:
        time.sleep(0.01)
    return found


def children():
    """Return the processes that this process has started."""
    return [int(p) for t in Path("/proc/self/task").iterdir() for p in (t / "children").read_text().split()]


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def planned(agents, variables, size, asked="auto", seconds=2.0):
    """Return the plan of a run with a table of some size between every two variables."""
    pairs = [(i, j) for j in range(variables) for i in range(j)]
    names, owner = tuple(f"a{i}" for i in range(agents)), np.arange(variables) % agents
    factors = tuple(Factor.of(pair, np.arange(size * size).reshape(size, size) % 7) for pair in pairs)
    problem = Problem(tuple(f"x{v}" for v in range(variables)), np.full(variables, size), names, owner, factors)
    settings = Settings(search=asked, budget=Budget(time=seconds, memory=1 << 30), presolve="none")
    return prepare(problem, settings, World(), lambda: NOMINAL)


class FakeEngine:
    """Records what a run asks of its engine."""

    def __init__(self):
        self.went, self.left = [], False

    def begin(self, seconds=float("inf"), low_priority=False):
        self.went.append(low_priority)

    def cancel(self):
        self.left = True


# Two agents' tables fit, so that a start may be too slow; six agents' tables have to be split.
FITTING, SPLIT, LARGE = (2, 2, 200), (6, 6, 60), (6, 6, 200)


@pytest.mark.parametrize(("shape", "asked", "seconds", "has"), [
    (FITTING, "auto", 1.9, "nothing"), (FITTING, "toulbar2", 1.0, "idle cores"),
    (SPLIT, "auto", 0.4, "nothing"), (LARGE, "auto", 1.0, "nothing"),
    (SPLIT, "auto", 1.0, "a core"), (SPLIT, "auto", 100.0, "a core"), (SPLIT, "toulbar2", 1.0, "idle cores"),
])  # fmt: skip
def test_it_gets_a_core_if_tables_are_split_and_otherwise_idle_cores_if_it_starts_in_time(
    shape, asked, seconds, has, monkeypatch
):
    monkeypatch.setattr(engines, "cores", lambda: 2)
    setup = planned(*shape, asked, seconds)
    setup = replace(setup, backend=replace(setup.backend, threads=2))
    parts = SimpleNamespace(
        config=setup.divided.config, original=setup.divided.problem, problem=setup.divided.problem, timed=True
    )
    engine = BackgroundEngine(parts, None, World(), SimpleNamespace(threads=2), NO_DEADLINE, None)
    monkeypatch.setattr(background_engine, "BackgroundSearch", lambda *_: FakeEngine())
    engine.engage(NO_DEADLINE)
    after = engine.assign_cores(setup)
    assert engine.process.left == (has == "nothing")
    assert engine.process.went == ([] if has == "nothing" else [False])
    assert after.backend.threads == (1 if has == "a core" else 2)
    assert ("too long to start" in plan_of(setup).search) == (has == "nothing")


def test_it_uses_idle_cores_if_tables_are_not_split(monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 2)
    setup = planned(2, 2, 12)
    setup = setup.with_choices({0: setup.choices[0]._replace(method="annealing")})
    engine = BackgroundEngine(setup, None, World(), SimpleNamespace(threads=2), NO_DEADLINE, None)
    engine.name, engine.process = "toulbar2", FakeEngine()
    assert engine.assign_cores(setup) is setup and engine.process.went == [True]
    assert "on cores that other work leaves idle" in plan_of(setup).search


def processes():
    """Return the engines that this process has started; threads and processes may end during the call."""
    pids, found = list[str](), set[str]()
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{thread}/children") as children:
            pids += children.read().split()
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as command:
            if b"worker.py" in command.read():
                found.add(pid)
    return found


on_linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux")


@on_linux
@pytest.mark.parametrize("error", [None, RuntimeError("no"), KeyboardInterrupt()])
def test_no_process_is_left_however_the_other_work_ends(error):
    before, reported = processes(), Reported()
    try:
        with BackgroundSearch(lambda check: hard(), 0, reported.listener()) as search:
            while not reported.values and search.on:
                time.sleep(0.01)
            assert len(processes() - before) == 1
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert processes() == before


@on_linux
def test_it_ends_at_the_deadline():
    before, reported = processes(), Reported(seconds=0.7)
    followed_until, start = finished_search(hard(), reported), time.perf_counter()
    assert not followed_until.complete
    assert time.perf_counter() - start < 200  # it would run for ever
    assert processes() == before


PARENT = """
import sys, time
sys.path[:0] = {path!r}
import numpy as np
from dmcmc.samplers.toulbar2.costs import costs_of
from dmcmc.samplers.toulbar2.background_search import Toulbar2Process
rng = np.random.default_rng(0)
pairs = [(i, j) for i in range(60) for j in range(i)]
engine = Toulbar2Process()
found = engine.start(costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(60, 4)), None, 100)
while found.values is None:
    time.sleep(0.01)
print(engine._process.pid, flush=True)
time.sleep(100)
"""


@on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_its_process_ends_with_its_parent(number):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(path=sys.path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pid = int(parent.stdout.readline())
    parent.send_signal(number)
    parent.communicate()
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


def alive(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("floats", [False, True])
def test_a_run_ends_with_its_proof(floats):
    n = 40
    problem = undivided(ring(n, floats=floats), n)
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="toulbar2", timeout=600)
    assert result.status == "optimal"
    assert {point.found_by for point in result.trace} >= {"toulbar2"}
    exact = dmcmc.solve(problem, method="exact")
    assert result.objective == pytest.approx(exact.objective, rel=1e-12)


def test_a_run_without_time_budget_waits_for_a_configured_engine():
    problem = undivided(ring(12), 12)
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="toulbar2", runs=1, samples=1)
    assert result.status == "optimal"


def test_without_a_time_budget_no_engine_is_started(monkeypatch):
    monkeypatch.setattr(engines, "available", lambda: pytest.fail("was asked for"))
    result = dmcmc.solve(undivided(ring(12), 12), runs=1, samples=1)
    assert "toulbar2" not in {point.found_by for point in result.trace}


def test_without_toulbar2_our_engine_is_used_and_the_plan_says_so(monkeypatch):
    monkeypatch.setattr(engines, "available", lambda: False)
    monkeypatch.setattr(engines, "cores", lambda: 2)
    problem = undivided(ring(12), 12)
    result = dmcmc.solve(problem, method="auto", timeout=600)
    assert result.status == "optimal"
    assert "branch and bound searches the whole problem" in str(dmcmc.plan(problem, timeout=5))
    with pytest.raises(Unavailable, match="search: toulbar2"):
        dmcmc.solve(problem, search="toulbar2")


def test_a_conversion_of_the_problem_ends_when_the_search_is_cancelled():
    started = threading.Event()

    def convert(check):
        started.set()
        while True:
            check()

    with BackgroundSearch(convert, 0, Reported().listener()) as search:
        assert started.wait(60)
    assert not search.on
