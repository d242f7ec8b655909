"""Bounds of many cases at once, in whole numbers, by any array library: those of :mod:`..certificate`, to the unit.

Products of whole vectors are sums of whole numbers that all stay below 2^50, in whatever order they are added, so
float64 has them exactly on any device; all else is int64.
"""

from typing import Any

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.certificate import bits_for
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseShape, ExactGiven
from dmcmc.inference.runtime.types import Ints

_AT_ONCE, _TURNS = 1 << 28, 2  # bytes of tables of pairs: some are there at a time, or all of a batch in so many turns


def certificates(batch: CaseBatch) -> list[int | None]:
    """Return the bounds of a batch's best points in their networks' scales, rounded up.

    NEVER where a case is proven infeasible; None where numbers are too large.
    """
    found = list[int | None]()
    count, many = len(batch.starts), _at_once(batch.shape)
    for first in range(0, count, many):
        found += _some(batch, slice(first, min(first + many, count)))
    return found


def certified_bytes(shape: CaseShape) -> int:
    """Return the bytes, about, that are taken meanwhile for a batch."""
    return _at_once(shape) * (8 * shape.m**2 + 16 * shape.m * shape.r + 32 * shape.h * shape.n)


def _at_once(shape: CaseShape) -> int:
    """Return how many of a batch's cases are certified at a time."""
    return max(1, _AT_ONCE // (8 * shape.m**2), -(-shape.cases // _TURNS))


def _some(batch: CaseBatch, part: slice) -> list[int | None]:
    """Return the bounds of some cases."""
    ground, arrays, put = batch.ground, batch.ground.arrays, batch.ground.arrays.put
    xp, n = arrays.module, batch.shape.n
    units, there = ground.units[batch.agents[part]], batch.there[part]
    points, shifts = (best[part] for best in batch.steps.best)
    longest = xp.sqrt((points * points).sum(axis=2, dtype=np.float64).max(axis=1) * put(units))
    moved = xp.abs(shifts).reshape(len(units), -1).max(axis=1).astype(np.float64) * put(units)
    sizes = zip(arrays.get(longest).tolist(), arrays.get(moved).tolist(), there.sum(axis=1).tolist(), strict=True)
    known = [bits_for(*own) for own in sizes]
    bits = np.array([0 if own is None else own for own in known], dtype=np.int64)
    if any(own is None for own in known):  # numbers of any size would be turned into whole ones
        usable = put(np.array([own is not None for own in known]))[:, None, None]
        points, shifts = xp.where(usable, points, 0.0), xp.where(usable, shifts, 0.0)

    vectors = points.astype(np.float64)
    vectors *= put(np.sqrt(units) * np.ldexp(1.0, bits))[:, None, None]
    xp.rint(vectors, out=vectors)
    moved = xp.rint(shifts * put(units * np.ldexp(1.0, 2 * bits))[:, None, None]).astype(np.int64)
    products = arrays.exact_products(vectors)
    sums = _of_pairs(batch, part, products, moved, bits)
    alone = arrays.get(_alone(batch, part, products, moved, bits))
    around, constants = arrays.get(products[:, n, n]).astype(np.int64), batch.constants[part]
    dead = (there & (alone == NEVER)).any(axis=1) | (constants < THRESHOLD) | (sums == NEVER)
    whole = (np.where(dead, 0, constants) << 2 * bits) + around + np.where(there, alone, 0).sum(axis=1) + sums
    bounds = np.where(dead, NEVER, -(-whole >> 2 * bits)).tolist()
    return [None if own is None else bound for own, bound in zip(known, bounds, strict=True)]


def _alone(batch: CaseBatch, part: slice, products: Any, moved: Any, bits: Ints) -> Any:
    """Return the maxima of what values are worth by themselves, (cases, h) int64, NEVER where none may be."""
    xp, put, values = batch.ground.arrays.module, batch.ground.arrays.put, batch.values[part]
    (cases, h, d, _), n, m = batch.shape._replace(cases=len(bits)), batch.shape.n, batch.shape.m
    entries = values * put(np.left_shift(np.int64(1), 2 * bits))[:, None] + moved.sum(axis=1)
    own = products.reshape(cases, -1)[:, :: m + 1][:, :n] + 2 * products[:, n, :n]
    entries += own.astype(np.int64)
    return xp.where(values < THRESHOLD, np.int64(NEVER), entries).reshape(cases, h, d).max(axis=2)


def _of_pairs(batch: CaseBatch, part: slice, products: Any, moved: Any, bits: Ints) -> Ints:
    """Return the sums of the maxima of all pairs' tables, (cases,), NEVER where one has no live entry."""
    arrays, xp = batch.ground.arrays, batch.ground.arrays.module
    agents, sizes = arrays.put(batch.agents[part]), arrays.put(batch.sizes[part])
    given = ExactGiven(batch.ground.pairs, agents, products, moved, sizes, arrays.put(bits))
    best = arrays.maxima(given, batch.shape._replace(cases=len(agents)))
    dead = (best == NEVER).any(axis=(1, 2))
    found: Ints = arrays.get(xp.where(dead, np.int64(NEVER), best.sum(axis=(1, 2))))
    return found
