"""Reasons in words: why a meeting does not take place, a booked one moves, or someone cannot attend; conflicts."""

from collections.abc import Mapping, Sequence

import numpy as np

from dmcmc.calendars.file.clashes import Places, clashes, close_pairs, gap_between
from dmcmc.calendars.file.plan import Calendar, MeetingChoice, TimeRule
from dmcmc.report.summary import changed_values
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.questions import RelaxedConstraint
from dmcmc.results.result import Alternative, Result

_MAX_NAMED = 3  # meetings or rules that a reason names


def reason_of(calendar: Calendar, m: int, chosen: Mapping[int, MeetingChoice]) -> str:
    """Return why a meeting does not take place, in words.

    Parameters
    ----------
    calendar
        The calendar.
    m
        Number of the meeting.
    chosen
        The times and rooms of the meetings that take place, by their numbers.
    """
    choices = calendar.choices[m]
    if not choices:
        return no_time(calendar, m)
    blocks = {n: clashes(calendar, m, n)[:, calendar.choices[n].index(choice)] for n, choice in chosen.items()}
    blocks = {n: column for n, column in blocks.items() if column.any()}
    n_conflicts = np.sum(list(blocks.values()), axis=0) if blocks else np.zeros(len(choices), dtype=int)
    free = np.flatnonzero(n_conflicts == 0)
    times = f"{len(choices)} possible time{'s' if len(choices) > 1 else ''}"
    if len(free):
        scores = _scores(calendar, m)
        best = max(free.tolist(), key=lambda i: scores[i])
        remedy = "a limit of the day or full rooms may forbid it" if has_other_rules(calendar) else "solve for longer"
        verdict = "would not raise the total score"
        if scores[best] > 0:
            verdict = f"would raise the total score; {remedy}"
        return f"free at {len(free)} of its {times}, but the best, {calendar.label(choices[best])}, {verdict}"
    main_conflicts = sorted(blocks, key=lambda n: -int(blocks[n].sum()))[:_MAX_NAMED]
    named = ", ".join(f"{calendar.meetings[n].name} at {int(blocks[n].sum())}" for n in main_conflicts)
    fewest_conflicts = int(n_conflicts.argmin())
    conflicts_there = [calendar.meetings[n].name for n, column in blocks.items() if column[fewest_conflicts]]
    more = ", and others" if len(blocks) > _MAX_NAMED else ""
    return (
        f"another meeting takes place at each of its {times}: {named}{more};"
        f" at {calendar.label(choices[fewest_conflicts])} only {_listed(conflicts_there)}"
    )


def has_other_rules(calendar: Calendar) -> bool:
    """Return whether a calendar has rules over more than two meetings."""
    limited = (
        person.max_per_day is not None or person.max_in_a_row is not None or person.lunch is not None or person.no_gaps
        for person in calendar.people
    )
    return any(limited) or any(room.count > 1 for room in calendar.rooms) or any(calendar.fairness)


def no_time(calendar: Calendar, m: int) -> str:
    """Return why a meeting could not take place even if it were the only one."""
    meeting = calendar.meetings[m]
    starts = np.flatnonzero(calendar.start_mask(meeting, ()))
    if not len(starts):
        within = f" ({meeting.starts.text})" if meeting.starts is not None else ""
        return f"its allowed times{within} contain no {_slots(meeting.length)}"
    blocked = []
    for p in meeting.people:
        name = calendar.people[p].name
        free = int(calendar.start_mask(meeting, (p,)).sum())
        if not free and len(starts) == 1:
            return f"{name} cannot attend at {calendar.label(MeetingChoice(int(starts[0]), None))}: " + (
                _listed(_blocking_rules(calendar, m, p, int(starts[0]))) or "busy"
            )
        if not free:
            return f"{name} is busy at all of its {len(starts)} allowed times"
        if free < len(starts):
            blocked.append(f"{name} is busy at {len(starts) - free}")
    if calendar.start_mask(meeting, meeting.people).any():
        return "no room is free at any of its allowed times"
    return f"its participants are never free at the same time: of its {len(starts)} allowed times, {', '.join(blocked)}"


def reason_of_move(calendar: Calendar, m: int, chosen: Mapping[int, MeetingChoice]) -> str:
    """Return why a booked meeting does not take place as booked, in words.

    Parameters
    ----------
    calendar
        The calendar.
    m
        Number of the meeting.
    chosen
        The times and rooms of the meetings that take place, by their numbers.
    """
    meeting = calendar.meetings[m]
    assert meeting.booked is not None
    start, room = meeting.booked
    blocked = [
        f"{calendar.people[p].name}: {rule}" for p in meeting.people for rule in _blocking_rules(calendar, m, p, start)
    ]
    span = slice(start, start + meeting.length)
    if meeting.when is not None and not meeting.when.mask[span].all():
        blocked.append(f"it has to lie within {meeting.when.text}")
    if meeting.starts is not None and not meeting.starts.mask[start]:
        blocked.append(f"it is {meeting.starts.text}")
    if room is not None:
        rules = calendar.rooms[room].busy_times
        blocked += [f"{calendar.rooms[room].name}: {rule.text}" for rule in rules if rule.mask[span].any()]
        if room not in meeting.rooms:
            blocked.append(f"{calendar.rooms[room].name} is not among its rooms")
    if blocked:
        return f"what was booked is not possible any more: {_listed(blocked)}"
    there = [i for i, choice in enumerate(calendar.choices[m]) if not calendar.moved(m)[i]]
    others = [
        calendar.meetings[n].name
        for n, choice in chosen.items()
        if n != m and there and clashes(calendar, m, n)[there, calendar.choices[n].index(choice)].all()
    ]
    if others:
        return f"what was booked does not fit with {_listed(others)}"
    return "another plan is worth more than the cost of moving it"


def reason_of_absence(
    calendar: Calendar, m: int, p: int, chosen: Mapping[int, MeetingChoice], absent: Mapping[int, list[int]]
) -> str:
    """Return why an optional attendee does not attend a meeting, in words.

    Parameters
    ----------
    calendar
        The calendar.
    m, p
        Numbers of the meeting and of the person.
    chosen
        The times and rooms of the meetings that take place, by their numbers.
    absent
        For each of these, the optional attendees who do not attend.
    """
    if rules := _blocking_rules(calendar, m, p, chosen[m].start):
        return f"busy: {_listed(rules)}"
    places = {
        n: Places(np.array([c.start]), np.array([-1 if c.room is None else c.room]), calendar.meetings[n].length)
        for n, c in chosen.items()
    }
    attended = [
        n
        for n in chosen
        if n != m and (p in calendar.meetings[n].people or (_invited(calendar, n, p) and p not in absent[n]))
    ]
    others = [
        calendar.meetings[n].name
        for n in attended
        if close_pairs(calendar, places[m], places[n], gap_between(calendar, m, n, p)).any()
    ]
    return f"attends {_listed(others)}" if others else "limits of the day, or little weight"


def reason_without_answer(result: Result) -> str:
    """Return why a result has no calendar, in words; empty if it has one."""
    if result.status == "infeasible":
        conflict = result.conflict if isinstance(result, CalendarResult) else None
        return "it is proven that the required meetings cannot all take place" if conflict is None else conflict.summary
    if result.assignment is None or result.violation:
        return "no calendar was found in which all required meetings take place; a longer time limit may help"
    return ""


def _invited(calendar: Calendar, m: int, p: int) -> bool:
    """Return whether a person is an optional attendee of a meeting."""
    return any(attendee.person == p for attendee in calendar.meetings[m].optional)


def _blocking_rules(calendar: Calendar, m: int, p: int, start: int) -> list[str]:
    """Return the texts of a person's rules that forbid a meeting at a start."""
    meeting, person, grid = calendar.meetings[m], calendar.people[p], calendar.grid
    span = slice(start, start + meeting.length)
    buffer = max(meeting.buffer, person.buffer)

    def blocks(rule: TimeRule, minutes: int) -> bool:
        """Return whether a rule, with a buffer around its times, forbids the meeting."""
        return bool((grid.widened(rule.mask, minutes) if minutes else rule.mask)[span].any())

    found = [rule.text for rule in person.busy_times if blocks(rule, buffer)]
    found += [rule.text for rule in person.away_times if blocks(rule, 0)]
    return found + (["refused in the poll"] if p in meeting.refused and meeting.refused[p][start] else [])


def _scores(calendar: Calendar, m: int) -> list[float]:
    """Return the score of each choice of a meeting: its own and the preferences of all participants."""
    scores = [calendar.utilities(m), *(calendar.utilities(m, p) for p in calendar.meetings[m].people)]
    return [float(sum(parts)) for parts in zip(*scores, strict=True)]


def _listed(names: Sequence[str]) -> str:
    """Return names in words; after the first few, "others"."""
    return " and ".join(names[:_MAX_NAMED]) + (" and others" if len(names) > _MAX_NAMED else "")


def _slots(count: int) -> str:
    """Return a number of consecutive time slots in words."""
    return "time slot" if count == 1 else f"{count} consecutive time slots"


def lines_of_conflict(conflict: CalendarConflict) -> list[str]:
    """Return a conflict as lines of text for the terminal."""
    lines = [conflict.summary]
    if conflict.constraints:
        lines += ["", heading_of_rules(conflict), *(f" {rule}" for rule in conflict.constraints)]
    if conflict.relaxations:
        lines += ["", "what would help, each alone:"]
        lines += [f" without '{x.constraint}': {effect_of(x)}" for x in conflict.relaxations]
    return lines


def heading_of_rules(conflict: CalendarConflict) -> str:
    """Return the heading of the rules of a conflict."""
    smaller = (
        "without any one of them the meetings named above fit" if conflict.minimal else "perhaps fewer of them, too"
    )
    return f"these rules cannot hold together ({smaller}):"


def effect_of(relaxation: RelaxedConstraint) -> str:
    """Return in words what relaxing a rule brings."""
    if relaxation.objective is not None:
        best = "" if relaxation.status == "optimal" else " or more"
        return f"possible, with a total score of {relaxation.objective}{best}"
    return "not enough: other meetings still do not fit" if relaxation.status == "infeasible" else "not known in time"


def moved_meetings(calendar: Calendar, alternatives: Sequence[Alternative]) -> list[list[str]]:
    """Return for each alternative the meetings that differ from the first one, each with the label of its value."""
    names = {name: meeting.name for name, meeting in zip(calendar.variables, calendar.meetings, strict=True)}
    first = alternatives[0].assignment
    return [
        [f"{names[name]}: {value}" for name, value in changed_values(first, x.assignment) if name in names]
        for x in alternatives
    ]
