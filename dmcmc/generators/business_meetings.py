"""Business-to-business meetings: participants meet in pairs, at tables, with as few breaks as possible.

The model is that of Bofill et al. (JAIR 74, 2022). A participant has at most one meeting in each slot, and a limited
number of tables is used at a time. A break is a hole between two meetings of a participant that follow each other. The
sum of all breaks is minimised; the numbers of breaks of two participants differ by at most two.
"""

from typing import NamedTuple

import numpy as np

from dmcmc.generators.parameters import Count, Parameters
from dmcmc.inference.building.builder import Builder
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError

MAX_DIFFERENCE = 2
"""Largest difference of the numbers of breaks of two participants."""


class BusinessSchedule(NamedTuple):
    """A problem; participants, meetings and slots count from 0.

    Attributes
    ----------
    name : str
        Name of the problem.
    participants, tables, slots : int
        Number of participants, of tables, and of slots.
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
    meetings: list[tuple[int, int]]
    allowed: list[list[int]]
    before: list[tuple[int, int]]


class BusinessMeetings(Parameters, frozen=True, kw_only=True):
    """Parameters of a business-to-business event.

    Attributes
    ----------
    participants : int
        Number of participants; the last one has at most one meeting.
    slots : int
        Number of slots.
    tables : int
        Number of tables, which are all used in each slot if there are enough participants.
    """

    participants: Count = 40
    slots: Count = 8
    tables: Count = 16


def generate(given: BusinessMeetings) -> Problem:
    """Generate a problem that has a feasible schedule: random pairs of participants meet in each slot.

    Raises
    ------
    ConfigError
        If there are fewer than three participants.
    """
    if given.participants < 3:
        raise ConfigError(f"participants: at least 3 are needed, not {given.participants}")
    rng = np.random.default_rng(given.seed)
    meetings = set[tuple[int, int]]()
    for _ in range(given.slots):
        order = rng.permutation(given.participants - 1).tolist()
        for first, second in list(zip(order[::2], order[1::2], strict=False))[: given.tables]:
            meetings.add((min(first, second), max(first, second)))
    pairs = sorted(meetings)
    allowed = [list(range(given.slots)) for _ in pairs]
    name = f"business-meetings_{given.participants}_{given.slots}_{given.tables}_{given.seed}"
    return problem_of(BusinessSchedule(name, given.participants, given.tables, given.slots, pairs, allowed, []))


def problem_of(schedule: BusinessSchedule) -> Problem:
    """Return the problem: a variable for each meeting, whose value is its slot.

    Some participant has to have at most one meeting, hence no break, so that all others have at most two breaks.

    Raises
    ------
    ConfigError
        If all participants have two meetings or more.
    """
    build = Builder(sense="min", name=schedule.name)
    names = [build.variable(f"m{m}", slots) for m, slots in enumerate(schedule.allowed)]
    own = [[m for m, pair in enumerate(schedule.meetings) if p in pair] for p in range(schedule.participants)]
    if min(map(len, own)) > 1:
        raise ConfigError(f"{schedule.name}: all participants have several meetings")
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
