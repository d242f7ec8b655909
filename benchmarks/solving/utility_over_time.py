"""Compare the objectives and bounds of this version after 1, 2, 5, 10 and 60 seconds with those of another version.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.utility_over_time --before FOLDER [--only TEXT]
        [--jobs 7] [--cores 2] [--lines FILE.jsonl] [--output FILE]

FOLDER holds meetings/ and instances/. Each problem is solved by ``dmcmc solve --timeout`` with the default methods:
once for each of the short times (``--runs``), because a run with more time may work differently, and once for the
longest, whose trace has the results in between. With ``--repeat N``, each run is made N times and medians count. An
answer that is later than one second or 5 % after its time limit does not count. ``found`` and ``bound`` are in the
problem's own sense; a violated constraint counts before any objective. The last columns say whether this version is
better, equal or worse.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Columns, Report, instances, options
from benchmarks.jobs import (
    JsonLine,
    PinnedJob,
    add_options,
    compile_kernels,
    lines_of,
    programs,
    run_jobs,
    solve_to_json,
)
from dmcmc import Problem, load

INSTANCES: dict[str, int] = {  # number of agents of the division; 0: the problem's own agents
    "spot5/404.wcsp": 4,
    "spot5/42b.wcsp": 10,
    "spot5_from_uai/408.wcsp": 10,
    "celar/CELAR6-SUB1-24.wcsp.xz": 4,
    "celar/scen06.wcsp.xz": 10,
    "coloring_wcsp/myciel5g_4.wcsp": 10,
    "coloring_wcsp/le450_5a_3.wcsp": 10,
    "grids/90-20-5.uai": 10,
    "linkage/pedigree13.uai": 10,
    "dcop_xcsp/RandomDCOP_20_10_1.xml": 0,
}
GRACE_SECONDS = 60.0  # seconds after its time limit, for compiling and reading, at which a run is stopped
LATE_FACTOR = 1.05  # an answer may be later than its time limit by this factor, or by a second


class DividedInstance(NamedTuple):
    """A problem file and the number of its agents."""

    name: str
    file: Path
    agents: int

    def command(self, program: Sequence[str], seconds: float) -> list[str]:
        """Return the command line that solves the problem."""
        agents = ["--agents", str(self.agents)] if self.agents else []
        return [*program, "solve", str(self.file), *agents, "--timeout", f"{seconds:g}"]

    def problem(self) -> Problem:
        """Read the problem; its agents are irrelevant here."""
        return load(self.file)


def instance_list(only: str) -> list[DividedInstance]:
    """Return the problems, those of meeting scheduling first."""
    meetings = sorted(instances("meetings").glob("*.npz"))
    found = [DividedInstance(p.stem.replace("_pl0.5", "").removesuffix("_s0"), p, 0) for p in meetings]
    found += [DividedInstance(name, instances("instances") / name, agents) for name, agents in INSTANCES.items()]
    return [case for case in found if only in case.name]


def measure(case: DividedInstance, program: list[str], seconds: float, cores: set[int]) -> JsonLine:
    """Let a version solve a problem once, and evaluate its assignment."""
    line = solve_to_json(case.command(program, seconds), cores, seconds + GRACE_SECONDS)
    if line.get("assignment") is not None:
        line["evaluated"] = case.problem().evaluate(line.pop("assignment"))
    return line | {"sense": case.problem().sense, "asked": seconds}


NO_RESULT = (sys.maxsize, math.inf)  # worse than any answer


class ResultsAtTime(NamedTuple):
    """The results at a time.

    Attributes
    ----------
    found : (int, float) or None
        Violations, and the objective as a cost; less is better.
    bound : float or None
        The bound as a cost.
    """

    found: tuple[int, float] | None
    bound: float | None


def late(line: JsonLine) -> bool:
    """Return whether a run ended too late."""
    return bool(line.get("time") and line["time"] > max(line["asked"] + 1, line["asked"] * LATE_FACTOR))


def key(case: str, version: str, seconds: float, repeat: int) -> str:
    """Return the unique key of a run."""
    return f"{case}|{version}|{seconds:g}" + (f"|{repeat}" if repeat else "")


def at_end(line: JsonLine) -> ResultsAtTime:
    """Return the results at the end of a run; none if that was too late."""
    sign = 1 if line["sense"] == "min" else -1
    if "evaluated" not in line or late(line):
        return ResultsAtTime(None, None)
    objective, violation = line["evaluated"]
    return ResultsAtTime((violation, sign * objective), None if line["bound"] is None else sign * line["bound"])


def at_time(line: JsonLine, seconds: float) -> ResultsAtTime:
    """Return the results of a run at a time, by its trace."""
    sign = 1 if line["sense"] == "min" else -1
    points = [p for p in line.get("trace") or [] if p["time"] <= seconds]
    if not points:
        return ResultsAtTime(None, None)
    objective, bound = points[-1]["objective"], points[-1]["bound"]
    found = None if objective is None else (0, sign * objective)
    return ResultsAtTime(found, None if bound is None else sign * bound)


def median_results(
    lines: dict[str, JsonLine], case: str, version: str, seconds: float, given: Namespace
) -> ResultsAtTime:
    """Return the medians of the results of a version at a time."""
    each = [results_of_repeat(lines, case, version, seconds, repeat, given) for repeat in range(given.repeat)]
    found = sorted(s.found or NO_RESULT for s in each)[(len(each) - 1) // 2]
    bound = sorted(-math.inf if s.bound is None else s.bound for s in each)[len(each) // 2]
    return ResultsAtTime(None if found == NO_RESULT else found, bound if bound > -math.inf else None)


def results_of_repeat(
    lines: dict[str, JsonLine], case: str, version: str, seconds: float, repeat: int, given: Namespace
) -> ResultsAtTime:
    """Return the results of a version at a time: of the run with that limit, or by the trace of the longest run."""
    line = lines.get(key(case, version, seconds, repeat))
    if line is not None:
        return at_end(line)
    longest = lines.get(key(case, version, max(given.runs), repeat))
    if longest is None or "asked" not in longest:
        return ResultsAtTime(None, None)
    return at_end(longest) if (longest.get("time") or 1e9) <= seconds else at_time(longest, seconds)


def compared(now: Any, before: Any, tolerance: float = 1e-9) -> str:
    """Return whether a cost is better (lower) than another, and by how much; None is worse than any number."""
    if now is None or before is None:
        return "equal" if now is before else "better" if before is None else "WORSE"
    violations, cost = now
    if violations == before[0] and abs(cost - before[1]) <= tolerance * max(1.0, abs(cost)):
        return "equal"
    word = "better" if (violations, cost) < tuple(before) else "WORSE"
    return word if violations != before[0] else f"{word} {abs(cost - before[1]) / max(1.0, abs(before[1])):.2%}"


def shown(value: float | None, sense: str) -> str:
    """Return a cost in the problem's own sense."""
    return "-" if value is None else f"{value if sense == 'min' else 0 - value:.10g}"


def table(report: Report, names: list[str], versions: list[str], given: Namespace) -> int:
    """Print the results of each version at each time; return how often this version found less."""
    lines = {line["key"]: line for line in lines_of(given)}
    columns = Columns(
        ("problem", "<32"),
        ("s", ">4g"),
        *(column for version in versions for column in ((version, ">16"), ("bound", ">14"))),
        ("found", "<13"),
        ("bound", "<13"),
    )
    report(columns.head)
    counts: dict[str, int] = {}
    for name in names:
        sense = next((line["sense"] for line in lines.values() if line["key"].startswith(f"{name}|")), "max")
        for seconds in given.times:
            states = [median_results(lines, name, version, seconds, given) for version in versions]
            cells: list[object] = [name, seconds]
            for found, bound in states:
                broken = f" ({found[0]}!)" if found and found[0] else ""
                cells += [shown(found[1] if found else None, sense) + broken, shown(bound, sense)]
            if len(states) > 1:
                now, before = states
                bounds = [None if s.bound is None else (0, -s.bound) for s in states]
                words = compared(now.found, before.found), compared(bounds[0], bounds[1])
                cells += words
                for title, word in zip(("found", "bound"), words, strict=True):
                    count_key = f"{title} at {seconds:g} s: {word.split()[0]}"
                    counts[count_key] = counts.get(count_key, 0) + 1
            report(columns.line(*cells))
    for word, count in sorted(counts.items()):
        report(f"{word} {count}")
    for line in lines.values():
        if "error" in line:
            report(f"{line['key']}: {line['error']}")
        elif late(line):
            report(f"{line['key']}: late, {line['time']:.1f} s")
    return sum(count for key, count in counts.items() if "found" in key and "WORSE" in key)


def main() -> int:
    """Solve and compare."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--times", type=float, nargs="+", default=[1, 2, 5, 10, 60])
    parser.add_argument("--runs", type=float, nargs="+", default=[1, 2, 5, 60], help="time limits of the runs")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs per time limit; medians are shown")
    add_options(parser)
    given = parser.parse_args()
    report = Report(__file__, given)
    versions, found = programs(given), instance_list(given.only)
    jobs = [
        PinnedJob(key(case.name, version, seconds, repeat), partial(measure, case, program, seconds))
        for repeat in range(given.repeat)
        for seconds in sorted(given.runs, reverse=True)
        for case in found
        for version, program in versions.items()
    ]
    if given.compile_first:
        compile_kernels(given, lambda program: [case.command(program, 1.0) for case in found])
    run_jobs(jobs, given, lambda line: print(line["key"], line.get("error", "done"), file=sys.stderr, flush=True))
    worse = table(report, [case.name for case in found], list(versions), given)
    report.keep()
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
