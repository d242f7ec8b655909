"""Test our branch and bound for whole problems against brute force, also with interruptions."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constraints.cost_problems import costs_of_all, frequencies, problems

import dmcmc
from dmcmc.anytime.engines import choose_engine
from dmcmc.config.settings import Budget, Settings
from dmcmc.samplers.branch_and_bound.cost_network import (
    DEPTH,
    LOWER,
    MAX_LISTED_TUPLES,
    NODES,
    TOP,
    bytes_needed,
    cost_tables,
    network_of,
)
from dmcmc.samplers.branch_and_bound.engine import BranchAndBound
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, search
from dmcmc.samplers.toulbar2.costs import costs_of

HARD = -np.inf


@given(problems(), st.booleans())
@settings(deadline=None, max_examples=200)
def test_it_finds_and_proves_the_optimum(costs, known):
    costs_by_values = costs_of_all(costs)
    best = min(costs_by_values.values(), default=None)
    with BranchAndBound() as engine:
        found = engine.search(costs, costs.bound(best) if known and best is not None else None, 600)
    assert found.complete and found.ended
    if best is None or known:
        assert found.values is None
    else:
        assert costs_by_values[tuple(found.values.tolist())] == best
    assert best is None or found.lower <= best


@given(problems())
@settings(deadline=None, max_examples=50)
def test_it_continues_after_interruptions(costs):
    best = min(costs_of_all(costs).values(), default=costs.top)
    network, state = network_of(cost_tables(costs))
    halt, begin, code, more = np.ones(1, dtype=np.uint8), True, -1, np.zeros_like(state.trail)
    while code != COMPLETE:
        code, begin = search(network, state, begin, 1, halt), False
        assert state.head[LOWER] <= best <= state.head[TOP]
        halt[0] = not halt[0]
        state = state._replace(trail=np.concatenate([state.trail, more]))  # doubling would take gigabytes
    assert state.head[TOP] == best and state.head[DEPTH] == 0


@given(st.integers(0, 2**32), st.integers(2, 4), st.sampled_from([0, 1, 5]))
@settings(deadline=None, max_examples=100)
def test_interchangeable_values_are_tried_once(seed, size, forbidden):
    """Some or all colours are interchangeable; the proven optimum is the same."""
    rng, n = np.random.default_rng(seed), 5
    scopes = [(v, u) for v in range(n) for u in range(v) if rng.random() < 0.7]
    interchangeable = int(rng.integers(1, size + 1))  # the other colours have different unary costs
    unary = np.concatenate([np.zeros(interchangeable), np.arange(1, size - interchangeable + 1)])
    tables = [np.where(np.eye(size) > 0, HARD if forbidden > i else -rng.integers(1, 9), 0) for i in range(len(scopes))]
    costs = costs_of([*scopes, *((v,) for v in range(n))], [*tables, *(n * [-unary])], np.full(n, size))
    network, state = network_of(cost_tables(costs))
    assert network.interchangeable.tolist() == (
        [0] * interchangeable + list(range(interchangeable, size)) if interchangeable > 1 else []
    )
    assert search(network, state, True, 10_000, np.zeros(1, dtype=np.uint8)) == COMPLETE
    assert state.head[TOP] == min(costs_of_all(costs).values(), default=costs.top)


def test_interchangeable_values_save_most_nodes_of_a_colouring():
    scopes, nodes = [(v, u) for v in range(7) for u in range(v)], []
    costs = costs_of(scopes, [-np.eye(4, dtype=np.int64)] * len(scopes), np.full(7, 4))
    for without in (False, True):
        network, state = network_of(cost_tables(costs))
        network = network._replace(interchangeable=network.interchangeable[:0]) if without else network
        assert search(network, state, True, 10_000, np.zeros(1, dtype=np.uint8)) == COMPLETE
        nodes.append(state.head[NODES])
    assert 4 * nodes[0] < nodes[1]


def test_a_run_ends_with_its_proof():
    problem = frequencies()
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="branch-and-bound", timeout=600)
    assert result.status == "optimal"
    assert {point.found_by for point in result.trace} >= {"branch-and-bound"}
    assert result.objective == dmcmc.solve(problem, method="exact").objective


def test_it_can_be_interrupted():
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(30) for j in range(i)]
    costs = costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(30, 4))
    start = time.perf_counter()
    with BranchAndBound() as engine:
        found = engine.start(costs, None, 1000)
        while found.values is None:
            time.sleep(0.01)
        assert engine.pause()
    assert found.ended and not found.complete and time.perf_counter() - start < 500


def test_a_problem_that_does_not_fit_the_memory_is_not_started():
    costs = costs_of([(0, 1)], [np.ones((300, 300))], np.full(2, 300))
    with BranchAndBound(bytes_needed(costs) - 1) as engine:
        assert not engine.search(costs, None, 10).complete
    listed = costs_of([(0, 1, 2)], [np.arange(30.0**3).reshape(30, 30, 30)], np.full(3, 30))
    assert MAX_LISTED_TUPLES < 30**3 and bytes_needed(listed) > 1 << 60


@pytest.mark.parametrize(("installed", "asked", "name"), [
    (False, "auto", "branch-and-bound"), (True, "auto", "toulbar2"), (True, "branch-and-bound", "branch-and-bound"),
    (True, "none", None), (True, "toulbar2", "toulbar2"),
])  # fmt: skip
def test_our_branch_and_bound_replaces_a_missing_toulbar2(installed, asked, name, monkeypatch):
    monkeypatch.setattr(choose_engine, "available", lambda: installed)
    monkeypatch.setattr(choose_engine, "cores", lambda: 2)
    problem = frequencies(3)
    assert choose_engine.choose_engine(Settings(search=asked, budget=Budget(time=10, memory=1 << 30)), problem) == name
