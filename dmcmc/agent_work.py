"""Each agent's own part of a run: its first table, and making it better where that matters."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.cycle import Cycle, Sides, rows_of
from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.arithmetic import Table
from dmcmc.inference.bounds import registry as bounds_registry
from dmcmc.inference.bounds.protocol import BoundState, PruningState
from dmcmc.inference.bounds.settle import settle
from dmcmc.inference.compression import Compression, Rows
from dmcmc.inference.dpop import UtilMessage
from dmcmc.mpi.world import World
from dmcmc.report import gap_at
from dmcmc.samplers.protocol import Resumable, SampledTable
from dmcmc.standing import Order
from dmcmc.task import Task

Number = int | float

_FIRST_SWEEPS = 3  # of a row's dual ascent, where no time is given
_FIRST_PARTS = (0.2, 0.8)  # in which an agent's first bound is made
_CELLS = 5e8  # table cells that a thread eliminates in a second
_MOST_ROWS = 1 << 20  # more are not looked at one by one
_FOCUS = 4  # rows that are sampled on: one in so many, the most promising ones


@dataclass
class AgentWork:
    """One agent's table in the making.

    Attributes
    ----------
    local : LocalProblem
        The agent's problem.
    sampled : LocalProblem
        The same, or with a list of rows as its interface: what its table from below is over.
    table : SampledTable
        As it is now.
    chains : Resumable or None
        Its sampling, to go on with.
    bound : BoundState or None
        Its bound, to go on with.
    dead : (rows,) bool or None
        Rows that cannot be in a better solution than the best known one.
    listing : (k,) int64 or None
        The other rows and the best solution's, where the combination works with them alone.
    last : float
        Seconds of the last improvement.
    """

    task: Task
    local: LocalProblem
    sampled: LocalProblem
    table: SampledTable
    chains: Resumable | None = None
    bound: BoundState | None = None
    dead: NDArray[np.bool_] | None = None
    listing: NDArray[np.int64] | None = None
    last: float = 0.0

    @property
    def may_improve(self) -> bool:
        """Whether more time could change the table."""
        return not (self.table.exact or (_exhausted(self.chains) and _exhausted(self.bound)) or self._closed())

    @property
    def enumerated(self) -> bool:
        """Whether both sides have a number for every row."""
        if self.sampled is not self.local or self.table.upper is None or self.local.rows > _MOST_ROWS:
            return False
        interface = set(self.local.interface)
        return all(set(t.scope) <= interface for t in (*self.table.lower, *self.table.upper))

    def rows(self, tables: UtilMessage) -> NDArray[Any]:
        """Return the sum of tables over parts of the interface for every row (encoded)."""
        return rows_of(self.task, self.local.interface, self.local.domains, tables)

    def exported(self) -> SampledTable:
        """Return the table as the combination takes it: without dead rows, over the listing if there is one."""
        if self.dead is None or self.table.upper is None or (self.listing is None and self.table.exact):
            return self.table
        lowest = self.task.arithmetic.lowest
        if self.listing is None:
            left = self.rows(self.table.upper).copy()
            left[self.dead] = lowest
            whole = (Table(self.local.interface, left.reshape(self.local.interface_shape)),)
            return replace(self.table, upper=whole)
        scope, rows, table = (self._variable,), self.rows_listed(), self.table
        lower = (Table(scope, self.rows(table.lower)[self.listing]),)
        upper_rows = self.rows(self.table.upper)[self.listing]
        dead = self.dead[self.listing]
        same = table.exact and not dead.any()
        upper = lower if same else (Table(scope, np.where(dead, lowest, upper_rows).astype(lower[0].values.dtype)),)

        def witness(values: Mapping[int, int]) -> dict[int, int]:
            row = rows[values[self._variable]].tolist()
            return table.witness(dict(zip(self.local.interface, row, strict=True)))

        return replace(table, lower=lower, upper=upper, witness=witness)

    @property
    def _variable(self) -> int:
        return len(self.task.problem.domains) + self.local.agent

    def rows_listed(self) -> NDArray[np.int64]:
        """Return the interface values of the listed rows, (k, |B_i|)."""
        assert self.listing is not None
        return np.stack(np.unravel_index(self.listing, self.local.interface_shape), axis=1).astype(np.int64)

    def _closed(self) -> bool:
        """Return whether both sides agree on every row that can still matter."""
        if not self.enumerated or self.table.upper is None:
            return False
        open_ = self.rows(self.table.lower) < self.rows(self.table.upper)
        return not (open_ if self.dead is None else open_ & ~self.dead).any()

    def start_bound(self, seconds: float | None) -> None:
        """Bound the table from above, within a time or by a fixed amount of work."""
        name = self.task.choices[self.local.agent].bound
        if self.table.upper is not None or name == "none":
            return
        start = time.perf_counter()
        self.bound = bounds_registry.get(name).start(self.local)
        if hasattr(self.bound, "stop"):
            self.bound.stop = self.task.backend.stop
        threads = self.task.backend.threads
        if seconds is None:
            self.bound.improve(sweeps=_FIRST_SWEEPS, threads=threads)
            self._take_bound()
        else:
            for part in _FIRST_PARTS:  # a little is often enough
                self.bound.improve(seconds=part * seconds, threads=threads)
                self._take_bound()
                if self._close_enough():
                    break
        self.table = replace(self.table, seconds=self.table.seconds + time.perf_counter() - start)

    def _close_enough(self) -> bool:
        """Return whether the best rows of both sides are no further apart than the gap that is asked for."""
        if not self.enumerated or self.table.upper is None:
            return False
        lower, upper = (float(self.rows(side).max()) for side in (self.table.lower, self.table.upper))
        return upper - lower <= self.task.config.budget.gap * abs(lower)

    def improve(
        self,
        rest: NDArray[Any] | None,
        threshold: Number | None,
        best: NDArray[np.int64] | None,
        seconds: float,
        sampled: float,
    ) -> bool:
        """Sample on and bound more tightly where that can change the answer; return whether rows were left out.

        Parameters
        ----------
        rest : (rows,) encoded, or None
            At most what all other agents add to each row.
        threshold
            What the whole has to exceed to be better than the best known; None if anything would be.
        best
            That assignment, value indices of all variables.
        sampled
            The part of the time that goes to sampling.
        """
        start = time.perf_counter()
        threads, buried = self.task.backend.threads, 0 if self.dead is None else int(self.dead.sum())
        limits = None if rest is None or threshold is None else self._limits(rest, threshold)
        if limits is not None:
            self._bury(limits)
        sampled = 1.0 if _exhausted(self.bound) else 0.0 if _exhausted(self.chains) else sampled
        if self.chains is not None and seconds * sampled > 0:
            self.chains.improve(self._promising(rest), seconds * sampled, threads)
            self.table = replace(self.chains.table(), upper=self.table.upper)
        if self.bound is not None and seconds > 0 and sampled < 1:
            self._tighten(limits, seconds * (1 - sampled))
            if limits is not None:
                self._bury(limits)
        if best is not None and self.dead is not None:
            self._list(best)
        self.last = time.perf_counter() - start
        self.table = replace(self.table, seconds=self.table.seconds + self.last)
        return self.dead is not None and int(self.dead.sum()) > buried

    def _list(self, best: NDArray[np.int64]) -> None:
        """Let the combination work with the rows that are left, and the best solution's, if they are much fewer."""
        assert self.dead is not None
        keep = ~self.dead
        own = [int(best[v]) for v in self.local.interface]
        if own:
            keep[int(np.ravel_multi_index(own, self.local.interface_shape))] = True
            if 2 * int(keep.sum()) <= keep.size:
                self.listing = np.flatnonzero(keep)

    def _limits(self, rest: NDArray[Any], threshold: Number) -> NDArray[np.object_]:
        """Return what each row of this agent has to exceed, as Python numbers; inf where the rest is impossible."""
        arithmetic = self.task.arithmetic
        hard = (rest < arithmetic.threshold) | (rest == arithmetic.lowest)
        return np.array(
            [np.inf if h else threshold - value for value, h in zip(rest.tolist(), hard.tolist(), strict=True)],
            dtype=object,
        )

    def _bury(self, limits: NDArray[np.object_]) -> None:
        """Take rows out that cannot exceed their limits."""
        assert self.table.upper is not None
        upper = self.rows(self.table.upper).tolist()
        dead = np.array([u <= limit for u, limit in zip(upper, limits.tolist(), strict=True)], dtype=bool)
        self.dead = dead if self.dead is None else self.dead | dead

    def _promising(self, rest: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return the rows to sample on: those that may be in a better solution, the most promising ones."""
        rows = np.arange(self.sampled.rows)
        if self.dead is not None:
            rows = rows[~self.dead]
        if rest is None or rows.size <= _FOCUS:
            return rows
        promise = self.rows(self.table.lower).astype(np.float64) + rest.astype(np.float64)
        best = rows[np.argsort(-promise[rows], kind="stable")]
        return np.sort(best[: max(_FOCUS, -(-rows.size // _FOCUS))])

    def _tighten(self, limits: NDArray[np.object_] | None, seconds: float) -> None:
        assert self.bound is not None
        threads = self.task.backend.threads
        rows = None if self.dead is None else np.flatnonzero(~self.dead)
        if limits is None or not hasattr(self.bound, "prune"):
            self.bound.improve(seconds=seconds, rows=rows, threads=threads)
        else:
            state = cast(PruningState, self.bound)
            # Whole utilities beat a limit from the next whole number on; a limit may be none where others are floats.
            need = np.array([_beyond(limit) if state.whole else limit for limit in limits.tolist()], dtype=object)
            pruned = state.prune(need, rows=rows, seconds=0.8 * seconds, threads=threads)
            cells = int(0.2 * seconds * threads * _CELLS)
            settle(self.local, state, pruned, self.task.arithmetic, cells, threads, self.task.backend.stop)
        self._take_bound()

    def _take_bound(self) -> None:
        """Put the bound into the table."""
        assert self.bound is not None
        self.table = replace(self.table, upper=self.bound.tables(self.task.arithmetic))


def _exhausted(part: Resumable | BoundState | None) -> bool:
    """Return whether no time would make a sampling or a bound better."""
    return part is None or bool(getattr(part, "exhausted", False))


def _beyond(limit: Number) -> Number:
    """Return the least whole number above a limit."""
    return limit if math.isinf(limit) else math.floor(limit) + 1


def gather_sides(task: Task, world: World, lists: Mapping[int, Rows], listings: Mapping[int, Rows]) -> Sides:
    """Tell all ranks which agents' interfaces are lists of rows.

    Parameters
    ----------
    lists
        Of this rank's agents: the rows that were sampled, which are all that their tables from below have.
    listings
        Of others of them: the rows that can still matter, on both sides.
    """
    below: dict[int, Rows] = {}
    both: dict[int, Rows] = {}
    for mine, theirs in world.allgather((dict(lists), dict(listings))):
        below |= mine
        both |= theirs
    interfaces = {a: task.division.locals[a].interface for a in (*below, *both)}
    problem = task.problem
    upper = Compression(problem.domains, problem.owner, interfaces, both)
    lower = Compression(problem.domains, problem.owner, interfaces, below | both) if below else upper
    return Sides(lower, upper)


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
    total, start, pruned = sum(share.values()), time.perf_counter(), False
    for agent, work in works.items():
        left = max(0.0, start + order.seconds - time.perf_counter())
        part = left * share[agent] / total if total > 0 and not task.backend.stop.asked else 0.0
        total -= share[agent]
        rest = _rest(task, work, rests[agent], sides) if agent in rests and work.enumerated else None
        pruned |= work.improve(rest, order.thresholds.get(root[agent]), order.best, part, order.sampled)
    lists = {a: sides.lower.rows[a] for a in works if a in sides.lower.rows and a not in sides.upper.rows}
    listings = {a: work.rows_listed() for a, work in works.items() if work.listing is not None}
    return gather_sides(task, world, lists, listings), pruned


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
