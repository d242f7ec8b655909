"""The journal of an experiment: one line of JSON per finished run, written as soon as the run ends."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmcmc.config.legacy_keys import current_dotted
from dmcmc.experiments.legacy_plans import run_key
from dmcmc.inference.runtime.errors import FileError

Record = Mapping[str, Any]


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
        """Append a record with one write, and wait until it is on the disk."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        os.write(self._file, line)
        os.fsync(self._file)
        self.records.append(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_records(path: Path) -> list[Record]:
    """Return the results in a journal; an empty list if the file is missing.

    Former configuration keys in ``case`` and ``key`` are replaced without a warning.

    Raises
    ------
    FileError
        If a line is not the result of a run; names the line.
    """
    if not path.exists():
        return []
    records: list[Record] = []
    with open(path, "rb") as stream:
        lines = stream.read()[: _complete_size(path)].splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not {"key", "case", "method", "seed", "outcome"} <= record.keys():
                raise ValueError
        except ValueError:
            raise FileError(f"{path}: line {number}: is not the result of a run; remove the line") from None
        case = current_dotted(record["case"])
        if case != record["case"]:
            record |= {"case": case, "key": run_key(case, record["method"], record["seed"])}
        records.append(record)
    return records


def _complete_size(path: Path) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    content = path.read_bytes() if path.exists() else b""
    return content.rfind(b"\n") + 1
