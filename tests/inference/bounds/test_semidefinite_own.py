"""Squares of rows' own, and with variables fixed: sound, never worse, the same steps and certificates as alone."""

import math

import numpy as np
import pytest
from support import naive
from support.lifts.dense_agents import dense_agent
from support.lifts.naive_cases import NaiveCases

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.semidefinite.descent import Point
from dmcmc.inference.bounds.semidefinite.lift import Lift, Turn
from dmcmc.inference.bounds.semidefinite.own import agenda
from dmcmc.inference.bounds.semidefinite.own import turn as own_turn
from dmcmc.inference.bounds.semidefinite.own.agenda import Stage
from dmcmc.inference.bounds.semidefinite.own.batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.own.cases import (
    DAMPED,
    NODE,
    QUICK,
    ROW,
    Case,
    Plan,
    alone,
    busiest_first,
    certified_alone,
    utilities_of,
)
from dmcmc.inference.bounds.semidefinite.own.certificates import certificates
from dmcmc.inference.bounds.semidefinite.own.ground import Ground, case_shape, slot_bytes
from dmcmc.inference.bounds.semidefinite.own.turn import OwnTurn, cases_at_once
from dmcmc.inference.bounds.semidefinite.pace import as_long_as
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, Part, RowTree


def agents(hard=0.0, floats=False):
    """Agents of unlike sizes."""
    return [
        dense_agent(1, hidden=5, most=6, hard=hard, floats=floats),
        dense_agent(2, hidden=3, most=5, interface=2, hard=hard, floats=floats),
        dense_agent(3, hidden=4, most=5, interface=0, hard=hard, floats=floats),
    ]


def lifts(hard=0.0, floats=False, steps=5):
    """Lifts of agents that have made some steps together, and what their rows are worth."""
    locals_ = agents(hard, floats)
    found = [Lift(DualState(local, triangles=False)) for local in locals_]
    for lift in found:
        lift._ascends = False
        lift.improve(steps=steps)
    return found, [naive.row_values(local).ravel() for local in locals_]


def turns_of(found, rows=None, limits=None):
    opened = [(lift, lift.open(rows, limits)) for lift in found if not lift.exhausted]
    return [Turn(*one) for one in opened if one[1] is not None]  # others are proven infeasible


def ground_of(turns, slots=200):
    """What the agents of turns share, laid out."""
    ground = Ground([turn.opened.descent for turn in turns], NaiveCases(), slots)
    for number, turn in enumerate(turns):
        turn.lift.own.ground, turn.lift.own.agent = ground, number
    return ground


def own_of(found, most=9, left=lambda: math.inf, slots=200, rows=None):
    """A turn of lifts, on a ground that is new or theirs already."""
    turns = turns_of(found, rows)
    return OwnTurn(turns, turns[0].lift.own.ground or ground_of(turns, slots), most, left)


def decoded(lift):
    return np.array([lift.state.layout.scale.decode(int(bound)) for bound in lift.state.bounds])


def some(monkeypatch, count):
    """Let a turn end after some batches, without a look at the clock."""
    made, carry_out = [], OwnTurn._carry_out

    def counted(self, items):
        made.append(items)
        carry_out(self, items)

    monkeypatch.setattr(OwnTurn, "_carry_out", counted)
    return lambda: math.inf if len(made) < count else 0.0


@pytest.fixture
def short(monkeypatch):
    """Schedules of few steps: the naive twin is slow."""
    monkeypatch.setattr(agenda, "ROW", ROW._replace(steps=8))
    monkeypatch.setattr(agenda, "NODE", NODE._replace(steps=3))


@pytest.mark.parametrize("hard", [0.0, 0.1])
@pytest.mark.parametrize("floats", [False, True])
def test_squares_of_rows_own_are_sound_and_never_worse(short, monkeypatch, hard, floats):
    found, worth = lifts(hard, floats)
    before = [decoded(lift) for lift in found]
    one = own_of(found, left=some(monkeypatch, 14))
    one.run()
    assert one.made[Stage.ALONE] and one.made[Stage.SPLIT]
    for lift, values, above in zip(found, worth, before, strict=True):
        assert (decoded(lift) <= above).all() and (decoded(lift) >= values - 1e-9 * floats).all()
    assert any((decoded(lift) < above).any() for lift, above in zip(found, before, strict=True))
    assert found[0].own.exact


def test_all_variables_but_one_are_fixed_at_the_end_and_bounds_are_what_rows_are_worth(short):
    local = dense_agent(5, hidden=2, most=4)
    lift = Lift(DualState(local, triangles=False))
    lift._ascends = False
    lift.improve(steps=5)
    ground = (one := own_of([lift])).turns[0].lift.own.ground
    one.run()
    assert lift.exhausted and lift.own.ground is None and lift.own.grown
    assert len(set(ground.free)) == len(ground.free) == 200  # all slots are given back, once each
    assert all(tree.top is None or len(tree.top.fixed) == 1 for tree in lift.own.trees.values())
    assert (decoded(lift) >= naive.row_values(local).ravel()).all()


def batch_of(descents, slots=50, ground=None):
    """Rows of all agents, and their branches from the points of rows: two batches that have made no steps."""
    ground = ground or Ground(descents, NaiveCases(), slots)
    rows = [(a, r) for a, x in enumerate(descents) for r in range(min(2, math.prod(x.network.shape)))]
    first = CaseBatch(ground, [Start(agent, Case(row), agent) for agent, row in rows])
    starts = list[Start]()
    for (agent, row), slot in zip(rows, ground.keep(first.steps.best, range(len(rows))), strict=True):
        variable = ground.orders[agent][0]
        values = range(int(ground.sizes[agent, variable]))
        starts += [Start(agent, Case(row, ((variable, value),)), slot, QUICK, fixes=True) for value in values]
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


def test_time_ends_a_turn_and_what_is_not_done_is_done_later(short):
    found, _ = lifts()
    own_of(found, left=lambda: 0.0).run()
    assert not any(lift.own.trees or lift.exhausted for lift in found)
    calls = iter([1e9, 1e9, 1e9, 1e9, 1e9, *[0.0] * 99])
    own_of(found, left=lambda: next(calls)).run()
    done = sum(len(lift.own.trees) for lift in found)
    assert 0 < done < sum(lift.state.bounds.size for lift in found)
    assert not any(lift.exhausted or lift.own.grown for lift in found)
    kept = [tree for lift in found for tree in lift.own.trees.values()]
    own_of(found, left=lambda: 0.0).run()
    assert [tree for lift in found for tree in lift.own.trees.values()] == kept


def test_leaves_have_branches_of_parts_of_a_variables_values_and_those_of_values(monkeypatch, short):
    monkeypatch.setattr(agenda, "_PARTS", 2)
    found, worth = lifts()
    one = own_of(found[:1], left=some(monkeypatch, 9), most=6)
    one.run()
    lift, order = found[0], one._ground.orders[0]
    domain = int(one._ground.sizes[0, order[0]])
    assert domain >= 4 and any(leaf.part for tree in lift.own.trees.values() for leaf in tree.leaves)
    for row, tree in lift.own.trees.items():
        assert tree.top.bound >= lift.state.bounds[row]
        assert tree.leaves == sorted(tree.leaves, key=lambda leaf: -leaf.bound)
        covered = [leaf.fixed[0][1] for leaf in tree.leaves if len(leaf.fixed) == 1 and leaf.part is None]
        covered += [value for leaf in tree.leaves if not leaf.fixed and leaf.part for value in leaf.part.values]
        assert not tree.grown or set(covered) | {x.fixed[0][1] for x in tree.leaves if x.fixed} == set(range(domain))
    assert (decoded(lift) >= worth[0]).all()


def test_a_branch_that_is_no_lower_than_its_leaf_has_more_steps_before_it_has_branches(short, monkeypatch):
    found, worth = lifts()
    own_of(found[:1], left=some(monkeypatch, 2), rows=np.array([1])).run()
    leaf = found[0].own.trees[1].top
    leaf.settled, slot, before = False, leaf.slot, leaf.bound
    one = own_of(found[:1], left=some(monkeypatch, 1), rows=np.array([1]))
    (item,) = one.agenda.next_ones()
    assert item.stage == Stage.LONGER and item.leaf is leaf
    one.run()
    (same,) = [x for x in found[0].own.trees[1].leaves if (x.fixed, x.part) == (leaf.fixed, leaf.part)]
    assert same.settled and same.slot == slot and same.bound <= before and one.made[Stage.LONGER] == 1
    assert (decoded(found[0]) >= worth[0]).all()


def test_branches_that_are_no_lower_than_their_leaf_lack_steps(short, monkeypatch):
    found, _ = lifts()
    own_of(found[:1], left=some(monkeypatch, 1), rows=np.array([1])).run()
    tree = found[0].own.trees[1]
    one = own_of(found[:1], rows=np.array([1]))
    (item,) = one.agenda.next_ones()
    starts, above = one.agenda.starts(item), item.leaf.bound
    bounds = [above + 5 if b == 0 else None if b == 1 else above - b for b in range(len(starts))]
    one._take_in(item, starts, bounds, [None] * len(starts))
    assert len(starts) > 2 and [leaf.settled for leaf in tree.leaves] == [False] * 2 + [True] * (len(starts) - 2)


@pytest.mark.parametrize("high", [0, 1])
def test_agents_whose_branches_do_not_settle_go_slower(short, monkeypatch, high):
    found, _ = lifts()
    one = own_of(found, left=some(monkeypatch, 2))
    one.run()
    for turn in one.turns:  # after so few steps
        turn.lift.own.unsettled = False
    items = [item for item in one.agenda.items() if item.stage == Stage.SPLIT]
    chosen = [next(item for item in items if item.turn == number) for number in (0, 1)]
    starts = [one.agenda.starts(item) for item in chosen]
    assert {start.damped for own in starts for start in own} == {QUICK}
    bounds = [item.leaf.bound - 1 for item, own in zip(chosen, starts, strict=True) for _ in own]
    if high:
        bounds[-1] = chosen[1].leaf.bound
    one._see_who_settles(chosen, starts, bounds)
    assert [turn.lift.own.unsettled for turn in one.turns[:2]] == [False, bool(high)]
    assert {start.damped for start in one.agenda.starts(chosen[1])} == {DAMPED if high else QUICK}


@pytest.mark.parametrize("cut", [0, 1])
def test_branches_of_fewer_steps_than_wanted_do_not_tell_who_settles(short, monkeypatch, cut):
    found, _ = lifts()
    one = own_of(found[:1], left=some(monkeypatch, 3), rows=np.array([1]))
    for turn in one.turns:
        turn.lift.own.exact = True
    monkeypatch.setattr(CaseBatch, "run", lambda self, plan, more: plan.steps - cut)
    monkeypatch.setattr(own_turn, "certificates", lambda batch: [1 << 60] * len(batch.starts))
    one.run()
    assert one.made[Stage.SPLIT] and any(turn.lift.own.unsettled for turn in one.turns) == (not cut)


def test_several_leaves_of_a_row_have_branches_at_once(short, monkeypatch):
    found, _ = lifts()
    own_of(found[:1], left=some(monkeypatch, 2), rows=np.array([1])).run()
    for leaf in found[0].own.trees[1].leaves:
        leaf.settled = True
    one = own_of(found[:1], left=some(monkeypatch, 1), rows=np.array([1]), most=20)
    chosen = one.agenda.next_ones()
    assert len(chosen) > 1 and {item.row for item in chosen} == {1}
    assert [item.leaf for item in chosen] == found[0].own.trees[1].first(len(chosen))


def test_points_of_leaves_that_matter_least_give_way(short, monkeypatch):
    found, worth = lifts()
    own_of(found, left=some(monkeypatch, 40), slots=8).run()
    for lift, values in zip(found, worth, strict=True):
        slots = [leaf.slot for tree in lift.own.trees.values() for leaf in tree.leaves if leaf.slot is not None]
        assert len(slots) <= 8 and (decoded(lift) >= values).all()
    grounds = [lift.own.ground for lift in found if lift.own.ground is not None]
    taken = [
        leaf.slot
        for lift in found
        if lift.own.ground is not None
        for tree in lift.own.trees.values()
        for leaf in tree.leaves
        if leaf.slot is not None
    ]
    for ground in grounds[:1]:
        assert sorted([*taken, *ground.free]) == list(range(len(ground.descents), len(ground.descents) + 8))


def test_a_tree_is_bounded_by_its_highest_leaf():
    tree, leaves = RowTree(), [Leaf(((0, value),), bound) for value, bound in enumerate((5, 9, 9, 2))]
    for leaf in leaves:
        tree.add(leaf)
    assert tree.top is leaves[1] and tree.leaves == [leaves[1], leaves[2], leaves[0], leaves[3]]
    tree.remove(leaves[1])
    assert tree.top is leaves[2] and tree.first(2) == [leaves[2], leaves[0]]
    tree.remove(leaves[2])
    assert tree.top is leaves[0] and tree.first(1) == [leaves[0]] and tree.leaves == [leaves[0], leaves[3]]
    assert tree.grown and not RowTree([]).top


def test_rows_that_do_not_matter_are_left_as_they_are(short, monkeypatch):
    found, _ = lifts()
    before = found[0].state.bounds.copy()
    own_of(found[:1], left=some(monkeypatch, 3), rows=np.array([1])).run()
    assert set(found[0].own.trees) == {1} and (np.delete(found[0].state.bounds, 1) == np.delete(before, 1)).all()


def test_rows_furthest_beyond_their_limits_come_first_whoever_they_are_of():
    found, _ = lifts()
    turns = [
        turn._replace(opened=turn.opened._replace(limits=turn.lift.state.bounds[turn.opened.rows] - beyond))
        for turn, beyond in zip(turns_of(found), (1.0, 3.0, 2.0), strict=True)
        for beyond in [beyond * 2.0**turn.lift.state.layout.scale.shift]
    ]
    one = OwnTurn(turns, ground_of(turns), 3, lambda: math.inf)
    assert [item.turn for item in one.agenda.items()][:2] == [1, 1] and one.agenda.items()[-1].turn == 0
    assert {item.turn for item in one.agenda.next_ones()} == {1}


def test_certificates_that_are_not_those_of_the_cpu_are_not_used(short, monkeypatch):
    (found, worth), (other, _) = lifts(), lifts()
    own_of(other, left=some(monkeypatch, 4)).run()
    monkeypatch.setattr(own_turn, "certificates", lambda batch: [NEVER + 1] * len(batch.starts))
    own_of(found, left=some(monkeypatch, 4)).run()
    assert found[0].own.exact is False
    for lift, same, values in zip(found, other, worth, strict=True):
        assert (decoded(lift) >= values).all() and (lift.state.bounds == same.state.bounds).all()


def test_what_fails_gives_all_back_and_is_not_waited_for(short, monkeypatch):
    found, _ = lifts()
    found[0].own.expected = True
    assert found[0].own.young
    one = own_of(found, left=some(monkeypatch, 3))
    one.run()
    for lift in found:
        lift.own.fail()
    assert len(one._ground.free) == 200 and found[0].own.ground is None and not found[0].own.young


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
