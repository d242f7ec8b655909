"""Bounds of many cases at once, in whole numbers, by any array library: those of :mod:`..certificate`, to the unit.

Products of whole vectors are sums of whole numbers that all stay below 2^50, in whatever order they are added, so
float64 has them exactly on any device; all else is int64.
"""

from typing import Any

import numpy as np

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.tables.entries import THRESHOLD
from dmcmc.inference.bounds.semidefinite.certificate import bits_for
from dmcmc.inference.bounds.semidefinite.own.batch import CaseBatch
from dmcmc.inference.runtime.types import Ints

AT_ONCE = 8  # cases: their tables of eight bytes an entry are all there at a time


def certificates(batch: CaseBatch) -> list[int | None]:
    """Return the bounds of a batch's best points in their networks' scales, rounded up.

    NEVER where a case is proven infeasible; None where numbers are too large.
    """
    found = list[int | None]()
    for first in range(0, len(batch.starts), AT_ONCE):
        found += _some(batch, slice(first, min(first + AT_ONCE, len(batch.starts))))
    return found


def _some(batch: CaseBatch, part: slice) -> list[int | None]:
    """Return the bounds of some cases."""
    ground, arrays, put = batch.ground, batch.ground.arrays, batch.ground.arrays.put
    xp, size = arrays.module, batch.shape
    h, d, n = size.h, size.d, size.n
    units = np.array([ground.descents[agent].unit for agent in batch.agents[part]])
    there = batch.there[part]
    hidden, outer, shifts = (best[part].astype(np.float64) for best in batch.steps.best)
    roots = put(np.sqrt(units))
    hidden *= roots[:, None, None]
    outer *= roots[:, None, None]
    shifts *= put(units)[:, None, None]

    norms = xp.sqrt(xp.maximum((hidden * hidden).sum(axis=2).max(axis=1), (outer * outer).sum(axis=2).max(axis=1)))
    sizes = zip(arrays.get(norms).tolist(), arrays.get(xp.abs(shifts).max(axis=(1, 2))).tolist(), there, strict=True)
    known = [bits_for(longest, moved, int(own.sum())) for longest, moved, own in sizes]
    bits = np.array([0 if own is None else own for own in known], dtype=np.int64)
    if any(own is None for own in known):  # numbers of any size would be turned into whole ones
        usable = put(np.array([own is not None for own in known]))[:, None, None]
        hidden, outer, shifts = (xp.where(usable, one, 0.0) for one in (hidden, outer, shifts))

    finer = put(np.ldexp(1.0, bits))[:, None, None]
    squares = put(np.left_shift(np.int64(1), 2 * bits))
    hidden, outer = xp.rint(hidden * finer), xp.rint(outer * finer)
    moved = xp.rint(shifts * (finer * finer)).astype(np.int64)
    pairs = _of_pairs(batch, part, (hidden, moved, squares))
    values = put(batch.values[part])
    own = (hidden * hidden).sum(axis=2).astype(np.int64) + moved.sum(axis=1)
    crossing = xp.matmul(hidden, outer.transpose(0, 2, 1)).reshape(-1, n).astype(np.int64)
    entries = values * squares[:, None] + own + 2 * crossing
    entries = xp.where(values < THRESHOLD, np.int64(NEVER), entries)
    best = arrays.get(entries.reshape(-1, h, d).max(axis=2))
    around = arrays.get((outer * outer).sum(axis=(1, 2)))
    return [
        None if own is None else _bound(constant, 2 * own, best[b][there[b]], [int(around[b]), pairs[b]])
        for b, (own, constant) in enumerate(zip(known, batch.constants[part], strict=True))
    ]


def _bound(constant: int, bits: int, best: Ints, others: list[int]) -> int:
    """Return a bound, rounded up, from what there is without hidden variables, their maxima, and what else there is."""
    if constant < THRESHOLD or NEVER in others or (best == NEVER).any():
        return NEVER
    return -(-((constant << bits) + int(best.sum()) + sum(others)) >> bits)


def _of_pairs(batch: CaseBatch, part: slice, whole: tuple[Any, Any, Any]) -> list[int]:
    """Return the sums of the maxima of all pairs' tables, NEVER where one has no live entry."""
    hidden, moved, squares = whole
    arrays, size = batch.ground.arrays, batch.shape
    xp, count, h, d = arrays.module, len(hidden), size.h, size.d
    utilities = xp.take(batch.ground.pairs, arrays.put(batch.agents[part]), axis=0).reshape(count, h, d, h, d)
    table = xp.matmul(hidden, hidden.transpose(0, 2, 1)).reshape(count, h, d, h, d).astype(np.int64)
    table *= 2
    table += utilities.astype(np.int64) * squares[:, None, None, None, None]
    table -= moved.reshape(count, h, 1, h, d)
    table -= moved.reshape(count, h, h, d).transpose(0, 2, 3, 1)[..., None]
    table = xp.where(utilities < THRESHOLD, np.int64(NEVER), table)
    best = arrays.get(table.max(axis=4).max(axis=2))
    there = batch.there[part]
    counted = there[:, :, None] & there[:, None, :] & np.triu(np.ones((h, h), dtype=bool), 1)
    sums = [own[chosen] for own, chosen in zip(best, counted, strict=True)]
    return [NEVER if (own == NEVER).any() else int(own.sum()) for own in sums]
