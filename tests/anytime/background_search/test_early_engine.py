"""An engine that takes global constraints as they are searches the problem as given, before it is divided."""

import threading

import numpy as np
import pytest
from support.constraints.engine_problems import utilities_of
from support.runs import presolving_small_problems

import dmcmc
from dmcmc import Problem
from dmcmc.anytime import solve_in_time
from dmcmc.anytime.engines import choose_engine, early_engine
from dmcmc.anytime.engines.choose_engine import EngineStart
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.results.outcome import quality_of
from dmcmc.samplers.cp_sat.solver import available
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.solving.planning.presolve import FirstAnswer

pytestmark = pytest.mark.skipif(not available(), reason="needs ortools")


def meetings():
    """Return five intervals that must not overlap, with utilities; presolve removes values, since two are ordered."""
    build, rng = Problem.build(), np.random.default_rng(3)
    starts = [build.variable(f"s{i}", list(range(8))) for i in range(5)]
    build.no_overlap(starts, [1, 1, 2, 1, 1]).precedence(starts[0], starts[1], 2)
    for name in starts:
        build.factor([name], rng.integers(0, 20, 8))
    return build.problem()


class Engine:
    """An engine that knows the optimum, and records when it starts."""

    max_discarded_seconds = 0.0
    began = threading.Event()
    sizes = ()

    def __init__(self, memory):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self, costs, beat, seconds):
        type(self).sizes = tuple(costs.domains.tolist())
        utilities = utilities_of(meetings())
        self.began.set()
        return SearchProgress(values=np.array(max(utilities, key=utilities.get)), complete=True, ended=True)


@pytest.fixture
def engine(monkeypatch):
    """Let runs start a fake engine; the problem is not divided before it has started."""
    monkeypatch.setattr(choose_engine, "cores", lambda: 2)
    monkeypatch.setattr(choose_engine, "start_of", lambda name, known: EngineStart(Engine, True))
    monkeypatch.setattr(Engine, "began", threading.Event())
    divide = solve_in_time.divide_on_ranks

    def divide_later(*arguments):
        assert Engine.began.wait(200), "the engine has not started"
        return divide(*arguments)

    monkeypatch.setattr(solve_in_time, "divide_on_ranks", divide_later)
    with presolving_small_problems():
        yield Engine


def test_the_engine_starts_on_the_problem_as_given_before_it_is_divided(engine):
    problem = meetings()
    assert presolve(problem, 1 << 30).removed.inconsistent, "the presolved problem has other value indices"
    result = dmcmc.solve(problem, search="cp-sat", method="exact", timeout=600)
    assert result.presolve.inconsistent and engine.sizes == tuple(problem.domains.tolist())
    assert (result.status, result.objective) == ("optimal", max(utilities_of(problem).values()))
    assert [point.found_by for point in result.trace if point.bound == result.objective][:1] == ["cp-sat"]


def test_an_engine_waits_for_the_plan_if_few_factors_are_constraints_or_the_time_is_short(monkeypatch):
    monkeypatch.setattr(choose_engine, "cores", lambda: 2)
    settings = Settings(search="cp-sat", budget=Budget(time=10, memory=1 << 30))
    assert choose_engine.engine_for_given(settings, meetings()) == "cp-sat"
    for changed in (Budget(time=0.1, memory=1 << 30), Budget(memory=1 << 30)):
        assert choose_engine.engine_for_given(Settings(search="cp-sat", budget=changed), meetings()) is None
    other_engine = Settings(search="branch-and-bound", budget=settings.budget)
    assert choose_engine.engine_for_given(other_engine, meetings()) is None
    build = Problem.build()
    names = [build.variable(f"x{i}", 3) for i in range(3)]
    build.factor(names, np.arange(27).reshape(3, 3, 3))
    assert choose_engine.engine_for_given(settings, build.problem()) is None


def test_results_before_the_run_has_an_incumbent_are_delivered_when_it_takes_the_engine_over(engine):
    problem, values, bounds = meetings(), [], []
    settings = Settings(search="cp-sat", budget=Budget(time=600, memory=1 << 30))
    observer = early_engine.SearchObserver(lambda: None, values.append, bounds.append, lambda: float("inf"))
    with early_engine.EarlyEngine(problem, settings, float("inf")) as early:
        early.take_first_answer(None)
        early.search.wait(200)
        assert early.search.complete and not values
        early.hand_over(early_engine.EngineReceiver(observer, lambda: None))
    utilities = utilities_of(problem)
    assert [utilities[tuple(found.tolist())] for found in values] == bounds == [max(utilities.values())]


def test_what_the_engine_has_found_is_delivered_if_the_run_ends_before_it_has_an_incumbent(engine, monkeypatch):
    def out_of_time(*_, **__):
        early.search.wait(200)
        assert early.search.complete
        raise OutOfTime("out of time")

    def first_is_known(self, first):
        nonlocal early
        early = self
        take_first(self, None)

    early, take_first = None, early_engine.EarlyEngine.take_first_answer
    monkeypatch.setattr(early_engine.EarlyEngine, "take_first_answer", first_is_known)
    monkeypatch.setattr(solve_in_time, "begin", out_of_time)
    zeros = np.zeros(meetings().n_variables, dtype=np.int64)
    worst = FirstAnswer(zeros, quality_of(meetings(), zeros), None, (), None)
    monkeypatch.setattr(solve_in_time, "first_answer_on_ranks", lambda *_: worst)
    result = dmcmc.solve(meetings(), search="cp-sat", timeout=600)
    assert result.objective == max(utilities_of(meetings()).values()) and result.trace[-1].objective == result.objective
