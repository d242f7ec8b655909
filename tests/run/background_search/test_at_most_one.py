"""Test that at-most-one constraints, and nothing else, are recognised in automata."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.formats.global_functions.builder import CostScale
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.model.automaton import unroll
from dmcmc.samplers.toulbar2.at_most_one import at_most_one
from dmcmc.samplers.toulbar2.process import available


def counting(shape, chosen, most, paid=0):
    """Return a factor that allows at most ``most`` of the chosen values, at a cost for each."""

    def step(position, count, value):
        count = count + (value in chosen[position])
        hard = position == len(shape) - 1 and count > most
        return (count, None if hard else -paid * (value in chosen[position]))

    return unroll(range(len(shape)), shape, 0, step)


@given(st.lists(st.integers(2, 3), min_size=2, max_size=5), st.integers(0, 2), st.integers(0, 1), st.data())
def test_a_recognised_constraint_is_equivalent_to_the_factor(shape, most, paid, data):
    chosen = [data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1)) for size in shape]
    factor = counting(shape, chosen, most, paid)
    found = at_most_one(factor)
    if found is not None:
        for values in product(*map(range, shape)):
            one = sum((v, x) in found for v, x in enumerate(values)) <= 1
            assert factor.entry(values) == (0 if one else None)
    if most == 1 and not paid and sum(map(bool, chosen)) == len(shape) > 2:
        assert found is not None


@pytest.mark.skipif(not available(), reason="needs pytoulbar2")
def test_a_run_passes_the_constraints_to_toulbar2():
    n, rng = 14, np.random.default_rng(2)
    clique = build("clique", range(n), [2] * n, {"rhs": 1, "values": [[[1]]] * n}, CostScale(1000))
    unary = [Factor.of((v,), rng.integers(-3, 9, 2)) for v in range(n)]
    pairs = [Factor.of((v, (v + 4) % n), rng.integers(0, 4, (2, 2))) for v in range(n)]
    problem = Problem(
        tuple(f"x{v}" for v in range(n)), np.full(n, 2), ("a",), np.zeros(n, dtype=np.int64), (*clique, *unary, *pairs)
    )
    exact = dmcmc.solve(problem, method="exact")
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="toulbar2", timeout=600)
    assert (result.status, result.objective) == ("optimal", exact.objective)
