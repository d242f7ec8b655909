"""Jobs side by side, each pinned to cores of its own, with a JSON line for each that is done: what is there is kept.

So a long measurement can be stopped and go on, and its raw lines lie beside its table.
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

from benchmarks.harness import ROOT, failed
from dmcmc import generate
from dmcmc.formats.registry import save

COLD = 300.0  # seconds that a run may take whose kernels are not compiled

Line = dict[str, Any]


class Job(NamedTuple):
    """A key that no other job has, and what returns its line, given the cores that it may use."""

    key: str
    work: Callable[[set[int]], Line]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of scripts that run jobs."""
    parser.add_argument("--jobs", type=int, default=1, help="jobs at once")
    parser.add_argument("--cores", type=int, default=2, help="cores of each, if there are so many (default 2)")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="only every N-th job from the I-th on")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl", help="raw results; those that are there are kept")
    parser.add_argument("--warm", action="store_true", help="let every version compile its kernels first")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of the version before, compared with")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS", help="begin no job after so long")


def programs(given: argparse.Namespace) -> dict[str, list[str]]:
    """Return this version's command line, and that of the one before if its folder was named; files by whole paths."""
    command = [sys.executable, "-m", "dmcmc"]  # it takes the package from the folder that it is started in
    before = given.before.resolve() if given.before else None
    return {"now": command} | ({"before": ["env", f"--chdir={before}", *command]} if before else {})


def run_jobs(jobs: Sequence[Job], given: argparse.Namespace, done: Callable[[Line], None] = lambda line: None) -> None:
    """Run the jobs that have no line yet; each line is kept, and told, as soon as it is there.

    Those that ``--within`` leaves no time for are left out: the same command with the same lines goes on with them.
    """
    first, parts = map(int, given.part.split("/"))
    there = {line["key"] for line in lines_of(given)}
    cores = sorted(os.sched_getaffinity(0))
    free: Queue[set[int]] = Queue()
    for job in range(given.jobs):
        free.put({cores[(job * given.cores + i) % len(cores)] for i in range(given.cores)})
    lock, begun = Lock(), time.perf_counter()

    def run(job: Job) -> None:
        if time.perf_counter() - begun > given.within:
            return
        own = free.get()
        try:
            line = {"key": job.key} | job.work(own)
        finally:
            free.put(own)
        with lock:
            given.kept.append(line)
            if given.lines is not None:
                with given.lines.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            done(line)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(run, [job for job in jobs[first::parts] if job.key not in there]))


def lines_of(given: argparse.Namespace) -> list[Line]:
    """Return all lines that there are, those of earlier runs first."""
    if not hasattr(given, "kept"):
        there = given.lines is not None and given.lines.exists()
        given.kept = [json.loads(line) for line in given.lines.read_text().splitlines()] if there else []
    kept: list[Line] = given.kept
    return kept


def run_pinned(command: Sequence[str], cores: set[int], limit: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command on some cores, from the root of the project; None if it took longer than the limit."""
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


def warm_up(
    given: argparse.Namespace, solving: Callable[[Sequence[str]], Iterable[Sequence[str]]] | None = None
) -> None:
    """Let each version solve a problem that takes most of its kernels, so that they are compiled and kept.

    Parameters
    ----------
    solving
        Returns what a version solves afterwards, by its command line: what takes the rest of the kernels.
    """
    alone = argparse.Namespace(jobs=given.jobs, cores=given.cores, part="0/1", lines=None, within=math.inf)
    versions = programs(given).values()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "warm-up.npz")
        save(generate("meeting-scheduling", agents=3, variables_per_agent=30, domain_size=12), file)
        ways: list[Sequence[str]] = [(), ("--method", "annealing")]
        first = [[*program, "solve", str(file), "--timeout", "1", *more] for program in versions for more in ways]
        run_jobs([_warming(command) for command in first], alone)
    if solving is not None:
        run_jobs([_warming(command) for program in versions for command in solving(program)], alone)


def _warming(command: Sequence[str]) -> Job:
    def work(cores: set[int]) -> Line:
        run_pinned([*command, "--device", "cpu"], cores, COLD)
        return {}

    return Job(shlex.join(command), work)


def ask(command: Sequence[str], cores: set[int], limit: float) -> Line:
    """Return what ``dmcmc ... --json`` answers, less its agents and provenance; ``error`` says why there is nothing."""
    begun = time.perf_counter()
    done = run_pinned([*command, "--json", "--device", "cpu"], cores, limit)
    wall = round(time.perf_counter() - begun, 2)
    if done is None:
        return {"wall": wall, "error": f"not ended after {limit:g} s"}
    try:
        found: Line = json.loads(done.stdout)
    except ValueError:
        return {"wall": wall, "code": done.returncode, "error": failed(done)[:300]}
    kept = ("status", "objective", "bound", "gap", "violation", "time", "cycle", "assignment", "trace")
    line = {name: found.get(name) for name in kept}
    line["methods"] = sorted({agent["method"] for agent in found["agents"]})
    return {"wall": wall, "code": done.returncode, **line}
