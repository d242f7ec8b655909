"""``auto`` on the reference problems that it proves: the first solve of the process, and later ones.

    DMCMC_INSTANCES=FOLDER python benchmarks/auto_times.py [--device cuda] [--memory 100GiB] [--repeats 10]
        [--large] [--output FILE]

FOLDER holds meetings/. Seconds are those of :func:`dmcmc.run.solve.solve`, from a problem in memory; the first may
compile or load kernels and open a GPU. Each problem is solved without a time budget, and with one of 60 s. ``--large``
adds 96 values, which takes a GPU, or a minute.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dmcmc.config.configuration import parse
from dmcmc.formats import native
from dmcmc.inference.runtime.device import describe_gpu
from dmcmc.inference.runtime.threads import cores
from dmcmc.run.solve import solve

NAMES = ("ms_A5_n10_D24", "ms_A10_n5_D24", "ms_A10_n10_D24", "mu_A10_n10_D24", "ms_A50_n10_D24")
LARGE = "ms_A10_n10_D96"


def measure(path: Path, budget: dict[str, object], device: str, repeats: int, out: Callable[[str], None]) -> None:
    """Solve a problem several times and print a line."""
    problem = native.load(path)
    config = parse({"problem": {"file": "-"}, "budget": budget, "device": device})
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        result = solve(problem, config)
        seconds.append(time.perf_counter() - start)
    assert result is not None
    first, later = seconds[0], seconds[1:]
    methods = ", ".join(sorted({agent.method for agent in result.agents}))
    times = f"{1e3 * min(later):8.1f} {1e3 * statistics.median(later):8.1f} {1e3 * max(later):8.1f}"
    limit = "-" if budget.get("time") is None else f"{budget['time']} s"
    name = "_".join(path.stem.split("_")[:4])
    given = f"{name:15s} {limit:>6s} {1e3 * first:9.1f}"
    out(f"{given} {times}  {result.status} {result.objective} {result.bound}  {methods}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "auto", "cuda"))
    parser.add_argument("--memory", default="8GiB", help="budget.memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    folder = os.environ.get("DMCMC_INSTANCES")
    if folder is None:
        sys.exit("set DMCMC_INSTANCES to a folder that holds meetings/")
    lines: list[str] = []

    def out(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    gpu = "" if options.device == "cpu" else f", {describe_gpu()}"
    shown = [a for a in sys.argv[1:] if not a.startswith("--output") and a != str(options.output)]
    out(f"# python benchmarks/auto_times.py {' '.join(shown)}")
    out(f"# {platform.machine()}, {cores()} cores{gpu}, Python {platform.python_version()}; milliseconds")
    heads = f"{'problem':15s} {'budget':>6s} {'first':>9s} {'least':>8s} {'median':>8s} {'most':>8s}"
    out(f"{heads}  status, objective, bound, methods")
    for seconds in (None, 60):
        for name in (*NAMES, *([LARGE] if options.large else ())):
            (path,) = (Path(folder) / "meetings").glob(f"{name}_*.npz")
            repeats = 2 if name == LARGE else options.repeats
            measure(path, {"time": seconds, "memory": options.memory}, options.device, repeats, out)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
