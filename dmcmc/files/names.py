"""Read files with one name per line, such as elimination orders."""

from collections.abc import Iterable

from dmcmc.inference.runtime.errors import FileError


def read_order(path: str, required: Iterable[str]) -> dict[str, int]:
    """Return the position of each name in a file with one name per line; empty lines are skipped.

    Parameters
    ----------
    path
        The file.
    required
        Names that the file must contain; it may contain others.

    Raises
    ------
    FileError
        If the file cannot be read, repeats a name, or lacks a required name.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as an order ({error})") from None
    positions: dict[str, int] = {}
    for number, name in enumerate(lines, 1):
        if name in positions:
            raise FileError(f"{path}: line {number}: variable {name!r} occurs twice")
        if name:
            positions[name] = len(positions)
    for name in required:
        if name not in positions:
            raise FileError(f"{path}: variable {name!r} is missing; an order names every variable that is eliminated")
    return positions
