"""The incumbent exists from the start, is 1-optimal, and is the result of any early end."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.local_optima import better_by_one
from support.problem_strategies import random_problem
from support.ranks import documents, in_turn, needs_mpirun
from support.runs import (
    begin,
    dense_problem,
    finish_run,
    hard_problem,
    sizes,
    solve_with,
    start_run,
    write_configuration,
)

from dmcmc import Factor, Problem
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.questions import mini_buckets as eliminate_whole
from dmcmc.questions.mini_buckets import solve_single_agent
from dmcmc.results.outcome import quality_of
from dmcmc.samplers.chain_solver import choose_rows
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.solving.agent.bounds import largest_sum
from dmcmc.solving.observe import NoProgress
from dmcmc.solving.planning.divided_problem import divide_problem

METHODS = ["auto", "exact", "gibbs", "annealing"]


def values_of(problem, result):
    return problem.values_of(result.assignment)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), method=st.sampled_from(METHODS), seconds=st.sampled_from([None, 0.001, 0.05]))
def test_no_answer_has_a_better_neighbour(seed, method, seconds):
    problem = random_problem(seed, variables=7, agents=3, domain=3, factors=12, hard=0.2)
    local = {"method": method, "runs": 1, "samples": 2}
    result = solve_with(problem, local=local, budget={"time": seconds} if seconds else {})
    if result.assignment is not None:
        assert not better_by_one(problem, values_of(problem, result))
        assert result.violation == problem.evaluate(result.assignment).violation
        assert result.objective in (None, problem.evaluate(result.assignment).objective)
    assert result.trace and all(point.time <= result.time for point in result.trace)


@pytest.mark.parametrize("z", [2, 3])
def test_answers_decoded_from_mini_buckets_are_1_optimal(z):
    problem = dense_problem(0)
    result = solve_with(problem, local={"method": "exact"}, combine={"method": "mini-bucket", "z": z})
    assert not better_by_one(problem, values_of(problem, result))


def solve_whole_problem(problem, **sections):
    alone = Problem(problem.variables, problem.domains, ("me",), np.zeros_like(problem.owner), problem.factors)
    config = settings_of(Document("", {"combine": {"method": "mini-bucket", "z": 2}} | sections))
    return alone, solve_single_agent(alone, config)


@pytest.mark.parametrize("budget", [{}, {"time": 0.3}])
def test_mini_bucket_answers_of_a_whole_problem_are_1_optimal(budget):
    problem, result = solve_whole_problem(dense_problem(0), budget=budget)
    assert not better_by_one(problem, values_of(problem, result))
    assert result.objective <= result.bound and result.trace[-1].objective == result.objective


def test_mini_buckets_of_a_whole_problem_return_the_incumbent_after_the_deadline(monkeypatch):
    def late(*arguments):
        raise OutOfTime("out of time")

    monkeypatch.setattr(eliminate_whole, "eliminate_within", late)
    problem, result = solve_whole_problem(dense_problem(0), budget={"time": 5.0})
    assert result.status == "timeout" and result.objective <= result.bound
    assert not better_by_one(problem, values_of(problem, result))


def test_the_first_point_of_the_trace_comes_before_anything_is_planned():
    problem, points = hard_problem(), []
    config = settings_of(Document("", {"budget": {"time": 5.0}}))

    class PointRecorder(NoProgress):
        def point(self, point):
            points.append(point)

    search = begin(divide_problem(problem, config, World()), World(), Deadline(), time.perf_counter(), PointRecorder())
    assert [(p.objective, p.bound) for p in points] == [(problem.evaluate(search.best).objective, None)]
    assert not better_by_one(problem, search.best)


def test_compilation_moves_the_clock_but_not_the_trace():
    config, now = settings_of(Document("", {"budget": {"time": 5.0}})), time.perf_counter()
    search = begin(divide_problem(hard_problem(), config, World()), World(), Deadline(now + 5), now, NoProgress())
    before = list(search.incumbent.trace)
    stop = search.delay(100.0)
    assert stop.until == now + 105 == search.incumbent.deadline and search.incumbent.start == now + 100
    assert search.incumbent.trace == before


def test_a_gap_that_first_bounds_prove_needs_no_combination():
    result = solve_with(hard_problem(), local={"method": "gibbs"}, budget={"time": 600.0, "gap": 3.0})
    assert result.cycle == 0 and result.status == "feasible" and result.gap <= 3.0


def test_the_first_sampled_row_is_that_of_the_incumbent():
    problem = random_problem(4, variables=7, agents=2, domain=4, factors=12)
    best = np.array([3, 2, 1, 0, 3, 2, 1])
    sampling = Sampling(choose_arithmetic(problem.factors), runs=1, samples=5, incumbent=best)
    for local in divide(problem).locals:
        rows = choose_rows(local, 5, sampling)
        assert rows[0].tolist() == best[list(local.interface)].tolist() and len({*map(tuple, rows.tolist())}) == len(
            rows
        )


@pytest.mark.parametrize("table_types", [[np.int32], [np.int64], [np.float64], [np.int32, np.float64]])
def test_flat_tables_and_single_factors_give_the_same_evaluation(table_types):
    rng, hard = np.random.default_rng(0), -np.inf
    tables = [rng.integers(-9, 9, (3, 3)).astype(float) for _ in range(4)]
    tables[0][1, 1] = hard
    table_types = [table_types[i % len(table_types)] for i in range(4)]
    scales = [1 if k == np.int32 else 2**40 if k == np.int64 else 0.5 for k in table_types]
    factors = [
        Factor.of((i, i + 1), table * scale) for i, (table, scale) in enumerate(zip(tables, scales, strict=True))
    ]
    problem = Problem(tuple("vwxyz"), np.full(5, 3), ("a",), np.zeros(5, int), (*factors, Factor.of((), 7)))
    for values in rng.integers(0, 3, (20, 5)):
        before = quality_of(problem, values)
        flat = Problem(problem.variables, problem.domains, ("a",), problem.owner, problem.factors)
        assert flat.flat.tables == 5
        after = quality_of(flat, values)
        assert before == after and type(before.objective) is type(after.objective)
        assert before.negated_violation == -flat.evaluate(values).violation and before.utility == flat.utility_inside(
            values
        )


def test_the_largest_sum_is_infeasible_if_a_factor_is():
    factors = [Factor.of((0,), [1, 2]), Factor.of((1,), [-np.inf, -np.inf])]
    arithmetic = choose_arithmetic(factors)
    assert largest_sum(factors[:1], arithmetic) == 2 and largest_sum(factors, arithmetic) == arithmetic.lowest


@needs_mpirun
def test_the_incumbent_is_the_same_on_any_number_of_ranks(tmp_path):
    problem, alone, commands = hard_problem(agents=3, variables=6, domain=4), [], []
    for method in ("gibbs", "exact"):
        sections = {"local": {"method": method, "runs": 1, "samples": 2}, "combine": {"method": "mini-bucket", "z": 1}}
        alone.append(solve_with(problem, **sections))
        (tmp_path / method).mkdir()
        command = ["run", write_configuration(tmp_path / method, problem, **sections), "--json"]
        commands += [command, [*command, "--timeout", "0.3"]]
    found = documents(in_turn(2, *commands).stdout)
    for one, ranks, timed in zip(alone, found[::2], found[1::2], strict=True):
        points = [(p.objective, p.bound) for p in one.trace]
        assert [(p["objective"], p["bound"]) for p in ranks["trace"]] == points
        assert ranks["assignment"] == one.assignment
        assert not better_by_one(problem, problem.values_of(timed["assignment"]))


def test_a_run_that_ends_before_its_first_cycle_reports_its_agents_tables(monkeypatch):
    run = start_run(hard_problem(variables=6, domain=4), local={"method": "gibbs"}, budget={"time": 5.0})
    monkeypatch.setattr(
        "dmcmc.solving.rank_tables.message_scheme", lambda *arguments: (_ for _ in ()).throw(OutOfTime("late"))
    )
    result = finish_run(run)
    assert result.status == "timeout" and all(agent.method == "gibbs" and agent.updates for agent in result.agents)


def test_a_background_search_reports_at_once_and_ends_with_the_foreground_work(monkeypatch):
    """Better assignments are recorded at once with their improver, and a foreground error ends the search."""
    problem = random_problem(6, variables=40, agents=8, factors=90, domain=6, hard=0.0)
    monkeypatch.setattr("dmcmc.anytime.local_search.sampler_tuning", sizes(SLICE_SECONDS=500.0))
    settings_ = settings_of(Document("", {"budget": {"time": 600}}))
    parts, points = divide_problem(problem, settings_, World()), []
    progress = SimpleNamespace(point=points.append, solution=lambda make: None)
    search = begin(parts, World(), Deadline(time.perf_counter() + 600), time.perf_counter(), progress)
    search.incumbent.assignment_source = "sampling"
    with pytest.raises(OutOfTime), search.in_background():
        before, worth = search._search.stop, search.quality
        until = time.perf_counter() + 200
        while len(points) < 2 and time.perf_counter() < until:
            time.sleep(0.01)
        ended = time.perf_counter()
        raise OutOfTime("out of time")
    assert time.perf_counter() - ended < 100  # of the 500 seconds of its slice
    assert [point.found_by for point in points] == ["local search"] * len(points) and len(points) > 1
    assert search.incumbent.quality.is_better_than(worth)
    assert search._search.stop.cancellation is not before.cancellation
    with search.in_background(wanted=False):
        assert search._search.stop.cancellation is not before.cancellation


def test_an_unwanted_background_search_runs_once_for_the_brief_seconds(monkeypatch):
    problem, turns = random_problem(6, variables=4, agents=2, factors=6, domain=3, hard=0.0), []
    parts = divide_problem(problem, settings_of(Document("", {"budget": {"time": 60}})), World())
    progress = SimpleNamespace(point=lambda point: None, solution=lambda make: None)
    search = begin(parts, World(), Deadline(time.perf_counter() + 60), time.perf_counter(), progress)
    monkeypatch.setattr(LocalSearch, "improve", lambda _, best, seconds, *rest: turns.append(seconds) or best)
    with search.in_background(wanted=False, brief_seconds=0.5):
        end = time.perf_counter() + 60
        while len(turns) < 2 and time.perf_counter() < end:
            time.sleep(0.01)
    assert turns == [0.0, 0.5]


def test_an_unsuccessful_background_search_pauses_between_growing_slices(monkeypatch):
    problem = random_problem(6, variables=4, agents=2, factors=6, domain=3, hard=0.0)
    parts = divide_problem(problem, settings_of(Document("", {"budget": {"time": 60}})), World())
    end = time.perf_counter() + 60
    search = begin(
        parts,
        World(),
        Deadline(end),
        time.perf_counter(),
        SimpleNamespace(point=lambda point: None, solution=lambda make: None),
    )
    turns, stop = [], search._search.stop

    def improve(local_search, best, seconds, sweeps, found):
        local_search.chains.rounds += 1
        turns.append(seconds)
        return best

    monkeypatch.setattr("dmcmc.anytime.local_search.sampler_tuning", sizes(SLICE_SECONDS=0.02, CHECK_SECONDS=0.0))
    monkeypatch.setattr(LocalSearch, "improve", improve)
    with search.in_background():
        while len(turns) < 4 and time.perf_counter() < end:
            time.sleep(0.01)
    assert turns[:4] == pytest.approx([0.02, 0.02, 0.04, 0.08]) and search._search.stop is stop
