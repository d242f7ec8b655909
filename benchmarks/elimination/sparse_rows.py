"""Measure sparse tables: rows per second, bytes moved, and the choice between sparse and dense messages.

    python -m benchmarks.elimination.sparse_rows [--output FILE]

First, the messages of random buckets of every density are compared bit by bit: dense, sparse and, if there is one, on
the GPU. Then one bucket is measured: three tables over three variables each, of a given density, joined over six
variables, one of which is eliminated; sparse and dense, on all cores. ``as rows``, ``as dense`` and ``chosen`` are the
times of the message in function filtering: forced to be sparse, forced to be dense, and by its own choice; ``of best``
is the last relative to the better of the others. A dense message is compared with the cutoff entry by entry and then
stored as rows. The outside bounds are the same for all and not counted. The least of several rounds, in which the three
alternate, is shown. ``--processor``: processor time of one thread, which other load on the machine hardly changes.
``GB/s`` is the size of the message's rows per second; a copy's rate is given for comparison.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness import Columns, Report, options, timed
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.model.problem import Factor, choose_arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.sparse.bucket_rows import RowBuilder
from dmcmc.inference.sparse.function_filtering import FunctionFiltering
from dmcmc.inference.sparse.join_steps import Bucket, BucketInput, steps_of
from dmcmc.inference.sparse.outside_bounds import MiniBucketRelaxation
from dmcmc.inference.sparse.row_steps import RowLimits
from dmcmc.inference.sparse.size_statistics import max_dense_cells
from dmcmc.inference.sparse.sparse_table import SparseTable

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SCOPES = ((0, 1, 2), (0, 3, 4), (0, 2, 5))
MAX_MESSAGE_BYTES = 8 << 30
ROUNDS = 5


def sparse_bucket(density: float, size: int) -> EliminationQuery:
    """Return the query of a bucket whose tables have a given density."""
    rng, domains = np.random.default_rng(0), np.full(6, size)
    factors = []
    for scope in SCOPES:
        values = rng.integers(0, 99, [size] * len(scope)).astype(float)
        factors.append(Factor.of(scope, np.where(rng.random(values.shape) < density, values, -np.inf)))
    arithmetic = choose_arithmetic(factors)
    return EliminationQuery([arithmetic.encode(f) for f in factors], domains, [0], range(1, 6), arithmetic)


def builder_of(query: EliminationQuery) -> RowBuilder:
    """Return the builder of the bucket's message from sparse tables."""
    inputs = [BucketInput(SparseTable.of(t, query.domains, query.arithmetic), (t,)) for t in query.tables]
    bucket = Bucket(query.order[0], tuple(query.keep), inputs, (), query.domains, query.arithmetic)
    scope, steps = steps_of(bucket, MiniBucketRelaxation(query.domains, query.arithmetic, 2))
    size = int(query.domains[query.order[0]])
    return RowBuilder(scope, steps, size, query.arithmetic, query.arithmetic.forbidden_below, RowLimits(1 << 40))


def join(query: EliminationQuery) -> SparseTable:
    """Return the bucket's message, computed on the CPU."""
    return builder_of(query).resume(cores())


def join_on_gpu(query: EliminationQuery) -> SparseTable:
    """Return the bucket's message, computed on the GPU."""
    builder = builder_of(query)
    builder.resume(1, row_device=AlwaysGpu())
    return builder.resume(1)


class AlwaysGpu:
    """A row device that accepts all work."""

    def worth(self, seconds: float) -> bool:
        """Return True: all work pays on the GPU."""
        return True

    def carry(self, making: RowBuilder, ranges: Sequence[tuple[int, int]], stop: Deadline) -> bool:
        """Extend the rows of some ranges on the GPU."""
        from dmcmc.inference.sparse.cuda.extend_rows import GpuRowExtender

        carrier = GpuRowExtender(making, shared_device(), shared_device().limit)
        making.add_ranges(ranges, carrier.carry(ranges[0][0], ranges[-1][1], making.start, stop))
        return True


def timed_message(query: EliminationQuery, dense: float, processor: bool) -> tuple[float, bool]:
    """Compute the bucket's message as function filtering does; return the seconds, and whether dense tables were used.

    Parameters
    ----------
    query : EliminationQuery
        The bucket.
    dense : float
        Joined cells up to which a bucket is always joined densely; 0: never.
    processor : bool
        Whether to return processor seconds of one thread instead of wall seconds.
    """
    threads = 1 if processor else cores()
    work = FunctionFiltering(
        replace(query, order=range(6), keep=()), None, 2, MAX_MESSAGE_BYTES, threads, dense=int(dense)
    )
    start = time.process_time()
    _, seconds = timed(partial(work.message, 0), 1, 0)
    return time.process_time() - start if processor else seconds.least, 0 in work.joined


def agreement(report: Report, agreements: int) -> None:
    """Compare the messages of random buckets of every density bit by bit: dense, sparse and on a GPU."""
    rng, equal, has_gpu = np.random.default_rng(1), 0, gpu_problem() is None
    for _ in range(agreements):
        domains = rng.integers(2, 6, 5)
        scopes = [(0, *sorted(1 + rng.permutation(4)[: rng.integers(1, 4)])) for _ in range(3)]
        factors = []
        for scope in scopes:
            values = rng.integers(-99, 99, domains[list(scope)]).astype(float)
            factors.append(Factor.of(scope, np.where(rng.random(values.shape) < rng.random(), values, -np.inf)))
        arithmetic = choose_arithmetic(factors)
        keep = sorted({v for s in scopes for v in s} - {0})
        query = EliminationQuery([arithmetic.encode(f) for f in factors], domains, [0], keep, arithmetic)
        plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
        dense = eliminate(query.tables, plan, arithmetic).table(plan.output(0))
        expected = SparseTable.of(dense, domains, arithmetic)
        found = [join(query), join_on_gpu(query)] if has_gpu else [join(query)]
        reordered = [one.reordered(dense.scope, domains) for one in found]
        same = (np.array_equal(t.keys, expected.keys) and np.array_equal(t.values, expected.values) for t in reordered)
        equal += all(same)
    report(f"{equal} of {agreements} random buckets: equal messages, dense, sparse{', on the GPU' if has_gpu else ''}")
    report()


def densities(report: Report, size: int, processor: bool) -> None:
    """Measure a bucket at every density."""
    block = np.zeros(1 << 26, dtype=np.uint8)
    _, copy_times = timed(block.copy, 5)
    copy_rate, has_gpu = 2 * block.size / copy_times.least, gpu_problem() is None
    report(f"bucket over 6 variables of {size} values; a copy moves {copy_rate / 1e9:.1f} GB/s")
    columns = Columns(
        ("density", "8g"), ("fill", ">8.4f"), ("rows", ">10d"), ("rows ms", ">9.2f"), ("Mrows/s", ">9.1f"),
        ("GB/s", ">7.2f"), ("dense ms", ">9.2f"), ("as rows", ">9.2f"), ("as dense", ">9.2f"), ("chosen", ">9.2f"),
        ("is", ">6"), ("of best", ">8.2f"),
        ("GPU ms", ">9.2f"), ("Mrows/s", ">9.1f"),
    )  # fmt: skip
    report(columns.head)
    for density in DENSITIES:
        query = sparse_bucket(density, size)
        plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
        message, rows = timed(partial(join, query), 3, max_seconds=2)
        _, dense = timed(partial(eliminate, query.tables, plan, query.arithmetic, cores()), 3)
        rounds = [
            [timed_message(query, how, processor) for how in (0, 1 << 62, max_dense_cells())] for _ in range(ROUNDS)
        ]
        milliseconds = [1e3 * min(one[variant][0] for one in rounds) for variant in range(3)]
        how = "dense" if rounds[0][2][1] else "rows"
        gpu: list[float | None] = [None, None]
        if has_gpu:
            _, on_gpu = timed(partial(join_on_gpu, query), 3, max_seconds=2)
            gpu = [1e3 * on_gpu.least, message.rows / on_gpu.least / 1e6]
        report(
            columns.line(
                density, message.rows / size**5, message.rows, 1e3 * rows.least, message.rows / rows.least / 1e6,
                message.bytes / rows.least / 1e9, 1e3 * dense.least, *milliseconds, how,
                milliseconds[2] / min(milliseconds[:2]), *gpu,
            )
        )  # fmt: skip


def main() -> None:
    """Compare the messages of small buckets, then measure a bucket at every density."""
    parser = options(__file__, __doc__)
    parser.add_argument("--agreements", type=int, default=1000, help="number of random buckets that are compared")
    parser.add_argument("--sizes", type=int, nargs="*", default=[12, 24], help="values per variable")
    parser.add_argument("--processor", action="store_true", help="measure the choice by processor time of one thread")
    given = parser.parse_args()
    report = Report(__file__, given)
    agreement(report, given.agreements)
    for size in given.sizes:
        densities(report, size, given.processor)
    report.keep()


if __name__ == "__main__":
    main()
