"""CP-SAT as a search engine: its model has the costs of the problem, and its proofs hold for the utilities."""

import numpy as np
import pytest
from support.constraints.engine_problems import constrained_problem, random_problem, utilities_of

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.engines import choose_engine
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.cp_sat.solver import MAX_TOTAL_COST, CpSatProcess, available, native_problem
from dmcmc.samplers.toulbar2.compact_problem import costs_of_compact

pytestmark = pytest.mark.skipif(not available(), reason="needs ortools")


@pytest.mark.parametrize("draw", [random_problem, constrained_problem])
def test_random_problems_are_proven_as_by_brute_force(draw):
    with CpSatProcess() as engine:
        for seed in range(12):
            problem = draw(seed)
            utilities, costs = (
                utilities_of(problem),
                costs_of_compact(native_problem(problem), max_total=MAX_TOTAL_COST),
            )
            for values, utility in utilities.items():
                cost = costs.of(np.array(values))
                assert cost < costs.top and costs.bound(cost) >= utility
            if not costs.feasible:
                assert not utilities
                continue
            found, best = engine.search(costs, None, 600), max(utilities.values(), default=None)
            assert found.complete and found.ended
            assert (found.values is None) == (best is None)
            if best is not None:
                assert utilities[tuple(found.values.tolist())] == pytest.approx(best, rel=1e-9, abs=1e-9)
                assert costs.bound(found.lower) >= best


def test_a_known_optimum_is_proven_and_a_known_assignment_is_the_start():
    problem = next(p for seed in range(1, 60) if utilities_of(p := random_problem(seed)))
    utilities, costs = utilities_of(problem), costs_of_compact(native_problem(problem))
    best = max(utilities, key=utilities.get)
    with CpSatProcess(known=lambda: np.array(best)) as engine:
        found = engine.search(costs, utilities[best], 600)
    assert found.complete and utilities[tuple(found.values.tolist())] == utilities[best]
    with CpSatProcess() as engine:
        found = engine.search(costs, utilities[best], 600)
    assert found.complete and found.values is None


def test_a_run_ends_with_its_proof():
    problem = next(p for seed in range(1, 60) if utilities_of(p := random_problem(seed)))
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="cp-sat", timeout=600)
    assert (result.status, result.objective) == ("optimal", max(utilities_of(problem).values()))


def test_rows_equal_those_of_elimination():
    rng = np.random.default_rng(0)
    factors = tuple(Factor.of((i, j), rng.integers(-20, 20, (3, 3))) for i in range(4) for j in range(i))
    problem = Problem(("a", "b", "c", "d"), np.full(4, 3), ("x", "y"), np.array([0, 0, 0, 1]), factors)
    exact, found = (dmcmc.solve(problem, method=method) for method in ("exact", "cp-sat"))
    assert (found.status, found.objective) == ("optimal", exact.objective)


def at_most_one_one(position, count, value):
    """Step of an automaton that allows at most one variable to have the value 1."""
    count += value == 1
    return count, None if count > 1 else 0


def test_cp_sat_is_chosen_for_global_constraints(monkeypatch):
    monkeypatch.setattr(choose_engine, "cores", lambda: 2)
    n = 12
    counts = [unroll(tuple(range(i, i + 8)), [2] * 8, 0, at_most_one_one) for i in range(4)]
    unary = [Factor.of((v,), [0, 1 + v]) for v in range(n)]
    pairs = [Factor.of((v, (v + 1) % n), np.eye(2, dtype=int)) for v in range(n)]
    for factors, engine in (((*counts, *unary), "cp-sat"), ((*counts[:1], *pairs), "toulbar2")):
        names = tuple(f"x{v}" for v in range(n))
        problem = Problem(names, np.full(n, 2), ("a",), np.zeros(n, dtype=np.int64), factors)
        settings = Settings(budget=Budget(time=5.0))
        assert choose_engine.choose_engine(settings, problem) == engine
    monkeypatch.setattr(choose_engine.cp_sat, "available", lambda: False)
    with pytest.raises(Unavailable, match="search: cp-sat needs ortools"):
        dmcmc.solve(problem, search="cp-sat")
