"""Runs end when they should: exact agents that take too long give up, Ctrl-C is heard, what cannot improve ends."""

import json

import numpy as np
import pytest
from support.ranks import needs_mpirun, start
from support.runs import answer, dense_problem, hard_problem, written

from dmcmc import Factor, Problem
from dmcmc.config.settings import Budget, Local, Settings
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.report.plan import plan_of
from dmcmc.run.solve import solve
from dmcmc.samplers.methods import exact

SLOW = """
import time
from dmcmc.inference.runtime.stop import NO_STOP
from dmcmc.samplers.methods import exact

quick = exact._solve

def slow(problems, settings):
    while any(local.agent in (1, 2) for local in problems) and settings.backend.stop is not NO_STOP:
        settings.backend.stop.check()
        time.sleep(0.001)
    return quick(problems, settings)

exact._solve = slow
"""

ABANDONED = """
import dmcmc.run.cycle
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.stop import NO_STOP
from dmcmc.mpi.world import connect

util_step, world = dmcmc.run.cycle.util_step, connect()

def given_up(*arguments, backend, **named):
    if world.rank == world.size - 1 and backend.stop is not NO_STOP:
        raise OutOfTime("out of time")
    return util_step(*arguments, backend=backend, **named)

dmcmc.run.cycle.util_step = given_up
"""

INTERRUPTED = """
import os, signal, threading
import dmcmc.run.solve
from dmcmc.run.incumbent import Standing

order, improve_all = Standing.order, dmcmc.run.solve.improve_all

def one_long_slice(self, *arguments):
    found = order(self, *arguments)
    return found._replace(seconds=100.0, sampled=SAMPLED) if self.deadline else found

def interrupted(*arguments):
    if arguments[-1].seconds > 1:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return improve_all(*arguments)

Standing.order = one_long_slice
dmcmc.run.solve.improve_all = interrupted
"""

MAIN = """
import sys
from dmcmc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def driven(tmp_path, ranks, code, config):
    """The result of a run in which something has been replaced."""
    (tmp_path / "driver.py").write_text(code + MAIN)
    done = start(ranks, str(tmp_path / "driver.py"), "run", config, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def slow(monkeypatch):
    """Let the eliminations of agents 1 and 2 take for ever."""
    monkeypatch.setattr(exact, "_solve", exact._solve)  # to be restored
    exec(SLOW, {})


def small(agents=4):
    return hard_problem(variables=6, agents=agents, domain=4)


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_an_agent_whose_elimination_takes_too_long_is_sampled_and_bounded(slow, method):
    problem, told = small(), []
    best = answer(problem, local={"method": "gibbs"}, budget={"time": 20.0}).objective
    settings = Settings(local=Local(method=method), budget=Budget(time=2.0))
    result = solve(problem, settings, explain=told.append)
    assert [agent.method for agent in result.agents] == ["exact", "annealing", "annealing", "exact"]
    assert result.objective <= best <= result.bound
    plan = result.provenance["plan"]
    assert plan["methods"] == {"a0": "exact", "a1": "annealing", "a2": "annealing", "a3": "exact"}
    assert "given up after" in plan["choices"]["a1"]["reason"]
    assert [set(task.methods) for task in told] == [{"exact"}, {"exact", "annealing"}]
    assert "was given up after" in str(plan_of(told[1]))


def test_without_a_time_budget_nothing_is_given_up(monkeypatch):
    seen = []
    quick = exact._solve
    monkeypatch.setattr(exact, "_solve", lambda some, s: seen.append(s.backend.stop.until) or quick(some, s))
    assert answer(small()).status == "optimal" and set(seen) == {float("inf")}


def test_an_agent_that_cannot_be_sampled_is_not_given_up(monkeypatch):
    seen = []
    quick = exact._solve
    monkeypatch.setattr(exact, "_solve", lambda some, s: seen.append(s.backend.stop.until) or quick(some, s))
    monkeypatch.setattr("dmcmc.samplers.auto.survey._obstacle", lambda *_: "too many rows")
    assert answer(small(), budget={"time": 5.0}).status == "optimal" and set(seen) == {float("inf")}


@needs_mpirun
def test_all_ranks_know_who_has_given_up(tmp_path):
    config = written(tmp_path, small(), budget={"time": 4.0})
    result = driven(tmp_path, 2, SLOW, config)
    assert [agent["method"] for agent in result["agents"]] == ["exact", "annealing", "annealing", "exact"]
    assert {agent["rank"] for agent in result["agents"]} == {0, 1}
    assert result["bound"] >= result["objective"]


@needs_mpirun
def test_a_later_combination_is_abandoned_on_all_ranks_when_one_is_out_of_time(tmp_path):
    config = written(tmp_path, hard_problem(agents=3), local={"method": "gibbs"}, budget={"time": 60})
    result = driven(tmp_path, 2, ABANDONED, config)
    assert result["status"] == "timeout" and result["cycle"] > 1 and result["time"] < 60
    assert result["objective"] <= result["bound"] and result["assignment"]


def test_the_first_combination_is_not_abandoned(monkeypatch):
    from dmcmc.run import cycle

    step = cycle.util_step

    def late(*arguments, backend, **named):
        assert backend.stop.until == float("inf")
        return step(*arguments, backend=backend, **named)

    monkeypatch.setattr(cycle, "util_step", late)
    local = {"method": "exact"}
    assert answer(dense_problem(0), local=local, budget={"time": 0.001}).objective is not None


def test_a_first_cycle_raises_what_a_later_one_returns(monkeypatch):
    from dmcmc.run import cycle

    def never(*_, **__):
        raise OutOfTime("out of time")

    monkeypatch.setattr(cycle, "util_step", never)
    with pytest.raises(OutOfTime):
        answer(small())


@pytest.mark.parametrize(("ranks", "sampled"), [(0, 1.0), (0, 0.0), pytest.param(2, 0.0, marks=needs_mpirun)])
def test_ctrl_c_is_heard_by_the_agent_at_work(tmp_path, ranks, sampled):
    problem = hard_problem(agents=2)
    config = written(tmp_path, problem, local={"method": "gibbs", "bound": "triangles"}, budget={"time": 100})
    result = driven(tmp_path, ranks, INTERRUPTED.replace("SAMPLED", str(sampled)), config)
    assert result["status"] == "timeout" and result["time"] < 50
    assert result["objective"] <= result["bound"] and result["assignment"]


def shared_only(floats=False):
    """Agents without hidden variables, all joined."""
    rng = np.random.default_rng(2)
    pairs = [(a, b) for b in range(6) for a in range(b)]
    tables = [rng.random((3, 3)) if floats else rng.integers(0, 50, (3, 3)) for _ in pairs]
    factors = tuple(Factor.of(pair, table) for pair, table in zip(pairs, tables, strict=True))
    return Problem(tuple("uvwxyz"), np.full(6, 3), ("a", "b", "c"), np.repeat(np.arange(3), 2), factors)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("bound", ["none", "dual", "mini-bucket"])
def test_what_time_cannot_improve_ends_without_it(bound, floats):
    result = answer(
        shared_only(floats),
        local={"method": "gibbs", "bound": bound},
        combine={"method": "mini-bucket", "z": 1},
        budget={"time": 1000.0},
    )
    assert result.status in ("feasible", "optimal") and result.time < 100
    assert (result.bound is None) == (bound == "none")


def test_with_a_time_budget_tables_are_combined_as_far_as_there_is_time(monkeypatch):
    from dmcmc.run import cycle

    problem, sections = dense_problem(0), {"local": {"method": "exact"}}
    best = answer(problem, **sections)
    assert best.status == "optimal" and all(agent.z is None for agent in best.agents)
    monkeypatch.setattr(cycle, "_CELLS", 100.0)
    first = answer(problem, **sections, budget={"time": 60.0, "gap": 10.0})
    assert any(agent.z is not None for agent in first.agents)
    assert first.cycle == 1 and first.objective <= best.objective <= first.bound
    exact = answer(problem, **sections, combine={"method": "exact"}, budget={"time": 60.0})
    assert exact.status == "optimal" and all(agent.z is None for agent in exact.agents)
    assert all(agent.z is None for agent in answer(problem, **sections).agents)
