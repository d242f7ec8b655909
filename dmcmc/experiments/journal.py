"""The journal of an experiment: one line of JSON per finished run, written as soon as the run ends."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dmcmc.files.write import plain_json
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Effort

Record = Mapping[str, Any]
Seconds = Annotated[float, Meta(ge=-1e12, le=1e12)]
Count = Annotated[int, Meta(ge=0)]

COURSE = Effort.__struct_fields__  # names of the numbers of each point of a course


class JournalLine(msgspec.Struct, kw_only=True):
    """The fields of a line of a journal, with the types that reports rely on.

    :mod:`dmcmc.experiments.job` describes the fields; a line may have more.
    """

    key: str
    case: dict[str, Any]
    method: str
    seed: Count
    outcome: str
    error: str = ""
    status: str = ""
    objective: Number | None = None
    bound: Number | None = None
    gap: float | None = None
    violation: int | None = None
    sense: Literal["max", "min"] = "max"
    time: Seconds = 0.0
    simulated_time: Seconds | None = None
    msg_count: Count | None = None
    msg_size: Count | None = None
    cycle: Count | None = None
    trace: list[tuple[Seconds, Number | None, Number | None]] = []
    course: list[list[Number | None]] = []


class FinishedLine(JournalLine, kw_only=True):
    """The fields of a run whose outcome is ``done``: some must not be missing."""

    status: str
    objective: Number | None
    bound: Number | None
    sense: Literal["max", "min"]
    time: Seconds


class Journal:
    """A file of results that lines are appended to.

    Parameters
    ----------
    path
        The file; it is created if it is missing. An incomplete last line, which a killed process may leave, is removed.

    Attributes
    ----------
    path : Path
        The file.
    records : list of dict
        The results in the file.

    Raises
    ------
    FileError
        If the file cannot be read or written, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.records = read_records(path)
            size = _complete_size(path)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.truncate(path, size)
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from None

    def add(self, record: Record) -> None:
        """Append a record with one write, and wait until it is on the disk.

        Raises
        ------
        FileError
            If the line cannot be written, as on a full disk.
        """
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            if written < len(line):  # the disk is full; an incomplete last line is removed when the file is opened
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be written: {error.strerror}; continue later with --resume") from None
        self.records.append(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_records(path: Path) -> list[Record]:
    """Return the results in a journal; an empty list if the file is missing.

    Raises
    ------
    FileError
        If a line is not the result of a run; names the line.
    """
    if not path.exists():
        return []
    records: list[Record] = []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            record = plain_json(line)
            checked = msgspec.convert(record, JournalLine)
            if checked.outcome == "done":
                msgspec.convert(record, FinishedLine)
        except ValueError as error:  # a ValidationError is a ValueError
            raise FileError(
                f"{path}: line {number}: is not the result of a run; remove the line ({_one_line(error)})"
            ) from None
        records.append(record)
    return records


def has_answer(record: Record) -> bool:
    """Return whether a run has found an assignment that breaks no hard constraint, or proven that there is none."""
    return record["outcome"] == "done" and (record["objective"] is not None or record["status"] == "infeasible")


def reason_without_answer(record: Record) -> str:
    """Return why a run has no answer, in words.

    >>> reason_without_answer({"outcome": "out of time", "error": "more than 120 s"})
    'out of time: more than 120 s'
    """
    if record["outcome"] != "done":
        error = record.get("error")
        return f"{record['outcome']}: {error}" if error else str(record["outcome"])
    if record.get("violation"):
        return "the assignment breaks hard constraints"
    return "time limit reached without an assignment" if record["status"] == "timeout" else "no assignment was found"


def _one_line(error: Exception) -> str:
    """Return the message of an error as one line."""
    return " ".join(str(error).split())


def _complete_size(path: Path) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    content = path.read_bytes() if path.exists() else b""
    return content.rfind(b"\n") + 1
