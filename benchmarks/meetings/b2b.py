"""Read business-to-business meeting schedules (``.dzn``), and count the breaks of a schedule.

The problem is that of Bofill, Coll, Garcia, Giráldez-Cru, Pesant, Suy and Villaret (JAIR 74, 2022). Participants have
meetings in pairs, at most one in each slot, and a limited number of tables is used at a time. A break is a hole between
two meetings of a participant that follow each other. The sum of all breaks is minimised; the numbers of breaks of two
participants differ by at most two.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dmcmc.inference.model.problem import Problem

MAX_DIFFERENCE = 2  # of the breaks of two participants
_MORNING, _AFTERNOON = 1, 2  # sessions; 3 is any


class Schedule(NamedTuple):
    """A file; participants, meetings and slots count from 0.

    Attributes
    ----------
    name : str
        Name of the file.
    participants, tables, slots, morning : int
        Number of participants, of tables, of slots, and of slots in the morning.
    meetings : list of (int, int)
        The participants of each meeting.
    allowed : list of list of int
        The possible slots of each meeting.
    before : list of (int, int)
        Pairs of meetings of which the first is held in an earlier slot.
    """

    name: str
    participants: int
    tables: int
    slots: int
    morning: int
    meetings: list[tuple[int, int]]
    allowed: list[list[int]]
    before: list[tuple[int, int]]


def read(path: Path) -> Schedule:
    """Read a file."""
    text = re.sub(r"%[^\n]*", "", path.read_text())
    given = dict(re.findall(r"(\w+)\s*=\s*([^;]*);", text))
    slots, morning = int(given["nTotalSlots"]), int(given["nMorningSlots"])
    participants, meetings = int(given["nBusiness"]), list[tuple[int, int]]()
    forbidden = _sets(given.get("forbidden", ""), participants)
    fixed = _numbers(given.get("fixed", ""))
    allowed: list[list[int]] = []
    for m, (first, second, session) in enumerate(np.reshape(_numbers(given["requested"]), (-1, 3)).tolist()):
        meetings.append((first - 1, second - 1))
        possible = set(range(1, slots + 1))
        if session == _MORNING:
            possible &= set(range(1, morning + 1))
        elif session == _AFTERNOON:
            possible &= set(range(morning + 1, slots + 1))
        possible -= forbidden[first - 1] | forbidden[second - 1]
        if m < len(fixed) and fixed[m]:
            possible &= {fixed[m]}
        allowed.append([slot - 1 for slot in sorted(possible)])
    before = _precedences(given.get("precedences", ""), len(meetings))
    return Schedule(path.name, participants, int(given["nTables"]), slots, morning, meetings, allowed, before)


def problem_of(schedule: Schedule) -> Problem:
    """Return the problem: a variable for each meeting, whose value is its slot.

    Some participant has at most one meeting in all files, hence no break, so that all others have at most two breaks.

    Raises
    ------
    ValueError
        If all participants have two meetings or more, or a meeting has no possible slot.
    """
    build = Problem.build(sense="min", name=schedule.name)
    names = [build.variable(f"m{m}", slots) for m, slots in enumerate(schedule.allowed)]
    own = [[m for m, pair in enumerate(schedule.meetings) if p in pair] for p in range(schedule.participants)]
    if min(map(len, own)) > 1:
        raise ValueError(f"{schedule.name}: all participants have several meetings")
    for slot in range(schedule.slots):
        there = [name for name, slots in zip(names, schedule.allowed, strict=True) if slot in slots]
        if len(there) > schedule.tables:
            build.at_most(schedule.tables, there, [slot], name=f"tables {slot}")
    for p, meetings in enumerate(own):
        if len(meetings) < 2:
            continue
        mine = [names[m] for m in meetings]
        build.all_different(mine, name=f"participant {p}").breaks(mine, cost=1, name=f"breaks {p}")
        if len(mine) > MAX_DIFFERENCE + 1:
            build.breaks(mine, at_most=MAX_DIFFERENCE, name=f"fairness {p}")
    for first, second in schedule.before:
        build.precedence(names[first], names[second], 1, name="precedence")
    return build.problem()


def breaks(schedule: Schedule, slots: Sequence[int]) -> int | None:
    """Return the number of breaks of a schedule, checked by the definition; None if it is not feasible.

    Parameters
    ----------
    schedule : Schedule
        The problem.
    slots : sequence of int
        The slot of each meeting.
    """
    if any(slot not in allowed for slot, allowed in zip(slots, schedule.allowed, strict=True)):
        return None
    if np.bincount(slots, minlength=1).max() > schedule.tables:
        return None
    if any(slots[first] >= slots[second] for first, second in schedule.before):
        return None
    counts = []
    for p in range(schedule.participants):
        held = sorted(slot for slot, pair in zip(slots, schedule.meetings, strict=True) if p in pair)
        if len(set(held)) < len(held):
            return None
        counts.append(sum(after > slot + 1 for slot, after in pairwise(held)))
    return sum(counts) if max(counts) - min(counts) <= MAX_DIFFERENCE else None


def _numbers(text: str) -> list[int]:
    """Return all numbers of a text."""
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _sets(text: str, count: int) -> list[set[int]]:
    """Return the sets of numbers of a text, empty ones where it has fewer."""
    found = [set(_numbers(part)) for part in re.findall(r"\{([^}]*)\}", text)]
    return found + [set()] * (count - len(found))


def _precedences(text: str, meetings: int) -> list[tuple[int, int]]:
    """Return the pairs of meetings of which the first is held before the second; sets list what comes before."""
    return [(first - 1, m) for m, earlier in enumerate(_sets(text, meetings)) for first in sorted(earlier) if first]
