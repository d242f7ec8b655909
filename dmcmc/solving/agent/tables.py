"""The lower and upper tables of an agent, and which of their rows can still matter.

A *row* is one assignment of the agent's boundary variables (its interface). The lower table has the chains that
continue to sample it. The upper table has the bound provider's state, and the requests for tighter bounds that
improvers carry out: by dual ascent (soft arc consistency), branch and bound over the rows, and a semidefinite
relaxation. A row's *cutoff* is the utility that it has to exceed to be part of a better solution than the incumbent. A
*core second* is one second of one CPU core.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.branch_and_bound import row_search
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState, PruningState
from dmcmc.inference.bounds.contract.tuning import NODE_SWEEPS
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search, relaxation_of, relaxation_pays
from dmcmc.inference.bounds.semidefinite.relaxation import (
    RelaxationRequest,
    SemidefiniteRelaxation,
    runs_after_branch_and_bound,
)
from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract.protocol import Resumable
from dmcmc.solving.tuning import MAX_SEARCHED_ROWS, MIN_NODES_PER_ROW, PROMISING_DIVISOR


@dataclass
class UpperTable:
    """The source of an agent's upper table.

    Branch and bound goes through these states: not started (``boundary_search`` is None), running, then exhausted,
    excluded (``search_too_slow``) or stalled (``search_stalled``; it is dropped). A relaxation goes through: not
    started (``relaxation`` is None), untested, tested, exhausted; ``no_relaxation`` excludes it at any time for good.

    Attributes
    ----------
    state : BoundState or None
        State of the bound provider; None without a bound.
    boundary_search : BoundarySearch or None
        Branch and bound over the agent's rows; None before it has started, and after it has stalled.
    searched_part : SearchedPart
        Which of the rows' nodes that search holds; the others are on other ranks.
    search_awaited : bool
        Whether searches on other ranks wait for nodes of this one.
    search_too_slow : bool
        Whether branch and bound would be too slow to close rows. Judged only before it starts, and never reset.
    initial_gap : float or None
        The agent's part of the optimality gap when branch and bound started, utility.
    search_stalled : bool or None
        Whether branch and bound has stalled: most of that gap is still open after some nodes per row. A semidefinite
        relaxation may follow then. None until it has been judged (:mod:`dmcmc.anytime.improvers.bounds`).
    relaxation : SemidefiniteRelaxation or None
        The semidefinite relaxation of the agent's rows; None before it has started.
    no_relaxation : bool
        Whether a semidefinite relaxation is excluded: it does not suit the agent, or there is no time to see its gain.
    uncharged_seconds : float
        Seconds of a semidefinite relaxation whose gain cannot be judged yet.
    retained_search : BoundarySearch or None
        Branch and bound of an earlier run of a session over the same factors, which the first request continues.
    """

    state: BoundState | None = None
    boundary_search: row_search.BoundarySearch | None = None
    searched_part: row_search.SearchedPart = row_search.SearchedPart.ALL
    search_awaited: bool = False
    search_too_slow: bool = False
    initial_gap: float | None = None
    search_stalled: bool | None = None
    relaxation: SemidefiniteRelaxation | None = None
    no_relaxation: bool = False
    uncharged_seconds: float = 0.0
    retained_search: row_search.BoundarySearch | None = None

    @property
    def exhausted(self) -> bool:
        """Whether more time would not tighten the bound."""
        return self.state is None or self.state.exhausted

    def start(self, provider: str, local: LocalProblem, backend: Backend) -> None:
        """Start the bound of a provider, which is sound from the beginning."""
        self.state = registry.get(provider).start(local, backend)

    @property
    def dual(self) -> DualState | None:
        """The dual ascent that the bound comes from; None without one."""
        state = getattr(self.state, "dual", self.state)
        return state if isinstance(state, DualState) else None

    def request(
        self, rows: NDArray[np.int64] | None, row_cutoffs: NDArray[Any] | None, attained: NDArray[Any] | None = None
    ) -> BoundRequest:
        """Return the request for a tighter bound of the rows that can still matter, those above their cutoffs.

        A provider that can remove values (``PruningState``) gets thresholds: a row matters if it reaches its threshold.
        Where all utilities are whole numbers, that is floor(max(cutoff, attained)) + 1, else the cutoff.

        Parameters
        ----------
        rows : (k,) int64 or None
            The rows that can still matter; None for all.
        row_cutoffs : (rows,) int64 or float64, or None
            Utility that each row has to exceed; None if it is not known.
        attained : (rows,) or None
            Lower bound on each row's utility. If all utilities are whole numbers, a row has to exceed it, too.
        """
        assert self.state is not None
        if row_cutoffs is None or not isinstance(self.state, PruningState):
            return BoundRequest(self.state, rows)
        # A whole utility exceeds its cutoff from the next whole number on; floats have no such next number.
        return BoundRequest(
            self.state,
            rows,
            row_search.next_above(_elementwise_max(row_cutoffs, attained)) if self.state.integral else row_cutoffs,
        )

    def may_search(self, rows: int) -> bool:
        """Return whether branch and bound over this number of rows has work left, or may be started.

        It needs a dual ascent over enumerated rows that can still improve.
        """
        dual = self.dual
        if dual is None or dual.exhausted or not dual.enumerated or rows > MAX_SEARCHED_ROWS or self.search_too_slow:
            return False
        return self.boundary_search is None or not self.boundary_search.exhausted

    def may_relax(self, local: LocalProblem) -> bool:
        """Return whether a semidefinite relaxation may lower the rows' bounds; branch and bound may go first.

        The first call that gets past branch and bound creates the relaxation, or excludes it if it would not be useful.
        """
        dual = self.dual
        if dual is None or self.no_relaxation:
            return False
        if runs_after_branch_and_bound(local) and self.may_search(local.rows) and not self.search_stalled:
            return False
        if self.relaxation is None:
            self.relaxation = relaxation_of(local, dual, getattr(self.state, "relaxation", None))
            self.no_relaxation = self.relaxation is None
        return self.relaxation is not None and not self.relaxation.exhausted

    def relaxation_may_follow(self, local: LocalProblem) -> bool:
        """Return whether a semidefinite relaxation follows if branch and bound stalls, which is not known yet."""
        if (
            self.search_stalled is not None
            or self.no_relaxation
            or self.dual is None
            or not runs_after_branch_and_bound(local)
        ):
            return False
        return relaxation_pays(local, self.dual.backend)

    def has_time_for_relaxation(self, seconds: float) -> bool:
        """Return whether some core seconds are enough to judge a semidefinite relaxation; if not, exclude it."""
        assert self.relaxation is not None
        self.no_relaxation = self.no_relaxation or self.relaxation.trial_seconds > seconds
        return not self.no_relaxation

    def charge(self, seconds: float, gained: bool) -> float:
        """Add seconds of a semidefinite relaxation; return the seconds to record as its cost now.

        The cost is 0 until the relaxation has gained something, or can be judged. Other work waits for per-row
        relaxations, which would get too little time if their first seconds counted as seconds without gain.
        """
        assert self.relaxation is not None
        self.uncharged_seconds += seconds
        if (self.relaxation.untested or self.relaxation.per_row.undecided) and not gained:
            return 0.0
        charged, self.uncharged_seconds = self.uncharged_seconds, 0.0
        return charged

    def relaxation_request(self, rows: NDArray[np.int64] | None, row_cutoffs: NDArray[Any] | None) -> RelaxationRequest:
        """Return the request for a semidefinite relaxation of the rows that can still matter."""
        assert self.relaxation is not None
        return RelaxationRequest(self.relaxation, rows, row_cutoffs)

    def has_time_for_search(self, rows: int, seconds: float) -> bool:
        """Return whether branch and bound could close this number of rows in some core seconds; if not, it is excluded.

        The estimate is (sweeps per node) * (seconds per sweep of the dual ascent over all its tables) * (4 nodes per
        row) * rows. A search that has begun continues: its time depends on its gains.
        """
        assert self.dual is not None
        if self.boundary_search is None:
            self.search_too_slow = (
                self.search_too_slow or NODE_SWEEPS * self.dual.seconds_per_sweep * MIN_NODES_PER_ROW * rows > seconds
            )
        return not self.search_too_slow

    def new_leaves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the rows and hidden values of the leaves that branch and bound has reached since the last call."""
        return None if self.boundary_search is None else self.boundary_search.leaves()

    def search_request(
        self,
        rows: NDArray[np.int64] | None,
        row_cutoffs: NDArray[Any],
        attained: NDArray[Any],
        seconds: float,
        node_bytes: int,
    ) -> row_search.BoundarySearchRequest:
        """Return the request for branch and bound over the rows that can still matter.

        Parameters
        ----------
        rows : (k,) int64 or None
            The rows that can still matter; None for all.
        row_cutoffs, attained : (rows,) int64 or float64
            Utility that each row has to exceed, and a lower bound on its utility.
        seconds
            Seconds for the searches of all agents, by which the device is chosen.
        node_bytes
            Bytes for the nodes in host memory.
        """
        dual = self.dual
        assert dual is not None
        retained, self.retained_search = self.retained_search, None
        if self.boundary_search is None:
            self.boundary_search = retained or create_boundary_search(dual, node_bytes, seconds, self.searched_part)
        if dual.integral:
            search_cutoffs = row_search.next_above(_elementwise_max(row_cutoffs, attained))
        else:  # bounds are rounded down: a row closed one unit below its cutoff must not fall below its utility
            search_cutoffs = _elementwise_max(row_cutoffs, attained + 2 * math.ldexp(1.0, -dual.layout.scale.shift))
        if retained is not None:
            retained.reopen(search_cutoffs, rows)
        return row_search.BoundarySearchRequest(self.boundary_search, search_cutoffs, row_cutoffs, rows)


def _elementwise_max(row_cutoffs: NDArray[Any], attained: NDArray[Any] | None) -> NDArray[Any]:
    """Return the larger of two numbers for each row."""
    return row_cutoffs if attained is None else np.maximum(row_cutoffs, attained.astype(row_cutoffs.dtype))


@dataclass
class LowerTable:
    """How an agent's lower table was computed, and how its sampling can continue.

    Attributes
    ----------
    local : LocalProblem
        The problem whose rows the table has. It is the agent's problem. If the agent has too many rows to sample all,
        it is that problem with one interface variable, whose values are the sampled rows.
    chains : Resumable or None
        The sampling, to be continued; None if the table is final.
    """

    local: LocalProblem
    chains: Resumable | None = None

    @property
    def exhausted(self) -> bool:
        """Whether more sampling would not improve the table."""
        return self.chains is None or self.chains.exhausted


def promising_rows(
    rows: NDArray[np.int64], pruned: NDArray[np.bool_] | None, utility: NDArray[Any] | None
) -> NDArray[np.int64]:
    """Return the rows to sample further, in ascending order: the unpruned rows of the highest utility.

    Parameters
    ----------
    rows : (rows,) int64
        All rows, ascending.
    pruned : (rows,) bool or None
        Whether a row is pruned: it cannot improve the incumbent.
    utility : (rows,) or None
        Estimated utility of the whole solution with each row; None selects all unpruned rows.
    """
    if pruned is not None:
        rows = rows[~pruned]
    if utility is None or rows.size <= PROMISING_DIVISOR:
        return rows
    by_utility = rows[np.argsort(-utility[rows], kind="stable")]
    return np.sort(by_utility[: max(PROMISING_DIVISOR, -(-rows.size // PROMISING_DIVISOR))])


@dataclass
class RowPruning:
    """Rows that cannot be part of a better solution than the incumbent, and the remaining ones.

    Rows are only ever added to ``pruned``. ``listing`` is None at first; ``list_rows`` sets it when at most half of the
    rows remain.

    Attributes
    ----------
    pruned : (rows,) bool or None
        Whether each row is pruned; None if no row has been examined.
    listing : (k,) int64 or None
        The remaining rows and the incumbent's row, if the combination works with these rows only.
    """

    pruned: NDArray[np.bool_] | None = None
    listing: NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        """Number of pruned rows."""
        return 0 if self.pruned is None else int(self.pruned.sum())

    @property
    def open_rows(self) -> NDArray[np.int64] | None:
        """The rows that can still matter, (k,) int64; None for all rows."""
        return None if self.pruned is None else np.flatnonzero(~self.pruned)

    def prune(self, upper: NDArray[Any], cutoffs: NDArray[Any]) -> None:
        """Prune the rows whose upper bounds do not exceed their cutoffs."""
        pruned = upper <= cutoffs
        self.pruned = pruned if self.pruned is None else self.pruned | pruned

    def list_rows(self, local: LocalProblem, best: NDArray[np.int64]) -> None:
        """List the rows that can still matter and the incumbent's row, if they are at most half of all rows."""
        if self.pruned is None or not local.interface:
            return
        listed = ~self.pruned
        values = [int(best[v]) for v in local.interface]
        listed[int(np.ravel_multi_index(values, local.interface_shape))] = True
        if 2 * int(listed.sum()) <= listed.size:
            self.listing = np.flatnonzero(listed)

    def listed_values(self, local: LocalProblem) -> NDArray[np.int64]:
        """Return the boundary values of the listed rows, (k, number of boundary variables) int64."""
        assert self.listing is not None
        return np.stack(np.unravel_index(self.listing, local.interface_shape), axis=1).astype(np.int64)


def row_cutoffs_of(outside: NDArray[Any], cutoff: Number, arithmetic: Arithmetic) -> NDArray[Any]:
    """Return the utility that each row has to exceed, (rows,): int64, or float64 if sums are floats.

    It is cutoff - outside. Where all other agents together violate a hard constraint, the row is impossible, and its
    cutoff is the largest number of the dtype (inf for floats).

    Parameters
    ----------
    outside : (rows,) encoded
        Upper bound on what all other agents can add to each row.
    cutoff
        Utility that a whole solution has to exceed to improve the incumbent.
    arithmetic
        Encoding of ``outside``.
    """
    cutoffs = outside.astype(np.int64 if arithmetic.exact else np.float64)
    infeasible = (outside < arithmetic.forbidden_below) | (outside == arithmetic.lowest)
    np.subtract(np.array(cutoff, dtype=cutoffs.dtype), cutoffs, out=cutoffs)
    cutoffs[infeasible] = np.iinfo(np.int64).max if arithmetic.exact else np.inf
    return cutoffs


def rows_of(
    tables: UtilMessage, interface: tuple[int, ...], sizes: NDArray[np.int64], arithmetic: Arithmetic
) -> NDArray[Any]:
    """Return the sum of encoded tables over parts of an interface for every row, (rows,) in the arithmetic's dtype.

    A row is an assignment of the interface, in C order.

    Parameters
    ----------
    tables
        Tables whose scopes are subsets of the interface.
    interface
        The variables of the rows.
    sizes : (n,) int64
        Domain sizes of all variables.
    arithmetic
        Encoding of the tables, which defines their sums.
    """
    shape = [int(sizes[v]) for v in interface]
    total = np.zeros(shape, dtype=arithmetic.dtype)
    for table in tables:
        scope, values = table.scope, table.values
        axes = sorted(range(len(scope)), key=lambda axis: interface.index(scope[axis]))
        broadcast_shape = [shape[i] if v in scope else 1 for i, v in enumerate(interface)]
        total = arithmetic.add(total, values.transpose(axes).reshape(broadcast_shape))
    return total.reshape(-1)
