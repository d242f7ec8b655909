"""Bounds as sums of small tables over parts of an interface that has too many rows to enumerate."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale, encode_bound
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.minibuckets.moment_matching import magnitude_limit_of
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.types import Array

BoundSummand = tuple[
    tuple[int, ...], Array
]  # a scope and its int64 entries in the integer scale; an entry below FORBIDDEN_BELOW is minus infinity


def encode_parts(
    parts: Sequence[BoundSummand], scale: Scale, local: LocalProblem, arithmetic: Arithmetic
) -> tuple[EncodedTable, ...]:
    """Encode summands of a bound as tables, each entry rounded up.

    If messages have made the entries too large for the arithmetic, given the other agents' tables, the result is a
    single constant: the sum of the factors' maxima.

    Parameters
    ----------
    parts : sequence of (scope, int64 array)
        In the integer scale; entries below ``FORBIDDEN_BELOW`` stand for minus infinity.
    scale : Scale
    local : LocalProblem
    arithmetic : Arithmetic
    """
    tables, size = [], 0.0
    for scope, values in parts:
        is_forbidden = (values < FORBIDDEN_BELOW).ravel()
        finite = [
            0 if excluded else scale.decode_up(b)
            for excluded, b in zip(is_forbidden, values.ravel().tolist(), strict=True)
        ]
        size += max((abs(x) for x in finite), default=0)
        numbers = [
            arithmetic.lowest if excluded else encode_bound(x, arithmetic)
            for excluded, x in zip(is_forbidden, finite, strict=True)
        ]
        tables.append(EncodedTable(scope, np.array(numbers, dtype=arithmetic.dtype).reshape(values.shape)))
    local_total = sum(int(magnitude(f.table)) for f in local.factors)
    if arithmetic.exact and size > local_total * max(
        1, magnitude_limit_of(arithmetic) // max(1, int(arithmetic.total))
    ):
        return (EncodedTable((), np.array(scale.ceiling, dtype=arithmetic.dtype)),)
    return absorb(tables, arithmetic)


def local_maxima(layout: DualLayout, potentials: DualPotentials, interface: Sequence[int]) -> list[BoundSummand]:
    """Return the maximum over the hidden variables of every table taken alone, as summands of a bound."""
    whole, n_hidden, domains = layout.whole, layout.n_hidden, layout.whole.domains.tolist()
    constant, summands = 0, list[BoundSummand]()
    for v, d in enumerate(domains):
        if v < n_hidden:
            constant += _allowed_maximum(potentials.unary[v])
        else:
            summands.append(((interface[v - n_hidden],), potentials.unary[v, :d].copy()))
    for e, (a, b) in enumerate(whole.pairs.tolist()):
        table = potentials.pair[e][: domains[a], : domains[b]]
        if b < n_hidden:
            constant += _allowed_maximum(table)
        elif a < n_hidden:
            summands.append(((interface[b - n_hidden],), table.max(axis=0)))
        else:
            summands.append(((interface[a - n_hidden], interface[b - n_hidden]), table.copy()))
    for first, last in pairwise(whole.entry_start.tolist()):
        constant += _allowed_maximum(potentials.higher_order[first:last])
    return [*summands, ((), np.array(constant))]


def _allowed_maximum(table: NDArray[np.int32]) -> int:
    """Return the largest allowed entry, ``MINUS_INFINITY`` if there is none."""
    best = int(table.max())
    return MINUS_INFINITY if best < FORBIDDEN_BELOW else best
