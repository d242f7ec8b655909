"""Kernels are compiled before the clock starts, once per machine, by one rank per node."""

import time
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from support.problem_strategies import random_problem
from support.runs import dense_problem, start_run

import dmcmc
from dmcmc.config.settings import Budget, Combine, Local, Settings
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.storage import cache_folders
from dmcmc.mpi.world import World
from dmcmc.run import background_engine, initial_tables
from dmcmc.run import solve as solving
from dmcmc.run.compilation import compile_ahead, once_per_node
from dmcmc.run.compilation.compile_ahead import compile_agent_work, compile_local_search
from dmcmc.run.compilation.tiny_problems import tiny_problem
from dmcmc.run.monitoring.progress import NoProgress
from dmcmc.run.planning.combination_plan import arithmetic_for
from dmcmc.run.planning.divided_problem import divide_problem, soon_proven
from dmcmc.run.planning.plan import prepare
from dmcmc.samplers.blocks import neighbourhood_search as search


class StageRecorder(NoProgress):
    def __init__(self):
        self.titles = []

    def stage(self, title, total=None):
        self.titles.append(title)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Folder of the marker files; compiled kernels stay where they are, so that they are not compiled again."""
    monkeypatch.setattr(cache_folders, "kernel_folder", lambda: tmp_path)
    return tmp_path


def run_task(world=None, what="a run", fail=False):
    """Return how often the task's work was done, and the stages that a user saw."""
    done, stages = [], StageRecorder()

    def work():
        done.append(1)
        if fail:
            raise ValueError("broken")

    once_per_node.compile_once(what, work, world or World(), stages)
    return len(done), stages.titles


def test_compiled_kernels_are_not_compiled_again(folder):
    assert run_task() == (1, [once_per_node._TITLE])
    assert run_task() == (0, [])
    assert run_task(what="another run") == (1, [once_per_node._TITLE])


def test_progress_names_the_purpose_and_the_number_of_kernels(monkeypatch):
    monkeypatch.setattr(once_per_node, "_REPORT_INTERVAL", 0.0)
    stages = StageRecorder()
    title, about = once_per_node._title("search int32 True")
    report = once_per_node._progress_reporter(stages, title, about)
    report(1)
    report(about + 1)
    start = f"{once_per_node._TITLE}: the first assignment, "
    assert stages.titles == [f"{start}1 of about {about}", f"{start}{about + 1} so far"]


def test_a_marker_is_valid_for_the_compiled_sources_only(folder, monkeypatch):
    assert run_task()[0] == 1
    monkeypatch.setattr(cache_folders, "sources_digest", lambda: "other")
    assert run_task()[0] == 1


def test_planning_kernels_are_loaded_once_per_process(monkeypatch):
    done = []
    monkeypatch.setattr(once_per_node, "compile_once", lambda *rest: None)
    monkeypatch.setattr(once_per_node, "_LOADED_TASKS", set())
    monkeypatch.setattr(compile_ahead, "prepare", lambda *rest: done.append(1))
    for _ in range(2):
        compile_ahead.compile_planning(tiny_problem(np.dtype(np.int32)), Settings(), World(), StageRecorder())
    assert len(done) == (0 if numba.config.DISABLE_JIT else 1)


@pytest.mark.parametrize(
    ("agents", "each", "searched"),
    [(3, 5, [False, False]), (1, 13, [True, True]), (3, 4, [False, False]), (12, 11, [False, True])],
)
def test_order_search_is_compiled_if_orders_are_searched_at_once(agents, each, searched):
    problem = dmcmc.generate("random", agents=agents, variables_per_agent=each, domain_size=2)
    assert [compile_ahead._searches_orders(problem, timed) for timed in (False, True)] == searched


def test_nothing_else_is_compiled_if_tables_soon_prove_the_optimum(monkeypatch):
    """The kernels of chains, rates and orders are compiled only when they are needed."""
    compiled = []
    for name in ("measure_rates", "compile_local_search", "compile_orders"):
        monkeypatch.setattr(solving, name, lambda *rest, name=name: compiled.append(name) or 0.0)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=4, local_density=0.5)
    assert dmcmc.solve(problem, timeout=600, device="cpu", search="none").status == "optimal"
    assert compiled == []


@pytest.mark.parametrize(
    ("variables", "local", "budget", "soon"),
    [
        (6, {}, None, True),
        (6, {}, 20.0, True),
        (6, {}, 0.01, False),
        (40, {}, 20.0, False),
        (6, {"method": "gibbs"}, 20.0, False),
        (6, {"cells": 9}, 20.0, False),
    ],
)
def test_soon_proven_recognises_cheap_tables(variables, local, budget, soon):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=variables, domain_size=4, local_density=0.8)
    settings = Settings(local=Local(**local), budget=Budget(time=budget))
    assert soon_proven(divide_problem(problem, settings, World())) == soon


@pytest.mark.parametrize(("density", "soon"), [(0.1, True), (0.9, False)])
def test_single_variable_agents_are_soon_proven_if_their_combination_is_cheap(density, soon):
    problem = dmcmc.generate("random", agents=20, variables_per_agent=1, domain_size=5, global_density=density, seed=1)
    settings = Settings(budget=Budget(time=5.0))
    assert soon_proven(divide_problem(problem, settings, World())) == soon


def test_a_late_compilation_of_the_search_stops_the_clock():
    search = start_run(dense_problem(1), budget={"time": 60.0}).search
    until, start = search.stop.until, search.incumbent.start
    search.compile_when_needed = lambda: 5.0
    search.improve(0.01)
    search.improve(0.01)
    assert (search.stop.until, search.incumbent.start) == (until + 5.0, start + 5.0)
    assert search.compile_when_needed is None


def test_the_external_engine_starts_before_table_kernels_are_compiled(monkeypatch):
    """If the engine proves the optimum at once, no table kernels are needed."""
    compiled, problem = [], dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3)
    expected = dmcmc.solve(problem, device="cpu").objective
    monkeypatch.setattr(solving, "will_prove", lambda setup: False)
    monkeypatch.setattr(solving, "solving_is_compiled", lambda *rest: False)
    monkeypatch.setattr(solving, "compile_agent_work", lambda *rest: compiled.append(rest) or 0.0)
    monkeypatch.setattr(background_engine, "_TRIAL_SECONDS", 300.0)  # ends with the proof
    result = dmcmc.solve(problem, timeout=6000.0, device="cpu", search="branch-and-bound")
    assert (result.status, result.objective, compiled) == ("optimal", expected, [])


@pytest.mark.parametrize("proven", [False, True])
def test_no_agent_is_sampled_if_the_optimum_was_proven_in_the_meantime(proven, monkeypatch):
    asked = []

    def sample(*rest):
        asked.append(rest)
        raise OutOfTime("out of time")

    monkeypatch.setattr(initial_tables, "_sampled_agents", sample)
    monkeypatch.setattr("dmcmc.run.planning.setup._NEVER_GIVEN_UP_PART", 0.0)
    run = start_run(dense_problem(1), local={"method": "exact"}, budget={"time": 600.0}, search="none")
    assert set(run.setup.methods) == {"exact"}, run.setup.choices
    monkeypatch.setattr(run, "_goal_reached", lambda: proven)
    run.setup.backend.stop.cancellation.request()
    with pytest.raises(OutOfTime):
        run.first_tables()
    assert bool(asked) != proven


def test_cheap_agents_stay_exact_if_planning_took_all_the_time(monkeypatch):
    """No other kernels are compiled for them."""
    problem = dmcmc.generate("random", agents=6, variables_per_agent=1, domain_size=3, global_density=0.8)
    run = start_run(problem, budget={"time": 600.0}, search="none")
    run.setup = run.setup.with_stop(Deadline(time.perf_counter() - 0.01))
    monkeypatch.setattr(initial_tables, "_FIRST_ANSWER_GRACE", 30.0)
    monkeypatch.setattr(initial_tables, "_sampled", None)
    run.first_tables()
    assert run.setup.never_given_up and set(run.setup.methods) == {"exact"}


def test_a_failed_compilation_is_logged_and_repeated_without_an_error(folder, caplog):
    assert run_task(fail=True)[0] == 1
    (line,) = caplog.messages
    assert line.startswith("dmcmc: not all kernels are compiled") and line.endswith("ValueError: broken")
    assert list(folder.iterdir()) == []
    assert run_task()[0] == 1


def test_without_a_cache_folder_every_process_compiles(monkeypatch):
    monkeypatch.setattr(cache_folders, "kernel_folder", lambda: None)
    assert [run_task()[0] for _ in range(2)] == [1, 1]


def test_kernels_that_could_not_be_stored_are_compiled_again(folder, monkeypatch):
    unsaved = iter(range(9))
    monkeypatch.setattr(once_per_node, "unsaved_kernels", lambda: next(unsaved))
    assert [run_task()[0] for _ in range(2)] == [1, 1]
    assert list(folder.iterdir()) == []


def test_a_folder_that_was_deleted_is_no_error(folder, caplog, monkeypatch):
    monkeypatch.setattr(cache_folders, "_REPORTED", set())
    folder.rmdir()
    assert [run_task()[0] for _ in range(2)] == [1, 1]
    (line,) = caplog.messages
    assert line.startswith("dmcmc: compiled kernels cannot be stored in")


def test_one_rank_of_a_node_compiles_and_all_wait_for_it(folder):
    waited = []

    def world(local_rank, missing):
        return SimpleNamespace(
            local_rank=local_rank, allgather=lambda own: [own, missing], wait=lambda: waited.append(local_rank)
        )

    assert run_task(world(1, True)) == (0, [once_per_node._TITLE])
    assert run_task(world(0, False)) == (1, [once_per_node._TITLE])
    assert run_task(world(0, True)) == (0, [once_per_node._TITLE])  # another node compiles
    assert run_task(world(1, False)) == (0, [])
    assert waited == [1, 0, 0]


@pytest.mark.parametrize(
    ("numbers", "tables"),
    [
        ("int32", ["int32"]),
        ("int64", ["int32"]),
        ("int64", ["int32", "int64"]),
        ("float64", ["int64"]),
        ("float64", ["float64"]),
        ("float64", ["float64", "int32"]),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_the_tiny_problem_has_the_table_types_and_the_arithmetic_of_the_run(numbers, tables, wide):
    problem = tiny_problem(np.dtype(numbers), [np.dtype(t) for t in tables], wide)
    assert arithmetic_for(problem, Combine()).dtype.name == numbers
    assert {f.table.dtype.name for f in problem.factors[:-1]} == set(tables)
    assert (problem.domains.max() > 256) == wide and problem.forbidden_entries() == 1


def test_the_clock_starts_after_compilation(monkeypatch, clock):
    compiled = []

    def once(what, *rest):
        compiled.append(what)
        clock.skip(1000)

    monkeypatch.setattr(once_per_node, "compile_once", once)
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    result = dmcmc.solve(problem, timeout=600)
    assert [what.split()[0] for what in compiled] == ["planning", "search", "search", "solving"]
    assert result.status == "optimal" and result.time < 600
    assert all(0 <= point.time <= result.time for point in result.trace)
    result = dmcmc.solve(problem)  # proven by its tables, so there is no background search
    assert [what.split()[0] for what in compiled[4:]] == ["planning", "search", "solving"]
    assert result.time < 600


@pytest.mark.parametrize(("budget", "split"), [(1e-5, True), (1e5, False)])
def test_mini_buckets_are_compiled_if_there_is_no_time_for_exact_tables(folder, budget, split):
    """The memory limit does not matter."""
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    setup, tried = prepare(dense_problem(0), settings, World()), []
    compile_agent_work(setup, World(), StageRecorder(), lambda problem, settings: tried.append(settings.combine), False)
    assert any(combine.method == "mini-bucket" and combine.moment_matching for combine in tried) == split


def test_a_second_run_compiles_nothing(folder, monkeypatch):
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    stages = StageRecorder()
    dmcmc.solve(problem, method="gibbs", timeout=1, progress=stages)
    assert sum(title.startswith(once_per_node._TITLE) for title in stages.titles) >= 4
    again = StageRecorder()
    dmcmc.solve(problem, method="gibbs", timeout=1, progress=again)
    assert not any(title.startswith(once_per_node._TITLE) for title in again.titles)


@pytest.mark.parametrize(("bound", "compiled"), [("mini-bucket", ["int64"]), ("dual", [])])
def test_moment_matching_of_mini_bucket_bounds_is_compiled(bound, compiled, folder, monkeypatch):
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    settings = Settings(local=Local(method="gibbs", bound=bound), budget=Budget(time=1.0))
    setup, asked = prepare(problem, settings, World()), []
    monkeypatch.setattr(compile_ahead, "compile_matching", lambda dtype: asked.append(dtype.name))
    compile_agent_work(setup, World(), StageRecorder(), lambda *work: None, False)
    assert asked == compiled


def test_block_moves_anneal_before_the_clock_starts(monkeypatch):
    """The kernels that block moves call first are compiled before the clock starts."""
    problem, asked = random_problem(3, variables=6, agents=3, domain=3, factors=9), []
    monkeypatch.setattr(search, "typical_spread", lambda graph, values: asked.append(1) or 1.0)
    monkeypatch.setattr(once_per_node, "compile_and_load", lambda what, work, *rest: work())
    compile_local_search(divide_problem(problem, Settings(), World()), World(), StageRecorder())
    assert asked


@pytest.mark.parametrize(("budget", "methods"), [(1e-6, ["exact", "annealing"]), (1e6, ["exact"]), (None, ["exact"])])
def test_alternatives_of_exact_agents_have_a_mini_bucket_bound(budget, methods):
    """An agent with a single row has a mini-bucket bound, too, so those kernels are needed."""
    problem = dmcmc.generate("random", agents=1, variables_per_agent=5, domain_size=2)
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    setup = prepare(problem, settings, World())
    possible = [choice for _, choice in setup.possible_choices([0])]
    assert [choice.method for choice in possible] == methods
    assert all("mini-bucket" in choice.bound for choice in possible[1:])
