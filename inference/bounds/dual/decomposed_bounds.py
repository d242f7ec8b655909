"""Bounds that are sums of small tables over parts of an interface whose rows are too many to list."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Layout, Shares
from dmcmc.inference.bounds.dual.integer_scaling import NEVER, Scale, encode_bound
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.minibuckets.moment_matching import room_of
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.types import Array

Part = tuple[tuple[int, ...], Array]  # a scope and whole numbers in the scale; below THRESHOLD is −∞


def encode_parts(parts: Sequence[Part], scale: Scale, local: LocalProblem, arithmetic: Arithmetic) -> tuple[Table, ...]:
    """Return parts as encoded tables, each entry rounded up.

    Where shifts have made the entries larger than the numbers have room for beside all other agents' tables, what is
    left is one constant.
    """
    tables, size = [], 0.0
    for scope, values in parts:
        hard = (values < THRESHOLD).ravel()
        finite = [0 if h else scale.decode_up(b) for h, b in zip(hard, values.ravel().tolist(), strict=True)]
        size += max((abs(x) for x in finite), default=0)
        numbers = [arithmetic.lowest if h else encode_bound(x, arithmetic) for h, x in zip(hard, finite, strict=True)]
        tables.append(Table(scope, np.array(numbers, dtype=arithmetic.dtype).reshape(values.shape)))
    own = sum(int(magnitude(f.table)) for f in local.factors)
    if arithmetic.exact and size > own * max(1, room_of(arithmetic) // max(1, int(arithmetic.total))):
        return (Table((), np.array(scale.ceiling, dtype=arithmetic.dtype)),)
    return absorb(tables, arithmetic)


def maxima(layout: Layout, shares: Shares, interface: Sequence[int]) -> list[Part]:
    """Return the maxima over hidden variables of every table by itself."""
    whole, h, domains = layout.whole, layout.n_hidden, layout.whole.domains.tolist()
    constant, found = 0, list[Part]()
    for v, d in enumerate(domains):
        if v < h:
            constant += _live_maximum(shares.unary[v])
        else:
            found.append(((interface[v - h],), shares.unary[v, :d].copy()))
    for e, (a, b) in enumerate(whole.pairs.tolist()):
        table = shares.pair[e][: domains[a], : domains[b]]
        if b < h:
            constant += _live_maximum(table)
        elif a < h:
            found.append(((interface[b - h],), table.max(axis=0)))
        else:
            found.append(((interface[a - h], interface[b - h]), table.copy()))
    for first, last in pairwise(whole.star_at.tolist()):
        constant += _live_maximum(shares.star[first:last])
    return [*found, ((), np.array(constant))]


def _live_maximum(table: NDArray[np.int32]) -> int:
    best = int(table.max())
    return NEVER if best < THRESHOLD else best
