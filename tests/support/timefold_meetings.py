"""The score of a schedule by the definitions of Timefold's twelve constraints, without any factor."""

from itertools import combinations
from typing import NamedTuple

from dmcmc.formats.meetings.timefold import BREAK_COST, OVERLAP_COST, STABILITY_GRAINS


class Score(NamedTuple):
    """A score in three levels, each at most 0; higher is better, and the first level counts most."""

    hard: int
    medium: int
    soft: int


def score(plan, starts, rooms):
    """Return the score of a schedule: the grain at which each meeting starts, and its room, as indices."""
    hard = medium = soft = 0
    for m, (start, room) in enumerate(zip(starts, rooms, strict=True)):
        penalties = _alone(plan, m, start, room)
        hard, soft = hard - penalties[0], soft - penalties[1]
    for first, second in combinations(range(len(starts)), 2):
        overlap = _overlap(plan, first, second, starts)
        a, b = plan.meetings[first], plan.meetings[second]
        hard -= overlap * ((rooms[first] == rooms[second]) + _shared(a.required, b.required))
        medium -= overlap * (
            _shared(a.required, b.preferred) + _shared(a.preferred, b.required) + _shared(a.preferred, b.preferred)
        )
        soft -= OVERLAP_COST * overlap
        for i, j in ((first, second), (second, first)):
            end = starts[i] + plan.meetings[i].grains
            soft -= BREAK_COST * (end == starts[j])
            if starts[i] < starts[j] <= end + STABILITY_GRAINS and rooms[i] != rooms[j]:
                soft -= _shared((*a.required, *a.preferred), (*b.required, *b.preferred))
    return Score(hard, medium, soft)


def _alone(plan, m, start, room):
    """Return the hard penalty of a meeting itself, and its soft one: its last grain, and the seats of larger rooms."""
    meeting, capacity = plan.meetings[m], plan.rooms[room][1]
    last = start + meeting.grains - 1
    hard = max(0, meeting.seats - capacity)
    if last >= len(plan.days):
        hard += last  # overtime
    elif plan.days[start] != plan.days[last]:
        hard += 1
    larger = sum(other - capacity for _, other in plan.rooms if other > capacity)
    return hard, last + larger


def _overlap(plan, first, second, starts):
    """Return the number of grains for which two meetings overlap."""
    ends = [starts[m] + plan.meetings[m].grains for m in (first, second)]
    return max(0, min(ends) - max(starts[first], starts[second]))


def _shared(first, second):
    """Return the number of pairs of attendances of the same person."""
    return sum(first.count(person) * second.count(person) for person in set(first))
