"""Rules for times, in words: ``mornings``, ``not Friday``, ``Tue 09:00-11:30``, ``week 2 before 10:00``."""

import re
from datetime import date

import numpy as np

from dmcmc.formats.calendar.plan import Grid, Mask

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NOON = 12 * 60
_MIDNIGHT = 24 * 60
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_SPAN = re.compile(r"([0-9]{1,2}:[0-9]{2})\s*-\s*([0-9]{1,2}:[0-9]{2})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
KNOWN = "mornings, afternoons, Monday, Mon-Wed, 2027-03-01, week 2, 09:00-11:30, before 10:00, after 15:00, not ..."


def mask_of(rule: str, grid: Grid, touching: bool = False) -> Mask:
    """Return the slots that a rule means.

    Parameters
    ----------
    rule
        Words for weeks, days and times: of several weeks or days one must hold, of weeks, days and times each. ``not``
        before all of it turns it round.
    touching
        Also slots that lie in the rule's times only in part.

    Raises
    ------
    ValueError
        Says what is not understood.
    """
    words = rule.replace(",", " ").split()
    turned = bool(words) and words[0].lower() == "not"
    days, span = _parts(" ".join(words[turned:]))
    opens = np.arange(grid.slots) * grid.minutes + grid.opens
    closes = opens + grid.minutes
    inexact = touching != turned  # what is left by a rule turned round is what it does not touch
    within = (opens < span[1]) & (closes > span[0]) if inexact else (opens >= span[0]) & (closes <= span[1])
    first = grid.days[0].toordinal() - grid.days[0].weekday()
    weeks = [one for one in days if isinstance(one, int)]
    others = [one for one in days if not isinstance(one, int)]
    chosen = [all(not of or any(_holds(day, one, first) for one in of) for of in (weeks, others)) for day in grid.days]
    mask = (np.array(chosen)[:, None] & within[None, :]).reshape(-1)
    return ~mask if turned else mask


def minutes_of(word: str) -> int:
    """Return a time of day in minutes after midnight.

    >>> minutes_of("09:30")
    570
    """
    found = _TIME.fullmatch(word)
    minutes = int(found[1]) * 60 + int(found[2]) if found else _MIDNIGHT + 1
    if found is None or minutes > _MIDNIGHT or int(found[2]) > 59:
        raise ValueError(f"{word!r} is no time such as 09:30")
    return minutes


def span_of(text: str) -> tuple[int, int]:
    """Return two times as ``09:00-17:00`` has them, in minutes after midnight."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no span of times such as 09:00-17:00")
    low, high = minutes_of(found[1]), minutes_of(found[2])
    if low >= high:
        raise ValueError(f"{text!r} ends before it begins")
    return low, high


def date_of(text: str) -> date:
    """Return a day as 2027-03-01 has it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day such as 2027-03-01") from None


def _parts(text: str) -> tuple[list[object], tuple[int, int]]:
    """Return days (dates, sets of weekdays, or numbers of weeks) and a span of times."""
    days: list[object] = []
    low, high = 0, _MIDNIGHT
    words = _SPAN.sub(r"\1-\2", text).split()
    if not words:
        raise ValueError(f"a rule is missing; rules are such as {KNOWN}")
    place = 0
    while place < len(words):
        word = words[place].lower()
        place += 1
        after = words[place] if place < len(words) else ""
        if word.rstrip("s") == "morning":
            high = min(high, _NOON)
        elif word.rstrip("s") == "afternoon":
            low = max(low, _NOON)
        elif word in ("before", "after", "week"):
            place += 1
            if word == "week":
                if not after.isdigit() or not 0 < int(after) < 100:
                    raise ValueError(f"'week' needs its number, from 1 on, not {after!r}")
                days.append(int(after))
            elif word == "before":
                high = min(high, minutes_of(after))
            else:
                low = max(low, minutes_of(after))
        elif _DATE.fullmatch(word):
            days.append(date_of(word))
        elif _SPAN.fullmatch(word):
            begin, end = span_of(word)
            low, high = max(low, begin), min(high, end)
        else:
            days.append(_weekdays(word))
    return days, (low, high)


def _weekdays(word: str) -> frozenset[int]:
    """Return the weekdays of a name, or of two with a dash between them."""
    ends: list[int] = []
    for part in word.split("-"):
        name = part.rstrip("s") if part.endswith("days") else part
        found = [i for i, day in enumerate(_DAYS) if len(name) >= 3 and day.startswith(name)]
        if len(found) != 1 or len(ends) == 2:
            raise ValueError(f"{word!r} is not understood; rules are such as {KNOWN}")
        ends.append(found[0])
    low, high = ends[0], ends[-1]
    return frozenset(range(low, high + 1) if low <= high else (*range(low, 7), *range(high + 1)))


def _holds(day: date, one: object, first: int) -> bool:
    """Return whether a day is one that was meant; ``first`` is the Monday of the first week."""
    if isinstance(one, frozenset):
        return day.weekday() in one
    return day == one if isinstance(one, date) else (day.toordinal() - first) // 7 + 1 == one
