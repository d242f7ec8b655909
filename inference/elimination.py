"""Bucket elimination on the CPU: run a plan, keep what VALUE needs, read an optimal assignment back.

Dechter's bucket elimination (GpuBE journal paper, §3.1) with the join and the projection of a bucket fused.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.bucket_kernel import join_max
from dmcmc.inference.plan import Bucket, Plan, is_partial
from dmcmc.inference.tables import Array
from dmcmc.inference.threads import run_parallel

_TASK = 1 << 19  # joined cells worth a task of their own


@dataclass(frozen=True)
class Elimination:
    """A finished elimination: every table it made, so that maximisers can be looked up.

    Attributes
    ----------
    plan : Plan
    arena : ndarray, shape (plan.arena,)
    arithmetic : Arithmetic
    """

    plan: Plan
    arena: Array
    arithmetic: Arithmetic

    def table(self, t: int) -> Table:
        """Return table ``t`` of the plan as a view."""
        at, shape = self.plan.offsets[t], self.plan.shapes[t]
        return Table(self.plan.scopes[t], self.arena[at : at + prod(shape)].reshape(shape))

    def remaining(self) -> tuple[Table, ...]:
        """Return the tables over kept variables, none's scope inside another's; their sum is the result."""
        return absorb([self.table(t) for t in self.plan.remaining], self.arithmetic)

    def maximise(self, values: MutableMapping[int, int]) -> None:
        """Add the maximising value of every eliminated variable to ``values``, which holds the kept ones.

        Buckets are walked last to first; ties go to the lowest value index. Reads one row of each table of a bucket.
        """
        for bucket in reversed(self.plan.buckets):
            total: Array | None = None
            for t in bucket.inputs:
                scope, table = self.table(t)
                index: tuple[Any, ...] = (slice(None), *(values[v] for v in scope[1:]))
                row = table[index]
                total = row if total is None else self.arithmetic.add(total, row)
            values[bucket.variable] = 0 if total is None else int(np.argmax(total))


def eliminate(
    tables: Sequence[Table], plan: Plan, domains: NDArray[np.int64], arithmetic: Arithmetic, threads: int = 1
) -> Elimination:
    """Carry out a plan: eliminate its variables by maximisation from the sum of ``tables``.

    Parameters
    ----------
    tables
        Encoded tables, one for each input of the plan.
    domains
        Domain sizes by variable.
    arithmetic
        What the tables are encoded in.
    threads
        How many threads the large buckets are spread over. The result does not depend on it.
    """
    done = Elimination(plan, np.empty(max(1, plan.arena), dtype=arithmetic.dtype), arithmetic)
    for t, (scope, values) in enumerate(tables):
        done.table(t).values[...] = values.transpose([scope.index(v) for v in plan.scopes[t]])
    for bucket in plan.buckets:
        run_parallel(_bucket_tasks(done, bucket, domains, threads), threads if bucket.cells > _TASK else 1)
    return done


def absorb(tables: Sequence[Table], arithmetic: Arithmetic) -> tuple[Table, ...]:
    """Add every table whose scope lies inside another's to that one; the sum stays the same, the tables get fewer."""
    kept: list[Table] = []
    for scope, values in sorted(tables, key=lambda t: -len(t.scope)):
        home = next((i for i, t in enumerate(kept) if set(scope) <= set(t.scope)), None)
        if home is None:
            kept.append(Table(scope, values))
            continue
        into = kept[home]
        order = sorted(range(len(scope)), key=lambda axis: into.scope.index(scope[axis]))
        shape = [into.values.shape[i] if v in scope else 1 for i, v in enumerate(into.scope)]
        kept[home] = Table(into.scope, arithmetic.add(into.values, values.transpose(order).reshape(shape)))
    return tuple(kept)


def _bucket_tasks(
    work: Elimination, bucket: Bucket, domains: NDArray[np.int64], threads: int
) -> list[Callable[[], None]]:
    """Prepare one bucket for the kernel and return the tasks that fill its output, a range of rows each."""
    arena, arithmetic = work.arena, work.arithmetic
    lowest = arithmetic.dtype.type(arithmetic.lowest)
    x_size = int(domains[bucket.variable])
    split = len(bucket.separator) - bucket.low
    high, low = bucket.separator[:split], bucket.separator[split:]
    low_shape = tuple(int(domains[v]) for v in low)
    base = np.zeros((x_size, *low_shape), dtype=arithmetic.dtype)
    scalars: list[list[int]] = []
    vectors: list[list[int]] = []
    scratch = work.plan.entries
    for t in bucket.inputs:
        scope, values = work.table(t)
        at = work.plan.offsets[t]
        if not any(v in scope for v in high):
            shape = (x_size, *(n if v in scope else 1 for v, n in zip(low, low_shape, strict=True)))
            np.maximum(base + values.reshape(shape), lowest, out=base)
            continue
        if is_partial(scope, high, low):
            leading = tuple(n for v, n in zip(scope, values.shape, strict=True) if v not in low)
            ones = tuple(n if v in scope else 1 for v, n in zip(low, low_shape, strict=True))
            at, scratch = scratch, scratch + prod(leading) * prod(low_shape)
            scope = (*(v for v in scope if v not in low), *low)
            repeated = arena[at:scratch].reshape(*leading, *low_shape)
            repeated[...] = values.reshape(*leading, *ones)
            values = repeated
        stride = dict(zip(scope, (s // values.itemsize for s in values.strides), strict=True))
        entry = [at, stride[bucket.variable], *(stride.get(v, 0) for v in high)]
        (vectors if low and low[-1] in scope else scalars).append(entry)
    width = prod(low_shape)
    rows = prod(int(domains[v]) for v in high)
    table_of = [np.array(group, dtype=np.int64).reshape(len(group), 2 + len(high)) for group in (scalars, vectors)]
    kernel = partial(
        cast(Callable[..., None], join_max),
        arena,
        work.table(bucket.output).values.reshape(rows, width),
        np.array([domains[v] for v in high], dtype=np.int64),
        base.reshape(x_size, width),
        *table_of,
        lowest,
    )
    pieces = min(rows, 4 * threads) if threads > 1 and bucket.cells > _TASK else 1
    bounds = [rows * i // pieces for i in range(pieces + 1)]
    return [partial(kernel, begin, end) for begin, end in pairwise(bounds)]
