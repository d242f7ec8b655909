"""Ask for every value of a calendar's meetings what it would cost to have it, within a time limit.

    python -m benchmarks.sessions.why_not CALENDAR.yaml [--timeout 10] [--meeting NAME] [--output FILE]

One line for each meeting that is asked: the number of its values, of those with an assignment, and of those proven.
"""

import time

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.calendars.options import calendar_at


def main() -> None:
    """Ask for all meetings together, or for one meeting."""
    parser = options(__file__, __doc__)
    parser.add_argument("calendar", metavar="CALENDAR.yaml")
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--meeting", default="", metavar="NAME")
    given = parser.parse_args()
    report, calendar = Report(__file__, given), calendar_at(given.calendar)
    names = [name for name in calendar.variables if name.endswith(given.meeting)]
    start = time.perf_counter()
    found = dmcmc.max_marginals(given.calendar, names, timeout=given.timeout)
    report(f"{found.status} after {time.perf_counter() - start:.1f} s")
    for name, intervals in found.intervals.items():
        known = sum(interval.objective is not None for interval in intervals.values())
        proven = sum(interval.proven for interval in intervals.values())
        report(f"{name:24} {len(intervals):4} values, {known:4} with an assignment, {proven:4} proven")
    report.keep()


if __name__ == "__main__":
    main()
