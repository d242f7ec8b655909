"""Scaled integers never lie below the utilities that they stand for, and conversions keep the order of numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.dual.integer_scaling import (
    FORBIDDEN,
    FORBIDDEN_BELOW,
    MAX_MAGNITUDE,
    MINUS_INFINITY,
    Scale,
    quantise,
)

SEEDS = st.integers(0, 9999)
MAGNITUDES = st.sampled_from([1, 9, 10**6, 2**40, 2**57])


def random_factors(seed, magnitude, floats, hard=0.2):
    """Return factors over one to three variables of two to four values."""
    rng = np.random.default_rng(seed)
    shapes = [(3,), (2, 4), (4, 2), (2, 3, 2)]
    tables = [random_table(rng, shape, magnitude, hard, floats=floats) for shape in shapes]
    return [Factor.of(tuple(range(table.ndim)), table) for table in tables]


@settings(max_examples=60)
@given(SEEDS, MAGNITUDES, st.booleans())
def test_scaled_entries_are_rounded_up_and_forbidden_ones_stay_forbidden(seed, magnitude, floats):
    factors = random_factors(seed, magnitude, floats)
    scale, tables = quantise(factors)
    for factor, table in zip(factors, tables, strict=True):
        assert table.dtype == np.int32 and table.shape == factor.table.shape
        for index in np.ndindex(table.shape):
            utility, entry = factor.entry(index), int(table[index])
            if utility is None:
                assert entry == FORBIDDEN
            else:
                unit = math.ldexp(1.0, -scale.shift)
                assert entry * unit >= utility and (entry - 1) * unit <= utility + 1e-9 * abs(utility)


@settings(max_examples=60)
@given(SEEDS, MAGNITUDES, st.booleans())
def test_the_sum_of_all_tables_is_far_below_the_largest_magnitude(seed, magnitude, floats):
    _, tables = quantise(random_factors(seed, magnitude, floats))
    total = sum(int(np.abs(np.where(table < FORBIDDEN_BELOW, 0, table)).max()) for table in tables)
    assert total <= MAX_MAGNITUDE // 8 + len(tables)


@settings(max_examples=60)
@given(SEEDS, MAGNITUDES, st.booleans())
def test_every_utility_lies_between_floor_and_ceiling(seed, magnitude, floats):
    factors = random_factors(seed, magnitude, floats)
    scale, _ = quantise(factors)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        entries = [factor.entry(tuple(rng.integers(0, factor.table.shape))) for factor in factors]
        if None not in entries:
            assert scale.floor <= sum(entries) <= scale.ceiling


@pytest.mark.parametrize("integral", [True, False])
@given(st.integers(-20, 20), st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=6))
def test_decoding_keeps_the_order_and_minus_infinity(integral, shift, bounds):
    scale = Scale(shift, integral, 2**62, -(2**62))
    decoded = [scale.decode(bound) for bound in sorted(bounds)]
    assert decoded == sorted(decoded)
    assert scale.decode(MINUS_INFINITY) == -math.inf
    assert all(isinstance(number, int) for number in decoded) == integral


@given(st.integers(-20, 20), st.integers(-(2**40), 2**40))
def test_a_bound_that_is_encoded_up_is_never_decoded_below_itself(shift, value):
    for integral in (True, False):
        scale = Scale(shift, integral, 2**62, -(2**62))
        assert scale.decode_up(scale.encode_up(value)) >= value
        assert scale.encode_up(-math.inf) == MINUS_INFINITY


@given(st.integers(-20, 20), st.integers(-(2**40), 2**40), st.integers(-(2**44), 2**44))
def test_a_row_is_below_its_cutoff_only_if_its_bound_is_below_the_threshold(shift, threshold, bound):
    scale = Scale(shift, True, 2**62, -(2**62))
    if bound < scale.encode(threshold):
        assert scale.decode(bound) < threshold
    assert scale.encode(math.inf) == -MINUS_INFINITY and scale.encode(-math.inf) == MINUS_INFINITY
