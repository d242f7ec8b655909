"""Timefold's meeting scheduling: a start and a room for each meeting, and twelve constraints.

A file is JSON whose objects refer to each other. The hard constraints are the first level of the problem's objective,
the medium and soft ones the other two. Starts that leave the day or the grains, and rooms that are too small, are no
values of the variables.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.inference.building.builder import Builder
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError, ProblemError


class TimefoldMeeting(NamedTuple):
    """A meeting.

    Attributes
    ----------
    name : str
        Its number in the file.
    topic : str
        Its topic.
    grains : int
        Duration in time grains.
    required, preferred : tuple of int
        Indices of the persons whose attendance is required, and preferred.
    start, room : int or None
        Index of the grain at which it starts and of its room, if the file gives them.
    pinned : bool
        Whether they must not change.
    """

    name: str
    topic: str
    grains: int
    required: tuple[int, ...]
    preferred: tuple[int, ...]
    start: int | None = None
    room: int | None = None
    pinned: bool = False

    @property
    def seats(self) -> int:
        """The seats that its room needs."""
        return len(self.required) + len(self.preferred)


class MeetingPlan(NamedTuple):
    """A meeting-scheduling problem.

    Attributes
    ----------
    name : str
        Name of the problem.
    meetings : tuple of TimefoldMeeting
        The meetings.
    persons : tuple of str
        Names of the persons.
    rooms : tuple of (str, int)
        Name and capacity of each room; names are distinct.
    days : tuple of int
        For each time grain, the number of its day.
    """

    name: str
    meetings: tuple[TimefoldMeeting, ...]
    persons: tuple[str, ...]
    rooms: tuple[tuple[str, int], ...]
    days: tuple[int, ...]


def read_plan(source: SourceFile) -> MeetingPlan:
    """Read the JSON of a file.

    Raises
    ------
    FileError
        If the text is no JSON, or an entry is missing or refers to nothing.
    """
    try:
        document = json.loads(source.text())
        return _Document(document).plan(source.name)
    except json.JSONDecodeError as error:
        raise FileError(f"{source.name}: line {error.lineno}: {error.msg}") from None
    except KeyError as error:
        raise FileError(f"{source.name}: the entry or object {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(f"{source.name}: is no meeting-scheduling problem: {error}") from None


class _Document:
    """A parsed file; an object has an ``@id`` where it appears first, and later its ``@id`` stands for it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._objects = {found["@id"]: found for found in _objects(document)}

    def plan(self, name: str) -> MeetingPlan:
        """Return the problem."""
        grains = sorted(self._list("timeGrainList"), key=lambda grain: int(grain["grainIndex"]))
        if [int(grain["grainIndex"]) for grain in grains] != list(range(len(grains))):
            raise ValueError("the time grains are not numbered 0, 1, ...")
        self._grains = {grain["@id"]: i for i, grain in enumerate(grains)}
        persons, rooms, days = (self._list(part) for part in ("personList", "roomList", "dayList"))
        self._persons = {person["@id"]: i for i, person in enumerate(persons)}
        self._rooms = {room["@id"]: i for i, room in enumerate(rooms)}
        day = {found["@id"]: i for i, found in enumerate(days)}
        names = [str(room.get("name", room["@id"])) for room in rooms]
        distinct = len(set(names)) == len(names)
        return MeetingPlan(
            name=name.rpartition("/")[2].partition(".")[0],
            meetings=tuple(self._meeting(assignment) for assignment in self._list("meetingAssignmentList")),
            persons=tuple(str(person.get("fullName", person["@id"])) for person in persons),
            rooms=tuple(
                (label if distinct else str(room["@id"]), int(room["capacity"]))
                for label, room in zip(names, rooms, strict=True)
            ),
            days=tuple(day[self._resolved(grain["day"])["@id"]] for grain in grains),
        )

    def _meeting(self, assignment: Mapping[str, Any]) -> TimefoldMeeting:
        """Return the meeting of an assignment."""
        meeting = self._resolved(assignment["meeting"])
        start, room = assignment.get("startingTimeGrain"), assignment.get("room")
        return TimefoldMeeting(
            name=str(meeting["id"]),
            topic=str(meeting.get("topic", "")),
            grains=int(meeting["durationInGrains"]),
            required=self._attendees(meeting["requiredAttendanceList"]),
            preferred=self._attendees(meeting["preferredAttendanceList"]),
            start=None if start is None else self._grains[self._resolved(start)["@id"]],
            room=None if room is None else self._rooms[self._resolved(room)["@id"]],
            pinned=bool(assignment.get("pinned")),
        )

    def _attendees(self, attendances: list[Any]) -> tuple[int, ...]:
        """Return the indices of the persons of some attendances."""
        found = (self._resolved(attendance)["person"] for attendance in attendances)
        return tuple(self._persons[self._resolved(person)["@id"]] for person in found)

    def _list(self, name: str) -> list[Any]:
        """Return a list of objects."""
        return [self._resolved(entry) for entry in self._document[name]]

    def _resolved(self, entry: Any) -> Any:
        """Return an object that is given by itself or by its ``@id``."""
        return self._objects[entry] if isinstance(entry, str) else entry


def _objects(value: Any) -> Iterator[Any]:
    """Yield all objects with an ``@id`` in nested lists and mappings."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if "@id" in part:
                yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


BREAK_COST = 100  # of two meetings of which one starts at the end of the other one
OVERLAP_COST = 10  # of each grain for which two meetings overlap
STABILITY_GRAINS = 2  # grains after a meeting within which a further one of an attendee should be in the same room


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
