"""Squares of rows' own, and with variables fixed: certified, the same steps and certificates as alone."""

import math

import numpy as np
import pytest
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.naive_nodes import NaiveCases
from support.semidefinite.row_searches import lifts

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.semidefinite.descent import Point
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import cases_at_once
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground, case_shape, slot_bytes
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.per_row.nodes import (
    NODE,
    ROW,
    Case,
    Plan,
    alone,
    busiest_first,
    certified_alone,
    utilities_of,
)
from dmcmc.inference.bounds.semidefinite.relaxation import Lift
from dmcmc.inference.bounds.semidefinite.row_tree import Part
from dmcmc.inference.bounds.semidefinite.step_throughput import as_long_as


def batch_of(descents, slots=50, ground=None):
    """Rows of all agents, and their branches from the points of rows: two batches that have made no steps."""
    ground = ground or Ground(descents, NaiveCases(), slots)
    rows = [(a, r) for a, x in enumerate(descents) for r in range(min(2, math.prod(x.network.shape)))]
    first = CaseBatch(ground, [Start(agent, Case(row), agent) for agent, row in rows])
    starts = list[Start]()
    for (agent, row), slot in zip(rows, ground.keep(first.steps.best, range(len(rows))), strict=True):
        variable = ground.orders[agent][0]
        values = range(int(ground.sizes[agent, variable]))
        starts += [Start(agent, Case(row, ((variable, value),)), slot, fixes=True) for value in values]
        starts.append(Start(agent, Case(row, (), Part(variable, tuple(values[1:] or values))), slot))
    return first, CaseBatch(ground, starts)


def descents_of(hard=0.0):
    found, _ = lifts(hard)
    return [lift._descent for lift in found if lift._descent is not None]


@pytest.mark.parametrize("hard", [0.0, 0.1])
def test_a_fixed_variable_alone_makes_no_bound_higher(hard):
    rows, branches = batch_of(descents_of(hard))
    known = {start[:2]: bound for start, bound in zip(rows.starts, certificates(rows), strict=True)}
    rounded = 0.01 * max(abs(bound) for bound in known.values())  # points that are kept have 11 bits
    for start, bound in zip(branches.starts, certificates(branches), strict=True):
        assert bound <= known[start.agent, Case(start.case.row)] + rounded


@pytest.mark.parametrize("hard", [0.0, 0.15])
def test_certificates_of_many_cases_are_those_of_each(hard):
    descents = descents_of(hard)
    for batch in batch_of(descents):
        batch.run(NODE._replace(steps=3), lambda made: 2)
        bounds = certificates(batch)
        for b, start in enumerate(batch.starts):
            assert bounds[b] == certified_alone(descents[start.agent], start.case, batch.point(b))
        assert NEVER not in bounds or hard


def test_numbers_that_are_too_large_are_certified_neither_here_nor_there():
    descents = descents_of()
    batch, _ = batch_of(descents)
    batch.steps.best[0][1] *= 1e20
    batch.steps.best[1][2, 0, 9] = np.nan
    with np.errstate(over="ignore"):
        bounds = certificates(batch)
    assert bounds[1] is None and bounds[2] is None and bounds[0] is not None
    assert certified_alone(descents[batch.starts[1].agent], batch.starts[1].case, batch.point(1)) is None


def test_cases_make_the_steps_together_that_each_makes_alone():
    descents = descents_of()
    together, _ = batch_of(descents)
    assert together.run(ROW._replace(steps=6), lambda made: 4) == 6
    for b, start in enumerate(together.starts):
        one = CaseBatch(Ground([descents[start.agent]], NaiveCases(), 0), [Start(0, start.case, 0)])
        one.run(ROW._replace(steps=6), lambda made: 4)
        assert all(np.allclose(x, y, atol=0.01) for x, y in zip(one.point(0), together.point(b), strict=True))
        assert float(one.steps.least[0]) == pytest.approx(float(together.steps.least[b]), rel=1e-3)


def test_what_is_left_of_a_case_is_its_bound_and_steps_lower_it():
    descents = descents_of()
    for batch in batch_of(descents):
        before = certificates(batch)
        batch.run(NODE._replace(steps=30), lambda made: 30)
        after = certificates(batch)
        for start, bound, least in zip(batch.starts, after, batch.steps.least.tolist(), strict=True):
            assert bound / descents[start.agent].unit == pytest.approx(least, rel=5e-3, abs=5e-3)
        assert sum(after) < sum(before)


def test_slopes_are_those_of_what_is_left():
    batch, _ = batch_of(descents_of())
    words = np.array([Plan(2, 0.3, 0.3, 1e-9, 1e-9).at(0)] * 2, dtype=np.float32)
    steps = batch.steps
    passes = steps.passes(words)
    steps.make(passes, 0, 1, 2)  # shifts are where the next step would begin
    rng, (b, n) = np.random.default_rng(0), (0, batch.shape.n)
    live = np.flatnonzero(steps.work.points[b].any(axis=1))

    def smooth(points):
        """The smoothed bound of a case by plain sums, with shifts as they are."""
        products, given, total = points @ points.T, steps._given, points[n] @ points[n]
        for u in np.flatnonzero(given.sizes[b]).tolist():
            own = np.arange(u * batch.shape.d, u * batch.shape.d + given.sizes[b, u])
            entries = given.values[b, own] + np.diag(products)[own] + 2 * products[n, own]
            entries = entries + steps.work.shifts[b][:, own].sum(axis=0)
            total += entries.max() + 0.3 * np.log(np.exp((entries - entries.max()) / 0.3).sum())
        return total

    def alone_slope(points):
        weights = steps.work.weights[b].astype(np.float64)
        kept = np.zeros_like(weights)
        kept[n, n], at = 1, np.arange(n)
        kept[at, at], kept[n, :n], kept[:n, n] = weights[at, at], weights[n, :n], weights[:n, n]
        return 2 * kept @ points

    before = steps.work.shifts.copy()
    passes.multiply(1), passes.reach(1), passes.alone(1)
    points = steps.work.points[b].astype(np.float64)
    assert not np.array_equal(before, steps.work.shifts)
    slope = alone_slope(points)
    for _ in range(3):
        way = np.zeros_like(points)
        way[live] = rng.standard_normal((live.size, points.shape[1]))
        change = (smooth(points + 1e-5 * way) - smooth(points - 1e-5 * way)) / 2e-5
        assert (slope * way).sum() == pytest.approx(change, rel=0.02, abs=0.05)


def test_the_network_of_a_case_is_worth_what_the_agent_is_there():
    local = dense_agent(2, hidden=4, most=5, interface=2)
    network = Lift(DualState(local, triangles=False)).lay_out()
    u, v = busiest_first(network)[:2]
    (values,), (constant,) = utilities_of(network, [Case(1)])
    first, second = network.starts[u], network.starts[v] + 1
    reduced = alone(network, Case(1, ((u, 0), (v, 1))))
    kept = ~np.isin(network.owner, (u, v))
    assert reduced.owner.size == kept.sum() and reduced.shape == (1,)
    none = np.zeros((1, 1), dtype=np.int64)
    worth = constant + values[first] + values[second] + network.pairs[first, second]
    assert int(reduced.constants(none)[0]) == worth
    assert (reduced.values(none)[0] == (values + network.pairs[first] + network.pairs[second])[kept]).all()


def test_utilities_of_cases_are_the_same_where_steps_are_made():
    descents = descents_of(0.1)
    first, second = batch_of(descents)
    for batch in (first, second):
        for b, start in enumerate(batch.starts):
            (values,), (constant,) = utilities_of(descents[start.agent].network, [start.case])
            assert batch.constants[b] == constant
            assert (batch.values[b, batch.ground.columns[start.agent]] == values).all()


def test_variables_are_fixed_in_the_order_of_the_tables_that_are_left():
    network = Lift(DualState(dense_agent(4, hidden=5, most=3), triangles=False)).lay_out()
    pairs = np.zeros_like(network.pairs)
    for u, v in ((0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (2, 3)):
        here, there = (slice(network.starts[w], network.starts[w + 1]) for w in (u, v))
        pairs[here, there] = pairs[there, here] = 1
    assert busiest_first(network._replace(pairs=pairs)) == [0, 2, 3, 1, 4]


def test_schedules_go_down_and_batches_fit_the_memory():
    for plan in (ROW, NODE):
        words = np.array([plan.at(step) for step in range(plan.steps)])
        assert words[0, 0] == pytest.approx(1 / plan.warm) and words[-1, 0] == pytest.approx(1 / plan.cold)
        assert (np.diff(words[:, 0]) > 0).all() and words[-1, 1] == pytest.approx(plan.short, rel=0.01)
    assert Plan(1, 0.1, 0.1, 1.0, 1.0).at(0).step == pytest.approx(10)
    shape = case_shape(descents_of())
    assert cases_at_once(shape, 1 << 40) == 512 and cases_at_once(shape, 1000) < 1
    assert slot_bytes(shape) == 2 * (shape.m * shape.r + shape.h * shape.n) and shape.m % 8 == 0 < shape.m - shape.n


def test_a_point_is_kept_and_taken_out_as_it_was():
    batch, _ = batch_of(descents_of())
    slots = batch.ground.keep(batch.steps.best, [1, 0])
    for slot, b in zip(slots, (1, 0), strict=True):
        agent = int(batch.agents[b])
        kept = batch.ground.taken_out(agent, batch.ground.vectors[slot], batch.ground.shifts[slot])
        assert isinstance(kept, Point)
        assert all(np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(kept, batch.point(b), strict=True))


def test_steps_are_asked_for_as_long_as_there_is_time():
    left = iter([5.0, 5.0, math.inf, 0.0])
    more = as_long_as(lambda: next(left))
    assert more(0) == 1 and 1 <= more(1) <= 20 and 1 <= more(11) <= 20 and more(20) == 0
