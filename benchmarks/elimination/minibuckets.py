"""Compute mini-bucket bounds on the instances of GpuBE's Tables 7, 8 and 10, and compare them with the paper's bounds.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.minibuckets [--memory 2GiB] [--output FILE]

FOLDER holds instances/. The z of each row are the paper's: z_min is the largest arity, z_max min(w, 20) limited by
memory, z_2 and z_3 a third and two thirds of the way (§8.2), computed from the widths of the paper's tables. Bounds
depend on the order: ours is the best of a portfolio, the paper's is that of a depth-first pseudo-tree (x_i before x_j
iff |N(x_i)| < |N(x_j)|). Both are measured. z limits the variables of a message, as in the paper's examples.

A cell is: bound / cost of the decoded assignment / milliseconds with planning, without ordering. ``n hard``: the
assignment violates n hard constraints. ``MM``: moment matching. ``paper``: GpuBE's bound in the column z_min, z_2, z_3
or z_max; an asterisk marks our own run of GpuBE at this z. The paper defines z_min as the largest arity, but GpuBE run
at z = 10 gives the bounds of z_2 for 404 and queen5-5-3, so its columns may stand for larger z than ours. At equal z,
bounds differ by orders as much as by methods, so two orders are shown.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dmcmc
from benchmarks.harness import Report, instances, options, timed
from dmcmc import Factor, Problem
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.orders.best_order import best_order, primal_graph, rule_order
from dmcmc.inference.runtime.threads import cores

# file: the paper's width, and its bounds at z_min, z_2, z_3, z_max
MEASURED = {"spot5/404": (10, 106), "coloring_wcsp/queen5_5_3": (10, 18)}  # file: z of a run of GpuBE, and its bound
PAPER = {
    "coloring_wcsp/GEOM40_2": (5, (22, 22, 22, 22)),
    "coloring_wcsp/GEOM30a_4": (6, (0, 4, 4, 4)),
    "coloring/GEOM40_6": (5, (0, 0, 0, 0)),
    "coloring_wcsp/queen5_5_3": (18, (6, 18, 23, 25)),
    "coloring_wcsp/myciel5g_4": (20, (0, 0, 0, 0)),
    "coloring_wcsp/le450_5a_3": (344, (42, 55, 57, 58)),
    "iscas89/s386": (19, (29, 29, 29, 29)),
    "iscas89/c499": (42, (111, 111, 111, 111)),
    "iscas89/s1196": (92, (95, 95, 95, 95)),
    "spot5/54": (11, (31, 32, 35, 37)),
    "spot5/503": (12, (7093, 9106, 11111, 11113)),
    "spot5/404": (19, (76, 106, 112, 114)),
    "spot5/42b": (19, (58049, 95050, 135050, 155050)),
    "spot5_from_uai/1502": (5, (28042, 28042, 28042, 28042)),
    "spot5_from_uai/408": (40, (2100, 3123, 4169, 5185)),
}
METHODS = (("scope", False), ("content", False), ("scope", True), ("content", True))
LARGEST_Z = 20
MOST_CELLS = 2e9


class EncodedProblem(NamedTuple):
    """A problem and its encoded tables, with headroom for moment matching."""

    problem: Problem
    tables: Sequence[EncodedTable]
    arithmetic: Arithmetic

    @classmethod
    def of(cls, problem: Problem) -> "EncodedProblem":
        """Encode a problem."""
        arithmetic = with_headroom(choose_arithmetic(problem.factors))
        return cls(problem, [arithmetic.encode(f) for f in problem.factors], arithmetic)


def optima(folder: Path) -> dict[str, int]:
    """Return the known optima by file."""
    with open(folder / "MANIFEST.csv", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["format"] == "wcsp" and r["optimum"]]
    return {f"{r['family']}/{r['file'].removesuffix('.wcsp')}": int(r["optimum"]) for r in rows}


def orders(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return our order and that of the paper's pseudo-tree heuristic."""
    scopes = [f.scope for f in problem.factors]
    n = problem.n_variables
    ours = best_order(scopes, problem.domains, range(n)).variables
    adjacent = primal_graph(scopes, {v: v for v in range(n)})
    everywhere = np.ones(n, dtype=np.bool_)
    tree = rule_order(adjacent, problem.domains.astype(np.float64), everywhere, "least-connected-first").variables
    return {"portfolio": ours, "pseudo-tree": tree}


def bound(
    given: EncodedProblem, order: Sequence[int], relaxation: Relaxation, memory: int, backend: Backend = CPU
) -> tuple[str, str, float]:
    """Return the bound and the decoded assignment's cost in the problem's sense, and milliseconds with planning."""
    problem, tables, arithmetic = given
    vector: dict[int, int] = {}
    query = EliminationQuery(tables, problem.domains, order, (), arithmetic)

    def work() -> int | float:
        done = eliminate_within(query, relaxation, Resources(memory, backend))
        vector.clear()
        done.elimination.maximise(vector)
        return done.elimination.total()

    total, times = timed(work, 3, untimed=0, max_seconds=2)
    found = problem.evaluate(np.array([vector[v] for v in range(problem.n_variables)], dtype=np.int64))
    cost = str(found.objective) if not found.violation else f"{found.violation} hard"
    value = "infeasible" if arithmetic.is_lowest(total) else str(problem.to_own_sense(total))
    return value, cost, 1e3 * times.least


def widths(name: str, problem: Problem) -> list[tuple[int, str]]:
    """Return the z of an instance's rows, each with the paper's bound."""
    width, printed = PAPER[name]
    low = max(len(f.scope) for f in problem.factors)
    high = max(low, min(width, LARGEST_Z))
    rows = [(low + (high - low) * i // 3, str(b)) for i, b in enumerate(printed)]
    return sorted([*rows, (MEASURED[name][0], f"{MEASURED[name][1]}*")]) if name in MEASURED else rows


def measure(name: str, given: EncodedProblem, memory: int, backend: Backend) -> Iterator[tuple[str, list[float]]]:
    """Yield the lines of an instance, each with its bounds by all methods."""
    problem, _, arithmetic = given
    scopes = [f.scope for f in problem.factors]
    done = set()
    for label, order in orders(problem).items():
        for z, paper_bound in widths(name, problem):
            if (label, z) in done or z < least_z(scopes, order):
                continue
            done.add((label, z))
            plan = plan_mini_buckets(scopes, problem.domains, order, z=z, shifts=True)
            if plan.entries * arithmetic.dtype.itemsize > memory or plan.cells > MOST_CELLS:
                continue
            relaxations = [Relaxation("mini-bucket", z, *method) for method in METHODS]  # type: ignore[arg-type]
            found = [bound(given, order, relaxation, memory, backend) for relaxation in relaxations]
            cells = [f"{value} / {cost} / {ms:.1f}" for value, cost, ms in found]
            text = f"{z:3d} {paper_bound:>7s} {label:12s}" + "".join(f"{cell:>28s}" for cell in cells)
            yield text, [float(value) for value, _, _ in found]


def summary(ratios: Sequence[Sequence[float]]) -> list[str]:
    """Return lines that say how near each method comes to the optimum."""
    lines = [f"{len(ratios)} rows with a positive optimum: mean of bound / optimum; rows tighter / looser than plain"]
    for i, (partition, matching) in enumerate(METHODS):
        column, plain = np.array(ratios)[:, i], np.array(ratios)[:, 0]
        better, worse = int((column > plain).sum()), int((column < plain).sum())
        label = partition + (" MM" if matching else "")
        lines.append(f"{label:12s} {column.mean():.4f}   {better:3d} / {worse:3d}")
    return lines


def compile_kernels() -> None:
    """Compile all kernels."""
    factors = tuple(Factor.of(s, np.eye(3, dtype=int), "min") for s in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)))
    names = tuple(f"x{v}" for v in range(4))
    problem = Problem(names, np.full(4, 3), ("all",), np.zeros(4, dtype=np.int64), factors, sense="min")
    for partition, matching in METHODS:
        relaxation = Relaxation("mini-bucket", 1, partition, matching)  # type: ignore[arg-type]
        bound(EncodedProblem.of(problem), range(4), relaxation, 1 << 30)


def main() -> None:
    """Measure and print."""
    given = options(__file__, __doc__, device="cpu", memory="2GiB", only=True).parse_args()
    folder = instances("instances")
    known = optima(folder)
    backend = Backend.of(given.device, cores())
    report = Report(__file__, given)
    heads = "".join(f"{p + (' MM' if m else ''):>28s}" for p, m in METHODS)
    report(f"{'instance':24s} {'optimum':>8s} {'z':>3s} {'paper':>7s} {'order':12s}{heads}")
    compile_kernels()
    ratios: list[list[float]] = []
    for name in PAPER:
        path = folder / f"{name}.wcsp"
        if not path.exists() or given.only not in name:
            continue
        for line, bounds in measure(name, EncodedProblem.of(dmcmc.load(path)), given.memory, backend):
            report(f"{name:24s} {known.get(name, '?'):>8} {line}")
            if known.get(name, 0) > 0:
                ratios.append([min(b, known[name]) / known[name] for b in bounds])
    if ratios:
        report()
        for line in summary(ratios):
            report(line)
    report.keep()


if __name__ == "__main__":
    main()
