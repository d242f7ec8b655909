"""What works on several entries of a table at a time does what its twin in NumPy does, to the bit."""

import numpy as np
import pytest
from numba import njit

from dmcmc.inference.bounds.dual.tables import (
    log_sum_exp_kernels,
    maxima_kernels,
    pair_message_kernels,
    pair_to_triangle_kernels,
    transpose_kernels,
    triangle_to_pair_kernels,
)
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD

ROWS, COLUMNS, WIDTH = 5, 16, 24


def table(rng, most=LIMIT // 4):
    """Entries, a part of them dead."""
    entries = rng.integers(-most, most, (WIDTH, WIDTH), dtype=np.int32)
    entries[rng.random(entries.shape) < 0.2] = DEAD
    return entries


@pytest.mark.parametrize("weight", [1.0, 0.5, 1 / 3])
@pytest.mark.parametrize("most", [1000, LIMIT // 4, LIMIT])
def test_what_is_handed_back_is_a_share_of_the_marginal_and_limits_are_seen(weight, most):
    rng, weight = np.random.default_rng(most), np.float32(weight)
    cluster, pair, rest = table(rng, most), table(rng, most), table(rng, most)
    before, twins = cluster.copy(), [cluster.copy(), pair.copy()]
    fits = triangle_to_pair_kernels.hand_back(cluster, pair, rest, weight, ROWS, COLUMNS)
    beyond = [
        triangle_to_pair_kernels._naive(*twins, rest, i, j, weight) for i in range(ROWS) for j in range(0, COLUMNS, 8)
    ]
    assert (cluster == twins[0]).all() and (pair == twins[1]).all() and fits == (not any(beyond))
    assert fits or most == LIMIT
    live = (before + rest >= THRESHOLD)[:ROWS, :COLUMNS]
    assert ((cluster + pair)[:ROWS, :COLUMNS][live] == before[:ROWS, :COLUMNS][live]).all()
    assert (cluster[:ROWS, :COLUMNS][~live] == DEAD).all() and (cluster[ROWS:] == before[ROWS:]).all()


def test_the_largest_of_columns():
    rng, out, twin = np.random.default_rng(1), *np.full((2, WIDTH), 7, dtype=np.int32)
    entries = table(rng)
    entries[:ROWS, 3] = 2 * DEAD
    maxima_kernels.column_maxima(entries, ROWS, COLUMNS, out)
    for j in range(0, COLUMNS, 8):
        maxima_kernels._naive(entries, j, ROWS, twin)
    assert (out[:COLUMNS] == np.maximum(twin[:COLUMNS], DEAD)).all() and (out[COLUMNS:] == 7).all() and out[3] == DEAD


def test_the_largest_of_rows():
    rng, out = np.random.default_rng(2), np.full(WIDTH, 7, dtype=np.int32)
    entries = table(rng)
    entries[3] = 2 * DEAD
    maxima_kernels.row_maxima(entries, ROWS, COLUMNS, out)
    expected = np.maximum(entries[:ROWS, :COLUMNS].max(axis=1), DEAD)
    assert (out[:ROWS] == expected).all() and (out[ROWS:] == 7).all() and out[3] == DEAD


def test_what_is_taken_in_is_added_and_the_dead_stay_dead():
    rng = np.random.default_rng(3)
    into, entries = table(rng), table(rng)
    twin = into.copy()
    pair_to_triangle_kernels.take_in(into, entries, ROWS, COLUMNS)
    for i in range(ROWS):
        for j in range(0, COLUMNS, 8):
            pair_to_triangle_kernels._naive(twin, entries, i, j)
    assert (into == twin).all()


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("most", [1000, LIMIT])
def test_shifts_leave_what_is_dead_and_limits_are_seen(by_row, most):
    rng = np.random.default_rng(most)
    entries, shifts = table(rng, most), table(rng, most)[0]
    twin, add = entries.copy(), pair_message_kernels.add_to_rows if by_row else pair_message_kernels.add_to_columns
    fits = add(entries, ROWS, COLUMNS, shifts)
    beyond = [
        pair_message_kernels._naive_add(twin, i, j, shifts, by_row) for i in range(ROWS) for j in range(0, COLUMNS, 8)
    ]
    assert (entries == twin).all() and fits == (not any(beyond)) == (most == 1000)


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("most", [1000, LIMIT])
def test_what_is_level_has_no_more_than_0(by_row, most):
    rng, (tops, tops_twin) = np.random.default_rng(most), np.full((2, WIDTH), 7, dtype=np.int32)
    entries = table(rng, most)
    entries[3], entries[:, 5] = DEAD, DEAD
    twin = entries.copy()
    if by_row:
        fits = pair_message_kernels.level_rows(entries, ROWS, COLUMNS, tops)
        beyond = [pair_message_kernels._naive_level_row(twin, i, COLUMNS, tops_twin) for i in range(ROWS)]
    else:
        fits = pair_message_kernels.level_columns(entries, ROWS, COLUMNS, tops)
        beyond = [pair_message_kernels._naive_level_columns(twin, j, ROWS, tops_twin) for j in range(0, COLUMNS, 8)]
    assert (entries == twin).all() and (tops == tops_twin).all() and fits == (not any(beyond)) == (most == 1000)
    best = entries[:ROWS, :COLUMNS].max(axis=1 if by_row else 0)
    assert set(best.tolist()) == {0, DEAD}


def test_a_table_is_turned():
    rng, out = np.random.default_rng(4), np.full((WIDTH, WIDTH), 7, dtype=np.int32)
    entries = table(rng)
    transpose_kernels.turn(entries, out, 8, COLUMNS)
    assert (out[:COLUMNS, :8] == entries[:8, :COLUMNS].T).all()
    assert (out[COLUMNS:] == 7).all() and (out[:, 8:] == 7).all()


@njit
def logarithms(bits, tops, best, i, j, back, up, out):
    return log_sum_exp_kernels.logarithms(bits, tops, best, i, j, back, up, out)


@njit
def put_where_few(bits, exact, i, j, out):
    log_sum_exp_kernels.put_where_few(bits, exact, i, j, out)


@pytest.mark.parametrize("by_rows", [True, False])
def test_exponentials_and_logarithms(by_rows):
    rng, (bits, twin, back, back_twin) = np.random.default_rng(2), np.zeros((4, WIDTH, WIDTH), dtype=np.int32)
    entries, slope = table(rng, 500), np.float32(log_sum_exp_kernels.STEP / 20)
    tops, tops_twin = np.full((2, WIDTH), 7, dtype=np.int32)
    if by_rows:
        log_sum_exp_kernels.powers_of_rows(entries, ROWS, COLUMNS, slope, tops, bits)
        for i in range(ROWS):
            log_sum_exp_kernels._naive_of_row(entries, i, COLUMNS, slope, tops_twin, twin)
    else:
        log_sum_exp_kernels.powers_of_columns(entries, ROWS, COLUMNS, slope, tops, bits)
        for j in range(0, COLUMNS, 8):
            log_sum_exp_kernels._naive_of_columns(entries, j, ROWS, slope, tops_twin, twin)
    assert (bits == twin).all() and (bits[:ROWS, :COLUMNS] == 0).any() and bits[:ROWS, :COLUMNS].any()
    assert (tops == tops_twin).all()
    for i in range(ROWS):
        for j in range(0, COLUMNS, 8):
            few = logarithms(bits, tops, tops, i, j, np.float32(1 / slope), np.int32(3), back)
            twins = log_sum_exp_kernels._naive_logarithms(
                twin, tops, tops, i, j, np.float32(1 / slope), np.int32(3), back_twin
            )
            assert bool(few) == bool(twins)
            put_where_few(bits, entries, i, j, back)
            log_sum_exp_kernels._naive_put_where_few(twin, entries, i, j, back_twin)
    assert (back == back_twin).all()
