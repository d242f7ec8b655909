"""Every instance with all ingredients of the bound, and without some: what is proven, what is tighter.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.with_and_without [--limit 60] [--only TEXT] [--jobs N --cores C]
        [--leave branch semidefinite warm] [--agents N] [--within SECONDS --lines FILE.jsonl]

FOLDER holds instances/ with its MANIFEST.csv. Each instance is solved by ``dmcmc solve --timeout LIMIT``, with, then
without search in rows, semidefinite lifts and warm sweeps (``benchmarks.bounds.without``), one after the other on the
same cores. The last line counts what is proven by one only, whose bound is tighter where neither has a proof, and whose
objective is better. The same command with the same ``--lines`` goes on with what ``--within`` left no time for.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bounds.without import INGREDIENTS
from benchmarks.harness import Report, instances, options
from benchmarks.jobs import Job, Line, add_options, lines_of, run_jobs, warm_up
from benchmarks.solving.solve_instances import COMMAND, judged, listed, proven, run, shown

_NOTICED = 1e-6  # of an objective or a bound is a difference
_KEPT = ("sense", "objective", "bound", "gap", "status", "time", "error")


def better(one: Any, other: Any, sign: int) -> bool:
    """Return whether a number is higher (``sign`` 1) or lower than another; None is nothing."""
    if one is None or other is None:
        return one is not None and other is None
    return bool(sign * (one - other) > _NOTICED * max(1.0, abs(one), abs(other)))


def verdict(ours: Line, theirs: Line) -> str:
    """Return what a run with all ingredients has that the other has not, or the other way round."""
    if proven(ours) or proven(theirs):
        return "" if proven(ours) and proven(theirs) else "proven" if proven(ours) else "PROVEN WITHOUT"
    sign = -1 if ours.get("sense") == "max" else 1  # a bound is tighter when it is nearer to the objective
    bounds = ours.get("bound"), theirs.get("bound")
    return "tighter" if better(*bounds, sign) else "LOOSER" if better(*bounds[::-1], sign) else ""


def text_of(line: Line) -> str:
    """Return a line of the table."""
    parts = [f"{line['key']:44s} {line['known'][:14]:>14s}"]
    for way in ("with", "without"):
        found = line[way]
        if "error" in found:
            parts.append(f"{found['error'][:60]:>60s}")
            continue
        gap = "-" if found["gap"] is None else f"{100 * found['gap']:.3g} %"
        parts.append(
            f"{shown(found['objective']):>13s} {shown(found['bound']):>13s} {gap:>9s} {found['status']:10s}"
            f" {found['time']:7.2f} {found['judged']}"
        )
    return "  ".join([*parts, verdict(line["with"], line["without"])]).rstrip()


def count(lines: list[Line]) -> str:
    """Return how often which was better."""
    found = [verdict(line["with"], line["without"]) for line in lines]
    both = sum(proven(line["with"]) and proven(line["without"]) for line in lines)
    objectives = [(line["with"].get("objective"), line["without"].get("objective")) for line in lines]
    senses = [1 if line["with"].get("sense") == "max" else -1 for line in lines]
    more = sum(better(a, b, sign) for (a, b), sign in zip(objectives, senses, strict=True))
    less = sum(better(b, a, sign) for (a, b), sign in zip(objectives, senses, strict=True))
    return (
        f"{len(lines)} instances: proven by both {both}, with only {found.count('proven')}, without only"
        f" {found.count('PROVEN WITHOUT')}; bound tighter with {found.count('tighter')},"
        f" looser {found.count('LOOSER')}; objective better with {more}, worse {less}"
    )


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", device="cpu", only=True)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--leave", nargs="+", default=INGREDIENTS, choices=INGREDIENTS)
    parser.add_argument("--agents", type=int, default=0, help="divide every instance among so many")
    add_options(parser)
    given = parser.parse_args()
    if given.warm:
        warm_up(given)
    say = Report(__file__, given, limit=f"{given.limit:g} s", without=", ".join(given.leave))
    asked = ["--set", f"budget.memory={given.memory}", "--timeout", str(given.limit), "--device", given.device]
    asked += ["--agents", str(given.agents)] if given.agents else []
    less = [sys.executable, "-m", "benchmarks.bounds.without", *given.leave, "--", "solve", "--json"]

    def job(path: Path, entry: dict[str, str]) -> Job:
        def work(cores: set[int]) -> Line:
            solve = partial(run, path, *asked, limit=2 * given.limit + 60, cores=cores)
            line: Line = {"known": entry["optimum"]}
            for way, found in (("with", solve(command=COMMAND)), ("without", solve(command=less))):
                line[way] = {name: found[name] for name in _KEPT if name in found}
                if "error" not in found:
                    line[way]["judged"] = judged(entry, found)
            return line

        return Job("/".join(path.parts[-2:]), work)

    run_jobs([job(*one) for one in listed(instances("instances")) if given.only in str(one[0])], given)
    for line in lines_of(given):
        say(text_of(line))
    say(count(lines_of(given)))
    say.keep()


if __name__ == "__main__":
    main()
