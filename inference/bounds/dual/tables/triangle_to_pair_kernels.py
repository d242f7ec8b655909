# mypy: ignore-errors
"""What a triangle gives back to one of its pairs: eight entries of a row at a time."""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import FLOAT, INTEGER, LANES, Table, constant, splat
from dmcmc.inference.runtime.compile import njit


def _naive(cluster, pair, rest, i, j, weight):
    """As :func:`hand_back`, for some entries of row i from column j on; return 0 where all stayed within the limits."""
    here, share = cluster[i, j : j + LANES], pair[i, j : j + LANES]
    marginal = here + rest[i, j : j + LANES]
    dead = marginal < THRESHOLD
    share[:] = marginal if weight == 1 else (marginal.astype(np.float32) * weight).astype(np.int32)
    here -= share
    share[dead], here[dead] = DEAD, DEAD
    live = np.abs(np.concatenate([here[~dead], share[~dead]]))
    return int((live > LIMIT).any())


if config.DISABLE_JIT:
    _lanes = _naive
else:

    def _emit(context, builder, signature, arguments):
        *tables, i, j, weight = arguments
        cluster, pair, rest = (
            Table(context, builder, kind, table) for kind, table in zip(signature.args, tables, strict=False)
        )
        integers = ir.VectorType(INTEGER, LANES)
        floats, dead_entry = ir.VectorType(FLOAT, LANES), constant(INTEGER, LANES, int(DEAD))
        here = cluster.load(i, j, integers)
        marginal = builder.add(here, rest.load(i, j, integers))
        dead = builder.icmp_signed("<", marginal, constant(INTEGER, LANES, int(THRESHOLD)))
        part = builder.fmul(builder.sitofp(marginal, floats), splat(builder, weight, LANES))
        everything = builder.fcmp_ordered("==", weight, ir.Constant(FLOAT, 1.0))
        share = builder.select(everything, marginal, builder.fptosi(part, integers))
        left = builder.sub(here, share)

        def beyond(value):
            """Whether entries are below −LIMIT or above LIMIT: one comparison without a sign."""
            moved = builder.add(value, constant(INTEGER, LANES, int(LIMIT)))
            return builder.icmp_unsigned(">", moved, constant(INTEGER, LANES, 2 * int(LIMIT)))

        found = builder.and_(builder.or_(beyond(left), beyond(share)), builder.not_(dead))
        pair.store(i, j, builder.select(dead, dead_entry, share))
        cluster.store(i, j, builder.select(dead, dead_entry, left))
        return builder.zext(builder.bitcast(found, ir.IntType(LANES)), ir.IntType(64))

    @intrinsic
    def _lanes(context, cluster, pair, rest, i, j, weight):
        return types.int64(cluster, pair, rest, types.intp, types.intp, types.float32), _emit


@njit(nogil=True)
def hand_back(cluster, pair, rest, weight, rows, columns):
    """Give a pair its share of cluster + rest, the triangle's max-marginal over it; return whether all fit the limits.

    A ``weight`` (float32) of 1 gives all of it, whatever a float32 holds. ``columns`` is a multiple of 8.
    """
    beyond = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            beyond |= _lanes(cluster, pair, rest, i, j, weight)
    return beyond == 0
