"""Potentials are rounded as by a naive implementation, and to optimal assignments where the bound is tight."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.rounding import Rounding, rounded_assignments
from dmcmc.inference.bounds.search_rows import reparametrised
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.samplers.local_search.local_search import LocalSearch


def round_naively(tables, domains, noise, given=None):
    """Round tables by the definition, recomputing all scores for every variable."""
    values = dict(given or {})
    while len(values) < len(domains):
        scores = {}
        for v in [v for v in range(len(domains)) if v not in values]:
            score = noise[v, : domains[v]].copy()
            for table in [t for t in tables if v in t.scope]:
                fixed = tuple(values.get(u, slice(None)) for u in table.scope)
                free = [u for u in table.scope if u not in values]
                score += table.values[fixed].max(axis=tuple(i for i, u in enumerate(free) if u != v))
            scores[v] = score
        margins = {v: np.inf if s.size == 1 else s.max() - np.sort(s)[-2] for v, s in scores.items()}
        chosen = min(scores, key=lambda v: (-margins[v], v))
        values[chosen] = int(scores[chosen].argmax())
    return [values[v] for v in range(len(domains))]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_tables_are_rounded_as_by_a_naive_implementation(seed):
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 5, rng.integers(1, 7))
    tables = [EncodedTable((v,), rng.integers(-9, 9, domains[v])) for v in range(domains.size)]
    for _ in range(int(rng.integers(0, 8))):
        scope = tuple(
            sorted(rng.choice(domains.size, rng.integers(1, min(3, domains.size) + 1), replace=False).tolist())
        )
        tables.append(EncodedTable(scope, rng.integers(-9, 9, domains[list(scope)])))
    noise = rng.integers(-3, 4, (2, domains.size, int(domains.max())))
    free = int(rng.integers(1, domains.size + 1))
    rows = list(product(*map(range, domains[free:].tolist())))
    found = Rounding(tables, domains, free, noise).rows(np.arange(len(rows)))
    for number, row in enumerate(rows):
        given = dict(enumerate(row, free))
        assert found[number].tolist() == round_naively(tables, domains, noise[number % 2], given)[:free]


def state_of(problem, sweeps=30):
    """Return the local problem of all variables together, and its dual ascent."""
    local = divide(replace(problem, owner=np.zeros(problem.n_variables, dtype=np.int64))).locals[0]
    state = DualState(local, triangles=True)
    state.improve(sweeps=sweeps)
    return local, state


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_roundings_are_reproducible_assignments(seed):
    problem = random_problem(seed)
    local, state = state_of(problem, 3)
    found = [values.tolist() for values in rounded_assignments(state, seed)]
    assert found == [values.tolist() for values in rounded_assignments(state, seed)]
    sizes = local.domains[[*local.hidden, *local.interface]]
    assert all((np.array(values) < sizes).all() and min(values) >= 0 for values in found)
    assert len(found) == (4 if problem.n_variables else 0)


def tree(n=40, size=5):
    """Return a random tree of binary factors."""
    rng = np.random.default_rng(2)
    factors = tuple(Factor.of((int(rng.integers(v)), v), rng.integers(0, 1000, (size, size))) for v in range(1, n))
    return Problem(tuple(map(str, range(n))), [size] * n, ("all",), [0] * n, factors)


def test_a_tight_bound_is_rounded_to_the_optimum_and_local_search_starts_there():
    problem = tree()
    local, state = state_of(problem, 100)
    (values, *_) = rounded_assignments(state, 0)
    assigned = np.zeros(problem.n_variables, dtype=np.int64)
    assigned[list(local.hidden)] = values
    best = state.layout.scale.decode(int(state.bounds[0]))
    assert problem.evaluate(assigned).objective == best
    search = LocalSearch(problem, problem, 0, 1, NO_DEADLINE)
    search.suggest(assigned)
    assert problem.evaluate(search.improve(np.zeros(40, dtype=np.int64), 1e-3, 0)).objective == best


@pytest.mark.parametrize("seed", range(6))
def test_reparametrised_tables_add_up_to_the_factors_exactly(seed):
    problem = random_problem(seed, variables=6, factors=12, domain=4, arity=2 + seed % 2, hard=0.1)
    local, state = state_of(problem, 3)
    found = reparametrised(state, local)
    assert found is not None and reparametrised(None, local) is None
    for values in product(*map(range, problem.domains.tolist())):
        entries = [factor.entry([values[v] for v in factor.scope]) for factor in local.factors]
        shifted = [int(table.values[tuple(values[v] for v in table.scope)]) for table in found.query.tables]
        if None in entries:
            assert min(shifted) == found.query.arithmetic.lowest
        else:
            assert sum(shifted) == found.encode(sum(entries))
