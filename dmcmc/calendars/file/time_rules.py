"""Rules for times, such as ``mornings``, ``not Friday``, ``Tue 09:00-11:30``, ``week 2 before 10:00``.

The entries of a calendar file are checked, and the files that it names are opened; errors name the line and what is
expected.
"""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.plan import DAY_MINUTES, Mask, Preference, TimeGrid, TimeRule, union
from dmcmc.files.document import Document, Key, SectionReader, show, suggestion
from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number

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


T = TypeVar("T")

_MAX_UTILITY = 10**9  # limit for the absolute value of preferences and weights
_MAX_BYTES = 64 << 20  # of one file


class EntryReader(SectionReader):
    """Checks of single entries; a ``key`` is the path of one, such as ``("people", "Ann", "busy")``."""

    def mapping(self, key: Key, entry: Any, known: Sequence[str]) -> dict[str, Any]:
        """Return the keys of an entry after a check that they are known."""
        if entry is None:
            return {}
        if not isinstance(entry, dict):
            self.fail(key, f"expected some of the keys {', '.join(known)}, got {show(entry)}")
        self.check_keys(key, entry, known)
        return entry

    def one_of(self, key: Key, name: str, names: Sequence[str], what: str) -> int:
        """Return the index of a name in a list of names."""
        if name not in names:
            self.fail(key, f"{show(name)} is not among the {what}; {suggestion(name, names[:50], what)}")
        return names.index(name)

    def integer(self, key: Key, given: Any, low: int, high: int) -> int:
        """Return an integer between two bounds."""
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            self.fail(key, f"expected a whole number from {low} to {high}, got {show(given)}")
        return given

    def minutes(self, key: Key, given: Any) -> int:
        """Return a duration in minutes, at most one day."""
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 24 * 60:
            self.fail(key, f"expected a number of minutes from 0 to {24 * 60}, got {show(given)}")
        return given

    def number(self, key: Key, given: Any, low: int = -_MAX_UTILITY) -> Number:
        """Return a number of limited size."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= _MAX_UTILITY:
            self.fail(key, f"expected a number from {low} to {_MAX_UTILITY}, got {show(given)}")
        return given

    def string(self, key: Key, given: Any, example: str) -> str:
        """Return a string; ``example`` says what is expected."""
        if not isinstance(given, str):
            self.fail(key, f"expected {example}, got {show(given)}")
        return given

    def numbers(self, key: Key, given: Any, what: str, low: int = -_MAX_UTILITY) -> dict[str, Number]:
        """Return numbers by name from a mapping, or 1 for each name of a list; ``what`` is an example for errors."""
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list):
            given = {str(name): 1 for name in given}
        if not isinstance(given, dict):
            self.fail(key, f"expected {what}, got {show(given)}")
        return {str(name): self.number((*key, str(name)), number, low) for name, number in given.items()}

    def time_zone(self, key: Key, given: Any) -> str:
        """Return the checked name of a time zone; empty if none is given."""
        name = str(given or "")
        if name:
            try:
                ZoneInfo(name)
            except (OSError, ValueError, KeyError):
                self.fail(key, f"expected a time zone such as Europe/Berlin, got {show(name)}")
        return name

    def parsed(self, key: Key, parse: Callable[[str], T], text: str) -> T:
        """Return the parsed value of a text; a ``ValueError`` becomes an error with its place in the file."""
        try:
            return parse(text)
        except ValueError as error:
            self.fail(key, str(error))


class RuleReader(EntryReader):
    """Checks of rules for times, such as ``Mon mornings``.

    Parameters
    ----------
    document : Document
        The file's contents.
    grid : TimeGrid
        Days and slots.
    """

    def __init__(self, document: Document, grid: TimeGrid) -> None:
        super().__init__(document)
        self.grid = grid

    def rules(self, key: Key, given: Any, touching: bool = False, zone: str = "") -> tuple[TimeRule, ...]:
        """Return one rule or a list of rules.

        With ``touching`` a slot also matches if it lies only partly within a rule's times. ``zone`` is the time zone of
        the rules; empty for the calendar's.
        """
        texts = given if isinstance(given, list) else [given]
        return tuple(self.rule(key, text, touching, zone) for text in texts)

    def rule(self, key: Key, given: Any, touching: bool = False, zone: str = "") -> TimeRule:
        """Return a rule; see :meth:`rules`."""
        text = self.string(key, given, f"a rule, such as {EXAMPLES}")
        return TimeRule(self.parsed(key, lambda rule: mask_of(rule, self.grid, touching, zone), text), text)

    def any_of(self, key: Key, given: Any) -> TimeRule:
        """Return one rule for the slots that match at least one of several rules."""
        rules = self.rules(key, given)
        return TimeRule(union(rules, self.grid), " or ".join(rule.text for rule in rules))

    def preferences(self, key: Key, given: Any, zone: str = "") -> tuple[Preference, ...]:
        """Return preferences: a mapping of rules to utilities, or a list of rules with utility 1 each."""
        numbers = self.numbers(key, given, "rules with their utilities, such as {mornings: 3}")
        return tuple(
            Preference(self.rule((*key, text), text, zone=zone).mask, points, text) for text, points in numbers.items()
        )


class CompanionFiles:
    """Files that a calendar names, relative to its folder.

    Parameters
    ----------
    folder : Path or None
        The folder of the calendar; None for a calendar from standard input or from memory, which is then the current
        folder unless ``within`` is given.
    within : Path or None
        If given, only files in this folder and below it are opened.
    """

    def __init__(self, folder: Path | None, within: Path | None = None) -> None:
        self._folder, self._within = folder or within or Path(), within

    def read(self, name: str) -> SourceFile:
        """Read a file.

        Raises
        ------
        ValueError
            If the file is outside the allowed folder, cannot be read, or is too large.
        """
        path = self._folder / name
        try:
            if self._within is not None and not path.resolve().is_relative_to(self._within.resolve()):
                raise ValueError(f"{name}: is outside the folder that may be read")
            with path.open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{name}: cannot be read: {error.strerror or error}") from None
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{name}: larger than {_MAX_BYTES >> 20} MiB")
        return SourceFile(name, content, path)

    def text(self, name: str) -> str:
        """Return a file as UTF-8 text; see :meth:`read`."""
        try:
            return self.read(name).text()
        except FileError as error:
            raise ValueError(str(error)) from None
