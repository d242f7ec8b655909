"""Files of names, one a line: elimination orders."""

from collections.abc import Iterable

from dmcmc.inference.runtime.errors import FileError


def read_order(path: str, wanted: Iterable[str]) -> dict[str, int]:
    """Return the place of each name in a file of names, one a line; empty lines do not count.

    Parameters
    ----------
    wanted
        Names that have to be there; others are left alone.

    Raises
    ------
    FileError
        If the file cannot be read, names something twice, or leaves something out.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as an order ({error})") from None
    places: dict[str, int] = {}
    for number, name in enumerate(lines, 1):
        if name in places:
            raise FileError(f"{path}: line {number}: variable {name!r} stands twice")
        if name:
            places[name] = len(places)
    for name in wanted:
        if name not in places:
            raise FileError(f"{path}: variable {name!r} is missing; an order names every variable that is eliminated")
    return places
