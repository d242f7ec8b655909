"""Problems with global constraints: every method, file and presolve against brute force, also if they are relaxed."""

import numpy as np
import pytest
from support.constraints.random_constraints import KINDS, best_objective, random_problem

import dmcmc
from dmcmc import Problem
from dmcmc.formats import registry as formats
from dmcmc.inference import tuning
from dmcmc.inference.model.densify import densify, tabular_factors
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.runtime.errors import DmcmcError, ResourceError
from dmcmc.samplers.constraint_search.constraint_search import Walker


def problem_with(kind, seed, agents=2):
    return random_problem(np.random.default_rng([seed, KINDS.index(kind)]), [kind, KINDS[seed % 9]], 4, 3, agents)


@pytest.fixture
def relaxed(monkeypatch):
    """Let no decomposition of a constraint be small enough."""
    monkeypatch.setattr(tuning, "MAX_EXAMINED_ENTRIES", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_methods_find_the_optimum(kind):
    for seed in range(3):
        problem = problem_with(kind, seed)
        result, best = dmcmc.solve(problem), best_objective(problem)
        assert (result.status == "infeasible") == (best is None)
        assert result.objective == best
        assert best is None or problem.evaluate(result.assignment) == (best, 0)


@pytest.mark.parametrize("kind", ["at_most", "no_overlap_places", "breaks"])
def test_the_bound_of_relaxed_constraints_is_valid_and_the_answer_violates_none(kind, relaxed):
    for seed in range(3):
        problem = problem_with(kind, seed, agents=1)
        best = best_objective(problem)
        assert len(tabular_factors(problem, True)) < len(problem.factors) or any(
            f.decomposition is None or len(f.relaxation) < len(f.decomposition) for f in problem.factors
        )
        result = dmcmc.solve(problem, timeout=0.5, search="none", seed=seed)
        assert result.status in ("feasible", "optimal", "timeout", "unsatisfied", "infeasible")
        assert (result.objective is None) == (best is None)
        if best is None:
            continue
        assert problem.evaluate(result.assignment) == (result.objective, 0)
        assert result.objective == best
        assert result.bound is None or (result.bound >= best if problem.sense == "max" else result.bound <= best)
        assert result.status != "optimal" or result.bound == best


@pytest.mark.parametrize("ask", [dmcmc.solve, lambda problem: dmcmc.Session(problem).solve(), dmcmc.conflict])
def test_fixed_work_asks_the_exact_tables_before_it_repairs_what_may_be_infeasible(ask, monkeypatch):
    build = Problem.build()
    build.all_different([build.variable(name, 2) for name in "xyz"])

    def fail(*arguments):
        raise AssertionError("no walk is needed: the tables prove that there is no solution")

    monkeypatch.setattr(Walker, "run", fail)
    assert ask(build.problem()).status == "infeasible"


def test_a_method_that_needs_tables_refuses_a_large_constraint_in_one_line():
    build = Problem.build()
    starts = [build.variable(f"s{i}", 100) for i in range(30)]
    problem = build.breaks(starts).problem()
    with pytest.raises(ResourceError, match="constraint breaks: has no small decomposition") as error:
        densify(problem, 2**30)
    assert "\n" not in str(error.value)
    assert densify(problem, 2**30, relax=True).problem.factors == ()
    with pytest.raises(DmcmcError, match="no small decomposition"):
        formats.save(problem, "never.yaml")


@pytest.mark.parametrize("kind", ["no_overlap", "cumulative", "breaks"])
@pytest.mark.parametrize("settings", [{}, {"timeout": 5}], ids=["fixed work", "time budget"])
def test_times_in_seconds_since_an_epoch_are_solved_as_small_ones(kind, settings):
    found = []
    for first, unit in ((0, 1), (1_700_000_000, 86_400)):
        build = Problem.build()
        starts = [build.variable(f"x{i}", [first + unit * k for k in (i, 8 + i, 20)]) for i in range(5)]
        if kind == "no_overlap":
            build.no_overlap(starts, 2 * unit)
        elif kind == "cumulative":
            build.cumulative(starts, 3 * unit, [1, 2, 1, 1, 2], 3)
        else:
            build.breaks(starts, unit, at_most=1)
        for i, start in enumerate(starts):
            build.factor(start, [(i * k) % 5 for k in range(3)])
        result = dmcmc.solve(build, **settings)
        found.append((result.status, result.objective))
    assert found[0] == found[1] and found[0][0] in ("optimal", "infeasible")


@pytest.mark.parametrize("kind", KINDS)
def test_presolve_keeps_the_optimum(kind):
    for seed in range(4):
        problem = problem_with(kind, seed)
        reduced, best = presolve(problem, 2**30), best_objective(problem)
        if reduced.infeasible:
            assert best is None
            continue
        least = best_objective(reduced.problem)
        assert least == best


def test_presolve_propagates_constraints_over_many_variables():
    build = Problem.build()
    names = [build.variable(f"x{i}", 12) for i in range(12)]
    build.factor(names[0], [0] + [-np.inf] * 11).all_different(names)
    build.at_most(0, names[1:], range(2, 12))
    assert presolve(build.problem(), 2**30).infeasible


@pytest.mark.parametrize("suffix", [".npz", ".yaml", ".xml"])
def test_files_keep_the_objective(suffix, tmp_path):
    for seed, kind in enumerate(KINDS):
        problem, path = problem_with(kind, seed), tmp_path / f"p{suffix}"
        formats.save(problem, path)
        again = formats.load(path)
        assert best_objective(again) == best_objective(problem)
        if suffix == ".npz":
            assert again == problem
            assert [type(factor) for factor in again.factors] == [type(factor) for factor in problem.factors]


@pytest.mark.parametrize("algorithm", ["dpop", "mgm"])
def test_algorithms_read_the_decomposition(algorithm):
    problem = problem_with("all_different", 1)
    result = dmcmc.solve(problem, algorithm=algorithm)
    assert result.objective is None or problem.evaluate(result.assignment) == (result.objective, 0)
