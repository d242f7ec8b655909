"""Read an availability poll: a CSV file with the columns name, slot and answer (yes, maybe or no)."""

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.config.validate import suggestion
from dmcmc.formats.calendar.data.grid import Mask, TimeGrid
from dmcmc.formats.calendar.data.rules import moment_of

_ANSWERS = ("yes", "maybe", "no")
_MAX_ROWS = 100_000


class Poll(NamedTuple):
    """The answers of a poll.

    Attributes
    ----------
    starts : (slots,) bool
        The slots that the poll proposes.
    refused : dict of int to (slots,) bool
        By person, the slots with the answer ``no``.
    uncertain : list of (int, int)
        Person and slot of each answer ``maybe``.
    """

    starts: Mask
    refused: dict[int, Mask]
    uncertain: list[tuple[int, int]]


def read_poll(text: str, name: str, grid: TimeGrid, people: Sequence[str]) -> Poll:
    """Read a poll.

    Parameters
    ----------
    text
        The file, with one line per answer: ``Ann,2027-03-01 10:00,maybe``. The first line may have column names.
    name
        Its name, for errors.
    grid
        Days and slots.
    people
        The names of all people of the calendar.

    Raises
    ------
    ValueError
        If a line is not valid; the message names the file and the line.
    """
    starts = np.zeros(grid.size, dtype=bool)
    refused: dict[int, Mask] = {}
    uncertain = []
    rows = csv.reader(io.StringIO(text))
    for row in rows:
        at = f"{name}:{rows.line_num}"
        cells = [cell.strip() for cell in row]
        if not any(cells) or (rows.line_num == 1 and cells[-1].lower() not in _ANSWERS):
            continue
        if rows.line_num > _MAX_ROWS:
            raise ValueError(f"{at}: a poll has at most {_MAX_ROWS} lines")
        if len(cells) != 3:
            raise ValueError(f"{at}: expected name, slot and answer, such as 'Ann,2027-03-01 10:00,yes'")
        person, moment, answer = cells[0], cells[1], cells[2].lower()
        if person not in people:
            raise ValueError(f"{at}: {person!r} is not among the people; {suggestion(person, people[:50], 'people')}")
        if answer not in _ANSWERS:
            raise ValueError(f"{at}: expected yes, maybe or no, got {cells[2]!r}")
        try:
            slot = moment_of(moment, grid)
        except ValueError as error:
            raise ValueError(f"{at}: {error}") from None
        starts[slot] = True
        if answer == "no":
            refused.setdefault(people.index(person), np.zeros(grid.size, dtype=bool))[slot] = True
        elif answer == "maybe":
            uncertain.append((people.index(person), slot))
    if not starts.any():
        raise ValueError(f"{name}: has no answers, such as 'Ann,2027-03-01 10:00,yes'")
    return Poll(starts, refused, uncertain)
