"""Anytime runs: valid bounds at any time, pruned rows, and ends by time, gap and Ctrl-C."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support import soundness
from support.problem_strategies import random_problem
from support.ranks import needs_mpirun, start
from support.runs import (
    HurriedProgress,
    dense_problem,
    finish_run,
    hard_problem,
    solve_with,
    start_run,
    write_configuration,
)

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.director import Director
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.scheduler.proposal import Allocation, RankReport
from dmcmc.anytime.scheduler.scheduler import Scheduler, SchedulingState
from dmcmc.config.settings import Settings
from dmcmc.formats import native
from dmcmc.inference.bounds.branch_and_bound.row_search import next_above
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.results.result import RECOMBINATION
from dmcmc.samplers.chain_solver import choose_rows
from dmcmc.samplers.contract.protocol import Sampling

ROOT = Path(__file__).resolve().parents[2]

INTERRUPTED = """
import os, signal, sys
from dmcmc.formats import native
from dmcmc.mpi.world import connect
from dmcmc.solving.observe import NoProgress
from dmcmc.anytime.solve import solve
from dmcmc.config.settings import Budget, Local, Settings

class Interrupting(NoProgress):
    def stage(self, title, total=None):
        if title.startswith("improving"):
            os.kill(os.getpid(), signal.SIGINT)

config = Settings(local=Local(method="gibbs"), budget=Budget(time=600.0))
result = solve(native.load(sys.argv[1]), config, connect(), Interrupting())
if result is not None:
    print(result.to_json())
"""

WITHOUT_SLICES = """
import sys
from dmcmc.cli.main import main
from dmcmc.solving.planning import combination_plan

combination_plan.choose_slicing = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def without_slices(monkeypatch):
    """Let ``combine.method: auto`` use mini-buckets in place of slices."""
    monkeypatch.setattr("dmcmc.solving.planning.combination_plan.choose_slicing", lambda *_: None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", [80_000, 1_600_000])
def test_pruning_rows_proves_the_optimum_if_dense_tables_do_not_fit(seed, memory, without_slices):
    problem = dense_problem(seed)
    best = solve_with(problem, local={"method": "exact"}).objective
    budget = {"memory": memory}
    first = solve_with(
        problem, local={"method": "exact"}, combine={"method": "mini-bucket"}, budget=budget | {"gap": 10.0}
    )
    assert first.cycle <= 1 and first.extra_msg_count == 0 and first.bound >= best
    result = solve_with(problem, local={"method": "exact"}, budget=budget)
    assert result.cycle > 1 and result.status == "optimal" and result.objective == result.bound == best
    assert next(point.bound for point in result.trace if point.bound is not None) > best
    # one UTIL and one VALUE message per tree edge for the answer; the messages of other cycles are counted separately
    assert result.msg_count == 2 * 3
    assert result.extra_msg_count == (result.cycle - 1) * 3 * 3
    assert result.extra_msg_count == sum(agent.extra_msg_count for agent in result.agents)
    assert all(agent.z is None for agent in result.agents)  # in the end all combinations are exact


def test_objectives_and_bounds_of_the_trace_improve_until_the_end():
    local = {"method": "gibbs", "runs": 1, "samples": 1}
    run = start_run(hard_problem(), local=local, budget={"time": 600.0})  # cancelled as soon as the bound has moved

    def until_it_moves(directive):
        known_bounds = [point.bound for point in run.incumbent.trace if point.bound is not None]
        if known_bounds and known_bounds[-1] < known_bounds[0]:
            run.setup.backend.stop.cancellation.request()
        return directive

    result = finish_run(run, until_it_moves)
    assert result.status == "timeout" and result.objective <= result.bound
    times, objectives, bounds = ([getattr(p, name) for p in result.trace] for name in ("time", "objective", "bound"))
    assert len(times) > 1 and times == sorted(times)
    known_bounds = [bound for bound in bounds if bound is not None]
    assert bounds[: -len(known_bounds)] == [None] * (len(bounds) - len(known_bounds))
    assert objectives == sorted(objectives) and known_bounds == sorted(known_bounds, reverse=True)
    assert (result.objective, result.bound) == (objectives[-1], bounds[-1])
    assert known_bounds[-1] < known_bounds[0]
    improvers = {improver for point in result.trace for improver in point.found_by.split(", ")}
    assert "local search" in improvers
    assert improvers - {"prune", "local search"} <= {done.improver for done in result.work}
    shares = [point.bound_shares for point in result.trace if point.bound_shares]
    assert shares and all(sum(part.values()) == pytest.approx(1) for part in shares)
    assert all(", ".join(point.bound_shares) == point.found_by for point in result.trace if point.bound_shares)


def test_rows_are_pruned_only_if_there_is_time_for_it():
    report = RankReport(relaxed=True, pruned=True)
    scheduler = Scheduler([0], registry.declared(registry.create(timed=False)))
    incumbent = SimpleNamespace(feasible=True, settings=Settings(), combination_seconds=1.0)
    director = Director(incumbent, scheduler)
    states = [SchedulingState(1.0, left) for left in (float("inf"), 5.0, 4.9, 0.0)]
    assert [director._should_prune([report], (), state) for state in states] == [
        True,
        True,
        False,
        False,
    ]
    recombination = (Allocation(RECOMBINATION, None, 1.0),)
    assert not director._should_prune([report], recombination, SchedulingState(1.0, 60.0))
    assert not director._should_prune([report._replace(pruned=False)], (), SchedulingState(1.0, 60.0))
    assert not director._should_prune([report], (), SchedulingState(1.0, 60.0, lag=2.0))


def test_a_timed_out_run_has_used_its_time_budget():
    problem = dmcmc.generate("random-network", nodes=40, density=0.2, tightness=0.2, seed=1)
    result = dmcmc.solve(problem, timeout=1, search="none", device="cpu")
    assert result.status == "timeout" and result.time >= 0.95


def test_a_run_ends_at_its_gap():
    result = solve_with(hard_problem(), local={"method": "gibbs"}, budget={"time": 600.0, "gap": 0.5})
    assert result.status == "feasible" and result.gap <= 0.5 and result.time < 600


def test_a_run_may_time_out_before_there_is_a_bound():
    result = solve_with(hard_problem(), local={"method": "gibbs", "bound": "none"}, budget={"time": 0.001})
    assert result.status == "timeout" and result.bound is None and result.objective is not None


@pytest.mark.parametrize("ranks", [0, pytest.param(3, marks=needs_mpirun)])
def test_ctrl_c_returns_the_best_answer_so_far_and_its_bound(tmp_path, ranks):
    native.save(hard_problem(agents=3), tmp_path / "problem.npz")
    (tmp_path / "driver.py").write_text(INTERRUPTED)
    done = start(ranks, str(tmp_path / "driver.py"), str(tmp_path / "problem.npz"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "timeout" and result["objective"] <= result["bound"] and result["assignment"]
    assert result["time"] < 600


def test_a_second_ctrl_c_ends_the_run():
    def impatient(run, directive):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        finish_run(start_run(hard_problem(), local={"method": "gibbs"}, budget={"time": 600}), improve=impatient)


@needs_mpirun
def test_the_time_budget_holds_on_all_ranks(tmp_path):
    config = write_configuration(tmp_path, hard_problem(agents=3), local={"method": "gibbs"}, budget={"time": 0.5})
    done = start(3, "-m", "dmcmc", "run", config, "--json")
    result = json.loads(done.stdout)
    assert result["status"] == "timeout" and result["bound"] is not None and len(result["trace"]) > 0


@needs_mpirun
def test_cycles_with_pruned_rows_are_the_same_on_any_number_of_ranks(tmp_path, without_slices):
    problem, sections = dense_problem(1), {"local": {"method": "exact"}, "budget": {"memory": 80_000}}
    config = write_configuration(tmp_path, problem, **sections)
    alone = json.loads(solve_with(problem, **sections).to_json())
    (tmp_path / "driver.py").write_text(WITHOUT_SLICES)
    ranks = json.loads(start(3, str(tmp_path / "driver.py"), "run", config, "--json").stdout)
    points = [[(p["objective"], p["bound"]) for p in result["trace"]] for result in (alone, ranks)]
    assert points[0] == points[1] and alone["cycle"] > 1
    for name in ("objective", "bound", "assignment", "cycle", "msg_count", "extra_msg_count", "extra_msg_size"):
        assert alone[name] == ranks[name]


def large_interface(shared=11, domain=24, seed=0):
    """Return two agents, each a chain, linked along their whole length: 24^11 rows each."""
    rng = np.random.default_rng(seed)
    size = shared + 2
    owner, n = np.repeat([0, 1], size), 2 * size
    pairs = [(a + i, a + i + 1) for a in (0, size) for i in range(size - 1)] + [(i, size + i) for i in range(shared)]
    factors = tuple(Factor.of(pair, rng.integers(0, 100, (domain, domain))) for pair in pairs)
    return Problem(tuple(f"x{v}" for v in range(n)), np.full(n, domain), ("ann", "bob"), owner, factors)


@pytest.mark.parametrize("timed", [False, True])
def test_a_large_interface_has_some_rows_sampled_and_all_rows_bounded(timed, clock):
    problem = large_interface()
    best = soundness.optimum(problem)
    local = {"method": "gibbs", "rows": 40, "runs": 2, "samples": 20}
    budget = {"memory": "64MiB"} | ({"time": 600} if timed else {})
    result = solve_with(
        problem, local=local, budget=budget, progress=HurriedProgress(clock, "improving"), search="none"
    )
    assert [agent.rows for agent in result.agents] == [24**11] * 2
    assert result.objective <= best <= result.bound
    assert result.gap < 0.5


def test_sampled_rows_are_distinct_boundary_assignments():
    problem = random_problem(4, variables=7, agents=2, domain=4, factors=12, hard=0.2)
    settings = Sampling(choose_arithmetic(problem.factors), runs=1, samples=5)
    for local in divide(problem).locals:
        for count in (1, 3, 10, 1000):
            rows = choose_rows(local, count, settings)
            assert rows.shape == (min(count, len(rows)), len(local.interface)) and len(rows) >= min(
                count, local.rows, 1
            )
            assert len({tuple(row) for row in rows.tolist()}) == len(rows)
            assert (rows >= 0).all() and (rows < local.interface_shape).all()


def test_the_requested_number_of_rows_is_sampled():
    table = np.zeros((5, 5, 2))
    table[2, 3] = 1000  # the state in which every chain ends
    domains = np.array([5, 5, 2])
    local = LocalProblem(0, (0, 1), (2,), (Factor.of((0, 1, 2), table),), domains)
    rows = choose_rows(local, 6, Sampling(choose_arithmetic(local.factors)))
    assert len(rows) == 6 and [2, 3] in rows.tolist()


def test_integer_utilities_exceed_a_cutoff_from_the_next_integer_on():
    assert next_above(np.array([3.0, 3.4, -0.5, np.inf])).tolist() == [4, 4, 0, np.inf]
    assert next_above(np.array([3, -7, 2**63 - 1])).tolist() == [4, -6, 2**63 - 1]
