"""Find a small set of required meetings that cannot all take place."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from dmcmc.formats.calendar.data.clashes import clashes
from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.inference.presolve.minimal_conflict import minimal_conflict
from dmcmc.tuning import run as tuning

Test = Callable[[Sequence[int]], bool | None]
"""Whether some meetings of a calendar fit together; None if this is not known in time."""


def conflict_of(calendar: Calendar, fits: Test | None = None) -> list[int]:
    """Return the numbers of required meetings that cannot all take place; mostly, removing any one of them resolves it.

    QuickXplain makes a small group of meetings that cannot all take place minimal. The groups are the meetings of each
    person, the meetings with rooms, and all meetings. They are tested by rules between pairs of meetings, and if no
    group fails, by ``fits``.

    Parameters
    ----------
    calendar
        The calendar.
    fits
        A test by all rules; None for a test by rules between pairs of meetings.
    """
    must = [m for m, meeting in enumerate(calendar.meetings) if meeting.weight is None]
    for m in must:
        if not calendar.choices[m]:
            return [m]
    search = MeetingSearch(calendar)
    people = range(len(calendar.people))
    groups = [[m for m in must if p in calendar.meetings[m].people] for p in people]
    groups += [[m for m in must if calendar.meetings[m].rooms]]
    impossible = [group for group in groups if search.fits(group) is False]
    test: Test = search.fits
    if not impossible and search.fits(must) is not False and fits is not None:
        test = fits
        failing = (group for group in sorted(groups, key=len) if group and fits(group) is False)
        impossible = [next(failing, must)]
    conflict = min(impossible, key=len, default=must)

    def is_infeasible(items: list[int]) -> bool | None:
        """Return whether some of the meetings cannot all take place; None if this is not known."""
        answer = test([conflict[i] for i in items])
        return None if answer is None else not answer

    return [conflict[i] for i in minimal_conflict(len(conflict), is_infeasible).items]


class MeetingSearch:
    """Depth-first search for times of some meetings, the meeting with the fewest choices first.

    It knows the rules between pairs of meetings (``Calendar.clashes``). The remaining choices of a meeting are the bits
    of an integer: bit i stands for choice i.

    Attributes
    ----------
    calendar : Calendar
        The calendar.
    allowed : callable
        ``_allowed`` with cached results.
    nodes : int
        Number of search nodes of the current test.
    """

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.allowed = cache(self._allowed)
        self.nodes = 0

    def fits(self, meetings: Sequence[int]) -> bool | None:
        """Return whether the given meetings can all take place; None if the search was not finished."""
        if self._exceeds_slots(meetings):
            return False
        self.nodes = 0
        return self._place({m: (1 << len(self.calendar.choices[m])) - 1 for m in meetings})

    def _place(self, remaining: dict[int, int]) -> bool | None:
        """Return whether the meetings in ``remaining`` fit together with their choices; None if not finished.

        ``remaining`` maps each meeting to its remaining choices, as the bits of an integer. A choice is kept only if
        each other meeting still has a compatible one (forward checking).
        """
        if not remaining:
            return True
        self.nodes += 1
        if self.nodes > tuning.MAX_MEETING_NODES:
            return None
        m = min(remaining, key=lambda n: (remaining[n].bit_count(), n))
        choices, others = remaining[m], {n: bits for n, bits in remaining.items() if n != m}
        while choices:
            choice = (choices & -choices).bit_length() - 1
            choices &= choices - 1
            narrowed = {n: bits & self.allowed(m, n)[choice] for n, bits in others.items()}
            if all(narrowed.values()) and (is_possible := self._place(narrowed)) is not False:
                return is_possible
        return False

    def _exceeds_slots(self, meetings: Sequence[int]) -> bool:
        """Return whether the meetings of one person need more time slots than those in which they are possible."""
        for p in range(len(self.calendar.people)):
            attended = [m for m in meetings if p in self.calendar.meetings[m].people]
            slots: set[int] = set()
            for m in attended:
                length = self.calendar.meetings[m].length
                slots |= {s for c in self.calendar.choices[m] for s in range(c.start, c.start + length)}
            if len(slots) < sum(self.calendar.meetings[m].length for m in attended):
                return True
        return False

    def _allowed(self, m: int, n: int) -> list[int]:
        """Return for each choice of meeting ``m`` the compatible choices of meeting ``n`` as the bits of an integer.

        Bit i stands for choice i of ``n``.
        """
        packed = np.packbits(~clashes(self.calendar, m, n), axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]
