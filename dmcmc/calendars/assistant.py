"""Answer an assistant about a calendar: propose, check, explain, plan anew, and list alternatives.

Calendars are given as text. They may name files in one folder only; nothing is written. Sizes and times are limited.
The tools are served by the Model Context Protocol (the official Python SDK).
"""

import json
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from dmcmc.calendars.file.plan import Calendar, Meeting, MeetingChoice, TimeRule, with_earlier_answer, with_move_cost
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.pages.reasons import moved_meetings, reason_of_move, reason_without_answer
from dmcmc.calendars.solve import as_calendar_result, find_calendar_conflict, solve_calendar
from dmcmc.config.make_settings import settings_from
from dmcmc.files.text import SourceFile
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import DmcmcError, FileError, FileWarning, Unavailable
from dmcmc.questions.alternatives import AlternativesRequest, solve_with_alternatives
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.result import Result
from dmcmc.results.version import __version__

_MAX_TEXT_BYTES = 256 << 10  # of a calendar
_MAX_MEETINGS = 500
_MAX_PEOPLE = 300
_MAX_ALTERNATIVES = 10
_CHECK_SECONDS = 10.0  # time limit for the attendance of optional attendees in a check
P = ParamSpec("P")
R = TypeVar("R")

_INSTRUCTIONS = """Plan meetings. A calendar is a YAML text, for example:

calendar: Two of us
first_day: 2027-03-01
days: 2
hours: 09:00-12:00
slot: 30
timezone: Europe/Berlin
everyone: {max_per_day: 4, lunch: 12:00-13:00}
people:
  Ann: {busy: [Mon 09:00-10:00, {ics: ann.ics}], prefer: {mornings: 2}}
  Bob: {prefer: {not Monday: 3}, buffer: 15}
rooms: {Blue: {capacity: 6}, Table: {count: 3}}
meetings:
  Review: {people: [Ann, Bob], slots: 2}
  Coffee: {people: [Ann], optional: {Bob: 2}, weight: 1, when: [after 11:00], after: Review}

A meeting without a weight must be held. Rules for times combine weeks, days and hours: mornings, afternoons, Monday,
Mon-Wed, 2027-03-01, week 2, 09:00-11:30, before 10:00, after 15:00, and "not" in front. Files that a calendar names
(ics, poll) are in the folder of the server. Times in answers are local times of the calendar."""


@dataclass(frozen=True)
class CalendarTools:
    """The tools, their folder and their time limit.

    Each method returns plain data. Calendars are YAML texts as in ``docs/howto/calendars.md``.

    Attributes
    ----------
    folder : Path
        The only folder whose files a calendar may name.
    max_seconds : float
        Largest time limit of one call, in seconds.
    """

    folder: Path
    max_seconds: float = 60.0

    def propose_schedule(self, calendar: str, seconds: float = 10.0) -> dict[str, Any]:
        """Return the best schedule that is found for a calendar, with what is proven about it.

        Raises
        ------
        DmcmcError
            If the calendar has a mistake, or a limit is exceeded.
        """
        return self._solved(self._read(calendar), seconds)

    def plan_anew(
        self, calendar: str, booked: Sequence[Mapping[str, Any]], move_cost: float = 5.0, seconds: float = 10.0
    ) -> dict[str, Any]:
        """Return a schedule in which booked meetings stay unless moving them is worth more than ``move_cost`` each.

        ``booked`` lists meetings with ``name``, ``start`` and perhaps ``room``, as :meth:`propose_schedule` returns.
        """
        cost = int(move_cost) if float(move_cost).is_integer() else float(move_cost)
        if not 0 <= cost <= 10**9:
            raise FileError(f"move_cost: expected a number from 0 to {10**9}, got {move_cost}")
        found = with_earlier_answer(self._read(calendar), json.dumps({"meetings": [*booked]}), "booked")
        return self._solved(with_move_cost(found, cost), seconds)

    def check_schedule(self, calendar: str, meetings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return whether a schedule keeps all rules, its score, and the rules that it breaks.

        ``meetings`` lists the meetings that take place, with ``name``, ``start`` and, if they have one, ``room``. A
        schedule that lists a meeting twice keeps no rules.
        """
        counts = Counter(str(x.get("name")) for x in meetings)
        if repeated := [f"{name} is listed {count} times" for name, count in counts.items() if count > 1]:
            return {"keeps_all_rules": False, "problems": repeated}
        found = with_earlier_answer(self._read(calendar), json.dumps({"meetings": [*meetings]}), "meetings")
        names = [meeting.name for meeting in found.meetings]
        problems = [f"there is no meeting {x['name']!r}" for x in meetings if x["name"] not in names]
        listed = {x["name"] for x in meetings}
        chosen: dict[int, MeetingChoice] = {}
        for m, meeting in enumerate(found.meetings):
            if meeting.name not in listed:
                problems += [f"{meeting.name} must be held"] if meeting.weight is None else []
                continue
            choice = found.booked_choice(m)
            if choice is None:
                why = reason_of_move(found, m, {}) if meeting.booked else "no slot of the calendar starts then"
                problems.append(f"{meeting.name} cannot take place then: {why}")
            else:
                chosen[m] = choice
        if problems:
            return {"keeps_all_rules": False, "problems": problems}
        fixed = _with_choices(found, chosen)
        result = solve_calendar(fixed, _CHECK_SECONDS)
        if result.violation == 0:
            return {"keeps_all_rules": True, "problems": [], "score": result.objective}
        return {"keeps_all_rules": False, "problems": _broken_rules(found, chosen)}

    def explain_conflict(
        self, calendar: str, meeting: str | None = None, start: str | None = None, seconds: float = 15.0
    ) -> dict[str, Any]:
        """Return why a calendar is impossible, or why a meeting cannot start at a time; or that it is possible.

        Parameters
        ----------
        calendar
            The calendar.
        meeting, start
            If given: the question is why this meeting does not start then, as ``2027-03-01T10:00``. If that is
            possible, the result has the best score with it.
        seconds
            Time limit in seconds.
        """
        found, limit = self._read(calendar), self._limit(seconds)
        if meeting is not None:
            found = _with_start(found, meeting, start)
        conflict = find_calendar_conflict(found, settings_from(None, {"timeout": limit}))
        answer = _plain_conflict(conflict)
        if conflict.status == "feasible" and meeting is not None:
            answer["score"] = solve_calendar(found, limit).objective
        return answer

    def alternatives(
        self, calendar: str, count: int = 3, distance: int = 2, seconds: float = 20.0
    ) -> list[dict[str, Any]]:
        """Return several good schedules of which any two differ in at least ``distance`` meetings, the best first."""
        if not 1 <= count <= _MAX_ALTERNATIVES:
            raise FileError(f"count: expected a number from 1 to {_MAX_ALTERNATIVES}, got {count}")
        found = self._read(calendar)
        problem = problem_of(found, copies=False)
        request = AlternativesRequest(count, None, distance, found.variables).checked(problem)
        settings = settings_from(None, {"timeout": self._limit(seconds), "presolve": "merge", "device": "cpu"})
        result = solve_with_alternatives(problem, settings, request)
        if result is None or not result.alternatives:
            return []
        moves = moved_meetings(found, result.alternatives)
        return [
            {
                "score": x.objective,
                "proven_rank": x.proven,
                "differences": words,
                "meetings": _held(found, problem, x.assignment),
            }
            for x, words in zip(result.alternatives, moves, strict=True)
        ]

    def _read(self, text: str) -> Calendar:
        """Return the calendar of a text after a check of its size."""
        data = text.encode()
        if len(data) > _MAX_TEXT_BYTES:
            raise FileError(f"calendar: larger than {_MAX_TEXT_BYTES >> 10} KiB")
        found = read_calendar(SourceFile("calendar", data), self.folder)
        if len(found.meetings) > _MAX_MEETINGS or len(found.people) > _MAX_PEOPLE:
            raise FileError(f"calendar: at most {_MAX_MEETINGS} meetings and {_MAX_PEOPLE} people are possible here")
        return found

    def _limit(self, seconds: float) -> float:
        """Return the time limit of a call in seconds."""
        if not seconds > 0:
            raise FileError(f"seconds: expected a number above 0, got {seconds}")
        return min(float(seconds), self.max_seconds)

    def _solved(self, calendar: Calendar, seconds: float) -> dict[str, Any]:
        """Return the solved calendar as plain data."""
        limit = self._limit(seconds)
        return _plain(as_calendar_result(solve_calendar(calendar, limit), calendar, limit))


def _plain(result: CalendarResult) -> dict[str, Any]:
    """Return the parts of a result that an assistant needs."""
    data = json.loads(result.to_json())
    names = ("status", "objective", "bound", "gap", "meetings", "not_held", "moved", "gives_way")
    answer = {name: data[name] for name in names}
    answer["reason"] = reason_without_answer(result)
    answer["conflict"] = None if result.conflict is None else _plain_conflict(result.conflict)
    return answer


def _plain_conflict(conflict: CalendarConflict) -> dict[str, Any]:
    """Return a conflict as plain data."""
    return {
        "status": conflict.status,
        "summary": conflict.summary,
        "meetings": [*conflict.meetings],
        "rules_that_cannot_hold_together": [*conflict.constraints],
        "minimal": conflict.minimal,
        "relaxations": [
            {"without": x.constraint, "score": x.objective, "status": x.status} for x in conflict.relaxations
        ],
    }


def _held(calendar: Calendar, problem: Problem, assignment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the meetings of an assignment as plain data."""
    evaluation = problem.evaluate(assignment)
    result = Result(
        status="feasible",
        objective=evaluation.objective,
        bound=None,
        gap=None,
        violation=evaluation.violation,
        assignment=assignment,
        sense=problem.sense,
        time=0.0,
    )
    meetings: list[dict[str, Any]] = _plain(as_calendar_result(result, calendar))["meetings"]
    return meetings


def _with_choices(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> Calendar:
    """Return a calendar in which the chosen meetings are held at their times and rooms, and no others."""
    meetings = []
    for m, meeting in enumerate(calendar.meetings):
        choice = chosen.get(m)
        mask = np.arange(calendar.grid.size) == (-1 if choice is None else choice.start)
        rooms = meeting.rooms if choice is None or choice.room is None else (choice.room,)
        starts = TimeRule(mask, "fixed")
        meetings.append(replace(meeting, starts=starts, rooms=rooms, booked=None))
    return replace(calendar, meetings=tuple(meetings))


def _broken_rules(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> list[str]:
    """Return the names of the rules that a schedule without optional attendees breaks."""
    bare = replace(calendar, meetings=tuple(replace(x, optional=(), booked=None) for x in calendar.meetings))
    problem = problem_of(bare, copies=False)
    values = np.zeros(problem.n_variables, dtype=np.int64)
    position = {name: i for i, name in enumerate(problem.variables)}
    for m, name in enumerate(bare.variables):
        v = position[name]
        choice = chosen.get(m)
        values[v] = problem.domains[v] - 1 if choice is None else bare.choices[m].index(choice)
    broken = [f.name for f in problem.factors if f.scope and f.entry(values[list(f.scope)].tolist()) is None]
    return broken or ["the optional attendees cannot be placed"]


def _with_start(calendar: Calendar, name: str, start: str | None) -> Calendar:
    """Return a calendar in which a meeting must be held, at a given start if there is one."""
    names = [meeting.name for meeting in calendar.meetings]
    if name not in names:
        raise FileError(f"meeting: {name!r} is not among the meetings")
    m = names.index(name)
    changed: Meeting = replace(calendar.meetings[m], weight=None)
    if start is not None:
        found = with_earlier_answer(calendar, json.dumps({"meetings": [{"name": name, "start": start}]}), "start")
        booked = found.meetings[m].booked
        if booked is None:
            raise FileError(f"start: no slot of the calendar starts at {start}")
        changed = replace(changed, starts=TimeRule(np.arange(calendar.grid.size) == booked.start, f"at {start}"))
    return replace(calendar, meetings=(*calendar.meetings[:m], changed, *calendar.meetings[m + 1 :]))


def make_server(tools: CalendarTools) -> Any:
    """Return a server (``mcp.server.MCPServer``) of tools for planning calendars.

    Raises
    ------
    Unavailable
        If the SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise Unavailable("dmcmc mcp needs the Model Context Protocol's SDK; pip install 'dmcmc[mcp]'") from None
    lock = threading.Lock()
    server = MCPServer(name="dmcmc", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")

    def guarded(method: Callable[P, R]) -> Callable[P, R]:
        """Return a method that works on one call at a time, whose errors are one line, and that answers warnings."""

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", FileWarning)
                try:
                    answer: Any = method(*args, **kwargs)
                except DmcmcError as error:
                    raise ToolError(" ".join(str(error).split())) from None
            found = [str(x.message) for x in caught if issubclass(x.category, FileWarning)]
            for part in answer if isinstance(answer, list) else [answer]:
                part.update({"warnings": found} if found else {})
            return cast(R, answer)

        return call

    for method in (
        tools.propose_schedule,
        tools.check_schedule,
        tools.explain_conflict,
        tools.plan_anew,
        tools.alternatives,
    ):
        description = (method.__doc__ or "").strip()
        server.tool(name=method.__name__, description=description)(guarded(method))
    return server
