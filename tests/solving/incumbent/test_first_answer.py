"""The first answer of a run with a time budget: before presolve and planning, on the problem as given."""

import time
from functools import partial

import numpy as np
import pytest
from support.clock import ExpiresAfterChecks
from support.naive import optimum
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Problem
from dmcmc.anytime import solve_in_time as solve_module
from dmcmc.compilation.components import first_search_of
from dmcmc.compilation.kernel_supply import KernelSupply
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.inference.dpop import division, pseudotree
from dmcmc.inference.dpop.trees import depth_first
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import build_graph
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.orders import best_order as estimate_cost
from dmcmc.inference.presolve.dominance import forbid_dominated, slack_of
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.presolve.working_problem import PresolveLimit
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.mpi.world import World
from dmcmc.results.outcome import judge, quality_of
from dmcmc.samplers.constraint_search.search_model import search_model
from dmcmc.samplers.local_search.local_search import Ascent, ConstraintAscent
from dmcmc.solving.first_answer import find_first_answer
from dmcmc.solving.observe import NoProgress
from dmcmc.solving.planning import presolve as presolve_problem
from dmcmc.solving.planning.divided_problem import divide_problem
from dmcmc.solving.planning.plan import check_time_for_tables, separator_variables
from dmcmc.solving.planning.presolve import OriginalProblem, presolve_if_worthwhile


def sparse_problem(variables, agents, hard=0.0, sense="max", seed=0):
    """Return a ring with chords: tables of 3 values, a share of whose entries is forbidden."""
    rng = np.random.default_rng(seed)
    scopes = [(v, v + 1) for v in range(variables - 1)] + [(v, v + 7) for v in range(0, variables - 7, 3)]
    tables = rng.integers(0, 100, size=(len(scopes), 3, 3)).astype(float)
    tables[rng.random(tables.shape) < hard] = -np.inf if sense == "max" else np.inf
    factors = tuple(Factor.of(scope, table, sense) for scope, table in zip(scopes, tables, strict=True))
    names, owner = tuple(f"x{v}" for v in range(variables)), np.arange(variables) * agents // variables
    return Problem(names, np.full(variables, 3), tuple(f"a{a}" for a in range(agents)), owner, factors, sense=sense)


class Recorder(NoProgress):
    """Progress that keeps the points of the trace and the solutions."""

    def __init__(self):
        self.points, self.solutions = [], []

    def point(self, point):
        self.points.append(point)

    def solution(self, make):
        self.solutions.append(make())


def timed(**sections):
    return settings_of(Document("", {"budget": {"time": 5.0}, **sections}))


def first_answer(problem, progress=None, **sections):
    settings = timed(**sections)
    progress = progress or NoProgress()
    kernels = KernelSupply(World(), settings, progress)
    is_compiled = partial(kernels.is_ready, first_search_of(problem))
    return find_first_answer(problem, settings, NO_DEADLINE, time.perf_counter(), progress, is_compiled)


def test_the_first_answer_comes_before_presolve_division_and_planning(monkeypatch):
    points_before = {}
    points = []

    def observed(name, original):
        def call(*arguments, **keywords):
            points_before.setdefault(name, len(points))
            return original(*arguments, **keywords)

        return call

    for name in ("divide_on_ranks", "begin", "plan"):
        monkeypatch.setattr(solve_module, name, observed(name, getattr(solve_module, name)))
    problem = sparse_problem(60, agents=5)
    result = dmcmc.solve(problem, timeout=0.5, device="cpu", trace=points.append, search="none")
    assert points_before["divide_on_ranks"] == 1 and set(points_before) == {"divide_on_ranks", "begin", "plan"}
    assert result.trace[0] == points[0] and result.trace[0].objective is not None


@pytest.mark.parametrize("error", [OutOfMemory("no room"), OutOfTime("out of time"), MemoryError("no room")])
@pytest.mark.parametrize("step", ["divide_on_ranks", "begin", "plan", "carry_out_in_time"])
def test_the_first_answer_is_delivered_when_a_later_step_ends_for_lack_of_memory_or_time(step, error, monkeypatch):
    def fails(*arguments, **keywords):
        raise error

    monkeypatch.setattr(solve_module, step, fails)
    problem = sparse_problem(60, agents=5)
    result = dmcmc.solve(problem, timeout=0.5, device="cpu", search="none")
    assert result.status == "timeout" and result.objective == problem.evaluate(result.assignment).objective
    assert result.note == (None if isinstance(error, OutOfTime) else "out of memory: no room")
    assert result.bound >= result.objective == result.trace[-1].objective
    with pytest.raises(type(error)):  # nothing is found yet
        monkeypatch.setattr(solve_module, "first_answer_on_ranks", fails)
        dmcmc.solve(problem, timeout=0.5, device="cpu", search="none")


def test_the_division_ends_at_the_deadline_once_there_is_a_first_answer():
    problem, world, memory = sparse_problem(60, agents=5), World(), settings_of(Document("", {}))
    with pytest.raises(OutOfTime):
        divide_problem(problem, memory, world, Deadline(0.0), first_answer(problem))
    assert divide_problem(problem, memory, world, Deadline(0.0)).problem.n_variables


def test_the_arrays_of_constraints_are_not_finished_after_the_deadline(monkeypatch):
    builder = Problem.build()
    names = [builder.variable(f"v{v}", 4) for v in range(4)]
    for _ in range(3):
        builder.all_different(names)
    problem = builder.problem()
    for make in (search_model, build_graph):
        with pytest.raises(OutOfTime):
            make(problem, ExpiresAfterChecks(2))
    monkeypatch.setattr(ConstraintAscent, "search", property(lambda self: search_model(problem, Deadline(0.0))))
    assert first_answer(problem).values.tolist() == [0, 0, 0, 0]  # nothing better is known yet


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sense", ["max", "min"])
def test_the_first_bound_holds_for_the_optimum(seed, sense):
    problem = random_problem(seed, variables=6, agents=2, factors=9, domain=3, sense=sense)
    answer, best = first_answer(problem), optimum(problem)
    if answer.bound is not None and best > -np.inf:
        assert answer.bound >= best if sense == "max" else answer.bound <= -best
    assert problem.evaluate(answer.values).objective == answer.quality.objective
    assert first_answer(problem, local={"bound": "none"}).bound is None


def test_each_point_of_the_first_trace_has_its_solution():
    progress, problem = Recorder(), sparse_problem(12, agents=3)
    answer = first_answer(problem, progress)
    assert tuple(progress.points) == answer.trace and len(progress.solutions) == len(answer.trace) > 0
    assert problem.evaluate(progress.solutions[-1].assignment).objective == answer.trace[-1].objective


def test_an_incomplete_greedy_assignment_is_reported_once_when_it_takes_long(monkeypatch):
    monkeypatch.setattr("dmcmc.samplers.contract.tuning.READS_PER_TASK", 1)
    problem, reported = sparse_problem(20, agents=1), []
    complete = Ascent(problem, 1, NO_DEADLINE).greedy()
    found = Ascent(problem, 1, NO_DEADLINE).greedy(Deadline(time.perf_counter() - 1), reported.append)
    assert np.array_equal(found, complete) and len(reported) == 1
    assert Ascent(problem, 1, NO_DEADLINE).greedy(Deadline(time.perf_counter() + 600), reported.append) is not None
    assert len(reported) == 1


def test_a_first_answer_that_is_better_than_that_of_the_presolved_problem_is_kept():
    problem = Problem(
        ("x", "y"), [3, 2], ("a",), [0, 0], (Factor.of((0,), [5, 4, 0]), Factor.of((0, 1), [[0, 1], [0, 2], [0, 0]]))
    )
    reduction = presolve(problem, 1 << 30, PresolveLimit())
    answer = first_answer(problem)
    given = OriginalProblem(problem, reduction, answer)
    worse = np.zeros(reduction.problem.n_variables, dtype=np.int64)
    outcome = judge(reduction.problem, quality_of(reduction.problem, worse), (), None)
    values, restored = given.restore((worse, outcome), None)
    assert restored.objective == max(answer.quality.objective, problem.evaluate(reduction.restore(worse)).objective)
    assert restored.bound == answer.bound and problem.evaluate(values).objective == restored.objective
    first_values = np.array([1, 0])  # x = 0 would be better
    not_1_optimal = answer._replace(values=first_values, quality=quality_of(problem, first_values))
    outcome = outcome._replace(objective=None)
    climb = Ascent(problem, 1, NO_DEADLINE).climb
    values, restored = OriginalProblem(problem, reduction, not_1_optimal).restore((worse, outcome), None, climb)
    np.testing.assert_array_equal(climb(values), values)


@pytest.mark.parametrize("sense", ["max", "min"])
def test_the_trace_never_gets_worse_with_presolve(sense):
    sign = 1 if sense == "max" else -1
    for seed in range(2):
        problem = sparse_problem(40, 1, hard=0.1, sense=sense, seed=seed)
        result = dmcmc.solve(problem, timeout=0.5, device="cpu", presolve="merge", search="none")
        known = [sign * p.objective for p in result.trace if p.objective is not None]
        bounds = [sign * p.bound for p in result.trace if p.bound is not None]
        assert known == sorted(known) and bounds == sorted(bounds, reverse=True)
        if known and result.objective is not None:
            assert sign * result.objective >= known[-1] and sign * result.bound <= bounds[-1]


def test_large_problems_with_a_time_budget_are_not_estimated_before_presolve(monkeypatch):
    problem = sparse_problem(200, agents=1, hard=0.2)
    settings, asked = timed(), []
    monkeypatch.setattr(presolve_problem, "MAX_BITSET_VARIABLES", 100)
    for module in (presolve_problem, estimate_cost):
        monkeypatch.setattr(module, "joins_at_least", lambda *arguments: asked.append(arguments) or True)
    presolve_if_worthwhile(problem, problem, settings)
    assert not asked
    presolve_if_worthwhile(problem, problem, settings_of(Document("", {})))
    assert len(asked) == 1  # without a time budget the decision is the former one


def test_dividing_makes_no_table_ranges_and_caches_for_agents_without_factors(monkeypatch):
    n, made, original = 500, [], FlatTables.table_range
    factors = tuple(Factor.of((v, v + 1), np.eye(2, dtype=np.int32)) for v in range(n - 1))
    names = tuple(map(str, range(n)))
    problem = Problem(names, np.full(n, 2), names, np.arange(n), factors)
    _ = problem.flat
    monkeypatch.setattr(FlatTables, "table_range", lambda flat, *ends: made.append(ends) or original(flat, *ends))
    divided = division.divide(problem)
    assert len(made) == 1 and not divided.locals[0].facts
    limited = divided.with_order_budget(5.0, NO_DEADLINE)
    assert [local.interface for local in limited.locals] == [(v,) for v in range(n)]
    assert limited.locals[7].order_budget == 5.0 and limited.locals[7].known is divided.locals[7].known


@pytest.mark.parametrize("agents", [40, 12])
def test_the_estimate_of_separators_is_a_tight_lower_bound(agents):
    problem = sparse_problem(120, agents)
    divided = division.divide(problem)
    neighbours = pseudotree.neighbours_of(problem, divided)
    by_degree = sorted(range(agents), key=lambda a: (-len(neighbours[a]), a))
    tree = pseudotree.complete_tree(problem, divided, depth_first(neighbours, by_degree))
    total = sum(map(len, tree.separators))
    assert 0.5 * total <= separator_variables(problem, divided) <= total


def test_tables_that_cannot_be_made_in_time_are_not_planned(monkeypatch):
    problem = sparse_problem(2000, agents=2000)
    monkeypatch.setattr(solve_module, "plan", lambda *arguments: pytest.fail("a plan was made"))
    result = dmcmc.solve(problem, timeout=0.5, device="cpu", search="none")
    assert result.status == "timeout" and result.objective is not None and result.bound is not None
    check_time_for_tables(problem, division.divide(problem), 1, NO_DEADLINE)  # without a clock: always


def test_the_loss_of_dominated_entries_is_found_without_a_loop_over_the_factors(monkeypatch):
    problem, tables = sparse_problem(200, agents=1), []
    monkeypatch.setattr(Factor, "entry", lambda self, values: tables.append(self))
    _ = problem.flat
    slack = slack_of(problem, np.zeros(200, dtype=np.int64))
    chosen = [(factor.table.max(), factor.table[0, 0]) for factor in problem.factors]
    assert slack == pytest.approx(float(sum(largest - entry for largest, entry in chosen))) and not tables
    assert forbid_dominated(problem, slack) is problem


def test_a_problem_without_variables_is_evaluated_after_its_tables_were_flattened():
    problem = Problem((), [], ("a",), [], (Factor.of((), 5),))
    _ = problem.flat
    assert problem.evaluate([]).objective == 5
