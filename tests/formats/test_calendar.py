"""Calendars: meaning of time rules, conversion to a problem, and messages for mistakes in a file."""

from datetime import date
from itertools import product

import numpy as np
import pytest

from dmcmc.calendars.file.plan import NOT_HELD, TimeGrid
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.file.time_rules import mask_of
from dmcmc.files.text import SourceFile
from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import FileError

GRID = TimeGrid(tuple(date(2027, 3, day) for day in (1, 2, 5, 8)), 9 * 60, 6, 60)  # Mon, Tue, Fri, Mon: 9 to 15 h

SMALL = """
calendar: Small
first_day: 2027-03-01
days: 1
hours: 09:00-12:00
slot: 60
people:
  Ann: {prefer: {before 10:00: 3}}
  Bob: {busy: 11:15-11:30, prefer: {after 10:00: 2}}
  Cem:
rooms: {Blue: {capacity: 2}, Red: {busy: before 10:00}}
travel: {Blue - Red: 30}
meetings:
  A: {people: [Ann, Bob]}
  B: {people: [Ann, Bob, Cem], weight: 4}
  C: {people: [Cem], slots: 2, weight: 2.5, prefer: [before 11:00]}
  D: {people: [Cem], weight: 1, room: none}
"""


def calendar_of(text):
    """Return the calendar of a text."""
    return read_calendar(SourceFile("team.yaml", text.encode()))


@pytest.mark.parametrize(
    ("rule", "slots"),
    [
        ("mornings", {(d, s) for d in range(4) for s in range(3)}),
        ("Mondays", {(d, s) for d in (0, 3) for s in range(6)}),
        ("not Friday", {(d, s) for d in (0, 1, 3) for s in range(6)}),
        ("Tue, fri 09:00 - 10:30", {(1, 0), (2, 0)}),
        ("week 2 before 10:00", {(3, 0)}),
        ("week 1 Mon afternoon", {(0, s) for s in (3, 4, 5)}),
        ("2027-03-02 after 13:30", {(1, 5)}),
        ("Fri-Mon 12:00-13:00", {(0, 3), (2, 3), (3, 3)}),
        ("not after 09:00", set()),
        ("not Mon-Tue 09:30-15:00", {(d, s) for d in (2, 3) for s in range(6)} - {(3, s) for s in range(6)}),
    ],
)
def test_a_rule_selects_slots(rule, slots):
    found = mask_of(rule, GRID).reshape(4, 6)
    assert {(int(d), int(s)) for d, s in np.argwhere(found)} == slots


def test_busy_rules_also_select_partly_covered_slots():
    assert mask_of("Tue 10:59-12:01", GRID, touching=True).reshape(4, 6)[1].tolist() == [
        False,
        *[True] * 3,
        False,
        False,
    ]
    inside = mask_of("not 10:30-13:30", GRID).reshape(4, 6)
    assert inside[0].tolist() == [True, False, False, False, False, True]
    assert (mask_of("not 10:30-13:30", GRID, touching=True).reshape(4, 6)[0] == [1, 1, 0, 0, 1, 1]).all()


@pytest.mark.parametrize("rule", ["", "not", "Tag", "T", "25:00-26:00", "12:00-11:00", "week", "week x", "before noon"])
def test_invalid_rules_are_refused(rule):
    with pytest.raises(ValueError, match=r"rule|time|ends|week"):
        mask_of(rule, GRID)


def best_utility(calendar):
    """Return the largest utility of a calendar by enumerating all combinations of choices."""
    utilities = []
    not_held = [[None] if meeting.weight is not None else [] for meeting in calendar.meetings]
    for chosen in product(*(list(c) + skip for c, skip in zip(calendar.choices, not_held, strict=True))):
        utility, taken, rooms = 0, {}, set()
        for m, (meeting, choice) in enumerate(zip(calendar.meetings, chosen, strict=True)):
            if choice is None:
                continue
            index = calendar.choices[m].index(choice)
            utility += calendar.utilities(m)[index] + sum(calendar.utilities(m, p)[index] for p in meeting.people)
            for slot in range(choice.start, choice.start + meeting.length):
                for person in meeting.people:
                    taken.setdefault((person, slot), []).append(choice.room)
                if choice.room is not None:
                    utility += -np.inf if (choice.room, slot) in rooms else 0
                    rooms.add((choice.room, slot))
        travels_too_fast = any(
            {taken[p, s][0], taken[p, s + 1][0]} == {0, 1} for p, s in taken if (p, s + 1) in taken and calendar.travel
        )
        if not travels_too_fast and all(len(rooms) == 1 for rooms in taken.values()):
            utilities.append(utility)
    return max(utilities)


@pytest.mark.parametrize("without", ["nothing", "travel: {Blue - Red: 30}\n", "slot: 60\n"])  # half an hour is usual
def test_the_problem_has_the_optimum_of_the_calendar(without):
    calendar = calendar_of(SMALL.replace(without, ""))
    problem = problem_of(calendar)
    assert problem.agents == ("Ann", "Bob", "Cem")
    assert problem.variables[:2] == ("Ann: A", "Bob: A")
    assert [problem.agents[i] for i in problem.owner[:2]] == ["Ann", "Bob"]
    values = [[*range(len(labels))] for labels in (problem.labels[v] for v in (0, 2, 5, 6))]
    objectives = []
    for a, b, c, d in product(*values):
        evaluation = problem.evaluate(np.array([a, a, b, b, b, c, d]))
        objectives += [] if evaluation.violation else [evaluation.objective]
    assert max(objectives) == best_utility(calendar)


def test_participants_agree_and_optional_meetings_have_a_value_for_not_held():
    problem = problem_of(calendar_of(SMALL))
    assert problem.labels[2] is not None and problem.labels[2][-1] == NOT_HELD
    assert problem.labels[0] is not None and NOT_HELD not in problem.labels[0]
    last = [len(problem.labels[v]) - 1 for v in range(2, 7)]
    assert problem.evaluate(np.array([0, 0, *last])).violation == 0
    assert problem.evaluate(np.array([0, 1, *last])).violation == 1


def test_a_calendar_is_read_as_a_problem_whatever_its_name(tmp_path):
    path = tmp_path / "anything"
    path.write_text(SMALL)
    assert formats.load_with_format(path)[0].name == "calendar"
    assert formats.load(path) == problem_of(calendar_of(SMALL))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("days: 1", "days: 0", "team.yaml:4: days: expected a whole number from 1 to 366, got 0"),
        ("days: 1", "days: [2027-03-02, 2027-03-01]", "team.yaml:4: days: expected 1 to 366 days, each after"),
        ("2027-03-01", "March", "team.yaml:3: first_day: 'March' is not a date such as 2027-03-01"),
        ("09:00-12:00", "9-12", "team.yaml:5: hours: '9-12' is not a time span such as 09:00-17:00"),
        ("slot: 60", "slot: 200", "team.yaml:6: slot: 0 slots on each of 1 days"),
        ("slot: 60", "slots: 60", "team.yaml:6: slots: unknown key; did you mean 'slot'?"),
        (
            "before 10:00: 3",
            "morning hours: 3",
            "team.yaml:8: people.Ann.prefer.morning hours: 'hours' is not a known rule",
        ),
        ("before 10:00: 3", "before 10:00: many", "people.Ann.prefer.before 10:00: expected a number from"),
        (
            "11:15-11:30",
            "[{when: Mon 10:00-11:00}]",
            "team.yaml:9: people.Bob.busy: expected a rule, {when: Mon 10:00-11:00, cost: 3}, {ics: ann.ics}",
        ),
        ("11:15-11:30", "[{when: Mon, cost: -1}]", "team.yaml:9: people.Bob.busy.cost: expected a number from 0"),
        ("11:15-11:30", "[{when: Mun, cost: 1}]", "team.yaml:9: people.Bob.busy: 'mun' is not a known rule"),
        ("11:15-11:30", "[{from: Mon, cost: 1}]", "team.yaml:9: people.Bob.busy.from: unknown key; known: ics, when"),
        ("weight: 4", "move_cost: {each: 1}", "team.yaml:15: meetings.B.move_cost.each: unknown key"),
        ("weight: 4", "move_cost: {}", "team.yaml:15: meetings.B.move_cost.per_participant: expected a number"),
        ("slot: 60", "slot: 60\nmove_cost: none", "team.yaml:7: move_cost: expected a number from 0"),
        ("11:15-11:30", "1", "team.yaml:9: people.Bob.busy: expected a rule, such as mornings"),
        ("capacity: 2", "size: 2", "team.yaml:11: rooms.Blue.size: unknown key; known: capacity, busy"),
        ("Blue - Red", "Blue - Rod", "'Rod' is not among the rooms; did you mean 'Red'?"),
        (
            "people: [Ann, Bob]}",
            "people: [Ann, Rob]}",
            "team.yaml:14: meetings.A.people: 'Rob' is not among the people",
        ),
        ("people: [Ann, Bob]}", "people: [Ann, Ann]}", "team.yaml:14: meetings.A.people: a person occurs twice"),
        ("slots: 2", "slots: 4", "team.yaml:16: meetings.C.slots: a day has 3 slots; a meeting cannot be longer"),
        ("weight: 4", "weight: 4, must: true", "a meeting that must be held has no weight"),
        ("weight: 4", "room: Blue", "team.yaml:15: meetings.B.room: none of its rooms holds 3 people"),
        ("weight: 4", "when: [Sonntag]", "team.yaml:15: meetings.B.when: 'sonntag' is not a known rule"),
        ("  A: {", "  B: {", "team.yaml:15: meetings.B: is given twice (first in line 14)"),
        ("calendar: Small", "calendar: Small\ntimezone: Nowhere/Town", "team.yaml:3: timezone: expected a time zone"),
    ],
)
def test_mistakes_are_reported_with_their_line(old, new, message):
    assert old in SMALL
    with pytest.raises(FileError) as caught:
        calendar_of(SMALL.replace(old, new))
    assert message in str(caught.value)
