"""Peak resident memory beside the budget, over instances, methods, divisions and ranks.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.memory [--only TEXT] [--every] [--budgets 500MiB 2GiB auto]
        [--timeout 5] [--jobs 1] [--part 0/4] [--lines FILE.jsonl] [--output FILE]

Each run is ``dmcmc solve`` in processes of its own (on the CPU). Its peak is the largest VmHWM of one rank, read from
the system while it runs. A line is marked ``OVER`` where that is more than the budget and 300 MB, ``KILLED`` where a
signal ended it. ``--lines`` keeps a JSON line a run and goes on after those that it has. ``--timeout 0``: fixed work.
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
from dmcmc.config.settings import automatic_memory
from dmcmc.config.units import bytes_of

ALLOWED = 300 * 10**6  # bytes beyond the budget: the interpreter, its libraries, compiled code
EVERY = 0.02  # seconds between two looks


def peaks(root: int) -> dict[int, int]:
    """Return the peak resident bytes of a process and all below it, by process."""
    found, waiting = dict[int, int](), [root]
    while waiting:
        pid = waiting.pop()
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                found[pid] = 1024 * int(line.split()[1])
    return found


def measure(run: Run, budget: str, given: Namespace, folder: Path, cores: set[int]) -> dict[str, Any]:
    """Return what a run took."""
    more = ["--json", "--device", "cpu", "--set", f"budget.memory={budget}"]
    more += ["--timeout", f"{given.timeout:g}"] if given.timeout else []
    allowed = bytes_of(budget) if budget != "auto" else automatic_memory(run.ranks)
    start, most = time.perf_counter(), dict[int, int]()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command(run, folder, *more), stdout=out, stderr=err, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        while process.poll() is None:
            for pid, bytes_ in peaks(process.pid).items():
                most[pid] = max(bytes_, most.get(pid, 0))
            if time.perf_counter() - start > given.limit:
                process.kill()
            time.sleep(EVERY)
        out.seek(0)
        err.seek(0)
        answer, error = out.read(), err.read().strip().splitlines()
    seconds = time.perf_counter() - start
    peak = max(most.values(), default=0)
    found = {"run": run.name, "budget": budget, "bytes": allowed, "peak": peak, "seconds": round(seconds, 2)}
    found |= {"code": process.returncode, "over": peak > allowed + ALLOWED, "killed": _killed(process.returncode)}
    try:
        answered = json.loads(answer)
        found |= {key: answered[key] for key in ("status", "objective", "bound")}
    except ValueError:
        found |= {"status": "", "error": error[-1][:200] if error else ""}
    return found


def _killed(code: int) -> bool:
    """Return whether a signal ended a run, or one of its ranks (launchers say 128 + its number)."""
    return code < 0 or code > 128


def main() -> int:
    """Measure, print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--every", action="store_true", help="all methods, agents and ranks with each other")
    parser.add_argument("--budgets", nargs="+", default=["500MiB", "2GiB", "auto"])
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds asked of each run; 0: fixed work")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run is ended")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each pinned to its part of the cores")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th run from the I-th on")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl")
    given = parser.parse_args()
    first, parts = map(int, given.part.split("/"))
    wanted = [(run, budget) for run in runs(given.only, given.every) for budget in given.budgets][first::parts]
    kept: list[dict[str, Any]] = []
    if given.lines is not None and given.lines.exists():
        kept = [json.loads(line) for line in given.lines.read_text().splitlines()]
    before = {(line["run"], line["budget"]): line for line in kept}
    all_cores = sorted(os.sched_getaffinity(0))
    free: Queue[set[int]] = Queue()
    for job in range(given.jobs):
        free.put(set(all_cores[job :: given.jobs]) or {all_cores[job % len(all_cores)]})
    columns = Columns(("run", "<62"), ("budget", ">8"), ("MB", ">7d"), ("peak", ">7d"), ("s", ">6.1f"), ("", "<24"))
    say = Report(__file__, given)
    say(columns.head)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:

        def work(place: tuple[Run, str]) -> dict[str, Any]:
            run, budget = place
            if (run.name, budget) in before:
                return before[run.name, budget]
            cores = free.get()
            try:
                found = measure(run, budget, given, Path(name), cores)
            finally:
                free.put(cores)
            if given.lines is not None:
                with given.lines.open("a") as lines:
                    lines.write(json.dumps(found) + "\n")
            return found

        over = killed = 0
        for found in pool.map(work, wanted):
            over, killed = over + found["over"], killed + found["killed"]
            marks = ["OVER"] * found["over"] + ["KILLED"] * found["killed"]
            megabytes = (found["bytes"] // 10**6, found["peak"] // 10**6)
            text = " ".join([*marks, found["status"] or found.get("error", "")])
            say(columns.line(found["run"], found["budget"], *megabytes, found["seconds"], text))
    say(f"{len(wanted)} runs, {over} over the budget and 300 MB, {killed} killed")
    say.keep()
    return int(over + killed > 0)


if __name__ == "__main__":
    sys.exit(main())
