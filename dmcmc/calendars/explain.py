"""Explain an impossible calendar: a minimal set of its rules in conflict, and the cheapest relaxations."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from dmcmc.calendars.meeting_conflict import MeetingSearch, conflict_of
from dmcmc.calendars.rules import CalendarRule, restricted_to, rules_of
from dmcmc.config.settings import Settings, settings_from
from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.formats.calendar.keep import booked_assignment
from dmcmc.formats.calendar.problem import problem_of
from dmcmc.inference.presolve.minimal_conflict import minimal_conflict
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.report.calendar.reasons import has_other_rules, no_time
from dmcmc.results.calendar_result import CalendarConflict
from dmcmc.results.conflict import RelaxedConstraint
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm

EXPLANATION_SECONDS = 15.0
"""Time limit of an explanation after a run, in seconds."""
_TEST_SHARE = 0.1  # share of the remaining time for one test of a set of rules
_RELAXATION_SHARE = 0.5  # share of the time that is kept for relaxations
_MAX_RELAXATIONS = 12
_PROOF_SHARE = 0.3  # share of the time limit for the proof that a calendar is impossible


def explain(calendar: Calendar, seconds: float = EXPLANATION_SECONDS) -> CalendarConflict:
    """Return a minimal set of rules of an impossible calendar that cannot hold together, and what relaxing one brings.

    First a minimal set of required meetings that cannot all take place is found, then a minimal set of the rules of
    these meetings, their participants and their rooms. A test that is not finished in time counts as possible, so that
    the result is a conflict, but perhaps not minimal.

    Parameters
    ----------
    calendar
        A calendar that is proven to be impossible.
    seconds
        Time limit of all tests together, in seconds.
    """
    return _Explanation(calendar, seconds).conflict()


def find_calendar_conflict(calendar: Calendar, settings: Settings) -> CalendarConflict:
    """Return why a calendar is impossible, or that it is possible; the task ``conflict`` for calendars.

    Parameters
    ----------
    calendar
        The calendar.
    settings
        ``budget.time`` limits the proof and the explanation together.
    """
    start, limit = time.perf_counter(), settings.budget.time or EXPLANATION_SECONDS
    result = solve_calendar(calendar, _PROOF_SHARE * limit)
    if result.status == "infeasible":
        conflict = explain(calendar, limit - (time.perf_counter() - start))
        return msgspec.structs.replace(conflict, time=time.perf_counter() - start, provenance=result.provenance)
    return CalendarConflict(
        status="feasible" if result.violation == 0 else "unknown",
        summary="all required meetings can take place" if result.violation == 0 else "no proof was found in time",
        time=time.perf_counter() - start,
        provenance=result.provenance,
    )


class _Explanation:
    """The tests of an explanation and their time limit.

    Attributes
    ----------
    calendar : Calendar
        The calendar.
    start, seconds : float
        When the explanation began (``time.perf_counter``), and its time limit in seconds.
    """

    def __init__(self, calendar: Calendar, seconds: float) -> None:
        self.calendar = calendar
        self.start, self.seconds = time.perf_counter(), seconds

    def remaining(self, reserved: float = 0.0) -> float:
        """Return the remaining seconds, without a reserved share of the time limit."""
        return self.start + (1 - reserved) * self.seconds - time.perf_counter()

    def conflict(self) -> CalendarConflict:
        """Find the conflict and the relaxations."""
        meetings = conflict_of(self.calendar, lambda some: self.is_possible(restricted_to(self.calendar, some)))
        rules = rules_of(self.calendar, meetings)

        def is_infeasible(items: list[int]) -> bool | None:
            """Return whether some of the rules cannot hold together; None if this is not known."""
            answer = self.is_possible(restricted_to(self._without(rules, {*range(len(rules))} - {*items}), meetings))
            return None if answer is None else not answer

        found = minimal_conflict(len(rules), is_infeasible)
        chosen = [rules[i] for i in found.items]
        return CalendarConflict(
            status="infeasible",
            constraints=tuple(rule.text for rule in chosen),
            minimal=found.is_minimal,
            relaxations=self.relaxations([*chosen, *self.attendances(meetings)][:_MAX_RELAXATIONS]),
            time=time.perf_counter() - self.start,
            summary=summary_of(self.calendar, meetings),
            meetings=tuple(self.calendar.meetings[m].name for m in meetings),
        )

    def is_possible(self, calendar: Calendar) -> bool | None:
        """Return whether all required meetings of a calendar fit together; None if this is not known in time."""
        must = [m for m, meeting in enumerate(calendar.meetings) if meeting.weight is None]
        if not must or not all(calendar.choices[m] for m in must):
            return not must
        answer = MeetingSearch(calendar).fits(must)
        if answer is False or (answer and not has_other_rules(calendar)):
            return answer
        seconds = self.remaining(_RELAXATION_SHARE)
        if seconds <= 0:
            return None
        result = solve_calendar(calendar, max(0.5, _TEST_SHARE * seconds))
        return False if result.status == "infeasible" else True if result.violation == 0 else None

    def relaxations(self, rules: Sequence[CalendarRule]) -> tuple[RelaxedConstraint, ...]:
        """Return what relaxing each rule alone brings for the whole calendar, the best objective first."""
        found = []
        for number, rule in enumerate(rules):
            seconds = self.remaining() / (len(rules) - number)
            if seconds <= 0:
                found.append(RelaxedConstraint(constraint=rule.text, objective=None, status="timeout"))
                continue
            result = solve_calendar(rule.relax(self.calendar), max(0.1, seconds))
            found.append(RelaxedConstraint(constraint=rule.text, objective=result.objective, status=result.status))
        return tuple(sorted(found, key=_preferred))

    def attendances(self, meetings: Sequence[int]) -> list[CalendarRule]:
        """Return the attendance of people who attend several of the meetings, as rules."""
        calendar, rules = self.calendar, []
        for m in meetings:
            for p in calendar.meetings[m].people:
                shared = sum(p in calendar.meetings[n].people for n in meetings)
                if len(calendar.meetings[m].people) > 1 and (shared > 1 or len(meetings) == 1):
                    text = f"{calendar.people[p].name} attends {calendar.meetings[m].name}"
                    rules.append(CalendarRule(text, partial(_without_person, m=m, p=p)))
        return rules

    def _without(self, rules: Sequence[CalendarRule], relaxed: set[int]) -> Calendar:
        """Return the calendar without some of the rules."""
        calendar = self.calendar
        for i in sorted(relaxed):
            calendar = rules[i].relax(calendar)
        return calendar


def _preferred(relaxation: RelaxedConstraint) -> tuple[bool, Number]:
    """Return the sort key of a relaxation: those that make the calendar possible first, by their objectives."""
    return relaxation.objective is None, -(relaxation.objective or 0)


def _without_person(calendar: Calendar, m: int, p: int) -> Calendar:
    """Return a calendar in which a person does not attend a meeting."""
    meetings = list(calendar.meetings)
    meetings[m] = replace(meetings[m], people=tuple(q for q in meetings[m].people if q != p))
    return replace(calendar, meetings=tuple(meetings))


def solve_calendar(calendar: Calendar, seconds: float, settings: Settings | None = None) -> Result:
    """Solve a calendar with one variable per meeting, within a time limit in seconds; start from what is booked."""
    keywords: dict[str, Any] = {"timeout": seconds, "presolve": "merge", "device": "cpu"}
    if booked := booked_assignment(calendar):
        keywords["start"] = booked
    settings = settings_from(settings, keywords)
    result = choose_algorithm.solve(problem_of(calendar, copies=False), settings, World())
    assert result is not None  # on the only rank
    return result


def summary_of(calendar: Calendar, meetings: Sequence[int]) -> str:
    """Return a conflict between meetings in one sentence."""
    names = [calendar.meetings[m].name for m in meetings]
    if len(meetings) == 1 and not calendar.choices[meetings[0]]:
        return f"{names[0]} cannot take place: {no_time(calendar, meetings[0])}"
    if len(meetings) == 1:
        return f"{names[0]} cannot take place"
    shared = set.intersection(*({*calendar.meetings[m].people} for m in meetings)) if meetings else set()
    names_of_shared = ", ".join(calendar.people[p].name for p in sorted(shared))
    by = f"; {names_of_shared} would have to attend all of them" if names_of_shared else ""
    return f"these {len(names)} meetings cannot all take place: {', '.join(names)}{by}"
