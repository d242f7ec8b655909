"""Between two cycles: this rank's agents get their parts of some seconds, where the gap is."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.cuda.together import improve_on_gpu
from dmcmc.inference.dpop.messages import UtilMessage
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.run.agent import SETTLED, AgentWork, gather_sides
from dmcmc.run.cycle import Cycle, Sides, rows_of
from dmcmc.run.incumbent import Order
from dmcmc.run.metrics import gap_at
from dmcmc.run.setup import Task


def improve_all(
    task: Task,
    world: World,
    works: Mapping[int, AgentWork],
    cycle: Cycle,
    sides: Sides,
    rests: Mapping[int, UtilMessage],
    order: Order,
) -> tuple[Sides, bool]:
    """Give this rank's agents their parts of some seconds: by what each contributes to the gap, one after the other.

    Returns
    -------
    sides : Sides
        For the next cycle.
    pruned : bool
        Whether rows of this rank's agents were left out.
    """
    root, share = roots_of(task), dict[int, float]()
    for agent, work in works.items():
        gap = gap_at(work.exported(), cycle.chosen[agent], task.arithmetic)
        share[agent] = 0.0 if not work.may_improve else (1.0 if gap is None else max(0.0, gap))
        work.last = 0.0
    if not any(share.values()):
        share = {agent: float(work.may_improve) for agent, work in works.items()}
    here = {
        agent: _rest(task, work, rests[agent], sides) if agent in rests and work.enumerated else None
        for agent, work in works.items()
    }
    buried = sum(work.buried for work in works.values())
    part = _Slice(task, works, share, here, {agent: order.thresholds.get(root[agent]) for agent in works}, order)
    if not part.on_gpu():
        part.one_by_one()
    lists = {a: sides.lower.rows[a] for a in works if a in sides.lower.rows and a not in sides.upper.rows}
    listings = {a: work.rows_listed() for a, work in works.items() if work.listing is not None}
    return gather_sides(task, world, lists, listings), sum(work.buried for work in works.values()) > buried


@dataclass(frozen=True)
class _Slice:
    """Some seconds of this rank's agents.

    Attributes
    ----------
    share : dict
        What each agent contributes to the gap.
    rests : dict of (rows,) encoded, or None
        At most what all others add to an agent's rows.
    thresholds : dict
        What the whole has to exceed to be better than the best known; None if anything would be.
    """

    task: Task
    works: Mapping[int, AgentWork]
    share: Mapping[int, float]
    rests: Mapping[int, NDArray[Any] | None]
    thresholds: Mapping[int, Number | None]
    order: Order

    def one_by_one(self) -> None:
        """Improve one agent after the other."""
        total, begin, order = sum(self.share.values()), time.perf_counter(), self.order
        for agent, work in self.works.items():
            start = time.perf_counter()
            left = max(0.0, begin + order.seconds - start)
            part = left * self.share[agent] / total if total > 0 and not self.task.backend.stop.asked else 0.0
            total -= self.share[agent]
            work.improve(self.rests[agent], self.thresholds[agent], part, order.sampled)
            work.finish(order.best, time.perf_counter() - start)

    def on_gpu(self) -> bool:
        """Improve all agents at once, as far as their bounds go; return False, nothing done, if it is not for a GPU.

        Sampling and the elimination of what is left of rows come one agent after the other.
        """
        works, order, backend = self.works, self.order, self.task.backend
        bounded = [a for a in works if self.share[a] > 0 and works[a].bound is not None]
        seconds = order.seconds * (1 - order.sampled)
        if not bounded or backend.stop.asked or not backend.bounds_on_gpu(seconds * backend.threads):
            return False
        begin, total = time.perf_counter(), sum(self.share.values())
        limits = {a: work.look(self.rests[a], self.thresholds[a]) for a, work in works.items()}
        improved = improve_on_gpu([works[a].request(limits[a]) for a in bounded], backend, (1 - SETTLED) * seconds)
        if improved is None:
            return False
        pruned = dict(zip(bounded, improved, strict=True))
        each = (time.perf_counter() - begin) / len(bounded)
        for agent, work in works.items():
            start = time.perf_counter()
            if agent in pruned:
                work.settle(limits[agent], pruned[agent], SETTLED * seconds * self.share[agent] / total)
            if not backend.stop.over:
                work.sample(self.rests[agent], order.seconds * order.sampled * self.share[agent] / total)
            work.finish(order.best, each + time.perf_counter() - start)
        return True


def _rest(task: Task, work: AgentWork, tables: UtilMessage, sides: Sides) -> NDArray[Any]:
    """Return what the others add at most to each of an agent's rows; −∞ for rows that are not listed any more."""
    agent = work.local.agent
    if agent not in sides.upper.rows:
        return work.rows(tables)
    listed = rows_of(task, (sides.upper.variable(agent),), sides.upper.sizes, tables)
    full = np.full(work.local.rows, task.arithmetic.lowest, dtype=listed.dtype)
    at = np.ravel_multi_index(tuple(sides.upper.rows[agent].T), work.local.interface_shape)
    full[at] = listed
    return full


def roots_of(task: Task) -> dict[int, int]:
    """Return the root of each agent's component."""
    root: dict[int, int] = {}
    for agent in reversed(task.tree.bottom_up):
        parent = task.tree.parent[agent]
        root[agent] = agent if parent < 0 else root[parent]
    return root
