"""Markov chains: their random bits, the state they keep, and the distribution that they visit."""

from functools import lru_cache

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from problem_strategies import random_problem, random_table

from dmcmc import Factor, Problem
from dmcmc.inference.agents import divide
from dmcmc.inference.tables import forbidden
from dmcmc.samplers import gibbs, metropolis, metropolis_single
from dmcmc.samplers.model import build_model
from dmcmc.samplers.rng import chain_key, philox, uniform
from dmcmc.samplers.state import change, eased, evaluate, fill_scores, gain_of, greedy_sweep, random_state

SAMPLERS = (gibbs.SAMPLER, metropolis.SAMPLER, metropolis_single.SAMPLER)
MOST = 2**32 - 1
word = st.integers(0, MOST)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MOST, MOST), (MOST, MOST, MOST, MOST), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(key, counter, expected):
    assert philox(*key, *counter) == expected
    assert naive.philox(key, counter) == expected


@given(st.tuples(word, word), st.tuples(word, word, word, word))
@settings(max_examples=200, deadline=None)
def test_philox_equals_its_twin(key, counter):
    assert philox(*key, *counter) == naive.philox(key, counter)


@given(word)
@settings(deadline=None)
def test_a_word_is_a_number_strictly_inside_the_unit_interval(bits):
    assert 0.0 < uniform(bits) < 1.0
    assert abs(uniform(bits) - bits / 2**32) <= 2**-32


def test_the_ends_of_the_unit_interval_are_never_reached():
    assert uniform(0) > 0.0
    assert uniform(MOST) < 1.0


def test_agents_and_seeds_have_keys_of_their_own():
    keys = {chain_key(seed, agent) for seed in (0, 1, 7, 2**40, 2**63 - 1) for agent in range(2000)}
    assert len(keys) == 5 * 2000
    assert all(0 <= part <= MOST for key in keys for part in key)


NUMBERS = {"int32": (9, False), "int64": (2**40, False), "floats": (1.0, True)}


@st.composite
def locals_(draw):
    """A local problem with hidden variables, factors of arity 1 to 4 and hard constraints."""
    magnitude, floats = NUMBERS[draw(st.sampled_from(tuple(NUMBERS)))]
    hard = draw(st.sampled_from([0.0, 0.2]))
    problem = random_problem(draw(st.integers(0, 2**32)), 9, 2, 9, 12, 4, magnitude, hard, floats)
    return divide(problem).locals[draw(st.integers(0, problem.n_agents - 1))]


def hidden_factors(local):
    return [f for f in local.factors if set(f.scope) & set(local.hidden)]


def drawn(local, model, rng):
    """A random state, hidden variables first."""
    return np.array([rng.integers(0, size) for size in model.domains], dtype=np.int32)


def worth(local, z):
    """(−violations, utility) of the factors with hidden variables: what a chain orders states by."""
    values = dict(zip((*local.hidden, *local.interface), z.tolist(), strict=True))
    entries = [f.table[tuple(values[v] for v in f.scope)] for f in hidden_factors(local)]
    hard = [bool(forbidden(e)) for e in entries]
    return -sum(hard), sum((e.item() for e, bad in zip(entries, hard, strict=True) if not bad), 0)


def whole(local):
    return all(f.table.dtype.kind == "i" for f in hidden_factors(local))


def parted(model, utility):
    """A chain's utility as (−violations, utility without them)."""
    if not model.violation:
        return 0, int(utility)
    violations = -((int(utility) - 2 ** (model.violation - 1)) // 2**model.violation) - 1
    return -violations, int(utility) + violations * 2**model.violation


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_chains_utility_orders_states_by_violations_first(local, seed):
    """Exactly for whole numbers that fit; else utilities are rounded, half a chain unit a factor."""
    model = build_model(local)
    rng = np.random.default_rng(seed)
    states = [drawn(local, model, rng) for _ in range(6)]
    worths = [worth(local, z) for z in states]
    got = [evaluate(model, z) for z in states]
    off = 0 if model.scale == 1.0 and whole(local) else model.factor_column.size + 1e-6
    for a, va in zip(worths, got, strict=True):
        assert parted(model, va)[0] == a[0]
        assert eased(model, va) == parted(model, va)[1] + (model.penalty * a[0] if model.violation else 0.0)
        for b, vb in zip(worths, got, strict=True):
            if a[0] == b[0] == 0:
                assert abs((parted(model, va)[1] - parted(model, vb)[1]) - (a[1] - b[1]) * model.scale) <= off
            if a[0] > b[0]:
                assert va > vb


@given(locals_())
@settings(max_examples=100, deadline=None)
def test_scores_fit_their_numbers_and_columns_are_padded(local):
    """Compact: 16 bits without sign and nothing forbidden; else 2^30, all of a variable's violations included."""
    model = build_model(local)
    assert model.data.dtype == np.uint16 or model.data.dtype == np.int32
    assert model.data.dtype == np.int32 or not model.violation
    assert (model.penalty > 0) == (model.violation > 0) == any(forbidden(f.table).any() for f in hidden_factors(local))
    assert (model.width == -(-model.domains[: model.hidden] // 4) * 4).all()
    assert model.lanes == max([*model.width, 4])
    ends = np.append(model.column_at, model.data.size)
    for v in range(model.hidden):
        most = 0
        for c in range(model.column_start[v], model.column_start[v + 1]):
            columns = model.data[ends[c] : ends[c + 1]].astype(np.int64).reshape(-1, model.width[v])
            assert (columns[:, model.domains[v] :] == 0).all()
            most += np.abs(columns).max()
        assert most <= (2**16 - 1 if model.data.dtype == np.uint16 else 2**30)


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_scores_and_utility_stay_what_they_would_be_from_nothing(local, seed):
    model = build_model(local)
    if not model.hidden:
        return
    rng = np.random.default_rng(seed)
    z = drawn(local, model, rng)
    scores = np.zeros((model.hidden, model.lanes), dtype=model.data.dtype)
    fresh = np.zeros_like(scores)
    fill_scores(model, z, scores)
    utility = evaluate(model, z)
    for _ in range(20):
        v = int(rng.integers(0, model.hidden))
        value = int(rng.integers(0, model.domains[v]))
        utility += gain_of(scores, v, value, z[v])
        change(model, z, scores, v, value)
        assert z[v] == value
        fill_scores(model, z, fresh)
        assert (scores == fresh).all()
        assert utility == evaluate(model, z)


@given(locals_(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_greedy_sweeps_end_where_no_single_change_is_better(local, seed):
    model = build_model(local)
    z = drawn(local, model, np.random.default_rng(seed))
    scores = np.zeros((model.hidden, model.lanes), dtype=model.data.dtype)
    fill_scores(model, z, scores)
    utility = evaluate(model, z)
    while (better := greedy_sweep(model, z, scores, utility)) != utility:
        assert better > utility
        utility = better
    assert utility == evaluate(model, z)
    for v in range(model.hidden):
        assert scores[v, z[v]] == scores[v, : model.domains[v]].max()


@given(locals_(), word, word)
@settings(max_examples=60, deadline=None)
def test_the_first_state_lies_in_the_domains_and_touches_only_hidden_variables(local, row, run):
    model = build_model(local)
    z = np.full(model.domains.size, -1, dtype=np.int32)
    key = chain_key(3, local.agent)
    random_state(model, z, tuple(np.uint64(part) for part in (*key, row, run)))
    assert (z[model.hidden :] == -1).all()
    assert ((z[: model.hidden] >= 0) & (z[: model.hidden] < model.domains[: model.hidden])).all()


def eased_table(table, penalty):
    """What a chain weighs: a forbidden entry counts as the factor's largest, less the penalty."""
    hard = forbidden(table)
    return np.where(hard, table[~hard].max() - penalty, table)


def boltzmann_problem(seed, hard):
    """Three hidden variables and one interface variable of the first agent, with factors of arity 1 to 4."""
    rng = np.random.default_rng(seed)
    domains = np.array([3, 2, 4, 2, 2])
    scopes = [(0,), (0, 1), (2, 0), (1, 2), (2, 1, 0), (3, 2), (1, 0, 3, 2), (3,), (3, 4)]
    return Problem(
        variables=tuple("abcde"),
        domains=domains,
        agents=("me", "other"),
        owner=np.array([0, 0, 0, 0, 1]),
        factors=tuple(Factor.of(s, random_table(rng, tuple(domains[list(s)]), 4, hard)) for s in scopes),
    )


@lru_cache
def visitor(sampler):
    """Compile a loop around a sampler that counts the hidden states that a chain visits."""
    init, step = njit(sampler.init), njit(sampler.step)

    @njit
    def visit(model, z, key, trials, temperature, counts):
        scores = np.zeros((model.hidden, model.lanes), dtype=model.data.dtype)
        scratch = np.zeros(max(model.lanes, model.hidden), dtype=np.int32)
        rng = (key[0], key[1], np.uint64(0), np.uint64(0))
        utility = init(model, z, scores, rng)
        drift = 0
        for trial in range(1, trials + 1):
            utility = step(model, z, scores, utility, scratch, rng, trial, temperature)
            drift += utility != evaluate(model, z)
            at = 0
            for v in range(model.hidden):
                at = at * model.domains[v] + z[v]
            counts[at] += 1
        return drift

    return visit


@pytest.mark.parametrize("hard", [0.0, 0.05])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_a_chain_visits_states_as_often_as_boltzmann_says(sampler, hard):
    """At temperature T a state's share is exp(U / T) / Z: total variation distance below 1.5 %."""
    local = divide(boltzmann_problem(11, hard)).locals[0]
    model = build_model(local)
    temperature = 3.0
    tables = [(f.scope, eased_table(f.table, model.penalty)) for f in hidden_factors(local)]
    for b in range(2):
        utilities = naive.join(tables, [*local.hidden, *local.interface], local.domains)[..., b].astype(float)
        weights = np.exp((utilities - utilities.max()) / temperature).ravel()
        counts = np.zeros(weights.size, dtype=np.int64)
        z = np.array([0, 0, 0, b], dtype=np.int32)
        key = np.array(chain_key(5, b), dtype=np.uint64)
        trials = 300_000
        drift = visitor(sampler)(model, z, key, trials, np.float32(temperature), counts)
        assert drift == 0  # the utility handed from step to step is that of the state
        assert counts.sum() == trials
        assert np.abs(counts / trials - weights / weights.sum()).sum() / 2 < 0.015
