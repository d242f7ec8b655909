"""Generate the calendar file of an office: a team, its meetings, rooms and rules.

The people belong to groups. Most meetings are within a group, some between groups. A schedule of all required meetings
is drawn first, and busy times keep away from it, so that the calendar is possible.
"""

from typing import Any, NamedTuple

import numpy as np
import yaml

_GROUP = 8  # people per group; fewer people are one group
_DAY_SLOTS = 16  # half-hours from 09:00 to 17:00
_OPENS = 9 * 60  # minutes after midnight
_LENGTHS = (1, 2, 2, 2, 3, 4)  # slots
_SMALL_ROOM = 6  # people in a small room
_MAX_TRIES = 1000  # draws of a time for one meeting
_DAYS_PER_WEEK = 5


class _Draft(NamedTuple):
    """A meeting with a drawn time: its people, optional people, length, first slot and kind of room."""

    people: list[int]
    optional: list[int]
    length: int
    start: int
    room: str


def team_calendar(people: int = 40, meetings: int = 100, days: int = 10, seed: int = 1) -> str:
    """Return the text of a calendar file of an office with five rooms.

    Parameters
    ----------
    people, meetings, days
        Numbers of people, meetings and working days.
    seed
        Seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    names = [f"Person {p + 1}" for p in range(people)]
    drafts = _drafts(rng, people, meetings, days)
    content: dict[str, Any] = {
        "calendar": f"A team of {people} with {meetings} meetings",
        "first_day": "2027-03-01",
        "days": days,
        "hours": "09:00-17:00",
        "slot": 30,
        "everyone": {"max_per_day": 4, "lunch": "12:00-14:00"},
        "people": {name: _person(rng, p, drafts, days) for p, name in enumerate(names)},
        "rooms": {"Large": {"count": 2}, "Small": {"capacity": _SMALL_ROOM, "count": 3}},
        "meetings": {f"Meeting {m + 1}": _meeting(rng, m, drafts, names) for m in range(meetings)},
    }
    return yaml.safe_dump(content, sort_keys=False, width=110)


def _drafts(rng: np.random.Generator, people: int, meetings: int, days: int) -> list[_Draft]:
    """Return meetings with times that keep the rules of all people and rooms."""
    taken = np.zeros((people, days, _DAY_SLOTS), dtype=bool)
    rooms = {"Large": np.zeros((days, _DAY_SLOTS), dtype=int), "Small": np.zeros((days, _DAY_SLOTS), dtype=int)}
    per_day = np.zeros((people, days), dtype=int)
    drafts: list[_Draft] = []
    while len(drafts) < meetings:
        group = int(rng.integers(max(1, people // _GROUP))) * _GROUP
        pool = np.arange(group, min(people, group + _GROUP)) if rng.random() < 0.7 else np.arange(people)
        chosen = rng.choice(pool, size=int(rng.integers(2, 6)), replace=False).tolist()
        optional = [int(p) for p in rng.choice(people, size=int(rng.integers(0, 3)), replace=False) if p not in chosen]
        length = int(rng.choice(_LENGTHS))
        for _ in range(_MAX_TRIES):
            day, first = int(rng.integers(days)), int(rng.integers(_DAY_SLOTS - length + 1))
            span = slice(first, first + length)
            with_lunch = taken[chosen, day].copy()
            with_lunch[:, span] = True
            free = not taken[chosen, day, span].any() and (per_day[chosen, day] < 4).all()
            room = "Small" if len(chosen) + len(optional) <= _SMALL_ROOM and rng.random() < 0.7 else "Large"
            has_room = rooms[room][day, span].max() < {"Large": 2, "Small": 3}[room]
            if free and has_room and not with_lunch[:, 6:10].all(axis=1).any():  # 12:00-14:00
                taken[chosen, day, span] = True
                per_day[chosen, day] += 1
                rooms[room][day, span] += 1
                drafts.append(_Draft(chosen, optional, length, day * _DAY_SLOTS + first, room))
                break
    return drafts


def _person(rng: np.random.Generator, p: int, drafts: list[_Draft], days: int) -> dict[str, Any]:
    """Return the entry of a person: busy times away from the drawn meetings, and preferences."""
    kept = np.zeros(days * _DAY_SLOTS, dtype=bool)
    for draft in drafts:
        if p in draft.people:
            kept[draft.start : draft.start + draft.length] = True
    busy = []
    for _ in range(days):
        day, first, length = int(rng.integers(days)), int(rng.integers(_DAY_SLOTS - 3)), int(rng.integers(2, 7))
        last = min(first + length, _DAY_SLOTS)
        if not kept[day * _DAY_SLOTS + first : day * _DAY_SLOTS + last].any():
            busy.append(f"week {day // _DAYS_PER_WEEK + 1} {_weekday(day)} {_clock(first)}-{_clock(last)}")
    rules = ["mornings", "afternoons", "not Friday", "not Monday", "10:00-12:00", "before 16:00"]
    preferences = {str(rule): int(rng.integers(1, 4)) for rule in rng.choice(rules, size=2, replace=False)}
    return {"busy": busy, "prefer": preferences}


def _meeting(rng: np.random.Generator, m: int, drafts: list[_Draft], names: list[str]) -> dict[str, Any]:
    """Return the entry of a meeting: a third may be dropped, some are ordered or have a buffer."""
    draft = drafts[m]
    entry: dict[str, Any] = {"people": [names[p] for p in draft.people], "slots": draft.length}
    if draft.optional:
        entry["optional"] = {names[p]: int(rng.integers(1, 4)) for p in draft.optional}
    if rng.random() < 0.3:
        entry["weight"] = int(rng.choice([10, 20, 50]))
    earlier = [n for n in range(m) if drafts[n].start + drafts[n].length <= draft.start]
    if earlier and rng.random() < 0.2:
        entry["after"] = f"Meeting {int(rng.choice(earlier)) + 1}"
    span = slice(draft.start - 1, draft.start + draft.length + 1)
    neighbours = [d for d in drafts if d is not draft and {*d.people} & {*draft.people}]
    is_apart = all(d.start >= span.stop or d.start + d.length <= span.start for d in neighbours)
    if is_apart and rng.random() < 0.2:
        entry["buffer"] = 15
    return entry


def _weekday(day: int) -> str:
    """Return the name of a working day."""
    return ("Mon", "Tue", "Wed", "Thu", "Fri")[day % _DAYS_PER_WEEK]


def _clock(slot: int) -> str:
    """Return the time at which a slot of a day starts."""
    minutes = _OPENS + 30 * slot
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
