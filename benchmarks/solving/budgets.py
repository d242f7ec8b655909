"""Measure the time taken and the peak memory, and compare them with the budgets, over instances, methods and ranks.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.budgets [--only TEXT] [--every] [--seconds 2 5 20]
        [--memory 500MiB 2GiB auto] [--device cpu] [--cold] [--jobs 7] [--cores 2] [--lines FILE.jsonl] [--output FILE]

Each run is ``dmcmc solve`` in separate processes, pinned to ``--cores`` cores, with one of the time limits in turn
(``--every``: with all methods, agents, ranks and seconds), once with each memory limit. The time taken is that of its
own clock, which starts when kernels are compiled; ``wall`` is the lifetime of the processes. The peak is the largest
VmHWM of one rank, read from the system while it runs. The marks are

* ``LATE``: more than max(1 s, 5 %) above the time limit;
* ``WATCHED``: some work did not stop in time, so the clock's own thread delivered the incumbent (the raw lines say
  which work it was);
* ``NONE``: no assignment; ``KILLED``: it did not end by itself;
* ``OVER``: a peak more than 300 MB above the memory limit.

Every run is made once before with a tenth of a second, so that its kernels are compiled (not with ``--cold``).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

from benchmarks.harness import Columns, Report, options
from benchmarks.jobs import JsonLine, PinnedJob, add_options, lines_of, run_jobs
from benchmarks.solving.budget_runs import BudgetRun, command, runs
from dmcmc.config.settings import automatic_memory, bytes_of

# a run may be late by these seconds, or by this part of its time limit
LATE_SECONDS = 1.0
LATE_SHARE = 0.05
EXCESS_BYTES = 300 * 10**6  # bytes that a peak may be above the memory limit
COMPILE_RUN_SECONDS = 0.1  # seconds of a run that compiles the kernels
PATIENCE_SECONDS = 60.0  # seconds after three times the time limit at which a run is stopped
COMPILE_SECONDS = 600.0  # additional seconds of a run that compiles kernels
SAMPLE_SECONDS = 0.02  # seconds between two readings of the memory
MARKS = ("LATE", "WATCHED", "NONE", "KILLED", "OVER")
COLUMNS = Columns(
    ("run", "<62"), ("asked", ">6g"), ("taken", ">7.2f"), ("wall", ">7.2f"), ("budget", ">7"), ("MB", ">6d"),
    ("peak", ">6d"), ("status", "<10"), ("objective", ">12.6g"), ("bound", ">12.6g"), ("", "<24"),
)  # fmt: skip


def measure(run: BudgetRun, seconds: float, memory: str, given: Namespace, folder: Path, cores: set[int]) -> JsonLine:
    """Return the measurements and the answer of a run."""
    allowed = bytes_of(memory) if memory != "auto" else automatic_memory(run.ranks)
    found: JsonLine = {"run": run.name, "asked": seconds, "budget": memory, "bytes": allowed, "device": given.device}
    if not given.cold:
        carry_out(run, COMPILE_RUN_SECONDS, memory, given, folder, cores, COMPILE_SECONDS)
    limit = 3 * seconds + PATIENCE_SECONDS + (COMPILE_SECONDS if given.cold else 0)
    wall, code, peak, answer, errors = carry_out(run, seconds, memory, given, folder, cores, limit)
    found |= {"wall": round(wall, 2), "code": code, "peak": peak, "time": None, "status": "", "assigned": False}
    try:
        result = json.loads(answer)
        found |= {key: result[key] for key in ("time", "status", "objective", "bound", "violation", "note")}
        found["assigned"] = bool(result["assignment"]) or result["status"] == "infeasible"
    except ValueError:
        found["error"] = errors[-1][:300] if errors else ""
    taken = found["time"] if found["time"] is not None else wall
    late = [line.removeprefix("dmcmc: late: ") for line in errors if line.startswith("dmcmc: late: ")]
    marks = {
        "LATE": taken > seconds + max(LATE_SECONDS, LATE_SHARE * seconds),
        "WATCHED": bool(late),
        "NONE": not found["assigned"],
        "KILLED": code is None or code < 0 or code > 128,
        "OVER": peak > allowed + EXCESS_BYTES,
    }
    return found | {"marks": [mark for mark in MARKS if marks[mark]], "late in": late}


def carry_out(
    run: BudgetRun, seconds: float, memory: str, given: Namespace, folder: Path, cores: set[int], limit: float
) -> tuple[float, int | None, int, str, list[str]]:
    """Return a run's wall seconds, exit status (None if it had to be killed), peak memory, answer and error lines."""
    options = ["--json", "--device", given.device, "--timeout", f"{seconds:g}", "--set", f"budget.memory={memory}"]
    arguments = command(run, folder, *options)
    start, peak_bytes = time.perf_counter(), dict[int, int]()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            arguments, stdout=out, stderr=err, start_new_session=True, env=os.environ | {"DMCMC_DEBUG": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip
        code: int | None = None
        while (code := process.poll()) is None:
            for pid, size in peaks(process.pid).items():
                peak_bytes[pid] = max(size, peak_bytes.get(pid, 0))
            if time.perf_counter() - start > limit:
                os.killpg(process.pid, 9)
                process.wait()
                break
            time.sleep(SAMPLE_SECONDS)
        wall = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        return wall, code, max(peak_bytes.values(), default=0), out.read(), err.read().strip().splitlines()


def peaks(root: int) -> dict[int, int]:
    """Return the peak resident bytes of a process and of all its descendants, by process."""
    found, stack = dict[int, int](), [root]
    while stack:
        pid = stack.pop()
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            for task in Path(f"/proc/{pid}/task").iterdir():
                stack += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                found[pid] = 1024 * int(line.split()[1])
    return found


def jobs_of(given: Namespace, folder: Path) -> list[PinnedJob]:
    """Return a job for each run, time limit and memory limit."""
    jobs = []
    for number, run in enumerate(runs(given.only, given.every)):
        for seconds in given.seconds if given.every else [given.seconds[number % len(given.seconds)]]:
            for memory in given.memory:
                key = f"{run.name}, {seconds:g} s, {memory}, {given.device}"
                jobs.append(PinnedJob(key, partial(measure, run, seconds, memory, given, folder)))
    return jobs


def shown(line: JsonLine) -> str:
    """Return a run's line of the table."""
    text = " ".join([*line["marks"], *line["late in"], line.get("error", "")]).strip()
    return COLUMNS.line(
        line["run"], line["asked"], line["time"], line["wall"], line["budget"], line["bytes"] // 10**6,
        line["peak"] // 10**6, line["status"], line.get("objective"), line.get("bound"), text,
    )  # fmt: skip


def main() -> int:
    """Measure and print."""
    parser = options(__file__, __doc__, device="cpu", only=True)
    parser.add_argument("--every", action="store_true", help="all methods, agents, ranks and seconds with each other")
    parser.add_argument("--seconds", nargs="+", type=float, default=[2.0, 5.0, 20.0])
    parser.add_argument("--memory", nargs="+", default=["auto"], metavar="BYTES", help="such as 500MiB 2GiB auto")
    parser.add_argument("--cold", action="store_true", help="compile in the measured runs")
    add_options(parser)
    given = parser.parse_args()
    report = Report(__file__, given)
    report(COLUMNS.head)
    with tempfile.TemporaryDirectory() as name:
        jobs = jobs_of(given, Path(name))
        for line in lines_of(given):
            report(shown(line))
        run_jobs(jobs, given, lambda line: report(shown(line)))
    counts = [sum(mark in line["marks"] for line in lines_of(given)) for mark in MARKS]
    texts = (f"{count} {mark.lower()}" for count, mark in zip(counts, MARKS, strict=True))
    report(f"{len(lines_of(given))} runs: {', '.join(texts)}")
    report.keep()
    return int(any(count for count, mark in zip(counts, MARKS, strict=True) if mark != "WATCHED"))


if __name__ == "__main__":
    sys.exit(main())
