"""Vectorised kernels equal their NumPy twins to the bit."""

import numpy as np
import pytest
from numba import njit

from dmcmc.inference.bounds.dual import log_sum_exp_kernels, message_kernels
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.message_kernels import (
    add_table,
    add_to_columns,
    add_to_rows,
    send_to_pair,
    subtract_column_maxima,
    subtract_row_maxima,
    transpose,
)

ROWS, COLUMNS, WIDTH = 5, 16, 24


def table(rng, most=MAX_MAGNITUDE // 4):
    """Return random entries, a fifth of them forbidden."""
    entries = rng.integers(-most, most, (WIDTH, WIDTH), dtype=np.int32)
    entries[rng.random(entries.shape) < 0.2] = FORBIDDEN
    return entries


@pytest.mark.parametrize("weight", [1.0, 0.5, 1 / 3])
@pytest.mark.parametrize("largest", [1000, MAX_MAGNITUDE // 4, MAX_MAGNITUDE])
def test_a_triangle_sends_a_fraction_of_its_max_marginal_and_the_range_is_checked(weight, largest):
    rng, weight = np.random.default_rng(largest), np.float32(weight)
    triangle, pair, other_tables = table(rng, largest), table(rng, largest), table(rng, largest)
    before, twins = triangle.copy(), [triangle.copy(), pair.copy()]
    fits = send_to_pair(triangle, pair, other_tables, weight, ROWS, COLUMNS)
    out_of_range = [
        message_kernels._naive_send(*twins, other_tables, i, j, weight)
        for i in range(ROWS)
        for j in range(0, COLUMNS, 8)
    ]
    assert (triangle == twins[0]).all() and (pair == twins[1]).all() and fits == (not any(out_of_range))
    assert fits or largest == MAX_MAGNITUDE
    allowed = (before + other_tables >= FORBIDDEN_BELOW)[:ROWS, :COLUMNS]
    assert ((triangle + pair)[:ROWS, :COLUMNS][allowed] == before[:ROWS, :COLUMNS][allowed]).all()
    assert (triangle[:ROWS, :COLUMNS][~allowed] == FORBIDDEN).all() and (triangle[ROWS:] == before[ROWS:]).all()


def test_column_maxima():
    rng, out, twin = np.random.default_rng(1), *np.full((2, WIDTH), 7, dtype=np.int32)
    entries = table(rng)
    entries[:ROWS, 3] = 2 * FORBIDDEN
    message_kernels.column_maxima(entries, ROWS, COLUMNS, out)
    for j in range(0, COLUMNS, 8):
        message_kernels._naive_columns(entries, j, ROWS, twin)
    assert (
        (out[:COLUMNS] == np.maximum(twin[:COLUMNS], FORBIDDEN)).all()
        and (out[COLUMNS:] == 7).all()
        and out[3] == FORBIDDEN
    )


def test_row_maxima():
    rng, out = np.random.default_rng(2), np.full(WIDTH, 7, dtype=np.int32)
    entries = table(rng)
    entries[3] = 2 * FORBIDDEN
    message_kernels.row_maxima(entries, ROWS, COLUMNS, out)
    expected = np.maximum(entries[:ROWS, :COLUMNS].max(axis=1), FORBIDDEN)
    assert (out[:ROWS] == expected).all() and (out[ROWS:] == 7).all() and out[3] == FORBIDDEN


def test_a_pair_is_added_to_a_triangle_and_forbidden_entries_stay_forbidden():
    rng = np.random.default_rng(3)
    into, entries = table(rng), table(rng)
    twin = into.copy()
    add_table(into, entries, ROWS, COLUMNS)
    for i in range(ROWS):
        for j in range(0, COLUMNS, 8):
            message_kernels._naive_add_to_entries(twin, entries, i, j)
    assert (into == twin).all()


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("most", [1000, MAX_MAGNITUDE])
def test_messages_keep_forbidden_entries_and_the_range_is_checked(by_row, most):
    rng = np.random.default_rng(most)
    entries, message = table(rng, most), table(rng, most)[0]
    twin, add = entries.copy(), add_to_rows if by_row else add_to_columns
    fits = add(entries, ROWS, COLUMNS, message)
    out_of_range = [
        message_kernels._naive_add(twin, i, j, message, by_row) for i in range(ROWS) for j in range(0, COLUMNS, 8)
    ]
    assert (entries == twin).all() and fits == (not any(out_of_range)) == (most == 1000)


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("most", [1000, MAX_MAGNITUDE])
def test_subtracting_maxima_leaves_maxima_of_0(by_row, most):
    rng, (maxima, maxima_twin) = np.random.default_rng(most), np.full((2, WIDTH), 7, dtype=np.int32)
    entries = table(rng, most)
    entries[3], entries[:, 5] = FORBIDDEN, FORBIDDEN
    twin = entries.copy()
    if by_row:
        fits = subtract_row_maxima(entries, ROWS, COLUMNS, maxima)
        out_of_range = [message_kernels._naive_subtract_row_maximum(twin, i, COLUMNS, maxima_twin) for i in range(ROWS)]
    else:
        fits = subtract_column_maxima(entries, ROWS, COLUMNS, maxima)
        out_of_range = [
            message_kernels._naive_subtract_column_maxima(twin, j, ROWS, maxima_twin) for j in range(0, COLUMNS, 8)
        ]
    assert (
        (entries == twin).all() and (maxima == maxima_twin).all() and fits == (not any(out_of_range)) == (most == 1000)
    )
    best = entries[:ROWS, :COLUMNS].max(axis=1 if by_row else 0)
    assert set(best.tolist()) == {0, FORBIDDEN}


def test_a_table_is_transposed():
    rng, out = np.random.default_rng(4), np.full((WIDTH, WIDTH), 7, dtype=np.int32)
    entries = table(rng)
    transpose(entries, out, 8, COLUMNS)
    assert (out[:COLUMNS, :8] == entries[:8, :COLUMNS].T).all()
    assert (out[COLUMNS:] == 7).all() and (out[:, 8:] == 7).all()


@njit
def write_logarithms(bits, row_maxima, column_maxima, i, j, units_per_bit, margin, out):
    """Call the intrinsic from compiled code."""
    return log_sum_exp_kernels.write_logarithms(bits, row_maxima, column_maxima, i, j, units_per_bit, margin, out)


@njit
def replace_small_sums(bits, exact, i, j, out):
    """Call the intrinsic from compiled code."""
    log_sum_exp_kernels.replace_small_sums(bits, exact, i, j, out)


@pytest.mark.parametrize("by_rows", [True, False])
def test_exponentials_and_logarithms(by_rows):
    rng, (bits, twin, results, results_twin) = np.random.default_rng(2), np.zeros((4, WIDTH, WIDTH), dtype=np.int32)
    entries, bits_per_unit = table(rng, 500), np.float32(log_sum_exp_kernels.BITS_PER_DOUBLING / 20)
    maxima, maxima_twin = np.full((2, WIDTH), 7, dtype=np.int32)
    if by_rows:
        log_sum_exp_kernels.exponentiate_rows(entries, ROWS, COLUMNS, bits_per_unit, maxima, bits)
        for i in range(ROWS):
            log_sum_exp_kernels._naive_exponentiate_row(entries, i, COLUMNS, bits_per_unit, maxima_twin, twin)
    else:
        log_sum_exp_kernels.exponentiate_columns(entries, ROWS, COLUMNS, bits_per_unit, maxima, bits)
        for j in range(0, COLUMNS, 8):
            log_sum_exp_kernels._naive_exponentiate_columns(entries, j, ROWS, bits_per_unit, maxima_twin, twin)
    assert (bits == twin).all() and (bits[:ROWS, :COLUMNS] == 0).any() and bits[:ROWS, :COLUMNS].any()
    assert (maxima == maxima_twin).all()
    for i in range(ROWS):
        for j in range(0, COLUMNS, 8):
            unreliable = write_logarithms(
                bits, maxima, maxima, i, j, np.float32(1 / bits_per_unit), np.int32(3), results
            )
            twins = log_sum_exp_kernels._naive_write_logarithms(
                twin, maxima, maxima, i, j, np.float32(1 / bits_per_unit), np.int32(3), results_twin
            )
            assert bool(unreliable) == bool(twins)
            replace_small_sums(bits, entries, i, j, results)
            log_sum_exp_kernels._naive_replace_small_sums(twin, entries, i, j, results_twin)
    assert (results == results_twin).all()
