"""Plan the team calendar anew after one change, and count the booked meetings that move.

    python -m benchmarks.calendars.planning_anew [--changes 10] [--output FILE]

The calendar is ``configs/calendar.yaml``. Each change makes one participant busy at the time of one booked meeting, so
that at least this meeting has to move. Times are wall-clock seconds of solving after one warm solve.
"""

import statistics
import time
from dataclasses import replace

import numpy as np

from benchmarks.harness import ROOT, Report, options
from dmcmc.calendars.file.booked import with_earlier_answer
from dmcmc.calendars.file.plan import Calendar, TimeRule
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.solve import as_calendar_result, solve_calendar
from dmcmc.files.text import open_source


def busy_at(calendar: Calendar, m: int) -> Calendar:
    """Return the calendar in which the first participant of a booked meeting is busy at its time."""
    meeting = calendar.meetings[m]
    assert meeting.booked is not None
    slots = np.arange(calendar.grid.size)
    mask = (slots >= meeting.booked.start) & (slots < meeting.booked.start + meeting.length)
    people = list(calendar.people)
    person = people[meeting.people[0]]
    people[meeting.people[0]] = replace(person, busy_times=(*person.busy_times, TimeRule(mask, "a new appointment")))
    return replace(calendar, people=tuple(people))


def main() -> None:
    """Solve the calendar, change it, solve it again, and print one line per change."""
    parser = options(__file__, __doc__)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    report = Report(__file__, given)
    source = open_source(ROOT / "configs" / "calendar.yaml")
    assert source is not None
    calendar = read_calendar(source)
    earlier = as_calendar_result(solve_calendar(calendar, given.seconds), calendar)
    report(f"before: objective {earlier.objective}, {earlier.status}, {earlier.time:.2f} s")
    booked = with_earlier_answer(calendar, earlier.to_json(), "earlier")
    held = [m for m, meeting in enumerate(booked.meetings) if meeting.booked is not None]
    seconds, moved = [], []
    for m in [held[i * len(held) // given.changes] for i in range(given.changes)]:
        changed = busy_at(booked, m)
        start = time.perf_counter()
        result = solve_calendar(changed, given.seconds)
        seconds.append(time.perf_counter() - start)
        answer = as_calendar_result(result, changed)
        moved.append(len(answer.moved))
        names = ", ".join(f"{x.name} ({x.now})" for x in answer.moved)
        report(f"{changed.meetings[m].name}: {seconds[-1]:.2f} s, {result.status}, moved {moved[-1]}: {names}")
    report(f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s; most moves {max(moved)}")
    report.keep()


if __name__ == "__main__":
    main()
