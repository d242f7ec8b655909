"""Entries that no better assignment has are forbidden, and nothing else: brute force says so."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.samplers.local_search.dominated_entries import slack_of, without_hopeless
from dmcmc.samplers.local_search.local_search import LocalSearch


def worth(problem, values):
    return -problem.evaluate(values).violation, problem.utility_inside(np.asarray(values))


def with_dear_entries(problem, seed):
    """Some entries are far below all others, as constraints that are written as costs."""
    rng = np.random.default_rng(seed)
    factors = [
        Factor.of(f.scope, np.where(rng.random(f.table.shape) < 0.2, -1e4, f.table.astype(float)))
        for f in problem.factors
    ]
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, tuple(factors))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_better_assignments_keep_what_they_are_worth(seed):
    problem = with_dear_entries(random_problem(seed), seed)
    every = [np.array(values) for values in product(*map(range, problem.domains.tolist()))]
    incumbent = every[seed % len(every)]
    strict = without_hopeless(problem, slack_of(problem, incumbent))
    for values in every:
        if worth(problem, values) >= worth(problem, incumbent):
            assert worth(strict, values) == worth(problem, values)


def independent_set(n=60, penalty=-9.2):
    """Few neighbours may be taken together, which is written as a large cost; one not taken costs a little."""
    rng = np.random.default_rng(1)
    pairs = sorted({tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(4 * n)})
    factors = [Factor.of((v,), [-0.03, 0.0]) for v in range(n)]
    factors += [Factor.of(pair, [[0, 0], [0, penalty]]) for pair in pairs]
    return Problem(tuple(map(str, range(n))), [2] * n, ("all",), [0] * n, tuple(factors))


def test_constraints_that_are_written_as_costs_are_seen_as_such():
    problem = independent_set()
    none = np.zeros(60, dtype=np.int64)
    slack = slack_of(problem, none)
    strict = without_hopeless(problem, slack)
    assert 1.8 < slack < 1.81
    assert sum(factor.forbidden_entries() for factor in strict.factors) == sum(
        len(f.scope) == 2 for f in problem.factors
    )
    assert without_hopeless(problem, slack_of(problem, none + 1)) is problem  # breaks so much that nothing is hopeless
    search = LocalSearch(problem, problem, 0, 1, Stop())
    found = search.improve(search.first(), None, 100)
    assert search._field.hard
    assert worth(problem, found) >= worth(problem, search.first())


def test_what_has_violations_or_no_dear_entries_says_nothing():
    table = [[0, -np.inf], [-1, 0]]
    problem = Problem(("a", "b"), [2, 2], ("all",), [0, 0], (Factor.of((0, 1), table),))
    assert slack_of(problem, np.array([0, 1])) == np.inf
    assert without_hopeless(problem, np.inf) is problem
    assert without_hopeless(problem, slack_of(problem, np.array([1, 0]))) is problem
