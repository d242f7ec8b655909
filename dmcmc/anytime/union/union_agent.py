"""The union of all agents in a run: one more agent without boundary variables, for the improvers of agents.

Its upper bound holds for the whole problem, and its only row is pruned when no better assignment than the incumbent
exists. The assignments that branch and bound reaches become incumbents. Its lower table is the incumbent, since the
local search samples the whole problem. Each rank that knows all factors has one, if a plan wants it
(:mod:`dmcmc.anytime.union.union_plan`); the ranks share the open nodes of its branch and bound
(:mod:`dmcmc.anytime.union.node_exchange`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dmcmc.anytime.improvers.protocol import TimeQuantum, TimeSlice
from dmcmc.anytime.scheduler.proposal import union_number
from dmcmc.anytime.union.leaves import Leaves
from dmcmc.anytime.union.node_exchange import PartReport
from dmcmc.anytime.union.union_plan import union_of
from dmcmc.inference.bounds.branch_and_bound.node_parcel import NodeParcel
from dmcmc.inference.bounds.branch_and_bound.row_search import SearchedPart
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.tighten import TighteningBudget, tighten
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import BOUND, BRANCH
from dmcmc.solving.agent.agent import Agent, AgentContext
from dmcmc.solving.agent.lower_table import LowerTable
from dmcmc.solving.agent.retained_agent import UNION_NAME, resume_bound, start_bound
from dmcmc.solving.planning.setup import Setup
from dmcmc.tuning import anytime as tuning


class UnionAgent:
    """The union of all agents, bounded by a provider.

    Parameters
    ----------
    setup : Setup
        The plan.
    provider : str
        Name of the bound provider.
    utility : callable
        Returns the encoded utility of the best feasible assignment that this rank knows; None if there is none.
    seconds : float
        Time for the first bound.
    rank : int
        This rank. Rank 0 opens the search, the others receive nodes.
    shared : bool
        Whether several ranks share the open nodes.

    Attributes
    ----------
    agent : Agent
        The union as an agent.
    bounded_by, searched_by : str
        Improvers that its bounds and its assignments are attributed to.
    number : int
        Its number among the agents of this rank, see ``union_number``.
    """

    bounded_by, searched_by = BOUND, BRANCH

    def __init__(
        self,
        setup: Setup,
        provider: str,
        utility: Callable[[], Number | None],
        seconds: float,
        rank: int = 0,
        shared: bool = False,
    ) -> None:
        self._utility, self._arithmetic, self._n_addends = utility, setup.arithmetic, len(setup.problem.factors)
        local, self._leaves = union_of(setup), Leaves(setup.arithmetic)
        context = AgentContext(setup.sampling_settings(), setup.config.budget.gap)
        self.number = union_number(rank)
        self.agent = Agent(context, local, self._leaves.table(), LowerTable(local, self._leaves))
        if not resume_bound(self.agent, provider, setup.retained_bounds, UNION_NAME):
            start_bound(self.agent, provider, setup.retained_bounds, UNION_NAME)
        upper = self.agent.upper
        upper.search_stalled = False  # one row: a search is never dropped for a relaxation, which would start anew
        if shared:
            upper.searched_part = SearchedPart.RECEIVED if rank else SearchedPart.SHARED
            upper.search_awaited = rank == 0
        budget = TighteningBudget(seconds * setup.backend.threads, [seconds])
        (spent,) = tighten([self.agent.bound_request(None)], setup.backend, budget)
        self.agent.update_bound(spent)

    @property
    def gap(self) -> float | None:
        """The union's bound less the incumbent's utility; 0 if no better assignment exists, None without incumbent."""
        utility, bound = self._utility(), self.bound
        if self._arithmetic.is_lowest(bound):
            return 0.0
        return None if utility is None else max(0.0, float(bound - utility))

    @property
    def bound(self) -> Number:
        """The encoded upper bound of the whole problem's utility; −∞ if no better assignment exists."""
        upper, open_rows = self.agent.table.upper, self.agent.pruning.open_rows
        assert upper is not None, "the bound has been started"
        rows = self.agent.rows(upper) if open_rows is None else self.agent.rows(upper)[open_rows]
        bound: Number = rows.max(initial=self._arithmetic.lowest).item()
        return bound

    def added_to(self, time_slice: TimeSlice) -> TimeSlice:
        """Return a time slice in which the union also has a quantum.

        The union's cutoff is the incumbent's utility, less the rounding error of the sums involved.
        """
        cutoff = self._utility()
        if cutoff is not None:
            cutoff -= 4 * self._arithmetic.rounding(self._n_addends)
        self._leaves.utility = cutoff
        self.agent.table = replace(self.agent.table, lower=self._leaves.lower())
        quantum = TimeQuantum(self.agent, np.zeros(1, dtype=self._arithmetic.dtype), cutoff)

        def gap_of(agent: Agent) -> float | None:
            return self.gap if agent is self.agent else time_slice.gap_of(agent)

        return replace(time_slice, quanta={**time_slice.quanta, self.number: quantum}, gap_of=gap_of)

    def report(self) -> PartReport:
        """Return what all ranks need to know of this rank's part; the assignments reached are handed over with it."""
        search, scale = self.agent.upper.boundary_search, self._dual.layout.scale
        part: Number | None = None
        if search is not None:
            _, bounds = search.part_bounds()
            part = scale.decode(int(bounds[0])) if bounds.size else None
        best = None if search is None else search.best_excesses(tuning.SHARED_NODES)
        return PartReport(scale.decode(int(self._dual.bounds[0])), part, best, self._leaves.pop_all())

    def give(self, count: int) -> NodeParcel:
        """Remove and return about ``count`` of the best open nodes of this rank."""
        assert self.agent.upper.boundary_search is not None, "only a search has nodes to give"
        return self.agent.upper.boundary_search.give(count)

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of another rank."""
        assert self.agent.upper.boundary_search is not None, "nodes are only given to ranks whose search has begun"
        self.agent.upper.boundary_search.take(parcel)

    def lower(self, bound: Number, awaited: bool) -> None:
        """Lower the bound to one that all ranks have proven together.

        Parameters
        ----------
        bound : int or float
            Upper bound, utility; −inf if no better assignment exists.
        awaited : bool
            Whether other ranks wait for nodes.
        """
        self._dual.lower([0], [bound])
        self.agent.upper.search_awaited = awaited
        self.agent.update_bound()

    @property
    def _dual(self) -> DualState:
        """The dual ascent of the union."""
        dual = self.agent.upper.dual
        assert dual is not None, "the union is bounded by a dual ascent"
        return dual
