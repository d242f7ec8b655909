"""What comes out of a calendar: a table, a web page, iCalendar files, and what did not fit and why."""

import io
import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import combinations

import pytest
from imports import ROOT

from dmcmc.cli.arguments import parse_arguments
from dmcmc.cli.commands import _prepare as prepare_run
from dmcmc.cli.main import main
from dmcmc.cli.solve_command import prepare as prepare_solve
from dmcmc.files.text import Source
from dmcmc.formats.calendar.read import read_calendar
from dmcmc.report.calendar import ics
from dmcmc.report.calendar.answer import answer_of
from dmcmc.report.calendar.conflict import conflict_of, told
from dmcmc.report.calendar.page import page_of
from dmcmc.results.result import Result

HEAD = "calendar: Team\nfirst_day: 2027-03-01\ndays: 2\nhours: 09:00-12:00\nslot: 30\n"
FULL = HEAD + (
    "people:\n  Ann: {busy: [Tue, 'Mon 09:00-10:00']}\n  Bob:\n  Cem: {busy: Mon}\n"
    "meetings:\n  A: {people: [Ann, Bob], slots: 2}\n  B: {people: [Ann, Bob], slots: 2}\n"
    "  D: {people: [Bob, Cem], slots: 2}\n"
)
LEFT_OUT = "  C: {people: [Ann, Cem], weight: 3}\n  E: {people: [Ann, Bob], weight: 2}\n"
MUST = "  C: {people: [Ann]}\n"
TOWN = HEAD.replace("calendar", "timezone: Europe/Berlin\ncalendar") + (
    "people: {'Ann, née B': , Bob: , bob: }\nrooms: {'Blue; room': }\n"
    "meetings: {'A <b>&': {people: [Bob, 'Ann, née B'], slots: 3}, B: {people: [bob], room: none}}\n"
)


def calendar_of(text):
    return read_calendar(Source("team.yaml", text.encode()))


def solved(text, tmp_path, capsys, *options):
    """Solve a calendar by the command line: the exit code and what was printed."""
    path = tmp_path / "team.yaml"
    path.write_text(text)
    code = main(["run", str(path), "--device", "cpu", *options])
    return code, capsys.readouterr().out


def answer(text):
    """An answer that takes the first choice of each meeting that goes with those before."""
    calendar, chosen = calendar_of(text), {}
    for m, choices in enumerate(calendar.choices):
        fits = (i for i in range(len(choices)) if not any(calendar.clashes(n, m)[j, i] for n, j in chosen.items()))
        if (index := next(fits, None)) is not None:
            chosen[m] = index
    words = {m: calendar.label(calendar.choices[m][i]) for m, i in chosen.items()}
    assignment = {
        f"{calendar.people[p].name}: {meeting.name}": words.get(m, "not held")
        for m, meeting in enumerate(calendar.meetings)
        for p in meeting.people
    }
    return answer_of(calendar, assignment)


def test_a_calendar_is_proven_and_printed_with_what_stood_in_the_way(tmp_path, capsys):
    code, text = solved(FULL + LEFT_OUT, tmp_path, capsys, "--ics", str(tmp_path / "c.ics"))
    assert code == 0
    assert "optimal (proven)" in text and "gap        0 %" in text
    assert " Tue 2 Mar  09:00-10:00  D        Bob, Cem" in text
    assert "its people are never free together: of the 12 times that it may have, Ann is busy at 8, Cem is" in text
    assert (
        "E: another meeting is in the way at each of its 4 possible times: A at 2, B at 2; at Mon 1 Mar 10:00" in text
    )
    assert (tmp_path / "c.ics").read_bytes().count(b"BEGIN:VEVENT") == 3


def test_an_impossible_calendar_names_the_meetings_in_conflict(tmp_path, capsys):
    code, text = solved(FULL + MUST, tmp_path, capsys)
    assert code == 3
    assert "these 3 meetings do not fit together: A, B, C; Ann would have to be in all of them" in text


def test_meetings_in_conflict_are_no_more_than_needed():
    calendar = calendar_of(FULL + MUST + "  F: {people: [Cem], slots: 2}\n")
    found = conflict_of(calendar)
    assert [calendar.meetings[m].name for m in found] == ["A", "B", "C"]
    alone = calendar_of(FULL + "  X: {people: [Ann, Cem]}\n")
    assert told(alone).startswith("X cannot be held: its people are never free together")


def test_a_meeting_that_is_free_but_worth_nothing_is_told():
    calendar = calendar_of(FULL + "  G: {people: [Cem], weight: -2}\n")
    assignment = {"Ann: A": "Mon 1 Mar 10:00", "Ann: B": "Mon 1 Mar 11:00", "Bob: D": "Tue 2 Mar 09:00"}
    (missing,) = answer_of(calendar, assignment | {"Cem: G": "not held"}).missing
    assert missing.reason == "free at 4 of its 6 possible times; at best, Tue 2 Mar 10:00, it is no gain"


@pytest.mark.parametrize("text", [FULL + LEFT_OUT, TOWN])
def test_icalendar_files_are_read_back_by_another_library(text):
    icalendar = pytest.importorskip("icalendar")
    found = answer(text)
    back = icalendar.Calendar.from_ical(ics.text_of(found, stamp=datetime(2027, 1, 1, tzinfo=UTC)))
    events = [part for part in back.walk() if part.name == "VEVENT"]
    assert [str(event["summary"]) for event in events] == [held.meeting.name for held in found.held]
    assert len({str(event["uid"]) for event in events}) == len(events)
    for event, held in zip(events, found.held, strict=True):
        begin, end = event["dtstart"].dt, event["dtend"].dt
        if text is TOWN:
            assert begin.utcoffset().total_seconds() == 0 and begin.hour == held.begin.hour - 1
        else:
            assert (begin, end) == (held.begin, held.end)
        assert end - begin == held.end - held.begin
        assert str(event.get("location", "")) == held.room
        assert str(event["description"]) == ", ".join(held.people)
    assert all(len(line) <= 75 for line in ics.text_of(found).encode().split(b"\r\n"))


def test_a_folder_has_a_file_for_everybody_whatever_the_names(tmp_path):
    assert ics.write(answer(TOWN), str(tmp_path)) == f"{tmp_path} (4 files)"
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


def test_the_page_needs_nothing_else_and_shows_every_meeting_beside_the_others():
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
    assert "is there already" in capsys.readouterr().err
    from dmcmc.files import text

    monkeypatch.setattr(text.sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    text.standard_input.cache_clear()
    assert main(["solve", "-", "--device", "cpu", "--json", "--html", str(tmp_path / "page.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["objective"]) == ("optimal", 36)
    assert "Kick-off" in (tmp_path / "page.html").read_text()
    text.standard_input.cache_clear()


def test_run_solves_a_calendar_as_solve_does(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text(FULL)
    ways = {"run": prepare_run, "solve": prepare_solve}
    jobs = [prepare(parse_arguments([command, str(path), "--seed", "3"])) for command, prepare in ways.items()]
    assert jobs[0] == jobs[1]
    config = jobs[0].config
    assert (config.seed, config.budget.time, config.reduce) == (3, 60.0, "merge")


def test_pages_are_for_calendars_only(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    assert main(["init", "configuration", str(path)]) == 0
    assert main(["run", str(path), "--html", str(tmp_path / "x.html")]) == 2
    assert "--html: is for calendars" in capsys.readouterr().err


@pytest.mark.slow
def test_a_team_of_twelve_has_its_best_calendar_proven(tmp_path):
    pytest.importorskip("pytoulbar2")
    output = tmp_path / "result.json"
    assert main(["run", str(ROOT / "configs" / "calendar.yaml"), "--device", "cpu", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert (found["status"], found["objective"], len(found["assignment"])) == ("optimal", 1013, 122)
    assert found["reductions"]["merged"] > 50
