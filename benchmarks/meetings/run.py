"""Solve real and generated meeting schedules with and without the extra, compared with CP-SAT and RC2 alone.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.meetings.run [--timeout 60] [--lines FILE.jsonl] [--only TEXT]
        [--programs with without cp-sat-alone maxsat-alone]

Problems are the 16 business-to-business files in ``FOLDER/realworld/b2b``, Timefold's file with 50 meetings, two
problems like it with 100 and 200 meetings, and with ``--calbench`` the tasks of CalBench. ``without`` uses no engine of
another package; ``with`` takes the engine that ``search: auto`` chooses; the programs ``...-alone`` are the engines
with one worker. Every answer is checked by the definition of its problem (``checked``), without any factor. ``first``
is the time of the first feasible schedule. A measurement that was stopped goes on with what ``--lines`` lacks.
"""

import csv
import json
import os
import sys
from pathlib import Path

from benchmarks import jobs
from benchmarks.harness import Columns, Report, options
from benchmarks.jobs import JsonLine, PinnedJob
from benchmarks.meetings.one_run import SEARCH

PROGRAMS = (*SEARCH, "cp-sat-alone", "maxsat-alone")
GENERATED = ("generated:100", "generated:200")
_COLUMNS = Columns(
    ("problem", "<36"), ("program", "<14"), ("status", "<10"), ("first [s]", ">9.1f"), ("objective", ">34"),
    ("bound", ">34"), ("seconds", ">7.1f"), ("MiB", ">5.0f"),
)  # fmt: skip


def instances(root: Path, with_calbench: bool) -> dict[str, str]:
    """Return the instances by their short names, as ``one_run`` takes them."""
    found = {}
    with open(root / "b2b" / "MANIFEST.csv", newline="") as stream:
        for line in csv.DictReader(stream):
            found[line["file"].removeprefix("data_").removesuffix(".dzn")] = str(root / "b2b" / line["file"])
    for file in sorted((root / "timefold").glob("*.json*")):
        found[file.name.partition(".")[0]] = str(file)
    found |= {name: name for name in GENERATED}
    if with_calbench:
        file = root / "calbench" / "uniform.jsonl"
        with open(file) as stream:
            found |= {f"calbench {number}": f"{file}:{number}" for number, _ in enumerate(stream)}
    return found


def job(short: str, name: str, program: str, seconds: float) -> PinnedJob:
    """Return the job of a run."""

    def work(cores: set[int]) -> JsonLine:
        command = [sys.executable, "-m", "benchmarks.meetings.one_run", program, name, f"{seconds:g}"]
        done = jobs.run_pinned(command, cores, seconds + 60)
        line: JsonLine = {"problem": short, "program": program}
        if done is None:
            return line | {"status": "stopped"}
        try:
            found: JsonLine = json.loads(done.stdout.splitlines()[-1])
            return line | found
        except (IndexError, json.JSONDecodeError):
            return line | {"error": done.stderr.strip().rpartition("\n")[2] or "printed nothing"}

    return PinnedJob(f"{program} {short}", work)


def line_of(line: JsonLine) -> str:
    """Return the printed line of a run; levels are joined by slashes."""
    if "error" in line:
        return f"{line['problem']:36} {line['program']:14} {line['error']}"
    levels = line.get("levels") or []
    objective, bound = (
        "/".join("-" if level[i] is None else str(level[i]) for level in levels) if levels else str(line.get(name))
        for i, name in ((1, "objective"), (2, "bound"))
    )
    memory = None if line.get("memory") is None else line["memory"] / 2**20
    head = line["problem"], line["program"], line["status"], line.get("first")
    return _COLUMNS.line(*head, objective, bound, line.get("seconds"), memory)


def main() -> None:
    """Run the selected programs on the selected problems."""
    parser = options(__file__, __doc__ or "", only=True)
    jobs.add_options(parser)
    parser.add_argument("--timeout", type=float, default=60.0, help="time limit of a run in seconds (default 60)")
    chosen = ["with", "without", "cp-sat-alone", "maxsat-alone"]
    parser.add_argument("--programs", nargs="+", default=chosen, choices=PROGRAMS)
    parser.add_argument("--calbench", action="store_true", help="also the tasks of CalBench")
    given = parser.parse_args()
    if "DMCMC_INSTANCES" not in os.environ:
        sys.exit("set DMCMC_INSTANCES to the folder that contains realworld/")
    report = Report(__file__, given, timeout=f"{given.timeout:g} s", cores=given.cores, jobs=given.jobs)
    report(_COLUMNS.head)
    root = Path(os.environ["DMCMC_INSTANCES"]) / "realworld"
    pinned = [
        job(short, name, program, given.timeout)
        for short, name in instances(root, given.calbench).items()
        for program in given.programs
        if given.only in short and (program != "maxsat-alone" or name.endswith(".dzn"))
    ]
    jobs.run_jobs(pinned, given, lambda line: report(line_of(line)))
    report.keep()


if __name__ == "__main__":
    main()
