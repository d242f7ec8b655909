"""Semidefinite bounds are sound whatever the descent finds, and never worse than what they start from."""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.semidefinite.dense_agents import dense_agent as agent

from dmcmc import Factor
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.certificate import certified, whole_square
from dmcmc.inference.bounds.semidefinite.descent import TRIAL
from dmcmc.inference.bounds.semidefinite.initial_factors import spectral_start
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER, pair_maxima, smooth_pairs
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, suits
from dmcmc.inference.bounds.semidefinite.row_dual_ascent import ascended, with_square
from dmcmc.inference.bounds.semidefinite.utility_matrix import lay_out
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop


def worth(local):
    return naive.row_values(local).ravel().tolist()


def decoded(state):
    return [state.layout.scale.decode(int(bound)) for bound in state.bounds]


def anything(network, rng, rank, size):
    """Vectors and shifts that nobody has chosen well."""
    n, h = network.owner.size, network.starts.size - 1
    vectors = size * rng.standard_normal((n + sum(network.shape), rank))
    return vectors, size * rng.standard_normal((h, n))


@settings(max_examples=60)
@given(
    st.integers(0, 9999), st.sampled_from([0.0, 0.2, 0.6]), st.booleans(), st.sampled_from([0, 1, 2]),
    st.sampled_from([0.0, 0.3, 20.0, 1e3]),
)  # fmt: skip
def test_any_vectors_and_shifts_bound_every_row(seed, hard, floats, interface, size):
    local = agent(seed, interface=interface, hard=hard, floats=floats)
    network = lay_out(local)
    bounds = certified(network, *anything(network, np.random.default_rng(seed), 3, size), np.arange(local.rows))
    for bound, value in zip(bounds.tolist(), worth(local), strict=True):
        assert network.scale.decode(bound) >= value - 1e-9 * floats


@settings(max_examples=25)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3]), st.booleans(), st.sampled_from([1, 2]))
def test_lifted_bounds_are_sound_and_never_worse_than_what_they_start_from(seed, hard, floats, interface):
    local = agent(seed, interface=interface, hard=hard, floats=floats)
    state = DualState(local, triangles=False)
    lift, before = Lift(state), state.bounds.copy()
    for steps in (0, 3, 20):
        lift.improve(steps=steps)
        assert (state.bounds <= before).all()
        assert all(w >= u - 1e-9 * floats for w, u in zip(decoded(state), worth(local), strict=True))
        before = state.bounds.copy()


def table_of(network, vectors, shifts, u, v):
    """A pair's table as fractions: what the certificate takes the maximum of, without rounding."""
    found = []
    for a in range(network.starts[u], network.starts[u + 1]):
        for b in range(network.starts[v], network.starts[v + 1]):
            if network.pairs[a, b] >= THRESHOLD:
                product = sum(Fraction(x) * Fraction(y) for x, y in zip(vectors[a], vectors[b], strict=True))
                found.append(int(network.pairs[a, b]) + 2 * product - Fraction(shifts[v, a]) - Fraction(shifts[u, b]))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_certificate_is_the_sum_of_the_maxima_rounded_up(seed):
    local = agent(seed, hidden=3, interface=2, hard=0.1)
    network, rng = lay_out(local), np.random.default_rng(seed)
    vectors, shifts = (np.round(16 * x) / 16 for x in anything(network, rng, 2, 3.0))  # exact in twelve bits
    n, h = network.owner.size, network.starts.size - 1
    shifts[network.owner, np.arange(n)] = 0
    found = certified(network, vectors, shifts, np.arange(local.rows))
    pairs = sum(max(table_of(network, vectors, shifts, u, v)) for u, v in combinations(range(h), 2))
    for row, bound in enumerate(found.tolist()):
        digits = network.digits(np.array([row]))
        places = digits[0] + [0, network.shape[0]] + n
        around = [sum(Fraction(vectors[p, k]) for p in places) for k in range(2)]
        total = pairs + int(network.constants(digits)[0]) + sum(x * x for x in around)
        values, dead = network.values(digits)[0], False
        for first, last in pairwise(network.starts):
            entries = [
                int(values[a])
                + sum(Fraction(x) ** 2 + 2 * y * Fraction(x) for x, y in zip(vectors[a], around, strict=True))
                + sum(Fraction(x) for x in shifts[:, a])
                for a in range(first, last)
                if values[a] >= THRESHOLD
            ]
            dead |= not entries
            total += max(entries, default=0)
        dead |= int(network.constants(digits)[0]) < THRESHOLD
        assert bound == (NEVER if dead else math.ceil(total))


@pytest.mark.parametrize("hard", [0.0, 0.3])
def test_smooth_maxima_and_weights_are_those_of_the_naive_twin(hard):
    network = lay_out(agent(5, hidden=4, hard=hard))
    rng, n, h = np.random.default_rng(1), network.owner.size, network.starts.size - 1
    utilities = np.where(network.pairs < THRESHOLD, -1e9, network.pairs / network.unit).astype(np.float32)
    vectors = rng.standard_normal((n, 3), dtype=np.float32)
    products, shifts = vectors @ vectors.T, rng.standard_normal((h, n), dtype=np.float32)
    weights, marginals = np.zeros((n, n), dtype=np.float32), np.zeros((h, n), dtype=np.float32)
    slope = np.float32(2.5)
    total = smooth_pairs(utilities, products, shifts, slope, network.starts, weights, marginals)
    expected, maxima = np.zeros((n, n)), 0.0
    for u, v in combinations(range(h), 2):
        mine, other = slice(*network.starts[u : u + 2]), slice(*network.starts[v : v + 2])
        table = utilities[mine, other] + 2.0 * products[mine, other] - shifts[v, mine][:, None] - shifts[u, other]
        maxima += table.max()
        block = np.maximum(0, 1 + slope * (table - table.max()) / POWER) ** POWER
        expected[mine, other] = block / block.sum()
        expected[other, mine] = expected[mine, other].T
        assert np.allclose(marginals[v, mine], expected[mine, other].sum(axis=1), atol=1e-4)
        assert np.allclose(marginals[u, other], expected[mine, other].sum(axis=0), atol=1e-4)
    assert np.allclose(weights, expected, atol=1e-4)
    assert total == pytest.approx(maxima, rel=1e-5)


def test_exact_maxima_are_those_of_the_naive_twin():
    network = lay_out(agent(6, hidden=4, hard=0.3))
    rng, n, h = np.random.default_rng(1), network.owner.size, network.starts.size - 1
    vectors, shifts = rng.integers(-9, 10, (n, 3)).astype(np.float64), rng.integers(-99, 100, (h, n))
    for u in range(h):
        mine = slice(*network.starts[u : u + 2])
        products, expected = vectors[mine] @ vectors[network.starts[u + 1] :].T, 0
        for v in range(u + 1, h):
            other = slice(*network.starts[v : v + 2])
            product = vectors[mine] @ vectors[other].T
            table = (network.pairs[mine, other].astype(np.int64) << 4) + 2 * product.astype(np.int64)
            table -= shifts[v, mine][:, None] + shifts[u, other]
            table[network.pairs[mine, other] < THRESHOLD] = NEVER
            expected = NEVER if NEVER in (expected, table.max()) else expected + int(table.max())
        assert pair_maxima(network.pairs, products, shifts, 4, network.starts, u) == expected


def test_a_dense_agent_is_bounded_better_than_by_ascent_on_pairs():
    local = agent(0, hidden=7, most=4, density=1.0)
    ascent, state = DualState(local, triangles=False), DualState(local, triangles=False)
    ascent.improve(sweeps=30)
    Lift(state).improve(steps=2 * TRIAL)
    above = [max(decoded(one)) - max(worth(local)) for one in (state, ascent)]
    assert 0 <= above[0] < 0.5 * above[1]


def test_a_lift_goes_on_where_it_was_and_ends_where_it_is_of_no_use():
    local = agent(4, hidden=5)
    state = DualState(local, triangles=True)
    state.bounds -= 1 << 40  # nothing is left to gain
    lift, before = Lift(state), state.bounds.copy()
    lift.improve(steps=TRIAL // 2)
    assert lift.steps == TRIAL // 2 and not lift.exhausted
    lift.improve(steps=TRIAL)
    assert lift.exhausted and (state.bounds == before).all()
    made = lift.steps
    lift.improve(steps=5)
    assert lift.steps == made


def test_limits_say_which_row_is_lowered():
    local = agent(11, hidden=6, most=9, density=1.0)
    assert local.rows > 2
    states = [DualState(local, triangles=False) for _ in range(2)]
    Lift(states[0]).improve(steps=150)
    lowest = int(states[0].bounds.argmin())
    limits = np.full(local.rows, 1e9)
    limits[lowest] = 0.0
    Lift(states[1]).improve(steps=150, limits=limits)
    assert states[1].bounds[lowest] < states[0].bounds[lowest]


def test_nothing_is_claimed_of_numbers_that_are_too_large():
    network = lay_out(agent(2))
    vectors, shifts = anything(network, np.random.default_rng(0), 2, 1.0)
    for vast in (1e30, np.inf, np.nan):
        assert certified(network, vectors * vast, shifts, np.arange(2)) is None


def test_wider_factors_time_that_is_over_and_empty_tables_leave_bounds_as_they_are():
    rng = np.random.default_rng(0)
    wide = LocalProblem(0, (3,), (0, 1, 2), (Factor.of((0, 1, 2), rng.integers(0, 9, (2, 2, 2))),), np.full(4, 2))
    flat = LocalProblem(0, (2,), (0, 1), (Factor.of((0, 1), np.ones((2, 2), dtype=np.int64)),), np.full(3, 2))
    for local, backend in ((wide, Backend()), (flat, Backend()), (agent(1), Backend(stop=Stop(until=0.0)))):
        state = DualState(local, triangles=False, backend=backend)
        before = state.bounds.copy()
        Lift(state).improve(steps=5)
        assert (state.bounds == before).all()


def test_agents_with_few_variables_or_few_factors_are_left_to_triangles():
    assert not suits(agent(1, hidden=8))
    assert suits(agent(1, hidden=16, most=3), on_gpu=True) and not suits(agent(1, hidden=16, most=3))
    assert suits(agent(1, hidden=31, most=3)) and not suits(agent(1, hidden=31, most=3, density=0.1))


def test_a_start_leaves_pairs_without_most_of_what_is_negative_and_its_shifts_without_means():
    network = lay_out(agent(3, hidden=6, most=9, density=1.0))
    vectors, shifts = spectral_start(network, network.unit)
    n = network.owner.size
    assert 1 <= vectors.shape[1] < n and (shifts[network.owner, np.arange(n)] == 0).all()
    table = network.pairs / network.unit - shifts[network.owner] - shifts[network.owner].T
    for first, last in pairwise(network.starts):
        table[first:last, first:last] = 0
        assert np.allclose(table[first:last].sum(axis=0), 0, atol=1e-3)
    before, after = (np.linalg.eigvalsh(one)[0] for one in (table, table + 2 * vectors @ vectors.T))
    assert before < 0 and after > 0.1 * before


def naive_sum(local, values):
    """What an assignment of an agent is worth; None where it is forbidden."""
    entries = [factor.entry([values[v] for v in factor.scope]) for factor in local.factors]
    return None if None in entries else sum(entries)


@settings(max_examples=20)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3]), st.integers(0, 2), st.sampled_from([0.3, 20.0, 1e3]))
def test_with_its_square_an_agent_is_worth_that_much_more_and_ascent_bounds_it(seed, hard, interface, size):
    local = agent(seed, hidden=3, interface=interface, hard=hard, most=4)
    network = lay_out(local)
    square = whole_square(network, *anything(network, np.random.default_rng(seed), 2, size))
    other, unit = with_square(local, network, square), 1 << network.scale.shift
    names = (*local.interface, *local.hidden)
    ends = np.cumsum([0, *network.shape])
    for digits in np.ndindex(*(int(local.domains[v]) for v in names)):
        values = dict(zip(names, digits, strict=True))
        vectors = [square.outer[ends[i] + d] for i, d in enumerate(digits[:interface])]
        vectors += [square.hidden[network.starts[i] + d] for i, d in enumerate(digits[interface:])]
        worth_here, added = naive_sum(local, values), sum(Fraction(x) ** 2 for x in sum(vectors).tolist())
        expected = None if worth_here is None else (worth_here * unit << 2 * square.bits) + int(added)
        assert naive_sum(other, values) == expected
    rows = np.arange(local.rows)
    for bound, value in zip(ascended(local, network, square, rows).tolist(), worth(local), strict=True):
        assert network.scale.decode(bound) >= value
