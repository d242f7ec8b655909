"""Measure how runs scale over the GPUs of one host: 1, 2, 4 and 8 GPUs, with one and two ranks per GPU.

    python -m benchmarks.gpu_scaling --lines FILE.jsonl [--measure] [--output FILE]

``--measure`` starts :mod:`benchmarks.ranks` by ``mpirun``, once per configuration, and appends one JSON object per
problem and configuration to ``--lines``. Kernels are compiled before. Strong scaling has the same problem on all
GPUs, weak scaling as many times the agents as GPUs. If NVIDIA's MPS is installed, two ranks per GPU are also measured
with it. A problem that fails or exceeds its time is left out from then on, and no configuration is started after
``--seconds``. ``--quick`` measures small problems on the CPU, with as many ranks as there would be GPUs.

Without ``--measure`` only the table is made from the lines. Efficiency is T_1 / (n T_n) for strong and T_1 / T_n for
weak scaling, where T_1 is the time on one GPU with one rank. ``most/mean`` is the local work of the busiest rank over
the mean of all ranks; ``other`` are the seconds outside of plan, local tables and combination; ``compiling`` are
processor seconds for kernels, which should be 0.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import ROOT, Columns, Report, options
from dmcmc.mpi.compute_node import visible_gpus

ALL_PROBLEMS = ("sample", "eliminate", "divided", "divided-large", "union", "sample-many", "sliced")
TWO_RANK_PROBLEMS = ("sample", "eliminate", "divided")
WEAK_PROBLEMS = ("sample", "eliminate")
_GPU_COUNTS = (1, 2, 4, 8)
_QUICK_COUNTS = (1, 2)  # "GPUs" of --quick
_CALL_SECONDS = 7.0  # no further call of a problem after these seconds
_MAX_CALLS = 4
_START_SECONDS = 30.0  # time limit of a configuration: for the start, and for each problem
_PROBLEM_SECONDS = 35.0
_COMPILE_SECONDS = 150.0  # time limit of the runs that compile kernels
_STOP_SECONDS = 10.0  # from the request to end until a process is killed
_MPS = "nvidia-cuda-mps-control"
_OPEN_MPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")

JsonLine = dict[str, Any]

TABLE = Columns(
    ("problem", "<13"), ("scaling", "<7"), ("agents", ">6d"), ("GPUs", ">4d"), ("ranks", ">5d"), ("MPS", "<3"),
    ("status", "<9"), ("seconds", ">8.3f"), ("plan", ">7.3f"), ("local", ">7.3f"), ("most/mean", ">9.2f"),
    ("combine", ">7.3f"), ("other", ">7.3f"), ("compiling", ">9.1f"), ("efficiency", ">10.1%"), ("answer", "<9"),
)  # fmt: skip


class Configuration(NamedTuple):
    """The work of one start of ``mpirun``.

    Attributes
    ----------
    gpus, ranks_per_gpu : int
        Number of GPUs, and of ranks on each.
    problems : tuple of str
        Names of problems of :mod:`benchmarks.ranks`.
    times : int
        Multiple of the agents: 1 for strong scaling.
    mps : bool
        Whether ranks share GPUs by NVIDIA's MPS.
    """

    gpus: int
    ranks_per_gpu: int
    problems: tuple[str, ...]
    times: int = 1
    mps: bool = False

    @property
    def title(self) -> str:
        """Return a title for messages."""
        scaling = f", agents times {self.times}" if self.times > 1 else ""
        return f"{self.gpus} GPUs, {self.ranks_per_gpu} ranks each{scaling}{', MPS' if self.mps else ''}"


def configurations(gpu_counts: Sequence[int], mps: bool) -> list[Configuration]:
    """Return all configurations, the most important first: one GPU and all GPUs, then the others.

    Examples
    --------
    >>> [(c.gpus, c.ranks_per_gpu, c.times) for c in configurations((1, 2), mps=False)]
    [(1, 1, 1), (2, 1, 1), (2, 1, 2), (2, 2, 1), (1, 2, 1)]
    """
    one, *more = gpu_counts
    all_first = [*reversed(more), one]
    return [
        Configuration(one, 1, ALL_PROBLEMS),
        *(Configuration(gpus, 1, ALL_PROBLEMS) for gpus in reversed(more)),
        *(Configuration(gpus, 1, WEAK_PROBLEMS, gpus) for gpus in reversed(more)),
        *(Configuration(gpus, 2, TWO_RANK_PROBLEMS) for gpus in all_first),
        *(Configuration(gpus, 2, WEAK_PROBLEMS, mps=True) for gpus in all_first if mps),
    ]


class Launcher:
    """Starts ``benchmarks.ranks`` by ``mpirun`` within a time limit.

    Parameters
    ----------
    lines : Path
        File to which the ranks append JSON objects.
    mpirun : str
        The launcher of the MPI library of mpi4py.
    quick : bool
        Whether to measure small problems on the CPU.
    end : float
        Time (``time.perf_counter``) after which nothing runs.
    """

    def __init__(self, lines: Path, mpirun: str, quick: bool, end: float) -> None:
        self.lines, self.quick, self.end = lines, quick, end
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
        self._mpirun = [mpirun, *(_OPEN_MPI if "Open MPI" in version else ())]

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.end - time.perf_counter()

    def compile_kernels(self, gpus: int) -> None:
        """Solve all problems once, concurrently on one process each, so that their kernels are stored."""
        groups = (("sample", "sample-many"), ("eliminate", "divided"), ("union",), ("sliced",))
        limit = time.perf_counter() + min(_COMPILE_SECONDS, self.left)
        processes = [
            self._start([], problems, ["--calls", "1"], {} if self.quick else {"CUDA_VISIBLE_DEVICES": str(i % gpus)})
            for i, problems in enumerate(groups)
        ]
        for process in processes:
            _end_of(process, limit - time.perf_counter())

    def measure(self, wanted: Configuration, environment: Mapping[str, str], failed: set[str]) -> None:
        """Measure the problems of a configuration that have not failed; add those that fail now to ``failed``.

        The problems after one that fails are measured by a further start.
        """
        problems = [name for name in wanted.problems if name not in failed]
        while problems and self.left > _STOP_SECONDS:
            before = len(read_lines(self.lines))
            ranks = wanted.gpus * wanted.ranks_per_gpu
            given = ["--calls", str(_MAX_CALLS), "--seconds", str(_CALL_SECONDS), "--times", str(wanted.times)]
            given += ["--gpus", str(wanted.gpus), "--lines", str(self.lines)]
            gpus = {} if self.quick else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(wanted.gpus)))}
            process = self._start([*self._mpirun, "-n", str(ranks)], problems, given, {**gpus, **environment})
            asked = _START_SECONDS + _PROBLEM_SECONDS * len(problems)
            error = _end_of(process, min(asked, self.left))
            missing = problems[len(read_lines(self.lines)) - before :]
            if missing and self.left > 0:
                print(f"{wanted.title}: {missing[0]} is left out: {error or 'no result'}", flush=True)
                failed.add(missing[0])
            problems = missing[1:]

    def _start(
        self, launcher: Sequence[str], problems: Sequence[str], given: Sequence[str], environment: Mapping[str, str]
    ) -> "subprocess.Popen[str]":
        """Start ``benchmarks.ranks``, in a new process group."""
        command = [*launcher, sys.executable, "-m", "benchmarks.ranks", *problems, *given]
        return subprocess.Popen(
            [*command, "--quick"] if self.quick else command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def _end_of(process: "subprocess.Popen[str]", limit: float) -> str:
    """Wait for a process, and end it after ``limit`` seconds; return its last error line, empty if there is none."""
    late = ""
    try:
        errors = process.communicate(timeout=max(0.1, limit))[1]
    except subprocess.TimeoutExpired:
        late = f"not finished after {limit:.0f} s"
        process.terminate()  # mpirun ends its ranks
        try:
            errors = process.communicate(timeout=_STOP_SECONDS)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            errors = process.communicate()[1]
    failed = process.returncode != 0
    return late or (next(iter(reversed(errors.strip().splitlines())), "no message") if failed else "")


@contextmanager
def mps_server() -> Iterator[dict[str, str]]:
    """Run NVIDIA's MPS daemon during the body; yields the environment variables of its clients.

    Raises
    ------
    RuntimeError
        If the daemon does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment, "check": False}
        try:
            started = subprocess.run([_MPS, "-d"], timeout=_STOP_SECONDS, **quiet)  # type: ignore[call-overload]
            if started.returncode:
                raise RuntimeError(f"{_MPS} ends with status {started.returncode}")
            yield variables
        finally:
            try:
                subprocess.run([_MPS], input=b"quit\n", timeout=2 * _STOP_SECONDS, **quiet)  # type: ignore[call-overload]
            except subprocess.TimeoutExpired:
                _kill_daemon(Path(folder) / f"{_MPS}.pid")


def _kill_daemon(file: Path) -> None:
    """Kill the process whose number is in a file."""
    with suppress(OSError, ValueError):
        os.kill(int(file.read_text()), signal.SIGKILL)


def measure_all(launcher: Launcher, gpu_counts: Sequence[int]) -> None:
    """Measure all configurations, as far as the time allows."""
    launcher.compile_kernels(gpu_counts[-1])
    print(f"kernels are compiled; {launcher.left:.0f} s left", flush=True)
    failed, failed_with_mps = set[str](), set[str]()
    for wanted in configurations(gpu_counts, mps=shutil.which(_MPS) is not None and not launcher.quick):
        if launcher.left < _STOP_SECONDS:
            print(f"{wanted.title}: no time left", flush=True)
            continue
        server: AbstractContextManager[Mapping[str, str]] = mps_server() if wanted.mps else nullcontext({})
        try:
            with server as environment:
                launcher.measure(wanted, environment, failed_with_mps if wanted.mps else failed)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{wanted.title}: {error}", flush=True)
            continue
        print(f"{wanted.title}: done; {launcher.left:.0f} s left", flush=True)


def read_lines(path: Path) -> list[JsonLine]:
    """Return the JSON objects of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def one_gpu_lines(lines: Sequence[JsonLine]) -> dict[str, JsonLine]:
    """Return each problem's line on one GPU with one rank."""
    return {line["problem"]: line for line in lines if line["ranks"] == line["times"] == 1}


def efficiency_of(line: JsonLine, one: JsonLine | None) -> float | None:
    """Return the efficiency of a line, given the line on one GPU; None if there is no such line."""
    if one is None:
        return None
    same_work = line["gpus"] if line["times"] == 1 else 1
    return float(one["seconds"] / (same_work * line["seconds"]))


def report_table(report: Report, lines: Sequence[JsonLine]) -> None:
    """Print one line per problem and configuration, and whether answers are those of one GPU."""
    ones = one_gpu_lines(lines)
    report(TABLE.head)
    order = list(dict.fromkeys(line["problem"] for line in lines))
    for line in sorted(
        lines, key=lambda row: (order.index(row["problem"]), row["times"] > 1, row["gpus"], row["ranks"])
    ):
        phases, one, local = line["phases"], ones.get(line["problem"]), line["local"]
        plan, tables, combining = (phases.get(title, 0.0) for title in ("plan", "local tables", "combining"))
        same = None if one is None or line["times"] > 1 else "same" if one["hash"] == line["hash"] else "DIFFERENT"
        mean = sum(local) / len(local)
        other = max(0.0, line["seconds"] - plan - tables - combining)
        head = line["problem"], "weak" if line["times"] > 1 else "strong", line["agents"], line["gpus"], line["ranks"]
        how = "yes" if line["mps"] else "no", line["status"]
        times = plan, max(local), max(local) / mean if mean else None, combining, other, line["compiling"]
        report(TABLE.line(*head, *how, line["seconds"], *times, efficiency_of(line, one), same))


def main() -> None:
    """Measure if asked, then print the table."""
    parser = options(__file__, __doc__ or "")
    parser.add_argument("--lines", type=Path, required=True, metavar="FILE.jsonl", help="JSON objects of the runs")
    parser.add_argument("--measure", action="store_true", help="measure, and append to the lines")
    parser.add_argument("--seconds", type=float, default=470.0, help="time limit of all measurements together")
    parser.add_argument("--quick", action="store_true", help="small problems on the CPU")
    parser.add_argument("--mpirun", default=_default_mpirun(), help="the launcher of the MPI library")
    given = parser.parse_args()
    given.lines = given.lines.resolve()
    if given.measure:
        _measure(given)
    report, lines = Report(__file__, given), read_lines(given.lines)
    if lines:
        report(f"# {lines[0]['gpu'] or 'no GPU'}, {lines[0]['cores']} cores")
        report_table(report, lines)
    report.keep()


def _measure(given: argparse.Namespace) -> None:
    """Measure on the visible GPUs, or without one if that is asked for."""
    visible = len(visible_gpus(os.environ))
    counts = _QUICK_COUNTS if given.quick else tuple(count for count in _GPU_COUNTS if count <= visible)
    if not counts:
        sys.exit("no GPU is visible; --quick measures small problems on the CPU")
    given.lines.parent.mkdir(parents=True, exist_ok=True)
    measure_all(Launcher(given.lines, given.mpirun, given.quick, time.perf_counter() + given.seconds), counts)


def _default_mpirun() -> str:
    """Return the ``mpirun`` in the folder of the Python interpreter if there is one, or else that of the system."""
    installed = Path(sys.executable).with_name("mpirun")
    return str(installed) if installed.exists() else shutil.which("mpirun") or "mpirun"


if __name__ == "__main__":
    main()
