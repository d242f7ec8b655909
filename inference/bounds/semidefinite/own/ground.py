"""What all cases of some agents share, laid out once: pairs' utilities, and points that cases begin at."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entries import DEAD, THRESHOLD
from dmcmc.inference.bounds.semidefinite.batch import columns_of, shape_of, sizes_of
from dmcmc.inference.bounds.semidefinite.descent import DEAD as FORBIDDEN
from dmcmc.inference.bounds.semidefinite.descent import Descent, Point
from dmcmc.inference.bounds.semidefinite.own.cases import busiest_first
from dmcmc.inference.bounds.semidefinite.own.steps import CaseArrays, CaseShape

_HALF = 1 << 11  # whole numbers up to that are half numbers


class Ground:
    """Agents that have been laid out, and room for points of theirs.

    Parameters
    ----------
    descents
        Of the agents.
    arrays : CaseArrays
    slots : int
        Points that there is room for besides one for each agent.

    Attributes
    ----------
    shape : CaseShape
        Of one case.
    columns
        Where each agent's values are.
    sizes : (agents, h) int32
        Of domains.
    orders
        In which each agent's variables are fixed.
    units : (agents,) float64
        What each agent measures in, in its scale.
    hard : (agents,) bool
        Whether anything is forbidden.
    utilities : (agents, n, n) float16 or float32, there
        Of pairs: half numbers where those are exact, since steps read them more often than anything else.
    scales : (agents,) float32, there
        What they are multiplied by to be in units.
    pairs : (agents, n, n) int32, there
        In the scale.
    rows : (rows, n) int64, there
        What values are worth by themselves in the rows of all agents, one agent after the other.
    first : (agents,) int64
        Where an agent's rows begin.
    constants : (rows,) int64
        What rows are worth without hidden variables.
    vectors : (slots, m, r) float16, there
        Of points: those of an agent's rows together in the slot of its number.
    shifts : (slots, h, n) float16, there
    free : list of int
        Slots that have no point.
    """

    def __init__(self, descents: Sequence[Descent], arrays: CaseArrays, slots: int) -> None:
        self.descents, self.arrays = list(descents), arrays
        self.shape = case_shape(descents)
        h, d, n, m, r = self.shape.h, self.shape.d, self.shape.n, self.shape.m, self.shape.r
        networks, agents = [descent.network for descent in descents], len(descents)
        self.columns, self.sizes = [columns_of(network, d) for network in networks], sizes_of(networks, h)
        self.orders = [busiest_first(network) for network in networks]
        self.units = np.array([descent.unit for descent in descents])
        digits = [network.digits(np.arange(math.prod(network.shape))) for network in networks]
        self.first = np.cumsum([0, *map(len, digits)], dtype=np.int64)[:-1]
        self.constants = np.concatenate([x.constants(own) for x, own in zip(networks, digits, strict=True)])
        rows = np.full((self.constants.size, n), DEAD, dtype=np.int64)
        self.hard = np.array([(network.pairs < THRESHOLD).any() for network in networks])
        pairs = np.full((agents, n, n), DEAD, dtype=np.int32)
        vectors, shifts = np.zeros((agents, m, r), dtype=np.float16), np.zeros((agents, h, n), dtype=np.float16)
        for b, (descent, columns) in enumerate(zip(descents, self.columns, strict=True)):
            places, point = np.ix_(columns, columns), descent.point
            worth = descent.network.values(digits[b])
            rows[self.first[b] : self.first[b] + len(worth), columns] = worth
            self.hard[b] |= (worth < THRESHOLD).any()
            pairs[b][places] = descent.network.pairs
            vectors[b, columns, : point.vectors.shape[1]] = point.vectors[: columns.size]
            shifts[b][: len(point.shifts), columns] = point.shifts
        self.pairs, self.rows = arrays.put(pairs), arrays.put(rows)
        self.utilities, self.scales = map(arrays.put, in_few_bits(pairs, self.sizes, self.units))
        self.free = list(range(agents, agents + slots))
        self.vectors, self.shifts = (self._with_room(part, slots) for part in (vectors, shifts))

    def _with_room(self, points: Any, slots: int) -> Any:
        """Return an array of points there, with room for more."""
        xp = self.arrays.module
        found = xp.zeros((len(points) + slots, *points.shape[1:]), dtype=np.float16)
        found[: len(points)] = self.arrays.put(points)
        return found

    def keep(self, point: tuple[Any, Any], chosen: Sequence[int]) -> list[int]:
        """Keep some cases' points of a batch, (cases, m, r) and (cases, h, n); return their slots."""
        slots = [self.free.pop() for _ in chosen]
        self.put_back(point, chosen, slots)
        return slots

    def put_back(self, point: tuple[Any, Any], chosen: Sequence[int], slots: Sequence[int]) -> None:
        """Put some cases' points of a batch where they are kept."""
        if not slots:
            return
        at, there = (self.arrays.put(np.array(numbers, dtype=np.int64)) for numbers in (chosen, slots))
        for kept, here in zip((self.vectors, self.shifts), point, strict=True):
            kept[there] = self.arrays.module.take(here, at, axis=0).astype(np.float16)

    def taken_out(self, agent: int, vectors: Any, shifts: Any) -> Point:
        """Return a case's point as its agent has it: vectors of hidden values, then the row's, and shifts."""
        columns, descent = self.columns[agent], self.descents[agent]
        long, h = descent.point.vectors.shape[1], descent.network.starts.size - 1
        hidden = self.arrays.get(vectors)[np.append(columns, self.shape.n), :long].astype(np.float32)
        return Point(hidden, self.arrays.get(shifts)[:h, columns].astype(np.float32))


def in_few_bits(
    pairs: NDArray[np.int32], sizes: NDArray[np.int32], units: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return pairs' utilities as steps read them, and what they are multiplied by to be in units, for each agent.

    They are half numbers where these are multiples of powers of two that have them exactly, all values are there, and
    none is forbidden; in units otherwise.

    Parameters
    ----------
    pairs : (agents, n, n)
        In the scale; what is not there is forbidden.
    sizes : (agents, h)
        Of domains, 0 where there is no variable.
    units : (agents,)
    """
    d = pairs.shape[1] // sizes.shape[1]
    there = np.repeat(sizes > 0, d, axis=1)
    live, asked = pairs >= THRESHOLD, there[:, :, None] & there[:, None, :]
    if np.isin(sizes, (0, d)).all() and live[asked].all():
        bits = np.bitwise_or.reduce(np.where(live, pairs, 0), axis=(1, 2), dtype=np.int64)
        steps = np.maximum(1, bits & -bits)
        whole = np.where(live, pairs, 0) // steps[:, None, None]
        if np.abs(whole).max(initial=0) <= _HALF:
            return whole.astype(np.float16), (steps / units).astype(np.float32)
    found = pairs * (1 / units).astype(np.float32)[:, None, None]
    return np.where(live, found, np.float32(FORBIDDEN)).astype(np.float32), np.ones(len(units), dtype=np.float32)


def case_shape(descents: Sequence[Descent]) -> CaseShape:
    """Return the sizes of one case of some agents."""
    shape = shape_of(descents, 1)
    return CaseShape(1, shape.h, shape.d, shape.r)


def slot_bytes(shape: CaseShape) -> int:
    """Return the bytes of a point that is kept."""
    return 2 * (shape.m * shape.r + shape.h * shape.n)
