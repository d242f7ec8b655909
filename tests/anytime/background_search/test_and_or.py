"""Test AND/OR branch and bound against brute force and a recursive search, also with interruptions."""

import time
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constraints.cost_problems import costs_of_all, frequencies, problems

import dmcmc
from dmcmc.inference.execution.backend import CPU
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.samplers.and_or.engine import AndOrSearch
from dmcmc.samplers.and_or.messages import compute_messages
from dmcmc.samplers.and_or.search_kernels import begin_search, improve_incumbent, score_values, search
from dmcmc.samplers.and_or.search_space import INFINITE, LOWER, NODES, TOP, build_search
from dmcmc.samplers.toulbar2.costs import costs_of

MEMORY = 1 << 26
CACHES = 1 << 20
SHAPES = {
    "one variable": (1, [(0,)]),
    "no factor": (3, []),
    "disconnected": (6, [(0, 1), (2, 3), (3, 4), (4, 2)]),
    "chain": (6, [(v, v + 1) for v in range(5)]),
    "grid": (6, [(v, v + 1) for v in range(5) if v % 3 < 2] + [(v, v + 3) for v in range(3)]),
    "clique": (6, [(v, u) for v in range(6) for u in range(v)]),
    "ternary ring": (6, [(v, (v + 1) % 6, (v + 3) % 6) for v in range(6)]),
}


def shaped(name, seed, hard=0.0, floats=False):
    """Return the costs of a random problem with a given graph and unary factors, two or three values a variable."""
    rng = np.random.default_rng(seed)
    n, scopes = SHAPES[name]
    domains = rng.integers(2, 4, n)
    scopes = [*scopes, *((v,) for v in range(n) if rng.random() < 0.5)]
    shapes = [tuple(domains[list(scope)]) for scope in scopes]
    tables = [rng.normal(size=s) if floats else rng.integers(-50, 50, s) for s in shapes]
    lowest = -np.inf if floats else np.iinfo(np.int64).min
    return costs_of(scopes, [np.where(rng.random(t.shape) < hard, lowest, t) for t in tables], domains)


def prepared(costs, max_z=None, caches=CACHES):
    """Return the messages, the search space and the state of a search whose cost to beat is the top."""
    messages = compute_messages(costs, CPU, MEMORY, 60.0, max_z)
    space, state = build_search(messages, caches)
    begin_search(space, state, costs.top)
    return messages, space, state


def finished(space, state, nodes=1):
    """Search to the end, a few nodes at a time; return the state."""
    halt = np.zeros(1, dtype=np.uint8)
    while not search(space, state, nodes, halt):
        improve_incumbent(space, state)
    improve_incumbent(space, state)
    return state


def naive_costs(costs, space, v, values):
    """Return the cost of the subproblem of v for each of its values: a recursive AND/OR search without bounds.

    ``values`` has the values of the ancestors of v.
    """
    found = []
    for x in range(costs.domains[v]):
        assigned, total = values | {v: x}, 0
        for scope, cost in zip(costs.scopes, costs.costs, strict=True):
            if v in scope and all(u in assigned for u in scope.tolist()):
                entry = np.ravel_multi_index([assigned[u] for u in scope.tolist()], costs.domains[scope])
                total += int(cost[entry])
        children = space.child[space.child_at[v] : space.child_at[v + 1]].tolist()
        found.append(total + sum(min(naive_costs(costs, space, child, assigned)) for child in children))
    return found


@given(problems(), st.sampled_from([None, 3, 1]), st.sampled_from([0, CACHES]), st.booleans())
@settings(deadline=None, max_examples=100)
def test_it_finds_and_proves_the_optimum(costs, max_z, caches, known):
    """Bounds enclose the optimum after every node, with and without caches, whatever the messages."""
    best = min(costs_of_all(costs).values(), default=None)
    _, space, state = prepared(costs, max_z, caches)
    if known and best is not None:
        begin_search(space, state, best)
    halt, complete = np.zeros(1, dtype=np.uint8), False
    while not complete:
        complete = search(space, state, 1, halt)
        improve_incumbent(space, state)
        assert best is None or state.head[LOWER] <= best <= state.head[TOP]
    assert state.head[TOP] == (costs.top if best is None else best)
    assert best is None or known or costs.of(state.assignment) == best


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("hard", "floats"), [(0.0, False), (0.0, True), (0.2, False)])
def test_every_shape_is_solved(shape, hard, floats):
    for seed in range(5):
        costs = shaped(shape, seed, hard, floats)
        best = min(costs_of_all(costs).values(), default=costs.top)
        for max_z in (None, 2):
            state = finished(*prepared(costs, max_z)[1:], nodes=3)
            assert state.head[TOP] == best
            assert best == costs.top or costs.of(state.assignment) == best


@pytest.mark.parametrize("shape", ["disconnected", "grid", "ternary ring"])
def test_the_bounds_of_values_are_those_of_a_recursive_search(shape):
    """They equal the costs of the subproblems if messages are exact, and are lower otherwise."""
    for seed, max_z in product(range(3), (None, 2)):
        costs = shaped(shape, seed)
        messages, space, state = prepared(costs, max_z)
        rng, is_below = np.random.default_rng(seed), 0
        for v in range(costs.domains.size):
            ancestors = [int(space.parent[v])]
            while ancestors[-1] >= 0:
                ancestors.append(int(space.parent[ancestors[-1]]))
            path = {u: int(rng.integers(costs.domains[u])) for u in ancestors[:-2]}
            for u, x in path.items():
                state.values[u] = x
            score_values(space, state.values, v, state.trial_score, 0)
            score = state.trial_score[: costs.domains[v]].tolist()
            exact = naive_costs(costs, space, v, path)
            assert score == exact if messages.z is None else all(a <= b for a, b in zip(score, exact, strict=True))
            is_below += score != exact
        assert (messages.z is None) == (is_below == 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_messages_leave_nothing_to_branch_on(shape):
    """The first descent ends at an optimum, whose cost is the bound; the search opens the root only."""
    costs = shaped(shape, 1)
    messages, space, state = prepared(costs)
    improve_incumbent(space, state)
    assert messages.z is None and state.head[LOWER] == state.head[TOP] == min(costs_of_all(costs).values())
    assert finished(space, state).head[NODES] == 1
    begin_search(space, state, costs.top)  # without the descent, which is an assignment that is known beforehand
    assert search(space, state, 1000, np.zeros(1, dtype=np.uint8))
    assert state.head[NODES] == costs.domains.size + 1


def test_caches_save_most_nodes_of_a_narrow_grid():
    """The subproblems of a grid of three rows depend on three variables, and there are a dozen columns."""
    rng, n = np.random.default_rng(0), 36
    scopes = [(v, v + 3) for v in range(n - 3)] + [(v, v + 1) for v in range(n) if v % 3 < 2]
    costs = costs_of(scopes, [rng.integers(0, 10, (3, 3)) for _ in scopes], np.full(n, 3))
    nodes, best = [], []
    for caches in (0, CACHES):
        state = finished(*prepared(costs, 1, caches)[1:], nodes=1000)
        nodes.append(int(state.head[NODES]))
        best.append(int(state.head[TOP]))
    assert best[0] == best[1] and 2 * nodes[1] < nodes[0]


def test_forbidden_values_stay_forbidden_next_to_large_costs():
    huge = 2**47
    tables = [np.array([[-np.inf, -huge], [-huge, -np.inf]]), np.array([[0, -np.inf], [-huge, 0]]), np.full(2, -np.inf)]
    costs = costs_of([(0, 1), (1, 2)], tables[:2], np.full(3, 2))
    assert finished(*prepared(costs, 1)[1:]).head[TOP] == min(costs_of_all(costs).values()) < INFINITE
    infeasible = costs_of([(0, 1), (1, 2), (2,)], tables, np.full(3, 2))
    state = finished(*prepared(infeasible, 1)[1:])
    assert state.head[TOP] == infeasible.top and state.head[NODES] <= 1


def test_it_takes_no_larger_messages_than_the_memory_allows():
    costs = shaped("clique", 0)
    found = [compute_messages(costs, CPU, memory, 60.0) for memory in (700, MEMORY)]
    assert found[0].entries.nbytes <= 700 < found[1].entries.nbytes
    assert found[0].z is not None and found[1].z is None
    with pytest.raises(ResourceError):
        compute_messages(costs, CPU, 100, 60.0)
    with AndOrSearch(100) as engine:
        found = engine.search(costs, None, 10)
    assert found.ended and not found.complete


def test_a_run_ends_with_its_proof():
    problem = frequencies(8)
    result = dmcmc.solve(problem, method="gibbs", bound="none", search="and-or", timeout=600)
    assert result.status == "optimal"
    assert {point.found_by for point in result.trace} >= {"and-or"}
    assert result.objective == dmcmc.solve(problem, method="exact").objective


def test_it_can_be_interrupted():
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(30) for j in range(i)]
    costs = costs_of(pairs, [rng.integers(0, 1000, (4, 4)) for _ in pairs], np.full(30, 4))
    with AndOrSearch(1 << 24) as engine:
        found = engine.start(costs, None, 1000)
        while found.values is None or not engine.nodes:
            time.sleep(0.01)
        assert engine.pause()
    assert found.ended and not found.complete and 0 < found.lower <= costs.of(found.values)
    assert engine.z is not None and prod([4] * engine.z) * 4 <= 1 << 24
