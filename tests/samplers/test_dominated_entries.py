"""Entries dominated by the incumbent, and no others, are forbidden; verified by brute force."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.presolve.dominance import forbid_dominated, slack_of
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.local_search.local_search import LocalSearch


def score(problem, values):
    return -problem.evaluate(values).violation, problem.utility_inside(np.asarray(values))


def with_large_costs(problem, seed):
    """Some entries are far below all others, as constraints written as costs are."""
    rng = np.random.default_rng(seed)
    factors = [
        Factor.of(f.scope, np.where(rng.random(f.table.shape) < 0.2, -1e4, f.table.astype(float)))
        for f in problem.factors
    ]
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, tuple(factors))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_better_assignments_keep_their_utility(seed):
    problem = with_large_costs(random_problem(seed), seed)
    every = [np.array(values) for values in product(*map(range, problem.domains.tolist()))]
    incumbent = every[seed % len(every)]
    strict = forbid_dominated(problem, slack_of(problem, incumbent))
    for values in every:
        if score(problem, values) >= score(problem, incumbent):
            assert score(strict, values) == score(problem, values)


def independent_set(n=60, penalty=-9.2):
    """Neighbours may not be taken together, which is written as a large cost; a variable not taken costs a little."""
    rng = np.random.default_rng(1)
    pairs = sorted({tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(4 * n)})
    factors = [Factor.of((v,), [-0.03, 0.0]) for v in range(n)]
    factors += [Factor.of(pair, [[0, 0], [0, penalty]]) for pair in pairs]
    return Problem(tuple(map(str, range(n))), [2] * n, ("all",), [0] * n, tuple(factors))


def test_constraints_written_as_costs_are_recognised():
    problem = independent_set()
    none = np.zeros(60, dtype=np.int64)
    slack = slack_of(problem, none)
    strict = forbid_dominated(problem, slack)
    assert 1.8 < slack < 1.81
    assert sum(factor.forbidden_entries() for factor in strict.factors) == sum(
        len(f.scope) == 2 for f in problem.factors
    )
    assert forbid_dominated(problem, slack_of(problem, none + 1)) is problem  # many violations
    search = LocalSearch(problem, problem, 0, 1, Deadline())
    found = search.improve(search.first(), None, 100)
    assert search.chains.chain_problem.factory.hard
    assert score(problem, found) >= score(problem, search.first())


def test_assignments_with_violations_and_tables_without_large_costs_forbid_nothing():
    table = [[0, -np.inf], [-1, 0]]
    problem = Problem(("a", "b"), [2, 2], ("all",), [0, 0], (Factor.of((0, 1), table),))
    assert slack_of(problem, np.array([0, 1])) == np.inf
    assert forbid_dominated(problem, np.inf) is problem
    assert forbid_dominated(problem, slack_of(problem, np.array([1, 0]))) is problem
