"""Each agent's own part of a run: its first table, and making it better where that matters."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry as bounds_registry
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState, Pruned, PruningState
from dmcmc.inference.bounds.settle import settle
from dmcmc.inference.dpop.compression import Compression, Rows
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.messages import UtilMessage
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.run.cycle import Sides, rows_of
from dmcmc.run.setup import Task
from dmcmc.samplers.contract.protocol import Resumable, SampledTable

FIRST_SWEEPS = 3  # of a row's dual ascent, where no time is given
_FIRST_PARTS = (0.2, 0.8)  # in which an agent's first bound is made
_CELLS = 5e8  # table cells that a thread eliminates in a second
_MOST_ROWS = 1 << 20  # more are not looked at one by one
SETTLED = 0.2  # of the time for a bound goes to the elimination of what it leaves of rows
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

    def start_bound(self) -> bool:
        """Make a bound of the table from above, if there is none and one is wanted; return whether there is one now."""
        name = self.task.choices[self.local.agent].bound
        if self.table.upper is not None or name == "none":
            return False
        start = time.perf_counter()
        self.bound = bounds_registry.get(name).start(self.local, self.task.backend)
        self.take_bound(time.perf_counter() - start)
        return True

    def first_bound(self, seconds: float | None) -> None:
        """Tighten the bound for the first time, within a time or by a fixed amount of work."""
        assert self.bound is not None
        start = time.perf_counter()
        if seconds is None:
            self.bound.improve(sweeps=FIRST_SWEEPS)
            self.take_bound()
        else:
            for part in _FIRST_PARTS:  # a little is often enough
                self.bound.improve(seconds=part * seconds)
                self.take_bound()
                if self._close_enough():
                    break
        self.table = replace(self.table, seconds=self.table.seconds + time.perf_counter() - start)

    def _close_enough(self) -> bool:
        """Return whether the best rows of both sides are no further apart than the gap that is asked for."""
        if not self.enumerated or self.table.upper is None:
            return False
        lower, upper = (float(self.rows(side).max()) for side in (self.table.lower, self.table.upper))
        return upper - lower <= self.task.config.budget.gap * abs(lower)

    def improve(self, rest: NDArray[Any] | None, threshold: Number | None, seconds: float, sampled: float) -> None:
        """Sample on and bound more tightly where that can change the answer.

        Parameters
        ----------
        rest : (rows,) encoded, or None
            At most what all other agents add to each row.
        threshold
            What the whole has to exceed to be better than the best known; None if anything would be.
        sampled
            The part of the time that goes to sampling.
        """
        limits = self.look(rest, threshold)
        sampled = 1.0 if _exhausted(self.bound) else 0.0 if _exhausted(self.chains) else sampled
        self.sample(rest, seconds * sampled)
        if self.bound is not None and seconds > 0 and sampled < 1:
            request, left = self.request(limits), seconds * (1 - sampled)
            pruned = request.carry_out(left if request.thresholds is None else (1 - SETTLED) * left)
            self.settle(limits, pruned, SETTLED * left)

    def look(self, rest: NDArray[Any] | None, threshold: Number | None) -> NDArray[np.object_] | None:
        """Leave out rows that cannot be in anything better; return what each has to exceed, None if not known."""
        if rest is None or threshold is None:
            return None
        limits = self._limits(rest, threshold)
        self._bury(limits)
        return limits

    def sample(self, rest: NDArray[Any] | None, seconds: float) -> None:
        """Sample on, for about some seconds."""
        if self.chains is not None and seconds > 0:
            self.chains.improve(self._promising(rest), seconds, self.task.backend.threads)
            self.table = replace(self.chains.table(), upper=self.table.upper)

    def request(self, limits: NDArray[np.object_] | None) -> BoundRequest:
        """Return what is wanted of the bound: for the rows that are left, beyond their limits."""
        assert self.bound is not None
        rows = None if self.dead is None else np.flatnonzero(~self.dead)
        if limits is None or not isinstance(self.bound, PruningState):
            return BoundRequest(self.bound, rows)
        # Whole utilities beat a limit from the next whole number on; a limit may be none where others are floats.
        whole = self.bound.whole
        need = np.array([_beyond(limit) if whole else limit for limit in limits.tolist()], dtype=object)
        return BoundRequest(self.bound, rows, need)

    def settle(self, limits: NDArray[np.object_] | None, pruned: Pruned | None, seconds: float) -> None:
        """Eliminate what a tighter bound has left of the rows, for about some seconds; take the bound in."""
        backend = self.task.backend
        if pruned is not None:
            cells = int(seconds * backend.threads * _CELLS)
            settle(self.local, pruned, self.task.arithmetic, cells, backend.threads, backend.stop)
        self.take_bound()
        if limits is not None:
            self._bury(limits)

    def finish(self, best: NDArray[np.int64] | None, seconds: float) -> None:
        """Let the combination work with the rows that are left, and the best solution's, if they are much fewer.

        Parameters
        ----------
        best
            The best assignment known, value indices of all variables.
        seconds
            That this improvement took.
        """
        self.last = seconds
        self.table = replace(self.table, seconds=self.table.seconds + seconds)
        if best is None or self.dead is None:
            return
        keep = ~self.dead
        own = [int(best[v]) for v in self.local.interface]
        if own:
            keep[int(np.ravel_multi_index(own, self.local.interface_shape))] = True
            if 2 * int(keep.sum()) <= keep.size:
                self.listing = np.flatnonzero(keep)

    @property
    def buried(self) -> int:
        """How many rows have been left out."""
        return 0 if self.dead is None else int(self.dead.sum())

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

    def take_bound(self, seconds: float = 0.0) -> None:
        """Put the bound into the table, and the seconds that it took."""
        assert self.bound is not None
        upper = self.bound.tables(self.task.arithmetic)
        self.table = replace(self.table, upper=upper, seconds=self.table.seconds + seconds)


def _exhausted(part: Resumable | BoundState | None) -> bool:
    """Return whether no time would make a sampling or a bound better."""
    return part is None or part.exhausted


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
