"""Solve benchmark instances exactly by bucket elimination: optimum, assignment and time, compared with GpuBE.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.instances [--device cuda] [--memory 8GiB] [--output FILE]

FOLDER holds instances/ and generated/ with their MANIFEST.csv. Times are the least of several solves with compiled
kernels: encoding, planning, elimination, and the assignment in host memory. Parsing (which ends with the tables in one
array) is not counted, and the order has its own column. Instances whose tables or plan do not fit the memory are not
solved. GpuBE's times are those of its own run on an H200, table set-up and solve, without its pseudo-tree, whose time
is given for comparison with our order.
"""

import csv
from pathlib import Path

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.elimination.plan import plan_flat
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import arithmetic_of
from dmcmc.inference.model.flat_tables import table_ranges
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import cores

TABLE = Columns(
    ("file", "<32"), ("optimum", ">10"), ("", "<8"), ("w*", ">3"), ("cells", ">9.3g"), ("order ms", ">9.2f"),
    ("solve ms", ">10.2f"), ("GpuBE ms", ">8.1f"), ("ratio", ">6.1f"), ("GpuBE tree", ">11.1f"),
)  # fmt: skip
# file: milliseconds of the pseudo-tree, and of everything else (GpuBE, one H200, int costs)
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


def instance_files(root: Path) -> list[tuple[Path, str]]:
    """Return the extensional .wcsp files, each with the optimum of its manifest."""
    rows = []
    for folder in ("instances", "generated"):
        with open(root / folder / "MANIFEST.csv", newline="") as manifest:
            for row in csv.DictReader(manifest):
                if ".wcsp" in row["file"]:
                    path = root / folder / row.get("family", "") / row["file"]
                    rows.append((path, row["optimum"] if row["optimum_status"] else ""))
    return [(path, optimum) for path, optimum in rows if path.exists()]


def measure(path: Path, optimum: str, backend: Backend, memory: int) -> str:
    """Solve one instance; return its line of the table."""
    try:
        problem = dmcmc.load(path)
    except DmcmcError as error:
        return f"{path.name:32s} {str(error).split(': ', 1)[1][:90]}"
    scopes = [f.scope for f in problem.factors]
    entries = sum(float(np.prod(problem.domains[list(scope)], dtype=float)) for scope in scopes)
    if 8 * entries > memory:
        return f"{path.name:32s} its tables ({entries:.3g} entries) do not fit the memory"
    flat = problem.flat
    variables = range(problem.n_variables)
    order, ordering = timed(lambda: best_order(flat.scopes(), problem.domains, variables), 3)
    values = np.zeros(problem.n_variables, dtype=np.int64)
    arithmetic = arithmetic_of(table_ranges(flat).magnitudes, flat.data.dtype.kind == "i")
    bytes_needed = (
        plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables).entries * arithmetic.dtype.itemsize
    )
    if bytes_needed > memory:
        return f"{path.name:32s} width {order.width}: {bytes_needed:.3g} bytes do not fit the memory"

    def solve() -> int | float:
        numbers = arithmetic_of(table_ranges(flat).magnitudes, flat.data.dtype.kind == "i")
        plan = plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables)
        done = backend.eliminate(numbers.encode_flat(flat), plan, numbers)
        done.choose(values)
        return done.total()

    found, times = timed(solve, 3 if order.cells > 1e9 else 7)
    evaluation = problem.evaluate(values)
    proven = problem.to_own_sense(found)
    correct = evaluation.violation == 0 and evaluation.objective == proven and str(proven) in (optimum, "")
    gpube = GPUBE.get(path.name)
    comparison = (gpube[1], gpube[1] / times.least / 1e3, gpube[0]) if gpube else ()
    work = (order.width, order.cells, 1e3 * ordering.least, 1e3 * times.least)
    return TABLE.line(path.name, str(proven), "ok" if correct else f"WRONG, known: {optimum}", *work, *comparison)


def main() -> None:
    """Measure every instance that fits."""
    given = options(__file__, __doc__, device="auto", memory="8GiB", only=True).parse_args()
    backend = Backend.of(given.device, cores())
    report = Report(__file__, given, device=backend.device, plans_of_at_most=f"{given.memory:.3g} bytes")
    report(TABLE.head)
    for path, optimum in instance_files(instances()):
        if given.only in path.name:
            report(measure(path, optimum, backend, given.memory))
    report.keep()


if __name__ == "__main__":
    main()
