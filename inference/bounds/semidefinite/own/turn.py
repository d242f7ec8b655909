"""A turn of squares of rows' own: which cases come next, how many at a time, and what they lower."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.tables.entries import THRESHOLD
from dmcmc.inference.bounds.semidefinite.descent import Point
from dmcmc.inference.bounds.semidefinite.lift import Turn
from dmcmc.inference.bounds.semidefinite.own.batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.own.cases import (
    LONG,
    NODE,
    ROW,
    Case,
    Plan,
    busiest,
    certified_alone,
    fixed_start,
    shared_start,
)
from dmcmc.inference.bounds.semidefinite.own.certificates import AT_ONCE, certificates
from dmcmc.inference.bounds.semidefinite.own.ground import Ground
from dmcmc.inference.bounds.semidefinite.pace import as_long_as
from dmcmc.inference.bounds.semidefinite.steps import Arrays, Shape
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel

_LOG = logging.getLogger(__name__)
_MOST = 128  # cases at a time: more are no quicker, and a turn may end in between
_LARGEST = 1 << 31  # entries of an array: kernels count them in 32 bits
_POINTS, _SHARE = 2 << 30, 1 / 16  # bytes of points that are kept for a further variable, of the memory
_LEVELS = 16  # of how far rows are beyond their limits; among those of one agents come one after the other
_STEP, _PRODUCT = 1e-3, 1e-13  # seconds of a step at least, and for a pair of values and each vector: estimates
_TELLING = 32  # cases that tell the pace of others
_MARGIN = 0.25  # of what a further variable has brought, more steps may bring
_USED = 0.8  # of the time that is left is planned with


class Stage(IntEnum):
    """What is done for a row next: a square of its own, one for each value of a further variable, those for longer."""

    ALONE = 0
    SPLIT = 1
    LONGER = 2

    @property
    def plan(self) -> Plan:
        """Its schedule."""
        return (ROW, NODE, LONG)[self]


class Item(NamedTuple):
    """A row that is next: least first."""

    level: int
    stage: Stage
    turn: int
    beyond: float
    row: int


def cases_at_once(shape: Shape, agents: int, room: int) -> int:
    """Return how many cases of so many agents there is room for, in bytes."""
    fixed = 8 * agents * shape.n * (shape.n + shape.r) + 64 * AT_ONCE * shape.n * max(shape.n, shape.r)
    return min(_MOST, (room - fixed) * 4 // (5 * shape.bytes), (_LARGEST - 1) // shape.n**2)


class OwnTurn:
    """A turn of several agents' rows.

    Parameters
    ----------
    turns
        Whose rows share a square already.
    arrays : Arrays
    most : int
        Cases at a time.
    left : callable
        Returns the seconds that are left.
    threads : int
        For certificates where the device's are not those of the CPU.

    Attributes
    ----------
    rows, nodes : int
        That have been bounded.
    """

    def __init__(
        self, turns: Sequence[Turn], arrays: Arrays, most: int, left: Callable[[], float], threads: int = 1
    ) -> None:
        self.turns, self.rows, self.nodes = turns, 0, 0
        self._most, self._left, self._threads = most, left, threads
        self._ground = Ground([turn.opened.descent for turn in turns], arrays)
        self._fixed = [busiest(descent.network) for descent in self._ground.descents]

    def run(self) -> None:
        """Lower rows until the time is over or nothing is left to do: lifts are exhausted then."""
        while (items := self._next()) and self._left() > 0:
            self._carry_out(items)
        open_turns = {item.turn for item in self._items()}
        for number, turn in enumerate(self.turns):
            turn.lift.exhausted = turn.lift.exhausted or number not in open_turns

    def _items(self) -> list[Item]:
        """Return rows that may be lowered, the next ones first."""
        found = list[Item]()
        for number, (lift, opened) in enumerate(self.turns):
            bounds, unit = lift.state.bounds[opened.rows], 2.0**-lift.state.layout.scale.shift
            for row, bound, limit in zip(opened.rows.tolist(), bounds.tolist(), opened.limits.tolist(), strict=True):
                own = lift.own
                stage = Stage.LONGER if row in own.split else Stage.SPLIT if row in own.done else Stage.ALONE
                if bound > NEVER and (stage == Stage.ALONE or row in own.points):
                    found.append(Item(0, stage, number, (limit - bound) * unit, row))
        most = max((-item.beyond for item in found), default=0.0)
        scale = _LEVELS / most if most > 0 else 0.0
        return sorted(item._replace(level=math.floor(item.beyond * scale)) for item in found)

    def _next(self) -> list[Item]:
        """Return rows of one kind that there is room and time for."""
        items = self._items()
        stage = items[0].stage if items else Stage.ALONE
        if stage == Stage.ALONE and self._room_for_points() <= 0:  # those that are there come first then
            stage = min((item.stage for item in items if item.stage != stage), default=stage)
        afford, chosen, count = self._afford(stage.plan), list[Item](), 0
        for item in items:
            many = len(self._cases(item)) if item.stage == stage else self._most + 1
            if many <= self._most:
                count += many
                if count > afford:
                    break
                chosen.append(item)
        return chosen

    def _afford(self, plan: Plan) -> int:
        """Return how many cases there is time and room for."""
        seconds = _USED * self._left()
        if math.isinf(seconds):
            return self._most
        if plan.steps * _STEP > seconds:
            return 0
        return min(self._most, int(seconds / (plan.steps * self._pace(plan))))

    def _pace(self, plan: Plan) -> float:
        """Return about the seconds of a step of one case."""
        shape = self._ground.shape
        return self.turns[0].lift.own.pace.get(plan.steps) or _PRODUCT * shape.n**2 * shape.r

    def _cases(self, item: Item) -> list[Case]:
        """Return the cases of a row: itself, or with each value of the variable that is fixed.

        For longer, those values alone that would be the highest soon.
        """
        if item.stage == Stage.ALONE:
            return [Case(item.row)]
        network, variable = self._ground.descents[item.turn].network, self._fixed[item.turn]
        if item.stage == Stage.LONGER:
            own = self.turns[item.turn].lift.own
            bounds, highest = own.nodes[item.row], max(own.nodes[item.row].values())
            least = highest - _MARGIN * max(0, own.alone[item.row] - highest)
            return [Case(item.row, variable, value) for value, bound in bounds.items() if bound >= least]
        first, last = network.starts[variable : variable + 2].tolist()
        worth = network.values(network.digits(np.array([item.row])))[0, first:last]
        return [Case(item.row, variable, int(value)) for value in np.flatnonzero(worth >= THRESHOLD)]

    def _carry_out(self, items: Sequence[Item]) -> None:
        """Lower some rows of one kind."""
        begun, stage = time.perf_counter(), items[0].stage
        starts, points, ends, plan = list[Start](), list[Point](), [0], stage.plan
        for item in items:
            descent, alone = self._ground.descents[item.turn], stage == Stage.ALONE
            if not alone:
                points.append(self.turns[item.turn].lift.own.points[item.row])
            elif not starts or starts[-1].agent != item.turn:
                points.append(descent.point)
            for case in self._cases(item):
                around = shared_start(descent, item.row) if alone else fixed_start(descent.network, points[-1], case)
                starts.append(Start(item.turn, case, len(points) - 1, around))
            ends.append(len(starts))
        made, found = plan.steps, list[int | None]()
        if starts:
            batch = CaseBatch(self._ground, starts, points)
            made = batch.run(plan, as_long_as(self._left))
            found = self._certified(batch)
            for b, item in enumerate(items):
                if made == plan.steps and stage == Stage.ALONE:
                    self._keep(item, batch, b)
            if len(starts) >= min(_TELLING, self._most):
                took = time.perf_counter() - begun
                for turn in self.turns:
                    turn.lift.own.pace[plan.steps] = took / (len(starts) * max(1, made))
        self.rows += len(items) if made == plan.steps and stage == Stage.ALONE else 0
        self.nodes += len(starts) if stage != Stage.ALONE else 0
        cases = [start.case for start in starts]
        for item, first, last in zip(items, ends[:-1], ends[1:], strict=True):
            self._lower(item, cases[first:last], found[first:last], made == plan.steps)

    def _lower(self, item: Item, cases: Sequence[Case], found: Sequence[int | None], whole: bool) -> None:
        """Take in bounds of a row's cases; a row without any is infeasible."""
        lift, row = self.turns[item.turn].lift, item.row
        own = lift.own
        bounds = {case.value: bound for case, bound in zip(cases, found, strict=True) if bound is not None}
        proven = len(bounds) == len(cases)
        if item.stage != Stage.ALONE:
            before = own.nodes.get(row, {})
            bounds = before | {value: min(bound, before.get(value, bound)) for value, bound in bounds.items()}
        if proven:
            highest = max(bounds.values(), default=NEVER)
            lift.lower(np.array([row], dtype=np.int64), np.array([highest], dtype=np.int64))
            if item.stage == Stage.ALONE:
                own.alone[row] = highest
            else:
                own.nodes[row] = bounds
        if whole:
            (own.done if item.stage == Stage.ALONE else own.split).add(row)
        over = whole and (item.stage == Stage.LONGER or not proven or row not in own.points)
        crowded = item.stage == Stage.SPLIT and whole and 2 * self._room_for_points() < ACCOUNT.part(_SHARE, _POINTS)
        if over or crowded or lift.state.bounds[row] <= NEVER:
            own.end(row)

    def _keep(self, item: Item, batch: CaseBatch, b: int) -> None:
        """Keep a row's point for a further variable, where there is one and room for it."""
        network = self._ground.descents[item.turn].network
        variable = self._fixed[item.turn]
        many = int(network.starts[variable + 1] - network.starts[variable])
        if network.starts.size > 2 and many <= self._most and self._room_for_points() > 0:
            self.turns[item.turn].lift.own.points[item.row] = batch.point(b)

    def _room_for_points(self) -> int:
        """Return the bytes that there are for further points."""
        kept = sum(
            point.vectors.nbytes + point.shifts.nbytes for turn in self.turns for point in turn.lift.own.points.values()
        )
        return ACCOUNT.part(_SHARE, _POINTS) - kept

    def _certified(self, batch: CaseBatch) -> list[int | None]:
        """Return exact bounds of a batch; the first ones from the device are looked at here as well."""
        owns = [turn.lift.own for turn in self.turns]
        known = {own.exact for own in owns}
        if False not in known:
            found = certificates(batch)
            exact = True in known or found[0] == self._certified_here(batch, 0)
            for own in owns:
                own.exact = exact
            if exact:
                return found
            _LOG.warning("dmcmc: certificates of lifts on the GPU are not those of the CPU, which makes all")
        found = [None] * len(batch.starts)

        def certify(b: int) -> None:
            found[b] = self._certified_here(batch, b)

        run_parallel([partial(certify, b) for b in range(len(found))], self._threads)
        return found

    def _certified_here(self, batch: CaseBatch, b: int) -> int | None:
        """Return the bound of a case as the CPU finds it."""
        start = batch.starts[b]
        return certified_alone(self._ground.descents[start.agent], start.case, batch.point(b))
