"""Branch and bound in single rows: sound, monotone, and best-first."""

import math

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.row_searches import (
    active_of,
    buffers_of,
    decoded,
    per_row_bounding,
    relaxations,
    stop_after,
)

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.per_row import bound_rows, node_queue
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import PerRowBounding
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import RowNodeBatch
from dmcmc.inference.bounds.semidefinite.per_row.node_queue import Stage
from dmcmc.inference.bounds.semidefinite.per_row.nodes import (
    BRANCH_SCHEDULE,
    ROOT_SCHEDULE,
    shared_row_vector,
)
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree


@pytest.fixture
def short(monkeypatch):
    """Shorten the schedules: the NumPy reference is slow."""
    monkeypatch.setattr(node_queue, "ROOT_SCHEDULE", ROOT_SCHEDULE._replace(steps=8))
    monkeypatch.setattr(node_queue, "BRANCH_SCHEDULE", BRANCH_SCHEDULE._replace(steps=3))


@pytest.mark.parametrize("hard", [0.0, 0.1])
@pytest.mark.parametrize("floats", [False, True])
def test_per_row_bounds_are_sound_and_never_worse(short, monkeypatch, hard, floats):
    found, exact = relaxations(hard, floats)
    before = [decoded(relaxation) for relaxation in found]
    bounding = per_row_bounding(found, seconds_left=stop_after(monkeypatch, 14))
    bounding.run()
    assert bounding.nodes_by_stage[Stage.ROOT] and bounding.nodes_by_stage[Stage.BRANCH]
    for relaxation, values, bounds_before in zip(found, exact, before, strict=True):
        assert (decoded(relaxation) <= bounds_before).all() and (decoded(relaxation) >= values - 1e-9 * floats).all()
    assert any(
        (decoded(relaxation) < bounds_before).any() for relaxation, bounds_before in zip(found, before, strict=True)
    )
    assert found[0].per_row.exact


def test_the_search_ends_with_all_variables_but_one_fixed_and_sound_bounds(short):
    local = dense_agent(5, hidden=2, max_domain=4)
    relaxation = SemidefiniteRelaxation(DualState(local, triangles=False))
    relaxation._ascent_helps = False
    relaxation.improve(steps=5)
    buffers = (bounding := per_row_bounding([relaxation])).relaxations[0].relaxation.per_row.buffers
    bounding.run()
    assert relaxation.exhausted and relaxation.per_row.buffers is None and relaxation.per_row.has_branched
    assert len(set(buffers.free)) == len(buffers.free) == 200  # all entries are released, each once
    assert all(tree.top is None or len(tree.top.fixed) == 1 for tree in relaxation.per_row.trees.values())
    assert (decoded(relaxation) >= naive.row_values(local).ravel()).all()


def test_the_deadline_ends_the_search_and_a_later_call_continues_it(short):
    found, _ = relaxations()
    per_row_bounding(found, seconds_left=lambda: 0.0).run()
    assert not any(relaxation.per_row.trees or relaxation.exhausted for relaxation in found)
    calls = iter([1e9, 1e9, 1e9, 1e9, 1e9, *[0.0] * 99])
    per_row_bounding(found, seconds_left=lambda: next(calls)).run()
    done = sum(len(relaxation.per_row.trees) for relaxation in found)
    assert 0 < done < sum(relaxation.state.bounds.size for relaxation in found)
    assert not any(relaxation.exhausted or relaxation.per_row.has_branched for relaxation in found)
    with_entry = [tree for relaxation in found for tree in relaxation.per_row.trees.values()]
    per_row_bounding(found, seconds_left=lambda: 0.0).run()
    assert [tree for relaxation in found for tree in relaxation.per_row.trees.values()] == with_entry


def test_leaves_branch_into_domain_parts_and_parts_into_values(monkeypatch, short):
    monkeypatch.setattr(node_queue, "_DOMAIN_PARTS", 2)
    found, exact = relaxations()
    bounding = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 9), max_nodes=6)
    bounding.run()
    relaxation, order = found[0], bounding._buffers.branching_orders[0]
    domain = int(bounding._buffers.sizes[0, order[0]])
    assert domain >= 4 and any(leaf.domain_part for tree in relaxation.per_row.trees.values() for leaf in tree.leaves)
    for row, tree in relaxation.per_row.trees.items():
        assert tree.top.bound >= relaxation.state.bounds[row]
        assert tree.leaves == sorted(tree.leaves, key=lambda leaf: -leaf.bound)
        covered = [leaf.fixed[0][1] for leaf in tree.leaves if len(leaf.fixed) == 1 and leaf.domain_part is None]
        covered += [
            value for leaf in tree.leaves if not leaf.fixed and leaf.domain_part for value in leaf.domain_part.values
        ]
        assert not tree.is_branched or set(covered) | {x.fixed[0][1] for x in tree.leaves if x.fixed} == set(
            range(domain)
        )
    assert (decoded(relaxation) >= exact[0]).all()


def test_an_unconverged_leaf_gets_more_steps_before_it_is_branched(short, monkeypatch):
    found, exact = relaxations()
    per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 2), rows=np.array([1])).run()
    leaf = found[0].per_row.trees[1].top
    leaf.converged, entry, before = False, leaf.entry, leaf.bound
    bounding = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 1), rows=np.array([1]))
    (item,) = bounding.queue.next_batch()
    assert item.stage == Stage.CONTINUE and item.leaf is leaf
    bounding.run()
    (same,) = [
        x for x in found[0].per_row.trees[1].leaves if (x.fixed, x.domain_part) == (leaf.fixed, leaf.domain_part)
    ]
    assert (
        same.converged and same.entry == entry and same.bound <= before and bounding.nodes_by_stage[Stage.CONTINUE] == 1
    )
    assert (decoded(found[0]) >= exact[0]).all()


def test_branches_that_are_no_lower_than_their_parent_are_unconverged(short, monkeypatch):
    found, _ = relaxations()
    per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 1), rows=np.array([1])).run()
    tree = found[0].per_row.trees[1]
    bounding = per_row_bounding(found[:1], rows=np.array([1]))
    (item,) = bounding.queue.next_batch()
    starts, bounds_before = bounding.queue.starts(item), item.leaf.bound
    bounds = [bounds_before + 5 if b == 0 else None if b == 1 else bounds_before - b for b in range(len(starts))]
    bounding._record_bounds(item, starts, bounds, bounding._buffers.free[: len(starts)])
    assert len(starts) > 2 and [leaf.converged for leaf in tree.leaves] == [False] * 2 + [True] * (len(starts) - 2)


def test_a_row_with_a_lower_bound_from_another_method_counts_as_converged(short, monkeypatch):
    found, exact = relaxations()
    found[0].state.bounds[1] = low = found[0].state.layout.scale.encode_all(np.array(exact[0]))[1]
    bounding = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 2), rows=np.array([1]))
    bounding.run()
    tree = found[0].per_row.trees[1]
    assert bounding.nodes_by_stage == [1, 0, len(tree.leaves)] and tree.top.bound > low == found[0].state.bounds[1]
    assert len({leaf.bound for leaf in tree.leaves}) > 1


@pytest.mark.parametrize("has_free_entry", [True, False])
def test_leaves_with_released_entries_get_new_ones_after_more_steps(short, monkeypatch, has_free_entry):
    found, exact = relaxations()
    first = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 4), rows=np.array([1]))
    first.run()
    own, buffers = found[0].per_row, first._buffers
    leaf = own.trees[1].top
    own.release(leaf)
    leaf.converged = False
    if not has_free_entry:
        buffers.free.clear()
        for other in own.trees[1].leaves:  # no other leaf has an entry to release
            other.entry = None
    bounding = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 1), rows=np.array([1]))
    (item,) = (item for item in bounding.queue.next_batch() if item.leaf is leaf)
    (start,) = bounding.queue.starts(item)
    assert (item.stage, start.entry, start.from_parent) == (Stage.CONTINUE, own.agent, False)
    vectors, n, r = buffers.vectors[own.agent].astype(np.float32), buffers.shape.n, buffers.shape.r
    row_vector = shared_row_vector(buffers.descents[0], 1)
    expected = np.pad(row_vector, (0, r - row_vector.size))
    expected = expected + sum(vectors[v * buffers.shape.d + value] for v, value in leaf.fixed)
    assert leaf.fixed and np.allclose(RowNodeBatch(buffers, [start]).steps.workspace.vectors[0, n], expected, atol=1e-3)
    bounding.run()
    (same,) = [x for x in own.trees[1].leaves if (x.fixed, x.domain_part) == (leaf.fixed, leaf.domain_part)]
    assert same.converged and (same.entry is not None) == has_free_entry and same.bound <= leaf.bound
    assert found[0].exhausted == (not has_free_entry)  # a final first leaf without an entry ends the row
    assert (decoded(found[0]) >= exact[0]).all()


def test_leaves_never_share_a_buffer_entry(short, monkeypatch):
    found, _ = relaxations()
    first = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 3), rows=np.array([1]))
    first.run()
    lost, with_entry, *others = found[0].per_row.trees[1].leaves
    for leaf in (lost, *others):
        found[0].per_row.release(leaf)
        leaf.converged = True
    first._buffers.free.clear()
    lost.converged = with_entry.converged = False
    assert with_entry.entry is not None
    bounding = per_row_bounding(found[:1], rows=np.array([1]))
    items = bounding.queue.next_batch()
    assert {item.leaf for item in items} == {lost, with_entry}
    bounding._process_batch(items)
    entry_ids = [leaf.entry for leaf in found[0].per_row.trees[1].leaves]
    assert [entry for entry in entry_ids if entry is not None] == [with_entry.entry]


def test_several_leaves_of_a_row_are_branched_in_one_batch(short, monkeypatch):
    found, _ = relaxations()
    per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 2), rows=np.array([1])).run()
    for leaf in found[0].per_row.trees[1].leaves:
        leaf.converged = True
    bounding = per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 1), rows=np.array([1]), max_nodes=20)
    chosen = bounding.queue.next_batch()
    assert len(chosen) > 1 and {item.row for item in chosen} == {1}
    assert [item.leaf for item in chosen] == found[0].per_row.trees[1].first(len(chosen))


def test_leaves_with_the_smallest_excess_lose_their_entries_first(short, monkeypatch):
    found, exact = relaxations()
    per_row_bounding(found, seconds_left=stop_after(monkeypatch, 40), capacity=8).run()
    for relaxation, values in zip(found, exact, strict=True):
        entry_ids = [
            leaf.entry for tree in relaxation.per_row.trees.values() for leaf in tree.leaves if leaf.entry is not None
        ]
        assert len(entry_ids) <= 8 and (decoded(relaxation) >= values).all()
    stores = [relaxation.per_row.buffers for relaxation in found if relaxation.per_row.buffers is not None]
    taken = [
        leaf.entry
        for relaxation in found
        if relaxation.per_row.buffers is not None
        for tree in relaxation.per_row.trees.values()
        for leaf in tree.leaves
        if leaf.entry is not None
    ]
    for buffers in stores[:1]:
        assert sorted([*taken, *buffers.free]) == list(range(len(buffers.descents), len(buffers.descents) + 8))


def test_a_tree_is_bounded_by_its_highest_leaf():
    tree, leaves = RowTree(), [Leaf(((0, value),), bound) for value, bound in enumerate((5, 9, 9, 2))]
    for leaf in leaves:
        tree.add(leaf)
    assert tree.top is leaves[1] and tree.leaves == [leaves[1], leaves[2], leaves[0], leaves[3]]
    tree.remove(leaves[1])
    assert tree.top is leaves[2] and tree.first(2) == [leaves[2], leaves[0]]
    tree.remove(leaves[2])
    assert tree.top is leaves[0] and tree.first(1) == [leaves[0]] and tree.leaves == [leaves[0], leaves[3]]
    assert tree.is_branched and not RowTree([]).top


def test_irrelevant_rows_are_unchanged(short, monkeypatch):
    found, _ = relaxations()
    before = found[0].state.bounds.copy()
    per_row_bounding(found[:1], seconds_left=stop_after(monkeypatch, 3), rows=np.array([1])).run()
    assert set(found[0].per_row.trees) == {1} and (np.delete(found[0].state.bounds, 1) == np.delete(before, 1)).all()


def test_rows_furthest_above_their_cutoffs_come_first_across_agents():
    found, _ = relaxations()
    tasks = [
        active._replace(task=active.task._replace(cutoffs=active.relaxation.state.bounds[active.task.rows] - excess))
        for active, excess in zip(active_of(found), (1.0, 3.0, 2.0), strict=True)
        for excess in [excess * 2.0**active.relaxation.state.layout.scale.shift]
    ]
    bounding = PerRowBounding(tasks, buffers_of(tasks), 3, lambda: math.inf)
    assert [item.relaxation_index for item in bounding.queue.items()][:2] == [1, 1] and bounding.queue.items()[
        -1
    ].relaxation_index == 0
    assert {item.relaxation_index for item in bounding.queue.next_batch()} == {1}


def test_wrong_certificates_of_the_device_are_replaced_by_the_cpus(short, monkeypatch):
    (found, exact), (other, _) = relaxations(), relaxations()
    per_row_bounding(other, seconds_left=stop_after(monkeypatch, 4)).run()
    monkeypatch.setattr(bound_rows, "certificates", lambda batch: [MINUS_INFINITY + 1] * len(batch.starts))
    per_row_bounding(found, seconds_left=stop_after(monkeypatch, 4)).run()
    assert found[0].per_row.exact is False
    for relaxation, same, values in zip(found, other, exact, strict=True):
        assert (decoded(relaxation) >= values).all() and (relaxation.state.bounds == same.state.bounds).all()


def test_a_failure_releases_all_entries(short, monkeypatch):
    found, _ = relaxations()
    found[0].per_row.expected = True
    assert found[0].per_row.undecided
    bounding = per_row_bounding(found, seconds_left=stop_after(monkeypatch, 3))
    bounding.run()
    for relaxation in found:
        relaxation.per_row.fail()
    assert len(bounding._buffers.free) == 200 and found[0].per_row.buffers is None and not found[0].per_row.undecided
