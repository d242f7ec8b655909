"""Run jobs concurrently, each pinned to a set of cores, and append one JSON line per finished job to a file.

A measurement that was stopped continues with the jobs that have no line yet. The raw lines are kept next to the table.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import Any, NamedTuple

from benchmarks.harness import ROOT, error_line
from dmcmc import generate
from dmcmc.formats.registry import save

_COLD_RUN_SECONDS = 300.0  # seconds: time limit of a run that may have to compile all of its kernels

JsonLine = dict[str, Any]


class PinnedJob(NamedTuple):
    """A unit of work of a measurement.

    Attributes
    ----------
    key : str
        Unique name of the job.
    work : callable
        Carries out the job on the given set of cores and returns its JSON line.
    """

    key: str
    work: Callable[[set[int]], JsonLine]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all scripts with jobs share."""
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent jobs")
    parser.add_argument("--cores", type=int, default=2, help="cores per job, if available (default 2)")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="run only jobs I, I + N, I + 2N, ...")
    parser.add_argument(
        "--lines", type=Path, metavar="FILE.jsonl", help="raw results; jobs that are listed there are skipped"
    )
    parser.add_argument("--compile-first", action="store_true", help="let every version compile its kernels before")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of another version to compare with")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS", help="start no job after SECONDS")


def programs(given: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command lines of this version (``now``) and, with ``--before``, of the other one."""
    command = [sys.executable, "-m", "dmcmc"]  # ``python -m`` takes the package from the current folder
    before = given.before.resolve() if given.before else None
    return {"now": command} | ({"before": ["env", f"--chdir={before}", *command]} if before else {})


def run_jobs(
    jobs: Sequence[PinnedJob], given: argparse.Namespace, done: Callable[[JsonLine], None] = lambda line: None
) -> None:
    """Run the jobs that have no JSON line yet; save each line and pass it to ``done`` as soon as the job has finished.

    Jobs that could not start within ``--within`` seconds are skipped. The same command with the same ``--lines`` file
    continues with them.
    """
    first, parts = map(int, given.part.split("/"))
    finished = {line["key"] for line in lines_of(given)}
    cores = sorted(os.sched_getaffinity(0))
    free: Queue[set[int]] = Queue()
    for job in range(given.jobs):
        free.put({cores[(job * given.cores + i) % len(cores)] for i in range(given.cores)})
    lock, start = Lock(), time.perf_counter()

    def run(job: PinnedJob) -> None:
        if time.perf_counter() - start > given.within:
            return
        used = free.get()
        try:
            line = {"key": job.key} | job.work(used)
        finally:
            free.put(used)
        with lock:
            given.finished.append(line)
            if given.lines is not None:
                with given.lines.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            done(line)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(run, [job for job in jobs[first::parts] if job.key not in finished]))


def lines_of(given: argparse.Namespace) -> list[JsonLine]:
    """Return the JSON lines of all finished jobs, those of earlier runs first."""
    if not hasattr(given, "finished"):
        has_file = given.lines is not None and given.lines.exists()
        given.finished = [json.loads(line) for line in given.lines.read_text().splitlines()] if has_file else []
    finished: list[JsonLine] = given.finished
    return finished


def run_pinned(command: Sequence[str], cores: set[int], limit: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command on some cores, from the root of the project; return None if it exceeded ``limit`` seconds."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            cwd=ROOT,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        return None


def compile_kernels(
    given: argparse.Namespace, more_commands: Callable[[Sequence[str]], Iterable[Sequence[str]]] | None = None
) -> None:
    """Let each version solve small problems that use most kernels, so that these are compiled and in the cache.

    Parameters
    ----------
    given : Namespace
        The parsed options.
    solving : callable, optional
        Returns the commands that a version runs afterwards, given its command line, to compile its other kernels.
    """
    options = argparse.Namespace(jobs=given.jobs, cores=given.cores, part="0/1", lines=None, within=math.inf)
    versions = programs(given).values()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "warm-up.npz")
        save(generate("meeting-scheduling", agents=3, variables_per_agent=30, domain_size=12), file)
        extra_options: list[Sequence[str]] = [(), ("--method", "annealing")]
        commands = [
            [*program, "solve", str(file), "--timeout", "1", *more] for program in versions for more in extra_options
        ]
        run_jobs([_compile_job(command) for command in commands], options)
    if more_commands is not None:
        run_jobs([_compile_job(command) for program in versions for command in more_commands(program)], options)


def _compile_job(command: Sequence[str]) -> PinnedJob:
    """Return a job that runs a command on the CPU, after its kernels are compiled, and ignores its result."""

    def work(cores: set[int]) -> JsonLine:
        # without DMCMC_COMPILE=first, a short run ends with kernels that are not compiled
        run_pinned(["env", "DMCMC_COMPILE=first", *command, "--device", "cpu"], cores, _COLD_RUN_SECONDS)
        return {}

    return PinnedJob(shlex.join(command), work)


def solve_to_json(command: Sequence[str], cores: set[int], limit: float) -> JsonLine:
    """Return the result of ``dmcmc ... --json`` without agents and provenance; ``error`` says why there is none."""
    start = time.perf_counter()
    done = run_pinned([*command, "--json", "--device", "cpu"], cores, limit)
    wall = round(time.perf_counter() - start, 2)
    if done is None:
        return {"wall": wall, "error": f"stopped after {limit:g} s"}
    try:
        found: JsonLine = json.loads(done.stdout)
    except ValueError:
        return {"wall": wall, "code": done.returncode, "error": error_line(done)[:300]}
    fields = ("status", "objective", "bound", "gap", "violation", "time", "cycle", "assignment", "trace")
    line = {name: found.get(name) for name in fields}
    line["methods"] = sorted({agent["method"] for agent in found["agents"]})
    return {"wall": wall, "code": done.returncode, **line}
