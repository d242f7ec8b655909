"""Jumps of joint proposals: exactly the paper's rounded normal distribution, reflected, and symmetric."""

from math import erf, sqrt

import numpy as np
import pytest

from dmcmc.samplers.model.proposal_kernels import COLUMNS, MIDDLE, jump, jump_table, jumps_of, reflected

SIZES = (1, 2, 24, 96, 65_536)


def words_of_jumps(size):
    """Return how many of the 2^32 words make each jump, counted from the table."""
    counts = [0] * COLUMNS
    for column, entry in enumerate(jump_table(size).tolist()):
        counts[column] += entry >> 8
        counts[entry & 255] += (1 << 24) - (entry >> 8)
    return np.array(counts, dtype=np.int64)


@pytest.mark.parametrize("size", SIZES)
def test_jumps_are_rounded_normal_numbers_with_variance_sqrt_of_the_domain_size(size):
    counts, deviation = words_of_jumps(size), size**0.25
    ends = np.arange(-MIDDLE, MIDDLE + 1) - 0.5
    below = np.array([0.5 + 0.5 * erf(x / deviation / sqrt(2)) for x in ends])
    assert counts.sum() == 1 << 32
    np.testing.assert_allclose(counts / 2.0**32, np.diff(below), atol=1e-8)
    np.testing.assert_array_equal(counts[1:], counts[:0:-1])


def test_a_word_selects_the_jump_that_the_table_defines():
    jumps, offsets = jumps_of(np.array([24, 9, 24], dtype=np.int32))
    assert offsets[0] == offsets[2] != offsets[1]
    for word in np.random.default_rng(1).integers(0, 1 << 32, 200).tolist():
        column, entry = word >> 24, int(jumps[offsets[0] + (word >> 24)])
        expected = column if word % (1 << 24) < entry >> 8 else entry & 255
        assert jump(jumps, int(offsets[0]), np.uint64(word)) == expected - MIDDLE


@pytest.mark.parametrize("size", [1, 2, 3, 24])
def test_proposals_are_reflected_until_they_are_inside(size):
    mirrored = [*range(size), *reversed(range(size))]
    for value in range(-130, size + 130):
        assert reflected(np.int32(value), np.int32(size)) == mirrored[value % (2 * size)]


def test_proposals_are_symmetric():
    size, counts = 5, words_of_jumps(5)
    transitions = np.zeros((size, size), dtype=np.int64)
    for z in range(size):
        for column, count in enumerate(counts.tolist()):
            transitions[z, reflected(np.int32(z + column - MIDDLE), np.int32(size))] += count
    np.testing.assert_array_equal(transitions, transitions.T)
