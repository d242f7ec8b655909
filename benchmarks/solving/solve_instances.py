"""Solve every instance as ``dmcmc solve`` does, each in a process of its own, and compare with the known optimum.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.solve_instances [--limit 60] [--only TEXT] [--timed] [--jobs N]

FOLDER holds instances/ with its MANIFEST.csv. An instance whose plan fits the memory is solved exactly, without a time
limit; the others get ``--timeout LIMIT`` and are stopped after twice that. With ``--timed`` all get that at once, and
partition functions are left out. ``--jobs`` runs instances side by side, each on cores of its own. Times are those
of the solve, start-up and reading not counted. The last columns are log10 of the partition function, ours and that of
the list, where the manifest has one.

With ``--timed --before FOLDER`` each instance is solved by that checkout, too, on the same cores: now, before, and
where that has proven it, before and now again. The last columns are the least seconds of both in which they have
proven it, and ``SLOWER`` where this version takes more than 1.2 times as long and a tenth of a second, or has not
proven what the other has.

With ``--timed --toulbar2`` they are what toulbar2 finds alone, on one core in as many seconds, and when it has proven
it (``-``: it has not); ``late`` where it has, and the run, beside which it is too, has not in 1.5 times its seconds and
two.
"""

import argparse
import csv
import json
import math
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, failed, instances, options
from benchmarks.jobs import Job, Line, add_options, programs, run_jobs, run_pinned, warm_up
from benchmarks.toulbar2 import alone

# toulbar2 counts the least cost of a dense table over four or more variables twice; its own assignment has this cost.
CORRECTED = {"alarm.cfn.gz": "3.086727"}
_SLOWER, _NOTICED = 1.2, 0.1  # times, and seconds
COMMAND = [sys.executable, "-m", "dmcmc", "solve", "--json"]


def listed(root: Path) -> list[tuple[Path, dict[str, str]]]:
    """Return the files of the manifest, each with its line."""
    with open(root / "MANIFEST.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    return [(root / line["family"] / line["file"], line) for line in lines]


def run(path: Path, *options: str, limit: float, cores: set[int], command: Sequence[str] = COMMAND) -> dict[str, Any]:
    """Return what ``solve`` prints; ``{"error": line}`` for a failure."""
    start = time.perf_counter()
    done = run_pinned([*command, str(path), *options], cores, limit)
    if done is None:
        return {"error": f"stopped after {time.perf_counter() - start:.0f} s"}
    if done.returncode in (0, 3):
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    return {"error": failed(done).replace(str(path), path.name)}


def judged(line: dict[str, str], found: dict[str, Any]) -> str:
    """Return what the manifest says of a result: right, around (bound and objective enclose it), WRONG or nothing."""
    known = CORRECTED.get(line["file"], line["optimum"])
    if found["status"] == "infeasible":
        return "right" if known == "INFEASIBLE" else "WRONG"
    if known in ("", "INFEASIBLE") or found["objective"] is None:
        return "" if known != "INFEASIBLE" else "no proof"
    if known.startswith("cost"):  # in a unit that the file does not say
        return ""
    best, proven = float(known.split()[-1]), line["optimum_status"].startswith(("proved", "from"))
    slack = 6e-4 + 1e-9 * abs(best) if line["format"] in ("uai", "bif.gz") else 1e-6 * max(1.0, abs(best))
    sign = 1 if found["sense"] == "max" else -1
    objective, bound = sign * found["objective"], None if found["bound"] is None else sign * found["bound"]
    best *= sign
    if (proven and objective > best + slack) or (bound is not None and bound < best - slack):
        return "WRONG"
    if found["status"] == "optimal":
        return "right" if abs(objective - best) <= slack or not proven else "WRONG"
    return "around" if bound is not None else "no bound"


def shown(value: float | int | None) -> str:
    """Return a number in at most ten digits."""
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.9g}"


def measured(path: Path, line: dict[str, str], given: argparse.Namespace, cores: set[int]) -> str:
    """Solve one instance; return its line of the table."""
    within, limit = ["--set", f"budget.memory={given.memory}"], given.limit
    timed = partial(run, path, *within, "--timeout", str(limit), limit=2 * limit + 30, cores=cores)
    found = timed() if given.timed else run(path, "--method", "exact", *within, limit=10 * limit, cores=cores)
    if not given.timed and "error" in found and ("budget.memory" in found["error"] or "stopped" in found["error"]):
        found = timed()
    beside = compared(path, found, limit) if given.timed and given.toulbar2 else ""
    if given.timed and given.before:
        before = partial(timed, command=[*programs(given)["before"], "solve", "--json"])
        theirs = before()
        again = [before(), timed()] if proven(theirs) else []
        beside += paired([found, *again[1:]], [theirs, *again[:1]])
    if "error" in found:
        return f"{line['file']:34s} {line['optimum'][:14]:>14s} {found['error'][:110]}{beside}"
    gap = "-" if found["gap"] is None else f"{100 * found['gap']:.3g} %"
    text = (
        f"{line['file']:34s} {line['optimum'][:14]:>14s} {shown(found['objective']):>14s} {shown(found['bound']):>14s}"
        f" {gap:>9s} {found['status']:11s} {judged(line, found):9s} {found['time']:8.2f}"
    )
    text += beside
    known = line["pr_log10_ours"] or line["pr_log10_list"]
    if known and not given.timed:
        sums = run(path, "--task", "pr", *within, limit=10 * limit, cores=cores)
        text += f"  {shown(sums.get('log10')):>12s} {known:>11s}" if "error" not in sums else f"  {sums['error'][:60]}"
    return text


def proven(found: dict[str, Any]) -> bool:
    """Return whether a run has ended with a proof."""
    return found.get("status") in ("optimal", "infeasible")


def paired(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> str:
    """Return the seconds to a proof of runs now, and before; and whether it is slower."""
    now, before = (min(run["time"] if proven(run) else math.inf for run in runs) for runs in (ours, theirs))
    slower = before < math.inf and now > _SLOWER * before + _NOTICED
    columns = [f"{value:.2f}" if value < math.inf else "-" for value in (now, before)]
    return f"  {columns[0]:>8s} {columns[1]:>8s} {'SLOWER' if slower else ''}".rstrip()


def compared(path: Path, found: dict[str, Any], limit: float) -> str:
    """Return what toulbar2 finds alone, when it is through, and whether a run was later than it may be."""
    theirs = alone(path, limit)
    late = theirs.proven and not (proven(found) and found["time"] <= 1.5 * theirs.seconds + 2)
    by = "by toulbar2" if any(point["by"] == "toulbar2" for point in found.get("trace", ())[-1:]) else ""
    seconds = f"{theirs.seconds:.2f}" if theirs.proven else "-"
    return f"  {shown(theirs.objective):>14s} {seconds:>8s} {'late' if late else '':4s} {by}".rstrip()


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", only=True)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--most", type=float, default=math.inf, help="largest tables, as log10 of the manifest")
    parser.add_argument("--timed", action="store_true", help="the limit for all of them, and no partition functions")
    parser.add_argument("--toulbar2", action="store_true", help="with --timed: what toulbar2 does alone")
    add_options(parser)
    given = parser.parse_args()
    if given.warm:
        warm_up(given)
    say = Report(__file__, given, plans_of_at_most=f"{given.memory:.3g} bytes", then=f"{given.limit:g} s")
    say(
        f"{'file':34s} {'known':>14s} {'objective':>14s} {'bound':>14s} {'gap':>9s} {'status':11s} {'':9s}"
        f" {'time s':>8s}  {'log10 Z':>12s} {'known':>11s}"
    )
    chosen = [
        (path, line)
        for path, line in listed(instances("instances"))
        if given.only in str(path) and float(line["log10_largest_table"] or 0) <= given.most
    ]

    def job(path: Path, line: dict[str, str]) -> Job:
        def work(cores: set[int]) -> Line:
            return {"text": measured(path, line, given, cores)}

        return Job("/".join(path.parts[-2:]), work)

    run_jobs([job(path, line) for path, line in chosen], given, lambda line: say(str(line["text"])))
    say.keep()


if __name__ == "__main__":
    main()
