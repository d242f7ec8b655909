"""Bounds that continue after factors have changed are sound, and keep what an earlier bound has proven."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor, Problem
from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearchRequest, run_boundary_searches
from dmcmc.inference.bounds.continued_bound import (
    continue_bound,
    continued_potentials,
    factor_differences,
    largest_increase,
    row_increases,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU

SCOPES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 1), (0, 4), (4, 2), (4,), (0, 2, 3)]


def agent(rng, hard=0.1, floats=False):
    """Return an agent with two interface variables and three hidden ones."""
    domains = rng.integers(2, 5, 5)
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 40, hard, floats=floats)) for s in SCOPES]
    return LocalProblem(0, (3, 4), (0, 1, 2), tuple(factors), domains.astype(np.int64))


def changed(rng, local, floats, forbids=0.1):
    """Return an agent in which some tables differ, or a factor is missing or new."""
    factors, kind = list(local.factors), int(rng.integers(5))
    for i in rng.choice(len(factors), int(rng.integers(1, 3)), replace=False).tolist():
        table = factors[i].table
        new = (
            random_table(rng, table.shape, 40, forbids, floats=floats)
            if kind < 2
            else np.where(table < -(2**30), -np.inf, table + rng.integers(-2, 3, table.shape))
        )
        factors[i] = Factor.of(factors[i].scope, new)
    if kind == 3:
        del factors[int(rng.integers(len(factors)))]
    if kind == 4:
        shape = tuple(local.domains[[1, 4]])
        factors.append(Factor.of((1, 4), random_table(rng, shape, 40, forbids, floats=floats)))
    return replace(local, factors=tuple(factors))


def decoded(state):
    return np.array([state.layout.scale.decode(int(bound)) for bound in state.bounds])


def exact_rows(local):
    return np.array(naive.row_values(local).ravel().tolist(), dtype=np.float64)


@settings(max_examples=15)
@given(st.integers(0, 9999), st.booleans(), st.sampled_from(["dual", "triangles", "triangles+mini-bucket"]))
def test_bounds_are_sound_after_any_sequence_of_changes(seed, floats, provider):
    rng = np.random.default_rng(seed)
    local = agent(rng, floats=floats)
    provider = registry.get(provider)
    state = provider.start(local, CPU)
    for _ in range(4):
        exact = exact_rows(local)
        getattr(state, "dual", state).begin_run(CPU)
        state.improve(sweeps=int(rng.integers(3)))
        thresholds = np.where(rng.random(exact.size) < 0.5, exact + rng.integers(-3, 20), -np.inf)
        state.prune(np.nan_to_num(thresholds, neginf=-math.inf), sweeps=2)
        local = changed(rng, local, floats)
        earlier, state = getattr(state, "dual", state), provider.start(local, CPU)
        continue_bound(getattr(state, "dual", state), earlier)
        assert (decoded(getattr(state, "dual", state)) >= exact_rows(local) - 1e-9).all()


@pytest.mark.parametrize("seed", range(20))
def test_continued_potentials_select_the_utilities_of_the_new_factors(seed):
    rng = np.random.default_rng(seed)
    local = agent(rng, 0.0)
    earlier = DualState(local, triangles=True)
    earlier.improve(sweeps=5, rows=())
    factors = list(local.factors)
    factors[2] = Factor.of(factors[2].scope, factors[2].table + rng.integers(0, 2, factors[2].table.shape))
    later = replace(local, factors=tuple(factors))
    state = DualState(later, triangles=True)
    potentials = continued_potentials(state, earlier)
    if potentials is None:
        assert state.layout.scale.shift != earlier.layout.scale.shift
        return
    state.take_potentials(earlier, potentials)
    state.improve(sweeps=0)
    fresh = DualState(later, triangles=True)
    fresh.improve(sweeps=200)
    assert (decoded(state) >= exact_rows(later)).all()
    assert decoded(state).max() <= decoded(earlier).max() + 1 or decoded(state).max() <= decoded(fresh).max()


def test_the_bound_of_a_row_rises_by_the_largest_difference_of_its_entries():
    rng = np.random.default_rng(3)
    local = agent(rng, 0.0)
    table = local.factors[5].table.copy()  # over hidden variable 0 and interface variable 4
    table[:, 1] += 7
    factors = [*local.factors[:5], Factor.of((0, 4), table), *local.factors[6:]]
    increases = row_increases(local, factor_differences(local.factors, factors)).reshape(local.interface_shape)
    assert (increases[:, 1] == 7).all() and (np.delete(increases, 1, axis=1) == 0).all()


def test_an_entry_that_becomes_allowed_leaves_no_bound_and_one_that_becomes_forbidden_keeps_it():
    allowed, forbidden = Factor.of((0,), [1, 2]), Factor.of((0,), [1, -np.inf])
    before, after = (Problem(("x",), [2], ("a",), [0], (factor,)) for factor in (allowed, forbidden))
    assert largest_increase(before, after) == 0 and largest_increase(after, before) is None
    assert largest_increase(before, before) == 0


@settings(max_examples=15)
@given(st.integers(0, 9999), st.booleans())
def test_a_search_that_goes_on_with_other_thresholds_is_sound_and_ends_exact(seed, floats):
    rng = np.random.default_rng(seed)
    local = agent(rng, floats=floats)
    exact, state = exact_rows(local), DualState(local, triangles=True)
    search = create_boundary_search(state, 1 << 20)
    for _ in range(3):
        rows = np.flatnonzero(rng.random(exact.size) < 0.7)
        thresholds = np.where(np.isneginf(exact), 0, exact) + rng.integers(-9, 20, exact.size)
        if not floats:
            thresholds = thresholds.astype(np.int64)
        search.reopen(thresholds, rows)
        run_boundary_searches([BoundarySearchRequest(search, thresholds, thresholds, rows)], batches=2)
        state.begin_run(CPU)
        assert (decoded(state) >= exact - 1e-9).all()
    no_cutoff = np.full(exact.size, -math.inf)
    search.reopen(no_cutoff, None)
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=400)
    assert search.exhausted
    if not floats:
        assert naive.same_numbers(decoded(state), naive.row_values(local).ravel())
