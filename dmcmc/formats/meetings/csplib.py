"""Read the meeting-scheduling problems of CSPLib (problem 46, proposed by Gent and Walsh).

A file states the numbers of meetings, agents and time slots, the meetings of each agent, and the travel time between
the places of every two meetings. A meeting takes one slot. Meetings that share an agent start so far apart that the
agent can travel: |x_i − x_j| > distance of i and j. The files are texts for people, of which this reader takes:

* lines ``Number of meetings: 20`` and ``Domain size: 8`` (or ``Number of time slots``, ``Number of timeslots``);
* a line for each agent, ``Agent 1: 3 8 9`` or ``Agents (1): 3 8 9``;
* after a line with ``distance`` (other than a number's), a row for each meeting, ``3: 1 2 0 1``; the number of the
  meeting at the beginning may be missing, and so may the first line with the numbers of all meetings.

Meetings and agents are numbered from 0, or from 1 if no meeting has the number 0.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.inference.building.builder import Builder
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError

_MAX_SLOTS = 10_000  # slots that a table over two meetings may have in each direction
_COUNT = re.compile(r"\s*number of meetings\s*[:=]\s*(\d+)\s*$", re.IGNORECASE)
_SLOTS = re.compile(r"\s*(?:domain size|number of time ?slots)\s*[:=]\s*(\d+)\s*$", re.IGNORECASE)
_AGENT = re.compile(r"\s*agents?\s*\(?\s*(\d+)\s*\)?\s*:\s*([\d\s,]*)$", re.IGNORECASE)
_DISTANCES = re.compile(r"[^:]*distances?[^:]*:?\s*$", re.IGNORECASE)
_ROW = re.compile(r"\s*(?:(\d+)\s*[:|])?\s*((?:\d+[\s,|]*)+)$")


class MeetingTravel(NamedTuple):
    """The content of a file; meetings count from 0.

    Attributes
    ----------
    slots : int
        Number of time slots.
    attended : list of list of int
        The meetings of each agent.
    distances : ndarray of int64, shape (meetings, meetings)
        The travel time between every two meetings, in slots.
    """

    slots: int
    attended: list[list[int]]
    distances: NDArray[np.int64]


def read(source: SourceFile) -> Problem:
    """Read a problem: a variable for each meeting, owned by the first agent that attends it.

    Raises
    ------
    FileError
        If a part is missing, or a number is outside its range.
    """
    return problem_of(parse(source), source.name.rpartition("/")[2].partition(".")[0])


def problem_of(travel: MeetingTravel, name: str = "") -> Problem:
    """Return the problem; all its constraints are hard.

    Parameters
    ----------
    travel : MeetingTravel
        The content of a file.
    name : str
        Name of the problem.
    """
    build, owner = Builder(name=name), dict[int, int]()
    for agent, meetings in enumerate(travel.attended):
        for meeting in meetings:
            owner.setdefault(meeting, agent)
    count = len(travel.distances)
    names = [
        build.variable(f"meeting {m}", travel.slots, agent=f"agent {owner[m]}" if m in owner else "nobody")
        for m in range(count)
    ]
    apart = np.abs(np.subtract.outer(np.arange(travel.slots), np.arange(travel.slots)))
    pairs = {(i, j) for meetings in travel.attended for i in meetings for j in meetings if i < j}
    for i, j in sorted(pairs):
        build.factor((names[i], names[j]), np.where(apart > travel.distances[i, j], 0, -np.inf), name=f"travel {i} {j}")
    return build.problem()


def parse(source: SourceFile) -> MeetingTravel:
    """Parse the text of a file.

    Raises
    ------
    FileError
        If a part is missing, or a number is outside its range.
    """
    count = slots = None
    agents: list[list[int]] = []
    rows: list[list[int]] = []
    in_distances = False
    for number, line in enumerate(source.text().splitlines(), 1):
        if found := _COUNT.match(line):
            count = int(found[1])
        elif found := _SLOTS.match(line):
            slots = int(found[1])
        elif found := _AGENT.match(line):
            agents.append([int(word) for word in re.findall(r"\d+", found[2])])
        elif _DISTANCES.match(line) and not any(letter.isdigit() for letter in line):
            in_distances = True
        elif in_distances and (found := _ROW.match(line)):
            rows.append([int(word) for word in re.findall(r"\d+", found[2])])
            if found[1] is None and count is not None and len(rows[-1]) == count + 1:
                rows[-1] = rows[-1][1:]
        elif in_distances and line.strip():
            raise FileError(f"{source.name}: line {number}: is no row of distances: {line.strip()[:60]!r}")
    if count is None or slots is None or not agents or not rows:
        parts = {"number of meetings": count, "domain size": slots, "meetings of agents": agents, "distances": rows}
        missing = next(name for name, part in parts.items() if not part)
        raise FileError(f"{source.name}: it does not state the {missing}")
    return _checked(source, count, slots, agents, rows)


def _checked(
    source: SourceFile, count: int, slots: int, agents: list[list[int]], rows: list[list[int]]
) -> MeetingTravel:
    """Return the content of a file; raise FileError if its parts do not fit each other."""
    if len(rows) == count + 1:  # the numbers of all meetings
        rows = rows[1:]
    if len(rows) != count or any(len(row) != count for row in rows):
        raise FileError(f"{source.name}: {count} meetings need {count} rows of {count} distances")
    if not 0 < slots <= _MAX_SLOTS:
        raise FileError(f"{source.name}: the domain size {slots} is not within 1..{_MAX_SLOTS}")
    used = {meeting for meetings in agents for meeting in meetings}
    first = 0 if 0 in used or count not in used else 1
    if used and not first <= min(used) <= max(used) < count + first:
        raise FileError(f"{source.name}: an agent has a meeting outside {first}..{count + first - 1}")
    attended = [[meeting - first for meeting in dict.fromkeys(meetings)] for meetings in agents]
    return MeetingTravel(slots, attended, np.array(rows, dtype=np.int64))
