"""Semidefinite bounds are sound for any result of the descent, and never increase."""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.semidefinite.dense_agents import dense_agent as agent
from support.semidefinite.naive_certificates import certified_bounds

from dmcmc import Factor
from dmcmc.inference.bounds.contract.tuning import TRIAL_STEPS
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.certificate import pair_maxima_sum
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation, is_suitable
from dmcmc.inference.bounds.semidefinite.utility_matrix import build_utility_matrix, joint_matrix, spectral_start
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline


def exact_values(local):
    return naive.row_values(local).ravel().tolist()


def decoded(state):
    return [state.layout.scale.decode(int(bound)) for bound in state.bounds]


def random_point(matrix, rng, rank, size):
    """Return random factor vectors and messages."""
    n, h = matrix.variable_of.size, matrix.starts.size - 1
    vectors = size * rng.standard_normal((n + sum(matrix.shape) + 1, rank))
    return vectors, size * rng.standard_normal((h, n))


@settings(max_examples=60)
@given(
    st.integers(0, 9999), st.sampled_from([0.0, 0.2, 0.6]), st.booleans(), st.sampled_from([0, 1, 2]),
    st.sampled_from([0.0, 0.3, 20.0, 1e3]),
)  # fmt: skip
def test_any_vectors_and_messages_bound_every_row(seed, hard, floats, interface, size):
    local = agent(seed, interface=interface, hard=hard, floats=floats)
    matrix = build_utility_matrix(local)
    bounds = certified_bounds(
        matrix, *random_point(matrix, np.random.default_rng(seed), 3, size), np.arange(local.rows)
    )
    for bound, value in zip(bounds.tolist(), exact_values(local), strict=True):
        assert matrix.scale.decode(bound) >= value - 1e-9 * floats


@settings(max_examples=25)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3]), st.booleans(), st.sampled_from([1, 2]))
def test_relaxed_bounds_are_sound_and_never_increase(seed, hard, floats, interface):
    local = agent(seed, interface=interface, hard=hard, floats=floats)
    state = DualState(local, triangles=False)
    relaxation, before = SemidefiniteRelaxation(state), state.bounds.copy()
    for steps in (1, 3, 20):
        relaxation.improve(steps=steps)
        assert (state.bounds <= before).all()
        assert all(w >= u - 1e-9 * floats for w, u in zip(decoded(state), exact_values(local), strict=True))
        before = state.bounds.copy()


def table_of(matrix, vectors, messages, u, v):
    """Return the entries of a pair's table as exact fractions; the certificate is their maximum."""
    found = []
    for a in range(matrix.starts[u], matrix.starts[u + 1]):
        for b in range(matrix.starts[v], matrix.starts[v + 1]):
            if matrix.pairs[a, b] >= FORBIDDEN_BELOW:
                product = sum(Fraction(x) * Fraction(y) for x, y in zip(vectors[a], vectors[b], strict=True))
                found.append(
                    int(matrix.pairs[a, b]) + 2 * product - Fraction(messages[v, a]) - Fraction(messages[u, b])
                )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_certificate_is_the_sum_of_the_maxima_rounded_up(seed):
    local = agent(seed, hidden=3, interface=2, hard=0.1)
    matrix, rng = build_utility_matrix(local), np.random.default_rng(seed)
    # Multiples of 1/16 are exact with twelve fraction bits.
    vectors, messages = (np.round(16 * x) / 16 for x in random_point(matrix, rng, 2, 3.0))
    n, h = matrix.variable_of.size, matrix.starts.size - 1
    messages[matrix.variable_of, np.arange(n)] = 0
    found = certified_bounds(matrix, vectors, messages, np.arange(local.rows))
    pairs = sum(max(table_of(matrix, vectors, messages, u, v)) for u, v in combinations(range(h), 2))
    for row, bound in enumerate(found.tolist()):
        digits = matrix.digits(np.array([row]))
        positions = [*(digits[0] + [0, matrix.shape[0]] + n), -1]  # of the boundary values and the constant
        row_vector = [sum(Fraction(vectors[p, k]) for p in positions) for k in range(2)]
        total = pairs + int(matrix.interface_utilities(digits)[0]) + sum(x * x for x in row_vector)
        values, infeasible = matrix.value_utilities(digits)[0], False
        for first, last in pairwise(matrix.starts):
            entries = [
                int(values[a])
                + sum(Fraction(x) ** 2 + 2 * y * Fraction(x) for x, y in zip(vectors[a], row_vector, strict=True))
                + sum(Fraction(x) for x in messages[:, a])
                for a in range(first, last)
                if values[a] >= FORBIDDEN_BELOW
            ]
            infeasible |= not entries
            total += max(entries, default=0)
        infeasible |= int(matrix.interface_utilities(digits)[0]) < FORBIDDEN_BELOW
        assert bound == (MINUS_INFINITY if infeasible else math.ceil(total))


def test_the_joint_agents_utilities_bound_the_excesses_of_rows():
    local = agent(8, hidden=3, interface=2, hard=0.1)
    matrix, rng = build_utility_matrix(local), np.random.default_rng(0)
    rows, cutoffs = np.arange(0, local.rows, 2), rng.normal(0, 1e4, -(-local.rows // 2))
    joint, n = joint_matrix(matrix, rows, cutoffs), matrix.variable_of.size
    assert (joint.pairs == joint.pairs.T).all() and (joint.pairs[:n, :n] == matrix.pairs).all()
    digits = matrix.digits(rows)
    positions = np.add(digits, [n, n + matrix.shape[0]])
    excesses = matrix.interface_utilities(digits) - cutoffs
    bounds = joint.unary[positions].sum(axis=1)  # relative to the largest excess
    assert (bounds >= excesses - excesses.max() - 2).all()
    values = matrix.value_utilities(digits) - matrix.unary
    pairwise_sums = joint.pairs[positions, :n].sum(axis=1)
    allowed = values >= FORBIDDEN_BELOW
    assert (pairwise_sums[allowed] == values[allowed]).all() and (pairwise_sums[~allowed] < FORBIDDEN_BELOW).all()


def test_more_rows_than_one_share_a_descent_that_lowers_all_of_them():
    local = agent(11, hidden=6, interface=2, max_domain=9, density=1.0)
    state = DualState(local, triangles=False)
    before = state.bounds.copy()
    SemidefiniteRelaxation(state).improve(steps=60)
    assert (state.bounds < before).all()


def test_exact_maxima_equal_the_numpy_reference():
    matrix = build_utility_matrix(agent(6, hidden=4, hard=0.3))
    rng, n, h = np.random.default_rng(1), matrix.variable_of.size, matrix.starts.size - 1
    vectors, messages = rng.integers(-9, 10, (n, 3)).astype(np.float64), rng.integers(-99, 100, (h, n))
    expected = 0
    for u, v in combinations(range(h), 2):
        values_u, values_v = slice(*matrix.starts[u : u + 2]), slice(*matrix.starts[v : v + 2])
        product = vectors[values_u] @ vectors[values_v].T
        table = (matrix.pairs[values_u, values_v].astype(np.int64) << 4) + 2 * product.astype(np.int64)
        table -= messages[v, values_u][:, None] + messages[u, values_v]
        table[matrix.pairs[values_u, values_v] < FORBIDDEN_BELOW] = MINUS_INFINITY
        expected = MINUS_INFINITY if MINUS_INFINITY in (expected, table.max()) else expected + int(table.max())
    assert pair_maxima_sum(matrix, vectors, messages, 4) == expected
    matrix.pairs[values_u, values_v] = -(1 << 29)
    assert pair_maxima_sum(matrix, vectors, messages, 4) == MINUS_INFINITY


def test_a_dense_agent_is_bounded_better_than_by_ascent_on_pairs():
    local = agent(0, hidden=7, max_domain=4, density=1.0)
    dual_only, state = DualState(local, triangles=False), DualState(local, triangles=False)
    dual_only.improve(sweeps=30)
    SemidefiniteRelaxation(state).improve(steps=120)
    gaps = [max(decoded(one)) - max(exact_values(local)) for one in (state, dual_only)]
    assert 0 <= gaps[0] < 0.5 * gaps[1]


def test_a_relaxation_resumes_and_stops_once_it_cannot_gain():
    local = agent(4, hidden=5)
    state = DualState(local, triangles=True)
    state.bounds -= 1 << 40  # far below anything that the relaxation can prove
    relaxation, before = SemidefiniteRelaxation(state), state.bounds.copy()
    relaxation.improve(steps=TRIAL_STEPS // 2)
    assert relaxation.steps == TRIAL_STEPS // 2 and relaxation.untested and not relaxation.exhausted
    relaxation.improve(steps=TRIAL_STEPS)
    assert relaxation.exhausted and (state.bounds == before).all()
    steps_before = relaxation.steps
    relaxation.improve(steps=5)
    assert relaxation.steps == steps_before


def test_cutoffs_choose_the_row_that_is_lowered():
    local = agent(11, hidden=6, max_domain=9, density=1.0)
    assert local.rows > 2
    states = [DualState(local, triangles=False) for _ in range(2)]
    SemidefiniteRelaxation(states[0]).improve(steps=150)
    lowest = int(states[0].bounds.argmin())
    cutoffs = np.full(local.rows, 1e9)
    cutoffs[lowest] = 0.0
    SemidefiniteRelaxation(states[1]).improve(steps=150, cutoffs=cutoffs)
    assert states[1].bounds[lowest] < states[0].bounds[lowest]


def test_numbers_that_are_too_large_are_not_certified():
    matrix = build_utility_matrix(agent(2))
    vectors, messages = random_point(matrix, np.random.default_rng(0), 2, 1.0)
    for factor in (1e30, np.inf, np.nan):
        assert certified_bounds(matrix, vectors * factor, messages, np.arange(2)) is None


def test_wide_factors_a_past_deadline_and_constant_tables_leave_bounds_unchanged():
    rng = np.random.default_rng(0)
    wide = LocalProblem(0, (3,), (0, 1, 2), (Factor.of((0, 1, 2), rng.integers(0, 9, (2, 2, 2))),), np.full(4, 2))
    flat = LocalProblem(0, (2,), (0, 1), (Factor.of((0, 1), np.ones((2, 2), dtype=np.int64)),), np.full(3, 2))
    for local, backend in ((wide, Backend()), (flat, Backend()), (agent(1), Backend(stop=Deadline(until=0.0)))):
        state = DualState(local, triangles=False, backend=backend)
        before = state.bounds.copy()
        SemidefiniteRelaxation(state).improve(steps=5)
        assert (state.bounds == before).all()


def test_agents_with_few_variables_or_factors_are_not_suitable():
    assert not is_suitable(agent(1, hidden=8))
    assert is_suitable(agent(1, hidden=16, max_domain=3), on_gpu=True) and not is_suitable(
        agent(1, hidden=16, max_domain=3)
    )
    assert is_suitable(agent(1, hidden=31, max_domain=3)) and not is_suitable(
        agent(1, hidden=31, max_domain=3, density=0.1)
    )


def test_the_spectral_start_removes_means_and_most_of_the_negative_part():
    matrix = build_utility_matrix(agent(3, hidden=6, max_domain=9, density=1.0))
    vectors, messages = spectral_start(matrix, matrix.unit)
    n = matrix.variable_of.size
    assert 1 <= vectors.shape[1] < n and (messages[matrix.variable_of, np.arange(n)] == 0).all()
    table = matrix.pairs / matrix.unit - messages[matrix.variable_of] - messages[matrix.variable_of].T
    for first, last in pairwise(matrix.starts):
        table[first:last, first:last] = 0
        assert np.allclose(table[first:last].sum(axis=0), 0, atol=1e-3)
    before, after = (np.linalg.eigvalsh(one)[0] for one in (table, table + 2 * vectors @ vectors.T))
    assert before < 0 and after > 0.1 * before
