"""What a warm solve of small meeting problems takes in a process that has solved some before, and where that goes.

    python -m benchmarks.warm [--device cuda] [--repeats 20] [--profile 40]

Of each size: the median of all repeats, of the same problem and of problems of the same size with other tables; the
time by phase; that the answer is the CPU's, to the bit; and with ``--profile`` the functions that took longest. With
``--bare`` nothing is joined: what is left is the host's.
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
import dmcmc.run.solve as path
from benchmarks.harness import Report, options
from dmcmc import Problem
from dmcmc.inference.elimination import eliminate
from dmcmc.run.rank_run import Run

SIZES: dict[str, dict[str, int]] = {"default": {}, "X=5": {"variables_per_agent": 5}, "A=5": {"agents": 5}}
PHASES: Sequence[tuple[Any, str]] = (
    (path, "sharing_memory"),
    (path, "warm_up_planning"),
    (path, "divided"),
    (path, "warm_up_search"),
    (path, "begin"),
    (path, "plan"),
    (path, "warm_up_solving"),
    (path, "warm_up_chains"),
    (path, "warm_up_filtering"),
    (Run, "first_tables"),
    (Run, "combine"),
    (Run, "agree"),
    (Run, "result"),
)
WARM, WARM_SECONDS = 20, 1.0  # solves, and seconds of them, before any is timed: clocks rise with work


@contextmanager
def watched(spent: dict[str, list[float]]) -> Iterator[None]:
    """Take the time of each phase."""

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **keywords)
            finally:
                spent[name].append(time.perf_counter() - start)

        return run

    before = [getattr(home, name) for home, name in PHASES]
    for (home, name), work in zip(PHASES, before, strict=True):
        setattr(home, name, timed(name, work))
    try:
        yield
    finally:
        for (home, name), work in zip(PHASES, before, strict=True):
            setattr(home, name, work)


def answered(problem: Problem, device: str) -> tuple[Any, ...]:
    """Solve a problem; return what has to be the same wherever that is."""
    result = dmcmc.solve(problem, device=device, seed=7)
    return result.status, result.objective, result.bound, result.assignment


def measure(problems: Sequence[Problem], device: str, repeats: int) -> tuple[float, float]:
    """Return median and least milliseconds of solves that take turns."""
    turn, seconds, begun, made = cycle(problems), list[float](), time.perf_counter(), 0
    while made < WARM or time.perf_counter() < begun + WARM_SECONDS:
        dmcmc.solve(next(turn), device=device, seed=7)
        made += 1
    for _ in range(repeats):
        problem, start = next(turn), time.perf_counter()
        dmcmc.solve(problem, device=device, seed=7)
        seconds.append(time.perf_counter() - start)
    return 1e3 * median(seconds), 1e3 * min(seconds)


def main() -> None:
    """Measure all sizes."""
    parser = options(__file__, __doc__, device="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--profile", type=int, default=0, help="functions to name")
    parser.add_argument("--bare", action="store_true", help="join nothing")
    given = parser.parse_args()
    if given.bare and given.device != "cpu":
        sys.exit("--bare is for --device cpu")
    say = Report(__file__, given)
    if given.bare:
        eliminate.run_on_cpu = lambda *_: None
    for name, parameters in SIZES.items():
        problems = [dmcmc.generate("meeting-scheduling", seed=seed, **parameters) for seed in range(5)]
        once, others = (measure(some, given.device, given.repeats) for some in (problems[:1], problems))
        say(f"{name}, {given.device}: median {once[0]:.2f} ms, least {once[1]:.2f};")
        say(f"  of five problems in turn: median {others[0]:.2f} ms, least {others[1]:.2f};")
        if not given.bare:
            same = sum(answered(problem, given.device) == answered(problem, "cpu") for problem in problems)
            say(f"  {same} of {len(problems)} answers are the CPU's, to the bit")
        spent: dict[str, list[float]] = defaultdict(list)
        with watched(spent):
            for _ in range(given.repeats):
                dmcmc.solve(problems[0], device=given.device, seed=7)
        say("  " + ", ".join(f"{part} {1e3 * sum(found) / given.repeats:.2f}" for part, found in spent.items()))
        if given.profile:
            profile(problems[0], given.device, given.profile, say)
    say.keep()


def profile(problem: Problem, device: str, most: int, say: Report) -> None:
    """Say which functions took longest in ten solves, by themselves and with what they call."""
    found = cProfile.Profile()
    for _ in range(10):
        found.runcall(dmcmc.solve, problem, device=device, seed=7)
    stats = pstats.Stats(found).stats  # type: ignore[attr-defined]
    for column, title in ((3, "with all that they call"), (2, "by themselves")):
        say(f"  ms a solve, under a profiler, {title}; calls")
        for (file, line, function), row in sorted(stats.items(), key=lambda item: -item[1][column])[:most]:
            say(f"  {100 * row[column]:8.3f} {row[1] / 10:8.1f}  {'/'.join(Path(file).parts[-3:])}:{line} {function}")


if __name__ == "__main__":
    main()
