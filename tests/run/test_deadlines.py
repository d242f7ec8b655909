"""Runs end in time: slow exact agents give up, Ctrl-C is noticed, and runs that cannot improve end early."""

import json
import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from support.ranks import needs_mpirun, start
from support.runs import HurriedProgress, SlowBackend, dense_problem, finish_run, hard_problem, solve_with, start_run

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.anytime.scheduler import tuning
from dmcmc.config.settings import Budget, Settings
from dmcmc.formats import native
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.orders import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.report.explain import plan_of
from dmcmc.run.solve import solve
from dmcmc.solving import rank_tables
from dmcmc.solving.planning.divided_problem import work_deadline

DRIVER_HEAD = """
import os, signal, sys, threading, time
from dmcmc.formats import native
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import connect
from dmcmc.anytime.scheduler.proposal import Allocation
from dmcmc.anytime.rank_run import RankRun
from support.clock import MovableClock
from support.runs import SlowBackend, finish_run, start_run

problem, world = native.load(sys.argv[1]), connect()
"""

SLOW = """
clock = time.perf_counter = MovableClock()
slow = lambda setup: SlowBackend.for_agents(setup, (1, 2), clock)
run = start_run(problem, world=world, change=slow, budget={"time": 600})
result = finish_run(run, lambda directive: directive._replace(stop=True))
"""

ABANDONED = """
made = RankRun.first_tables

def then_late(run):
    made(run)
    if world.rank == world.size - 1:
        run.setup = run.setup.with_stop(Deadline(time.perf_counter() - 10))

RankRun.first_tables = then_late
result = finish_run(start_run(problem, world=world, local={"method": "gibbs"}, budget={"time": 600}))
"""

INTERRUPTED = """
def long(directive):
    return directive._replace(allocations=tuple(Allocation("KIND", agent, 500.0) for agent in range(2)))

def interrupted(run, directive):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    RankRun.improve(run, directive)

local = {"method": "gibbs", "bound": "triangles"}
run = start_run(problem, world=world, local=local, budget={"time": 1000})
result = finish_run(run, long, interrupted)
"""

DRIVER_END = """
if result is not None:
    print(result.to_json())
"""


def run_driver(tmp_path, ranks, code, problem):
    """Return the result of a run of a driver script on some ranks."""
    native.save(problem, tmp_path / "problem.npz")
    (tmp_path / "driver.py").write_text(DRIVER_HEAD + code + DRIVER_END)
    done = start(ranks, str(tmp_path / "driver.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class RecordingBackend(Backend):
    """A backend that records the deadlines of its eliminations."""

    deadlines: list = field(default_factory=list)

    def eliminate_all(self, *arguments):
        self.deadlines.append(self.stop.until)
        return super().eliminate_all(*arguments)


def small_problem(agents=4):
    return hard_problem(variables=6, agents=agents, domain=4)


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_an_agent_whose_elimination_takes_too_long_is_sampled_and_bounded(method, clock):
    problem, setups = small_problem(), []
    best = solve_with(problem, local={"method": "exact"}).objective
    sections = {"local": {"method": method}, "budget": {"time": 600.0}}
    run = start_run(
        problem, change=lambda setup: SlowBackend.for_agents(setup, (1, 2), clock), explain=setups.append, **sections
    )
    result = finish_run(run, lambda directive: directive._replace(stop=True))
    assert [agent.method for agent in result.agents] == ["exact", "annealing", "annealing", "exact"]
    assert result.objective <= best <= result.bound
    plan = result.provenance["plan"]
    assert plan["methods"] == {"a0": "exact", "a1": "annealing", "a2": "annealing", "a3": "exact"}
    assert "given up after" in plan["choices"]["a1"]["reason"]
    assert [set(setup.methods) for setup in setups] == [{"exact", "annealing"}]
    assert "was given up after" in str(plan_of(setups[0]))


def test_without_a_time_budget_no_elimination_is_given_up():
    backend = RecordingBackend()
    run = start_run(small_problem(), change=lambda setup: replace(setup, backend=backend))
    assert finish_run(run).status == "optimal" and set(backend.deadlines) == {float("inf")}


def test_an_agent_that_cannot_be_sampled_is_eliminated_until_the_deadline():
    backend = RecordingBackend()

    def unsampled(setup):
        surveys = tuple(work._replace(obstacle="too many rows") for work in setup.surveys)
        return replace(setup, backend=backend, surveys=surveys)

    run = start_run(small_problem(), change=unsampled, budget={"time": 600.0})
    end = run.setup.backend.stop.until
    assert finish_run(run).status == "optimal" and set(backend.deadlines) == {end}


@needs_mpirun
def test_all_ranks_know_which_eliminations_were_given_up(tmp_path):
    result = run_driver(tmp_path, 2, SLOW, small_problem())
    assert [agent["method"] for agent in result["agents"]] == ["exact", "annealing", "annealing", "exact"]
    assert {agent["rank"] for agent in result["agents"]} == {0, 1}
    assert result["bound"] >= result["objective"]


@needs_mpirun
def test_a_combination_is_abandoned_on_all_ranks_when_one_is_out_of_time(tmp_path):
    result = run_driver(tmp_path, 2, ABANDONED, hard_problem(agents=3))
    assert result["status"] == "timeout" and result["cycle"] >= 1 and result["time"] < 600
    assert result["objective"] <= result["bound"] and result["assignment"]


@pytest.mark.parametrize("phase", ["first_tables", "combine", "improve", "outside"])
@pytest.mark.parametrize("bound", ["dual", "none"])  # other bounds may prove the optimum at once
def test_a_timeout_in_any_phase_returns_the_incumbent_and_the_best_bound(phase, bound, monkeypatch):
    def late(*arguments, **more):
        raise OutOfTime("out of time")

    problem = hard_problem(variables=9, domain=7)
    best = solve_with(problem, local={"method": "exact"}).objective
    name = {
        "first_tables": "dmcmc.solving.rank_tables.first_tables",
        "combine": "dmcmc.solving.rank_tables.message_scheme",
        "improve": "dmcmc.anytime.rank_run.improve_agents",
        "outside": "dmcmc.solving.rank_tables.run_outside",
    }
    monkeypatch.setattr(name[phase], late)
    local = {"method": "gibbs", "runs": 1, "samples": 1, "bound": bound}
    result = finish_run(start_run(problem, local=local, budget={"time": 5.0}))
    assert result.status == "timeout" and result.violation == 0
    assert problem.evaluate(result.assignment).objective == result.objective <= best
    assert (result.bound is None) == (bound == "none")
    assert bound == "none" or result.bound >= best
    assert [agent.name for agent in result.agents] == list(problem.agents)
    assert result.trace[0].objective is not None and result.trace[-1].objective == result.objective


@pytest.mark.parametrize(("agents", "reserved"), [(10, 0.001), (1000, 0.1), (10**6, 1.0)])
def test_time_for_assembling_the_result_is_reserved_up_to_a_twentieth_of_the_budget(agents, reserved):
    assert work_deadline(100.0, 20.0, agents) == pytest.approx(120.0 - reserved)


def test_a_run_of_many_variables_builds_no_bit_matrix_of_all_of_them(monkeypatch):
    rows_of_bits, seen = best_order.graph_of_scopes, []

    def graph(flat, offsets, variables, *more):
        seen.append(variables)
        return rows_of_bits(flat, offsets, variables, *more)

    monkeypatch.setattr(best_order, "graph_of_scopes", graph)
    monkeypatch.setattr("dmcmc.inference.orders.tuning.MAX_BITSET_VARIABLES", 50)
    problem = dmcmc.generate("random", agents=40, variables_per_agent=5, domain_size=6, global_density=0.0, seed=1)
    result = dmcmc.solve(problem, timeout=600)
    assert result.status == "optimal" and max(seen, default=0) <= 50


def test_a_timeout_before_the_tables_is_bounded_by_the_largest_entries(monkeypatch):
    def late(*arguments, **more):
        raise OutOfTime("out of time")

    problem = hard_problem(variables=4, domain=3)
    monkeypatch.setattr(rank_tables, "first_tables", late)
    result = finish_run(start_run(problem, budget={"time": 5.0}))
    assert result.bound == sum(factor.table.max() for factor in problem.factors) and result.cycle == 0


@pytest.fixture
def hurried_search(clock, monkeypatch):
    """Let a search for the remaining time begin shortly before the deadline."""
    use_remaining_time = IncumbentSearch.use_remaining_time

    def soon(search):
        clock.skip(search.stop.left - 0.3)
        use_remaining_time(search)

    monkeypatch.setattr(IncumbentSearch, "use_remaining_time", soon)


def test_after_a_lack_of_memory_the_search_uses_the_remaining_time(hurried_search, monkeypatch):
    def full(*arguments, **more):
        raise OutOfMemory("out of memory")

    monkeypatch.setattr(rank_tables, "first_tables", full)
    result = solve_with(hard_problem(), budget={"time": 600}, search="none")
    assert result.status == "timeout" and result.time > 599.9 and result.note == "out of memory: out of memory"
    assert result.objective <= result.bound


def test_even_the_first_combination_is_abandoned_after_the_deadline():
    problem, over = dense_problem(0), Deadline(time.perf_counter() - 10)
    run = start_run(problem, local={"method": "gibbs", "runs": 1, "samples": 1}, budget={"time": 1.0})
    run.first_tables()
    run.setup = run.setup.with_stop(over)
    given_up = run.combine()
    assert isinstance(given_up, OutOfTime)
    assert run.agree(given_up).stop
    result = run.result()
    assert result.status == "timeout" and result.objective is not None and result.bound is not None


def test_a_lack_of_memory_is_an_error_in_the_first_cycle_and_ends_a_later_one():
    problem, sections = dense_problem(0), {"local": {"method": "exact"}, "combine": {"method": "exact"}}

    def tight(run):
        run.setup = replace(run.setup, step_bytes=700)

    run = start_run(problem, **sections)
    run.first_tables()
    tight(run)
    with pytest.raises(ResourceError, match=r"budget\.memory"):
        run.combine()
    run = start_run(problem, **sections)
    run.first_tables()
    run.agree(run.combine())
    tight(run)
    assert run.agree(run.combine()).stop
    result = run.result()
    assert result.status == "optimal" and "out of memory" in result.note and "budget.memory" in result.note


@pytest.mark.parametrize(
    ("memory", "note"), [("400KiB", "sampled: local.method: exact does not fit"), ("100KiB", "out of memory: ")]
)
def test_exact_tables_that_do_not_fit_are_an_error_only_without_a_time_budget(memory, note, hurried_search, clock):
    problem, exact = hard_problem(domain=6), {"local": {"method": "exact"}, "combine": {"method": "exact"}}
    with pytest.raises(ResourceError, match=r"needs .* bytes"):
        solve_with(problem, budget={"memory": memory}, **exact)
    progress = HurriedProgress(clock, "improving")
    result = solve_with(problem, budget={"memory": memory, "time": 600}, progress=progress, search="none", **exact)
    assert result.status == "timeout" and result.violation == 0 and note in result.note
    assert problem.evaluate(result.assignment).objective == result.objective <= result.bound


@pytest.mark.parametrize(
    ("ranks", "kind"), [(0, "sampling"), (0, "bound"), pytest.param(2, "bound", marks=needs_mpirun)]
)
def test_ctrl_c_interrupts_the_work_of_an_agent(tmp_path, ranks, kind):
    result = run_driver(tmp_path, ranks, INTERRUPTED.replace("KIND", kind), hard_problem(agents=2))
    assert result["status"] == "timeout" and result["time"] < 500
    assert result["objective"] <= result["bound"] and result["assignment"]


def shared_only(floats=False):
    """Return agents without hidden variables, all linked."""
    rng = np.random.default_rng(2)
    pairs = [(a, b) for b in range(6) for a in range(b)]
    tables = [rng.random((3, 3)) if floats else rng.integers(0, 50, (3, 3)) for _ in pairs]
    factors = tuple(Factor.of(pair, table) for pair, table in zip(pairs, tables, strict=True))
    return Problem(tuple("uvwxyz"), np.full(6, 3), ("a", "b", "c"), np.repeat(np.arange(3), 2), factors)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("bound", ["none", "dual", "mini-bucket"])
def test_a_run_that_cannot_improve_ends_before_its_deadline(bound, floats, monkeypatch):
    monkeypatch.setattr(tuning, "PATIENCE_FACTOR", 0.03)
    result = solve_with(
        shared_only(floats),
        local={"method": "gibbs", "bound": bound},
        combine={"method": "mini-bucket", "z": 1},
        budget={"time": 10_000.0},
    )
    assert result.status in ("feasible", "optimal") and result.time < 1000
    assert (result.bound is None) == (bound == "none")


def test_a_time_budget_limits_the_size_of_combined_tables():
    problem, sections = dense_problem(0), {"local": {"method": "exact"}}
    best = solve_with(problem, **sections)
    assert best.status == "optimal" and all(agent.z is None for agent in best.agents)
    run = start_run(problem, stop=Deadline(time.perf_counter() + 60), **sections, budget={"time": 1e-5})
    run.first_tables()
    run.agree(run.combine())
    first = run.result()
    assert any(agent.z is not None for agent in first.agents)
    assert first.cycle == 1 and first.objective <= best.objective <= first.bound
    exact = solve_with(problem, **sections, combine={"method": "exact"}, budget={"time": 60.0})
    assert exact.status == "optimal" and all(agent.z is None for agent in exact.agents)
    assert all(agent.z is None for agent in solve_with(problem, **sections).agents)


def test_explaining_the_plan_does_not_count_as_run_time(clock):
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=4, domain_size=6)
    result = solve(problem, Settings(budget=Budget(time=600.0)), explain=lambda setup: clock.skip(1000))
    assert result.status == "optimal" and result.time < 600
