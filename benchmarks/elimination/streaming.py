"""Measure a bucket of four times the usable device memory, which is streamed, and the same bucket in one piece.

    python -m benchmarks.elimination.streaming [--cells 1e9] [--output FILE]

All start with the inputs in page-locked host memory and end with the message there. The streamed bucket may use a
quarter of the memory of its tables; it is measured on the GPU alone, and with CPU cores that take chunks as well.
"""

import sys
from math import prod

import numpy as np

from benchmarks.harness import Report, options, timed
from dmcmc.inference.elimination.arena_kernels import place_inputs
from dmcmc.inference.elimination.cuda.streaming import StreamedWork, Streaming, stream_bucket
from dmcmc.inference.elimination.eliminate import Elimination, run_on_cpu
from dmcmc.inference.elimination.plan import EliminationPlan, plan_flat
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.threads import cores

INT32 = Arithmetic(np.dtype(np.int32), -(2**29), 2**27)


def shape_of(domain: int, cells: float) -> list[int]:
    """Return domain sizes, that of x first, whose product is about ``cells``."""
    sizes = [domain, domain]
    while prod(sizes) * domain <= cells * 1.01:
        sizes.append(domain)
    if cells / prod(sizes) >= 2:
        sizes.append(int(cells / prod(sizes)))
    return sizes


def bucket(domain: int, factors: int, kind: str, cells: float) -> tuple[FlatTables, EliminationPlan, np.ndarray]:
    """Return the tables of a bucket, its plan, and the domain sizes."""
    sizes = shape_of(domain, cells)
    separator = list(range(1, len(sizes)))
    small = factors - (kind == "child")
    scopes = [[0, *part.tolist()] for part in np.array_split(np.array(separator), small) if part.size]
    if kind == "child":
        scopes.append([0, *separator])
    rng = np.random.default_rng(0)
    domains = np.array(sizes)
    tables = [rng.integers(-1000, 1000, domains[s], dtype=np.int32) for s in scopes]
    flat = flatten(scopes, tables, INT32.dtype)
    return flat, plan_flat(flat.scope_start, flat.scope, domains, [0], separator), domains


def main() -> None:
    """Measure two kinds of bucket."""
    parser = options(__file__, __doc__)
    parser.add_argument("--cells", type=float, default=1e9)
    given = parser.parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    report = Report(__file__, given)
    for kind, domain in (("child", 10), ("split", 4)):
        measure(kind, domain, given.cells, report)
    report.keep()


def measure(kind: str, domain: int, cells: float, report: Report) -> None:
    """Measure one bucket in one piece and in chunks."""
    device = shared_device()
    flat, plan, _ = bucket(domain, 4, kind, cells)
    arena = device.page_locked(plan.entries, INT32.dtype)
    work = Elimination(plan, arena, INT32)
    place_inputs(plan.program, arena, *flat, np.int32(INT32.lowest))
    run_on_cpu(work, 0, 1, MAX_PLUS, cores())
    message = work.table(plan.output(0)).values
    expected = message.copy()
    total = plan.entries * 4
    report(f"{kind}, |D| = {domain}, {plan.cells:.3g} cells, tables of {total / 1e9:.2f} GB, {cores()} cores")
    in_one_piece = 0.0
    for name, limits in (
        ("one piece", Streaming(4 * total, shares=False)),
        ("a quarter of the memory, GPU", Streaming(total // 4, shares=False)),
        ("a quarter of the memory, GPU and CPU", Streaming(total // 4)),
    ):

        def stream(limits: Streaming = limits) -> StreamedWork:
            return stream_bucket(work, 0, MAX_PLUS, cores(), device, limits)

        message[...] = 0
        done, times = timed(stream, 4)
        assert np.array_equal(message, expected)
        in_one_piece = in_one_piece or times.least
        chunks = f"chunks: {done.gpu_chunks} of the GPU, {done.cpu_chunks} of the CPU"
        report(f"  {name:38s} {times.least * 1e3:9.1f} ms  {times.least / in_one_piece:5.2f} x  {chunks}")


if __name__ == "__main__":
    main()
