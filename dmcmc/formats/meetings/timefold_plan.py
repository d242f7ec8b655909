"""The data of a Timefold meeting-scheduling file, read from JSON whose objects refer to each other."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError


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
