"""A turn of squares of rows' own: cases are made, and what they lower is taken in."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates, certified_bytes
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.per_row.node_queue import Agenda, Item, Stage
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import certified_alone
from dmcmc.inference.bounds.semidefinite.relaxation import Turn
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree
from dmcmc.inference.bounds.semidefinite.step_throughput import as_long_as
from dmcmc.inference.runtime.threads import run_parallel

_LOG = logging.getLogger(__name__)
_MOST = 512  # cases at a time: more are no quicker, and a turn may end in between
_LARGEST = 1 << 31  # entries of an array: kernels count them in 32 bits
_TELLING = 32  # cases that tell the pace of others
_KEPT = 0.75  # of the slots stay with those leaves that are furthest beyond, where all are taken


def cases_at_once(shape: CaseShape, room: int) -> int:
    """Return how many cases there is room for, in bytes."""
    most = min(_MOST, (_LARGEST - 1) // (shape.m * max(shape.m, shape.r)))
    while most > 0:
        batch = shape._replace(cases=most)
        if 2 * batch.bytes + certified_bytes(batch) <= room:
            break
        most = most * 3 // 4
    return most


class OwnTurn:
    """A turn of several agents' rows.

    Parameters
    ----------
    turns, ground, most, left
        As for :class:`.agenda.Agenda`.
    threads : int
        For certificates where the device's are not those of the CPU.

    Attributes
    ----------
    agenda : Agenda
    made : list of int
        Cases of each stage.
    """

    def __init__(
        self, turns: Sequence[Turn], ground: Ground, most: int, left: Callable[[], float], threads: int = 1
    ) -> None:
        self.turns, self.made, self.agenda = turns, [0] * len(Stage), Agenda(turns, ground, most, left)
        self._ground, self._most, self._left, self._threads = ground, most, left, threads

    def run(self) -> None:
        """Lower rows until the time is over or nothing is left to do: lifts are exhausted then."""
        while (items := self.agenda.next_ones()) and self._left() > 0:
            self._carry_out(items)
        self._tell()

    def _tell(self) -> None:
        """Note which lifts are exhausted, and which are as far as to show what they bring."""
        items = self.agenda.items()
        for number, turn in enumerate(self.turns):
            own, rows = turn.lift.own, [item.row for item in items if item.turn == number]
            own.grown = own.grown or all(row in own.trees and own.trees[row].grown for row in rows)
            if not rows:
                turn.lift.exhausted = True
                own.end()

    def _carry_out(self, items: Sequence[Item]) -> None:
        """Lower some rows of one kind."""
        begun, plan = time.perf_counter(), items[0].stage.plan
        starts = [self.agenda.starts(item) for item in items]
        cases = [start for own in starts for start in own]
        found, slots = list[int | None](), list[int | None]()
        if cases:
            batch = CaseBatch(self._ground, cases)
            made = batch.run(plan, as_long_as(self._left))
            found = self._certified(batch)
            slots = self._kept(batch, items, found)
            if made == plan.steps and len(cases) >= min(_TELLING, self._most):
                took = time.perf_counter() - begun
                for turn in self.turns:  # the first batch of a schedule has libraries and memory to wait for
                    pace = turn.lift.own.pace
                    pace[plan.steps] = took / (len(cases) * made) if plan.steps in pace else 0.0
        self.made[items[0].stage] += len(cases)
        at = 0
        for item, own in zip(items, starts, strict=True):
            self._take_in(item, own, found[at : at + len(own)], slots[at : at + len(own)])
            at += len(own)

    def _take_in(
        self, item: Item, starts: Sequence[Start], found: Sequence[int | None], slots: Sequence[int | None]
    ) -> None:
        """Take in bounds of a leaf's branches, or of a row's own square."""
        lift = self.turns[item.turn].lift
        own = lift.own
        own.made += len(starts)
        self.agenda.forget(item)
        tree = own.trees.setdefault(item.row, RowTree())
        if item.leaf is None:  # the row's bound may be of something else, and lower: it tells nothing of steps
            bounds = [int(lift.state.bounds[item.row]) if bound is None else bound for bound in found]
        else:
            above = item.leaf.bound
            bounds = [above if bound is None else min(above, bound) for bound in found]
            tree.remove(item.leaf)
            if item.stage == Stage.SPLIT:
                own.release(item.leaf)
        for start, bound, slot in zip(starts, bounds, slots, strict=True):
            settled = item.stage != Stage.SPLIT or (slot is not None and bound < above)
            new = Leaf(start.case.fixed, bound, start.case.part, slot, settled)
            if bound > NEVER:
                tree.add(new)
            else:
                own.release(new)
        highest = NEVER if tree.top is None else tree.top.bound
        lift.lower(np.array([item.row], dtype=np.int64), np.array([highest], dtype=np.int64))
        if highest <= NEVER or lift.state.bounds[item.row] <= NEVER:
            for leaf in tree.leaves:
                own.release(leaf)

    def _kept(self, batch: CaseBatch, items: Sequence[Item], found: Sequence[int | None]) -> list[int | None]:
        """Keep points of cases that may have further squares; return their slots: None where there is no room."""
        slots: list[int | None] = [None] * len(found)
        if items[0].stage == Stage.LONGER:  # in their own, which some have lost
            slots = [None if item.leaf is None else item.leaf.slot for item in items]
            own = [b for b, slot in enumerate(slots) if slot is not None]
            self._ground.put_back(batch.steps.best, own, [slot for slot in slots if slot is not None])
        wanted = [
            b
            for b, (start, bound) in enumerate(zip(batch.starts, found, strict=True))
            if slots[b] is None
            and bound is not None
            and bound > NEVER
            and len(start.case.fixed) + 1 < len(self._ground.orders[start.agent])
        ]
        if len(self._ground.free) < len(wanted):
            self._make_room({id(item.leaf) for item in items})
        wanted = sorted(wanted, key=lambda b: -(found[b] or 0))[: len(self._ground.free)]
        for b, slot in zip(wanted, self._ground.keep(batch.steps.best, wanted), strict=True):
            slots[b] = slot
        return slots

    def _make_room(self, taken: set[int]) -> None:
        """Give back the slots of leaves that are the least beyond their rows' limits; more steps bring them back.

        Parameters
        ----------
        taken
            Identities of leaves that keep theirs.
        """
        found = list[tuple[float, int, int, Leaf]]()
        for number, (lift, opened) in enumerate(self.turns):
            unit = 2.0**-lift.state.layout.scale.shift
            limits = dict(zip(opened.rows.tolist(), opened.limits.tolist(), strict=True))
            for row, tree in lift.own.trees.items():
                for leaf in tree.leaves:
                    if leaf.slot is not None and leaf is not tree.top and id(leaf) not in taken:
                        beyond = (leaf.bound - limits[row]) * unit if row in limits else -math.inf
                        found.append((beyond, number, len(found), leaf))
        found.sort(key=lambda one: one[:3])
        for _, number, _, leaf in found[: math.ceil((1 - _KEPT) * len(found))]:
            self.turns[number].lift.own.release(leaf)
            leaf.settled = False
        self.agenda.forget()

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
