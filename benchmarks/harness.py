"""What all scripts share: options, instance folders, the head of a result, times, keeping what was printed.

A script is a module, started from the root of the project: ``python -m benchmarks.elimination.orders --help``.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dmcmc.config.units import bytes_of
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.device import describe_gpu, gpu_problem
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.provenance import versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def options(
    file: str, about: str, *, device: str = "", memory: str = "", only: bool = False
) -> argparse.ArgumentParser:
    """Return a script's parser, with the options that many share.

    Parameters
    ----------
    file, about
        The script's ``__file__`` and ``__doc__``.
    device, memory
        Defaults of ``--device`` and ``--memory``; without one there is no such option.
    only
        Whether there is ``--only``, a part of the names of what is measured.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {_module(file)}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if device:
        parser.add_argument("--device", default=device, choices=("auto", "cpu", "cuda"))
    if memory:
        parser.add_argument("--memory", default=memory, type=bytes_of, help="budget.memory, as 8GiB")
    if only:
        parser.add_argument("--only", default="", metavar="TEXT", help="what has this in its name")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the lines are kept")
    return parser


class Report:
    """Lines that are printed as they come, under a head that says what was run where; :meth:`keep` writes them."""

    def __init__(self, file: str, given: argparse.Namespace, **notes: object) -> None:
        self.output: Path | None = given.output
        used = getattr(given, "device", "cpu") != "cpu" and gpu_problem() is None
        gpu = describe_gpu() if used else ""
        self.lines: list[str] = []
        for line in head(file, str(self.output), gpu, notes):
            self(line)

    def __call__(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def keep(self, output: Path | None = None) -> None:
        """Write all lines to ``--output``, if that was given, whole or not at all."""
        target = output or self.output
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, "\n".join([*self.lines, ""]).splitlines(keepends=True))


def head(file: str, output: str, gpu: str, notes: dict[str, object]) -> Iterator[str]:
    """Yield the lines that head a result: the command, the machine, the versions."""
    shown = [a for a in sys.argv[1:] if a != output and not a.startswith("--output")]
    folder = "DMCMC_INSTANCES=... " if "DMCMC_INSTANCES" in os.environ else ""
    yield f"# {folder}python -m {_module(file)} {' '.join(shown)}".rstrip()
    load = f"load {os.getloadavg()[0]:.1f}"
    yield "# " + ", ".join([platform.machine(), f"{cores()} cores", load, *([gpu] if gpu else [])])
    known = [f"{name} {version}" for name, version in versions().items() if version]
    yield "# " + ", ".join([commit(), *known])
    if notes:
        yield "# " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in notes.items())


def commit() -> str:
    """Return the commit that is checked out, and whether files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return "commit " + subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"


def _module(file: str) -> str:
    return ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts)


class Columns:
    """A table of text: names with formats, ``("ms", ">9.2f")``; what is no number is put where it would stand."""

    def __init__(self, *columns: tuple[str, str]) -> None:
        self.columns = columns

    @property
    def head(self) -> str:
        return " ".join(f"{name:{_plain(form)}}" for name, form in self.columns).rstrip()

    def line(self, *cells: object) -> str:
        """Return a line; cells that are left out at the end are empty."""
        pairs = zip(cells, self.columns, strict=False)
        return " ".join(
            f"{cell:{_plain(form) if cell is None or isinstance(cell, str) else form}}"
            if cell is not None
            else f"{'-':{_plain(form)}}"
            for cell, (_, form) in pairs
        ).rstrip()


def _plain(form: str) -> str:
    """Return a format's side and width."""
    return form.split(".")[0].replace(",", "").rstrip("defgs%")


class Times(NamedTuple):
    """Seconds of repeats."""

    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def most(self) -> float:
        return max(self.seconds)


def timed(work: Callable[[], Any], repeats: int = 5, warm: int = 1, enough: float = float("inf")) -> tuple[Any, Times]:
    """Return what a call returns, and the seconds of its repeats.

    Parameters
    ----------
    warm
        Calls before them, which may compile and allocate.
    enough
        Seconds of a call after which it is not repeated.
    """
    result, seconds = None, list[float]()
    for turn in range(warm + repeats):
        start = time.perf_counter()
        result = work()
        if turn >= warm:
            seconds.append(time.perf_counter() - start)
            if seconds[-1] > enough:
                break
    return result, Times(tuple(seconds))


def instances(part: str = "") -> Path:
    """Return the folder of instances, or a part of it: ``instances``, ``generated`` or ``meetings``."""
    folder = Path(os.environ.get("DMCMC_INSTANCES", "")).resolve() / part
    if "DMCMC_INSTANCES" not in os.environ or not folder.is_dir():
        sys.exit(f"set DMCMC_INSTANCES to a folder that holds {part or 'instances'}/")
    return folder


def meeting(name: str) -> Path:
    """Return the file of a reference meeting problem."""
    return next(iter(sorted(instances("meetings").glob(f"{name}_*.npz"))), Path(name))


@contextmanager
def one_core() -> Iterator[None]:
    """Run on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """Return one line about a process that failed."""
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1].removeprefix("dmcmc: error: ")
