"""Convert Timefold's meeting scheduling to a problem: a start and a room for each meeting, and twelve constraints.

The hard constraints are the first level of the objective, the medium and soft ones the other two. Starts that leave the
day or the grains, and rooms that are too small, are no values of the variables.
"""

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.meetings.timefold_plan import MeetingPlan, TimefoldMeeting, read_plan
from dmcmc.formats.meetings.timefold_score import BREAK_COST, OVERLAP_COST, STABILITY_GRAINS
from dmcmc.inference.building.builder import Builder
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError

LEVELS = ("hard", "medium", "soft")


def read(source: SourceFile) -> Problem:
    """Read a file as a problem; see :func:`dmcmc.formats.registry.load`."""
    return problem_of(read_plan(source))


def problem_of(plan: MeetingPlan) -> Problem:
    """Return the problem; its objective in levels is the score.

    Raises
    ------
    ProblemError
        If a meeting has no possible start or room.
    """
    build = Builder(sense="max", name=plan.name, levels=LEVELS)
    starts = [build.variable(f"start {m.name}", _starts(plan, m)) for m in plan.meetings]
    rooms = [build.variable(f"room {m.name}", _rooms(plan, m)) for m in plan.meetings]
    durations = [meeting.grains for meeting in plan.meetings]
    build.level("hard").no_overlap(starts, durations, rooms, name="room conflict")
    for person, meetings in _attended(plan, preferred=False):
        names = [starts[m] for m in meetings]
        build.no_overlap(names, [durations[m] for m in meetings], name=f"required attendance of {person}")
    build.level("medium")
    for person, meetings in _attended(plan, preferred=True):
        # Overlaps of required attendances count, too: they are 0 if the hard constraints hold.
        names = [starts[m] for m in meetings]
        build.no_overlap(names, [durations[m] for m in meetings], cost=1, name=f"attendance of {person}")
    build.level("soft")
    _add_soft(build, plan, starts, rooms)
    return build.problem()


def _add_soft(build: Builder, plan: MeetingPlan, starts: list[str], rooms: list[str]) -> None:
    """Add the soft constraints."""
    durations = [meeting.grains for meeting in plan.meetings]
    for meeting, start, room in zip(plan.meetings, starts, rooms, strict=True):
        build.factor(start, [-(grain + meeting.grains - 1) for grain in _starts(plan, meeting)], name="last grain")
        seats = dict(plan.rooms)
        larger = [sum(max(0, other - seats[label]) for other in seats.values()) for label in _rooms(plan, meeting)]
        if any(larger):
            build.factor(room, [-excess for excess in larger], name="larger rooms")
    build.no_overlap(starts, durations, cost=OVERLAP_COST, name="overlapping meetings")
    times = [_starts(plan, meeting) for meeting in plan.meetings]
    build.constraint(
        "adjacency", starts, {"times": times, "durations": durations}, BREAK_COST, "break between meetings"
    )
    number = {label: i for i, (label, _) in enumerate(plan.rooms)}
    for person, meetings in _attended(plan, preferred=True):
        given = {
            "times": [times[m] for m in meetings],
            "durations": [durations[m] for m in meetings],
            "places": [[number[label] for label in _rooms(plan, plan.meetings[m])] for m in meetings],
            "gap": STABILITY_GRAINS,
        }
        scope = [*(starts[m] for m in meetings), *(rooms[m] for m in meetings)]
        build.constraint("place_changes", scope, given, 1, f"room stability of {person}")


def _attended(plan: MeetingPlan, preferred: bool) -> list[tuple[str, list[int]]]:
    """Return the name of each person with two meetings or more, and these meetings, with or without preferred ones."""
    found: list[tuple[str, list[int]]] = []
    for p, person in enumerate(plan.persons):
        meetings = [
            m
            for m, meeting in enumerate(plan.meetings)
            if p in meeting.required or (preferred and p in meeting.preferred)
        ]
        if len(meetings) > 1:
            found.append((person, meetings))
    return found


def _starts(plan: MeetingPlan, meeting: TimefoldMeeting) -> list[int]:
    """Return the grains at which a meeting can start, so that it ends on the same day."""
    days = np.array(plan.days)
    first = np.arange(max(0, days.size - meeting.grains + 1))
    possible = first[days[first] == days[first + meeting.grains - 1]].tolist()
    if meeting.pinned and meeting.start is not None:
        possible = [meeting.start]
    if not possible:
        raise ProblemError(f"meeting {meeting.name}: {meeting.grains} grains fit no day")
    return [int(grain) for grain in possible]


def _rooms(plan: MeetingPlan, meeting: TimefoldMeeting) -> list[str]:
    """Return the names of the rooms that are large enough for a meeting."""
    if meeting.pinned and meeting.room is not None:
        return [plan.rooms[meeting.room][0]]
    possible = [name for name, capacity in plan.rooms if capacity >= meeting.seats]
    if not possible:
        raise ProblemError(f"meeting {meeting.name}: no room has {meeting.seats} seats")
    return possible
