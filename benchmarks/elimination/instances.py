"""Exact bucket elimination on benchmark instances: optimum, assignment, and time beside GpuBE's.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.instances [--device cuda] [--memory 8GiB] [--output FILE]

FOLDER holds instances/ and generated/ with their MANIFEST.csv. Times are of one solve in a warm process, the least of
several, without parsing (which ends with the tables in one array) and ordering, which has its own column: encoding,
planning, elimination, the assignment in host memory. What does not fit the memory is not tried: not even its tables
are made, where those are larger. GpuBE's are its own on an H200, table set-up and solve, likewise without its
pseudo-tree, whose time stands beside ours for the order.
"""

import csv
from pathlib import Path

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.elimination.plan import plan_flat
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import arithmetic_of
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import cores

TABLE = Columns(
    ("file", "<32"), ("optimum", ">10"), ("", "<8"), ("w*", ">3"), ("cells", ">9.3g"), ("order ms", ">9.2f"),
    ("solve ms", ">10.2f"), ("GpuBE ms", ">8.1f"), ("ratio", ">6.1f"), ("its tree ms", ">11.1f"),
)  # fmt: skip
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
    for folder in ("instances", "generated"):
        with open(root / folder / "MANIFEST.csv", newline="") as manifest:
            for row in csv.DictReader(manifest):
                if ".wcsp" in row["file"]:
                    path = root / folder / row.get("family", "") / row["file"]
                    rows.append((path, row["optimum"] if row["optimum_status"] else ""))
    return [(path, optimum) for path, optimum in rows if path.exists()]


def measure(path: Path, optimum: str, backend: Backend, memory: int) -> str:
    """Solve one instance."""
    try:
        problem = dmcmc.load(path)
    except DmcmcError as error:
        return f"{path.name:32s} {str(error).split(': ', 1)[1][:90]}"
    scopes = [f.scope for f in problem.factors]
    given = sum(float(np.prod(problem.domains[list(scope)], dtype=float)) for scope in scopes)
    if 8 * given > memory:
        return f"{path.name:32s} its tables have {given:.3g} entries: they do not fit"
    flat = problem.flat
    everyone = range(problem.n_variables)
    order, ordering = timed(lambda: best_order(flat.scopes(), problem.domains, everyone), 3)
    values = np.zeros(problem.n_variables, dtype=np.int64)
    arithmetic = arithmetic_of(flat)
    need = plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables).entries * arithmetic.dtype.itemsize
    if need > memory:
        return f"{path.name:32s} width {order.width}: {need:.3g} bytes do not fit"

    def solve() -> int | float:
        numbers = arithmetic_of(flat)
        plan = plan_flat(flat.scope_start, flat.scope, problem.domains, order.variables)
        done = backend.eliminate(numbers.encode_flat(flat), plan, numbers)
        done.choose(values)
        return done.total()

    found, times = timed(solve, 3 if order.cells > 1e9 else 7)
    evaluation = problem.evaluate(values)
    proven = problem.to_own_sense(found)
    right = evaluation.violation == 0 and evaluation.objective == proven and str(proven) in (optimum, "")
    theirs = GPUBE.get(path.name)
    beside = (theirs[1], theirs[1] / times.least / 1e3, theirs[0]) if theirs else ()
    work = (order.width, order.cells, 1e3 * ordering.least, 1e3 * times.least)
    return TABLE.line(path.name, str(proven), "ok" if right else f"WRONG, known: {optimum}", *work, *beside)


def main() -> None:
    """Measure every instance that fits."""
    given = options(__file__, __doc__, device="auto", memory="8GiB", only=True).parse_args()
    backend = Backend.of(given.device, cores())
    say = Report(__file__, given, device=backend.device, plans_of_at_most=f"{given.memory:.3g} bytes")
    say(TABLE.head)
    for path, optimum in known(instances()):
        if given.only in path.name:
            say(measure(path, optimum, backend, given.memory))
    say.keep()


if __name__ == "__main__":
    main()
