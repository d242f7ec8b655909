"""Many rows at once: their limits and bounds are turned from one kind of number into another as each alone would be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.generators.registry import generate
from dmcmc.inference.bounds import exact_residual, registry
from dmcmc.inference.bounds.dual import dual_bound as dual
from dmcmc.inference.bounds.dual.integer_scaling import NEVER, Scale, encode_bound, encode_bounds
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.arithmetic import Arithmetic, choose_arithmetic

SHIFTS = st.integers(-40, 21)
WHOLE = st.one_of(st.integers(-50, 50), st.integers(-(2**59), 2**59))
INT32 = Arithmetic(np.dtype(np.int32), -(2**29), 2**27, True)
INT64 = Arithmetic(np.dtype(np.int64), -(2**61), 2**59, True)
FLOAT = Arithmetic(np.dtype(np.float64), -np.inf, 1e9)


@given(SHIFTS, st.lists(WHOLE, max_size=6))
def test_whole_limits(shift, numbers):
    scale = Scale(shift, True, 2**60, -(2**60))
    limits = np.array([*numbers, 2**63 - 1], dtype=np.int64)
    expected = [*map(scale.encode, numbers), -NEVER]
    assert scale.encode_all(limits).tolist() == expected
    assert scale.encode_all(np.array([*numbers, np.inf], dtype=object)).tolist() == expected


@given(SHIFTS, st.booleans(), st.lists(st.floats(-1e12, 1e12), max_size=6))
def test_limits_that_are_floats(shift, whole, numbers):
    scale = Scale(shift, whole, 1e13, -1e13)
    limits = [*numbers, np.inf, -np.inf]
    assert scale.encode_all(np.array(limits)).tolist() == [scale.encode(x) for x in limits]


@given(SHIFTS, st.lists(st.integers(-(2**26), 2**26), max_size=6), st.sampled_from([INT32, INT64, FLOAT]))
def test_bounds(shift, bounds, arithmetic):
    scale = Scale(shift, arithmetic.exact, 2**27, -(2**20))
    bounds = [*bounds, NEVER]
    expected = [encode_bound(scale.decode(b), arithmetic) for b in bounds]
    assert encode_bounds(np.array(bounds), scale, arithmetic).tolist() == expected


def agent():
    """A small agent with rows, and the numbers that it is solved in."""
    problem = generate("random", {"agents": 2, "variables_per_agent": 4, "domain_size": 5, "seed": 3})
    return divide(problem).locals[0], choose_arithmetic(problem.factors)


@pytest.mark.parametrize("room", [1, 1 << 20])
def test_values_of_as_many_rows_are_kept_as_there_is_room_for(room, monkeypatch):
    monkeypatch.setattr(dual, "_LIVE", room)
    local, _ = agent()
    state = registry.get("dual").start(local)
    low = np.full(local.rows, -(2**62))
    pruned = state.prune(low, sweeps=2)
    assert pruned.rows.tolist() == (list(range(local.rows)) if room > 1 else [0])
    assert pruned.live.shape[0] == pruned.rows.size == pruned.thresholds.size
    other = registry.get("dual").start(local)
    other.improve(sweeps=2)
    assert state.bounds.tolist() == other.bounds.tolist()


@pytest.mark.parametrize("most", [1, 2, 1 << 14])
def test_no_more_plans_are_kept_than_can_be_carried_out(most, monkeypatch):
    monkeypatch.setattr(exact_residual, "_MOST", most)
    local, arithmetic = agent()
    state = registry.get("dual").start(local)
    pruned = state.prune(np.full(local.rows, -(2**62)), sweeps=2)
    left = exact_residual.settle(local, pruned, arithmetic, cells=10**6)
    assert left == max(0, pruned.rows.size - most)
