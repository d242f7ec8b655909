"""Parse rules for times, such as ``mornings``, ``not Friday``, ``Tue 09:00-11:30``, ``week 2 before 10:00``."""

import re
from datetime import date

import numpy as np

from dmcmc.formats.calendar.plan import Mask, TimeGrid

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NOON = 12 * 60  # minutes after midnight
_MIDNIGHT = 24 * 60  # minutes after midnight, at the end of the day
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_SPAN = re.compile(r"([0-9]{1,2}:[0-9]{2})\s*-\s*([0-9]{1,2}:[0-9]{2})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
EXAMPLES = "mornings, afternoons, Monday, Mon-Wed, 2027-03-01, week 2, 09:00-11:30, before 10:00, after 15:00, not ..."


def mask_of(rule: str, grid: TimeGrid, touching: bool = False) -> Mask:
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

    Raises
    ------
    ValueError
        If the rule cannot be parsed; the message names the word.
    """
    words = rule.replace(",", " ").split()
    negated = bool(words) and words[0].lower() == "not"
    days, span = _days_and_span(" ".join(words[negated:]))
    opens = np.arange(grid.slots) * grid.minutes + grid.opens
    closes = opens + grid.minutes
    include_partial = touching != negated  # negation swaps completely and partly covered slots
    within = (opens < span[1]) & (closes > span[0]) if include_partial else (opens >= span[0]) & (closes <= span[1])
    first_monday = grid.days[0].toordinal() - grid.days[0].weekday()
    weeks = [spec for spec in days if isinstance(spec, int)]
    other_days = [spec for spec in days if not isinstance(spec, int)]
    day_matches = [
        all(not specs or any(_day_matches(day, spec, first_monday) for spec in specs) for specs in (weeks, other_days))
        for day in grid.days
    ]
    mask = (np.array(day_matches)[:, None] & within[None, :]).reshape(-1)
    return ~mask if negated else mask


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
