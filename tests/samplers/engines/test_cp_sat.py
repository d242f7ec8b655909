"""CP-SAT as a search engine: its model has the costs of the problem, and its proofs hold for the utilities."""

from itertools import product

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.improvers import background_search
from dmcmc.config.settings import Budget, Settings
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.samplers.cp_sat.native_problem import MAX_TOTAL_COST, native_problem
from dmcmc.samplers.cp_sat.process import CpSatProcess, available
from dmcmc.samplers.toulbar2.whole_problem import costs_of_compact

pytestmark = pytest.mark.skipif(not available(), reason="needs ortools")

HARD = -np.inf


def automaton(rng, scope, shape, paid):
    """Return a random automaton with three states; some transitions are forbidden."""
    target = rng.integers(0, 3, (len(shape), 3, max(shape)))
    utility = rng.integers(-5, 6, target.shape) * paid
    hard = rng.random(target.shape) < 0.2

    def step(position, state, value):
        where = position, state, value
        return int(target[where]), None if hard[where] else int(utility[where])

    return unroll(scope, shape, 0, step)


def sparse(rng, scope, shape, floats):
    """Return a sparse factor with random tuples and a random default, which may be forbidden."""
    tuples = np.unique(np.column_stack([rng.integers(0, size, 5) for size in shape]), axis=0).astype(np.int32)
    utilities = rng.normal(size=len(tuples) + 1) if floats else rng.integers(-5, 6, len(tuples) + 1).astype(float)
    utilities[rng.random(utilities.size) < 0.3] = HARD
    return SparseFactor(scope, shape, tuples, normalise(utilities))


def at_most_one_one(position, count, value):
    """Step of an automaton that allows at most one variable to have the value 1."""
    count += value == 1
    return count, None if count > 1 else 0


def random_problem(seed):
    """Return a problem with dense and sparse tables, automata with and without costs, and a linear constraint."""
    rng = np.random.default_rng(seed)
    n, floats = int(rng.integers(2, 6)), seed % 3 == 0
    domains = rng.integers(1, 5, n)
    factors = []
    for arity in (1, 1, 2, 2, 3):
        scope = tuple(rng.permutation(n)[: min(n, arity)].tolist())
        shape = tuple(domains[list(scope)].tolist())
        values = rng.normal(size=shape) if floats else rng.integers(-9, 10, shape).astype(float)
        if rng.random() < 0.5:  # few levels
            values = np.where(values > 4, 3.0, 0.0)
        factors.append(Factor.of(scope, np.where(rng.random(shape) < 0.15, HARD, values)))
    for i in range(3):
        scope = tuple(rng.permutation(n)[: rng.integers(2, n + 1)].tolist())
        shape = tuple(domains[list(scope)].tolist())
        factors.append(sparse(rng, scope, shape, floats) if i == 2 else automaton(rng, scope, shape, paid=i))
    everything = tuple(range(n))
    factors.append(
        unroll(everything, domains.tolist(), 0, lambda i, s, a: (s + (a == 1), None if s + (a == 1) > 1 else 0))
    )
    return Problem(tuple(f"x{v}" for v in everything), domains, ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def constrained_problem(seed):
    """Return a problem with every class of global constraints, hard or soft, and random unary utilities."""
    rng = np.random.default_rng(seed)
    build = Problem.build()
    n = int(rng.integers(2, 4))
    starts = [build.variable(f"s{i}", sorted(rng.choice(8, 4, replace=False).tolist())) for i in range(n)]
    places = [build.variable(f"p{i}", rng.permutation(3)[: rng.integers(1, 4)].tolist()) for i in range(n)]
    durations = rng.integers(1, 4, n).tolist()
    cost = [None if rng.random() < 0.3 else int(rng.integers(1, 5)) for _ in range(9)]
    build.no_overlap(starts, durations, cost=cost[0]).no_overlap(starts, durations, places, cost=cost[1])
    build.cumulative(starts, durations, rng.integers(0, 3, n).tolist(), 2, cost=cost[2])
    build.all_different(places, exempt=[0], cost=cost[3])
    build.count([*starts, *places], [1, 2], (1, 2), cost=cost[4]).breaks(starts, durations, cost=cost[5])
    build.precedence(starts[0], starts[1], int(rng.integers(-1, 3)), cost=cost[6])
    if rng.random() < 0.5:
        index = build.variable("index", n)
        build.element(index, places, build.variable("result", 3), cost=cost[7])
    build.constraint("adjacency", starts, {"times": labels(build, starts), "durations": durations}, cost=1)
    given = {"times": labels(build, starts), "durations": durations, "places": labels(build, places), "gap": 1}
    build.constraint("place_changes", [*starts, *places], given, cost=cost[8] or 1)
    for name in starts:
        build.factor([name], rng.integers(0, 20, 4))
    return build.problem()


def labels(build, names):
    """Return the labels of variables."""
    problem = build.problem()
    position = {name: i for i, name in enumerate(problem.variables)}
    found = [problem.labels[position[name]] or range(problem.domains[position[name]]) for name in names]
    return [list(values) for values in found]


def utilities_of(problem):
    """Return the utility of every feasible assignment."""
    found = {}
    for values in product(*map(range, problem.domains.tolist())):
        evaluation = problem.evaluate(np.array(values))
        if not evaluation.violation:
            found[values] = evaluation.objective
    return found


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


def test_cp_sat_is_chosen_for_global_constraints(monkeypatch):
    monkeypatch.setattr(background_search, "cores", lambda: 2)
    n = 12
    counts = [unroll(tuple(range(i, i + 8)), [2] * 8, 0, at_most_one_one) for i in range(4)]
    unary = [Factor.of((v,), [0, 1]) for v in range(n)]
    pairs = [Factor.of((v, (v + 1) % n), np.eye(2, dtype=int)) for v in range(n)]
    for factors, engine in (((*counts, *unary), "cp-sat"), ((*counts[:1], *pairs), "toulbar2")):
        names = tuple(f"x{v}" for v in range(n))
        problem = Problem(names, np.full(n, 2), ("a",), np.zeros(n, dtype=np.int64), factors)
        settings = Settings(budget=Budget(time=5.0))
        assert background_search.choose_engine(settings, problem) == engine
    monkeypatch.setattr(background_search.cp_sat, "available", lambda: False)
    with pytest.raises(Unavailable, match="search: cp-sat needs ortools"):
        dmcmc.solve(problem, search="cp-sat")
