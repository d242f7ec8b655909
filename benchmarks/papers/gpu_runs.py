"""Make the runs of the papers' experiments that need a GPU, within ten minutes on one card.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.papers.gpu_runs FOLDER [--seconds 570] [--only TEXT] [--continue]
        [--quick]

Each experiment writes FOLDER/NAME-again/experiment.json and runs.jsonl; copy them to ``benchmarks/results/papers/`` and
run ``python -m benchmarks.papers.claims --write`` and ``python -m benchmarks.papers.pages``. The scripts that time
kernels write text files into FOLDER; copy them to ``benchmarks/results/``. With ``--continue`` FOLDER begins with the
runs that are saved in ``benchmarks/results/papers/``, so only missing ones are made, and scripts whose output is saved
are left out. Runs of one page are then of several hosts; use it on the same kind of card.

Steps are in the order of their importance. A step that does not finish in time keeps the runs it has made, and the same
command continues with those that are missing. Kernels are compiled before the clock of a run starts, but their
compilation counts for ``--seconds``: on an empty cache it takes minutes, so give the cache folder (DMCMC_CACHE_DIR) a
place that the next call finds again.

The networks of CUBE that are missing in ``$DMCMC_INSTANCES`` are in the wheel pgmpy 0.1.26 (``cube-table2.yaml``); runs
of missing files fail and are listed.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.harness import RESULTS, ROOT

CONFIGS = ROOT / "configs" / "papers"
SAVED = RESULTS / "papers"
AGAIN = "-again"  # end of the names of the folders with these runs


class ExperimentStep(NamedTuple):
    """An experiment of which some methods are run.

    Attributes
    ----------
    config : str
        Name of the configuration.
    methods : tuple of str
        The methods.
    seeds : int
        Number of seeds; smaller than that of the configuration, so that all steps fit ten minutes.
    limit : int
        Time limit of a run in seconds.
    """

    config: str
    methods: tuple[str, ...]
    seeds: int
    limit: int


STEPS = (
    ExperimentStep("dmcmc-table1", ("MGM", "MGM2", "Gibbs GPU", "MH GPU"), 10, 30),
    ExperimentStep("gpube-table3", ("BE GPU", "BE CPU"), 5, 20),
    ExperimentStep("cube-table2", ("BP GPU", "BP CPU"), 3, 60),
    ExperimentStep("gpube-figure10", ("bucket CPU", "bucket GPU"), 10, 20),
    ExperimentStep("gpube-figure11-five-values", ("MBE CPU", "MBE GPU"), 3, 20),
    ExperimentStep("gpube-figure11-four-rows", ("MBE CPU", "MBE GPU"), 3, 20),
    ExperimentStep("cube-table3", ("exact CPU", "exact GPU"), 1, 60),
    ExperimentStep("gpube-tables6-10", ("exact GPU",), 1, 20),
    ExperimentStep("gpube-tables6-10-mini-buckets", ("MBE GPU",), 1, 20),
)
SCRIPTS = ("block_per_run", "transfer_times", "overlapped_transfers")


def with_limits(step: ExperimentStep, folder: Path) -> Path:
    """Write the configuration of a step with fewer seeds and a shorter limit; return the file."""
    config = yaml.safe_load((CONFIGS / f"{step.config}.yaml").read_text(encoding="utf-8"))
    config["seeds"] = step.seeds
    config["limits"]["time"] = step.limit
    file = folder / "configs" / f"{step.config}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def command_of(step: ExperimentStep, folder: Path, quick: bool) -> list[str]:
    """Return the command of a step."""
    methods = [part for name in step.methods for part in ("--method", name)]
    command = [sys.executable, "-m", "dmcmc", "experiment", str(with_limits(step, folder))]
    return [*command, "--output", str(folder / f"{step.config}{AGAIN}"), "--resume", *methods, *(["--quick"] * quick)]


def begin_with_saved_runs(folder: Path) -> None:
    """Copy the saved runs of all steps into a folder, unless it has runs of them."""
    for step in STEPS:
        name = f"{step.config}{AGAIN}"
        if (SAVED / name).exists() and not (folder / name).exists():
            shutil.copytree(SAVED / name, folder / name)


def run_within(command: Sequence[str], seconds: float) -> str:
    """Run a command for at most some seconds; return its last line of output, or that its time was over."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "time over; call again to continue"
    lines = (done.stdout + done.stderr).strip().splitlines() or [""]
    return f"exit {done.returncode}: {lines[-1][:160]}"


def main() -> None:
    """Run all steps, then the scripts that time kernels."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.gpu_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder for the results")
    parser.add_argument("--seconds", type=float, default=570.0, help="start no step after this time, and end the last")
    parser.add_argument("--only", default="", metavar="TEXT", help="only steps whose name contains TEXT")
    parser.add_argument("--continue", action="store_true", dest="continued", help="begin with the saved runs")
    parser.add_argument("--quick", action="store_true", help="the small version of each step")
    given, begun = parser.parse_args(), time.perf_counter()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if given.continued:
        begin_with_saved_runs(folder)
    steps = {step.config: command_of(step, folder, given.quick) for step in STEPS}
    for name in SCRIPTS:
        if given.continued and (RESULTS / f"{name}.txt").exists():
            continue
        output = ["--output", str(folder / f"{name}.txt")]
        steps[name] = [sys.executable, "-m", f"benchmarks.papers.{name}", *output, *(["--quick"] * given.quick)]
    for name, command in steps.items():
        left = given.seconds - (time.perf_counter() - begun)
        if given.only in name and left > 0:
            outcome = run_within(command, left)
            print(f"{time.perf_counter() - begun:6.0f} s  {name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
