"""One agent's tables in the making, from both sides."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import Request
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.exact_residual import settle
from dmcmc.inference.bounds.semidefinite.relaxation import LiftRequest
from dmcmc.inference.bounds.tighten import Tightened
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Number
from dmcmc.run.agent.filtered_table import FilteredTable
from dmcmc.run.agent.lower_table import LowerTable, promising
from dmcmc.run.agent.row_pruning import Pruning, limits_of
from dmcmc.run.agent.row_sums import rows_of
from dmcmc.run.agent.upper_table import UpperTable
from dmcmc.run.scheduler.proposal import Brought
from dmcmc.samplers import improve_in_team
from dmcmc.samplers.bound_in_team import RowsInTeam
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.contract.team import ALONE, Team
from dmcmc.samplers.methods.block_chains import BlockChains, frozen

_MOST_ROWS = 1 << 20  # more are not looked at one by one
_DEARER = 2.0  # times as much as was thought is what an elimination takes that was given up before that


class Means(NamedTuple):
    """What all agents of a rank work with; ``gap`` is the relative one that a run is asked for."""

    sampling: Sampling
    gap: float

    @property
    def arithmetic(self) -> Arithmetic:
        """What tables are encoded in."""
        return self.sampling.arithmetic

    @property
    def backend(self) -> Backend:
        """Where work is done, and until when."""
        return self.sampling.backend


@dataclass
class Agent:
    """One agent's tables.

    Attributes
    ----------
    local : LocalProblem
        The agent's problem.
    table : SampledTable
        As it is now.
    below : LowerTable
        What its table from below comes from.
    above : UpperTable
        What its table from above comes from.
    pruning : Pruning
        The rows that can still matter.
    last : float
        Seconds of the last improvement.
    price : float or None
        About what its exact elimination takes, seconds; None where that is not allowed.
    in_vain : float
        Seconds that an exact elimination took, or should have taken, when it was given up.
    weight : float
        Beside other agents, what its gap may be.
    brought : list of Brought
        What came of the work on its first table.
    filtered : FilteredTable or None
        Eliminations that filter by the incumbent; None where that is not allowed.
    watched : bool
        Whether it goes on with block moves where its chains turn out to be frozen.
    tightened : bool
        Whether its bound has been tightened beyond limits of its rows.
    team : Team
        The ranks among which rows that are sampled on, or bounded, are divided.
    """

    means: Means
    local: LocalProblem
    table: SampledTable
    below: LowerTable
    above: UpperTable = field(default_factory=UpperTable)
    pruning: Pruning = field(default_factory=Pruning)
    last: float = 0.0
    price: float | None = None
    in_vain: float = 0.0
    weight: float = 1.0
    brought: list[Brought] = field(default_factory=list)
    filtered: FilteredTable | None = None
    watched: bool = False
    tightened: bool = False
    team: Team = ALONE

    @property
    def may_search(self) -> bool:
        """Whether rows may be searched in: those that values have been removed of, where that was not enough."""
        return self.tightened and self.enumerated and self.above.searchable(self.local.rows)

    @property
    def may_lift(self) -> bool:
        """Whether a semidefinite lift may lower its rows' bounds."""
        return self.enumerated and self.above.liftable(self.local)

    @property
    def awaits_lift(self) -> bool:
        """Whether a lift is yet to show what it brings: so long ascent, of which little is hoped there, waits."""
        return self.may_lift and self.above.lifted is not None and self.above.lifted.unknown

    @property
    def may_follow_search(self) -> bool:
        """Whether a lift follows once a search in its rows turns out to stall; that is not known yet."""
        return self.enumerated and self.above.lift_follows(self.local)

    @property
    def lifts_steadily(self) -> bool:
        """Whether a lift goes on where it was, and the same work again is never needed."""
        lifted = self.above.lifted
        return lifted is not None and (lifted.own.young or lifted.own.ground is not None)

    @property
    def awaits_squares(self) -> bool:
        """Whether squares of rows' own are yet to show what they bring: so long all that lowers the same rows waits."""
        return self.may_lift and self.above.lifted is not None and self.above.lifted.own.young

    @property
    def may_improve(self) -> bool:
        """Whether more time could change the table."""
        return not (self.table.exact or (self.below.exhausted and self.above.exhausted) or self._closed())

    @property
    def enumerated(self) -> bool:
        """Whether both sides have a number for every row."""
        if self.below.local is not self.local or self.table.upper is None or self.local.rows > _MOST_ROWS:
            return False
        interface = set(self.local.interface)
        return all(set(t.scope) <= interface for t in (*self.table.lower, *self.table.upper))

    def rows(self, tables: UtilMessage) -> NDArray[Any]:
        """Return the sum of tables over parts of the interface for every row (encoded)."""
        return rows_of(tables, self.local.interface, self.local.domains, self.means.arithmetic)

    def exported(self) -> SampledTable:
        """Return the table as the combination takes it: without pruned rows, over the listing if there is one."""
        table, pruned, listing = self.table, self.pruning.pruned, self.pruning.listing
        if pruned is None or table.upper is None or (listing is None and table.exact):
            return table
        lowest = self.means.arithmetic.lowest
        if listing is None:
            kept = self.rows(table.upper).copy()
            kept[pruned] = lowest
            return replace(table, upper=(Table(self.local.interface, kept.reshape(self.local.interface_shape)),))
        variable, rows = len(self.local.domains) + self.local.agent, self.pruning.listed_values(self.local)
        lower = (Table((variable,), self.rows(table.lower)[listing]),)
        pruned, bounds = pruned[listing], self.rows(table.upper)[listing]
        upper = lower
        if not table.exact or pruned.any():
            upper = (Table((variable,), np.where(pruned, lowest, bounds).astype(lower[0].values.dtype)),)

        def witness(values: Mapping[int, int]) -> dict[int, int]:
            row = rows[values[variable]].tolist()
            return table.witness(dict(zip(self.local.interface, row, strict=True)))

        return replace(table, lower=lower, upper=upper, witness=witness)

    def start_bound(self, provider: str) -> None:
        """Make a bound of the table from above."""
        self.above.start(provider, self.local, self.means.backend)
        if self.team.size > 1 and not self.team.private and self.above.dual is not None:
            self.above.dual.helpers = RowsInTeam(self.team)
        self.take_bound()

    def take_bound(self, seconds: float = 0.0) -> None:
        """Put the bound into the table, and the seconds that it took."""
        upper = self.above.tables(self.means.arithmetic)
        self.table = replace(self.table, upper=upper, seconds=self.table.seconds + seconds)

    def close_enough(self) -> bool:
        """Return whether the best rows of both sides are no further apart than the gap that is asked for."""
        if not self.enumerated or self.table.upper is None:
            return False
        lower, upper = (float(self.rows(side).max()) for side in (self.table.lower, self.table.upper))
        return upper - lower <= self.means.gap * abs(lower)

    def look(self, outside: NDArray[Any] | None, threshold: Number | None) -> NDArray[Any] | None:
        """Prune the rows that cannot be in anything better; return what each has to exceed, None if not known.

        Parameters
        ----------
        outside : (rows,) encoded, or None
            At most what all other agents add to each row.
        threshold
            What the whole has to exceed to be better than the best known; None if anything would be.
        """
        if outside is None or threshold is None:
            return None
        limits = limits_of(outside, threshold, self.means.arithmetic)
        self._prune(limits)
        return limits

    def sample(self, outside: NDArray[Any] | None, seconds: float) -> None:
        """Sample on where that can change the answer, for about some seconds."""
        chains, worth = self.below.chains, None
        if chains is None or seconds <= 0:
            return
        if outside is not None:
            worth = self.rows(self.table.lower).astype(np.float64) + outside.astype(np.float64)
        rows = promising(np.arange(self.below.local.rows), self.pruning.pruned, worth)
        if self.watched:  # once: chains that move do not freeze later
            self.watched = False
            if frozen(self.below.local, chains.states):
                done = chains.table()
                chains = BlockChains(self.below.local, self.means.sampling, chains.states, done.seconds, done.updates)
                self.below.chains = chains
        improve_in_team.improve(chains, rows, seconds, self.means.backend.threads, self.team)
        self.table = replace(chains.table(), upper=self.table.upper)

    def take_exact(self, table: SampledTable) -> None:
        """Take the table of an exact elimination in place of what was sampled and bounded."""
        self.table = replace(table, seconds=self.table.seconds, updates=self.table.updates)
        self.below, self.above = LowerTable(self.local), UpperTable()

    def give_up(self, seconds: float) -> None:
        """Take note that an exact elimination was given up after some seconds.

        One that had not taken what it should (its memory could not be had, or made ready in time) is dearer from then
        on: at the same price it would be tried again at once, and again.
        """
        thought = max(self.price or 0.0, self.in_vain)
        self.in_vain = seconds if seconds >= thought else _DEARER * thought

    def filter(self, best: NDArray[np.int64] | None, backend: Backend, left: float) -> None:
        """Go on with an elimination that filters by the best assignment known, in a turn that the backend ends.

        Parameters
        ----------
        left
            Seconds that there are for it in all.
        """
        assert self.filtered is not None
        table = self.filtered.go_on(self.local, self.means.arithmetic, best, backend, left, self.above.state)
        if table is not None:
            self.take_exact(table)

    def request(self, limits: NDArray[Any] | None) -> BoundRequest:
        """Return what is wanted of the bound."""
        return self.above.request(self.pruning.open_rows, limits, None if limits is None else self._attained(limits))

    def settle(self, limits: NDArray[Any] | None, tightened: Tightened, seconds: float) -> None:
        """Take a tighter bound in, and eliminate what it has left of the rows, for about some seconds."""
        if tightened.pruned is not None:
            backend, arithmetic = self.means.backend, self.means.arithmetic
            cells = int(seconds * backend.threads * COSTS.settled)
            settle(self.local, tightened.pruned, arithmetic, cells, backend.threads, backend.stop)
            self.tightened = True
        self.take_bound()
        if limits is not None:
            self._prune(limits)

    def row_search(self, limits: NDArray[Any], seconds: float, room: int, left: float = math.inf) -> Request | None:
        """Return what is wanted of a search in the rows that can still matter; None where it would be too slow.

        Parameters
        ----------
        seconds
            That the searches of all agents may take.
        room
            Bytes for its nodes.
        left
            Seconds of one core that there will be for it in all: too few, and rows are not searched in.
        """
        still = self.pruning.open_rows
        if not self.above.quick_enough(self.local.rows if still is None else still.size, left):
            return None
        return self.above.search(still, limits, self._attained(limits), seconds, room)

    def take_searched(self, limits: NDArray[Any]) -> None:
        """Take in what a search in the rows has found: bounds, and assignments where they are better."""
        leaves, chains = self.above.leaves(), self.below.chains
        same = chains is not None and self.below.local is self.local  # rows; else only listed ones are sampled
        if leaves is not None and chains is not None and same and chains.take_better(*leaves):
            self.table = chains.table()
        self.take_bound()
        self._prune(limits)

    def lift_request(self, limits: NDArray[Any] | None) -> LiftRequest:
        """Return what is wanted of a semidefinite lift: for the rows that can still matter, beyond their limits."""
        return self.above.lift_request(self.pruning.open_rows, limits)

    def take_lifted(self, limits: NDArray[Any] | None) -> None:
        """Take over what a lift has lowered."""
        self.take_bound()
        if limits is not None:
            self._prune(limits)

    def finish(self, best: NDArray[np.int64] | None, seconds: float) -> None:
        """End an improvement that took some seconds; list the rows that can still matter if they are few.

        Parameters
        ----------
        best
            The best assignment known, value indices of all variables.
        """
        self.last = seconds
        self.table = replace(self.table, seconds=self.table.seconds + seconds)
        if best is not None:
            self.pruning.list_rows(self.local, best)

    def _attained(self, limits: NDArray[Any]) -> NDArray[Any]:
        """Return what rows are worth at least, their limits where nothing is known; in the numbers of limits."""
        arithmetic, worth = self.means.arithmetic, self.rows(self.table.lower)
        hard = (worth < arithmetic.threshold) | (worth == arithmetic.lowest)
        return np.where(hard, limits, worth.astype(limits.dtype))

    def _prune(self, limits: NDArray[Any]) -> None:
        assert self.table.upper is not None
        self.pruning.prune(self.rows(self.table.upper), limits)

    def _closed(self) -> bool:
        """Return whether both sides agree on every row that can still matter."""
        if not self.enumerated or self.table.upper is None:
            return False
        apart = self.rows(self.table.lower) < self.rows(self.table.upper)
        return not (apart if self.pruning.pruned is None else apart & ~self.pruning.pruned).any()
