"""Conversions of arrays of thresholds and bounds equal those of single numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale, encode_bound, encode_bounds
from dmcmc.inference.model.arithmetic import Arithmetic

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
