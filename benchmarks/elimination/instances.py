"""Exact bucket elimination on benchmark instances: optimum, assignment, and time beside GpuBE's.

    DMCMC_INSTANCES=FOLDER python benchmarks/instances.py [--device cpu|cuda] [--memory 8GiB] [--output FILE]

FOLDER holds instances/ and generated/ with their MANIFEST.csv. Times are of one solve in a warm process, the least of
several, without parsing (which ends with the tables in one array) and ordering, which has its own column: encoding,
planning, elimination, the assignment in host memory. GpuBE's are its own on an H200, table set-up and solve, likewise
without its pseudo-tree, whose time stands beside ours for the order.
"""

import argparse
import csv
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dmcmc import Problem
from dmcmc.config.units import bytes_of
from dmcmc.formats.registry import load
from dmcmc.inference.elimination.plan import plan_flat
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import arithmetic_of
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import cores

# file: pseudo-tree ms, total ms without it (GpuBE, one H200, int costs)
GPUBE = {
    "54.wcsp": (22.9, 23.9),
    "503.wcsp": (230, 55.7),
    "404.wcsp": (302, 68.0),
    "1502.wcsp": (17.3, 40.4),
    "s386.wcsp": (762, 31.0),
    "GEOM40_6.wcsp": (9.2, 11.1),
    "r16d10.wcsp": (2.7, 7.0),
    "r20d10.wcsp": (5.8, 1196),
    "a_r20_2.wcsp": (5.3, 1955),
    "a_g10_1.wcsp": (165, 45.8),
    "a_sf50_1.wcsp": (24.9, 11.5),
}


def known(root: Path) -> list[tuple[Path, str]]:
    """Return the extensional wcsp files with the optimum their manifest gives."""
    rows = []
    for folder, key in (("instances", "file"), ("generated", "file")):
        with open(root / folder / "MANIFEST.csv") as manifest:
            for row in csv.DictReader(manifest):
                if ".wcsp" in row[key]:
                    path = root / folder / row.get("family", "") / row[key]
                    rows.append((path, row["optimum"] if row["optimum_status"] else ""))
    return [(path, optimum) for path, optimum in rows if path.exists()]


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Return the least seconds of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(path: Path, optimum: str, backend: Backend, memory: int) -> str:
    """Solve one instance."""
    try:
        problem: Problem = load(path)
    except DmcmcError as error:
        return f"{path.name:32s} {str(error).split(': ', 1)[1][:90]}"
    flat = problem.flat
    scopes = flat.scopes()
    everyone = range(problem.n_variables)
    order = best_order(scopes, problem.domains, everyone)
    values = np.zeros(problem.n_variables, dtype=np.int64)
    arithmetic = arithmetic_of(flat)
    need = plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables).entries * arithmetic.dtype.itemsize
    if need > memory:
        return f"{path.name:32s} width {order.width}: {need:.3g} bytes do not fit"
    found: list[int | float] = []

    def solve() -> None:
        numbers = arithmetic_of(flat)
        plan = plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables)
        done = backend.eliminate(numbers.encode_flat(flat), plan, numbers)
        done.choose(values)
        found[:] = [done.total()]

    solve()
    evaluation = problem.evaluate(values)
    proven = problem.to_own_sense(found[0])
    right = evaluation.violation == 0 and evaluation.objective == proven and str(proven) in (optimum, "")
    seconds = best_of(3 if order.cells > 1e9 else 7, solve)
    ordering = best_of(3, lambda: best_order(scopes, problem.domains, everyone))
    theirs = GPUBE.get(path.name)
    beside = f"{theirs[1]:8.1f} {theirs[1] / seconds / 1e3:7.1f}x   {theirs[0]:7.1f}" if theirs else ""
    return (
        f"{path.name:32s} {proven:>10} {'ok' if right else 'WRONG, known: ' + optimum:5s} {order.width:3d}"
        f" {order.cells:9.3g} {ordering * 1e3:9.2f} {seconds * 1e3:10.2f} {beside}"
    )


def main() -> None:
    """Measure every instance that fits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--memory", type=bytes_of, default=bytes_of("8GiB"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    backend = Backend.of(options.device, cores())
    lines = [
        f"device {backend.device}, {cores()} threads, plans of at most {options.memory:.3g} bytes",
        f"{'file':32s} {'optimum':>10s}       w*     cells  order ms   solve ms  GpuBE ms  ratio   its tree ms",
    ]
    print("\n".join(lines))
    for path, optimum in known(Path(os.environ["DMCMC_INSTANCES"])):
        if options.only in path.name:
            lines.append(measure(path, optimum, backend, options.memory))
            print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
