"""Mini-bucket bounds of nodes: exact without splits, tighter with a larger z, and chosen if they gain more."""

import time

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_table
from support.semidefinite.dense_agents import dense_agent

from dmcmc import Factor
from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.mini_bucket_bounder import MiniBucketBounder, mini_bucket_bounder
from dmcmc.inference.bounds.search_rows import create_boundary_search, fastest_search, other_bounders
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.deadline import Deadline

MEMORY = 1 << 20


def grid(side=3, values=3, seed=0, hard=0.0):
    """Return a grid without boundary variables."""
    rng, scopes = np.random.default_rng(seed), []
    for v in range(side * side):
        scopes += [(v, v + 1)] if (v + 1) % side else []
        scopes += [(v, v + side)] if v + side < side * side else []
    factors = [Factor.of(scope, random_table(rng, (values, values), 99, hard)) for scope in scopes]
    return Subproblem(0, (), tuple(range(side * side)), tuple(factors), np.full(side * side, values))


def narrowest(state):
    """Return the bounder with the least memory that is enough for one."""
    found = (mini_bucket_bounder(state, 1 << bits) for bits in range(8, 20))
    return next(bounder for bounder in found if bounder is not None)


def root_bounds(state, bounder):
    """Return the bounds of the rows before anything is branched, in the state's scale."""
    search, none = BoundarySearch(state, bounder), np.full(state.bounds.size, -np.inf)
    search.begin(none, none, None)
    _, batch = search.next_batch(state.bounds.size)
    (results,) = bounder.runner.run([(bounder, batch)], state.backend.stop)
    return results.bounds[np.argsort(batch.jobs[:, 0])]


@pytest.mark.parametrize("hard", [0.0, 0.2])
def test_without_split_buckets_the_bound_of_a_row_is_exact(hard):
    local = dense_agent(3, hidden=4, interface=2, hard=hard)
    state = DualState(local, triangles=False)
    bounds = root_bounds(state, MiniBucketBounder(state, MEMORY))
    found = np.array([state.layout.scale.decode(int(bound)) for bound in bounds])
    assert naive.same_numbers(found, naive.row_values(local).ravel())


def test_less_memory_gives_a_smaller_z_and_a_bound_that_is_no_lower():
    state = DualState(grid(side=5), triangles=False)
    wide, narrow = MiniBucketBounder(state, MEMORY), narrowest(state)
    assert narrow.z < wide.z
    assert root_bounds(state, narrow)[0] >= root_bounds(state, wide)[0]


def test_nodes_of_other_searches_are_bounded_by_their_longest_prefix():
    state = DualState(grid(), triangles=False)
    bounder = MiniBucketBounder(state, MEMORY)
    search, none = BoundarySearch(state, bounder), np.full(1, -np.inf)
    search.begin(none, none, None)
    _, batch = search.next_batch(1)
    whole = bounder.bound(batch).bounds[0]
    last = bounder._assigned_at[-1]  # a mask that restricts the variable that is assigned last
    batch.masks[0, last, 1:] = False
    restricted = bounder.bound(batch)
    assert restricted.bounds[0] == whole and restricted.variables[0] != last


def test_no_bounder_without_time_or_for_agents_without_mini_buckets():
    local = grid()
    late = DualState(local, triangles=False, backend=Backend(stop=Deadline(until=0.0)))
    assert mini_bucket_bounder(late, MEMORY) is None
    state = DualState(local, triangles=False)
    assert list(other_bounders(state, MEMORY)) == []
    state.has_mini_buckets = True
    assert [type(bounder) for bounder in other_bounders(state, MEMORY)] == [MiniBucketBounder]


def test_the_search_that_lowers_the_bound_most_is_chosen_and_all_bounds_are_kept():
    state = DualState(grid(), triangles=False)
    state.bounds += 1000 << state.layout.scale.shift
    weak, strong = (
        BoundarySearch(state, MiniBucketBounder(state, MEMORY), memory_limit=limit)
        for limit in (0, MEMORY)  # the first one cannot store a node
    )
    assert fastest_search(state, [weak, strong], 5.0) is strong
    assert state.layout.scale.decode(int(state.bounds[0])) == naive.row_values(state.local).item()


@pytest.mark.parametrize(("left", "interface", "tried"), [(100.0, 0, True), (1.0, 0, False), (100.0, 1, False)])
def test_bounders_are_compared_with_time_and_without_boundary_variables_only(left, interface, tried, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "dmcmc.inference.bounds.search_rows.fastest_search",
        lambda state, searches, seconds: compared.append(len(searches)) or searches[0],
    )
    backend = Backend(stop=Deadline(time.perf_counter() + left))
    local = grid() if not interface else dense_agent(1, hidden=4)
    state = DualState(local, triangles=False, backend=backend)
    state.has_mini_buckets = True
    create_boundary_search(state, MEMORY)
    assert compared == ([2] if tried else [])


def test_a_provider_with_mini_buckets_marks_its_dual_ascent():
    problem = grid(side=2)
    local = LocalProblem(0, (), problem.hidden, problem.factors, problem.domains)
    assert registry.get("triangles+mini-bucket").start(local).dual.has_mini_buckets
    assert not registry.get("triangles").start(local).has_mini_buckets
