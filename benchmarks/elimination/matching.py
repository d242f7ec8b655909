"""Compare moment matching on the CPU and on a GPU: times, and whether all tables are equal.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.matching [--device cuda] [--memory 20GiB] [--output FILE]

FOLDER holds instances/. Times are milliseconds of eliminations with moment matching (scope-based partitions), without
planning.
"""

from collections.abc import Iterator, Sequence

import numpy as np

import dmcmc
from benchmarks.elimination.minibuckets import orders
from benchmarks.harness import Report, instances, options, timed
from dmcmc import Problem
from dmcmc.inference.elimination.cuda.eliminate import GpuElimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.minibuckets.moment_matching import MatchedElimination, eliminate_matched, with_headroom
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.inference.runtime.threads import cores

# z of GpuBE's runs, and some that keep a GPU busy
MATCHING = {
    "spot5/404": (10, 13, 16),
    "spot5/505b": (14,),
    "spot5/408b": (14,),
    "coloring_wcsp/queen5_5_3": (10, 12, 14),
    "spot5_from_uai/408": (10, 12),
    "spot5/42b": (10, 14),
}


def tables_of(matched: MatchedElimination) -> Iterator[np.ndarray]:
    """Yield all tables in an order that does not depend on the device: inputs, then messages by variable."""
    plan = matched.elimination.plan
    given = plan.tables - plan.buckets
    for t in [*range(given), *(given + np.argsort(plan.program.variable, kind="stable")).tolist()]:
        yield matched.elimination.table(t).values


def match(problem: Problem, order: Sequence[int], z: int, memory: int, backend: Backend) -> str:
    """Return a line that compares CPU and GPU."""
    arithmetic = with_headroom(choose_arithmetic(problem.factors))
    tables = [arithmetic.encode(f) for f in problem.factors]
    flat = flatten([t.scope for t in tables], [t.values for t in tables], arithmetic.dtype)
    plan = plan_mini_buckets(flat.scopes(), problem.domains, order, z=z, shifts=True)
    size = plan.entries * arithmetic.dtype.itemsize
    text = f"{arithmetic.dtype.name:7s} {plan.buckets:7d} {plan.cells:9.3g}"
    if size > memory:
        return f"{text}   {size:.3g} bytes do not fit the memory"
    here, times = timed(lambda: eliminate_matched(flat, plan, arithmetic, backend.threads), 3, max_seconds=2)
    cpu = 1e3 * times.least
    total = here.elimination.total()
    text += f" {here.shifts:6d} {'infeasible' if arithmetic.is_lowest(total) else problem.to_own_sense(total):>10}"
    text += f" {cpu:10.2f}"
    if backend.device == "cpu":
        return text
    there, times = timed(lambda: backend.eliminate_matched(flat, plan, arithmetic), 3, max_seconds=2)
    gpu = 1e3 * times.least
    if not isinstance(there.elimination, GpuElimination):
        return f"{text} {gpu:10.2f}   stayed on the CPU"
    same = all(np.array_equal(a, b) for a, b in zip(tables_of(here), tables_of(there), strict=True))
    same &= (here.peak_magnitude, here.shifts, here.skipped) == (there.peak_magnitude, there.shifts, there.skipped)
    hybrid = there.elimination.hybrid
    return f"{text} {gpu:10.2f} {cpu / gpu:6.1f}x {hybrid.last - hybrid.first:5d}   {'equal' if same else 'DIFFERENT'}"


def main() -> None:
    """Measure moment matching on the CPU and on the backend's device."""
    given = options(__file__, __doc__, device="cpu", memory="20GiB", only=True).parse_args()
    backend = Backend.of(given.device, cores())
    report = Report(__file__, given, device=backend.device)
    report(
        f"{'instance':24s} {'order':11s}   z numbers buckets     cells shifts      bound     CPU ms     GPU ms  ratio"
        " on GPU"
    )
    for name, limits in MATCHING.items():
        path = instances("instances") / f"{name}.wcsp"
        if given.only not in name:
            continue
        if not path.exists():
            report(f"{name:24s} not in $DMCMC_INSTANCES/instances")
            continue
        problem = dmcmc.load(path)
        for label, order in orders(problem).items():
            for z in limits:
                report(f"{name:24s} {label:11s} {z:3d} {match(problem, order, z, given.memory, backend)}")
    report.keep()


if __name__ == "__main__":
    main()
