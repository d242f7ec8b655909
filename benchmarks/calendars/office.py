"""Solve generated calendars of an office: when the first schedule is found, and the gap at the end.

    python -m benchmarks.calendars.office [--people 40] [--meetings 100] [--seeds 3] [--seconds 60] [--output FILE]

Each calendar has five rooms, optional attendees, orders, buffers, a limit of four meetings a day and a lunch break
(:mod:`benchmarks.calendars.team`). ``first`` is the time of the first schedule that keeps all rules. Run it twice: the
first run compiles. ``--search`` selects the background search engine.
"""

import time

from benchmarks.calendars.team import team_calendar
from benchmarks.harness import Report, options
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.solve import solve_calendar
from dmcmc.config.make_settings import settings_from
from dmcmc.files.text import SourceFile


def main() -> None:
    """Solve the calendars and print one line for each."""
    parser = options(__file__, __doc__)
    for name, default in (("people", 40), ("meetings", 100), ("days", 10), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--search", default="auto")
    given = parser.parse_args()
    report = Report(__file__, given)
    settings = settings_from(None, {"search": given.search})
    for seed in range(1, given.seeds + 1):
        text = team_calendar(given.people, given.meetings, given.days, seed)
        start = time.perf_counter()
        calendar = read_calendar(SourceFile("team.yaml", text.encode()))
        problem = problem_of(calendar, copies=False)
        built, processor = time.perf_counter() - start, time.process_time()
        result = solve_calendar(calendar, given.seconds, settings)
        first = next((point.time for point in result.trace if point.objective is not None), None)
        used = time.process_time() - processor
        report(f"seed {seed}: {problem.n_variables} variables, {len(problem.factors)} factors, built in {built:.1f} s")
        report(
            f"  first {'-' if first is None else f'{first:.1f} s'}; objective {result.objective}, bound {result.bound},"
            f" gap {'-' if result.gap is None else f'{100 * result.gap:.2f} %'}, {result.status}"
            f" after {result.time:.1f} s ({used:.1f} s of processor time in this process)"
        )
    report.keep()


if __name__ == "__main__":
    main()
