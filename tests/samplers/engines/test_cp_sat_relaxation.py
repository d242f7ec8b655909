"""Cliques of values that exclude each other, and the linear relaxation of CP-SAT's model."""

from itertools import combinations, product

import numpy as np
import pytest

import dmcmc
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.cp_sat.solver import excludes_minority
from dmcmc.samplers.cp_sat.tables import clique_cover
from tests.support.naive import optimum

cp_model = pytest.importorskip("ortools.sat.python.cp_model")


def _conflicts(rng, sizes):
    """Return random excluded pairs between all pairs of variables."""
    return {(u, v): rng.random((sizes[u], sizes[v])) < 0.4 for u, v in combinations(range(len(sizes)), 2)}


@pytest.mark.parametrize("seed", range(5))
def test_cliques_contain_exactly_the_excluded_pairs(seed):
    rng = np.random.default_rng(seed)
    conflicts = _conflicts(rng, rng.integers(2, 7, size=5))
    covered = {pair: np.zeros_like(mask) for pair, mask in conflicts.items()}
    for clique in clique_cover(conflicts):
        for (u, a), (v, b) in combinations(sorted(clique), 2):
            if u != v:
                assert conflicts[u, v][a, b]
                covered[u, v][a, b] = True
    for pair, mask in conflicts.items():
        np.testing.assert_array_equal(covered[pair], mask)


def test_intervals_that_overlap_give_a_clique_for_each_slot():
    starts = np.arange(6)
    overlap = np.abs(starts[:, None] - starts) < 2
    cliques = clique_cover(dict.fromkeys(combinations(range(4), 2), overlap))
    assert max(map(len, cliques)) == 8  # two starts of each of four intervals contain a slot
    assert len(cliques) < overlap.sum() * 6 / 8


@pytest.mark.parametrize("seed", range(5))
def test_the_relaxation_is_a_bound(seed):
    from dmcmc.samplers.cp_sat.linear_relaxation import solve_relaxation

    rng, model = np.random.default_rng(seed), cp_model.CpModel()
    x = [model.new_bool_var("") for _ in range(7)]
    model.add_at_most_one(x[0], x[1], x[2].negated())
    model.add_bool_or(x[3], x[4].negated())
    model.add_exactly_one(x[4], x[5], x[6])
    model.add(2 * x[0] + 3 * x[3] <= 4 + x[5])
    model.add(x[1] + x[6] >= 1).only_enforce_if(x[2])
    model.add_implication(x[5], x[1])
    costs = rng.integers(-9, 10, size=7).tolist()
    model.minimize(sum(c * literal for c, literal in zip(costs, x, strict=True)) + 5 * x[0].negated())
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    relaxation = solve_relaxation(model, 10.0)
    assert relaxation is not None
    assert solver.objective_value - 6 <= relaxation.bound <= solver.objective_value


def test_a_table_that_excludes_a_minority_is_a_conflict():
    table = np.zeros((3, 3))
    assert not excludes_minority(table)
    table[0, 0] = -np.inf
    assert excludes_minority(table)
    assert not excludes_minority(np.where(np.isinf(table), 0, -np.inf))
    table[1, 1] = 2.0
    assert not excludes_minority(table)


def _scheduling_problem(seed):
    """Return a problem of intervals that must not overlap, with utilities and one table that links two variables."""
    rng = np.random.default_rng(seed)
    sizes, lengths = rng.integers(3, 6, size=5), rng.integers(1, 3, size=5)
    factors = [Factor.of((v,), rng.integers(0, 9, size=size)) for v, size in enumerate(sizes)]
    for u, v in combinations(range(4), 2):
        a, b = np.arange(sizes[u])[:, None], np.arange(sizes[v])
        overlap = (a < b + lengths[v]) & (b < a + lengths[u])
        if 2 * overlap.sum() < overlap.size:
            factors.append(Factor.of((u, v), np.where(overlap, -np.inf, 0)))
    linked = np.full((sizes[0], sizes[4]), -np.inf)
    linked[:, 0] = 0
    for a, b in product(range(sizes[0]), range(sizes[4])):
        if a == b:
            linked[a, b] = rng.integers(1, 5)
    factors.append(Factor.of((0, 4), linked))
    names = tuple(f"x{v}" for v in range(5))
    return Problem(names, sizes.astype(np.int64), ("A",), np.zeros(5, dtype=np.int64), tuple(factors))


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_a_problem_with_cliques_is_that_of_brute_force(seed):
    problem = _scheduling_problem(seed)
    result = dmcmc.solve(problem, method="cp-sat", presolve="none", device="cpu")
    assert result.objective == optimum(problem)
