"""Score columns of agents' tables: correct entries, scores that stay correct, and utilities that order states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.tables import forbidden
from dmcmc.samplers.model.chain_model import build_model, column_entries
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.samplers.model.state_kernels import (
    change,
    eased,
    evaluate,
    feasible,
    fill_scores,
    gain_of,
    greedy_sweep,
    new_arrays,
)

NUMBERS = {"int32": (9, False), "int64": (2**40, False), "floats": (1.0, True)}


@st.composite
def locals_(draw):
    """Draw a local problem with hidden variables, factors of arity 1 to 4 and hard constraints."""
    magnitude, floats = NUMBERS[draw(st.sampled_from(tuple(NUMBERS)))]
    hard = draw(st.sampled_from([0.0, 0.2]))
    problem = random_problem(draw(st.integers(0, 2**32)), 9, 2, 9, 12, 4, magnitude, hard, floats)
    return divide(problem).locals[draw(st.integers(0, problem.n_agents - 1))]


def hidden_factors(local):
    return [f for f in local.factors if set(f.scope) & set(local.hidden)]


def random_assignment(local, model, rng):
    """Return a random state, hidden variables first."""
    return np.array([rng.integers(0, size) for size in model.domains], dtype=np.int32)


def ordering_key(local, z):
    """Return (−violations, utility) of the factors with hidden variables, by which a chain orders states."""
    values = dict(zip((*local.hidden, *local.interface), z.tolist(), strict=True))
    entries = [f.table[tuple(values[v] for v in f.scope)] for f in hidden_factors(local)]
    hard = [bool(forbidden(e)) for e in entries]
    return -sum(hard), sum((e.item() for e, bad in zip(entries, hard, strict=True) if not bad), 0)


def has_integer_tables(local):
    return all(f.table.dtype.kind == "i" for f in hidden_factors(local))


def split_utility(model, utility):
    """Return a chain's utility as (−violations, utility without them)."""
    if not model.violation:
        return 0, int(utility)
    violations = -((int(utility) - 2 ** (model.violation - 1)) // 2**model.violation) - 1
    return -violations, int(utility) + violations * 2**model.violation


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=150)
def test_a_chains_utility_orders_states_by_violations_first(local, seed):
    """The order is exact for integers that fit; otherwise a utility may be off by half a chain unit per factor."""
    model = build_model(local)
    rng = np.random.default_rng(seed)
    states = [random_assignment(local, model, rng) for _ in range(6)]
    keys = [ordering_key(local, z) for z in states]
    utilities = [evaluate(model, z) for z in states]
    tolerance = 0 if model.scale == 1.0 and has_integer_tables(local) else model.factor_column.size + 1e-6
    for a, va in zip(keys, utilities, strict=True):
        assert split_utility(model, va)[0] == a[0]
        assert feasible(model, va) == (a[0] == 0)
        assert eased(model, va) == split_utility(model, va)[1] + (model.penalty * a[0] if model.violation else 0.0)
        for b, vb in zip(keys, utilities, strict=True):
            if a[0] == b[0] == 0:
                assert (
                    abs((split_utility(model, va)[1] - split_utility(model, vb)[1]) - (a[1] - b[1]) * model.scale)
                    <= tolerance
                )
            if a[0] > b[0]:
                assert va > vb


@given(locals_())
@settings(max_examples=100)
def test_scores_fit_their_numbers_and_columns_are_padded(local):
    """Compact scores are unsigned 16-bit and nothing is forbidden; others are within 2^30, including all violations."""
    model = build_model(local)
    assert model.data.dtype == np.uint16 or model.data.dtype == np.int32
    assert model.data.dtype == np.int32 or not model.violation
    assert (model.penalty > 0) == (model.violation > 0) == any(forbidden(f.table).any() for f in hidden_factors(local))
    assert (model.width == -(-model.domains[: model.hidden] // 4) * 4).all()
    assert model.lanes == max([*model.width, 4])
    ends = np.append(model.column_at, model.data.size)
    for v in range(model.hidden):
        bound = 0
        for c in range(model.column_start[v], model.column_start[v + 1]):
            columns = model.data[ends[c] : ends[c + 1]].astype(np.int64).reshape(-1, model.width[v])
            assert (columns[:, model.domains[v] :] == 0).all()
            bound += np.abs(columns).max()
        assert bound <= (2**16 - 1 if model.data.dtype == np.uint16 else 2**30)


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=100)
def test_a_column_holds_its_factor_for_all_values_of_its_variable(local, seed):
    """Entries are relative to the smallest (compact) or largest one, scaled and rounded; forbidden ones are −2^k."""
    model = build_model(local)
    z = random_assignment(local, model, np.random.default_rng(seed))
    variables = (*local.hidden, *local.interface)
    values = dict(zip(variables, z.tolist(), strict=True))
    c = 0
    for v in range(model.hidden):
        factors = [f for f in hidden_factors(local) if variables[v] in f.scope]
        assert model.column_start[v + 1] - model.column_start[v] == len(factors)
        for f in factors:
            column = f.table[tuple(slice(None) if u == variables[v] else values[u] for u in f.scope)]
            finite = f.table[~forbidden(f.table)].astype(float)
            base = 0.0 if not finite.size else finite.min() if model.data.dtype == np.uint16 else finite.max()
            offset = model.column_at[c]
            for o in range(model.other_start[c], model.other_start[c + 1]):
                offset += z[model.other_variable[o]] * model.other_stride[o]
            stored = model.data[offset : offset + model.domains[v]].astype(np.int64)
            hard = forbidden(column)
            assert (stored[hard] == -(2**model.violation)).all()
            assert (
                np.abs(stored[~hard] - (column[~hard].astype(float) - base) * model.scale).max(initial=0) <= 0.5 + 1e-6
            )
            c += 1


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=100)
def test_the_value_of_a_row_is_the_sum_of_its_factors(local, seed):
    arithmetic = choose_arithmetic(local.factors)
    flat, model = local.graph.flat, build_model(local)
    rng = np.random.default_rng(seed)
    states = rng.integers(0, local.domains[list(local.hidden)], (local.rows, model.hidden), dtype=np.int32)
    evaluated = evaluate_rows(flat, model.domains, states, local.interface_shape, arithmetic)
    assert evaluated.shape == local.interface_shape and evaluated.dtype == arithmetic.dtype
    for row, b in enumerate(np.ndindex(*local.interface_shape)):
        values = dict(zip(local.interface, b, strict=True)) | dict(zip(local.hidden, states[row].tolist(), strict=True))
        close = 0.0 if arithmetic.exact else 1e-9 * float(arithmetic.total)
        assert naive.same_numbers(naive.decoded(evaluated[b], arithmetic), naive.attained(local, values), close)


@pytest.mark.parametrize(
    ("entries", "dtype", "scale"),
    [
        ([[0, 65535], [7, 3]], np.uint16, 1.0),
        ([[0, 65536], [7, 3]], np.int32, 1.0),
        ([[-(10**6), -(10**6) + 9], [-(10**6), -(10**6)]], np.uint16, 1.0),
        ([[0, float("-inf")], [7, 3]], np.int32, 1.0),
        ([[0, 2**40], [7, 3]], np.int32, 2.0**-11),
        ([[-(2**62), 2**62], [7, 3]], np.int32, 2.0**-34),
        ([[0.5, 0.25], [0.0, 1.0]], np.int32, 2.0**24),
    ],
)
def test_entries_take_16_bits_if_they_fit_and_are_scaled_if_32_are_too_few(entries, dtype, scale):
    table = np.array(entries) if np.isfinite(entries).all() else entries
    problem = Problem(("a", "b"), np.array([2, 2]), ("me",), np.array([0, 0]), (Factor.of((0, 1), table),))
    model = build_model(divide(problem).locals[0])
    assert (model.data.dtype, model.scale) == (dtype, scale)


def test_column_entries_is_an_upper_bound():
    for seed in range(30):
        for local in divide(random_problem(seed)).locals:
            assert build_model(local).data.size <= max(1, column_entries(local))


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=100)
def test_incremental_scores_and_utility_equal_recomputed_ones(local, seed):
    model = build_model(local)
    if not model.hidden:
        return
    rng = np.random.default_rng(seed)
    z = random_assignment(local, model, rng)
    _, scores, _ = new_arrays(model)
    recomputed = np.zeros_like(scores)
    fill_scores(model, z, scores)
    utility = evaluate(model, z)
    for _ in range(20):
        v = int(rng.integers(0, model.hidden))
        value = int(rng.integers(0, model.domains[v]))
        utility += gain_of(scores, v, value, z[v])
        change(model, z, scores, v, value)
        assert z[v] == value
        fill_scores(model, z, recomputed)
        assert (scores == recomputed).all()
        assert utility == evaluate(model, z)


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=60)
def test_greedy_sweeps_end_where_no_single_change_is_better(local, seed):
    model = build_model(local)
    z = random_assignment(local, model, np.random.default_rng(seed))
    _, scores, _ = new_arrays(model)
    fill_scores(model, z, scores)
    utility = evaluate(model, z)
    while (better := greedy_sweep(model, z, scores, utility)) != utility:
        assert better > utility
        utility = better
    assert utility == evaluate(model, z)
    for v in range(model.hidden):
        assert scores[v, z[v]] == scores[v, : model.domains[v]].max()
