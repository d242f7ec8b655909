"""The results of an experiment: a line of JSON a finished run, each written at once; what was cut off is taken away."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmcmc.inference.runtime.errors import FileError

Record = Mapping[str, Any]


class Journal:
    """A file of results that is only ever added to.

    Parameters
    ----------
    path
        Made if it is not there. A last line without an end, which a killed process may leave, is taken away.

    Raises
    ------
    FileError
        If it cannot be read or written, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.records = read_records(path)
            whole = _whole_lines(path)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.truncate(path, whole)
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from None

    def add(self, record: Record) -> None:
        """Write a record in one piece."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        os.write(self._file, line)
        os.fsync(self._file)
        self.records.append(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_records(path: Path) -> list[Record]:
    """Return what a file of results holds; nothing where there is none.

    Raises
    ------
    FileError
        If a line is no record; names it.
    """
    if not path.exists():
        return []
    records: list[Record] = []
    with open(path, "rb") as stream:
        lines = stream.read()[: _whole_lines(path)].splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not {"key", "case", "method", "seed", "outcome"} <= record.keys():
                raise ValueError
        except ValueError:
            raise FileError(f"{path}: line {number}: is no result of a run; take the line out") from None
        records.append(record)
    return records


def _whole_lines(path: Path) -> int:
    """Return how many bytes end with a whole line."""
    content = path.read_bytes() if path.exists() else b""
    return content.rfind(b"\n") + 1
