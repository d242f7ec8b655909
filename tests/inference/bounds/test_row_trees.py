"""Trees of rows' own squares: sound, never worse, the leaves that bound a row first."""

import math

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.row_searches import decoded, ground_of, lifts, own_of, some, turns_of

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.semidefinite.per_row import bound_rows as own_turn
from dmcmc.inference.bounds.semidefinite.per_row import node_queue
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import OwnTurn
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch
from dmcmc.inference.bounds.semidefinite.per_row.node_queue import Stage
from dmcmc.inference.bounds.semidefinite.per_row.nodes import (
    NODE,
    ROW,
    shared_start,
)
from dmcmc.inference.bounds.semidefinite.relaxation import Lift
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree


@pytest.fixture
def short(monkeypatch):
    """Schedules of few steps: the naive twin is slow."""
    monkeypatch.setattr(node_queue, "ROW", ROW._replace(steps=8))
    monkeypatch.setattr(node_queue, "NODE", NODE._replace(steps=3))


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
    monkeypatch.setattr(node_queue, "_PARTS", 2)
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
    one._take_in(item, starts, bounds, one._ground.free[: len(starts)])
    assert len(starts) > 2 and [leaf.settled for leaf in tree.leaves] == [False] * 2 + [True] * (len(starts) - 2)


def test_a_row_that_something_else_bounds_lower_than_its_square_lacks_no_steps(short, monkeypatch):
    found, worth = lifts()
    found[0].state.bounds[1] = low = found[0].state.layout.scale.encode_all(np.array(worth[0]))[1]
    one = own_of(found[:1], left=some(monkeypatch, 2), rows=np.array([1]))
    one.run()
    tree = found[0].own.trees[1]
    assert one.made == [1, 0, len(tree.leaves)] and tree.top.bound > low == found[0].state.bounds[1]
    assert len({leaf.bound for leaf in tree.leaves}) > 1


@pytest.mark.parametrize("room", [True, False])
def test_leaves_whose_points_were_given_back_have_them_again_after_more_steps(short, monkeypatch, room):
    found, worth = lifts()
    first = own_of(found[:1], left=some(monkeypatch, 4), rows=np.array([1]))
    first.run()
    own, ground = found[0].own, first._ground
    leaf = own.trees[1].top
    own.release(leaf)
    leaf.settled = False
    if not room:
        ground.free.clear()
        for other in own.trees[1].leaves:  # nobody has one to give back
            other.slot = None
    one = own_of(found[:1], left=some(monkeypatch, 1), rows=np.array([1]))
    (item,) = (item for item in one.agenda.next_ones() if item.leaf is leaf)
    (start,) = one.agenda.starts(item)
    assert (item.stage, start.slot, start.fixes) == (Stage.LONGER, own.agent, False)
    vectors, n, r = ground.vectors[own.agent].astype(np.float32), ground.shape.n, ground.shape.r
    around = shared_start(ground.descents[0], 1)
    expected = np.pad(around, (0, r - around.size))
    expected = expected + sum(vectors[v * ground.shape.d + value] for v, value in leaf.fixed)
    assert leaf.fixed and np.allclose(CaseBatch(ground, [start]).steps.work.points[0, n], expected, atol=1e-3)
    one.run()
    (same,) = [x for x in own.trees[1].leaves if (x.fixed, x.part) == (leaf.fixed, leaf.part)]
    assert same.settled and (same.slot is not None) == room and same.bound <= leaf.bound
    assert found[0].exhausted == (not room)  # a row whose first leaf has none is as low as it will be
    assert (decoded(found[0]) >= worth[0]).all()


def test_no_two_leaves_have_one_slot_where_some_have_lost_theirs_and_there_is_no_room(short, monkeypatch):
    found, _ = lifts()
    first = own_of(found[:1], left=some(monkeypatch, 3), rows=np.array([1]))
    first.run()
    lost, kept, *others = found[0].own.trees[1].leaves
    for leaf in (lost, *others):
        found[0].own.release(leaf)
        leaf.settled = True
    first._ground.free.clear()
    lost.settled = kept.settled = False
    assert kept.slot is not None
    one = own_of(found[:1], rows=np.array([1]))
    items = one.agenda.next_ones()
    assert {item.leaf for item in items} == {lost, kept}
    one._carry_out(items)
    slots = [leaf.slot for leaf in found[0].own.trees[1].leaves]
    assert [slot for slot in slots if slot is not None] == [kept.slot]


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
