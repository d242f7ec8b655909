"""Markov chains: their random bits, the consistency of their state, and their stationary distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem, random_table

from dmcmc import Factor, Problem
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.tables import forbidden
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.cpu.chain_kernels import bind, swap_rungs
from dmcmc.samplers.model.chain_model import build_model, chain_key
from dmcmc.samplers.model.state_kernels import evaluate, new_arrays, philox, random_state, uniform

CHAINS = [name for name in registry.names() if isinstance(registry.get(name), ChainSolver)]
MAX_WORD = 2**32 - 1
word = st.integers(0, MAX_WORD)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (MAX_WORD, MAX_WORD),
            (MAX_WORD, MAX_WORD, MAX_WORD, MAX_WORD),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_equals_its_authors_test_vectors(key, counter, expected):
    assert philox(*key, *counter) == expected
    assert naive.philox(key, counter) == expected


@given(st.tuples(word, word), st.tuples(word, word, word, word))
@settings(max_examples=200)
def test_philox_equals_a_naive_implementation(key, counter):
    assert philox(*key, *counter) == naive.philox(key, counter)


@given(word)
def test_uniform_is_strictly_inside_the_unit_interval(bits):
    assert 0.0 < uniform(bits) < 1.0
    assert abs(uniform(bits) - bits / 2**32) <= 2**-32


def test_uniform_never_reaches_the_ends_of_the_unit_interval():
    assert uniform(0) > 0.0
    assert uniform(MAX_WORD) < 1.0


def test_agents_and_seeds_have_distinct_keys():
    keys = {chain_key(seed, agent) for seed in (0, 1, 7, 2**40, 2**63 - 1) for agent in range(2000)}
    assert len(keys) == 5 * 2000
    assert all(0 <= part <= MAX_WORD for key in keys for part in key)


@given(word, word, word)
@settings(max_examples=60)
def test_the_first_state_lies_in_the_domains_and_touches_only_hidden_variables(seed, row, run):
    for local in divide(random_problem(seed, 9, 2, 9, 12)).locals:
        model = build_model(local)
        z = np.full(model.domains.size, -1, dtype=np.int32)
        key = chain_key(3, local.agent)
        random_state(model, z, tuple(np.uint64(part) for part in (*key, row, run)))
        assert (z[model.hidden :] == -1).all()
        assert ((z[: model.hidden] >= 0) & (z[: model.hidden] < model.domains[: model.hidden])).all()


def eased_table(table, penalty):
    """Return a table as eased utilities count it: a forbidden entry is the factor's largest entry less the penalty."""
    hard = forbidden(table)
    return np.where(hard, table[~hard].max() - penalty, table)


def boltzmann_problem(seed, hard):
    """Return three hidden variables and one interface variable of the first agent, with factors of arity 1 to 4."""
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


init = step = None  # replaced by a sampler's functions in bind()


def _visit(model, runs, b, key, trials, temperature, ladder, counts):
    """Count the hidden states that the chain on the first rung visits; return how often its utility was wrong."""
    z, scores, scratch = [], [], new_arrays(model)[2]
    utility, run_of = np.zeros(runs, dtype=np.int64), np.arange(runs)
    for run in range(runs):
        state, run_scores, _ = new_arrays(model)
        state[-1] = b
        z.append(state)
        scores.append(run_scores)
        utility[run] = init(model, state, run_scores, (key[0], key[1], np.uint64(0), np.uint64(run)))
    errors = 0
    for trial in range(1, trials + 1):
        for rung in range(runs):
            run = run_of[rung]
            rng = (key[0], key[1], np.uint64(0), np.uint64(run))
            run_temperature = np.float32(temperature * ladder[rung])
            utility[run] = step(model, z[run], scores[run], utility[run], scratch, rng, trial, run_temperature)
            errors += utility[run] != evaluate(model, z[run])
        swap_rungs(model, utility, run_of, temperature, ladder, key, 0, trial)
        number = 0
        for v in range(model.hidden):
            number = number * model.domains[v] + z[run_of[0]][v]
        counts[number] += 1
    return errors


@pytest.mark.parametrize("hard", [0.0, 0.05])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_samples_the_boltzmann_distribution(name, hard):
    """At temperature T a state has probability exp(U / T) / Z: the total variation distance is below 1.5 %."""
    sampler = registry.get(name).sampler._replace(
        name="", summary="", rounds=None, exchange=False
    )  # equal functions share a compiled kernel
    local = divide(boltzmann_problem(11, hard)).locals[0]
    model = build_model(local)
    model = model._replace(penalty=8.0 if model.violation else 0.0)  # low enough for violations to occur
    temperature, ladder = np.float32(3.0), np.array([1.0, 1.4, 2.0], dtype=np.float32)
    factors = [f for f in local.factors if set(f.scope) & set(local.hidden)]
    tables = [(f.scope, eased_table(f.table, model.penalty)) for f in factors]
    for b in range(2):
        utilities = naive.join(tables, [*local.hidden, *local.interface], local.domains)[..., b].astype(float)
        weights = np.exp((utilities - utilities.max()) / temperature).ravel()
        counts = np.zeros(weights.size, dtype=np.int64)
        key = np.array(chain_key(5, b), dtype=np.uint64)
        trials = 200_000
        runs = 3 if name == "tempering" else 1
        errors = bind(_visit, sampler)(model, runs, b, key, trials, temperature, ladder, counts)
        assert errors == 0  # the utility passed from step to step is that of the state
        assert counts.sum() == trials
        assert np.abs(counts / trials - weights / weights.sum()).sum() / 2 < 0.015
