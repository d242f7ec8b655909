"""Kernels are compiled before the clock starts, once, by one rank of a node."""

import time
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from support.problem_strategies import random_problem
from support.runs import begun, dense_problem

import dmcmc
from dmcmc.config.settings import Budget, Combine, Local, Settings
from dmcmc.inference.runtime import kernel_cache
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.run import background_engine, initial_tables
from dmcmc.run import solve as solving
from dmcmc.run.compilation import compile_ahead, once_per_node
from dmcmc.run.compilation.compile_ahead import warm_up_chains, warm_up_solving
from dmcmc.run.compilation.tiny_problems import tiny
from dmcmc.run.monitoring.progress import Silent
from dmcmc.run.planning.combination_plan import arithmetic_for
from dmcmc.run.planning.divided_problem import divided, soon_proven
from dmcmc.run.planning.plan import prepare
from dmcmc.samplers.blocks import neighbourhood_search as search


class Stages(Silent):
    def __init__(self):
        self.titles = []

    def stage(self, title, total=None):
        self.titles.append(title)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where what has been compiled is marked; kernels stay where they are, or they would be compiled anew."""
    monkeypatch.setattr(kernel_cache, "kernel_folder", lambda: tmp_path)
    return tmp_path


def counted(world=None, what="a run", fail=False):
    """How often work is done, and what a user saw."""
    done, stages = [], Stages()

    def work():
        done.append(1)
        if fail:
            raise ValueError("broken")

    once_per_node.once(what, work, world or World(), stages)
    return len(done), stages.titles


def test_what_has_been_compiled_is_not_compiled_again(folder):
    assert counted() == (1, [once_per_node._TITLE])
    assert counted() == (0, [])
    assert counted(what="another run") == (1, [once_per_node._TITLE])


def test_a_user_reads_what_is_compiled_and_how_many_kernels_are_left(monkeypatch):
    monkeypatch.setattr(once_per_node, "_TOLD", 0.0)
    stages = Stages()
    title, about = once_per_node._title("search int32 True")
    tell = once_per_node._now_and_then(stages, title, about)
    tell(1)
    tell(about + 1)
    start = f"{once_per_node._TITLE}: the first assignment, "
    assert stages.titles == [f"{start}1 of about {about}", f"{start}{about + 1} so far"]


def test_a_marker_holds_for_the_sources_that_were_compiled(folder, monkeypatch):
    assert counted()[0] == 1
    monkeypatch.setattr(kernel_cache, "_sources", lambda: ("other", 0))
    assert counted()[0] == 1


def test_what_plans_a_run_is_read_from_the_disk_before_the_clock_starts(monkeypatch):
    done = []
    monkeypatch.setattr(once_per_node, "once", lambda *rest: None)
    monkeypatch.setattr(once_per_node, "_LOADED", set())
    monkeypatch.setattr(compile_ahead, "prepare", lambda *rest: done.append(1))
    for _ in range(2):
        compile_ahead.warm_up_planning(tiny(np.dtype(np.int32)), Settings(), World(), Stages())
    assert len(done) == (0 if numba.config.DISABLE_JIT else 1)


@pytest.mark.parametrize(
    ("agents", "each", "searched"),
    [(3, 5, [False, False]), (1, 13, [True, True]), (3, 4, [False, False]), (12, 11, [False, True])],
)
def test_what_searches_orders_is_compiled_where_some_are_searched_for_at_once(agents, each, searched):
    problem = dmcmc.generate("random", agents=agents, variables_per_agent=each, domain_size=2)
    assert [compile_ahead._searches(problem, timed) for timed in (False, True)] == searched


def test_what_tables_soon_prove_compiles_nothing_else(monkeypatch):
    """Chains, and what weighs tables against them, are left until they turn out to be needed."""
    asked = []
    for name in ("warm_up_weighing", "warm_up_chains", "warm_up_orders"):
        monkeypatch.setattr(solving, name, lambda *rest, name=name: asked.append(name) or 0.0)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=4, local_density=0.5)
    assert dmcmc.solve(problem, timeout=600, device="cpu", search="none").status == "optimal"
    assert asked == []


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
def test_tables_that_take_next_to_no_time_are_known(variables, local, budget, soon):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=variables, domain_size=4, local_density=0.8)
    settings = Settings(local=Local(**local), budget=Budget(time=budget))
    assert soon_proven(divided(problem, settings, World())) == soon


@pytest.mark.parametrize(("density", "soon"), [(0.1, True), (0.9, False)])
def test_many_agents_of_one_variable_are_soon_proven_where_they_are_soon_combined(density, soon):
    problem = dmcmc.generate("random", agents=20, variables_per_agent=1, domain_size=5, global_density=density, seed=1)
    settings = Settings(budget=Budget(time=5.0))
    assert soon_proven(divided(problem, settings, World())) == soon


def test_a_search_that_is_needed_after_all_is_compiled_while_the_clock_stands_still():
    search = begun(dense_problem(1), budget={"time": 60.0}).search
    until, start = search.stop.until, search.incumbent.start
    search.unready = lambda: 5.0
    search.improve(0.01)
    search.improve(0.01)
    assert (search.stop.until, search.incumbent.start) == (until + 5.0, start + 5.0)
    assert search.unready is None


def test_the_search_engine_tries_before_anything_is_compiled_for_tables(monkeypatch):
    """Where it proves what is best in a moment, no kernels of tables are needed."""
    asked, problem = [], dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3)
    expected = dmcmc.solve(problem, device="cpu").objective
    monkeypatch.setattr(solving, "will_prove", lambda setup: False)
    monkeypatch.setattr(solving, "solving_is_compiled", lambda *rest: False)
    monkeypatch.setattr(solving, "warm_up_solving", lambda *rest: asked.append(rest) or 0.0)
    monkeypatch.setattr(background_engine, "_TRIAL", 300.0)  # ends with the proof
    result = dmcmc.solve(problem, timeout=6000.0, device="cpu", search="branch-and-bound")
    assert (result.status, result.objective, asked) == ("optimal", expected, [])


@pytest.mark.parametrize("proven", [False, True])
def test_what_is_proven_while_an_agent_is_eliminated_is_not_sampled_any_more(proven, monkeypatch):
    asked = []

    def sample(*rest):
        asked.append(rest)
        raise OutOfTime("out of time")

    monkeypatch.setattr(initial_tables, "_sampled_agents", sample)
    monkeypatch.setattr("dmcmc.run.planning.setup._SERIOUS", 0.0)
    run = begun(dense_problem(1), local={"method": "exact"}, budget={"time": 600.0}, search="none")
    assert set(run.setup.methods) == {"exact"}, run.setup.choices
    monkeypatch.setattr(run, "_ended", lambda: proven)
    run.setup.backend.stop.wish.ask()
    with pytest.raises(OutOfTime):
        run.first_tables()
    assert bool(asked) != proven


def test_agents_of_next_to_no_work_stay_exact_when_planning_took_all_the_time(monkeypatch):
    """Nothing else is compiled for them."""
    problem = dmcmc.generate("random", agents=6, variables_per_agent=1, domain_size=3, global_density=0.8)
    run = begun(problem, budget={"time": 600.0}, search="none")
    run.setup = run.setup.ending(Stop(time.perf_counter() - 0.01))
    monkeypatch.setattr(initial_tables, "_GRACE", 30.0)
    monkeypatch.setattr(initial_tables, "_sampled", None)
    run.first_tables()
    assert run.setup.never_given_up and set(run.setup.methods) == {"exact"}


def test_what_failed_is_told_in_a_line_and_tried_again_and_is_no_error(folder, caplog):
    assert counted(fail=True)[0] == 1
    (line,) = caplog.messages
    assert line.startswith("dmcmc: not all kernels are compiled") and line.endswith("ValueError: broken")
    assert list(folder.iterdir()) == []
    assert counted()[0] == 1


def test_without_a_place_for_kernels_every_process_compiles(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [counted()[0] for _ in range(2)] == [1, 1]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "missing"))
    assert [counted()[0] for _ in range(2)] == [1, 1]


def test_one_rank_of_a_node_compiles_and_all_wait_for_it(folder):
    waited = []

    def world(local_rank, missing):
        return SimpleNamespace(
            local_rank=local_rank, allgather=lambda own: [own, missing], wait=lambda: waited.append(local_rank)
        )

    assert counted(world(1, True)) == (0, [once_per_node._TITLE])
    assert counted(world(0, False)) == (1, [once_per_node._TITLE])
    assert counted(world(0, True)) == (0, [once_per_node._TITLE])  # another node compiles
    assert counted(world(1, False)) == (0, [])
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
def test_the_tiny_problem_has_the_tables_of_the_run_and_needs_its_numbers(numbers, tables, wide):
    problem = tiny(np.dtype(numbers), [np.dtype(t) for t in tables], wide)
    assert arithmetic_for(problem, Combine()).dtype.name == numbers
    assert {f.table.dtype.name for f in problem.factors[:-1]} == set(tables)
    assert (problem.domains.max() > 256) == wide and problem.forbidden_entries() == 1


def test_time_is_counted_after_compiling(monkeypatch, clock):
    slept = []

    def once(what, *rest):
        slept.append(what)
        clock.skip(1000)

    monkeypatch.setattr(once_per_node, "once", once)
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    result = dmcmc.solve(problem, timeout=600)
    assert [what.split()[0] for what in slept] == ["planning", "search", "solving"]
    assert result.status == "optimal" and result.time < 600
    assert all(0 <= point.time <= result.time for point in result.trace)
    result = dmcmc.solve(problem)  # proven by its tables: nothing is looked for beside them
    assert [what.split()[0] for what in slept[3:]] == ["planning", "search", "solving"]
    assert result.time < 600


@pytest.mark.parametrize(("budget", "split"), [(1e-5, True), (1e5, False)])
def test_what_splits_buckets_is_compiled_where_the_time_does_not_allow_exact_tables(folder, budget, split):
    """However much memory there is."""
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    setup, tried = prepare(dense_problem(0), settings, World()), []
    warm_up_solving(setup, World(), Stages(), lambda problem, settings: tried.append(settings.combine), False)
    assert any(combine.method == "mini-bucket" and combine.moment_matching for combine in tried) == split


def test_a_second_run_compiles_nothing(folder, monkeypatch):
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    stages = Stages()
    dmcmc.solve(problem, method="gibbs", timeout=1, progress=stages)
    assert sum(title.startswith(once_per_node._TITLE) for title in stages.titles) >= 4
    again = Stages()
    dmcmc.solve(problem, method="gibbs", timeout=1, progress=again)
    assert not any(title.startswith(once_per_node._TITLE) for title in again.titles)


@pytest.mark.parametrize(("bound", "compiled"), [("mini-bucket", ["int64"]), ("dual", [])])
def test_what_matches_mini_buckets_of_larger_agents_is_compiled_too(bound, compiled, folder, monkeypatch):
    problem = random_problem(3, variables=6, agents=3, domain=3, factors=9)
    settings = Settings(local=Local(method="gibbs", bound=bound), budget=Budget(time=1.0))
    setup, asked = prepare(problem, settings, World()), []
    monkeypatch.setattr(compile_ahead, "compile_matching", lambda dtype: asked.append(dtype.name))
    warm_up_solving(setup, World(), Stages(), lambda *work: None, False)
    assert asked == compiled


def test_block_moves_anneal_before_the_clock_starts(monkeypatch):
    """What they ask the first time is compiled then."""
    problem, asked = random_problem(3, variables=6, agents=3, domain=3, factors=9), []
    monkeypatch.setattr(search, "typical_spread", lambda graph, values: asked.append(1) or 1.0)
    monkeypatch.setattr(once_per_node, "load", lambda what, work, *rest: work())
    warm_up_chains(divided(problem, Settings(), World()), World(), Stages())
    assert asked


@pytest.mark.parametrize(("budget", "methods"), [(1e-6, ["exact", "annealing"]), (1e6, ["exact"]), (None, ["exact"])])
def test_what_may_be_given_up_is_known_with_its_bound(budget, methods):
    """An agent of one row is bounded by mini-buckets, too: their kernels are needed then."""
    problem = dmcmc.generate("random", agents=1, variables_per_agent=5, domain_size=2)
    settings = Settings(local=Local(method="exact"), budget=Budget(time=budget))
    setup = prepare(problem, settings, World())
    possible = [choice for _, choice in setup.possible([0])]
    assert [choice.method for choice in possible] == methods
    assert all("mini-bucket" in choice.bound for choice in possible[1:])
