"""Search engines find the same optimum as enumeration, for every kind of factor in the form that they are given."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from support import naive

from dmcmc import Factor, Problem
from dmcmc.anytime.engines import choose_engine
from dmcmc.anytime.engines.given_problem import bytes_in_engine, given_to_engine
from dmcmc.config.settings import Budget, Settings
from dmcmc.formats.global_functions.builder import CostScale
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.bounds import registry
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.automaton import AutomatonFactor, unroll
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.samplers.branch_and_bound.engine import BranchAndBound
from dmcmc.samplers.toulbar2.compact_problem import compact_problem
from dmcmc.samplers.toulbar2.linear_constraints import linear_constraint
from dmcmc.samplers.toulbar2.process import Toulbar2Process, available
from dmcmc.samplers.toulbar2.whole_problem import costs_of_problem
from dmcmc.samplers.tuning import common

TOP = 1000
MEMORY = 1 << 30
HARD = -np.inf


@pytest.fixture
def keep_compact(monkeypatch):
    """Keep small factors in their compact form, so that their problems can be enumerated."""
    monkeypatch.setattr(common, "PLAIN_TABLE_ENTRIES", 0)


def problem_of(shape, factors):
    n = len(shape)
    return Problem(tuple(f"x{v}" for v in range(n)), np.array(shape), ("a",), np.zeros(n, dtype=int), tuple(factors))


def best(problem):
    """Return the largest utility of all allowed assignments; None if there is none."""
    found = [problem.evaluate(list(values)) for values in product(*map(range, problem.domains.tolist()))]
    return max((e.objective for e in found if not e.violation), default=None)


def weights(rng, shape, low, high):
    return [[[x, int(rng.integers(low, high))] for x in range(size)] for size in shape]


def counts(rng, shape):
    values = rng.permutation(max(shape))[: rng.integers(1, max(shape) + 1)]
    return [[int(x), low, low + int(rng.integers(0, 2))] for x in values for low in [int(rng.integers(0, 2))]]


def moves(rng, shape, costly):
    return [
        [q, x, int(rng.integers(0, 2)), *([int(rng.integers(0, 4))] if costly else [])]
        for q in (0, 1)
        for x in range(max(shape))
        if rng.random() < 0.8
    ]


# For each global function, its parameters; the cost TOP is forbidden.
GLOBAL = {
    "clique": lambda rng, shape: {
        "rhs": int(rng.integers(1, 4)),
        "values": [[[x] for x in range(size) if rng.random() < 0.6] for size in shape],
    },
    "knapsackp": lambda rng, shape: {
        "capacity": int(rng.integers(-3, 6)),
        "weightedvalues": weights(rng, shape, -4, 5),
    },
    "wamong": lambda rng, shape: {
        "metric": str(rng.choice(["hard", "lin"])),
        "cost": int(rng.choice([3, TOP])),
        "values": [[0]],
        "min": 1,
        "max": int(rng.integers(1, 4)),
    },
    "wgcc": lambda rng, shape: {"metric": "hard", "cost": int(rng.choice([2, TOP])), "bounds": counts(rng, shape)},
    "sgcc": lambda rng, shape: {"metric": "var", "cost": 3, "bounds": counts(rng, shape)},
    "walldiff": lambda rng, shape: {"metric": "hard", "cost": int(rng.choice([2, TOP]))},
    "wsum": lambda rng, shape: {
        "metric": "hard",
        "cost": int(rng.choice([4, TOP])),
        "comparator": str(rng.choice(["==", "<", "<=", ">", ">=", "!="])),
        "to": int(rng.integers(0, 6)),
    },
    "wregular": lambda rng, shape: {
        "nb_states": 2,
        "starts": [[0, 0]],
        "ends": [[0, 0], [1, 2]],
        "transitions": moves(rng, shape, True),
    },
    "sregular": lambda rng, shape: {
        "metric": "var",
        "cost": 2,
        "nb_states": 2,
        "starts": [[0]],
        "ends": [[1]],
        "transitions": moves(rng, shape, False),
    },
    "max": lambda rng, shape: {
        "defaultcost": 1,
        "tuples": [[v, x, int(rng.integers(0, 9))] for v, size in enumerate(shape) for x in range(size)],
    },
}


def sparse(rng, scope, shape, default, floats=False):
    """Return a sparse factor that lists some random tuples."""
    every = np.array(list(product(*map(range, shape))), dtype=np.int32)
    listed = every[np.sort(rng.permutation(len(every))[: len(every) // 2])]
    numbers = rng.normal(size=len(listed) + 1) if floats else rng.integers(-9, 9, len(listed) + 1).astype(float)
    numbers[:-1][rng.random(len(listed)) < 0.2] = HARD
    numbers[-1] = default
    return SparseFactor(scope, shape, listed, Factor.of((0,), numbers).table)


def drawn(kind, rng):
    """Return a random problem with factors of one kind, unary and binary factors."""
    shape = rng.integers(2, 4, 5).tolist()
    scopes = [sorted(rng.permutation(5)[:4].tolist()) for _ in range(2)]
    factors = []
    for scope in scopes:
        part = [shape[v] for v in scope]
        if kind in GLOBAL:
            built = build(kind, range(4), part, GLOBAL[kind](rng, part), CostScale(TOP))
            factors += [factor.renamed(tuple(scope[i] for i in factor.scope), kind) for factor in built]
        elif kind.startswith("sparse"):
            default = HARD if "forbidden" in kind else 2
            factors.append(sparse(rng, tuple(scope), tuple(part), default, "float" in kind))
        else:
            factors.append(Factor.of(scope, np.where(rng.random(part) < 0.3, HARD, rng.integers(-9, 9, part))))
    factors += [Factor.of((v,), rng.integers(-5, 5, size)) for v, size in enumerate(shape)]
    factors.append(Factor.of((0, 4), rng.integers(-5, 5, (shape[0], shape[4]))))
    return problem_of(shape, factors)


KINDS = (*GLOBAL, "sparse", "sparse forbidden", "sparse float", "table")


@pytest.mark.skipif(not available(), reason="needs pytoulbar2")
@pytest.mark.parametrize("kind", KINDS)
def test_toulbar2_finds_the_optimum_of_every_kind_of_factor(kind, keep_compact):
    rng = np.random.default_rng(list(kind.encode()))
    with Toulbar2Process() as engine:
        for _ in range(12):
            check(engine, drawn(kind, rng), dense_only=False)


@pytest.mark.parametrize("kind", KINDS)
def test_branch_and_bound_finds_the_optimum_of_every_kind_of_factor(kind, keep_compact):
    rng = np.random.default_rng(list(kind.encode()))
    for _ in range(4):
        with BranchAndBound() as engine:
            check(engine, drawn(kind, rng), dense_only=True)


def check(engine, problem, dense_only):
    """Check an engine's optimum and bounds against enumeration."""
    optimum, costs = best(problem), costs_of_problem(problem, MEMORY, dense_only=dense_only)
    if not costs.feasible:
        assert optimum is None
        return
    found = engine.search(costs, None, 60)
    assert found.complete
    if optimum is None:
        assert found.values is None
        return
    evaluation = problem.evaluate(found.values[: problem.n_variables])
    assert not evaluation.violation
    assert evaluation.objective == pytest.approx(optimum, rel=1e-12)
    assert costs.bound(costs.of(found.values)) >= evaluation.objective
    if costs.exact:
        assert evaluation.objective == optimum == costs.bound(costs.of(found.values))


def test_compact_forms_keep_the_structure(keep_compact):
    rng, shape = np.random.default_rng(0), [2] * 6
    clique = build("clique", range(6), shape, {"rhs": 2, "values": [[[1]]] * 6}, CostScale(TOP))
    soft = build(
        "wamong", range(6), shape, {"metric": "lin", "cost": 3, "values": [[0]], "min": 2, "max": 3}, CostScale(TOP)
    )
    listed = sparse(rng, tuple(range(6)), tuple(shape), 3)
    given = compact_problem(problem_of(shape, [*clique, *soft, listed]), MEMORY)
    assert [(len(c.terms), c.low, c.high) for c in given.linear] == [(6, None, 2)]
    assert [f for f in given.problem.factors if isinstance(f, SparseFactor)] == [listed]
    chain = [f for f in given.problem.factors if type(f) is Factor]
    assert len(chain) == 6 and all(len(f.scope) <= 3 for f in chain)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_hard_bound_on_a_sum_stays_linear_when_values_are_removed(most, keep_compact):
    shape = [3, 2, 3, 2]
    values = [[[0], [2]], [[1]], [[1]], [[0]]]
    (factor,) = build("clique", range(4), shape, {"rhs": most, "values": values}, CostScale(TOP))
    if most == 5:  # no assignment takes so many
        assert linear_constraint(factor) is None or factor.forbidden_entries() == 0
        return
    remaining = [np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), np.array([0, 1])]
    for each in (factor, factor.restricted(remaining), factor.renamed((0, 1, 2, 3), "other")):
        constraint = linear_constraint(each)
        for x in product(*map(range, each.shape)):
            assert constraint.holds(np.array(x)) == (each.entry(x) == 0)


def test_an_automaton_with_utilities_is_no_linear_constraint():
    paid = unroll(range(4), [2] * 4, 0, lambda i, n, x: (n + x, None if i == 3 and n + x > 1 else -x))
    assert isinstance(paid, AutomatonFactor) and linear_constraint(paid) is None


def test_a_large_automaton_is_given_as_what_it_says_rather_than_as_a_table():
    n = 23
    clique = build("clique", range(n), [2] * n, {"rhs": 2, "values": [[[1]]] * n}, CostScale(TOP))
    soft = build(
        "wamong", range(n), [2] * n, {"metric": "lin", "cost": 1, "values": [[1]], "min": 3, "max": 4}, CostScale(TOP)
    )
    costs = costs_of_problem(problem_of([2] * n, [*clique, *soft]), MEMORY)
    assert sum(cost.size for cost in costs.costs) < 10_000 < prod([2] * n)
    assert len(costs.linear) == 1


def auction(n, most):
    """Return a problem whose only hard constraint is a clique over all variables, which pay if they are taken."""
    clique = build("clique", range(n), [2] * n, {"rhs": most, "values": [[[1]]] * n}, CostScale(TOP))
    return problem_of([2] * n, [*clique, *(Factor.of((v,), [0, 10 + v]) for v in range(n))])


def test_the_memory_of_an_engine_is_estimated_by_what_it_is_given(monkeypatch):
    monkeypatch.setattr(choose_engine, "available", lambda: True)
    problem, settings = auction(40, 2), Settings(search="toulbar2", budget=Budget(time=10, memory=1 << 24))
    given = given_to_engine("toulbar2", problem, settings.budget.bytes)
    assert given_to_engine("toulbar2", problem, settings.budget.bytes) is given
    assert bytes_in_engine(given) < 200_000
    assert choose_engine.choose_engine(settings, problem) == "toulbar2"


def test_a_factor_that_fits_in_no_form_leaves_the_engine_out(monkeypatch):
    monkeypatch.setattr(choose_engine, "available", lambda: True)
    paid = unroll(range(8), [50] * 8, 0, lambda i, n, x: (n + x, -n - x if i == 7 else 0))
    settings = Settings(search="toulbar2", budget=Budget(time=10, memory=1 << 20))
    assert choose_engine.choose_engine(settings, problem_of([50] * 8, [paid])) is None


def test_presolve_keeps_linear_constraints():
    problem = auction(8, 2)
    values = build("clique", range(8), [2] * 8, {"rhs": 0, "values": [[[1]]] + [[]] * 7}, CostScale(TOP))
    reduced = presolve(replace(problem, factors=(*problem.factors, *values)), MEMORY)
    assert reduced.problem.domains.tolist() == [1] + [2] * 7
    assert [c.high for f in reduced.problem.factors if (c := linear_constraint(f)) is not None] == [2]


def test_the_bound_of_a_large_clique_comes_from_a_relaxation():
    n, most = 23, 2
    dense = densify(auction(n, most), 1 << 40).problem
    (local,) = divide(dense).locals
    state = registry.get("dual").start(local)
    state.improve(sweeps=50)
    arithmetic = choose_arithmetic(dense.factors)
    (bound,) = naive.plain_tables(state.tables(arithmetic), arithmetic)
    optimum = 2 * (10 + n) - 3
    assert optimum <= bound[1].item() <= 2 * optimum < sum(range(10, 10 + n))


@pytest.mark.skipif(not available(), reason="needs pytoulbar2")
def test_costs_of_extreme_size_are_scaled_without_overflow():
    rng = np.random.default_rng(4)
    for scale in (5e-324, 1e-320, 1e-300, 1.0, 1e290):
        tables = [scale * rng.integers(-9, 9, (2, 2)).astype(float) for _ in range(3)]
        problem = problem_of([2, 2], [Factor.of((0, 1), table) for table in tables])
        with Toulbar2Process() as engine:
            check(engine, problem, dense_only=False)
