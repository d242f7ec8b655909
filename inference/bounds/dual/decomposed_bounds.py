"""Bounds as sums of small tables over parts of an interface that has too many rows to enumerate.

Such a bound is a list of summands, each a table over a few interface variables (or a constant); the bound of a row is
the sum of the entries that it selects. ``DualState`` and the mini-bucket bound use it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY, Scale, encode_bound
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.minibuckets.moment_matching import magnitude_limit_of
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.types import Array

BoundSummand = tuple[
    tuple[int, ...], Array
]  # a scope and its int64 entries in the integer scale; an entry below FORBIDDEN_BELOW is minus infinity


def encode_parts(
    parts: Sequence[BoundSummand], scale: Scale, local: Subproblem, arithmetic: Arithmetic
) -> tuple[EncodedTable, ...]:
    """Encode the summands of a bound as tables, each entry rounded up.

    If messages have made the entries too large for the arithmetic, given the other agents' tables, the result is a
    single constant: the sum of the factors' maxima.

    Parameters
    ----------
    parts : sequence of (scope, int64 array)
        The summands, in the integer scale; entries below ``FORBIDDEN_BELOW`` stand for minus infinity.
    scale : Scale
        Converts the entries to utilities.
    local : Subproblem
        The agent's factors.
    arithmetic : Arithmetic
        The number type and encoding of the result's entries.
    """
    tables, total_magnitude = [], 0.0
    for scope, values in parts:
        is_forbidden = (values < FORBIDDEN_BELOW).ravel()
        utilities = [
            0 if forbidden_entry else scale.decode_up(b)
            for forbidden_entry, b in zip(is_forbidden, values.ravel().tolist(), strict=True)
        ]
        total_magnitude += max((abs(x) for x in utilities), default=0)
        entries = [
            arithmetic.lowest if forbidden_entry else encode_bound(x, arithmetic)
            for forbidden_entry, x in zip(is_forbidden, utilities, strict=True)
        ]
        tables.append(EncodedTable(scope, np.array(entries, dtype=arithmetic.dtype).reshape(values.shape)))
    local_total = sum(int(magnitude(f.table)) for f in local.factors)
    # If the tables of every agent exceed its factors by at most this ratio, sums over all agents stay in range.
    if arithmetic.exact and total_magnitude > local_total * max(
        1, magnitude_limit_of(arithmetic) // max(1, int(arithmetic.total))
    ):
        return (EncodedTable((), np.array(scale.ceiling, dtype=arithmetic.dtype)),)
    return absorb(tables, arithmetic)


def local_maxima(layout: DualLayout, potentials: DualPotentials, interface: Sequence[int]) -> list[BoundSummand]:
    """Return a bound as summands: every table is maximised over the hidden variables separately.

    Parameters
    ----------
    layout : DualLayout
    potentials : DualPotentials
        Of ``layout.whole``.
    interface : sequence of int
        The problem's variable for each interface variable of the graph.

    Returns
    -------
    list of (scope, int64 or int32 array)
        Tables over one or two interface variables, and last the constant, with scope (): the sum of all maxima.
        Triangles are not counted, since dual ascent leaves them with a maximum of 0.
    """
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
