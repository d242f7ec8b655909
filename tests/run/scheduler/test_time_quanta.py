"""Work that begins anew in each turn has several slices' seconds at once; nobody's time is lost by that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.proposal import BOUND, BRANCH, ELIMINATE, GPU_SEARCH, SAMPLE, SEARCH, Grant
from dmcmc.run.scheduler.time_quanta import Turns

OWNER = [0, 0, 1]
KINDS = [BOUND, SAMPLE, BRANCH, ELIMINATE]


def spent(grants, kind=None, rank=None):
    return sum(
        g.seconds
        for g in grants
        if kind in (None, g.kind) and (rank is None or (g.agent is not None and OWNER[g.agent] == rank))
    )


def test_what_has_few_seconds_has_those_of_several_slices_at_once():
    turns, grants = (
        Turns(),
        [Grant(BRANCH, 0, 0.5), Grant(BRANCH, 1, 0.4), Grant(SAMPLE, 0, 0.06), Grant(SAMPLE, 1, 0.04)],
    )
    had = [turns.gather(grants, OWNER, 1.0) for _ in range(3)]
    assert [spent(one, SAMPLE) for one in had] == [0, 0, pytest.approx(0.3 / 1.2)]
    assert [spent(one) for one in had] == pytest.approx([1.0] * 3)
    assert had[2][2] == Grant(SAMPLE, 0, pytest.approx(0.06 * 3 / 1.2))
    assert not any(turns.owed.values())


def test_long_slices_have_turns_that_are_short_for_them():
    grants = [Grant(BRANCH, 0, 19.4), Grant(BOUND, 0, 0.6)]
    assert Turns().gather(grants, OWNER, 20.0) == tuple(grants)


def test_what_is_alone_is_not_put_off():
    assert Turns().gather([Grant(BOUND, 0, 0.01)], OWNER, 1.0) == (Grant(BOUND, 0, 0.01),)
    both = Turns().gather([Grant(BOUND, 0, 0.01), Grant(SAMPLE, 0, 0.02)], OWNER, 1.0)
    assert [g.kind for g in both] == [SAMPLE] and spent(both) == pytest.approx(0.03)


def test_what_has_a_price_and_what_is_beside_all_is_left_as_it_is():
    others = [Grant(ELIMINATE, 0, 0.01), Grant(SEARCH, None, 0.01), Grant(GPU_SEARCH, None, 0.01)]
    found = Turns().gather([*others, Grant(BRANCH, 0, 0.9), Grant(BOUND, 0, 0.1)], OWNER, 1.0)
    assert sorted(found) == sorted([*others, Grant(BRANCH, 0, 1.0)])


def test_nothing_is_nothing():
    assert Turns().gather([], OWNER, 1.0) == ()


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.floats(1e-3, 2.0)), max_size=8), max_size=6
    ),
    st.floats(0.05, 20.0),
)
def test_a_rank_has_as_many_seconds_as_were_granted_and_little_is_owed(slices, seconds):
    turns = Turns()
    for one in slices:
        grants = [Grant(*each) for each in one]
        found = turns.gather(grants, OWNER, seconds)
        for rank in (0, 1):
            assert spent(found, rank=rank) == pytest.approx(spent(grants, rank=rank))
        assert all(owed < min(0.5, 0.25 * seconds) for owed in turns.owed.values())
        assert {(g.kind, g.agent) for g in found} <= {(g.kind, g.agent) for g in grants}
        assert all(g.seconds > 0 for g in found)
