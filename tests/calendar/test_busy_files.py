"""Busy times from iCalendar files, availability polls, time zones of people, and series."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dmcmc.calendars.file.busy_files import busy_rules
from dmcmc.calendars.file.clashes import clashes
from dmcmc.calendars.file.plan import MeetingChoice, TimeGrid, union
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.file.time_rules import mask_of
from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError

HEAD = "calendar: Team\nfirst_day: 2027-03-01\ndays: 5\nhours: 09:00-17:00\nslot: 60\ntimezone: Europe/Berlin\n"
EXPORT = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:weekly
SUMMARY:Weekly
DTSTART;TZID=Europe/Berlin:20270315T100000
DTEND;TZID=Europe/Berlin:20270315T113000
RRULE:FREQ=WEEKLY;COUNT=6
EXDATE;TZID=Europe/Berlin:20270405T100000
RDATE;TZID=Europe/Berlin:20270331T160000
END:VEVENT
BEGIN:VEVENT
UID:weekly
RECURRENCE-ID;TZID=Europe/Berlin:20270322T100000
SUMMARY:Weekly, moved
DTSTART;TZID=Europe/Berlin:20270323T140000
DTEND;TZID=Europe/Berlin:20270323T150000
END:VEVENT
BEGIN:VEVENT
UID:abroad
SUMMARY:Abroad
DTSTART;TZID=America/New_York:20270308T090000
DTEND;TZID=America/New_York:20270308T100000
RRULE:FREQ=WEEKLY;COUNT=5
END:VEVENT
BEGIN:VEVENT
UID:utc
SUMMARY:In UTC
DTSTART:20270324T080000Z
DURATION:PT45M
RRULE:FREQ=DAILY;COUNT=9
END:VEVENT
BEGIN:VEVENT
UID:holiday
SUMMARY:Holiday
DTSTART;VALUE=DATE:20270326
DTEND;VALUE=DATE:20270327
END:VEVENT
BEGIN:VEVENT
UID:free
SUMMARY:Free
TRANSP:TRANSPARENT
DTSTART;TZID=Europe/Berlin:20270317T090000
DTEND;TZID=Europe/Berlin:20270317T170000
END:VEVENT
BEGIN:VEVENT
UID:local
SUMMARY:Local
DTSTART:20270318T093000
DTEND:20270318T094500
END:VEVENT
END:VCALENDAR
"""


def calendar_of(text, folder=None, within=None):
    path = None if folder is None else folder / "team.yaml"
    return read_calendar(SourceFile("team.yaml", text.encode(), path), within)


def weekdays(first, count):
    return tuple(day for i in range(count) if (day := first + timedelta(days=i)).weekday() < 5)


def test_busy_times_of_a_file_are_the_occurrences_of_another_library_over_daylight_saving():
    """Clocks change on 14 March in New York and on 28 March 2027 in Berlin."""
    icalendar, recurring = pytest.importorskip("icalendar"), pytest.importorskip("recurring_ical_events")
    grid = TimeGrid(weekdays(date(2027, 3, 1), 60), 8 * 60, 20, 30, "Europe/Berlin")
    expected = np.zeros(grid.size, dtype=bool)
    berlin = ZoneInfo("Europe/Berlin")
    occurrences = recurring.of(icalendar.Calendar.from_ical(EXPORT)).between(date(2027, 2, 1), date(2027, 6, 1))
    for event in occurrences:
        if str(event.get("TRANSP", "")) == "TRANSPARENT":
            continue
        begin, end = event["DTSTART"].dt, event["DTEND"].dt
        if not isinstance(begin, datetime):
            begin, end = (datetime(x.year, x.month, x.day) for x in (begin, end))
        begin, end = (x if x.tzinfo else x.replace(tzinfo=berlin) for x in (begin, end))
        for slot in range(grid.size):
            first = grid.moment(slot).replace(tzinfo=berlin).astimezone(UTC)
            expected[slot] |= first < end and begin < first + timedelta(minutes=30)
    rules = busy_rules(EXPORT.encode(), "export.ics", grid)
    assert (union(rules, grid) == expected).all() and expected.sum() > 50
    abroad = [rule.text for rule in rules if rule.text.startswith("Abroad")]
    assert len(abroad) == 5
    hours = [grid.moment(int(np.flatnonzero(r.mask)[0])).hour for r in rules if r.text.startswith("Abroad")]
    assert hours == [15, 14, 14, 15, 15]


def test_a_calendar_reads_busy_times_next_to_it_and_names_the_event(tmp_path):
    pytest.importorskip("recurring_ical_events")
    (tmp_path / "ann.ics").write_text(EXPORT)
    text = HEAD.replace("2027-03-01", "2027-03-15") + "people: {Ann: {busy: [Tue, {ics: ann.ics}]}}\n"
    ann = calendar_of(text + "meetings: {A: {people: [Ann]}}\n", tmp_path).people[0]
    texts = [rule.text for rule in ann.busy_times]
    assert texts == ["Tue", "Weekly, Mon 15 Mar 10:00, in ann.ics", "Abroad, Mon 15 Mar 14:00, in ann.ics", *texts[3:]]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "missing.ics", "team.yaml:7: people.Ann.busy: missing.ics: cannot be read: No such file"),
        ("BEGIN:VCALENDAR\nnonsense", "bad.ics", "people.Ann.busy: bad.ics: is not a valid iCalendar file"),
        (EXPORT, "../up.ics", "is outside the folder that may be read"),
    ],
)
def test_unusable_files_are_reported_with_the_line_that_names_them(tmp_path, content, name, message):
    pytest.importorskip("recurring_ical_events")
    folder = tmp_path / "here"
    folder.mkdir()
    if content:
        (folder / name).write_text(content)
    text = HEAD + f"people: {{Ann: {{busy: {{ics: {name}}}}}}}\nmeetings: {{A: {{people: [Ann]}}}}\n"
    with pytest.raises(FileError) as caught:
        calendar_of(text, folder, folder)
    assert message in str(caught.value)


def test_times_with_a_zone_need_a_calendar_with_a_zone(tmp_path):
    pytest.importorskip("recurring_ical_events")
    grid = TimeGrid(weekdays(date(2027, 3, 15), 5), 9 * 60, 8, 60)
    with pytest.raises(ValueError, match="the calendar needs one too"):
        busy_rules(EXPORT.encode(), "export.ics", grid)


POLL = "name,slot,answer\nAnn,2027-03-01 10:00,yes\nAnn,Tue 11:00,maybe\nBob,Tue 11:00,yes\nBob,2027-03-01 10:00,no\n"


def test_a_poll_gives_the_starts_and_costs_of_a_meeting(tmp_path):
    (tmp_path / "poll.csv").write_text(POLL + "Ann,Wed 09:00,yes\n")
    text = HEAD + "people: {Ann: , Bob: }\nmeetings: {A: {people: [Ann, Bob], poll: {csv: poll.csv, maybe: -3}}}\n"
    calendar = calendar_of(text, tmp_path)
    assert calendar.choices[0] == (MeetingChoice(10, None), MeetingChoice(16, None))
    assert calendar.utilities(0) == [-3, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Eve,Tue 11:00,yes", "team.yaml:8: meetings.A.poll: poll.csv:6: 'Eve' is not among the people"),
        ("Ann,Tue 11:30,yes", "poll.csv:6: no slot of the calendar starts at 'Tue 11:30'"),
        ("Ann,Tue 11:00,perhaps", "poll.csv:6: expected yes, maybe or no, got 'perhaps'"),
        ("Ann,Tue 11:00", "poll.csv:6: expected name, slot and answer"),
    ],
)
def test_mistakes_in_a_poll_are_reported_with_both_lines(tmp_path, line, message):
    (tmp_path / "poll.csv").write_text(f"{POLL}{line}\n")
    with pytest.raises(FileError) as caught:
        calendar_of(HEAD + "people: {Ann: , Bob: }\nmeetings: {A: {people: [Ann, Bob], poll: poll.csv}}\n", tmp_path)
    assert message in str(caught.value)


def test_working_hours_and_rules_are_in_the_time_zone_of_the_person():
    text = HEAD + (
        "people:\n  Ann: {timezone: America/New_York, hours: 09:00-17:00, busy: [Mon 10:00-11:00]}\n"
        "meetings: {A: {people: [Ann]}}\n"
    )
    moments = [choice.start % 8 + 9 for choice in calendar_of(text).choices[0] if choice.start < 8]
    assert moments == [15]  # 15:00 in Berlin is 09:00 in New York, where Ann is busy an hour later


def test_a_rule_in_another_zone_may_end_on_the_next_day():
    grid = TimeGrid((date(2027, 3, 1),), 9 * 60, 8, 60, "Asia/Tokyo")
    assert mask_of("Sunday", grid, zone="America/Los_Angeles").tolist() == [True] * 8
    assert mask_of("Mon 00:00-00:30", grid, touching=True, zone="America/Los_Angeles").tolist() == [False] * 8
    sunday = mask_of("Sun 18:30-19:00", grid, touching=True, zone="America/Los_Angeles")
    assert np.flatnonzero(sunday).tolist() == [2]  # 11:00 in Tokyo is 18:00 of the day before in Los Angeles
    late = TimeGrid((date(2027, 3, 1),), 16 * 60 + 30, 4, 60, "Asia/Tokyo")
    monday = mask_of("Mon 00:00-00:15", late, touching=True, zone="America/Los_Angeles")
    assert np.flatnonzero(monday).tolist() == [0]  # from 23:30 on Sunday to 00:30 on Monday


@pytest.mark.parametrize(
    ("same", "expected"), [("", True), (", same: [time]", True), (", same: none", False), (", same: room", False)]
)
def test_occurrences_of_a_series_have_one_time_unless_the_file_says_otherwise(same, expected):
    days = HEAD.replace("days: 5", "days: 10")
    meeting = f"meetings: {{A: {{people: [Ann], repeat: weekly{same}}}}}\n"
    calendar = calendar_of(f"{days}people: {{Ann: }}\nrooms: {{Blue: , Red: }}\n{meeting}")
    assert [meeting.name for meeting in calendar.meetings] == ["A, week 1", "A, week 2"]
    clash = clashes(calendar, 0, 1)
    for i, first in enumerate(calendar.choices[0]):
        for j, second in enumerate(calendar.choices[1]):
            is_same_time = second.start - first.start == 5 * 8
            is_same_room = first.room == second.room
            demanded = (is_same_time or not expected) and (is_same_room or "time" in same or "none" in same)
            assert clash[i, j] != demanded


def test_two_weekly_meetings_are_ordered_week_by_week():
    days = HEAD.replace("days: 5", "days: 10") + "people: {Ann: , Bob: }\n"
    days += "meetings:\n  A: {people: [Ann], repeat: weekly}\n"
    calendar = calendar_of(days + "  B: {people: [Bob], repeat: weekly, after: A}\n  C: {people: [Bob], before: A}\n")
    names = [meeting.name for meeting in calendar.meetings]
    orders = {(names[x.meeting], meeting.name) for meeting in calendar.meetings for x in meeting.after}
    weekly = {("A, week 1", "B, week 1"), ("A, week 2", "B, week 2")}
    assert orders == weekly | {("C", "A, week 1"), ("C", "A, week 2")}


PEOPLE = "people:\n  Ann: {X}\n"
MEETING = "people: {Ann: , Bob: }\nrooms: {Blue: }\nmeetings:\n  A: {people: [Ann], X}\n  B: {people: [Bob]}\n"


@pytest.mark.parametrize(
    ("template", "entry", "message"),
    [
        (
            PEOPLE,
            "max_per_day: 0",
            "team.yaml:8: people.Ann.max_per_day: expected a whole number from 1 to 1000, got 0",
        ),
        (
            PEOPLE,
            "max_in_a_row: 30",
            "team.yaml:8: people.Ann.max_in_a_row: expected at least the 60 minutes of a slot",
        ),
        (PEOPLE, "buffer: -5", "people.Ann.buffer: expected a number of minutes from 0 to 1440, got -5"),
        (PEOPLE, "lunch: 12:00-12:30", "people.Ann.lunch: 12:00-12:30 is shorter than the break of 60 minutes"),
        (PEOPLE, "lunch: noon", "people.Ann.lunch: 'noon' is not a time span"),
        (PEOPLE, "timezone: Nowhere", "people.Ann.timezone: expected a time zone such as Europe/Berlin"),
        (PEOPLE, "hours: late", "people.Ann.hours: 'late' is not a time span"),
        (PEOPLE, "no_gaps: -1", "people.Ann.no_gaps: expected a number from 0"),
        (PEOPLE, "busy: {csv: x}", "people.Ann.busy.csv: unknown key; did you mean 'ics'?"),
        (MEETING, "optional: [Eve]", "team.yaml:10: meetings.A.optional.Eve: 'Eve' is not among the people"),
        (MEETING, "optional: [Ann]", "meetings.A.optional: Ann is among the people who must attend"),
        (MEETING, "optional: {Bob: -1}", "meetings.A.optional.Bob: expected a number from 0"),
        (MEETING, "after: C", "team.yaml:10: meetings.A.after: 'C' is not among the meetings"),
        (MEETING, "before: {B: soon}", "meetings.A.before.B: expected a whole number from 0"),
        (MEETING, "after: A", "meetings.A.after: a meeting cannot be before or after itself"),
        (MEETING, "repeat: monthly", "meetings.A.repeat: expected weekly or daily, got 'monthly'"),
        (MEETING, "same: time", "meetings.A.same: is for meetings with 'repeat'"),
        (MEETING, "repeat: daily, same: place", "meetings.A.same: expected time, room, a list of both, or none"),
        (MEETING, "fixed: Sun 10:00", "meetings.A.fixed: no slot of the calendar starts at 'Sun 10:00'"),
        (MEETING, "fixed: 2027-03-01", "meetings.A.fixed: '2027-03-01' is not a time such as 2027-03-01 10:00"),
        (MEETING, "booked: {start: Mon 10:00, room: Rot}", "meetings.A.booked.room: 'Rot' is not among the rooms"),
        (
            MEETING,
            "prefer_rooms: {Red: 2}",
            "meetings.A.prefer_rooms.Red: 'Red' is not among the rooms of this meeting",
        ),
        (MEETING, "move_cost: none", "meetings.A.move_cost: expected a number from 0"),
    ],
)
def test_mistakes_in_new_rules_are_reported_with_their_line(template, entry, message):
    text = HEAD + template.replace("X", entry)
    with pytest.raises(FileError) as caught:
        calendar_of(text if "meetings" in template else f"{text}meetings: {{A: {{people: [Ann]}}}}\n")
    assert message in str(caught.value)


def test_mistakes_in_sections_are_reported_with_their_line():
    body = "people: {Ann: {prefer: {mornings: 0.5}}}\nmeetings: {A: {people: [Ann]}}\n"
    for section, message in {
        "everyone: {max_day: 3}": "team.yaml:7: everyone.max_day: unknown key",
        "fairness: {best: 1}": "team.yaml:7: fairness.best: unknown key; known: least_worst, spread",
        "fairness: {spread: 1}": "team.yaml:7: fairness: needs whole numbers as points; Ann's are not",
        "rooms: {Blue: {count: 0}}": "team.yaml:7: rooms.Blue.count: expected a whole number from 1",
    }.items():
        with pytest.raises(FileError) as caught:
            calendar_of(f"{HEAD}{section}\n{body}")
        assert message in str(caught.value)
