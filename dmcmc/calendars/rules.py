"""The rules of a calendar in its own words, each with the calendar that does not have it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmcmc.formats.calendar.data.grid import Mask
from dmcmc.formats.calendar.data.plan import NO_FAIRNESS, Calendar, Meeting, Person, Precedence


class CalendarRule(NamedTuple):
    """A rule that may be part of a conflict.

    Attributes
    ----------
    text : str
        The rule in the words of the calendar.
    relax : callable
        Returns a calendar without the rule, for a calendar with the same people, rooms and meetings.
    """

    text: str
    relax: Callable[[Calendar], Calendar]


def restricted_to(calendar: Calendar, meetings: Iterable[int]) -> Calendar:
    """Return the calendar of some meetings only, without preferences: it is possible if these meetings fit together.

    The other meetings and all optional attendees are left out; the numbers of the meetings change.
    """
    chosen = sorted(meetings)
    number = {m: i for i, m in enumerate(chosen)}
    kept = []
    for m in chosen:
        meeting = calendar.meetings[m]
        after = tuple(Precedence(number[x.meeting], x.gap) for x in meeting.after if x.meeting in number)
        nothing: dict[str, Any] = {"preferences": (), "optional": (), "early": 0, "room_points": {}, "booked": None}
        kept.append(replace(meeting, after=after, **nothing))
    people = tuple(replace(person, preferences=(), appointments=(), no_gaps=0) for person in calendar.people)
    return replace(calendar, meetings=tuple(kept), people=people, fairness=NO_FAIRNESS)


def rules_of(calendar: Calendar, meetings: Sequence[int]) -> list[CalendarRule]:
    """Return the rules of some meetings of a calendar, of their participants and of their rooms.

    Rules that come first are preferred in explanations.
    """
    people = sorted({p for m in meetings for p in calendar.meetings[m].people})
    rooms = sorted({r for m in meetings for r in calendar.meetings[m].rooms})
    return [
        *(rule for m in meetings for rule in _rules_of_meeting(calendar, m, meetings)),
        *(rule for p in people for rule in _rules_of_person(calendar, p, meetings)),
        *(rule for r in rooms for rule in _rules_of_room(calendar, r)),
        *([CalendarRule("travel between rooms takes time", _without_travel)] if calendar.travel else []),
    ]


def _without_travel(calendar: Calendar) -> Calendar:
    """Return a calendar in which travel between rooms takes no time."""
    return replace(calendar, travel={})


def _rules_of_meeting(calendar: Calendar, m: int, meetings: Sequence[int]) -> Iterator[CalendarRule]:
    """Yield the rules of a meeting; of its orders those with other ones of the given meetings."""
    meeting = calendar.meetings[m]
    name = meeting.name
    if meeting.weight is None:
        yield CalendarRule(f"{name} must be held", _meeting_change(m, {"weight": 0}))
    if meeting.when is not None and meeting.series is None:
        yield CalendarRule(f"{name} lies within {meeting.when.text}", _meeting_change(m, {"when": None}))
    if meeting.starts is not None:
        yield CalendarRule(f"{name} is {meeting.starts.text}", _meeting_change(m, {"starts": None}))
    for p in meeting.refused:
        remaining = {other: mask for other, mask in meeting.refused.items() if other != p}
        text = f"{calendar.people[p].name} has refused times of {name} in the poll"
        yield CalendarRule(text, _meeting_change(m, {"refused": remaining}))
    if meeting.buffer:
        yield CalendarRule(f"{name} has a buffer of {meeting.buffer} minutes", _meeting_change(m, {"buffer": 0}))
    for earlier, gap in (x for x in meeting.after if x.meeting in meetings):
        remaining_order = tuple(x for x in meeting.after if x.meeting != earlier)
        text = f"{name} is after {calendar.meetings[earlier].name}" + (f" by {gap} minutes" if gap else "")
        yield CalendarRule(text, _meeting_change(m, {"after": remaining_order}))
    if meeting.series is not None and (meeting.series.same_time or meeting.series.same_room):
        same = [*(["time"] if meeting.series.same_time else []), *(["room"] if meeting.series.same_room else [])]
        text = f"{name} has the {' and '.join(same)} of {meeting.series.name}"
        yield CalendarRule(text, _meeting_change(m, {"series": None}))
    if meeting.rooms:
        names = " or ".join(calendar.rooms[r].name for r in meeting.rooms)
        yield CalendarRule(f"{name} needs a room ({names})", _meeting_change(m, {"rooms": ()}))


def _rules_of_person(calendar: Calendar, p: int, meetings: Sequence[int]) -> Iterator[CalendarRule]:
    """Yield the rules of a person that may concern one of some meetings."""
    person, name = calendar.people[p], calendar.people[p].name
    for kind, verb in (("away_times", "is away"), ("busy_times", "is busy")):
        for i, rule in enumerate(getattr(person, kind)):
            if _concerns(calendar, p, rule.mask, meetings):
                yield CalendarRule(f"{name} {verb} {rule.text}", _without_time(p, kind, i))
    if person.buffer:
        text = f"{name} has {person.buffer} minutes between meetings"
        yield CalendarRule(text, _person_change(p, {"buffer": 0}))
    if person.max_per_day is not None:
        text = f"{name} has at most {person.max_per_day} meeting{'s' if person.max_per_day > 1 else ''} a day"
        yield CalendarRule(text, _person_change(p, {"max_per_day": None}))
    if person.max_in_a_row is not None:
        text = f"{name} has at most {person.max_in_a_row} minutes of meetings in a row"
        yield CalendarRule(text, _person_change(p, {"max_in_a_row": None}))
    if person.lunch is not None:
        yield CalendarRule(f"{name} has lunch within {person.lunch.text}", _person_change(p, {"lunch": None}))


def _rules_of_room(calendar: Calendar, r: int) -> Iterator[CalendarRule]:
    """Yield the rules of a room."""
    room = calendar.rooms[r]
    several = f"there are {room.count} rooms {room.name}"
    yield CalendarRule(f"{room.name} holds one meeting at a time" if room.count == 1 else several, _more_rooms(r))
    for i, rule in enumerate(room.busy_times):

        def relax(x: Calendar, i: int = i) -> Calendar:
            """Return the calendar in which the room is not taken by the rule; the others keep their numbers."""
            rules = list(x.rooms[r].busy_times)
            rules[i] = rules[i]._replace(mask=np.zeros(x.grid.size, dtype=bool))
            return _with_item(x, "rooms", r, replace(x.rooms[r], busy_times=tuple(rules)))

        yield CalendarRule(f"{room.name} is taken {rule.text}", relax)


def _concerns(calendar: Calendar, p: int, mask: Mask, meetings: Sequence[int]) -> bool:
    """Return whether a rule for times of a person concerns one of some meetings, which the person attends."""
    for meeting in (calendar.meetings[m] for m in meetings):
        if p in meeting.people:
            starts = calendar.start_mask(meeting, ())
            slots = np.zeros(calendar.grid.size, dtype=bool)
            for start in np.flatnonzero(starts):
                slots[start : start + meeting.length] = True
            buffer = max(meeting.buffer, calendar.people[p].buffer)
            if (slots & (calendar.grid.widened(mask, buffer) if buffer else mask)).any():
                return True
    return False


def _meeting_change(m: int, changes: Mapping[str, Any]) -> Callable[[Calendar], Calendar]:
    """Return a function that changes fields of a meeting."""
    return lambda x: _with_item(x, "meetings", m, _changed(x.meetings[m], changes))


def _person_change(p: int, changes: Mapping[str, Any]) -> Callable[[Calendar], Calendar]:
    """Return a function that changes fields of a person."""
    return lambda x: _with_item(x, "people", p, _changed(x.people[p], changes))


def _changed(item: Meeting | Person, changes: Mapping[str, Any]) -> Meeting | Person:
    """Return a record with other values of some fields; of a list of remaining items, those that it still has."""
    if "after" in changes and isinstance(item, Meeting):
        return replace(item, after=tuple(x for x in item.after if x in changes["after"]))
    if "refused" in changes and isinstance(item, Meeting):
        return replace(item, refused={p: mask for p, mask in item.refused.items() if p in changes["refused"]})
    return replace(item, **changes)


def _without_time(p: int, kind: str, i: int) -> Callable[[Calendar], Calendar]:
    """Return a function that empties one rule of a person's busy or away times; the others keep their numbers."""

    def relax(x: Calendar) -> Calendar:
        """Return the calendar without the rule."""
        rules = list(getattr(x.people[p], kind))
        rules[i] = rules[i]._replace(mask=np.zeros(x.grid.size, dtype=bool))
        changes: dict[str, Any] = {kind: tuple(rules)}
        return _with_item(x, "people", p, replace(x.people[p], **changes))

    return relax


def _more_rooms(r: int) -> Callable[[Calendar], Calendar]:
    """Return a function that makes as many identical rooms as there are meetings."""
    return lambda x: _with_item(x, "rooms", r, replace(x.rooms[r], count=max(len(x.meetings), 2)))


def _with_item(calendar: Calendar, section: str, index: int, item: Any) -> Calendar:
    """Return a calendar with another person, room or meeting at a position."""
    items = list(getattr(calendar, section))
    items[index] = item
    changes: dict[str, Any] = {section: tuple(items)}
    return replace(calendar, **changes)
