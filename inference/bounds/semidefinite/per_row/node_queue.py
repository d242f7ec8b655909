"""Which cases of squares of rows' own come next, and how many at a time.

Each row has a tree: its own square, then one for each of some parts of a further variable's values, then for each value
of a part, and so on from the leaves that bound the row. With parts a bound falls about twice as far in as many steps.
Where one of the branches is no lower than their leaf, it is steps that it lacks.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import Start
from dmcmc.inference.bounds.semidefinite.per_row.nodes import NODE, ROW, Case, Plan, utilities_of
from dmcmc.inference.bounds.semidefinite.relaxation import Turn
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, Part

_PASSED = 1.0  # of the cases of a batch may be of another kind than the first row's and before the last of these
_STEP, _PRODUCT = 2e-4, 2e-14  # seconds of a step at least, and for a pair of values and each vector: estimates
_PARTS = 4  # of a variable's values that has twice as many, at least
_FIRST = 8  # of a row's leaves are looked at
_USED = 0.8  # of the time that is left is planned with


class Stage(IntEnum):
    """What is done for a row next: a square of its own, more steps for a leaf, or squares for all of its branches."""

    ALONE = 0
    LONGER = 1
    SPLIT = 2

    @property
    def plan(self) -> Plan:
        """Its schedule."""
        return NODE if self == Stage.SPLIT else ROW


class Item(NamedTuple):
    """A leaf of a row that is next, by how far its bound is beyond the row's limit, less than nothing: least first.

    Attributes
    ----------
    number : int
        Of the leaf in the order of its row's.
    leaf : Leaf or None
        None where the row has no square of its own.
    """

    beyond: float
    stage: Stage
    turn: int
    row: int
    number: int = 0
    leaf: Leaf | None = None


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
        self._known: dict[tuple[int, int], list[Item]] = {}

    def forget(self, item: Item | None = None) -> None:
        """Take note that the tree of an item's row is another; or those of any."""
        if item is None:
            self._known.clear()
        else:
            self._known.pop((item.turn, item.row), None)

    def items(self) -> list[Item]:
        """Return leaves of rows that may be lowered, those first that are furthest beyond their rows' limits.

        Limits are of what agents' bounds were when the turn began. All agents' rows are lowered meanwhile, so a row
        comes as much nearer to its limit as all of them together, not itself alone: what it has been lowered by counts
        as often as there are agents. Else each agent would lower its first rows far below where the others matter.
        """
        found, agents = list[Item](), len(self._turns)
        for number, ((lift, opened), begun) in enumerate(zip(self._turns, self._begun, strict=True)):
            unit, bounds = 2.0**-lift.state.layout.scale.shift, lift.state.bounds[opened.rows]
            sides = zip(opened.rows.tolist(), bounds.tolist(), opened.limits.tolist(), begun.tolist(), strict=True)
            for row, bound, limit, before in sides:
                if bound <= NEVER:
                    continue
                own = self._known.get((number, row))
                if own is None:
                    own = self._known[number, row] = []
                    for at, (leaf, low) in enumerate(self._open(number, row, bound)):
                        beyond = (limit - before + agents * (before - low)) * unit
                        own.append(Item(beyond, self._stage(leaf), number, row, at, leaf))
                found += own
        return sorted(found)  # numbers tell all of a row's leaves apart: those are not compared

    def _stage(self, leaf: Leaf | None) -> Stage:
        """Return what is next for a leaf."""
        if leaf is None:
            return Stage.ALONE
        return Stage.SPLIT if leaf.settled else Stage.LONGER

    def _open(self, turn: int, row: int, bound: int) -> list[tuple[Leaf | None, int]]:
        """Return leaves of a row that may have branches, with their bounds; none where the first one may not."""
        own = self._turns[turn].lift.own
        if row not in own.trees:
            return [(None, bound)]
        found = list[tuple[Leaf | None, int]]()
        for leaf in own.trees[row].first(_FIRST):
            fixed, order = len(leaf.fixed), self._ground.orders[own.agent]
            lost = leaf.slot is None and leaf.settled
            if lost or fixed + 1 >= len(order) or self._ways(turn, leaf) > self._most:
                break  # what is below it does not bound the row
            found.append((leaf, min(bound, leaf.bound)))
        return found

    def next_ones(self) -> list[Item]:
        """Return leaves of one kind that there is room and time for, those of an agent one after the other.

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
        return sorted(chosen, key=lambda item: (item.turn, item.row, item.number))

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
        """Return how many cases there are next, at most."""
        return self._ways(item.turn, item.leaf) if item.leaf is not None and item.leaf.settled else 1

    def _ways(self, turn: int, leaf: Leaf) -> int:
        """Return how many branches a leaf has, at most."""
        if leaf.part is not None:
            return len(leaf.part.values)
        own = self._turns[turn].lift.own
        domain = int(self._ground.sizes[own.agent, self._ground.orders[own.agent][len(leaf.fixed)]])
        return domain if domain < 2 * _PARTS else _PARTS

    def starts(self, item: Item) -> list[Start]:
        """Return the cases of a row's leaf."""
        own, leaf = self._turns[item.turn].lift.own, item.leaf
        if leaf is None:
            return [Start(own.agent, Case(item.row), own.agent)]
        slot = own.agent if leaf.slot is None else leaf.slot
        if not leaf.settled:
            return [Start(own.agent, Case(item.row, leaf.fixed, leaf.part), slot)]
        cases = self._branches(own.agent, item.row, leaf)
        return [Start(own.agent, case, slot, fixes=case.part is None) for case in cases]

    def _branches(self, agent: int, row: int, leaf: Leaf) -> list[Case]:
        """Return a leaf's branches: cases with parts of the values of the next variable, or with each of them."""
        network = self._ground.descents[agent].network
        variable = self._ground.orders[agent][len(leaf.fixed)]
        first, last = network.starts[variable : variable + 2].tolist()
        values = list(range(last - first) if leaf.part is None else leaf.part.values)
        if self._ground.hard[agent]:
            (worth,), _ = utilities_of(network, [Case(row, leaf.fixed)])
            values = [value for value in values if worth[first + value] >= THRESHOLD]
        if leaf.part is None and last - first >= 2 * _PARTS:
            ends = [len(values) * number // _PARTS for number in range(_PARTS + 1)]
            parts = [tuple(values[start:end]) for start, end in pairwise(ends) if start < end]
            return [Case(row, leaf.fixed, Part(variable, part)) for part in parts]
        return [Case(row, (*leaf.fixed, (variable, value))) for value in values]
