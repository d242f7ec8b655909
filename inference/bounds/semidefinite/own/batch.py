"""Squares of many cases, side by side; where they begin is gathered where the steps are made."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.tables.entries import DEAD
from dmcmc.inference.bounds.semidefinite.batch import apart
from dmcmc.inference.bounds.semidefinite.descent import Point, Singles
from dmcmc.inference.bounds.semidefinite.own.cases import Case, Plan, utilities_of
from dmcmc.inference.bounds.semidefinite.own.ground import Ground
from dmcmc.inference.bounds.semidefinite.steps import Given, Steps
from dmcmc.inference.runtime.types import Ints

_ROUGH = 0.004  # units: products may be rough for temperatures above, as in the first thousand steps of a descent


class Start(NamedTuple):
    """Where a case begins: an agent's case, one of some points, and the vector of its row."""

    agent: int
    case: Case
    point: int
    around: Singles


class CaseBatch:
    """Cases that make their steps together.

    Parameters
    ----------
    ground : Ground
    starts
        One for each case.
    points
        Vectors of hidden values, and perhaps others, and shifts, of an agent each.

    Attributes
    ----------
    values : (cases, n) int64
        What each value is worth by itself, in the scale.
    constants : list of int
        What there is without hidden variables.
    there : (cases, h) bool
        Which variables there are.
    agents : (cases,) int64
    """

    def __init__(self, ground: Ground, starts: Sequence[Start], points: Sequence[Point]) -> None:
        self.ground, self.starts = ground, starts
        self.shape = ground.shape._replace(agents=len(starts))
        self.agents = np.array([start.agent for start in starts], dtype=np.int64)
        sizes = ground.sizes[self.agents]
        for own, start in zip(sizes, starts, strict=True):
            if start.case.variable is not None:
                own[start.case.variable] = 0
        self.there = sizes > 0
        self._take_utilities()
        xp, put, d = ground.arrays.module, ground.arrays.put, self.shape.d
        agents = put(self.agents)
        live = put(self.there.astype(np.float32))
        values = (np.arange(d) < sizes[:, :, None]).astype(np.float32).reshape(len(starts), 1, -1)
        moves = xp.repeat(put(apart(self.there).astype(np.float32)), d, axis=2) * put(values)
        given = Given(
            xp.take(ground.utilities, agents, axis=0),
            put(sizes),
            live[:, None, :],
            moves,
            xp.ones((len(starts), 1, 1), dtype=np.float32),
            put(self._in_units[:, None, :]),
            put(np.array(self._levels)[:, None]),
        )
        here = self._gathered(points, xp.repeat(live, d, axis=1)[:, :, None], moves)
        others = [[xp.zeros_like(part) for part in here] for _ in range(2)]
        self.steps = Steps(self.shape, given, [here, *others], ground.arrays, stars=True)

    def run(self, plan: Plan, more: Callable[[int], int]) -> int:
        """Make the steps of a plan; return how many were made.

        Parameters
        ----------
        more
            As for :meth:`.batch.Batch.run`.
        """
        made, arrays, cold = 0, self.ground.arrays, 0
        while cold < plan.steps and plan.warm * (plan.cold / plan.warm) ** (cold / max(1, plan.steps - 1)) > _ROUGH:
            cold += 1
        while made < plan.steps and (wanted := more(made)) > 0:
            wanted = min(wanted, (cold if made < cold else plan.steps) - made)
            self.steps.make(self._words(plan, made, wanted), made, made < cold)
            made += wanted
            arrays.get(self.steps.least)  # waits
        self.steps.end(self._words(plan, min(made, plan.steps - 1), 1), False)
        return made

    def point(self, b: int) -> Point:
        """Return the best point of a case: vectors of the agent's hidden values, then the row's, and shifts."""
        hidden, outer, shifts = (self.ground.arrays.get(part[b]) for part in self.steps.best)
        agent = int(self.agents[b])
        columns, descent = self.ground.columns[agent], self.ground.descents[agent]
        long, h = descent.point.vectors.shape[1], descent.network.starts.size - 1
        vectors = np.empty((columns.size + 1, long), dtype=np.float32)
        places = slice(None) if columns.size == len(hidden) else columns  # copies whole rows at once
        vectors[:-1], vectors[-1] = hidden[places, :long], outer[0, :long]
        return Point(vectors, shifts[:h, places].copy())

    def _words(self, plan: Plan, first: int, count: int) -> Singles:
        """Return the schedule of some steps, the same for all cases."""
        words = np.array([plan.at(step) for step in range(first, first + count)], dtype=np.float32)
        return np.repeat(words[:, None, :], len(self.starts), axis=1)

    def _take_utilities(self) -> None:
        """Lay out what values and rows are worth."""
        count, n = len(self.starts), self.shape.n
        self.values = np.full((count, n), DEAD, dtype=np.int64)
        self.constants, self._levels = list[int](), list[float]()
        self._in_units = np.full((count, n), -1e9, dtype=np.float32)
        for b, (agent, case, _, _) in enumerate(self.starts):
            descent, columns = self.ground.descents[agent], self.ground.columns[agent]
            values, constant = utilities_of(descent.network, case)
            self.values[b, columns], self._in_units[b, columns] = values, descent.in_units(values)
            self.constants.append(constant)
            self._levels.append(constant / descent.unit)

    def _gathered(self, points: Sequence[Point], live: Any, moves: Any) -> list[Any]:
        """Lay out the points, once each; return where the cases begin."""
        arrays, (h, n, r) = self.ground.arrays, (self.shape.h, self.shape.n, self.shape.r)
        hidden = np.zeros((len(points), n, r), dtype=np.float32)
        shifts = np.zeros((len(points), h, n), dtype=np.float32)
        around = np.zeros((len(self.starts), 1, r), dtype=np.float32)
        for b, start in enumerate(self.starts):
            around[b, 0, : start.around.size] = start.around
        owners = {start.point: start.agent for start in self.starts}
        for p, agent in owners.items():
            columns, (vectors, moved) = self.ground.columns[agent], points[p]
            hidden[p, columns, : vectors.shape[1]] = vectors[: columns.size]
            shifts[p][: len(moved), columns] = moved
        index: Ints = np.array([start.point for start in self.starts], dtype=np.int64)
        xp, at = arrays.module, arrays.put(index)
        found = [xp.take(arrays.put(part), at, axis=0) for part in (hidden, shifts)]
        found[0] *= live
        found[1] *= moves
        return [found[0], arrays.put(around), found[1]]
