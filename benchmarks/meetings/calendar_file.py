"""Write a business-to-business schedule as a calendar file with identical tables.

    python -m benchmarks.meetings.calendar_file SCHEDULE.dzn > calendar.yaml
    dmcmc run calendar.yaml --timeout 5

A slot lasts an hour of one day. A free slot between two meetings of a participant costs a point (``no_gaps``), so that
a schedule without breaks is one without lost points. The limit on the difference of breaks is left out.
"""

import argparse
from pathlib import Path

from benchmarks.meetings import b2b
from dmcmc.generators.business_meetings import BusinessSchedule

_DAY = "2027-03-01"
_FIRST_HOUR = 6


def calendar_of(schedule: BusinessSchedule) -> str:
    """Return the text of a calendar file.

    Parameters
    ----------
    schedule : BusinessSchedule
        The problem; it has at most 18 slots, hours of one day.
    """
    lines = [
        f"calendar: {schedule.name}",
        f"first_day: {_DAY}",
        "days: 1",
        f"hours: {_FIRST_HOUR:02}:00-{_FIRST_HOUR + schedule.slots:02}:00",
        "slot: 60",
        f"rooms: {{Table: {{count: {schedule.tables}}}}}",
        "everyone: {no_gaps: 1}",
        "people:",
        *(f"  P{p}:" for p in range(schedule.participants)),
        "meetings:",
    ]
    earlier: dict[int, list[int]] = {}
    for first, second in schedule.before:
        earlier.setdefault(second, []).append(first)
    for m, ((one, other), allowed) in enumerate(zip(schedule.meetings, schedule.allowed, strict=True)):
        forbidden = [slot for slot in range(schedule.slots) if slot not in set(allowed)]
        when = [f"not {_FIRST_HOUR + slot:02}:00-{_FIRST_HOUR + slot + 1:02}:00" for slot in forbidden]
        parts = [f"people: [P{one}, P{other}]", *([f"when: [{', '.join(when)}]"] if when else [])]
        if m in earlier:
            parts.append(f"after: [{', '.join(f'm{first}' for first in earlier[m])}]")
        lines.append(f"  m{m}: {{{', '.join(parts)}}}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the calendar of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schedule", type=Path, help="a .dzn file")
    print(calendar_of(b2b.read(parser.parse_args().schedule)), end="")


if __name__ == "__main__":
    main()
