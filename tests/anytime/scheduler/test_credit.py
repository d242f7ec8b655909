"""Test that gains are attributed to the improvers that made them, and that estimated costs are corrected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.anytime.scheduler.proposal import Effect, MeasuredGain, Needs, Properties
from dmcmc.anytime.scheduler.scheduler import Credit

PROPERTIES = {
    "tables": Properties(effect=Effect.LOWER_TABLES),
    "exact": Properties(gains_at_end=True),
    "bounds": Properties(effect=Effect.BOUNDS),
    "more bounds": Properties(effect=Effect.BOUNDS),
    "search": Properties(Needs.ALL_RANKS, Effect.ASSIGNMENTS),
}


def test_estimated_costs_are_corrected_by_past_costs():
    credit = Credit(PROPERTIES)
    assert credit.corrected_cost("exact", 2.0) == 2.0
    credit.attribute([MeasuredGain("exact", 6.0, 2.0)], 0.0, 0.0)
    assert 4.0 < credit.corrected_cost("exact", 2.0) < 6.0
    credit.attribute([MeasuredGain("exact", 1e6, 1.0)], 0.0, 0.0)
    assert credit.corrected_cost("exact", 2.0) == 16.0  # the correction of a disturbed run is limited


def test_gains_are_attributed_to_the_improvers_that_made_them():
    credit = Credit(PROPERTIES)
    gains = [
        MeasuredGain("exact", 1.0, 1.0, closed_gap=3.0),
        MeasuredGain("bounds", 1.0, closed_gap=1.0),
        MeasuredGain("search", 2.0, objective_gain=5.0),
    ]
    credit.attribute(gains, objective=9.0, bound=8.0)
    gained = {improver: (record.objective, record.bound) for improver, record in credit.records.items()}
    assert gained == {"exact": (4.0, 6.0), "bounds": (0.0, 2.0), "search": (5.0, 0.0)}
    credit.attribute([MeasuredGain("bounds", 3.0), MeasuredGain("more bounds", 1.0)], 4.0, 0.0)
    assert (credit.records["bounds"].objective, credit.records["more bounds"].objective) == (3.0, 1.0)


def test_a_gain_of_an_engine_that_declares_nothing_is_its_own():
    credit = Credit(PROPERTIES)
    credit.attribute([MeasuredGain("engine", 1.0, objective_gain=5.0), MeasuredGain("bounds", 1.0)], 9.0, 8.0)
    assert {i: (r.objective, r.bound) for i, r in credit.records.items()} == {
        "engine": (5.0, 0.0),
        "bounds": (4.0, 8.0),
    }


def test_a_trace_point_names_the_improvers_behind_it():
    credit = Credit(PROPERTIES)
    gains = [
        MeasuredGain("tables", 1.0),
        MeasuredGain("bounds", 1.0, closed_gap=1.0),
        MeasuredGain("more bounds", 1.0, closed_gap=2.0),
        MeasuredGain("bounds", 1.0),
        MeasuredGain("more bounds", 1.0, closed_gap=1.0),
        MeasuredGain("engine", 1.0, closed_gap=9.0),
    ]
    assert [*credit.shares_of_bound_gain(gains).items()] == [("more bounds", 0.75), ("bounds", 0.25)]
    assert credit.shares_of_bound_gain(gains[:1]) == {}


@given(
    st.lists(st.tuples(st.sampled_from([*PROPERTIES, "engine"]), *[st.floats(0, 1e6)] * 4), max_size=8),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_attributed_gains_and_seconds_add_up(entries, objective, bound):
    credit, gains = Credit(PROPERTIES), [MeasuredGain(improver, *numbers[:3]) for improver, *numbers in entries]
    credit.attribute(gains, objective, bound)
    assert sum(record.bound for record in credit.records.values()) in (0.0, pytest.approx(bound))
    assert sum(record.seconds for record in credit.records.values()) == pytest.approx(sum(g.seconds for g in gains))
