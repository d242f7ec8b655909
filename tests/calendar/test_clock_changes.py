"""Days on which clocks change: slots are elapsed time, rules are local time, and iCalendar files agree with both."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dmcmc.calendars.file.busy_files import busy_rules
from dmcmc.calendars.file.clashes import different_in_series, out_of_order
from dmcmc.calendars.file.plan import TimeGrid, union
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.file.time_rules import mask_of, moment_of
from dmcmc.calendars.pages.answer import answer_of, text_of
from dmcmc.calendars.solve import solve_calendar
from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError

FORWARD, BACK = date(2027, 3, 28), date(2027, 10, 31)  # in Berlin at 01:00 UTC: 02:00 to 03:00, and 03:00 to 02:00
ZONES = ["Europe/Berlin", "Europe/London", "Australia/Lord_Howe", "Asia/Tokyo"]  # Lord Howe changes by half an hour


def calendar_of(text):
    return read_calendar(SourceFile("night.yaml", text.encode()))


def night(day, hours, slot, meetings, people="Ann: "):
    head = f"calendar: Night\ndays: [{day}]\nhours: {hours}\nslot: {slot}\ntimezone: Europe/Berlin\n"
    return calendar_of(f"{head}people: {{{people}}}\nmeetings: {{{meetings}}}\n")


def minutes_of_slot(grid, slot, zone):
    """Return the local times of all minutes of a slot."""
    first = datetime.fromtimestamp(int(grid.starts[slot]), UTC)
    return [(first + timedelta(minutes=i)).astimezone(ZoneInfo(zone)) for i in range(grid.minutes)]


@pytest.mark.parametrize(("day", "open_slots"), [(FORWARD, 6), (BACK, 10), (date(2027, 3, 29), 8)])
def test_slots_are_elapsed_time_within_the_hours_of_the_day(day, open_slots):
    grid = TimeGrid((date(2027, 3, 1), day), 60, 8, 30, "Europe/Berlin")
    assert (np.diff(grid.starts[grid.slots :]) == 30 * 60).all()
    assert grid.open[grid.slots :].sum() == open_slots and grid.open[: grid.slots].sum() == 8
    for slot in np.flatnonzero(grid.open).tolist():
        for moment in minutes_of_slot(grid, slot, "Europe/Berlin"):
            assert moment.date() == grid.days[slot // grid.slots] and 1 <= moment.hour < 5


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("day", [FORWARD, BACK, date(2027, 4, 4), date(2027, 10, 3)])
@pytest.mark.parametrize("rule", ["Sun 02:00-03:00", "Sun before 02:30", "not Sun 01:45-02:15", "Sat", "after 03:15"])
def test_rules_hold_for_the_local_time_of_every_minute_of_a_slot(zone, day, rule):
    """Compare with the minutes of each slot, from 20:00 of the day before to the evening of the day."""
    grid = TimeGrid((day - timedelta(days=1), day), 0, 36, 40, "Europe/Berlin")
    matches = {
        "Sun 02:00-03:00": lambda x: x.weekday() == 6 and x.hour == 2,
        "Sun before 02:30": lambda x: x.weekday() == 6 and (x.hour, x.minute) < (2, 30),
        "not Sun 01:45-02:15": lambda x: not (x.weekday() == 6 and (1, 45) <= (x.hour, x.minute) < (2, 15)),
        "Sat": lambda x: x.weekday() == 5,
        "after 03:15": lambda x: (x.hour, x.minute) >= (3, 15),
    }[rule]
    for touching, quantifier in ((True, any), (False, all)):
        mask = mask_of(rule, grid, touching, zone)
        for slot in range(grid.size):
            expected = quantifier(matches(x) for x in minutes_of_slot(grid, slot, zone))
            crosses_midnight = len({x.date() for x in minutes_of_slot(grid, slot, zone)}) > 1
            assert mask[slot] == expected or crosses_midnight, (touching, slot)


def test_a_time_that_does_not_exist_is_refused_and_one_that_is_twice_needs_its_offset():
    with pytest.raises(FileError, match=r"meetings.A.fixed: 02:00 does not exist on 2027-03-28, when clocks in Europe"):
        night(FORWARD, "01:00-05:00", 60, "A: {people: [Ann], fixed: 2027-03-28 02:00}")
    with pytest.raises(FileError, match=r"02:30 exists twice .*; give 2027-10-31 02:30\+01:00 or 2027"):
        night(BACK, "01:00-05:00", 30, "A: {people: [Ann], booked: 2027-10-31 02:30}")
    grid = TimeGrid((BACK,), 60, 8, 30, "Europe/Berlin")
    assert [moment_of(f"2027-10-31 02:30{offset}", grid) for offset in ("+02:00", "+01:00")] == [3, 5]
    assert moment_of("2027-10-31T04:00:00", grid) == moment_of("2027-10-31T04:00+01:00", grid) == 8
    with pytest.raises(ValueError, match=r"04:00 does not have the offset -05:00 in Europe/Berlin"):
        moment_of("2027-10-31 04:00-05:00", grid)  # perhaps meant as a time span


@pytest.mark.parametrize("day", [FORWARD, BACK])
def test_what_is_written_as_icalendar_is_read_as_the_same_slots(day):
    pytest.importorskip("recurring_ical_events")
    calendar = night(
        day, "01:00-05:00", 30, ", ".join(f"M{i}: {{people: [Ann], weight: 1, slots: 2}}" for i in range(9))
    )
    answer = answer_of(calendar, solve_calendar(calendar, 20.0).assignment)
    elapsed = {FORWARD: 3, BACK: 5}[day]
    assert len(answer.scheduled) == elapsed and len({x.times for x in answer.scheduled}) == elapsed
    rules = busy_rules(text_of(answer).encode(), "night.ics", calendar.grid)
    expected = np.zeros(calendar.grid.size, dtype=bool)
    for item, rule in zip(answer.scheduled, rules, strict=True):
        assert np.flatnonzero(rule.mask).tolist() == [item.choice.start, item.choice.start + 1]
        expected |= rule.mask
    assert (union(rules, calendar.grid) == expected).all() and expected.sum() == 2 * elapsed


def test_labels_of_the_hour_that_is_twice_differ():
    calendar = night(BACK, "02:00-03:00", 30, "A: {people: [Ann]}")
    labels = [calendar.label(choice) for choice in calendar.choices[0]]
    assert labels == [f"Sun 31 Oct {time}" for time in ("02:00 CEST", "02:30 CEST", "02:00 CET", "02:30 CET")]


def test_gaps_between_meetings_are_elapsed_time_and_series_keep_the_local_time():
    calendar = night(FORWARD, "01:00-05:00", 60, "A: {people: [Ann]}, B: {people: [Ann], after: {A: 60}}")
    clash = out_of_order(calendar, 0, 1)
    assert [calendar.grid.moment(x.start).hour for x in calendar.choices[0]] == [1, 3, 4]
    assert clash.tolist() == [[True, True, False], [True] * 3, [True] * 3]  # from 02:00 = 03:00 to 04:00 is an hour
    days = "calendar: x\ndays: [2027-03-27, 2027-03-28]\nhours: 01:00-05:00\nslot: 60\ntimezone: Europe/Berlin\n"
    daily = calendar_of(f"{days}people: {{Ann: }}\nmeetings: {{A: {{people: [Ann], repeat: daily}}}}\n")
    hours = [[daily.grid.moment(x.start).hour for x in choices] for choices in daily.choices]
    assert hours == [[1, 2, 3, 4], [1, 3, 4]]
    assert different_in_series(daily, 0, 1).tolist() == [[a != b for b in hours[1]] for a in hours[0]]


def test_working_hours_and_events_of_other_zones_are_those_of_the_moment():
    """Clocks in Berlin and in London change at the same moment: London's 01:00 becomes 02:00."""
    people = "Ann: {timezone: Europe/London, hours: 00:00-03:00}"
    calendar = night(FORWARD, "01:00-05:00", 30, "A: {people: [Ann], slots: 4}", people)
    assert [calendar.label(x) for x in calendar.choices[0]] == ["Sun 28 Mar 01:00"]
    grid = calendar.grid
    begin = datetime(2027, 3, 28, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert np.flatnonzero(grid.within(begin, begin.astimezone(UTC) + timedelta(hours=1))).tolist() == [1, 2]
    assert grid.moment(1, 2) == datetime(2027, 3, 28, 3, 30)


@pytest.mark.parametrize("days", ["first_day: 0001-01-01\ndays: 1", "days: [1969-12-31]", "days: [9999-12-31]"])
def test_years_without_time_zones_are_refused_in_one_line(days):
    text = f"calendar: x\n{days}\nhours: 00:00-24:00\ntimezone: Asia/Tokyo\npeople: {{A: {{busy: [Mon]}}}}\n"
    with pytest.raises(FileError, match="expected a year from 1970 on and before 9000"):
        calendar_of(f"{text}meetings: {{M: {{people: [A]}}}}\n")
