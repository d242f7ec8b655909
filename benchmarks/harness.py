"""Code that all scripts share: options, instance folders, the header of a result, timing, and writing the output.

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

from dmcmc.config.settings import bytes_of
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.device import describe_gpu, gpu_problem
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.stored_result import versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def options(
    file: str, about: str, *, device: str = "", memory: str = "", only: bool = False
) -> argparse.ArgumentParser:
    """Return the argument parser of a script, with the options that many scripts share.

    Parameters
    ----------
    file, about : str
        The script's ``__file__`` and ``__doc__``.
    device, memory : str
        Defaults of ``--device`` and ``--memory``. If empty, the script has no such option.
    only : bool
        Whether there is an option ``--only TEXT``, which selects items by a part of their names.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {_module(file)}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if device:
        parser.add_argument("--device", default=device, choices=("auto", "cpu", "cuda"))
    if memory:
        parser.add_argument(
            "--memory", default=memory, type=bytes_of, help="memory limit (budget.memory), such as 8GiB"
        )
    if only:
        parser.add_argument("--only", default="", metavar="TEXT", help="measure only items whose name contains TEXT")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the output to FILE")
    return parser


class Report:
    """Print the lines of a result at once, below a header that describes the run; ``keep`` writes them to a file.

    Attributes
    ----------
    output : Path or None
        The file of ``--output``.
    lines : list of str
        All lines that were printed, the header included.
    """

    def __init__(self, file: str, given: argparse.Namespace, **notes: object) -> None:
        self.output: Path | None = given.output
        used = getattr(given, "device", "cpu") != "cpu" and gpu_problem() is None
        gpu = describe_gpu() if used else ""
        self.lines: list[str] = []
        for line in head(file, str(self.output), gpu, notes):
            self(line)

    def __call__(self, line: str = "") -> None:
        """Print a line and keep it."""
        print(line, flush=True)
        self.lines.append(line)

    def keep(self, output: Path | None = None) -> None:
        """Write all lines to ``output``, or else to ``--output``, atomically; do nothing if neither is given."""
        target = output or self.output
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, "\n".join([*self.lines, ""]).splitlines(keepends=True))


def head(file: str, output: str, gpu: str, notes: dict[str, object]) -> Iterator[str]:
    """Yield the header lines of a result: the command, the machine, the versions and ``notes``."""
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
    """Return the commit that is checked out, with ``-dirty`` if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return "commit " + subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"


def _module(file: str) -> str:
    """Return the dotted module name of a script."""
    return ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts)


class Columns:
    """Format the lines of a text table.

    Parameters
    ----------
    columns : tuple of (str, str)
        Title and format specification of each column: ``("ms", ">9.2f")``. Cells that are strings or None are aligned
        by the side and width of the specification.
    """

    def __init__(self, *columns: tuple[str, str]) -> None:
        self.columns = columns

    @property
    def head(self) -> str:
        """Return the line of titles."""
        return " ".join(f"{name:{_plain(form)}}" for name, form in self.columns).rstrip()

    def line(self, *cells: object) -> str:
        """Return a line of the table; missing cells at the end are left out."""
        pairs = zip(cells, self.columns, strict=False)
        return " ".join(
            f"{cell:{_plain(form) if cell is None or isinstance(cell, str) else form}}"
            if cell is not None
            else f"{'-':{_plain(form)}}"
            for cell, (_, form) in pairs
        ).rstrip()


def _plain(form: str) -> str:
    """Return the side and the width of a format specification."""
    return form.split(".")[0].replace(",", "").rstrip("defgs%")


class Times(NamedTuple):
    """Wall-clock seconds of repeated calls."""

    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        """Return the shortest time in seconds."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Return the median time in seconds."""
        return statistics.median(self.seconds)

    @property
    def most(self) -> float:
        """Return the longest time in seconds."""
        return max(self.seconds)


def timed(
    work: Callable[[], Any], repeats: int = 5, untimed: int = 1, max_seconds: float = float("inf")
) -> tuple[Any, Times]:
    """Call a function several times; return its last result and the times of the calls.

    Parameters
    ----------
    work : callable
        The function that is timed.
    repeats : int
        Number of timed calls.
    untimed : int
        Number of calls before them, which may compile kernels and allocate memory.
    max_seconds : float
        A call that takes longer than this is the last one.

    Returns
    -------
    result, times : (object, Times)
    """
    result, seconds = None, list[float]()
    for call in range(untimed + repeats):
        start = time.perf_counter()
        result = work()
        if call >= untimed:
            seconds.append(time.perf_counter() - start)
            if seconds[-1] > max_seconds:
                break
    return result, Times(tuple(seconds))


def instances(part: str = "") -> Path:
    """Return ``$DMCMC_INSTANCES`` or one of its folders: ``instances``, ``generated`` or ``meetings``."""
    folder = Path(os.environ.get("DMCMC_INSTANCES", "")).resolve() / part
    if "DMCMC_INSTANCES" not in os.environ or not folder.is_dir():
        sys.exit(f"set DMCMC_INSTANCES to a folder that holds {part or 'instances'}/")
    return folder


def meeting(name: str) -> Path:
    """Return the path of a reference meeting problem."""
    return next(iter(sorted(instances("meetings").glob(f"{name}_*.npz"))), Path(name))


@contextmanager
def one_core() -> Iterator[None]:
    """Run the body on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last error line of a process that failed."""
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1].removeprefix("dmcmc: error: ")
