"""Conversions of arrays of thresholds and bounds equal those of single numbers; limits on rows are respected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.generators.registry import generate
from dmcmc.inference.bounds import exact_residual, registry
from dmcmc.inference.bounds.dual import dual_bound as dual
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale, encode_bound, encode_bounds
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.arithmetic import Arithmetic, choose_arithmetic

SHIFTS = st.integers(-40, 21)
INTEGERS = st.one_of(st.integers(-50, 50), st.integers(-(2**59), 2**59))
INT32 = Arithmetic(np.dtype(np.int32), -(2**29), 2**27, True)
INT64 = Arithmetic(np.dtype(np.int64), -(2**61), 2**59, True)
FLOAT = Arithmetic(np.dtype(np.float64), -np.inf, 1e9)


@given(SHIFTS, st.lists(INTEGERS, max_size=6))
def test_integer_thresholds_are_encoded_as_one_by_one(shift, numbers):
    scale = Scale(shift, True, 2**60, -(2**60))
    thresholds = np.array([*numbers, 2**63 - 1], dtype=np.int64)
    expected = [*map(scale.encode, numbers), -MINUS_INFINITY]
    assert scale.encode_all(thresholds).tolist() == expected
    assert scale.encode_all(np.array([*numbers, np.inf], dtype=object)).tolist() == expected


@given(SHIFTS, st.booleans(), st.lists(st.floats(-1e12, 1e12), max_size=6))
def test_float_thresholds_are_encoded_as_one_by_one(shift, whole, numbers):
    scale = Scale(shift, whole, 1e13, -1e13)
    thresholds = [*numbers, np.inf, -np.inf]
    assert scale.encode_all(np.array(thresholds)).tolist() == [scale.encode(x) for x in thresholds]


@given(SHIFTS, st.lists(st.integers(-(2**26), 2**26), max_size=6), st.sampled_from([INT32, INT64, FLOAT]))
def test_bounds_are_encoded_as_one_by_one(shift, bounds, arithmetic):
    scale = Scale(shift, arithmetic.exact, 2**27, -(2**20))
    bounds = [*bounds, MINUS_INFINITY]
    expected = [encode_bound(scale.decode(b), arithmetic) for b in bounds]
    assert encode_bounds(np.array(bounds), scale, arithmetic).tolist() == expected


def agent():
    """Return a small agent with rows, and its arithmetic."""
    problem = generate("random", {"agents": 2, "variables_per_agent": 4, "domain_size": 5, "seed": 3})
    return divide(problem).locals[0], choose_arithmetic(problem.factors)


@pytest.mark.parametrize("memory_limit", [1, 1 << 20])
def test_the_allowed_values_of_rows_stay_within_their_memory_limit(memory_limit, monkeypatch):
    monkeypatch.setattr(dual, "MAX_ALLOWED_BYTES", memory_limit)
    local, _ = agent()
    state = registry.get("dual").start(local)
    low = np.full(local.rows, -(2**62))
    pruned = state.prune(low, sweeps=2)
    assert pruned.rows.tolist() == (list(range(local.rows)) if memory_limit > 1 else [0])
    assert pruned.allowed.shape[0] == pruned.rows.size == pruned.thresholds.size
    other = registry.get("dual").start(local)
    other.improve(sweeps=2)
    assert state.bounds.tolist() == other.bounds.tolist()


@pytest.mark.parametrize("max_plans", [1, 2, 1 << 14])
def test_no_more_than_the_maximum_number_of_plans_is_held(max_plans, monkeypatch):
    monkeypatch.setattr(exact_residual, "MAX_PLANS", max_plans)
    local, arithmetic = agent()
    state = registry.get("dual").start(local)
    pruned = state.prune(np.full(local.rows, -(2**62)), sweeps=2)
    unsolved = exact_residual.solve_residual(local, pruned, arithmetic, cells=10**6)
    assert unsolved == max(0, pruned.rows.size - max_plans)
