"""Prove random binary problems with one variable per agent: as given, with one agent, another version, toulbar2 alone.

    python -m benchmarks.random_problems --jobs 8 --compile-first [--before FOLDER] [--lines FILE.jsonl]

Four kinds of random networks, five seeds each (``dmcmc generate random-network ... tightness=0``), every run with two
cores, without the search extra. Columns per run: status, cost, bound, gap in percent, and the wall-clock seconds of the
whole command. ``--programs`` selects the runs: ``given`` and ``one-agent`` of this version, ``given-before`` and
``one-agent-before`` of the version in ``--before``, and ``toulbar2``, which uses one core.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import jobs
from benchmarks.harness import ROOT, Report, options
from benchmarks.jobs import JsonLine, PinnedJob

SEEDS = (101, 102, 103, 104, 105)
PROGRAMS = ("given", "one-agent", "given-before", "one-agent-before", "toulbar2")
_SHORT_SECONDS = "8"  # time limit of the runs that compile the kernels
_WITHOUT_SEARCH = ["--set", "search=none"]
_TOULBAR2 = """
import sys
from pathlib import Path
from benchmarks.toulbar2 import search
for point in search(Path(sys.argv[1]), "hbfs", int(sys.argv[2])):
    print(point.seconds, point.objective, point.bound)
"""


class Kind(NamedTuple):
    """A kind of random network: number of variables, domain size, density of the graph."""

    nodes: int
    domain_size: int
    density: float

    @property
    def name(self) -> str:
        """Name of the kind in the output."""
        return f"{self.nodes}x{self.domain_size}"


KINDS = (Kind(25, 10, 0.4), Kind(30, 5, 0.5), Kind(40, 5, 0.25), Kind(60, 15, 0.25))


def generate(kind: Kind, seed: int, folder: Path) -> Path:
    """Write a problem with the command line; return its file."""
    file = folder / f"{kind.name}_{seed}.yaml"
    sizes = [f"nodes={kind.nodes}", f"domain_size={kind.domain_size}", f"density={kind.density}", "tightness=0"]
    command = [sys.executable, "-m", "dmcmc", "generate", "random-network", *sizes]
    subprocess.run([*command, "--seed", str(seed), "--output", str(file)], check=True, cwd=ROOT)
    return file


def commands(given: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command line of each selected program, before the problem file."""
    timeout = [*_WITHOUT_SEARCH, "--timeout", f"{given.seconds:g}"]
    found: dict[str, list[str]] = {}
    for version, program in jobs.programs(given).items():
        suffix = "" if version == "now" else "-before"
        found[f"given{suffix}"] = [*program, "solve", *timeout]
        found[f"one-agent{suffix}"] = [*program, "solve", "--agents", "1", *timeout]
    return {name: found[name] for name in given.programs if name in found}


def compile_first(programs: dict[str, list[str]], file: Path) -> None:
    """Let all programs solve a problem at the same time, for a few seconds after they have compiled their kernels."""
    environment = {**os.environ, "DMCMC_COMPILE": "first"}
    running = [
        subprocess.Popen(
            [*command[: command.index("--timeout")], "--timeout", _SHORT_SECONDS, "--device", "cpu", str(file)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        for command in programs.values()
    ]
    for process in running:
        process.wait()


def solve_job(key: str, command: Sequence[str], file: Path, limit: float) -> PinnedJob:
    """Return the job of a run of dmcmc."""
    return PinnedJob(key, lambda cores: jobs.solve_to_json([*command, str(file)], cores, limit))


def toulbar2_job(key: str, file: Path, seconds: float) -> PinnedJob:
    """Return the job of a run of toulbar2 alone."""

    def work(cores: set[int]) -> JsonLine:
        command = [sys.executable, "-c", _TOULBAR2, str(file), f"{seconds:g}"]
        done = jobs.run_pinned(command, cores, 2 * seconds + 60)
        points = [line.split() for line in done.stdout.splitlines()] if done is not None else []
        if not points:
            return {"error": "toulbar2 printed nothing"}
        objectives = [float(objective) for _, objective, _ in points if objective != "None"]
        bounds = [float(bound) for _, _, bound in points if bound != "None"]
        return {"status": "timeout", "objective": objectives[-1], "bound": bounds[-1], "wall": float(points[-1][0])}

    return PinnedJob(key, work)


def line_of(line: JsonLine) -> str:
    """Return the printed line of a run."""
    if line.get("error"):
        return f"{line['key']:24} {line['error']}"
    objective, bound = line["objective"], line["bound"]
    gap = 100 * abs(bound - objective) / max(1, abs(objective))
    return f"{line['key']:24} {line['status']:9} {objective:8g} {bound:8g} {gap:6.2f} {line['wall']:6.1f}"


def main() -> None:
    """Run the selected programs on the selected problems, and print a line for each as soon as it has finished."""
    parser = options(__file__, __doc__ or "")
    jobs.add_options(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of a run (default 60)")
    parser.add_argument("--programs", nargs="+", default=["given", "one-agent"], choices=PROGRAMS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--kinds", nargs="+", default=[kind.name for kind in KINDS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = [kind for kind in KINDS if kind.name in given.kinds]
        files = {(kind, seed): generate(kind, seed, folder) for seed in given.seeds for kind in kinds}
        programs = commands(given)
        if given.compile_first:
            compile_first(programs, generate(Kind(25, 10, 0.4), 1, folder))
        report, pinned = Report(__file__, given, cores=given.cores, jobs=given.jobs), list[PinnedJob]()
        for (kind, seed), file in files.items():
            pinned += [
                solve_job(f"{program} {kind.name} {seed}", command, file, 2 * given.seconds + 60)
                for program, command in programs.items()
            ]
            if "toulbar2" in given.programs:
                pinned.append(toulbar2_job(f"toulbar2 {kind.name} {seed}", file, given.seconds))
        jobs.run_jobs(pinned, given, lambda line: report(line_of(line)))
        report.keep()


if __name__ == "__main__":
    main()
