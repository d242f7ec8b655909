"""One agent's tables, their lower and upper bounds, and the work that improves them.

The initial tables and the improvers (``dmcmc.anytime.improvers``) call the methods of ``Agent``. A row is one
assignment of the agent's boundary variables (its interface); a table has a number for each row. Numbers are
*encoded*: utilities in the number type of the run (``Arithmetic``), in which −∞ is a sentinel. Row arrays are in C
order of the interface.

A row's *cutoff* is the utility that it has to exceed to be part of a better solution than the incumbent. A row is
*pruned* if its upper bound does not exceed its cutoff; the other rows are *open*: they can still matter.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearchRequest
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState
from dmcmc.inference.bounds.semidefinite.relaxation import RelaxationRequest
from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.samplers.contract.protocol import SINGLE_RANK, RankTeam, SampledTable, Sampling
from dmcmc.samplers.in_team import TeamRowBounds, improve
from dmcmc.samplers.methods.blocks import BlockChains, draws_are_frozen
from dmcmc.solving.agent.bounds import MeasuredGain
from dmcmc.solving.agent.filtered_table import FilteredTable
from dmcmc.solving.agent.tables import LowerTable, RowPruning, UpperTable, promising_rows, row_cutoffs_of, rows_of
from dmcmc.solving.tuning import FAILURE_COST_FACTOR, MAX_EXAMINED_ROWS


class AgentContext(NamedTuple):
    """The settings that all agents of a rank share.

    Attributes
    ----------
    sampling : Sampling
        Settings of the local solvers, with the arithmetic and the backend.
    gap : float
        Relative optimality gap at which the run may end.
    """

    sampling: Sampling
    gap: float

    @property
    def arithmetic(self) -> Arithmetic:
        """Encoding of the tables."""
        return self.sampling.arithmetic

    @property
    def backend(self) -> Backend:
        """Devices, threads and deadline of the work."""
        return self.sampling.backend


@dataclass
class Agent:
    """One agent's tables and the work on them.

    Its flags follow the order of the work on the upper bound: semidefinite relaxation, if one suits the agent and need
    not follow branch and bound (``awaits_relaxation``, then on a GPU ``awaits_per_row_relaxation``, until its gain is
    known); dual ascent with the rows' cutoffs (sets ``bound_tightened``); branch and bound over the rows
    (``may_branch``, with ``relaxation_may_follow`` until it is known whether it stalls); if it stalls, a relaxation
    (``may_relax``). ``may_improve`` ends all of this: the table is exact, both of its sides are exhausted, or the lower
    and upper table agree on all open rows.

    Attributes
    ----------
    context : AgentContext
        Settings that all agents of the rank share.
    local : LocalProblem
        The agent's problem: its factors, boundary and hidden variables.
    table : SampledTable
        The current lower and upper tables.
    lower : LowerTable
        Source of the lower table.
    upper : UpperTable
        Source of the upper table.
    pruning : RowPruning
        The rows that can still be part of a better solution.
    last_seconds : float
        Seconds of the last improvement.
    elimination_seconds : float or None
        Estimated cost of the exact elimination; None if it is not allowed.
    failed_elimination_seconds : float
        Cost at which an exact elimination was given up; 0 if none was. Twice the estimate if it failed earlier.
    gains : list of MeasuredGain
        Costs and gains of the work on the first table.
    filtered : FilteredTable or None
        Eliminations with function filtering; None if they are not allowed.
    checks_for_frozen_chains : bool
        Whether the next call of ``sample`` checks if the chains are frozen (their draws hardly ever move), and if so
        continues with block moves. The check is made once, and sets this to False.
    bound_tightened : bool
        Whether the upper bound has been tightened with the rows' cutoffs. Set by ``take_tightened``, never reset.
    team : RankTeam
        The ranks that share the work on the agent's rows.
    """

    context: AgentContext
    local: LocalProblem
    table: SampledTable
    lower: LowerTable
    upper: UpperTable = field(default_factory=UpperTable)
    pruning: RowPruning = field(default_factory=RowPruning)
    last_seconds: float = 0.0
    elimination_seconds: float | None = None
    failed_elimination_seconds: float = 0.0
    gains: list[MeasuredGain] = field(default_factory=list)
    filtered: FilteredTable | None = None
    checks_for_frozen_chains: bool = False
    bound_tightened: bool = False
    team: RankTeam = SINGLE_RANK

    @property
    def may_branch(self) -> bool:
        """Whether branch and bound over the rows may help: dual ascent with the rows' cutoffs has run and left work."""
        return self.bound_tightened and self.enumerated and self.upper.may_search(self.local.rows)

    @property
    def may_relax(self) -> bool:
        """Whether a semidefinite relaxation may lower the rows' bounds; creates it on the first call if so."""
        return self.enumerated and self.upper.may_relax(self.local)

    @property
    def awaits_relaxation(self) -> bool:
        """Whether the semidefinite relaxation has not yet shown its gain; dual ascent waits for it."""
        return self.may_relax and self.upper.relaxation is not None and self.upper.relaxation.untested

    @property
    def relaxation_may_follow(self) -> bool:
        """Whether a semidefinite relaxation follows if branch and bound turns out to stall, which is not known yet."""
        return self.enumerated and self.upper.relaxation_may_follow(self.local)

    @property
    def search_awaited(self) -> bool:
        """Whether a relaxation, or searches on other ranks, wait for the outcome of branch and bound."""
        return self.relaxation_may_follow or self.upper.search_awaited

    @property
    def relaxation_resumable(self) -> bool:
        """Whether the semidefinite relaxation continues where it stopped, without repeating work."""
        relaxation = self.upper.relaxation
        return relaxation is not None and (relaxation.per_row.undecided or relaxation.per_row.search is not None)

    @property
    def awaits_per_row_relaxation(self) -> bool:
        """Whether per-row relaxations have not yet shown their gain; all that lowers the same rows waits for them."""
        return self.may_relax and self.upper.relaxation is not None and self.upper.relaxation.per_row.undecided

    @property
    def may_improve(self) -> bool:
        """Whether more time could improve the table."""
        return not (self.table.exact or (self.lower.exhausted and self.upper.exhausted) or self._closed())

    @property
    def enumerated(self) -> bool:
        """Whether the lower and the upper table have a number for every row."""
        if self.lower.local is not self.local or self.table.upper is None or self.local.rows > MAX_EXAMINED_ROWS:
            return False
        interface = set(self.local.interface)
        return all(set(t.scope) <= interface for t in (*self.table.lower, *self.table.upper))

    def rows(self, tables: UtilMessage) -> NDArray[Any]:
        """Return the sum of tables over parts of the interface for every row, (rows,) encoded.

        ``tables`` is a tuple of encoded tables, each over some of the boundary variables (a UTIL message has the same
        form).
        """
        return rows_of(tables, self.local.interface, self.local.domains, self.context.arithmetic)

    def start_bound(self, provider: str) -> None:
        """Start an upper bound of the table by a bound provider, given by its registered name."""
        self.upper.start(provider, self.local, self.context.backend)
        self._use_team()

    def continue_bound(self, state: BoundState) -> None:
        """Continue a bound of an earlier run of the same problem."""
        state.backend, self.upper.state = self.context.backend, state
        if self.upper.dual is not None:
            self.upper.dual.begin_run(self.context.backend)
        self._use_team()

    def _use_team(self) -> None:
        """Let the ranks of the team bound rows, and put the present bound into the table."""
        if self.team.size > 1 and not self.team.private and self.upper.dual is not None:
            self.upper.dual.helpers = TeamRowBounds(self.team)
        self.update_bound()

    def update_bound(self, seconds: float = 0.0) -> None:
        """Put the current upper bound into the table, and add the seconds that it took."""
        assert self.upper.state is not None
        upper = self.upper.state.tables(self.context.arithmetic)
        self.table = replace(self.table, upper=upper, seconds=self.table.seconds + seconds)

    def close_enough(self) -> bool:
        """Return whether the best rows of the lower and the upper table are within the requested relative gap."""
        if not self.enumerated or self.table.upper is None:
            return False
        lower, upper = (float(self.rows(side).max()) for side in (self.table.lower, self.table.upper))
        return upper - lower <= self.context.gap * abs(lower)

    def prune_rows(self, outside: NDArray[Any] | None, cutoff: int | float | None) -> NDArray[Any] | None:
        """Prune the rows that cannot be part of a better solution; return each row's cutoff.

        Parameters
        ----------
        outside : (rows,) encoded, or None
            Upper bound on what all other agents can add to each row.
        cutoff
            Utility that a whole solution has to exceed to improve the incumbent; None if every solution would.

        Returns
        -------
        (rows,) int64 or float64, or None
            Utility that each row has to exceed; None if it is not known.
        """
        if outside is None or cutoff is None:
            return None
        row_cutoffs = row_cutoffs_of(outside, cutoff, self.context.arithmetic)
        self._prune(row_cutoffs)
        return row_cutoffs

    def sample(self, outside: NDArray[Any] | None, seconds: float) -> None:
        """Sample for some seconds where that can change the answer.

        Parameters
        ----------
        outside : (rows,) encoded, or None
            Upper bound on what all other agents can add to each row.
        seconds
            Approximate duration.
        """
        chains, utility = self.lower.chains, None
        if chains is None or seconds <= 0:
            return
        if outside is not None:
            utility = self.rows(self.table.lower).astype(np.float64) + outside.astype(np.float64)
        rows = promising_rows(np.arange(self.lower.local.rows), self.pruning.pruned, utility)
        if self.checks_for_frozen_chains:  # once: chains that move now do not freeze later
            self.checks_for_frozen_chains = False
            if draws_are_frozen(self.lower.local, chains.states):
                table = chains.table()
                chains = BlockChains(
                    self.lower.local, self.context.sampling, chains.states, table.seconds, table.updates
                )
                self.lower.chains = chains
        improve(chains, rows, seconds, self.context.backend.threads, self.team)
        self.table = replace(chains.table(), upper=self.table.upper)

    def take_exact(self, table: SampledTable) -> None:
        """Replace the sampled and bounded table by that of an exact elimination."""
        self.table = replace(table, seconds=self.table.seconds, updates=self.table.updates)
        self.lower, self.upper = LowerTable(self.local), UpperTable()

    def give_up(self, seconds: float) -> None:
        """Record that an exact elimination was given up after some seconds.

        If it failed earlier than estimated (for lack of memory, or because memory took long to be ready), its cost is
        doubled: at the same cost it would be tried again at once, and again.
        """
        estimated = max(self.elimination_seconds or 0.0, self.failed_elimination_seconds)
        self.failed_elimination_seconds = seconds if seconds >= estimated else FAILURE_COST_FACTOR * estimated

    def filter(self, best: NDArray[np.int64] | None, backend: Backend, left: float) -> None:
        """Continue an elimination with function filtering by the incumbent until the backend's deadline.

        If the elimination finishes, its exact table replaces the agent's tables.

        Parameters
        ----------
        best : (n,) int64 or None
            Values of the best assignment; None if it violates hard constraints.
        backend
            Its deadline ends this quantum (the seconds that the improver has for the agent in one time slice).
        left
            Seconds that remain for the elimination in this run.
        """
        assert self.filtered is not None
        table = self.filtered.resume(self.local, self.context.arithmetic, best, backend, left, self.upper.state)
        if table is not None:
            self.take_exact(table)

    def bound_request(self, row_cutoffs: NDArray[Any] | None) -> BoundRequest:
        """Return the request for a tighter bound of the rows that can still matter."""
        return self.upper.request(
            self.pruning.open_rows, row_cutoffs, None if row_cutoffs is None else self._attained_utilities(row_cutoffs)
        )

    def take_tightened(self, row_cutoffs: NDArray[Any] | None, request: BoundRequest) -> None:
        """Take a tighter bound, and prune the rows that are not above their cutoffs.

        Parameters
        ----------
        row_cutoffs : (rows,) int64 or float64, or None
            Utility that each row has to exceed.
        request
            The request that has been carried out.
        """
        self.bound_tightened |= request.thresholds is not None
        self.update_bound()
        if row_cutoffs is not None:
            self._prune(row_cutoffs)

    def boundary_search(
        self, row_cutoffs: NDArray[Any], seconds: float, node_bytes: int, left: float = math.inf
    ) -> BoundarySearchRequest | None:
        """Return the request for branch and bound over the rows that can still matter; None if that would be too slow.

        Parameters
        ----------
        row_cutoffs : (rows,) int64 or float64
            Utility that each row has to exceed.
        seconds
            Seconds for the searches of all agents.
        node_bytes
            Bytes for the nodes of this agent.
        left
            Remaining core seconds for the search; without time for a few nodes per row, it is not started.
        """
        open_rows = self.pruning.open_rows
        if not self.upper.has_time_for_search(self.local.rows if open_rows is None else open_rows.size, left):
            return None
        return self.upper.search_request(
            open_rows, row_cutoffs, self._attained_utilities(row_cutoffs), seconds, node_bytes
        )

    def take_search_results(self, row_cutoffs: NDArray[Any]) -> None:
        """Take the results of branch and bound: bounds, and assignments that are better than the chains' states.

        A leaf of the search has values for all hidden variables of one row.
        """
        leaves, chains = self.upper.new_leaves(), self.lower.chains
        # Row numbers differ if only listed rows are sampled.
        same_rows = chains is not None and self.lower.local is self.local
        if leaves is not None and chains is not None and same_rows and chains.take_better(*leaves):
            self.table = chains.table()
        self.update_bound()
        self._prune(row_cutoffs)

    def relaxation_request(self, row_cutoffs: NDArray[Any] | None) -> RelaxationRequest:
        """Return the request for a semidefinite relaxation of the rows that can still matter."""
        return self.upper.relaxation_request(self.pruning.open_rows, row_cutoffs)

    def take_relaxation(self, row_cutoffs: NDArray[Any] | None) -> None:
        """Take the bounds that a semidefinite relaxation has lowered."""
        self.update_bound()
        if row_cutoffs is not None:
            self._prune(row_cutoffs)

    def finish(self, best: NDArray[np.int64] | None, seconds: float) -> None:
        """End an improvement that took some seconds; list the rows that can still matter if they are few.

        Parameters
        ----------
        best : (n,) int64 or None
            Values of the best assignment.
        seconds
            Seconds that the improvement took.
        """
        self.last_seconds = seconds
        self.table = replace(self.table, seconds=self.table.seconds + seconds)
        if best is not None:
            self.pruning.list_rows(self.local, best)

    def _attained_utilities(self, row_cutoffs: NDArray[Any]) -> NDArray[Any]:
        """Return a lower bound on each row's utility, in the cutoffs' dtype; the cutoff itself for infeasible rows."""
        arithmetic, utility = self.context.arithmetic, self.rows(self.table.lower)
        infeasible = (utility < arithmetic.forbidden_below) | (utility == arithmetic.lowest)
        return np.where(infeasible, row_cutoffs, utility.astype(row_cutoffs.dtype))

    def _prune(self, row_cutoffs: NDArray[Any]) -> None:
        """Prune the rows whose upper bounds do not exceed their cutoffs."""
        assert self.table.upper is not None
        self.pruning.prune(self.rows(self.table.upper), row_cutoffs)

    def _closed(self) -> bool:
        """Return whether the lower and the upper table agree on every row that can still matter."""
        if not self.enumerated or self.table.upper is None:
            return False
        is_open = self.rows(self.table.lower) < self.rows(self.table.upper)
        return not (is_open if self.pruning.pruned is None else is_open & ~self.pruning.pruned).any()
