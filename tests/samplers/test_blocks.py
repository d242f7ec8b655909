"""Block moves: exact given the rest, within the cell limit, and effective where single variables freeze."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.numpy_gibbs import philox_twin
from support.problem_strategies import PROBLEM_SETTINGS, deterministic_grid, random_problem, with_other_representations
from support.runs import sizes

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.execution.backend import CPU
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.factor_graph import build_graph
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.blocks import starts as mini_bucket_starts
from dmcmc.samplers.blocks.block_gibbs_kernels import redraw
from dmcmc.samplers.blocks.block_selection_kernels import cut, entry_of, grow
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch, new_workspace, order_for_cuts, penalised_graph
from dmcmc.samplers.blocks.starts import starts_of
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.local_search.block_moves import BlockMoves
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.registry import get

KEY = np.array([3, 5], dtype=np.uint64)


def score(problem, values):
    return -problem.evaluate(values).violation, problem.utility_inside(np.asarray(values))


def graph_of(problem):
    return penalised_graph(build_graph(problem))


def value(graph, z):
    return sum(entry_of(graph, z, f) for f in range(graph.scope_start.size - 1))


def random_block(graph, rng, limit):
    """A workspace with a block, grown or cut, and its size."""
    n, state = graph.domains.size, rng.integers(1, 2**63, 1, dtype=np.uint64)
    workspace = new_workspace(graph, True)
    if n and rng.random() < 0.5:
        return workspace, grow(graph, workspace, rng.integers(0, n), limit, 10 * limit, rng.random() < 0.5, state)
    order = rng.permutation(n)
    return workspace, cut(graph, workspace, order, np.argsort(order), rng.random(n), limit, 1 << 30)


@pytest.mark.parametrize("kind", PROBLEM_SETTINGS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_block_move_is_optimal_given_the_rest(kind, seed):
    rng = np.random.default_rng(seed)
    problem = with_other_representations(random_problem(seed, **PROBLEM_SETTINGS[kind]), rng)
    graph = graph_of(problem)
    z = rng.integers(0, problem.domains)
    workspace, size = random_block(graph, rng, 64)
    block, before = workspace.block[:size].tolist(), z.copy()
    if not block:
        return
    ranges = [range(problem.domains[v]) for v in block]
    if np.prod([len(r) for r in ranges]) > 300:
        return
    gain, _ = redraw(graph, z, workspace, size, 0.0, np.ones(1, dtype=np.uint64))
    others = [v for v in range(z.size) if v not in block]
    assert (z[others] == before[others]).all()
    best, tried = -np.inf, before.copy()
    for values in product(*ranges):
        tried[block] = values
        best = max(best, value(graph, tried))
    scale = 1e-12 * -graph.forbidden_entry
    assert value(graph, z) == pytest.approx(best, abs=scale)
    assert gain == pytest.approx(best - value(graph, before), abs=scale)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.sampled_from([4, 16, 100]))
def test_buckets_of_blocks_stay_under_the_limit(seed, limit):
    problem = random_problem(seed, variables=14, factors=30, domain=4)
    graph = graph_of(problem)
    workspace, size = random_block(graph, np.random.default_rng(seed), limit)
    block = workspace.block[:size].tolist()
    scopes = [[v for v in f.scope if v in block] for f in problem.factors]
    plan = plan_elimination([s for s in scopes if s], problem.domains, block)
    assert len(set(block)) == size
    assert plan.program.cells.max(initial=0) <= limit


def test_a_violation_costs_more_than_any_gain_of_utility():
    for seed in range(20):
        problem = random_problem(seed, variables=5, hard=0.4, floats=seed % 2 == 0)
        graph = graph_of(problem)
        for one, other in np.random.default_rng(seed).integers(0, problem.domains, (20, 2, problem.n_variables)):
            if score(problem, one)[0] > score(problem, other)[0]:
                assert value(graph, one) > value(graph, other)


def test_blocks_find_what_single_variables_do_not():
    """Where most entries are forbidden, moves of one variable end at violations, blocks at the optimum."""
    problem = deterministic_grid(9, np.random.default_rng(1))
    graph, start = graph_of(problem), LocalSearch(problem, problem, 0, 1, Deadline()).first()
    blocks = BlockSearch(graph, KEY)
    blocks.cut(order_for_cuts(graph, NO_DEADLINE))
    best, halt = start.copy(), np.zeros(1, dtype=np.uint8)
    blocks.improve(best, 10**7, halt)
    workspace, n = new_workspace(graph, True), problem.n_variables
    exact = start.copy()
    for v in range(n):
        workspace.block[v] = v
    redraw(graph, exact, workspace, n, 0.0, np.ones(1, dtype=np.uint64))
    assert score(problem, start)[0] < score(problem, best)[0] == 0
    assert score(problem, best) == score(problem, exact)


def test_block_moves_are_deterministic_and_never_lose():
    problem = deterministic_grid(5, np.random.default_rng(3))
    graph, start = graph_of(problem), np.zeros(25, dtype=np.int64)
    once, again = start.copy(), start.copy()
    gains = [BlockSearch(graph, KEY).improve(z, 10**6, np.zeros(1, dtype=np.uint8)) for z in (once, again)]
    assert once.tolist() == again.tolist() and gains[0] == gains[1] >= 0
    assert value(graph, once) == pytest.approx(value(graph, start) + gains[0])


def test_draws_of_a_block_follow_the_boltzmann_distribution():
    problem = deterministic_grid(2, np.random.default_rng(4), forbidden=0.2)
    graph, temperature = graph_of(problem), 30.0
    workspace, z, state = new_workspace(graph, False), np.zeros(4, dtype=np.int64), np.ones(1, dtype=np.uint64)
    states = list(product(*map(range, problem.domains.tolist())))
    weights = np.exp([value(graph, np.array(s)) / temperature for s in states])
    counts, draws = dict.fromkeys(states, 0), 4000
    for _ in range(draws):
        workspace.block[:3] = state[0] % np.uint64(2), 2, 3
        redraw(graph, z, workspace, 3, temperature, state)
        counts[tuple(z.tolist())] += 1
    expected = draws * weights / weights.sum()
    assert np.abs(np.array(list(counts.values())) - expected).max() < 6 * np.sqrt(draws / 4)
    assert np.abs(np.array(list(counts.values())) - expected).sum() / draws < 0.15


def test_rows_of_agents_are_sampled_by_blocks():
    """``local.method: blocks`` finds the optimum of each row, as elimination does."""
    problem = replace(deterministic_grid(4, np.random.default_rng(6)), agents=("a", "b"), owner=np.repeat([0, 1], 8))
    locals_, arithmetic = divide(problem).locals, choose_arithmetic(problem.factors)
    sampling = Sampling(arithmetic, runs=2)
    found, again = (
        get("blocks").solve(locals_, replace(sampling, backend=replace(CPU, threads=threads))) for threads in (1, 2)
    )
    for one, other, exact, local in zip(found, again, get("exact").solve(locals_, sampling), locals_, strict=True):
        values = one.lower[0].values
        assert (values == other.lower[0].values).all()
        for row in np.ndindex(local.interface_shape):
            given_values = dict(zip(local.interface, row, strict=True))
            proven = sum(int(t.values[tuple(given_values[v] for v in t.scope)]) for t in exact.lower)
            assert values[row] == (proven if proven > arithmetic.lowest / 2 else arithmetic.lowest)


def drawn_backward(starts, chain, number):
    """Values drawn variable by variable, by the definition in ``mini_bucket_starts_kernels``."""
    plan, share = starts.done.plan, (0.0, 0.1, 0.3, 0.03)[(chain + number) % 4]
    buckets = plan.program.variable.tolist()
    values = {}
    for v in reversed(list(dict.fromkeys(buckets))):
        forbidden, total = np.zeros(plan.program.domains[v]), np.zeros(plan.program.domains[v])
        for b in (b for b, u in enumerate(buckets) if u == v):
            for t in plan.program.inputs[plan.program.input_start[b] : plan.program.input_start[b + 1]]:
                table = starts.done.table(int(t))
                row = table.values[tuple(slice(None) if u == v else values[u] for u in table.scope)]
                hard = row < starts.done.arithmetic.forbidden_below
                forbidden, total = forbidden + hard, total + np.where(hard, 0, row)
        if share:
            words = [philox_twin((3, 5), (chain, number << 3 | 3, v, x))[0] for x in range(total.size)]
            noise = [-math.log(-math.log((word + 0.5) * 2.0**-32)) for word in words]
            total = total + share * starts.spread * np.array(noise)
        values[v] = min(range(total.size), key=lambda x: (forbidden[x], -total[x]))
    return [values[v] for v in range(len(values))]


def test_starts_are_drawn_backward_through_mini_buckets(monkeypatch):
    problem = deterministic_grid(5, np.random.default_rng(5), forbidden=0.1)
    graph, n = graph_of(problem), problem.n_variables
    order, anything = order_for_cuts(graph, NO_DEADLINE), np.zeros(n, dtype=np.int64)
    exact = starts_of(graph, order, anything, KEY, NO_DEADLINE)
    monkeypatch.setattr(mini_bucket_starts, "tuning", sizes(LARGE_ENTRIES=700))
    starts = starts_of(graph, order, anything, KEY, NO_DEADLINE)
    for chain, number in product(range(2), range(4)):
        assert starts.draw(chain, number).tolist() == drawn_backward(starts, chain, number)
    assert len({tuple(starts.draw(chain, 2)) for chain in range(16)}) > 2
    assert score(problem, exact.draw(0, 0)) >= score(problem, starts.draw(0, 0)) > score(problem, anything)
    monkeypatch.setattr(mini_bucket_starts, "tuning", sizes(LARGE_ENTRIES=10))
    assert starts_of(graph, order, anything, KEY, NO_DEADLINE) is None


def test_block_moves_from_starts_continue_while_they_gain():
    problem = deterministic_grid(8, np.random.default_rng(6))
    values, found = np.zeros(64, dtype=np.int64), []
    for _ in range(2):
        moves = BlockMoves(build_graph(problem), 0, 1)
        best = values
        for _ in range(6):
            moves.add_chain_time(0.03, gained=False)
            best = max(best, moves.run(best, timed=False, stop=NO_DEADLINE), key=lambda z: score(problem, z))
        found.append(best)
    assert moves._starts is not None and moves._drawn[0] >= 1
    assert found[0].tolist() == found[1].tolist() and score(problem, found[0])[0] == 0
