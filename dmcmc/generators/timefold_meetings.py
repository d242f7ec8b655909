"""Meetings with required and preferred attendees in rooms, like the data sets of Timefold's meeting scheduling."""

from typing import Annotated

import msgspec
import numpy as np

from dmcmc.formats.meetings.timefold_plan import MeetingPlan, TimefoldMeeting
from dmcmc.formats.meetings.timefold_problem import problem_of
from dmcmc.generators.parameters import Count, Parameters
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError

# Distributions as in Timefold's data with 50 meetings: grains of a quarter of an hour with their numbers of meetings,
# and seats of rooms, repeated for more rooms.
_GRAINS = {1: 9, 2: 2, 3: 10, 4: 5, 6: 7, 8: 8, 16: 9}
_CAPACITIES = (30, 20, 16, 14, 12)
_PART_OF_PAIRS = 0.4  # part of the meetings with two required attendees; the others have up to _MAX_REQUIRED
_MAX_REQUIRED = 15
_PART_OF_FEW = 0.7  # part of the meetings with at most _FEW preferred attendees; the others have up to _MAX_PREFERRED
_FEW, _MAX_PREFERRED = 5, 15
_MEETINGS_PER_DAY = 10  # meetings per day if the number of days is not given
_PERSONS_PER_MEETING = 0.8  # persons per meeting if their number is not given


CountOrDefault = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TimefoldMeetings(Parameters, frozen=True, kw_only=True):
    """Parameters of a meeting schedule with rooms.

    Attributes
    ----------
    meetings : int
        Number of meetings.
    rooms : int
        Number of rooms.
    days : int
        Number of days; 0 for a tenth of the meetings.
    grains : int
        Time grains of a day, at least 16.
    persons : int
        Number of persons; 0 for four fifths of the meetings.
    """

    meetings: Count = 50
    rooms: Count = 5
    days: CountOrDefault = 0
    grains: Count = 32
    persons: CountOrDefault = 0


def generate(given: TimefoldMeetings) -> Problem:
    """Generate a problem."""
    return problem_of(plan_of(given))


def plan_of(given: TimefoldMeetings) -> MeetingPlan:
    """Generate the data of a problem.

    Raises
    ------
    ConfigError
        If the longest meeting is longer than a day.
    """
    if given.grains < max(_GRAINS):
        raise ConfigError(f"grains: at least {max(_GRAINS)} are needed, not {given.grains}")
    rng = np.random.default_rng(given.seed)
    days = given.days or -(-given.meetings // _MEETINGS_PER_DAY)
    persons = given.persons or max(2, int(_PERSONS_PER_MEETING * given.meetings))
    capacities = [_CAPACITIES[i % len(_CAPACITIES)] for i in range(given.rooms)]
    meetings = []
    for m in range(given.meetings):
        required = 2 if rng.random() < _PART_OF_PAIRS else int(rng.integers(3, _MAX_REQUIRED + 1))
        preferred = int(rng.integers(_FEW + 1 if rng.random() < _PART_OF_FEW else _MAX_PREFERRED + 1))
        size = min(persons, max(capacities), required + preferred)
        attendees = rng.permutation(persons)[:size].tolist()
        grains = int(rng.choice(list(_GRAINS), p=np.array(list(_GRAINS.values())) / sum(_GRAINS.values())))
        meetings.append(
            TimefoldMeeting(str(m), f"topic {m}", grains, tuple(attendees[:required]), tuple(attendees[required:]))
        )
    return MeetingPlan(
        name=f"timefold-meetings_{given.meetings}_{given.seed}",
        meetings=tuple(meetings),
        persons=tuple(f"person {p}" for p in range(persons)),
        rooms=tuple((f"room {i}", capacity) for i, capacity in enumerate(capacities)),
        days=tuple(grain // given.grains for grain in range(days * given.grains)),
    )
