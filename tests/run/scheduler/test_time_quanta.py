"""Test that short time quanta are deferred and added up, without loss of time for any rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    EXACT_ELIMINATION,
    GPU_CHAINS,
    LOCAL_SEARCH,
    SAMPLING,
    Allocation,
)
from dmcmc.run.scheduler.time_quanta import DeferredQuanta

OWNER = [0, 0, 1]
IMPROVERS = [BOUND, SAMPLING, BRANCH, EXACT_ELIMINATION]


def spent(allocations, improver=None, rank=None):
    """Return the seconds of some allocations, of one improver or one rank."""
    return sum(
        one.seconds
        for one in allocations
        if improver in (None, one.improver) and (rank is None or (one.agent is not None and OWNER[one.agent] == rank))
    )


def test_short_quanta_are_deferred_and_get_the_seconds_of_several_slices_at_once():
    quanta, allocations = (
        DeferredQuanta(),
        [
            Allocation(BRANCH, 0, 0.5),
            Allocation(BRANCH, 1, 0.4),
            Allocation(SAMPLING, 0, 0.06),
            Allocation(SAMPLING, 1, 0.04),
        ],
    )
    results = [quanta.defer_short(allocations, OWNER, 1.0) for _ in range(3)]
    assert [spent(one, SAMPLING) for one in results] == [0, 0, pytest.approx(0.3 / 1.2)]
    assert [spent(one) for one in results] == pytest.approx([1.0] * 3)
    assert results[2][2] == Allocation(SAMPLING, 0, pytest.approx(0.06 * 3 / 1.2))
    assert not any(quanta.owed_seconds.values())


def test_a_small_part_of_a_long_slice_is_enough_for_a_quantum():
    allocations = [Allocation(BRANCH, 0, 19.4), Allocation(BOUND, 0, 0.6)]
    assert DeferredQuanta().defer_short(allocations, OWNER, 20.0) == tuple(allocations)


def test_the_only_work_of_a_rank_is_not_deferred():
    assert DeferredQuanta().defer_short([Allocation(BOUND, 0, 0.01)], OWNER, 1.0) == (Allocation(BOUND, 0, 0.01),)
    both = DeferredQuanta().defer_short([Allocation(BOUND, 0, 0.01), Allocation(SAMPLING, 0, 0.02)], OWNER, 1.0)
    assert [g.improver for g in both] == [SAMPLING] and spent(both) == pytest.approx(0.03)


def test_work_with_a_cost_and_work_of_all_ranks_is_not_changed():
    others = [
        Allocation(EXACT_ELIMINATION, 0, 0.01),
        Allocation(LOCAL_SEARCH, None, 0.01),
        Allocation(GPU_CHAINS, None, 0.01),
    ]
    result = DeferredQuanta().defer_short([*others, Allocation(BRANCH, 0, 0.9), Allocation(BOUND, 0, 0.1)], OWNER, 1.0)
    assert sorted(result) == sorted([*others, Allocation(BRANCH, 0, 1.0)])


def test_without_allocations_nothing_is_deferred():
    assert DeferredQuanta().defer_short([], OWNER, 1.0) == ()


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(IMPROVERS), st.integers(0, 2), st.floats(1e-3, 2.0)), max_size=8), max_size=6
    ),
    st.floats(0.05, 20.0),
)
def test_a_rank_gets_all_allocated_seconds_and_little_is_owed(slices, seconds):
    quanta = DeferredQuanta()
    for slice_ in slices:
        allocations = [Allocation(*each) for each in slice_]
        result = quanta.defer_short(allocations, OWNER, seconds)
        for rank in (0, 1):
            assert spent(result, rank=rank) == pytest.approx(spent(allocations, rank=rank))
        assert all(owed < min(0.5, 0.25 * seconds) for owed in quanta.owed_seconds.values())
        assert {(one.improver, one.agent) for one in result} <= {(one.improver, one.agent) for one in allocations}
        assert all(one.seconds > 0 for one in result)
