"""Check entries of a calendar file, and open the files that it names; errors name the line and what is expected."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from zoneinfo import ZoneInfo

from dmcmc.calendars.file.grid import TimeGrid
from dmcmc.calendars.file.plan import Preference, TimeRule, union
from dmcmc.calendars.file.time_rules import EXAMPLES, mask_of
from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number

T = TypeVar("T")

_MAX_UTILITY = 10**9  # limit for the absolute value of preferences and weights
_MAX_BYTES = 64 << 20  # of one file


class EntryReader:
    """Checks of single entries.

    A ``key`` is the path of an entry in the file, such as ``("people", "Ann", "busy")``; error messages name it and its
    line.

    Parameters
    ----------
    document : Document
        The file's contents.
    """

    def __init__(self, document: Document) -> None:
        self.document = document

    def section(self, name: str) -> dict[str, Any]:
        """Return a section with named entries; a missing section is empty."""
        entry = self.document.data.get(name)
        if entry is not None and not isinstance(entry, dict):
            self.fail((name,), f"expected names with their properties, got {show(entry)}")
        return entry or {}

    def mapping(self, key: Key, entry: Any, known: Sequence[str]) -> dict[str, Any]:
        """Return the keys of an entry after a check that they are known."""
        if entry is None:
            return {}
        if not isinstance(entry, dict):
            self.fail(key, f"expected some of the keys {', '.join(known)}, got {show(entry)}")
        self.check_keys(key, entry, known)
        return entry

    def check_keys(self, key: Key, entry: dict[str, Any], known: Sequence[str]) -> None:
        """Check that all keys are known."""
        for name in entry:
            if name not in known:
                self.fail((*key, name), f"unknown key; {suggestion(name, known)}")

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

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")


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
