"""A search engine beside a run: what it finds and proves is the run's, and its process never outlives it."""

import os
import signal
import subprocess
import sys
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
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.mpi.world import World
from dmcmc.run.background_engine import RunEngine
from dmcmc.run.improvers import background_search as engines
from dmcmc.run.planning.plan import prepare
from dmcmc.samplers.auto.rates import NOMINAL
from dmcmc.samplers.toulbar2 import background_search as module
from dmcmc.samplers.toulbar2.background_search import Beside, Listener
from dmcmc.samplers.toulbar2.costs import costs_of
from dmcmc.samplers.toulbar2.search import Engine, Progress, available

pytestmark = pytest.mark.skipif(not available(), reason="needs pytoulbar2")


def ring(n, seed=0, floats=False):
    """Factors over a circle with chords."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + step) % n) for i in range(n) for step in (1, 3)]
    draw = rng.normal if floats else lambda size: rng.integers(0, 100, size)
    return [Factor.of(pair, draw(size=(3, 3))) for pair in pairs]


def undivided(factors, n):
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, 3), ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def costs_of_all(factors, n):
    return costs_of([f.scope for f in factors], [f.table for f in factors], np.full(n, 3))


def hard(n=70):
    """Costs that no search comes through in time."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(n, 4))


class Heard:
    """What a search says, and when it has to end."""

    def __init__(self, known=None, seconds=300):
        self.values, self.bounds, self.known = [], [], known
        self.until = time.perf_counter() + seconds

    def listener(self):
        return Listener(lambda: self.known, self.values.append, self.bounds.append, lambda: self.until)


def followed(costs, heard, **options):
    """What was said by a search that went on to its end."""
    with Beside(lambda: costs, 0, heard.listener(), **options) as search:
        search.wait(300)
        assert not search.on
    return search


@pytest.mark.parametrize("floats", [False, True])
def test_its_solutions_and_its_proof_are_told(floats):
    factors = ring(9, floats=floats)
    best, heard = dmcmc.solve(undivided(factors, 9), method="exact"), Heard()
    assert followed(costs_of_all(factors, 9), heard).complete
    entries = [f.entry(heard.values[-1][list(f.scope)]) for f in factors]
    assert sum(entries) == pytest.approx(best.objective, rel=1e-12)
    assert heard.bounds[-1] == pytest.approx(best.objective, rel=1e-12)
    assert all(bound >= best.objective for bound in heard.bounds)
    assert floats or heard.bounds[-1] == best.objective


@pytest.mark.parametrize("floats", [False, True])
def test_what_is_known_is_proven_to_be_the_best(floats):
    factors = ring(9, floats=floats)
    known = dmcmc.solve(undivided(factors, 9), method="exact").objective
    heard = Heard(known)
    followed(costs_of_all(factors, 9), heard)
    assert heard.bounds[-1] == pytest.approx(known, rel=1e-12)
    assert floats or (not heard.values and heard.bounds[-1] == known)


def test_that_nothing_is_allowed_is_proven():
    unequal = np.where(np.eye(3, dtype=bool), -np.inf, 0)
    factors, heard = [Factor.of((i, j), unequal) for i in range(4) for j in range(i)], Heard()
    followed(costs_of_all(factors, 4), heard)
    assert heard.bounds == [None]


class Scripted(Engine):
    """An engine that finds a poor assignment at first, and proves what it was given the second time."""

    beats: ClassVar = []

    def __init__(self, memory):
        pass

    def close(self):
        pass

    def start(self, costs, beat, seconds):
        self.beats.append(beat)
        second = len(self.beats) == 2
        return Progress(values=None if second else np.zeros(9, dtype=np.int64), complete=second, ended=second)


def test_a_much_better_assignment_is_worth_a_new_start(monkeypatch):
    monkeypatch.setattr(module, "Engine", Scripted)
    monkeypatch.setattr(Scripted, "beats", [])
    factors = ring(9)
    best, heard = dmcmc.solve(undivided(factors, 9), method="exact").objective, Heard()
    with Beside(lambda: costs_of_all(factors, 9), 0, heard.listener()) as search:
        while not heard.values and search.on:
            time.sleep(0.001)
        heard.known = best
        search.wait(300)
    assert Scripted.beats == [None, best]
    assert heard.bounds == [best]


@pytest.mark.parametrize(
    ("bounds", "own", "hopeless"), [([90, 80], 12, False), ([90, 89], 12, True), ([90, 89], 70, False)]
)
def test_it_ends_where_it_is_slow_and_its_bound_is_loose(bounds, own, hopeless):
    now = time.perf_counter()
    search = Beside.__new__(Beside)
    search.begun, search.paused, search._listener = now - 20, False, Heard(seconds=20).listener()
    search._bounds = [(now - 15, bounds[0]), (now - 1, bounds[1])]
    assert search.hopeless(10, own) == hopeless
    assert not search.hopeless(None, own)


@pytest.mark.parametrize(("spent", "own", "hopeless"), [(20, 30, True), (20, 60, False), (8, 30, False)])
def test_one_that_proves_nothing_for_long_ends_where_ours_is_tighter_by_far_than_none(spent, own, hopeless):
    search = Beside.__new__(Beside)
    search.begun, search.paused = time.perf_counter() - spent, False
    search._listener, search._bounds, search._most = Heard(seconds=20).listener(), [], 100.0
    assert search.hopeless(10, own) == hopeless


def test_behind_other_work_it_pauses_where_it_is_slow_until_it_is_told_to_go_on(monkeypatch):
    monkeypatch.setattr(module, "_ALONE", 0.1)
    monkeypatch.setattr(module, "_ALONE_SHARE", 0.0)
    with Beside(hard, 0, Heard(known=-(10**9), seconds=60).listener(), wait=600) as search:
        search.go(behind=True)
        pids = waited_for(lambda: search.paused and [p for p in children() if state_of(p) == "T"])
        assert pids
        search.go_on()
        assert waited_for(lambda: all(state_of(p) != "T" for p in pids))
    assert not waited_for(lambda: [p for p in pids if Path("/proc", str(p)).exists()], until=False)


def waited_for(condition, until=True, seconds=200):
    """What a condition comes to say, once it is as wanted."""
    end = time.perf_counter() + seconds
    while bool(found := condition()) != until and time.perf_counter() < end:
        time.sleep(0.01)
    return found


def children():
    """Processes that this one has started."""
    return [int(p) for t in Path("/proc/self/task").iterdir() for p in (t / "children").read_text().split()]


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_says_nothing_while_it_is_held():
    heard = Heard()
    with Beside(lambda: costs_of_all(ring(9), 9), 0, heard.listener(), wait=600) as search:
        search.hold()
        search.go()
        search.wait(0.5)
        assert search.on and not heard.values and not heard.bounds
        search.resume()
        search.wait(300)
    assert heard.values and heard.bounds


def test_it_does_not_begin_while_it_is_held_and_never_where_it_is_not_wanted_then():
    made = []
    with Beside(lambda: made.append(1), 0, Heard().listener(), wait=600) as search:
        search.hold()
        search.go()
        search.wait(0.1)
        search.leave()
        search.resume()
        search.wait(300)
    assert not search.on and not made


def planned(agents, variables, size, asked="auto", seconds=2.0):
    """The plan of a run: variables that share tables of size times size, all with all."""
    pairs = [(i, j) for j in range(variables) for i in range(j)]
    names, owner = tuple(f"a{i}" for i in range(agents)), np.arange(variables) % agents
    factors = tuple(Factor.of(pair, np.arange(size * size).reshape(size, size) % 7) for pair in pairs)
    problem = Problem(tuple(f"x{v}" for v in range(variables)), np.full(variables, size), names, owner, factors)
    settings = Settings(search=asked, budget=Budget(time=seconds, memory=1 << 30), reduce="none")
    return prepare(problem, settings, World(), lambda: NOMINAL)


class Asked:
    """What a run asks of its search engine."""

    def __init__(self):
        self.went, self.left = [], False

    def go(self, seconds=float("inf"), behind=False):
        self.went.append(behind)

    def leave(self):
        self.left = True


# Where two agents' tables fit as they are it may be too slow to begin; where six agents' have to be split it may not.
FITTING, SPLIT, LARGE = (2, 2, 200), (6, 6, 60), (6, 6, 200)


@pytest.mark.parametrize(("shape", "asked", "seconds", "has"), [
    (FITTING, "auto", 1.9, "nothing"), (FITTING, "toulbar2", 1.0, "what is left"),
    (SPLIT, "auto", 0.4, "nothing"), (LARGE, "auto", 1.0, "nothing"),
    (SPLIT, "auto", 1.0, "a core"), (SPLIT, "auto", 100.0, "a core"), (SPLIT, "toulbar2", 1.0, "what is left"),
])  # fmt: skip
def test_it_has_a_core_where_tables_are_split_and_else_what_they_leave_if_it_can_begin_in_time(
    shape, asked, seconds, has, monkeypatch
):
    monkeypatch.setattr(engines, "cores", lambda: 2)
    setup = planned(*shape, asked, seconds)
    setup = replace(setup, backend=replace(setup.backend, threads=2))
    engine = RunEngine(setup, None, World(), SimpleNamespace(threads=2), NO_STOP)
    engine.name, engine.beside = engines.engine_for(setup.config, setup.problem), Asked()
    engine._in_time = engines.in_time(setup.config, setup.problem)
    after = engine.settle(setup)
    assert engine.beside.left == (has == "nothing")
    assert engine.beside.went == ([] if has == "nothing" else [False])
    assert after.backend.threads == (1 if has == "a core" else 2)
    assert ("too long to begin" in engines.outlook(setup)) == (has == "nothing")


def test_it_runs_behind_tables_that_are_joined_as_they_are(monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 2)
    setup = planned(2, 2, 12)
    setup = setup.changed({0: setup.choices[0]._replace(method="annealing")})
    engine = RunEngine(setup, None, World(), SimpleNamespace(threads=2), NO_STOP)
    engine.name, engine.beside = "toulbar2", Asked()
    assert engine.settle(setup) is setup and engine.beside.went == [True]
    assert "behind other work" in engines.outlook(setup)


def processes():
    """The search engines that this process has started; threads and processes may end meanwhile."""
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
def test_no_process_is_left_however_the_work_beside_it_ends(error):
    before, heard = processes(), Heard()
    try:
        with Beside(hard, 0, heard.listener()) as search:
            while not heard.values and search.on:
                time.sleep(0.01)
            assert len(processes() - before) == 1
            if error is not None:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert processes() == before


@on_linux
def test_it_ends_when_the_time_is_over():
    before, heard = processes(), Heard(seconds=0.7)
    followed_until, start = followed(hard(), heard), time.perf_counter()
    assert not followed_until.complete
    assert time.perf_counter() - start < 200  # for ever otherwise
    assert processes() == before


PARENT = """
import sys, time
sys.path[:0] = {path!r}
import numpy as np
from dmcmc.samplers.toulbar2.costs import costs_of
from dmcmc.samplers.toulbar2.search import Engine
rng = np.random.default_rng(0)
pairs = [(i, j) for i in range(60) for j in range(i)]
engine = Engine()
found = engine.start(costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(60, 4)), None, 100)
while found.values is None:
    time.sleep(0.01)
print(engine._process.pid, flush=True)
time.sleep(100)
"""


@on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_its_process_ends_with_the_one_that_started_it(number):
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
    """Whether a process runs: one that nobody has asked after does not."""
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
    assert {point.by for point in result.trace} >= {"toulbar2"}
    exact = dmcmc.solve(problem, method="exact")
    assert result.objective == pytest.approx(exact.objective, rel=1e-12)


def test_fixed_work_waits_for_it_where_it_is_asked_for():
    problem = undivided(ring(12), 12)
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="toulbar2", runs=1, samples=1)
    assert result.status == "optimal"


def test_without_a_time_budget_nobody_begins_one(monkeypatch):
    monkeypatch.setattr(engines, "available", lambda: pytest.fail("was asked for"))
    result = dmcmc.solve(undivided(ring(12), 12), runs=1, samples=1)
    assert "toulbar2" not in {point.by for point in result.trace}


def test_without_toulbar2_all_goes_on_and_a_plan_says_so(monkeypatch):
    monkeypatch.setattr(engines, "available", lambda: False)
    monkeypatch.setattr(engines, "cores", lambda: 2)
    problem = undivided(ring(12), 12)
    result = dmcmc.solve(problem, method="auto", timeout=600)
    assert result.status == "optimal"
    assert "branch and bound searches the whole" in str(dmcmc.plan(problem, timeout=5))
    with pytest.raises(Unavailable, match="search: toulbar2"):
        dmcmc.solve(problem, search="toulbar2")
