"""Per-row semidefinite bounds: batched nodes have the same steps and certificates as single ones."""

import math

import numpy as np
import pytest
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_certificates import (
    RowNode,
    certified_node_bound,
    node_matrix,
    node_of,
    node_utilities,
)
from support.semidefinite.naive_nodes import NaiveNodes
from support.semidefinite.row_searches import relaxations, tasks_of

from dmcmc.inference.bounds.branch_and_bound.bounder import OUT_OF_RANGE
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, entry_bytes, node_shape
from dmcmc.inference.bounds.semidefinite.bounder import max_nodes_per_batch
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import certificates
from dmcmc.inference.bounds.semidefinite.node_steps import (
    BRANCH_SCHEDULE,
    ROOT_SCHEDULE,
    NodeSchedule,
)
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation
from dmcmc.inference.bounds.semidefinite.utility_matrix import DescentPoint
from dmcmc.inference.runtime.deadline import Deadline


def starts_of(buffers, agents, rows, entries, changes=()):
    """Return nodes in which ``changes`` (node, variable, values) restrict the domains."""
    agents = np.array(agents, dtype=np.int64)
    allowed = (np.arange(buffers.shape.d) < buffers.sizes[:, :, None])[agents]
    for b, variable, values in changes:
        allowed[b, variable] = np.isin(np.arange(buffers.shape.d), values)
    return NodeStarts(agents, np.array(rows, dtype=np.int64), allowed, np.array(entries, dtype=np.int64))


def batch_of(terms, capacity=50):
    """Return a batch of rows of all agents, and one of their branches; neither has made steps."""
    buffers = AgentBuffers(terms, NaiveNodes(), capacity)
    rows = [(a, r) for a, x in enumerate(terms) for r in range(min(2, math.prod(x.matrix.shape)))]
    first = RowNodeBatch(buffers, starts_of(buffers, *zip(*rows, strict=True), [a for a, _ in rows]))
    entries = len(terms) + np.arange(len(rows))
    buffers.store(first.steps.best, np.arange(len(rows)), entries)
    nodes, changes = list[tuple[int, int, int]](), list[tuple[int, int, list[int]]]()
    for (agent, row), entry in zip(rows, entries.tolist(), strict=True):
        values = list(range(int(buffers.sizes[agent, 0])))
        for chosen in [*([value] for value in values), values[1:] or values]:
            changes.append((len(nodes), 0, chosen))
            nodes.append((agent, row, entry))
    return first, RowNodeBatch(buffers, starts_of(buffers, *zip(*nodes, strict=True), changes))


def agents_and_rows(batch):
    """Return the agent and the row of each node of a batch."""
    return list(zip(batch.starts.agents.tolist(), batch.starts.rows.tolist(), strict=True))


def terms_of(hard=0.0):
    return [task.term for task in tasks_of(relaxations(hard)[0])]


@pytest.mark.parametrize("hard", [0.0, 0.1])
def test_fixing_a_variable_raises_no_bound(hard):
    rows, branches = batch_of(terms_of(hard))
    known = dict(zip(agents_and_rows(rows), certificates(rows).bounds.tolist(), strict=True))
    rounded = 0.01 * max(abs(bound) for bound in known.values())  # stored points have 11 bits
    for node, bound in zip(agents_and_rows(branches), certificates(branches).bounds.tolist(), strict=True):
        assert bound <= known[node] + rounded


@pytest.mark.parametrize("hard", [0.0, 0.15])
def test_batched_certificates_equal_single_ones(hard):
    terms = terms_of(hard)
    for batch in batch_of(terms):
        batch.run(BRANCH_SCHEDULE._replace(steps=3))
        bounds, gaps = certificates(batch)
        for b, agent in enumerate(batch.starts.agents.tolist()):
            assert bounds[b] == certified_node_bound(terms[agent], node_of(batch, b), batch.point(b))
        assert MINUS_INFINITY not in bounds or hard
        feasible = batch.exists & (bounds > MINUS_INFINITY)[:, None]
        assert (gaps[batch.starts.allowed & feasible[:, :, None]] >= 0).all()
        assert (gaps.min(axis=2)[feasible] == 0).all()
        assert np.isinf(gaps[~batch.starts.allowed]).all()


def test_numbers_that_are_too_large_are_not_certified():
    terms = terms_of()
    batch, _ = batch_of(terms)
    batch.steps.best[0][1] *= 1e20
    batch.steps.best[1][2, 0, 9] = np.nan
    with np.errstate(over="ignore"):
        bounds = certificates(batch).bounds
    assert (bounds == OUT_OF_RANGE).tolist()[:3] == [False, True, True]
    assert certified_node_bound(terms[batch.starts.agents[1]], node_of(batch, 1), batch.point(1)) is None


def test_a_batch_makes_the_steps_of_single_nodes():
    terms = terms_of()
    batch_of_all, _ = batch_of(terms)
    assert batch_of_all.run(ROOT_SCHEDULE._replace(steps=6)) == 6
    for b, (agent, row) in enumerate(agents_and_rows(batch_of_all)):
        buffers = AgentBuffers([terms[agent]], NaiveNodes(), 0)
        single = RowNodeBatch(buffers, starts_of(buffers, [0], [row], [0]))
        single.run(ROOT_SCHEDULE._replace(steps=6))
        assert all(np.allclose(x, y, atol=0.01) for x, y in zip(single.point(0), batch_of_all.point(b), strict=True))
        assert float(single.steps.least_bound[0]) == pytest.approx(float(batch_of_all.steps.least_bound[b]), rel=1e-3)


def test_the_terms_bound_matches_the_certificate_and_steps_lower_it():
    terms = terms_of()
    for batch in batch_of(terms):
        before = certificates(batch).bounds
        batch.run(BRANCH_SCHEDULE._replace(steps=30))
        after = certificates(batch).bounds
        for agent, bound, least in zip(batch.starts.agents, after, batch.steps.least_bound.tolist(), strict=True):
            assert bound / terms[agent].unit == pytest.approx(least, rel=5e-3, abs=5e-3)
        assert after.sum() < before.sum()


def test_gradients_match_finite_differences():
    batch, _ = batch_of(terms_of())
    parameters = np.array([NodeSchedule(2, 0.3, 0.3, 1e-9, 1e-9).at(0)] * 2, dtype=np.float32)
    steps = batch.steps
    passes = steps.passes(parameters)
    steps.advance(passes, 0, 1, 2)  # the messages are now those at the start of the next step
    rng, (b, n) = np.random.default_rng(0), (0, batch.shape.n)
    existing = np.flatnonzero(steps.workspace.vectors[b].any(axis=1))

    def smooth(points):
        """Return the smoothed unary part of a node's bound, with the current messages."""
        products, given, total = points @ points.T, steps._given, points[n] @ points[n]
        for u in np.flatnonzero(given.sizes[b]).tolist():
            at = np.arange(u * batch.shape.d, u * batch.shape.d + given.sizes[b, u])
            entries = given.values[b, at] + np.diag(products)[at] + 2 * products[n, at]
            entries = entries + steps.workspace.messages[b][:, at].sum(axis=0)
            total += entries.max() + 0.3 * np.log(np.exp((entries - entries.max()) / 0.3).sum())
        return total

    def unary_gradient(points):
        weights = steps.workspace.weights[b].astype(np.float64)
        unary = np.zeros_like(weights)
        unary[n, n], at = 1, np.arange(n)
        unary[at, at], unary[n, :n], unary[:n, n] = weights[at, at], weights[n, :n], weights[:n, n]
        return 2 * unary @ points

    before = steps.workspace.messages.copy()
    passes.multiply(1), passes.value_maxima(1), passes.update_messages(1)
    points = steps.workspace.vectors[b].astype(np.float64)
    assert not np.array_equal(before, steps.workspace.messages)
    gradient = unary_gradient(points)
    for _ in range(3):
        direction = np.zeros_like(points)
        direction[existing] = rng.standard_normal((existing.size, points.shape[1]))
        change = (smooth(points + 1e-5 * direction) - smooth(points - 1e-5 * direction)) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(change, rel=0.02, abs=0.05)


def test_the_matrix_of_a_node_has_the_agents_utilities():
    local = dense_agent(2, hidden=4, max_domain=5, interface=2)
    matrix = SemidefiniteRelaxation(DualState(local, triangles=False)).utility_matrix()
    u, v = 1, 3
    whole = np.arange(np.diff(matrix.starts).max()) < np.diff(matrix.starts)[:, None]
    values, constant = node_utilities(matrix, RowNode(1, whole))
    allowed = whole.copy()
    allowed[u], allowed[v] = np.arange(whole.shape[1]) == 0, np.arange(whole.shape[1]) == 1
    first, second = matrix.starts[u], matrix.starts[v] + 1
    of_node = node_matrix(matrix, RowNode(1, allowed))
    kept = ~np.isin(matrix.variable_of, (u, v))
    assert of_node.variable_of.size == kept.sum() and of_node.shape == ()
    none = np.zeros((1, 0), dtype=np.int64)
    expected = constant + values[first] + values[second] + matrix.pairs[first, second]
    assert int(of_node.interface_utilities(none)[0]) == expected
    assert (of_node.value_utilities(none)[0] == (values + matrix.pairs[first] + matrix.pairs[second])[kept]).all()


def test_a_batch_has_the_utilities_of_its_nodes():
    terms = terms_of(0.1)
    first, second = batch_of(terms)
    for batch in (first, second):
        for b, agent in enumerate(batch.starts.agents.tolist()):
            values, constant = node_utilities(terms[agent].matrix, node_of(batch, b))
            assert batch.constants[b] == constant
            assert (batch.values[b, batch.buffers.value_columns[agent]] == values).all()


def test_schedules_decrease_and_batches_fit_the_memory():
    for schedule in (ROOT_SCHEDULE, BRANCH_SCHEDULE):
        parameters = np.array([schedule.at(step) for step in range(schedule.steps)])
        assert parameters[0, 0] == pytest.approx(1 / schedule.initial_temperature) and parameters[
            -1, 0
        ] == pytest.approx(1 / schedule.final_temperature)
        assert (np.diff(parameters[:, 0]) > 0).all() and parameters[-1, 1] == pytest.approx(
            schedule.final_step_size, rel=0.01
        )
    assert NodeSchedule(1, 0.1, 0.1, 1.0, 1.0).at(0).step_size == pytest.approx(10)
    shape = node_shape(terms_of())
    assert max_nodes_per_batch(shape, 1 << 40) == 512 and max_nodes_per_batch(shape, 1000) < 1
    assert entry_bytes(shape) == 2 * (shape.m * shape.r + shape.h * shape.n) and shape.m % 8 == 0 < shape.m - shape.n


def test_a_stored_point_is_returned_unchanged():
    batch, _ = batch_of(terms_of())
    entries = np.array([9, 7])
    batch.buffers.store(batch.steps.best, np.array([1, 0]), entries)
    for entry, b in zip(entries, (1, 0), strict=True):
        agent = int(batch.starts.agents[b])
        kept = batch.buffers.extract(agent, batch.buffers.vectors[entry], batch.buffers.messages[entry])
        assert isinstance(kept, DescentPoint)
        assert all(np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(kept, batch.point(b), strict=True))


def test_a_past_deadline_leaves_one_step():
    batch, _ = batch_of(terms_of())
    assert batch.run(BRANCH_SCHEDULE, Deadline(until=0.0)) == 1
