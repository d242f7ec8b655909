"""Check that runs keep their time limits where every core is shared with other work, with an empty and a full cache.

    python -m benchmarks.robustness.deadlines [FILE ...] [--cores 8] [--count 100] [--seconds-from 0.2]
        [--seconds-to 60] [--empty-cache] [--output FILE.txt]

Each run is the command ``dmcmc solve FILE --timeout SECONDS``, pinned to one core on which another process computes
without a pause; ``--cores`` runs go on at the same time, each on its own core. The time limits are spaced evenly in
their logarithms, the files take turns. Without files, a few problems are generated and the example of a calendar is
used. With ``--empty-cache`` each run begins without compiled kernels; otherwise one run of each file on a free core
compiles before the first measured one.

A line has the time limit, the file, the status, and how many seconds after the limit the answer came: by the run's
clock, which begins after imports and does not count what is compiled ahead of it. The processor seconds of a run are
those of its process; a run without an answer shows the last line of its errors instead of a status.
"""

import json
import multiprocessing
import os
import queue
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dmcmc
from benchmarks.harness import ROOT, Columns, Report, error_line, options
from dmcmc.formats import native

GENERATED: dict[str, dict[str, float]] = {
    "random-network": {"nodes": 60, "tightness": 0.0},
    "meeting-scheduling": {"agents": 20, "variables_per_agent": 5, "domain_size": 12},
    "scale-free": {"nodes": 40, "tightness": 0.0},
}
ALLOWED_LATE = 1.0  # seconds after the time limit
KILL_SECONDS = 120.0  # seconds after the time limit; then a run is ended and counts as late
TABLE = Columns(("limit", ">7.2f"), ("file", "<24"), ("status", "<12"), ("late", ">7.2f"), ("wall", ">7.1f"))


class DeadlineRun(NamedTuple):
    """A run and its outcome.

    Attributes
    ----------
    limit : float
        Time limit in seconds.
    file : str
        Name of the file.
    status : str
        Status of the result, or the last line of the errors.
    late : float
        Seconds from the limit to the answer by the run's clock; those of the process if there is no answer.
    wall : float
        Seconds of the process.
    """

    limit: float
    file: str
    status: str
    late: float
    wall: float


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """Let another process compute on a core without a pause."""
    process = multiprocessing.get_context("spawn").Process(target=_compute, args=(core,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _compute(core: int) -> None:
    """Compute on a core until the process ends."""
    os.sched_setaffinity(0, {core})
    while True:
        sum(range(10_000))


def run(file: Path, limit: float, core: int, cache: Path | None) -> DeadlineRun:
    """Solve a file on a core, with the user's cache of kernels or with another folder."""
    environment = os.environ | ({} if cache is None else {"DMCMC_CACHE_DIR": str(cache)})
    command = [sys.executable, "-m", "dmcmc", "solve", str(file), "--json", "--quiet", "--device", "cpu"]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, "--timeout", f"{limit:.3f}"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=limit + KILL_SECONDS,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    except subprocess.TimeoutExpired:
        return DeadlineRun(limit, file.name, "ended", KILL_SECONDS, time.perf_counter() - start)
    wall = time.perf_counter() - start
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return DeadlineRun(limit, file.name, error_line(done), wall - limit, wall)
    return DeadlineRun(limit, file.name, result["status"], result["time"] - limit, wall)


def generated_files(folder: Path) -> list[Path]:
    """Write some generated problems, and return their files and that of the example of a calendar."""
    files = [ROOT / "dmcmc" / "examples" / "calendar.yaml"]
    for name, parameters in GENERATED.items():
        files.append(folder / f"{name}.npz")
        native.save(dmcmc.generate(name, **parameters), files[-1])
    return files


def main() -> None:
    """Carry out the runs and print one line per run, in the order of their ends."""
    parser = options(__file__, __doc__ or "")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--cores", type=int, default=1, help="runs at the same time, each on its own core")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds-from", type=float, default=0.2, help="shortest time limit")
    parser.add_argument("--seconds-to", type=float, default=60.0, help="longest time limit")
    parser.add_argument("--empty-cache", action="store_true", help="begin each run without compiled kernels")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: given.cores]
    if len(cores) < given.cores:
        parser.error(f"--cores {given.cores}: this process may use {len(cores)}")
    report, work, done = Report(__file__, given), queue.SimpleQueue[tuple[float, Path]](), list[DeadlineRun]()
    report(TABLE.head)
    with tempfile.TemporaryDirectory() as folder:
        files = [file.resolve() for file in given.files] or generated_files(Path(folder))
        limits = np.geomspace(given.seconds_from, given.seconds_to, given.count).tolist()
        for number, limit in reversed([*enumerate(limits)]):  # the longest ones first, so that all cores end together
            work.put((limit, files[number % len(files)]))
        if not given.empty_cache:
            with ThreadPoolExecutor(len(cores)) as pool:
                turns = [cores[number % len(cores)] for number in range(len(files))]
                list(pool.map(run, files, [given.seconds_to] * len(files), turns, [None] * len(files)))

        def serve(core: int) -> None:
            """Carry out runs on a core until none is left."""
            with busy_core(core), suppress(queue.Empty):
                while True:
                    limit, file = work.get_nowait()
                    with tempfile.TemporaryDirectory() as cache:
                        done.append(run(file, limit, core, Path(cache) if given.empty_cache else None))
                    report(TABLE.line(*done[-1]))

        with ThreadPoolExecutor(len(cores)) as pool:
            list(pool.map(serve, cores))
    late = [one for one in done if one.late > ALLOWED_LATE]
    cache = "an empty cache" if given.empty_cache else "a full cache"
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    report(
        f"{len(done)} runs with {cache} on {len(cores)} loaded cores: {len(late)} later than {ALLOWED_LATE:g} s,"
        f" the latest {max((one.late for one in done), default=0.0):.2f} s; {seconds:.0f} processor seconds"
    )
    report.keep()


if __name__ == "__main__":
    main()
