"""Solve every instance as ``dmcmc solve`` does, in a separate process each, and compare with the known optimum.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.solve_instances [--limit 60] [--only TEXT] [--timed] [--jobs N]

FOLDER holds instances/ with its MANIFEST.csv. An instance whose plan fits the memory is solved exactly, without a time
limit; the others get ``--timeout LIMIT``, and are stopped after twice that time. With ``--timed``, all get that time
limit at once, and partition functions are skipped. ``--jobs`` solves instances concurrently, on different cores. Times
are those of the solve, without start-up and reading. The last columns are log10 of the partition function, ours and
that of the list, if the manifest has one.

With ``--timed --before FOLDER``, each instance is also solved by that checkout, on the same cores: this version, the
other one and, if the latter has proven it, both again. The last columns are the least seconds to a proof of this
version and of the other, and ``SLOWER`` if this version takes more than 1.2 times as long plus a tenth of a second, or
has not proven what the other has.

With ``--timed --toulbar2``, they are the objective that toulbar2 finds alone, on one core with the same time limit, and
its seconds to a proof (``-``: none). ``late``: toulbar2 alone has a proof, but the run (which has toulbar2 in the
background) has none within 1.5 times those seconds plus two.
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

from benchmarks.harness import Report, error_line, instances, options
from benchmarks.jobs import JsonLine, PinnedJob, add_options, compile_kernels, programs, run_jobs, run_pinned
from benchmarks.toulbar2 import search_alone

# toulbar2 counts the least cost of a dense table over four or more variables twice; its own assignment has this cost
CORRECTED = {"alarm.cfn.gz": "3.086727"}
# a run counts as slower from this ratio and these seconds on
_SLOWER_RATIO = 1.2
_SLOWER_SECONDS = 0.1
COMMAND = [sys.executable, "-m", "dmcmc", "solve", "--json"]


def manifest_files(root: Path) -> list[tuple[Path, dict[str, str]]]:
    """Return the files of the manifest, each with its line."""
    with open(root / "MANIFEST.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    return [(root / line["family"] / line["file"], line) for line in lines]


def run(path: Path, *options: str, limit: float, cores: set[int], command: Sequence[str] = COMMAND) -> dict[str, Any]:
    """Return the JSON result of ``solve``; ``{"error": line}`` for a failure."""
    start = time.perf_counter()
    done = run_pinned([*command, str(path), *options], cores, limit)
    if done is None:
        return {"error": f"stopped after {time.perf_counter() - start:.0f} s"}
    if done.returncode in (0, 3):
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    return {"error": error_line(done).replace(str(path), path.name)}


def verdict_of(line: dict[str, str], found: dict[str, Any]) -> str:
    """Return the verdict by the manifest: right, around (bound and objective enclose the optimum), WRONG or nothing."""
    known = CORRECTED.get(line["file"], line["optimum"])
    if found["status"] == "infeasible":
        return "right" if known == "INFEASIBLE" else "WRONG"
    if known in ("", "INFEASIBLE") or found["objective"] is None:
        return "" if known != "INFEASIBLE" else "no proof"
    if known.startswith("cost"):  # in a unit that the file does not name
        return ""
    best, proven = float(known.split()[-1]), line["optimum_status"].startswith(("proved", "from"))
    tolerance = 6e-4 + 1e-9 * abs(best) if line["format"] in ("uai", "bif.gz") else 1e-6 * max(1.0, abs(best))
    sign = 1 if found["sense"] == "max" else -1
    objective, bound = sign * found["objective"], None if found["bound"] is None else sign * found["bound"]
    best *= sign
    if (proven and objective > best + tolerance) or (bound is not None and bound < best - tolerance):
        return "WRONG"
    if found["status"] == "optimal":
        return "right" if abs(objective - best) <= tolerance or not proven else "WRONG"
    return "around" if bound is not None else "no bound"


def shown(value: float | int | None) -> str:
    """Return a number with at most nine significant digits."""
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.9g}"


def measured(path: Path, line: dict[str, str], given: argparse.Namespace, cores: set[int]) -> str:
    """Solve one instance; return its line of the table."""
    memory_options, limit = ["--set", f"budget.memory={given.memory}"], given.limit
    timed = partial(run, path, *memory_options, "--timeout", str(limit), limit=2 * limit + 30, cores=cores)
    found = timed() if given.timed else run(path, "--method", "exact", *memory_options, limit=10 * limit, cores=cores)
    if not given.timed and "error" in found and ("budget.memory" in found["error"] or "stopped" in found["error"]):
        found = timed()
    extra_columns = compared(path, found, limit) if given.timed and given.toulbar2 else ""
    if given.timed and given.before:
        solve_before = partial(timed, command=[*programs(given)["before"], "solve", "--json"])
        other = solve_before()
        repeats = [solve_before(), timed()] if proven(other) else []
        extra_columns += paired([found, *repeats[1:]], [other, *repeats[:1]])
    if "error" in found:
        return f"{line['file']:34s} {line['optimum'][:14]:>14s} {found['error'][:110]}{extra_columns}"
    gap = "-" if found["gap"] is None else f"{100 * found['gap']:.3g} %"
    text = (
        f"{line['file']:34s} {line['optimum'][:14]:>14s} {shown(found['objective']):>14s} {shown(found['bound']):>14s}"
        f" {gap:>9s} {found['status']:11s} {verdict_of(line, found):9s} {found['time']:8.2f}"
    )
    text += extra_columns
    known = line["pr_log10_ours"] or line["pr_log10_list"]
    if known and not given.timed:
        sums = run(path, "--task", "pr", *memory_options, limit=10 * limit, cores=cores)
        text += f"  {shown(sums.get('log10')):>12s} {known:>11s}" if "error" not in sums else f"  {sums['error'][:60]}"
    return text


def proven(found: dict[str, Any]) -> bool:
    """Return whether a run has ended with a proof."""
    return found.get("status") in ("optimal", "infeasible")


def paired(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> str:
    """Return the columns that compare the seconds to a proof of this version and of another."""
    now, before = (min(run["time"] if proven(run) else math.inf for run in runs) for runs in (ours, theirs))
    slower = before < math.inf and now > _SLOWER_RATIO * before + _SLOWER_SECONDS
    columns = [f"{value:.2f}" if value < math.inf else "-" for value in (now, before)]
    return f"  {columns[0]:>8s} {columns[1]:>8s} {'SLOWER' if slower else ''}".rstrip()


def compared(path: Path, found: dict[str, Any], limit: float) -> str:
    """Return the columns that compare a run with toulbar2 alone."""
    peer = search_alone(path, limit)
    late = peer.proven and not (proven(found) and found["time"] <= 1.5 * peer.seconds + 2)
    source = (
        "found by toulbar2" if any(point["found_by"] == "toulbar2" for point in found.get("trace", ())[-1:]) else ""
    )
    seconds = f"{peer.seconds:.2f}" if peer.proven else "-"
    return f"  {shown(peer.objective):>14s} {seconds:>8s} {'late' if late else '':4s} {source}".rstrip()


def main() -> None:
    """Print and write the table."""
    parser = options(__file__, __doc__, memory="16GiB", only=True)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument(
        "--most",
        type=float,
        default=math.inf,
        help="skip instances with larger tables (log10 of entries, by the manifest)",
    )
    parser.add_argument(
        "--timed", action="store_true", help="solve all with the time limit, and no partition functions"
    )
    parser.add_argument("--toulbar2", action="store_true", help="with --timed: also solve with toulbar2 alone")
    add_options(parser)
    given = parser.parse_args()
    if given.compile_first:
        compile_kernels(given)
    report = Report(__file__, given, exact_up_to=f"{given.memory:.3g} bytes", otherwise=f"{given.limit:g} s")
    report(
        f"{'file':34s} {'known':>14s} {'objective':>14s} {'bound':>14s} {'gap':>9s} {'status':11s} {'':9s}"
        f" {'time s':>8s}  {'log10 Z':>12s} {'known':>11s}"
    )
    chosen = [
        (path, line)
        for path, line in manifest_files(instances("instances"))
        if given.only in str(path) and float(line["log10_largest_table"] or 0) <= given.most
    ]

    def job(path: Path, line: dict[str, str]) -> PinnedJob:
        def work(cores: set[int]) -> JsonLine:
            return {"text": measured(path, line, given, cores)}

        return PinnedJob("/".join(path.parts[-2:]), work)

    run_jobs([job(path, line) for path, line in chosen], given, lambda line: report(str(line["text"])))
    report.keep()


if __name__ == "__main__":
    main()
