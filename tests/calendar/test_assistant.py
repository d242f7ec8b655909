"""Tools for assistants, asked by the SDK's own client: in the process, and over standard input and output."""

import asyncio
import os
import sys

import pytest
from imports import ROOT

pytest.importorskip("mcp")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from dmcmc.calendars.assistant import CalendarTools, make_server

CALENDAR = """
calendar: Team
first_day: 2027-03-01
days: 2
hours: 09:00-12:00
slot: 60
people:
  Ann: {busy: [Tue], prefer: {mornings: 2}, max_per_day: 2}
  Bob: {prefer: {before 10:00: 3}}
  Cem:
rooms: {Blue: {count: 2}}
meetings:
  A: {people: [Ann, Bob]}
  B: {people: [Ann, Cem], after: A}
  C: {people: [Bob, Cem], weight: 4, optional: {Ann: 1}}
"""


def answer(server, tool, **arguments):
    """Return what a tool answers, or the text of its error."""

    async def call():
        async with Client(server) as client:
            return await client.call_tool(tool, arguments)

    result = asyncio.run(call())
    if result.is_error:
        return result.content[0].text
    content = result.structured_content
    return content["result"] if set(content) == {"result"} else content


@pytest.fixture
def server(tmp_path):
    return make_server(CalendarTools(tmp_path, 20.0))


def test_a_schedule_is_proposed_checked_and_kept(server):
    found = answer(server, "propose_schedule", calendar=CALENDAR)
    assert (found["status"], found["objective"]) == ("optimal", 14)
    assert {meeting["name"] for meeting in found["meetings"]} == {"A", "B", "C"}
    checked = answer(server, "check_schedule", calendar=CALENDAR, meetings=found["meetings"])
    assert checked == {"keeps_all_rules": True, "problems": [], "score": 14}
    changed = CALENDAR.replace("Cem:\n", "Cem: {busy: [Mon before 11:00]}\n")
    anew = answer(server, "plan_anew", calendar=changed, booked=found["meetings"], move_cost=5)
    assert [move["name"] for move in anew["moved"]] == ["B"]
    assert "Cem: Mon before 11:00" in anew["moved"][0]["reason"]


def test_broken_rules_are_named(server):
    def meetings(**starts):
        return [{"name": name, "start": f"2027-03-0{start}:00", "room": "Blue 1"} for name, start in starts.items()]

    wrong_order = answer(server, "check_schedule", calendar=CALENDAR, meetings=meetings(A="1T10", B="1T09"))
    assert wrong_order == {"keeps_all_rules": False, "problems": ["A and B of Ann"]}
    busy = answer(server, "check_schedule", calendar=CALENDAR, meetings=meetings(A="2T10", D="1T09"))
    assert busy["problems"][:2] == ["there is no meeting 'D'", busy["problems"][1]]
    assert "A cannot take place then: what was booked is not possible any more: Ann: Tue" in busy["problems"]
    assert "B must be held" in busy["problems"]


def test_what_is_not_read_of_a_busy_file_is_part_of_the_answer(server, tmp_path):
    pytest.importorskip("recurring_ical_events")
    (tmp_path / "ann.ics").write_text("BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Trip\nEND:VEVENT\nEND:VCALENDAR\n")
    text = CALENDAR.replace("busy: [Tue]", "busy: [Tue, {ics: ann.ics}]")
    (warning,) = answer(server, "propose_schedule", calendar=text)["warnings"]
    assert warning == "ann.ics: line 2: VEVENT 'Trip' has no DTSTART and is not counted as busy"
    assert answer(server, "alternatives", calendar=text, count=2, distance=1)[0]["warnings"] == [warning]
    assert "warnings" not in answer(server, "propose_schedule", calendar=CALENDAR)


@pytest.mark.parametrize("hours", [("09", "10"), ("10", "09")])
def test_a_schedule_with_a_meeting_listed_twice_is_refused_in_either_order(server, hours):
    twice = [{"name": "A", "start": f"2027-03-01T{hour}:00"} for hour in hours]
    listed = [*twice, {"name": "B", "start": "2027-03-01T11:00"}]
    checked = answer(server, "check_schedule", calendar=CALENDAR, meetings=listed)
    assert checked == {"keeps_all_rules": False, "problems": ["A is listed 2 times"]}
    assert "booked: meetings[1]: A is listed twice" in answer(server, "plan_anew", calendar=CALENDAR, booked=listed)


def test_conflicts_and_questions_why_not_are_answered(server):
    crowded = CALENDAR.replace("max_per_day: 2", "max_per_day: 1")
    conflict = answer(server, "explain_conflict", calendar=crowded)
    assert conflict["status"] == "infeasible" and conflict["meetings"] == ["A", "B"]
    assert "Ann has at most 1 meeting a day" in conflict["rules_that_cannot_hold_together"]
    assert conflict["relaxations"][0]["score"] is not None
    why_not = answer(server, "explain_conflict", calendar=CALENDAR, meeting="B", start="2027-03-01T09:00")
    assert why_not["status"] == "infeasible" and "B is after A" in why_not["rules_that_cannot_hold_together"]
    possible = answer(server, "explain_conflict", calendar=CALENDAR, meeting="A", start="2027-03-01T10:00")
    assert (possible["status"], possible["score"]) == ("feasible", 11)


def test_alternatives_differ_and_begin_with_the_best(server):
    found = answer(server, "alternatives", calendar=CALENDAR, count=2, distance=1)
    assert [x["score"] for x in found] == sorted((x["score"] for x in found), reverse=True)
    assert found[0]["score"] == 14 and found[0]["meetings"] != found[1]["meetings"]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("propose_schedule", {"calendar": CALENDAR.replace("slot:", "slots:")}, "calendar:6: slots: unknown key"),
        ("propose_schedule", {"calendar": " " * 300_000}, "calendar: larger than 256 KiB"),
        ("propose_schedule", {"calendar": CALENDAR, "seconds": 0}, "seconds: expected a number above 0"),
        ("propose_schedule", {"calendar": CALENDAR.replace("[Tue]", "{ics: /etc/passwd}")}, "outside the folder"),
        ("plan_anew", {"calendar": CALENDAR, "booked": [{"name": "A"}]}, "start: expected a time such as"),
        ("alternatives", {"calendar": CALENDAR, "count": 99}, "count: expected a number from 1 to 10"),
        ("explain_conflict", {"calendar": CALENDAR, "meeting": "Z"}, "'Z' is not among the meetings"),
    ],
)
def test_errors_are_one_line(server, tool, arguments, message):
    text = answer(server, tool, **arguments)
    assert message in text and "\n" not in text


def test_the_command_serves_over_standard_input_and_output(tmp_path):
    async def names():
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "dmcmc", "mcp", "--folder", str(tmp_path)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        async with Client(stdio_client(parameters)) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    expected = {"propose_schedule", "check_schedule", "explain_conflict", "plan_anew", "alternatives"}
    assert asyncio.run(names()) == expected
    assert list(tmp_path.iterdir()) == []
