"""Parse rules for times, such as ``mornings``, ``not Friday``, ``Tue 09:00-11:30``, ``week 2 before 10:00``."""

import re
from collections.abc import Collection
from datetime import date, datetime, time

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.grid import DAY_MINUTES, Mask, TimeGrid

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NOON = 12 * 60  # minutes after midnight
_MIDNIGHT = DAY_MINUTES  # minutes after midnight, at the end of the day
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_SPAN = re.compile(r"([0-9]{1,2}:[0-9]{2})\s*-\s*([0-9]{1,2}:[0-9]{2})")
_OFFSET = re.compile(r"[+-][0-9]{2}:[0-5][0-9]$")  # at the end of a time
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
EXAMPLES = "mornings, afternoons, Monday, Mon-Wed, 2027-03-01, week 2, 09:00-11:30, before 10:00, after 15:00, not ..."


def mask_of(rule: str, grid: TimeGrid, touching: bool = False, zone: str = "") -> Mask:
    """Return the slots that match a rule, as a (slots,) bool array.

    Parameters
    ----------
    rule
        Words for weeks, days and times. A slot matches if it lies in one of the named weeks, on one of the named days
        and within all named times. A leading ``not`` negates the whole rule.
    grid
        The slots.
    touching
        Whether slots match that lie only partly within the rule's times.
    zone
        The time zone of the rule's days and times; empty for the grid's.

    Raises
    ------
    ValueError
        If the rule cannot be parsed; the message names the word.
    """
    words = rule.replace(",", " ").split()
    negated = bool(words) and words[0].lower() == "not"
    days, span = _days_and_span(" ".join(words[negated:]))
    local = grid.local_times(zone)
    first_monday = grid.days[0].toordinal() - grid.days[0].weekday()
    on_day = _on_days(local.day, days, first_monday)
    if touching != negated:  # negation swaps completely and partly covered slots
        next_day = _on_days(local.day + 1, days, first_monday) & (local.end > DAY_MINUTES + span[0])
        mask = local.slots_with((on_day & (local.begin < span[1]) & (local.end > span[0])) | next_day)
    else:
        mask = ~local.slots_with(~on_day) & ~local.outside(*span)
    return ~mask if negated else mask


def _on_days(ordinals: NDArray[np.int64], specs: list[object], first_monday: int) -> Mask:
    """Return which days match a rule: one of its weeks, if it names some, and one of its days, if it names some.

    Parameters
    ----------
    ordinals
        The days, as ``date.toordinal``.
    specs
        Dates, sets of weekdays (0 is Monday) and week numbers.
    first_monday
        The ordinal of the Monday in the week of the calendar's first day.
    """
    weeks = [spec for spec in specs if isinstance(spec, int)]
    other_days = [spec for spec in specs if not isinstance(spec, int)]
    different, position = np.unique(ordinals, return_inverse=True)
    matches = [
        all(
            not some or any(_day_matches(date.fromordinal(day), spec, first_monday) for spec in some)
            for some in (weeks, other_days)
        )
        for day in different.tolist()
    ]
    return np.array(matches, dtype=bool)[position]


def moment_of(text: str, grid: TimeGrid, weeks: Collection[int] = ()) -> int:
    """Return the slot that starts at a time such as ``2027-03-01 10:00`` or, if it is unique, ``Mon 10:00``.

    Parameters
    ----------
    text
        A date or weekday, and a time; of two equal times on the day on which clocks are put back, with its offset, such
        as ``2027-10-31 02:30+01:00``.
    grid
        The slots.
    weeks
        The weeks (from 1 on) that a weekday may be in; empty for all.

    Raises
    ------
    ValueError
        If the text is no such time, or no slot starts then.
    """
    words = text.replace("T", " ", 1).split() if _DATE.match(text) else text.split()
    if len(words) != 2:
        raise ValueError(f"{text!r} is not a time such as 2027-03-01 10:00 or Mon 10:00")
    offset = "".join(_OFFSET.findall(words[1]))
    clock = words[1].removesuffix(offset)
    minutes = minutes_of(clock[:5] if clock.endswith(":00") and clock.count(":") == 2 else clock)
    first_monday = grid.days[0].toordinal() - grid.days[0].weekday()
    if _DATE.fullmatch(words[0]):
        days = [day for day in grid.days if day == date_of(words[0])]
    else:
        weekdays = _weekdays(words[0].lower())
        days = [day for day in grid.days if day.weekday() in weekdays]
        days = [day for day in days if not weeks or (day.toordinal() - first_monday) // 7 + 1 in weeks]
    if len(days) > 1:
        raise ValueError(f"{words[0]!r} is not unique in this calendar; give the date, such as {days[0]} {words[1]}")
    slot = None
    if days and minutes < _MIDNIGHT:
        moment = datetime.combine(days[0], time(minutes // 60, minutes % 60))
        slot = grid.slot_at(grid.unique(moment, offset))
    if slot is None:
        raise ValueError(f"no slot of the calendar starts at {text!r}; slots start every {grid.minutes} minutes")
    return slot


def minutes_of(word: str) -> int:
    """Return a time of day in minutes after midnight.

    >>> minutes_of("09:30")
    570
    """
    match = _TIME.fullmatch(word)
    minutes = int(match[1]) * 60 + int(match[2]) if match else _MIDNIGHT + 1
    if match is None or minutes > _MIDNIGHT or int(match[2]) > 59:
        raise ValueError(f"{word!r} is not a time such as 09:30")
    return minutes


def span_of(text: str) -> tuple[int, int]:
    """Return the start and end of a span such as ``09:00-17:00``, in minutes after midnight."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time span such as 09:00-17:00")
    low, high = minutes_of(match[1]), minutes_of(match[2])
    if low >= high:
        raise ValueError(f"{text!r} ends before it begins")
    return low, high


def date_of(text: str) -> date:
    """Return the date for a text such as ``2027-03-01``."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date such as 2027-03-01") from None


def _days_and_span(text: str) -> tuple[list[object], tuple[int, int]]:
    """Return the days of a rule (dates, sets of weekdays or week numbers) and its span in minutes after midnight."""
    days: list[object] = []
    low, high = 0, _MIDNIGHT
    words = _SPAN.sub(r"\1-\2", text).split()
    if not words:
        raise ValueError(f"a rule is missing; examples of rules: {EXAMPLES}")
    position = 0
    while position < len(words):
        word = words[position].lower()
        position += 1
        following = words[position] if position < len(words) else ""
        if word.rstrip("s") == "morning":
            high = min(high, _NOON)
        elif word.rstrip("s") == "afternoon":
            low = max(low, _NOON)
        elif word in ("before", "after", "week"):
            position += 1
            if word == "week":
                if not following.isdigit() or not 0 < int(following) < 100:
                    raise ValueError(f"'week' needs a number from 1 on, not {following!r}")
                days.append(int(following))
            elif word == "before":
                high = min(high, minutes_of(following))
            else:
                low = max(low, minutes_of(following))
        elif _DATE.fullmatch(word):
            days.append(date_of(word))
        elif _SPAN.fullmatch(word):
            begin, end = span_of(word)
            low, high = max(low, begin), min(high, end)
        else:
            days.append(_weekdays(word))
    return days, (low, high)


def _weekdays(word: str) -> frozenset[int]:
    """Return the weekdays (0 is Monday) for a name, or for a range of two names joined by a dash."""
    ends: list[int] = []
    for part in word.split("-"):
        name = part.rstrip("s") if part.endswith("days") else part
        matching = [i for i, day in enumerate(_DAYS) if len(name) >= 3 and day.startswith(name)]
        if len(matching) != 1 or len(ends) == 2:
            raise ValueError(f"{word!r} is not a known rule; examples of rules: {EXAMPLES}")
        ends.append(matching[0])
    low, high = ends[0], ends[-1]
    return frozenset(range(low, high + 1) if low <= high else (*range(low, 7), *range(high + 1)))


def _day_matches(day: date, spec: object, first_monday: int) -> bool:
    """Return whether a day matches a date, a set of weekdays (0 is Monday) or a week number (from 1 on).

    ``first_monday`` is the ordinal (``date.toordinal``) of the Monday in the week of the calendar's first day.
    """
    if isinstance(spec, frozenset):
        return day.weekday() in spec
    return day == spec if isinstance(spec, date) else (day.toordinal() - first_monday) // 7 + 1 == spec
