"""The results of a scenario: one for each event, and a file with one line of JSON for each."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import FORMAT_VERSION, Output

_HEAD_BYTES = 100  # bytes of a file that have the field ``kind``

KIND = "scenario event"
"""The field ``kind`` of each line."""


class EventResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer after one event of a scenario.

    Attributes
    ----------
    event : str
        Name of the event; ``start`` before the first one.
    actions : tuple of str
        The changes that the event made.
    clock : float
        Seconds on the scenario's clock: the sum of the delays so far.
    status : str
        As in :class:`~dmcmc.results.result.Result`.
    sense : str
        ``max`` or ``min``.
    objective, bound : int, float or None
        The best objective, and a proven bound; with ``stay`` they include the cost of moving.
    gap : float or None
        Their relative gap.
    reaction : float or None
        Seconds from the event to the first answer without broken constraints; None without one.
    time : float
        Seconds from the event to the last answer.
    moved : int
        Number of variables that existed before the event and have another value now.
    moving_cost : int, float or None
        With ``stay``: the cost of moving.
    changed : dict of str to label
        The value of each variable that moved or is new, by its name. The values of all lines together are the answer.
    removed : tuple of str
        The variables that no longer exist.
    tables_reused, messages_reused : int
        Agents whose tables, and whose UTIL messages, were kept.
    msg_count, msg_size : int
        Messages between agents, and their bytes.
    """

    event: str
    actions: tuple[str, ...]
    clock: float
    status: str
    sense: str
    objective: Number | None
    bound: Number | None
    gap: float | None
    reaction: float | None
    time: float
    moved: int
    moving_cost: Number | None
    changed: Mapping[str, Label]
    removed: tuple[str, ...] = ()
    tables_reused: int = 0
    messages_reused: int = 0
    msg_count: int = 0
    msg_size: int = 0

    def to_line(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, "kind": KIND, **msgspec.to_builtins(self)}) + "\n"


class ScenarioResult(Output, frozen=True, kw_only=True):
    """The results of all events of a scenario so far.

    Attributes
    ----------
    events : tuple of EventResult
        One result for the problem as given, and one for each event.
    """

    events: tuple[EventResult, ...]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write one line of JSON for each event.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        replace_file(path, [event.to_line() for event in self.events])

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 if no answer breaks a hard constraint, otherwise 1."""
        return 0 if all(event.objective is not None for event in self.events) else 1


def has_events(path: Path) -> bool:
    """Return whether a file has the results of events, by its first characters."""
    with suppress(OSError), open(path, "rb") as stream:
        return KIND.encode() in stream.read(_HEAD_BYTES)
    return False


def read_events(path: Path) -> Sequence[EventResult]:
    """Read the lines of a scenario's results.

    Raises
    ------
    FileError
        If the file cannot be read, or a line is no result of an event; one line with the place.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=EventResult))
        except (msgspec.DecodeError, UnicodeError) as error:
            text = " ".join(str(error).split())
            raise FileError(f"{path}:{number}: is not the result of an event: {text}") from None
    if not found:
        raise FileError(f"{path}: has no results of events")
    return found
