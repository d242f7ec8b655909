"""Seconds taken beside seconds asked, over instances, methods, divisions, ranks and time budgets.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.deadlines [--only TEXT] [--every] [--seconds 2 5 20]
        [--device cpu] [--jobs 1] [--cores 2] [--part 0/4] [--program PATH] [--cold] [--lines FILE.jsonl]
        [--output FILE]

Each run is ``dmcmc solve`` in processes of its own, with one of the time budgets in turn (``--every``: with all). What
it took is by its own clock, which begins when kernels are compiled; ``wall`` is the processes' life. A run is marked
``LATE`` where it took more than max(1 s, 5 %) beyond what was asked, ``NONE`` where it has no assignment, ``KILLED``
where it did not end by itself. Every run is made once before with a tenth of a second, so that kernels are compiled
(not with ``--cold``). ``--jobs`` runs at once are pinned to ``--cores`` cores each. ``--lines`` keeps a JSON line a run
and goes on after those that it has. ``--program`` is another version's ``dmcmc``.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from benchmarks.harness import Columns, Report, options
from benchmarks.solving.runs import Run, command, runs

ALLOWED, SHARE = 1.0, 0.05  # seconds late, or this part of what was asked
WARM = 0.1  # seconds of a run that compiles
PATIENCE = 60.0  # seconds beyond three times what was asked, and beyond compiling
COMPILING = 600.0
COLUMNS = Columns(
    ("run", "<62"), ("asked", ">6g"), ("taken", ">7.2f"), ("wall", ">7.2f"), ("status", "<11"), ("objective", ">14.6g"),
    ("bound", ">14.6g"), ("broken", ">6d"), ("", "<24"),
)  # fmt: skip


def measure(run: Run, seconds: float, given: Namespace, folder: Path, cores: set[int]) -> dict[str, Any]:
    """Return what a run took, and what it found."""
    found: dict[str, Any] = {"run": run.name, "asked": seconds}
    if not given.cold:
        carry_out(run, WARM, given, folder, cores, COMPILING)
    limit = 3 * seconds + PATIENCE + (COMPILING if given.cold else 0)
    wall, code, answer, error = carry_out(run, seconds, given, folder, cores, limit)
    found |= {"wall": round(wall, 2), "code": code, "killed": code is None or code < 0 or code > 128}
    try:
        answered = json.loads(answer)
        found |= {key: answered[key] for key in ("time", "status", "objective", "bound", "violation")}
        found["assigned"] = bool(answered["assignment"]) or answered["status"] == "infeasible"
    except ValueError:
        found |= {"time": None, "status": "", "assigned": False, "error": error[-1][:200] if error else ""}
    taken = found["time"] if found["time"] is not None else wall
    found["late"] = taken > seconds + max(ALLOWED, SHARE * seconds)
    return found


def carry_out(
    run: Run, seconds: float, given: Namespace, folder: Path, cores: set[int], limit: float
) -> tuple[float, int | None, str, list[str]]:
    """Return a run's wall seconds, its exit status (None if it had to be killed), its answer and its errors."""
    words = command(run, folder, "--json", "--device", given.device, "--timeout", f"{seconds:g}")
    if given.program:
        at = words.index("dmcmc")
        words[at - 2 : at + 1] = [given.program]
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            words, stdout=out, stderr=err, start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        try:
            code: int | None = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = None
        wall = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        return wall, code, out.read(), err.read().strip().splitlines()


def chosen(given: Namespace) -> list[tuple[Run, float]]:
    """Return the runs that are wanted, each with its time budget."""
    found = runs(given.only, given.every)
    if given.every:
        wanted = [(run, seconds) for run in found for seconds in given.seconds]
    else:
        wanted = [(run, given.seconds[place % len(given.seconds)]) for place, run in enumerate(found)]
    first, parts = map(int, given.part.split("/"))
    return wanted[first::parts]


def main() -> int:
    """Measure, print."""
    parser = options(__file__, __doc__, device="cpu", only=True)
    parser.add_argument("--every", action="store_true", help="all methods, agents, ranks and seconds with each other")
    parser.add_argument("--seconds", nargs="+", type=float, default=[2.0, 5.0, 20.0])
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--cores", type=int, default=2, help="cores that each is pinned to")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th run from the I-th on")
    parser.add_argument("--program", default="", metavar="PATH", help="another version's dmcmc")
    parser.add_argument("--cold", action="store_true", help="compile in the measured runs")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl")
    given = parser.parse_args()
    kept: list[dict[str, Any]] = []
    if given.lines is not None and given.lines.exists():
        kept = [json.loads(line) for line in given.lines.read_text().splitlines()]
    before = {(line["run"], line["asked"]): line for line in kept}
    there, free = sorted(os.sched_getaffinity(0)), Queue[set[int]]()
    for job in range(given.jobs):
        free.put({there[(job * given.cores + i) % len(there)] for i in range(given.cores)})
    say = Report(__file__, given)
    say(COLUMNS.head)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:

        def work(place: tuple[Run, float]) -> dict[str, Any]:
            run, seconds = place
            if (run.name, seconds) in before:
                return before[run.name, seconds]
            cores = free.get()
            try:
                found = measure(run, seconds, given, Path(name), cores)
            finally:
                free.put(cores)
            if given.lines is not None:
                with given.lines.open("a") as lines:
                    lines.write(json.dumps(found) + "\n")
            return found

        counts = dict.fromkeys(("LATE", "NONE", "KILLED"), 0)
        wanted = chosen(given)
        for found in pool.map(work, wanted):
            marks = {"LATE": found["late"], "NONE": not found["assigned"], "KILLED": found["killed"]}
            for mark, is_so in marks.items():
                counts[mark] += is_so
            text = " ".join([*(mark for mark, is_so in marks.items() if is_so), found.get("error", "")]).strip()
            shown = (
                found.get(key) for key in ("run", "asked", "time", "wall", "status", "objective", "bound", "violation")
            )
            say(COLUMNS.line(*shown, text))
    late, none, killed = counts.values()
    say(
        f"{len(wanted)} runs, {late} more than {ALLOWED:g} s or {SHARE:.0%} late,"
        f" {none} without an assignment, {killed} killed"
    )
    say.keep()
    return int(sum(counts.values()) > 0)


if __name__ == "__main__":
    sys.exit(main())
