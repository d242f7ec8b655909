"""Which cases of squares of rows' own come next, and how many at a time.

Each row has a tree: its own square, then one for each value of a further variable, and so on from the leaf that bounds
the row; a leaf has more steps before it has branches.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.tables.entries import THRESHOLD
from dmcmc.inference.bounds.semidefinite.lift import Turn
from dmcmc.inference.bounds.semidefinite.own.batch import Start
from dmcmc.inference.bounds.semidefinite.own.cases import LONG, NODE, ROW, Case, Plan, utilities_of
from dmcmc.inference.bounds.semidefinite.own.ground import Ground
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf

_PASSED = 1.0  # of the cases of a batch may be of another kind than the first row's and before the last of these
_STEP, _PRODUCT = 2e-4, 2e-14  # seconds of a step at least, and for a pair of values and each vector: estimates
_MARGIN = 0.25  # of what the last variable has brought, more steps may bring
_USED = 0.8  # of the time that is left is planned with


class Stage(IntEnum):
    """What is done for a row next: a square of its own, more steps for its leaves, one for each value of a variable."""

    ALONE = 0
    LONGER = 1
    SPLIT = 2

    @property
    def plan(self) -> Plan:
        """Its schedule."""
        return (ROW, LONG, NODE)[self]


class Item(NamedTuple):
    """A row that is next, by how far its bound is beyond its limit, less than nothing: least first."""

    beyond: float
    stage: Stage
    turn: int
    row: int


class Agenda:
    """What is next for some agents' rows.

    Parameters
    ----------
    turns
        Whose rows share a square already; all are of the ground.
    ground : Ground
    most : int
        Cases at a time.
    left : callable
        Returns the seconds that are left.
    """

    def __init__(self, turns: Sequence[Turn], ground: Ground, most: int, left: Callable[[], float]) -> None:
        self._turns, self._ground, self._most, self._left = turns, ground, most, left
        self._begun = [turn.lift.state.bounds[turn.opened.rows] for turn in turns]

    def items(self) -> list[Item]:
        """Return rows that may be lowered, those first that are furthest beyond their limits.

        Limits are of what agents' bounds were when the turn began. All agents' rows are lowered meanwhile, so a row
        comes as much nearer to its limit as all of them together, not itself alone: what it has been lowered by counts
        as often as there are agents. Else each agent would lower its first rows far below where the others matter.
        """
        found, agents = list[Item](), len(self._turns)
        for number, ((lift, opened), begun) in enumerate(zip(self._turns, self._begun, strict=True)):
            unit, bounds = 2.0**-lift.state.layout.scale.shift, lift.state.bounds[opened.rows]
            lowered = np.where(bounds > NEVER, begun - bounds, 0)
            nearness = (opened.limits - begun + agents * lowered) * unit
            for row, bound, beyond in zip(opened.rows.tolist(), bounds.tolist(), nearness.tolist(), strict=True):
                stage = self._stage(number, row) if bound > NEVER else None
                if stage is not None:
                    found.append(Item(beyond, stage, number, row))
        return sorted(found)

    def _stage(self, turn: int, row: int) -> Stage | None:
        """Return what is next for a row; None where nothing is."""
        own = self._turns[turn].lift.own
        if row not in own.trees:
            return Stage.ALONE
        top = own.trees[row].top
        if top is None or top.slot is None:
            return None
        if not top.long:
            return Stage.LONGER
        fixed, order = len(top.fixed), self._ground.orders[own.agent]
        return Stage.SPLIT if fixed + 1 < len(order) and self._domain(turn, top) <= self._most else None

    def next_ones(self) -> list[Item]:
        """Return rows of one kind that there is room and time for, those of an agent one after the other.

        They are of the kind that the first one is of, and not much behind it.
        """
        items, chosen, count, passed = self.items(), list[Item](), 0, 0
        stage = items[0].stage if items else Stage.ALONE
        afford = self._afford(stage.plan)
        for item in items:
            if item.stage != stage:
                passed += self._count(item)
            elif (count := count + self._count(item)) <= afford:
                chosen.append(item)
            if count >= afford or passed > _PASSED * afford:
                break
        return sorted(chosen, key=lambda item: (item.turn, item.row))

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
        return self._turns[0].lift.own.pace.get(plan.steps) or _PRODUCT * shape.n**2 * shape.r

    def _count(self, item: Item) -> int:
        """Return how many cases a row has next, at most."""
        if item.stage == Stage.ALONE:
            return 1
        leaves = self._leaves(item)
        return len(leaves) if item.stage == Stage.LONGER else self._domain(item.turn, leaves[0])

    def _domain(self, turn: int, leaf: Leaf) -> int:
        """Return how many values the variable has that is fixed next."""
        own = self._turns[turn].lift.own
        return int(self._ground.sizes[own.agent, self._ground.orders[own.agent][len(leaf.fixed)]])

    def _leaves(self, item: Item) -> list[Leaf]:
        """Return a row's leaves that are next: the one that bounds it; for longer, those too that soon would."""
        tree = self._turns[item.turn].lift.own.trees[item.row]
        top = tree.top
        assert top is not None
        if item.stage == Stage.SPLIT:
            return [top]
        least = top.bound - _MARGIN * top.gain
        leaves = [leaf for leaf in tree.leaves if leaf.bound >= least and leaf.slot is not None and not leaf.long]
        return leaves[: self._most]

    def starts(self, item: Item) -> list[tuple[Start, Leaf]]:
        """Return the cases of a row, and the leaf that each begins at: a new one for a row that had none."""
        own = self._turns[item.turn].lift.own
        if item.stage == Stage.ALONE:
            bound = int(self._turns[item.turn].lift.state.bounds[item.row])
            return [(Start(own.agent, Case(item.row), own.agent), Leaf((), bound))]
        found = list[tuple[Start, Leaf]]()
        for leaf in self._leaves(item):
            assert leaf.slot is not None
            if item.stage == Stage.LONGER:
                found.append((Start(own.agent, Case(item.row, leaf.fixed), leaf.slot), leaf))
            else:
                cases = self._branches(own.agent, item.row, leaf)
                found += [(Start(own.agent, case, leaf.slot, fixes=True), leaf) for case in cases]
        return found

    def _branches(self, agent: int, row: int, leaf: Leaf) -> list[Case]:
        """Return a leaf's branches: cases with each value that the next variable may have."""
        network = self._ground.descents[agent].network
        variable = self._ground.orders[agent][len(leaf.fixed)]
        first, last = network.starts[variable : variable + 2].tolist()
        values = list(range(last - first))
        if self._ground.hard[agent]:
            (worth,), _ = utilities_of(network, [Case(row, leaf.fixed)])
            values = np.flatnonzero(worth[first:last] >= THRESHOLD).tolist()
        return [Case(row, (*leaf.fixed, (variable, value))) for value in values]
