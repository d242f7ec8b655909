"""Read business-to-business meeting schedules (``.dzn``), and count the breaks of a schedule by the definition."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dmcmc.generators.business_meetings import MAX_DIFFERENCE, BusinessSchedule

_MORNING, _AFTERNOON = 1, 2  # sessions; 3 is any


def read(path: Path) -> BusinessSchedule:
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
    return BusinessSchedule(path.name, participants, int(given["nTables"]), slots, meetings, allowed, before)


def breaks(schedule: BusinessSchedule, slots: Sequence[int]) -> int | None:
    """Return the number of breaks of a schedule, checked by the definition; None if it is not feasible.

    Parameters
    ----------
    schedule : BusinessSchedule
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
