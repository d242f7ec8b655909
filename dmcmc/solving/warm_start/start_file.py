"""Read an assignment from a file: the JSON of a result, a JSON object of values, or CSV."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmcmc.files.write import plain_json
from dmcmc.inference.runtime.errors import ConfigError, FileError

_HEADER = ("variable", "value")


def assignment_in(data: Any, place: str) -> Mapping[str, Any]:
    """Return the assignment in plain data: the data itself, or the field ``assignment`` of a result.

    Parameters
    ----------
    data
        A mapping from variable names to values, or a result as plain data.
    place
        Where the data is from, for error messages.

    Raises
    ------
    ConfigError
        If there is no assignment.
    """
    if isinstance(data, Mapping) and {"status", "objective", "assignment"} <= data.keys():
        data = data["assignment"]
        if data is None:
            raise ConfigError(f"{place}: the result has no assignment")
    if not isinstance(data, Mapping):
        raise ConfigError(f"{place}: expected a mapping from variables to values, got {type(data).__name__}")
    return data


def read_assignment(path: str) -> Mapping[str, Any]:
    """Read an assignment from a file; see the module for the formats.

    A file that begins with a brace is JSON. All other files are CSV with two columns, the variable and its value; a
    first line ``variable,value`` is a header. Values in CSV are text.

    Raises
    ------
    DmcmcError
        If the file cannot be read, or has no assignment; one line with the file, and the line of the file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    if content.lstrip()[:1] == b"{":
        try:
            data = plain_json(content)
        except ValueError as error:
            raise FileError(f"{path}: is not JSON: {' '.join(str(error).split())}") from None
        return assignment_in(data, path)
    return _read_csv(path, content)


def _read_csv(path: str, content: bytes) -> dict[str, str]:
    """Return the assignment in CSV text."""
    assignment: dict[str, str] = {}
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        for row in lines:
            cells = [cell.strip() for cell in row]
            if not any(cells) or (lines.line_num == 1 and tuple(cell.lower() for cell in cells) == _HEADER):
                continue
            if len(cells) != len(_HEADER):
                raise FileError(f"{path}:{lines.line_num}: expected a variable and its value, got {len(cells)} columns")
            if cells[0] in assignment:
                raise FileError(f"{path}:{lines.line_num}: variable {cells[0]!r} has two values")
            assignment[cells[0]] = cells[1]
    except (UnicodeError, csv.Error) as error:
        raise FileError(f"{path}: is neither JSON nor CSV: {' '.join(str(error).split())}") from None
    return assignment
