"""Measure how long small meeting problems take in a process that has solved some before, by phase.

    python -m benchmarks.repeated_solves [--device cuda] [--repeats 20] [--profile 40]

For each size: the median and least time of all repeats, for the same problem and for problems of the same size with
other tables; the time of each phase; and whether the answers are bitwise those of the CPU. ``--profile`` prints the
functions that took longest. ``--bare`` replaces the join kernel by a function that does nothing, so that only the
host's work is measured.
"""

import cProfile
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import dmcmc
import dmcmc.run.solve as run_module
import dmcmc.solving.solve as solve_module
from benchmarks.harness import Report, options
from dmcmc import Problem
from dmcmc.inference.elimination import eliminate
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.solving.coordinator import OneFile
from dmcmc.solving.rank_tables import RankTables

SIZES: dict[str, dict[str, int]] = {"default": {}, "X=5": {"variables_per_agent": 5}, "A=5": {"agents": 5}}
PHASES: Sequence[tuple[Any, str]] = (
    (run_module, "with_memory_limit"),
    (solve_module, "divide_on_ranks"),
    (solve_module, "begin"),
    (solve_module, "plan"),
    (KernelSupply, "wait"),
    (KernelSupply, "request"),
    (RankTables, "make"),
    (RankTables, "combine"),
    (OneFile, "record"),
    (OneFile, "conclude"),
    (OneFile, "result"),
)
# solves, and seconds of solves, before any is timed: the clock frequency of a processor rises with load
_UNTIMED_SOLVES = 20
_UNTIMED_SECONDS = 1.0


@contextmanager
def timed_phases(spent: dict[str, list[float]]) -> Iterator[None]:
    """Record the seconds of each call of each phase."""

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **keywords)
            finally:
                spent[name].append(time.perf_counter() - start)

        return run

    before = [getattr(owner, name) for owner, name in PHASES]
    for (owner, name), work in zip(PHASES, before, strict=True):
        setattr(owner, name, timed(name, work))
    try:
        yield
    finally:
        for (owner, name), work in zip(PHASES, before, strict=True):
            setattr(owner, name, work)


def solve_and_answer(problem: Problem, device: str) -> tuple[Any, ...]:
    """Return the parts of the answer that must not depend on the device."""
    result = dmcmc.solve(problem, device=device, seed=7)
    return result.status, result.objective, result.bound, result.assignment


def measure(problems: Sequence[Problem], device: str, repeats: int) -> tuple[float, float]:
    """Return the median and least milliseconds of solves of the problems in turn."""
    next_problem, seconds, start_untimed, solves = cycle(problems), list[float](), time.perf_counter(), 0
    while solves < _UNTIMED_SOLVES or time.perf_counter() < start_untimed + _UNTIMED_SECONDS:
        dmcmc.solve(next(next_problem), device=device, seed=7)
        solves += 1
    for _ in range(repeats):
        problem, start = next(next_problem), time.perf_counter()
        dmcmc.solve(problem, device=device, seed=7)
        seconds.append(time.perf_counter() - start)
    return 1e3 * median(seconds), 1e3 * min(seconds)


def main() -> None:
    """Measure all sizes."""
    parser = options(__file__, __doc__, device="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--profile", type=int, default=0, help="number of functions to print")
    parser.add_argument("--bare", action="store_true", help="replace the join kernel by a function that does nothing")
    given = parser.parse_args()
    if given.bare and given.device != "cpu":
        sys.exit("--bare is for --device cpu")
    report = Report(__file__, given)
    if given.bare:
        vars(eliminate).update(run_on_cpu=lambda *_: None, run_buckets=lambda *_: None)
    for name, parameters in SIZES.items():
        problems = [dmcmc.generate("meeting-scheduling", seed=seed, **parameters) for seed in range(5)]
        same_problem, five_problems = (
            measure(chosen, given.device, given.repeats) for chosen in (problems[:1], problems)
        )
        report(f"{name}, {given.device}: median {same_problem[0]:.2f} ms, least {same_problem[1]:.2f};")
        report(f"  five problems in turn: median {five_problems[0]:.2f} ms, least {five_problems[1]:.2f};")
        if not given.bare:
            same = sum(
                solve_and_answer(problem, given.device) == solve_and_answer(problem, "cpu") for problem in problems
            )
            report(f"  {same} of {len(problems)} answers are bitwise those of the CPU")
        spent: dict[str, list[float]] = defaultdict(list)
        with timed_phases(spent):
            for _ in range(given.repeats):
                dmcmc.solve(problems[0], device=given.device, seed=7)
        report("  " + ", ".join(f"{phase} {1e3 * sum(times) / given.repeats:.2f}" for phase, times in spent.items()))
        if given.profile:
            profile(problems[0], given.device, given.profile, report)
    report.keep()


def profile(problem: Problem, device: str, shown: int, report: Report) -> None:
    """Print the functions that took longest in ten solves, by cumulative and by own time."""
    profiler = cProfile.Profile()
    for _ in range(10):
        profiler.runcall(dmcmc.solve, problem, device=device, seed=7)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for column, title in ((3, "with the functions that they call"), (2, "by themselves")):
        report(f"  ms per solve, under a profiler, {title}; calls")
        for (file, line, function), row in sorted(stats.items(), key=lambda item: -item[1][column])[:shown]:
            report(
                f"  {100 * row[column]:8.3f} {row[1] / 10:8.1f}  {'/'.join(Path(file).parts[-3:])}:{line} {function}"
            )


if __name__ == "__main__":
    main()
