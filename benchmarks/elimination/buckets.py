"""Measure the elimination of one large bucket on the CPU and on the GPU, against the limits of bytes and instructions.

    python -m benchmarks.elimination.buckets [--cells 1e9] [--device cuda] [--output FILE]

There are two kinds of bucket. ``split``: every factor holds x and a part of the separator, so tables are small, and the
work is one addition and one maximum per cell and table. ``child``: one factor is a message over x and the whole
separator, which must be read once: 4 bytes per cell. The limits are measured (a copy on the same device) or counted
(the maximum instruction rate at the current clock). The CPU kernel is compared with a NumPy implementation on one core.
"""

import statistics
import sys
from math import prod

import numpy as np

from benchmarks.harness import Report, options, timed
from dmcmc.inference.elimination.cuda.divide_work import divide_work
from dmcmc.inference.elimination.cuda.waves import LaunchQueue, describe_waves, run_waves
from dmcmc.inference.elimination.eliminate import eliminate, run_on_cpu
from dmcmc.inference.elimination.plan import EliminationPlan, plan_flat
from dmcmc.inference.elimination.semirings import MAX_PLUS, MAXIMUM
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.runtime.device import gpu_problem, shared_device

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


def numpy_elimination(flat: FlatTables, domains: np.ndarray) -> np.ndarray:
    """Eliminate x with NumPy: add the tables by broadcasting for one value of x at a time, and keep the maximum."""
    best = np.full(domains[1:], INT32.lowest, dtype=np.int32)
    total = np.empty_like(best)
    for x in range(domains[0]):
        total[...] = 0
        for t, scope in enumerate(flat.scopes()):
            table = flat.data[flat.at[t] : flat.at[t + 1]].reshape(domains[list(scope)])
            total += table[x].reshape([domains[v] if v in scope else 1 for v in range(1, len(domains))])
        np.maximum(best, total, out=best)
    return best


def on_cpu(domain: int, factors: int, kind: str, cells: float) -> str:
    """Time one thread of the CPU kernel and the NumPy implementation; return a line of the table."""
    flat, plan, domains = bucket(domain, factors, kind, cells)
    done = eliminate(flat, plan, INT32)
    expected = numpy_elimination(flat, domains)
    assert np.array_equal(done.table(plan.output(0)).values, expected)
    kernel_seconds = timed(lambda: run_on_cpu(done, 0, 1, MAX_PLUS, 1), 5, untimed=0)[1].median
    numpy_seconds = timed(lambda: numpy_elimination(flat, domains), 3, untimed=0)[1].median
    rate, ratio = plan.cells / kernel_seconds, numpy_seconds / kernel_seconds
    return f"{domain:4d} {factors:4d} {kind:6s} {plan.cells:10.3g} {rate / 1e9:9.2f} G/s   {ratio:6.1f} x NumPy"


def on_gpu(domain: int, factors: int, kind: str, cells: float, copy: float, instructions: float) -> str:
    """Time the CUDA kernel by events, and check a sample of its result against the CPU; return a line of the table."""
    from numba import cuda

    @cuda.jit
    def sleep(milliseconds):  # type: ignore[no-untyped-def]
        for _ in range(milliseconds):
            cuda.nanosleep(1_000_000)

    flat, plan, _ = bucket(domain, factors, kind, cells)
    hybrid = divide_work(plan, 0)
    program = hybrid.plan.program
    device = shared_device()
    waves = describe_waves(program, 0, 1, hybrid.device_begin, INT32.dtype, MAXIMUM)
    descriptors = waves.descriptors
    arena = device.buffer("bench", hybrid.device_entries, INT32.dtype)
    for t in range(flat.tables):
        at = int(program.at[t])
        arena[at : at + int(plan.sizes[t])].copy_to_device(flat.data[flat.at[t] : flat.at[t + 1]])
    arguments = (
        LaunchQueue(device),
        arena,
        waves,
        device.upload("meta", waves.descriptors),
        np.int32(INT32.lowest),
        MAXIMUM,
    )
    run_waves(*arguments)
    milliseconds = []
    for _ in range(5):  # behind a long kernel, so that launches queue up and the host's time does not count
        begin, end = cuda.event(), cuda.event()
        sleep[1, 1](10)
        begin.record()
        for _ in range(4):
            run_waves(*arguments)
        end.record()
        end.synchronize()
        milliseconds.append(cuda.event_elapsed_time(begin, end) / 4)
    seconds = statistics.median(milliseconds) / 1e3
    out = int(plan.sizes[-1])
    sample = np.empty(min(out, 1 << 20), dtype=np.int32)
    arena[int(descriptors[5]) : int(descriptors[5]) + sample.size].copy_to_host(sample)
    expected = eliminate(flat, plan, INT32, threads=8).table(plan.output(0)).values.reshape(-1)[: sample.size]
    assert np.array_equal(sample, expected), "the result of the GPU differs from that of the CPU"
    bytes_moved = 4 * (int(plan.sizes.sum()))
    least_seconds = {"bytes": bytes_moved / copy, "instructions": plan.cells / instructions}
    limit = max(least_seconds, key=least_seconds.__getitem__)
    rate = plan.cells / seconds / 1e12
    return (
        f"{domain:4d} {factors:4d} {kind:6s} {plan.cells:10.3g} {seconds * 1e3:9.3f} ms {rate:8.3f}"
        f" T cells/s   {100 * least_seconds[limit] / seconds:5.1f} % of the {limit} limit ({int(descriptors[4])} wide,"
        f" {descriptors[6]}+{descriptors[7]}+{descriptors[8]} tables)"
    )


def copy_speed() -> float:
    """Return the bytes per second that are read and written by a copy on the device."""
    from numba import cuda

    @cuda.jit
    def copy(source, to):  # type: ignore[no-untyped-def]
        for i in range(cuda.grid(1), source.size, cuda.gridsize(1)):
            to[i] = source[i]

    n = 1 << 28
    source, to = cuda.to_device(np.zeros(n, dtype=np.int64)), cuda.device_array(n, np.int64)
    copy[132 * 16, 512](source, to)
    a, b = cuda.event(), cuda.event()
    a.record()
    for _ in range(5):
        copy[132 * 16, 512](source, to)
    b.record()
    b.synchronize()
    return float(5 * 2 * 8 * n / (cuda.event_elapsed_time(a, b) / 1e3))


def main() -> None:
    """Measure all shapes."""
    parser = options(__file__, __doc__, device="cpu")
    parser.add_argument("--cells", type=float, default=1e9)
    given = parser.parse_args()
    report = Report(__file__, given)
    report(f"{given.device}: one bucket of about {given.cells:.3g} cells, int32")
    if given.device == "cuda":
        if gpu_problem() is not None:
            sys.exit(f"no GPU: {gpu_problem()}")
        from numba import cuda

        copy = copy_speed()
        clock = 1.98e9  # Hz under load, as nvidia-smi shows on an H200
        instructions = cuda.get_current_device().MULTIPROCESSOR_COUNT * 64 * clock
        report(f"copy {copy / 1e12:.2f} TB/s; add-and-maximum limit {instructions / 1e12:.1f} T/s")
    report(" |D| factors kind     cells")
    for kind in ("split", "child"):
        for domain in (2, 4, 10, 24):
            for factors in (2, 4, 8):
                if given.device == "cuda":
                    report(on_gpu(domain, factors, kind, given.cells, copy, instructions))
                else:
                    report(on_cpu(domain, factors, kind, given.cells))
    report.keep()


if __name__ == "__main__":
    main()
