"""Solved calendars: the table, the web page, iCalendar files, and the reasons why meetings do not take place."""

import io
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import combinations

import pytest
from imports import ROOT

from dmcmc.calendars.explain import conflict_of, summary_of
from dmcmc.calendars.file.clashes import clashes
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.pages.answer import answer_of, text_of, write_ics
from dmcmc.calendars.pages.page import page_of, page_without_answer
from dmcmc.calendars.solve import as_calendar_result
from dmcmc.cli.arguments import parse_arguments
from dmcmc.cli.commands.solve import prepare_run as prepare_run
from dmcmc.cli.commands.solve import prepare_solve as prepare_solve
from dmcmc.cli.main import main
from dmcmc.files.text import SourceFile
from dmcmc.results.result import Result

HEAD = "calendar: Team\nfirst_day: 2027-03-01\ndays: 2\nhours: 09:00-12:00\nslot: 30\n"
FULL = HEAD + (
    "people:\n  Ann: {busy: [Tue, 'Mon 09:00-10:00']}\n  Bob:\n  Cem: {busy: Mon}\n"
    "meetings:\n  A: {people: [Ann, Bob], slots: 2}\n  B: {people: [Ann, Bob], slots: 2}\n"
    "  D: {people: [Bob, Cem], slots: 2}\n"
)
OPTIONAL_MEETINGS = "  C: {people: [Ann, Cem], weight: 3}\n  E: {people: [Ann, Bob], weight: 2}\n"
REQUIRED_MEETING = "  C: {people: [Ann]}\n"
TOWN = HEAD.replace("calendar", "timezone: Europe/Berlin\ncalendar") + (
    "people: {'Ann, née B': , Bob: , bob: }\nrooms: {'Blue; room': }\n"
    "meetings: {'A <b>&': {people: [Bob, 'Ann, née B'], slots: 3}, B: {people: [bob], room: none}}\n"
)


def calendar_of(text):
    return read_calendar(SourceFile("team.yaml", text.encode()))


def solved(text, tmp_path, capsys, *options):
    """Solve a calendar by the command line: the exit code and what was printed."""
    path = tmp_path / "team.yaml"
    path.write_text(text)
    code = main(["run", str(path), "--device", "cpu", *options])
    return code, capsys.readouterr().out


def answer(text):
    """A solved calendar: each meeting has the first choice that is compatible with the meetings before it."""
    calendar, chosen = calendar_of(text), {}
    for m, choices in enumerate(calendar.choices):
        fits = (i for i in range(len(choices)) if not any(clashes(calendar, n, m)[j, i] for n, j in chosen.items()))
        if (index := next(fits, None)) is not None:
            chosen[m] = index
    words = {m: calendar.label(calendar.choices[m][i]) for m, i in chosen.items()}
    assignment = {
        f"{calendar.people[p].name}: {meeting.name}": words.get(m, "not held")
        for m, meeting in enumerate(calendar.meetings)
        for p in meeting.people
    }
    return answer_of(calendar, assignment)


def test_a_calendar_is_proven_optimal_and_printed_with_reasons_for_missing_meetings(tmp_path, capsys):
    code, text = solved(FULL + OPTIONAL_MEETINGS, tmp_path, capsys, "--ics", str(tmp_path / "c.ics"))
    assert code == 0
    assert "optimal (proven)" in text and re.search(r"gap +0 %", text)
    assert " Tue 2 Mar  09:00-10:00  D        Bob, Cem" in text
    assert "its participants are never free at the same time: of its 12 allowed times, Ann is busy at 8, Cem" in text
    assert "E: another meeting takes place at each of its 4 possible times: A at 2, B at 2; at Mon 1 Mar 10:00" in text
    assert (tmp_path / "c.ics").read_bytes().count(b"BEGIN:VEVENT") == 3


def test_an_impossible_calendar_names_the_meetings_in_conflict(tmp_path, capsys):
    code, text = solved(FULL + REQUIRED_MEETING, tmp_path, capsys)
    assert code == 3
    assert "these 3 meetings cannot all take place: A, B, C; Ann would have to attend all of them" in text


def test_the_page_of_an_impossible_calendar_says_why_and_replaces_an_earlier_one(tmp_path, capfd):
    page, events = tmp_path / "c.html", tmp_path / "c.ics"
    page.write_text("yesterday"), events.write_text("yesterday")
    code, _ = solved(FULL + REQUIRED_MEETING, tmp_path, capfd, "--html", str(page), "--ics", str(events))
    assert code == 3
    text = page.read_text()
    assert "There is no calendar: infeasible (proven" in text and "A, B, C; Ann would have to attend" in text
    assert events.read_text() == "yesterday"


def test_a_missing_icalendar_file_is_announced(tmp_path, capfd):
    path = tmp_path / "team.yaml"
    path.write_text(FULL + REQUIRED_MEETING)
    for earlier in (False, True):
        assert main(["run", str(path), "--device", "cpu", "--ics", str(tmp_path / "c.ics")]) == 3
        (line,) = [line for line in capfd.readouterr().err.splitlines() if "--ics" in line]
        assert line.startswith("dmcmc: warning: --ics: ") and "not written, since there is no calendar" in line
        assert line.endswith("the one of an earlier run is unchanged") == earlier
        (tmp_path / "c.ics").write_text("yesterday")


def test_the_page_of_an_unsuccessful_search_says_so():
    result = Result(
        status="timeout", objective=None, bound=3, gap=None, violation=2, assignment={}, sense="max", time=1
    )
    calendar = calendar_of(FULL)
    page = page_without_answer(calendar, as_calendar_result(result, calendar))
    assert "time limit reached" in page and "a longer time limit may help" in page


def test_the_conflict_is_a_minimal_set_of_meetings():
    calendar = calendar_of(FULL + REQUIRED_MEETING + "  F: {people: [Cem], slots: 2}\n")
    found = conflict_of(calendar)
    assert [calendar.meetings[m].name for m in found] == ["A", "B", "C"]
    alone = calendar_of(FULL + "  X: {people: [Ann, Cem]}\n")
    assert summary_of(alone, conflict_of(alone)).startswith(
        "X cannot take place: its participants are never free at the same time"
    )


def test_a_possible_meeting_without_a_gain_is_explained():
    calendar = calendar_of(FULL + "  G: {people: [Cem], weight: -2}\n")
    assignment = {"Ann: A": "Mon 1 Mar 10:00", "Ann: B": "Mon 1 Mar 11:00", "Bob: D": "Tue 2 Mar 09:00"}
    (missing,) = answer_of(calendar, assignment | {"Cem: G": "not held"}).missing
    expected = "free at 4 of its 6 possible times, but the best, Tue 2 Mar 10:00, would not raise the total score"
    assert missing.reason == expected


@pytest.mark.parametrize("text", [FULL + OPTIONAL_MEETINGS, TOWN])
def test_icalendar_files_are_read_back_by_another_library(text):
    icalendar = pytest.importorskip("icalendar")
    found = answer(text)
    back = icalendar.Calendar.from_ical(text_of(found, stamp=datetime(2027, 1, 1, tzinfo=UTC)))
    events = [part for part in back.walk() if part.name == "VEVENT"]
    assert [str(event["summary"]) for event in events] == [one.meeting.name for one in found.scheduled]
    assert len({str(event["uid"]) for event in events}) == len(events)
    for event, one in zip(events, found.scheduled, strict=True):
        begin, end = event["dtstart"].dt, event["dtend"].dt
        if text is TOWN:
            assert begin.utcoffset().total_seconds() == 0 and begin.hour == one.begin.hour - 1
        else:
            assert (begin, end) == (one.begin, one.end)
        assert end - begin == one.end - one.begin
        assert str(event.get("location", "")) == one.room
        assert str(event["description"]) == ", ".join(one.people)
    assert all(len(line) <= 75 for line in text_of(found).encode().split(b"\r\n"))


def test_a_folder_has_one_file_per_person_also_for_equal_and_unusual_names(tmp_path):
    assert write_ics(answer(TOWN), str(tmp_path)) == f"{tmp_path} (4 files)"
    assert {path.name for path in tmp_path.iterdir()} == {"all.ics", "Ann-née-B.ics", "Bob.ics", "bob-2.ics"}
    assert "A <b>&" in (tmp_path / "Bob.ics").read_text() and "A <b>&" not in (tmp_path / "bob-2.ics").read_text()


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.places, self.words, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href") if name in given]
        if given.get("class") == "event":
            self.places.append(dict(part.split(":", 1) for part in given["style"].split(";")))

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_self_contained_and_shows_overlapping_meetings_side_by_side():
    result = Result(status="optimal", objective=3, bound=3, gap=0.0, violation=0, assignment={}, sense="max", time=0.1)
    both = TOWN.replace("B: {people: [bob], room: none}", "B: {people: [bob], room: none, slots: 3}")
    tags = Tags()
    tags.feed(page_of(answer(both), result))
    assert tags.links == []
    assert "A <b>&" in tags.words and "1 of 1" not in tags.words
    assert len(tags.places) == 2
    assert not any(a["left"] == b["left"] for a, b in combinations(tags.places, 2))


def test_the_example_of_init_is_solved_from_standard_input(tmp_path, capsys, monkeypatch):
    path = tmp_path / "mine.yaml"
    assert main(["init", "calendar", str(path)]) == 0
    assert main(["init", "calendar", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    from dmcmc.files import text

    monkeypatch.setattr(text.sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    text.standard_input.cache_clear()
    assert main(["solve", "-", "--device", "cpu", "--json", "--html", str(tmp_path / "page.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["objective"]) == ("optimal", 36)
    assert "Kick-off" in (tmp_path / "page.html").read_text()
    text.standard_input.cache_clear()


def test_run_and_solve_use_the_same_configuration_for_a_calendar(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text(FULL)
    ways = {"run": prepare_run, "solve": prepare_solve}
    jobs = [prepare(parse_arguments([command, str(path), "--seed", "3"])) for command, prepare in ways.items()]
    assert jobs[0]._replace(calendar=None) == jobs[1]._replace(calendar=None)
    config = jobs[0].config
    assert (config.seed, config.budget.time, config.presolve) == (3, 60.0, "merge")


def test_pages_are_for_calendars_only(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    assert main(["init", "configuration", str(path)]) == 0
    assert main(["run", str(path), "--html", str(tmp_path / "x.html")]) == 2
    assert "--html: is for calendars" in capsys.readouterr().err


@pytest.mark.slow
def test_the_calendar_of_a_team_of_twelve_is_solved_to_proven_optimality(tmp_path):
    pytest.importorskip("pytoulbar2")
    output = tmp_path / "result.json"
    assert main(["run", str(ROOT / "configs" / "calendar.yaml"), "--device", "cpu", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert (found["status"], found["objective"], len(found["assignment"])) == ("optimal", 1013, 122)


RICH = HEAD.replace("calendar", "timezone: Europe/Berlin\ncalendar", 1) + (
    "people:\n  Ann: {busy: [Tue, 'Mon 09:00-10:00']}\n  Bob: {prefer: {before 11:00: 2}}\n  Cem: {busy: Mon}\n"
    "rooms: {Table: {count: 2}}\n"
    "meetings:\n  A: {people: [Ann, Bob], slots: 2, optional: {Cem: 1}}\n"
    "  B: {people: [Bob], after: A, optional: [Cem]}\n"
    "  D: {people: [Bob, Cem], slots: 2, weight: 3}\n  C: {people: [Ann, Cem], weight: 1}\n"
)


def result_of(text, tmp_path, capsys, *options):
    """Solve a calendar and return its JSON result."""
    code, printed = solved(text, tmp_path, capsys, "--json", *options)
    return code, json.loads(printed)


def test_the_json_has_the_meetings_with_times_rooms_and_people(tmp_path, capsys):
    code, found = result_of(RICH, tmp_path, capsys)
    assert code == 0 and found["status"] == "optimal"
    first = found["meetings"][0]
    assert first == {
        "name": "A",
        "start": "2027-03-01T10:00+01:00",
        "end": "2027-03-01T11:00+01:00",
        "room": "Table 1",
        "people": ["Ann", "Bob"],
        "optional_missing": ["Cem"],
    }
    assert [x["name"] for x in found["not_held"]] == ["C"] and "never free" in found["not_held"][0]["reason"]
    assert found["moved"] == [] and found["conflict"] is None
    assert found["assignment"]["Bob: A"] == "Mon 1 Mar 10:00, Table"


def test_an_earlier_answer_is_kept_unless_moving_pays(tmp_path, capsys):
    _, earlier = result_of(RICH, tmp_path, capsys)
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    keep = ("--keep", str(tmp_path / "earlier.json"))
    _, same = result_of(RICH, tmp_path, capsys, *keep)
    assert (same["meetings"], same["moved"]) == (earlier["meetings"], [])
    changed = RICH.replace("Bob: {prefer", "Bob: {busy: [Mon 10:00-10:30], prefer")
    _, anew = result_of(changed, tmp_path, capsys, *keep)
    (moved,) = anew["moved"]
    assert (moved["name"], moved["booked"], moved["cost"]) == ("A", "Mon 1 Mar 10:00, Table", 5)
    assert moved["reason"] == "what was booked is not possible any more: Bob: Mon 10:00-10:30"
    better = RICH.replace("before 11:00: 2", "after 11:00: 20")
    assert {x["name"] for x in result_of(better, tmp_path, capsys, *keep)[1]["moved"]} >= {"A"}
    assert result_of(better, tmp_path, capsys, *keep, "--move-cost", "1000")[1]["moved"] == []


def test_appointments_that_give_way_are_listed_with_their_costs(tmp_path, capsys):
    text = HEAD + (
        "people:\n  Ann: {busy: [Tue, 'Mon 09:00-10:00', {when: 'Mon 10:00-12:00', cost: 3}]}\n"
        "  Bob: {busy: [{when: ['Mon 11:00-11:30', 'Mon 11:30-12:00'], cost: 2}]}\n"
        "meetings:\n  A: {people: [Ann, Bob], slots: 2}\n"
    )
    code, found = result_of(text, tmp_path, capsys)
    assert code == 0 and found["objective"] == -3 and found["meetings"][0]["start"] == "2027-03-01T10:00"
    assert found["gives_way"] == [
        {"person": "Ann", "appointment": "Mon 10:00-12:00", "meeting": "A", "cost": 3},
    ]
    page = tmp_path / "page.html"
    _, printed = solved(text, tmp_path, capsys, "--html", str(page))
    assert "appointments that give way" in printed and "Ann: Mon 10:00-12:00, to A; costs 3" in printed
    assert "Appointments that give way" in page.read_text("utf-8")


def test_a_move_costs_its_points_for_each_participant(tmp_path, capsys):
    meeting = "meetings:\n  A: {people: [Ann, Bob], slots: 2, booked: Mon 09:00, move_cost: {per_participant: 3}}\n"
    text = HEAD + "people:\n  Ann: {prefer: {after 11:00: 5}}\n  Bob:\n" + meeting
    _, stays = result_of(text, tmp_path, capsys)
    assert stays["moved"] == [] and stays["objective"] == 0
    _, moves = result_of(text.replace("participant: 3", "participant: 2"), tmp_path, capsys)
    assert [(x["name"], x["cost"]) for x in moves["moved"]] == [("A", 4)] and moves["objective"] == 1


def test_unusable_earlier_answers_are_refused(tmp_path, capfd):
    path, earlier = tmp_path / "team.yaml", tmp_path / "earlier.json"
    path.write_text(RICH)
    for text, message in {
        "{": "earlier.json:1: is not valid JSON",
        "{}": "has no 'meetings'",
        '{"meetings": [{"name": "A", "start": 7}]}': "meetings[0] (A): start: expected a time such as",
    }.items():
        earlier.write_text(text)
        assert main(["run", str(path), "--keep", str(earlier)]) == 2
        assert message in capfd.readouterr().err
    assert main(["run", str(path), "--move-cost", "-1"]) == 2
    assert "--move-cost: expected a number from 0" in capfd.readouterr().err


def test_icalendar_files_name_the_attendees(tmp_path, capsys):
    icalendar = pytest.importorskip("icalendar")
    solved(RICH, tmp_path, capsys, "--ics", str(tmp_path / "c.ics"))
    event = icalendar.Calendar.from_ical((tmp_path / "c.ics").read_bytes()).walk("VEVENT")[0]
    attendees = {str(x.params["CN"]): (x.params["ROLE"], x.params["PARTSTAT"]) for x in event["attendee"]}
    required = ("REQ-PARTICIPANT", "ACCEPTED")
    assert attendees == {"Ann": required, "Bob": required, "Cem": ("OPT-PARTICIPANT", "DECLINED")}


def test_the_page_says_what_moves_who_is_missing_and_how_good_the_calendar_is(tmp_path, capsys):
    _, earlier = result_of(RICH, tmp_path, capsys)
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    changed = RICH.replace("Bob: {prefer", "Bob: {busy: [Mon 10:00-10:30], prefer")
    page = tmp_path / "c.html"
    code, text = solved(changed, tmp_path, capsys, "--keep", str(tmp_path / "earlier.json"), "--html", str(page))
    assert code == 0 and "booked meetings that move" in text and "optional attendees who are missing" in text
    shown = page.read_text()
    assert "3 of 4 meetings take place" in shown and "proven: no better calendar exists" in shown
    assert "1 booked meeting moves" in shown and "Booked meetings that move" in shown
    assert "Optional attendees who are missing" in shown and "busy: Mon" in shown


def test_rules_in_conflict_and_what_would_help_are_named(tmp_path, capsys):
    crowded = RICH.replace("Ann: {busy", "Ann: {max_per_day: 1, busy") + "  E: {people: [Ann]}\n"
    page = tmp_path / "c.html"
    code, printed = solved(crowded, tmp_path, capsys, "--json", "--html", str(page))
    conflict = json.loads(printed)["conflict"]
    assert code == 3 and conflict["meetings"] == ["A", "E"] and conflict["minimal"]
    assert set(conflict["constraints"]) == {
        "A must be held",
        "E must be held",
        "Ann is busy Tue",
        "Ann has at most 1 meeting a day",
    }
    helpful = [x["constraint"] for x in conflict["relaxations"] if x["objective"] is not None]
    assert "Ann has at most 1 meeting a day" in helpful and "Ann attends A" in helpful
    objectives = [x["objective"] for x in conflict["relaxations"] if x["objective"] is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert "Ann has at most 1 meeting a day" in page.read_text() and "What would help" in page.read_text()
    assert main(["solve", str(tmp_path / "team.yaml"), "--task", "conflict"]) == 3
    assert "these rules cannot hold together" in capsys.readouterr().out


def test_a_query_may_name_a_meeting_or_a_series(tmp_path, capsys):
    path = tmp_path / "team.yaml"
    meetings = "meetings:\n  A: {people: [Ann, Bob]}\n  Daily: {people: [Bob], repeat: daily}\n"
    path.write_text(f"{HEAD}people: {{Ann: , Bob: }}\n{meetings}")
    for query, expected in {"A": ["Ann: A"], "Daily": ["Bob: Daily, Mon 1 Mar", "Bob: Daily, Tue 2 Mar"]}.items():
        for task in ("max-marginals", "mar"):
            assert main(["solve", str(path), "--task", task, "--json", "--query", query]) == 0
            assert list(json.loads(capsys.readouterr().out)["marginals"]) == expected
    assert main(["solve", str(path), "--task", "mar", "--query", "Dayly"]) == 2
    assert "is called 'Dayly'; did you mean 'Daily'?" in capsys.readouterr().err
