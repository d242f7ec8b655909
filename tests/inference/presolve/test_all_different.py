"""Test all-different by matching: it removes exactly the values that no assignment of different values has."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.constraints.all_different import supported_values
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.dominance import all_different_groups


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_values_of_some_matching_stay(domains):
    domains = [sorted(domain) for domain in domains]
    all_different = [c for c in product(*domains) if len(set(c)) == len(c)]
    expected = [[any(c[i] == x for c in all_different) for x in domain] for i, domain in enumerate(domains)]
    assert supported_values(domains) == (expected if all_different else None)


def at_most(count, value):
    return lambda place, seen, x: (seen + (x == value), None if seen + (x == value) > count else 0)


def test_groups_are_found_in_automata_and_in_cliques():
    n, shape = 5, [3, 3, 3, 3, 3]
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0)
    once = [unroll((0, 1, 2), shape[:3], 0, at_most(1, value)) for value in range(3)]
    pairs = [Factor.of(pair, differ) for pair in ((2, 3), (3, 4), (4, 2), (0, 4))]

    def problem(factors):
        return Problem(tuple("abcde"), shape, ("me",), [0] * n, tuple(factors))

    assert all_different_groups(problem(once + pairs)) == [(0, 1, 2), (2, 3, 4)]
    assert all_different_groups(problem(once[:2])) == []
    twice = unroll((0, 1, 2), shape[:3], 0, at_most(2, 2))
    assert all_different_groups(problem([*once[:2], twice])) == []
