"""Per-row semidefinite bounds: batched nodes have the same steps and certificates as single ones."""

import math

import numpy as np
import pytest
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_nodes import NaiveNodes
from support.semidefinite.row_searches import relaxations

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.descent import DescentPoint
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import max_nodes_per_batch
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers, entry_bytes, node_shape
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import NodeStart, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.per_row.nodes import (
    BRANCH_SCHEDULE,
    ROOT_SCHEDULE,
    NodeSchedule,
    RowNode,
    branching_order,
    certified_node_bound,
    node_matrix,
    node_utilities,
)
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation
from dmcmc.inference.bounds.semidefinite.row_tree import DomainPart
from dmcmc.inference.bounds.semidefinite.step_throughput import step_allowance


def batch_of(descents, capacity=50, buffers=None):
    """Return a batch of rows of all agents, and one of their branches; neither has made steps."""
    buffers = buffers or AgentBuffers(descents, NaiveNodes(), capacity)
    rows = [(a, r) for a, x in enumerate(descents) for r in range(min(2, math.prod(x.matrix.shape)))]
    first = RowNodeBatch(buffers, [NodeStart(agent, RowNode(row), agent) for agent, row in rows])
    starts = list[NodeStart]()
    for (agent, row), entry in zip(rows, buffers.store(first.steps.best, range(len(rows))), strict=True):
        variable = buffers.branching_orders[agent][0]
        values = range(int(buffers.sizes[agent, variable]))
        starts += [NodeStart(agent, RowNode(row, ((variable, value),)), entry, from_parent=True) for value in values]
        starts.append(NodeStart(agent, RowNode(row, (), DomainPart(variable, tuple(values[1:] or values))), entry))
    return first, RowNodeBatch(buffers, starts)


def descents_of(hard=0.0):
    found, _ = relaxations(hard)
    return [relaxation._descent for relaxation in found if relaxation._descent is not None]


@pytest.mark.parametrize("hard", [0.0, 0.1])
def test_fixing_a_variable_raises_no_bound(hard):
    rows, branches = batch_of(descents_of(hard))
    known = {start[:2]: bound for start, bound in zip(rows.starts, certificates(rows), strict=True)}
    rounded = 0.01 * max(abs(bound) for bound in known.values())  # stored points have 11 bits
    for start, bound in zip(branches.starts, certificates(branches), strict=True):
        assert bound <= known[start.agent, RowNode(start.node.row)] + rounded


@pytest.mark.parametrize("hard", [0.0, 0.15])
def test_batched_certificates_equal_single_ones(hard):
    descents = descents_of(hard)
    for batch in batch_of(descents):
        batch.run(BRANCH_SCHEDULE._replace(steps=3), lambda made: 2)
        bounds = certificates(batch)
        for b, start in enumerate(batch.starts):
            assert bounds[b] == certified_node_bound(descents[start.agent], start.node, batch.point(b))
        assert MINUS_INFINITY not in bounds or hard


def test_numbers_that_are_too_large_are_not_certified():
    descents = descents_of()
    batch, _ = batch_of(descents)
    batch.steps.best[0][1] *= 1e20
    batch.steps.best[1][2, 0, 9] = np.nan
    with np.errstate(over="ignore"):
        bounds = certificates(batch)
    assert bounds[1] is None and bounds[2] is None and bounds[0] is not None
    assert certified_node_bound(descents[batch.starts[1].agent], batch.starts[1].node, batch.point(1)) is None


def test_a_batch_makes_the_steps_of_single_nodes():
    descents = descents_of()
    batch_of_all, _ = batch_of(descents)
    assert batch_of_all.run(ROOT_SCHEDULE._replace(steps=6), lambda made: 4) == 6
    for b, start in enumerate(batch_of_all.starts):
        single = RowNodeBatch(AgentBuffers([descents[start.agent]], NaiveNodes(), 0), [NodeStart(0, start.node, 0)])
        single.run(ROOT_SCHEDULE._replace(steps=6), lambda made: 4)
        assert all(np.allclose(x, y, atol=0.01) for x, y in zip(single.point(0), batch_of_all.point(b), strict=True))
        assert float(single.steps.least_bound[0]) == pytest.approx(float(batch_of_all.steps.least_bound[b]), rel=1e-3)


def test_the_descents_bound_matches_the_certificate_and_steps_lower_it():
    descents = descents_of()
    for batch in batch_of(descents):
        before = certificates(batch)
        batch.run(BRANCH_SCHEDULE._replace(steps=30), lambda made: 30)
        after = certificates(batch)
        for start, bound, least in zip(batch.starts, after, batch.steps.least_bound.tolist(), strict=True):
            assert bound / descents[start.agent].unit == pytest.approx(least, rel=5e-3, abs=5e-3)
        assert sum(after) < sum(before)


def test_gradients_match_finite_differences():
    batch, _ = batch_of(descents_of())
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
    u, v = branching_order(matrix)[:2]
    (values,), (constant,) = node_utilities(matrix, [RowNode(1)])
    first, second = matrix.starts[u], matrix.starts[v] + 1
    of_node = node_matrix(matrix, RowNode(1, ((u, 0), (v, 1))))
    kept = ~np.isin(matrix.variable_of, (u, v))
    assert of_node.variable_of.size == kept.sum() and of_node.shape == (1,)
    none = np.zeros((1, 1), dtype=np.int64)
    expected = constant + values[first] + values[second] + matrix.pairs[first, second]
    assert int(of_node.interface_utilities(none)[0]) == expected
    assert (of_node.value_utilities(none)[0] == (values + matrix.pairs[first] + matrix.pairs[second])[kept]).all()


def test_a_batch_has_the_utilities_of_its_nodes():
    descents = descents_of(0.1)
    first, second = batch_of(descents)
    for batch in (first, second):
        for b, start in enumerate(batch.starts):
            (values,), (constant,) = node_utilities(descents[start.agent].matrix, [start.node])
            assert batch.constants[b] == constant
            assert (batch.values[b, batch.buffers.value_columns[start.agent]] == values).all()


def test_the_branching_order_counts_tables_with_unfixed_variables():
    matrix = SemidefiniteRelaxation(DualState(dense_agent(4, hidden=5, max_domain=3), triangles=False)).utility_matrix()
    pairs = np.zeros_like(matrix.pairs)
    for u, v in ((0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (2, 3)):
        here, there = (slice(matrix.starts[w], matrix.starts[w + 1]) for w in (u, v))
        pairs[here, there] = pairs[there, here] = 1
    assert branching_order(matrix._replace(pairs=pairs)) == [0, 2, 3, 1, 4]


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
    shape = node_shape(descents_of())
    assert max_nodes_per_batch(shape, 1 << 40) == 512 and max_nodes_per_batch(shape, 1000) < 1
    assert entry_bytes(shape) == 2 * (shape.m * shape.r + shape.h * shape.n) and shape.m % 8 == 0 < shape.m - shape.n


def test_a_stored_point_is_returned_unchanged():
    batch, _ = batch_of(descents_of())
    entry_ids = batch.buffers.store(batch.steps.best, [1, 0])
    for entry, b in zip(entry_ids, (1, 0), strict=True):
        agent = int(batch.agents[b])
        kept = batch.buffers.extract(agent, batch.buffers.vectors[entry], batch.buffers.messages[entry])
        assert isinstance(kept, DescentPoint)
        assert all(np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(kept, batch.point(b), strict=True))


def test_steps_are_allowed_while_time_remains():
    left = iter([5.0, 5.0, math.inf, 0.0])
    more = step_allowance(lambda: next(left))
    assert more(0) == 1 and 1 <= more(1) <= 20 and 1 <= more(11) <= 20 and more(20) == 0
