"""Squares of many cases, side by side; where they begin is gathered where the steps are made."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.bounds.semidefinite.descent import DEAD as FORBIDDEN
from dmcmc.inference.bounds.semidefinite.descent import Point
from dmcmc.inference.bounds.semidefinite.descent_batch import apart
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseGiven, CaseSteps
from dmcmc.inference.bounds.semidefinite.per_row.nodes import Case, Plan, shared_start


class Start(NamedTuple):
    """Where a case begins: an agent's case, the slot of a point, and whose that is.

    Attributes
    ----------
    agent : int
    case : Case
    slot : int
    fixes : bool
        Whether the point is of the case without its last variable fixed; its own otherwise, or in the agent's slot that
        of all of its rows.
    """

    agent: int
    case: Case
    slot: int
    fixes: bool = False


class CaseBatch:
    """Cases that make their steps together.

    Parameters
    ----------
    ground : Ground
    starts
        One for each case.

    Attributes
    ----------
    values : (cases, n) int64, there
        What each value is worth by itself, in the scale.
    constants : (cases,) int64
        What there is without hidden variables.
    sizes : (cases, h) int32
        Of domains, 0 where a variable is fixed.
    there : (cases, h) bool
        Which variables there are.
    agents : (cases,) int32
    """

    def __init__(self, ground: Ground, starts: Sequence[Start]) -> None:
        self.ground, self.starts = ground, starts
        self.shape = ground.shape._replace(cases=len(starts))
        self.agents = np.array([start.agent for start in starts], dtype=np.int32)
        self.sizes = sizes = ground.sizes[self.agents]
        gone = [(b, variable) for b, start in enumerate(starts) for variable, _ in start.case.fixed]
        if gone:
            sizes[tuple(np.array(gone).T)] = 0
        self.there = sizes > 0
        worth, levels = self._take_utilities()
        put = ground.arrays.put
        given = CaseGiven(
            ground.utilities,
            put(self.agents),
            put(sizes),
            put(self.there.sum(axis=1).astype(np.float32)),
            worth,
            levels,
        )
        self.steps = CaseSteps(self.shape, given, *self._gathered(sizes), ground.arrays)

    def run(self, plan: Plan, more: Callable[[int], int]) -> int:
        """Make the steps of a plan; return how many were made.

        Parameters
        ----------
        more
            As for :meth:`.batch.Batch.run`.
        """
        words = np.array([plan.at(step) for step in range(plan.steps)], dtype=np.float32)
        passes, made = self.steps.passes(words), 0
        while made < plan.steps - 1 and (wanted := more(made)) > 0:
            last = min(made + wanted, plan.steps - 1)
            self.steps.make(passes, made, last, plan.steps)
            made = last
            self.ground.arrays.get(self.steps.least)  # waits
        self.steps.end(passes, made)
        return made + 1

    def point(self, b: int) -> Point:
        """Return the best point of a case."""
        return self.ground.taken_out(int(self.agents[b]), *(part[b] for part in self.steps.best))

    def _take_utilities(self) -> tuple[Any, Any]:
        """Find what values and rows are worth, there; return that in units."""
        ground, put, xp = self.ground, self.ground.arrays.put, self.ground.arrays.module
        rows = ground.first[self.agents] + np.array([start.case.row for start in self.starts])
        values, constants = xp.take(ground.rows, put(rows), axis=0), put(ground.constants[rows])
        for fixed in zip_longest(*(start.case.fixed for start in self.starts)):
            which = np.array([b for b, one in enumerate(fixed) if one is not None])
            places = [one[0] * self.shape.d + one[1] for one in fixed if one is not None]
            at, place = put(which), put(np.array(places))
            constants[at] += values[at, place]
            values[at] += ground.pairs[put(self.agents[which]), place]
        self._leave_parts(values)
        self.values, self.constants = values, ground.arrays.get(constants)
        units = ground.units[self.agents]
        worth = values.astype(np.float32) * put((1 / units).astype(np.float32))[:, None]
        return xp.where(values < THRESHOLD, np.float32(FORBIDDEN), worth), put(self.constants / units)

    def _leave_parts(self, values: Any) -> None:
        """Forbid what cases with a part of a variable's values have not, there."""
        put, xp, d = self.ground.arrays.put, self.ground.arrays.module, self.shape.d
        parts = [(b, start.case.part) for b, start in enumerate(self.starts) if start.case.part is not None]
        if not parts:
            return
        gone = np.ones((len(parts), d), dtype=bool)
        gone[
            np.repeat(np.arange(len(parts)), [len(part.values) for _, part in parts]),
            np.concatenate([part.values for _, part in parts]),
        ] = False
        at = put(np.array([[b] for b, _ in parts]))
        places = put(np.array([[part.variable * d] for _, part in parts]) + np.arange(d))
        values[at, places] = xp.where(put(gone), np.int64(DEAD), values[at, places])

    def _gathered(self, sizes: Any) -> tuple[Any, Any]:
        """Return where cases begin: points and shifts."""
        arrays, (d, n, m) = self.ground.arrays, (self.shape.d, self.shape.n, self.shape.m)
        xp, count = arrays.module, len(self.starts)
        slots = arrays.put(np.array([start.slot for start in self.starts], dtype=np.int64))
        points, shifts = (
            xp.take(part, slots, axis=0).astype(np.float32) for part in (self.ground.vectors, self.ground.shifts)
        )
        for b, start in enumerate(self.starts):
            if start.slot == start.agent:
                around = shared_start(self.ground.descents[start.agent], start.case.row)
                points[b, n, : around.size] = arrays.put(around)
        for added in zip_longest(*map(self._added, self.starts)):  # fixed values' vectors go to the row's
            which = np.array([b for b, place in enumerate(added) if place is not None])
            at, place = arrays.put(which), arrays.put(np.array([place for place in added if place is not None]))
            points[at, n] += points[at, place]
        here = (np.arange(d) < sizes[:, :, None]).astype(np.float32).reshape(count, n)
        live = np.zeros((count, m), dtype=np.float32)
        live[:, :n], live[:, n] = here, 1
        points *= arrays.put(live)[:, :, None]
        shifts *= xp.repeat(arrays.put(apart(self.there).astype(np.float32)), d, axis=2)
        shifts *= arrays.put(here)[:, None, :]
        return points, shifts

    def _added(self, start: Start) -> list[int]:
        """Return the rows of the values that are fixed, but are not where the point is from."""
        fixed = start.case.fixed if start.slot == start.agent else start.case.fixed[-1:] if start.fixes else ()
        return [variable * self.shape.d + value for variable, value in fixed]
