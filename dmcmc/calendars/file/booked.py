"""Plan anew: take the meetings of an earlier answer as booked."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from dmcmc.calendars.file.plan import Calendar, MeetingChoice
from dmcmc.config.document import show
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number

_NUMBER = re.compile(r" [0-9]+$")


def with_earlier_answer(calendar: Calendar, text: str, name: str) -> Calendar:
    """Return a calendar whose meetings are booked as an earlier answer has them.

    Meetings that the earlier answer does not hold, or that take place outside the calendar's slots, are not booked.

    Parameters
    ----------
    calendar
        The calendar.
    text
        The JSON text of an earlier answer (``--json`` or ``--output``).
    name
        Its file name, for errors.

    Raises
    ------
    FileError
        If the text is not the answer of a calendar, or lists a meeting twice.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise FileError(f"{name}:{line}: is not valid JSON: {getattr(error, 'msg', error)}") from None
    meetings = data.get("meetings") if isinstance(data, dict) else None
    if not isinstance(meetings, list):
        raise FileError(f"{name}: has no 'meetings'; expected the answer of a calendar (dmcmc run --json or --output)")
    booked = {}
    for number, entry in enumerate(meetings):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FileError(f"{name}: meetings[{number}]: expected a meeting with its name, got {show(entry)}")
        if entry["name"] in booked:
            raise FileError(f"{name}: meetings[{number}]: {entry['name']} is listed twice")
        booked[entry["name"]] = _choice(calendar, entry, f"{name}: meetings[{number}] ({entry['name']})")
    return replace(calendar, meetings=tuple(replace(x, booked=booked.get(x.name, x.booked)) for x in calendar.meetings))


def with_move_cost(calendar: Calendar, move_cost: Number) -> Calendar:
    """Return a calendar in which moving any booked meeting costs ``move_cost``."""
    return replace(calendar, meetings=tuple(replace(x, move_cost=move_cost) for x in calendar.meetings))


def _choice(calendar: Calendar, entry: Mapping[str, Any], where: str) -> MeetingChoice | None:
    """Return the time and room of a meeting of an earlier answer; None if no slot of the calendar starts then."""
    try:
        start = datetime.fromisoformat(entry["start"])
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{where}: start: expected a time such as 2027-03-01T10:00, got {show(entry.get('start'))}"
        ) from None
    slot = calendar.grid.slot_at(calendar.grid.local(start))
    if slot is None:
        return None
    names, given = [room.name for room in calendar.rooms], entry.get("room") or None
    known = next((name for name in (given, _NUMBER.sub("", str(given))) if name in names), None)
    return MeetingChoice(slot, None if known is None else names.index(known))


def booked_assignment(calendar: Calendar) -> dict[str, str]:
    """Return the values of the booked meetings that are still possible, by the names of the variables."""
    booked = ((name, calendar.booked_choice(m)) for m, name in enumerate(calendar.variables))
    return {name: calendar.label(choice) for name, choice in booked if choice}
