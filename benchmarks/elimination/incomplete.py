"""Incomplete tables: rows a second beside the bytes moved and beside dense.

    python -m benchmarks.elimination.incomplete [--output FILE]

First random buckets of every density: the same rows dense, incomplete and, if there is one, on
the GPU. Then a bucket: three tables over three variables each, of some density, joined over six variables, of which one
is eliminated; incomplete and dense, all cores. ``as rows``, ``as dense`` and ``chosen``: the message as an elimination
that filters makes it, either way by force, and as it chooses, beside the better of the two: what is dense is compared
entry by entry with what can win, and listed. Its bounds, the same for all, are not counted. The least of some turns,
which the three take one after another; with ``--processor`` of the processor's time, on one thread: other work on the
machine hardly changes that. GB/s: of the rows of the message, beside what a copy moves.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness import Columns, Report, options, timed
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.model.arithmetic import choose_arithmetic
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.sparse.bucket_rows import Making, Room
from dmcmc.inference.sparse.function_filtering import Filtering
from dmcmc.inference.sparse.join_steps import Bucket, Input, steps_of
from dmcmc.inference.sparse.outside_bounds import Relaxing
from dmcmc.inference.sparse.size_statistics import DENSE
from dmcmc.inference.sparse.sparse_table import Incomplete

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SCOPES = ((0, 1, 2), (0, 3, 4), (0, 2, 5))
MOST, TURNS = 8 << 30, 5  # bytes of messages


def sparse_bucket(density: float, size: int) -> Query:
    """Return the tables of a bucket, of some density."""
    rng, domains = np.random.default_rng(0), np.full(6, size)
    factors = []
    for scope in SCOPES:
        values = rng.integers(0, 99, [size] * len(scope)).astype(float)
        factors.append(Factor.of(scope, np.where(rng.random(values.shape) < density, values, -np.inf)))
    arithmetic = choose_arithmetic(factors)
    return Query([arithmetic.encode(f) for f in factors], domains, [0], range(1, 6), arithmetic)


def making_of(query: Query) -> Making:
    """Return the bucket's message from incomplete tables, still to be made."""
    listed = [Input(Incomplete.of(t, query.domains, query.arithmetic), (t,)) for t in query.tables]
    bucket = Bucket(query.order[0], tuple(query.keep), listed, (), query.domains, query.arithmetic)
    scope, steps = steps_of(bucket, Relaxing(query.domains, query.arithmetic, 2))
    size = int(query.domains[query.order[0]])
    return Making(scope, steps, size, query.arithmetic, query.arithmetic.threshold, Room(1 << 40))


def join(query: Query) -> Incomplete:
    """Return the bucket's message."""
    return making_of(query).go_on(cores())


def join_on_gpu(query: Query) -> Incomplete:
    """Return the bucket's message, made on the GPU."""
    making = making_of(query)
    making.go_on(1, elsewhere=Always())
    return making.go_on(1)


class Always:
    """A GPU that everything is worth."""

    def worth(self, seconds: float) -> bool:
        """Say so."""
        return True

    def carry(self, making: Making, ranges: Sequence[tuple[int, int]], stop: Stop) -> bool:
        """Carry ranges there."""
        from dmcmc.inference.sparse.cuda.extend_rows import Carrier

        carrier = Carrier(making, shared_device(), shared_device().limit)
        making.take(ranges, carrier.carry(ranges[0][0], ranges[-1][1], making.start, stop))
        return True


def made(query: Query, dense: float, processor: bool) -> tuple[float, bool]:
    """Make the bucket's message as an elimination does; return the seconds, and whether it was from dense tables.

    Parameters
    ----------
    dense
        Joined cells up to which buckets are dense in any case; 0: none is.
    processor
        Whether the seconds are of one thread's processor.
    """
    threads = 1 if processor else cores()
    work = Filtering(replace(query, order=range(6), keep=()), None, 2, MOST, threads, dense=int(dense))
    start = time.process_time()
    _, seconds = timed(partial(work.message, 0), 1, 0)
    return time.process_time() - start if processor else seconds.least, 0 in work.joined


def agreement(say: Report, agreements: int) -> None:
    """Compare messages of random buckets of every density, to the bit: dense, incomplete, on a GPU."""
    rng, alike, there = np.random.default_rng(1), 0, gpu_problem() is None
    for _ in range(agreements):
        domains = rng.integers(2, 6, 5)
        scopes = [(0, *sorted(1 + rng.permutation(4)[: rng.integers(1, 4)])) for _ in range(3)]
        factors = []
        for scope in scopes:
            values = rng.integers(-99, 99, domains[list(scope)]).astype(float)
            factors.append(Factor.of(scope, np.where(rng.random(values.shape) < rng.random(), values, -np.inf)))
        arithmetic = choose_arithmetic(factors)
        keep = sorted({v for s in scopes for v in s} - {0})
        query = Query([arithmetic.encode(f) for f in factors], domains, [0], keep, arithmetic)
        plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
        dense = eliminate(query.tables, plan, arithmetic).table(plan.output(0))
        expected = Incomplete.of(dense, domains, arithmetic)
        found = [join(query), join_on_gpu(query)] if there else [join(query)]
        turned = [one.reordered(dense.scope, domains) for one in found]
        same = (np.array_equal(t.keys, expected.keys) and np.array_equal(t.values, expected.values) for t in turned)
        alike += all(same)
    say(f"{alike} of {agreements} random buckets: the same rows dense, incomplete{', on the GPU' if there else ''}")
    say()


def densities(say: Report, size: int, processor: bool) -> None:
    """Measure a bucket at every density."""
    block = np.zeros(1 << 26, dtype=np.uint8)
    _, copied = timed(block.copy, 5)
    rate, there = 2 * block.size / copied.least, gpu_problem() is None
    say(f"bucket over 6 variables of {size} values; a copy moves {rate / 1e9:.1f} GB/s")
    columns = Columns(
        ("density", "8g"), ("fill", ">8.4f"), ("rows", ">10d"), ("rows ms", ">9.2f"), ("Mrows/s", ">9.1f"),
        ("GB/s", ">7.2f"), ("dense ms", ">9.2f"), ("as rows", ">9.2f"), ("as dense", ">9.2f"), ("chosen", ">9.2f"),
        ("is", ">6"), ("of best", ">8.2f"),
        ("GPU ms", ">9.2f"), ("Mrows/s", ">9.1f"),
    )  # fmt: skip
    say(columns.head)
    for density in DENSITIES:
        query = sparse_bucket(density, size)
        plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
        message, rows = timed(partial(join, query), 3, enough=2)
        _, dense = timed(partial(eliminate, query.tables, plan, query.arithmetic, cores()), 3)
        turns = [[made(query, how, processor) for how in (0, 1 << 62, DENSE)] for _ in range(TURNS)]
        ways = [1e3 * min(turn[way][0] for turn in turns) for way in range(3)]
        how = "dense" if turns[0][2][1] else "rows"
        gpu: list[float | None] = [None, None]
        if there:
            _, on_gpu = timed(partial(join_on_gpu, query), 3, enough=2)
            gpu = [1e3 * on_gpu.least, message.rows / on_gpu.least / 1e6]
        say(
            columns.line(
                density, message.rows / size**5, message.rows, 1e3 * rows.least, message.rows / rows.least / 1e6,
                message.bytes / rows.least / 1e9, 1e3 * dense.least, *ways, how, ways[2] / min(ways[:2]), *gpu,
            )
        )  # fmt: skip


def main() -> None:
    """Compare messages of small buckets, then measure a bucket at every density."""
    parser = options(__file__, __doc__)
    parser.add_argument("--agreements", type=int, default=1000, help="random buckets that are compared")
    parser.add_argument("--sizes", type=int, nargs="*", default=[12, 24], help="values of a variable")
    parser.add_argument("--processor", action="store_true", help="processor time of one thread for the choice")
    given = parser.parse_args()
    say = Report(__file__, given)
    agreement(say, given.agreements)
    for size in given.sizes:
        densities(say, size, given.processor)
    say.keep()


if __name__ == "__main__":
    main()
