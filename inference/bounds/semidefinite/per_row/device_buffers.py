"""What all cases of some agents share, laid out once: pairs' utilities, and points that cases begin at."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.bounds.semidefinite.descent import DEAD as FORBIDDEN
from dmcmc.inference.bounds.semidefinite.descent import Descent, Point
from dmcmc.inference.bounds.semidefinite.descent_batch import columns_of, shape_of, sizes_of
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseArrays, CaseShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import busiest_first


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
    utilities : (agents, n, n) float32, there
        Of pairs, in units.
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
        utilities = np.full((agents, n, n), FORBIDDEN, dtype=np.float32)
        pairs = np.full((agents, n, n), DEAD, dtype=np.int32)
        vectors, shifts = np.zeros((agents, m, r), dtype=np.float16), np.zeros((agents, h, n), dtype=np.float16)
        for b, (descent, columns) in enumerate(zip(descents, self.columns, strict=True)):
            places, point = np.ix_(columns, columns), descent.point
            worth = descent.network.values(digits[b])
            rows[self.first[b] : self.first[b] + len(worth), columns] = worth
            self.hard[b] |= (worth < THRESHOLD).any()
            utilities[b][places] = descent.in_units(descent.network.pairs)
            pairs[b][places] = descent.network.pairs
            vectors[b, columns, : point.vectors.shape[1]] = point.vectors[: columns.size]
            shifts[b][: len(point.shifts), columns] = point.shifts
        self.utilities, self.pairs, self.rows = arrays.put(utilities), arrays.put(pairs), arrays.put(rows)
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


def case_shape(descents: Sequence[Descent]) -> CaseShape:
    """Return the sizes of one case of some agents."""
    shape = shape_of(descents, 1)
    return CaseShape(1, shape.h, shape.d, shape.r)


def slot_bytes(shape: CaseShape) -> int:
    """Return the bytes of a point that is kept."""
    return 2 * (shape.m * shape.r + shape.h * shape.n)
