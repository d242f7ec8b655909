"""An impossible calendar: some meetings that must be held and cannot be all together, as few as were found."""

from functools import cache

import numpy as np

from dmcmc.formats.calendar.plan import Calendar
from dmcmc.report.calendar.answer import no_time

_NODES = 2000  # of one search; what it does not settle stays among the meetings in conflict


def conflict_of(calendar: Calendar) -> list[int]:
    """Return meetings that must be held and do not fit together; without any one of them the rest mostly would.

    One meeting after the other is left out where the rest is still impossible (a deletion filter).
    """
    must = [m for m, meeting in enumerate(calendar.meetings) if meeting.weight is None]
    for m in must:
        if not calendar.choices[m]:
            return [m]
    search = _Search(calendar)
    people = range(len(calendar.people))
    groups = [[m for m in must if p in calendar.meetings[m].people] for p in people]
    groups += [[m for m in must if calendar.meetings[m].rooms]]
    impossible = [group for group in groups if search.fits(group) is False]
    kept = min(impossible, key=len, default=must)
    for m in list(kept):
        rest = [n for n in kept if n != m]
        if search.fits(rest) is False:
            kept = rest
    return kept


def told(calendar: Calendar) -> str:
    """Return the meetings in conflict in words."""
    found = conflict_of(calendar)
    names = [calendar.meetings[m].name for m in found]
    if len(found) == 1:
        return f"{names[0]} cannot be held: {no_time(calendar, found[0])}"
    shared = set.intersection(*({*calendar.meetings[m].people} for m in found)) if found else set()
    who = ", ".join(calendar.people[p].name for p in sorted(shared))
    by = f"; {who} would have to be in all of them" if who else ""
    return f"these {len(names)} meetings do not fit together: {', '.join(names)}{by}"


class _Search:
    """Depth first, the meeting with the fewest choices left first; choices are bits of a whole number."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.allowed = cache(self._allowed)

    def fits(self, meetings: list[int]) -> bool | None:
        """Return whether some meetings can all be held; None where the search was given up."""
        if self._too_much(meetings):
            return False
        self.nodes = 0
        return self._place({m: (1 << len(self.calendar.choices[m])) - 1 for m in meetings})

    def _place(self, left: dict[int, int]) -> bool | None:
        if not left:
            return True
        self.nodes += 1
        if self.nodes > _NODES:
            return None
        m = min(left, key=lambda n: (left[n].bit_count(), n))
        choices, rest = left[m], {n: bits for n, bits in left.items() if n != m}
        while choices:
            choice = (choices & -choices).bit_length() - 1
            choices &= choices - 1
            narrowed = {n: bits & self.allowed(m, n)[choice] for n, bits in rest.items()}
            if all(narrowed.values()) and (found := self._place(narrowed)) is not False:
                return found
        return False

    def _too_much(self, meetings: list[int]) -> bool:
        """Return whether somebody's meetings take more slots than they can be in."""
        for p in range(len(self.calendar.people)):
            of = [m for m in meetings if p in self.calendar.meetings[m].people]
            slots: set[int] = set()
            for m in of:
                length = self.calendar.meetings[m].length
                slots |= {s for c in self.calendar.choices[m] for s in range(c.start, c.start + length)}
            if len(slots) < sum(self.calendar.meetings[m].length for m in of):
                return True
        return False

    def _allowed(self, m: int, n: int) -> list[int]:
        """Return for each choice of a meeting which of another's go with it."""
        packed = np.packbits(~self.calendar.clashes(m, n), axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]
