"""The whole problem as one subproblem, bounded and searched like one more agent, without boundary variables.

Bound providers and branch and bound, which see one agent's factors at a time, see all factors here. A plan wants it
where the agents' tables alone prove little. Its upper bound holds for the whole problem, and its only row is pruned
when no better assignment than the incumbent exists. The assignments that branch and bound reaches become incumbents.
Its lower table is the incumbent, since the local search samples the whole problem.

Each rank that knows all factors bounds the whole problem itself, and holds a part of the open nodes. After its slice,
every rank reports the bound of its part and of the whole problem, and its best nodes. Rank 0 decides which nodes move,
so that all ranks hold as many of the best ones. The bound of the whole problem is the largest bound of a part, or the
smallest one of the whole.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.improvers.protocol import TimeQuantum, TimeSlice
from dmcmc.anytime.scheduler.proposal import MeasuredGain, union_number
from dmcmc.inference.bounds.branch_and_bound.cuda.check_bounds import WrongBound, check_dual_bounds
from dmcmc.inference.bounds.branch_and_bound.open_nodes import NodeMove, NodeParcel, planned_moves
from dmcmc.inference.bounds.branch_and_bound.row_search import SearchedPart
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import TighteningBudget, tighten
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL
from dmcmc.mpi.world import World
from dmcmc.results.result import BOUND, BRANCH
from dmcmc.samplers.auto.choose import count_agent_work, provider_of
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.agent.agent import Agent, AgentContext
from dmcmc.solving.agent.bounds import largest_sum
from dmcmc.solving.agent.checkpoint import UNION_NAME, resume_bound, start_bound
from dmcmc.solving.agent.tables import LowerTable
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.local_tables import initial_seconds
from dmcmc.solving.planning.combination_plan import may_split_buckets
from dmcmc.tuning import run as tuning

if TYPE_CHECKING:
    from dmcmc.anytime.local_search import WholeSearches
    from dmcmc.solving.planning.plan import Setup

_LOG = logging.getLogger(__name__)


class Leaves:
    """Takes the assignments that a search reaches, in place of an agent's chains; a ``Resumable`` without sampling.

    Attributes
    ----------
    utility : int, float or None
        Encoded utility of the incumbent: the lower table.
    """

    exhausted = True

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self.utility: Number | None = None
        self._found: list[NDArray[np.int64]] = []

    @property
    def states(self) -> NDArray[Any]:
        """No states are kept."""
        return np.zeros((1, 0), dtype=np.int64)

    def lower(self) -> tuple[EncodedTable, ...]:
        """Return the lower table."""
        lowest = self._arithmetic.lowest
        return (EncodedTable((), np.array(lowest if self.utility is None else self.utility, self._arithmetic.dtype)),)

    def table(self) -> SampledTable:
        """Return a table without a bound."""
        return SampledTable(self.lower(), None, lambda values: {}, "union", 0.0)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Do nothing: the local search samples the whole problem."""

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Keep assignments for :meth:`pop_all`; return False, since the table stays as it is."""
        self._found += list(np.asarray(states, dtype=np.int64))
        return False

    def pop_all(self) -> list[NDArray[np.int64]]:
        """Return and remove the assignments."""
        found, self._found = self._found, []
        return found


class PartReport(NamedTuple):
    """The report of one rank's part of the search to all ranks.

    Attributes
    ----------
    bound : int or float
        Upper bound on the utility of the whole problem that this rank has proven alone.
    part : int, float or None
        Upper bound on the utility in this rank's part; −inf if that has no better assignment, None if this rank has
        not opened a search.
    best : (k,) int64 or None
        Excesses of its best open nodes, descending; None if it takes no nodes.
    leaves : list of (n,) int64
        Complete assignments that its search has reached.
    """

    bound: Number
    part: Number | None
    best: Ints | None
    leaves: list[NDArray[np.int64]]


class ExchangeDecision(NamedTuple):
    """The decision of rank 0 after all reports.

    Attributes
    ----------
    bound : int or float
        Upper bound on the utility of the whole problem.
    moves : list of NodeMove
        Nodes that change ranks.
    awaited : bool
        Whether a rank has too few nodes, so that the next exchange has to come soon.
    """

    bound: Number
    moves: list[NodeMove]
    awaited: bool


class NodeHolder(Protocol):
    """A part of a search: ``WholeProblemAgent`` in a run."""

    def report(self) -> PartReport:
        """Return the report of this part."""
        ...

    def give(self, count: int) -> NodeParcel:
        """Remove and return some of the best open nodes."""
        ...

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of another part."""
        ...

    def lower(self, bound: Number, awaited: bool) -> None:
        """Take the bound that all parts have proven together."""
        ...


def decide(reports: Sequence[PartReport | None]) -> ExchangeDecision | None:
    """Return rank 0's decision; None if rank 0 has no part.

    Parameters
    ----------
    reports : sequence of PartReport or None
        One per rank; None for a rank without a part.
    """
    present = [report for report in reports if report is not None]
    if not reports or reports[0] is None:
        return None
    bound = min(report.bound for report in present)
    if reports[0].part is not None:  # every node is in a part
        bound = min(bound, max(report.part for report in present if report.part is not None))
    best = [None if report is None else report.best for report in reports]
    moves = planned_moves(best, tuning.SHARED_NODES)
    received = {move.target for move in moves}
    awaited = any(
        part is not None and not part.size and rank not in received for rank, part in enumerate(best) if rank
    ) or (len(present) > 1 and reports[0].part is None)
    return ExchangeDecision(bound, moves, awaited)


def exchange_nodes(world: World, holder: NodeHolder | None) -> list[NDArray[np.int64]]:
    """Share nodes and bounds among all ranks; a collective call. Return all assignments found (rank 0).

    Parameters
    ----------
    world : World
        The ranks.
    holder : NodeHolder or None
        This rank's part; None if it has none yet.
    """
    reports = world.gather(world.on_all_ranks(lambda: None if holder is None else holder.report()), "nodes")
    decision = world.on_first_rank(lambda: decide(reports or []))
    if decision is None:
        return []

    def give() -> dict[int, NodeParcel]:
        own = [move for move in decision.moves if move.source == world.rank]
        return {} if holder is None else {move.target: holder.give(move.nodes) for move in own}

    given = world.on_all_ranks(give)
    parcels = world.allgather(given, "nodes") if decision.moves else [given]
    if holder is not None:
        for parcel_by_rank in parcels:
            if world.rank in parcel_by_rank:
                holder.take(parcel_by_rank[world.rank])
        holder.lower(decision.bound, decision.awaited)
    return [values for report in reports or [] if report is not None for values in report.leaves]


# Bytes per entry of a pairwise table: the entry and two copies for nodes and rows, four bytes each.
_BYTES_PER_ENTRY = 12


def whole_problem_of(setup: "Setup") -> LocalProblem:
    """Return the whole problem as one agent's, on a rank that knows all factors."""

    def divided() -> LocalProblem:
        problem = setup.divided.problem
        one_agent = replace(problem, agents=("all agents",), owner=np.zeros(problem.n_variables, dtype=np.int64))
        return replace(divide(one_agent).locals[0], agent=union_number(0))

    return setup.facts.get_or_compute("union", divided)


def whole_problem_provider(setup: "Setup") -> str | None:
    """Return the bound provider of the whole problem; None if it is not bounded.

    It is bounded if there is a time budget and several agents, methods are chosen automatically, the combination of the
    agents' tables splits buckets, and the whole problem's tables fit the memory. Rank 0, which has to know all factors,
    decides for all ranks.
    """
    return setup.facts.get_or_compute("whole problem provider", lambda: _provider(setup))


def _provider(setup: "Setup") -> str | None:
    """Choose the bound provider of the whole problem."""
    config, agents = setup.divided.config, setup.divided.problem.n_agents
    automatic = config.local.method == "auto" and config.local.bound == "auto" and config.combine.method == "auto"
    if not (setup.divided.timed and automatic and agents > 1 and may_split_buckets(setup)) or setup.divided.scattered:
        return None
    memory = int(2 * sampler_tuning.MEMORY_SHARE * setup.limits.retained_memory * agents)
    if _BYTES_PER_ENTRY * sum([factor.table.size for factor in setup.divided.problem.factors]) > memory:
        return None
    counts = count_agent_work(whole_problem_of(setup), 0, 1, 1, memory, setup.divided.arithmetic, planned=False)
    return provider_of(counts, replace(setup.limits, retained_memory=memory), setup.rates)


class WholeProblemAgent:
    """The whole problem, bounded by a provider.

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
        The whole problem as an agent.
    bounded_by, searched_by : str
        Improvers that its bounds and its assignments are attributed to.
    number : int
        Its number among the agents of this rank, see ``union_number``.
    """

    bounded_by, searched_by = BOUND, BRANCH

    def __init__(
        self,
        setup: "Setup",
        provider: str,
        utility: Callable[[], Number | None],
        seconds: float,
        rank: int = 0,
        shared: bool = False,
    ) -> None:
        self._utility, self._arithmetic, self._n_addends = (
            utility,
            setup.divided.arithmetic,
            len(setup.divided.problem.factors),
        )
        local, self._leaves = whole_problem_of(setup), Leaves(setup.divided.arithmetic)
        context = AgentContext(setup.sampling_settings(), setup.divided.config.budget.gap)
        self.number = union_number(rank)
        self.agent = Agent(context, local, self._leaves.table(), LowerTable(local, self._leaves))
        if not resume_bound(self.agent, provider, setup.divided.retained_bounds, UNION_NAME):
            start_bound(self.agent, provider, setup.divided.retained_bounds, UNION_NAME)
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
        """Its bound less the incumbent's utility; 0 if no better assignment exists, None without an incumbent."""
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
        """Return a time slice in which the whole problem also has a quantum.

        The whole problem's cutoff is the incumbent's utility, less the rounding error of the sums involved.
        """
        cutoff = self._utility()
        if cutoff is not None:
            cutoff -= 4 * self._arithmetic.rounding(self._n_addends)
        self._leaves.utility = cutoff
        self.agent.table = replace(self.agent.table, lower=self._leaves.lower())
        quantum = TimeQuantum(self.agent, np.zeros(1, dtype=self._arithmetic.dtype), cutoff)

        def agent_gap(agent: Agent) -> float | None:
            return self.gap if agent is self.agent else time_slice.gap_of(agent)

        return replace(time_slice, quanta={**time_slice.quanta, self.number: quantum}, gap_of=agent_gap)

    def report(self) -> PartReport:
        """Return what all ranks need to know of this rank's part; the assignments reached are handed over with it."""
        search, scale = self.agent.upper.boundary_search, self.dual.layout.scale
        part: Number | None = None
        if search is not None:
            _, bounds = search.part_bounds()
            part = scale.decode(int(bounds[0])) if bounds.size else None
        best = None if search is None else search.best_excesses(tuning.SHARED_NODES)
        return PartReport(scale.decode(int(self.dual.bounds[0])), part, best, self._leaves.pop_all())

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
        self.dual.lower([0], [bound])
        self.agent.upper.search_awaited = awaited
        self.agent.update_bound()

    @property
    def largest_sum(self) -> Number:
        """The sum of the factors' largest entries, an upper bound that rests on nothing else."""
        return largest_sum(self.agent.local.factors, self._arithmetic)

    @property
    def is_contradicted(self) -> bool:
        """Whether the dual bound is below the utility of the incumbent, which only an error of the program explains."""
        utility, scale = self._utility(), self.dual.layout.scale
        return utility is not None and int(self.dual.bounds[0]) + scale.threshold_error < scale.encode_up(utility)

    def error(self, best: NDArray[np.int64] | None, until: float) -> str | None:
        """Return what is wrong with the bound; None if nothing is known.

        Parameters
        ----------
        best : (n,) int64 or None
            Values of the incumbent; None if it is not feasible, or not known on this rank.
        until
            Time (``time.perf_counter``) at which the check of the open nodes ends.
        """
        utility = self._utility()
        known = None if best is None or utility is None else (best[list(self.agent.local.hidden)], utility)
        try:
            check_dual_bounds(self.dual, self.agent.upper.boundary_search, until, known)
        except WrongBound as error:
            return str(error)
        return None

    @property
    def dual(self) -> DualState:
        """The dual ascent of the whole problem."""
        dual = self.agent.upper.dual
        assert dual is not None, "the whole problem is bounded by a dual ascent"
        return dual


class WholeProblemPart:
    """The part of one rank in the whole problem, once its bound is started.

    Parameters
    ----------
    world
        The ranks.
    incumbent
        The best assignment and bound, on rank 0.
    searches
        The searches over the whole assignment.
    provider
        Bound provider of the whole problem; None if it is not bounded on this rank.

    Attributes
    ----------
    provider : str or None
        The parameter.
    agent : WholeProblemAgent or None
        The whole problem as an agent; None before its bound is started.
    """

    def __init__(self, world: World, incumbent: Incumbent, searches: "WholeSearches", provider: str | None) -> None:
        self._world, self._incumbent, self._searches, self.provider = world, incumbent, searches, provider
        self.agent: WholeProblemAgent | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the whole problem is to be bounded, and has no bound yet."""
        return self.agent is None and self.provider is not None

    def start(self, setup: "Setup") -> None:
        """Give the whole problem its first bound on this rank."""
        assert self.provider is not None, "a plan wants the whole problem"
        is_first, incumbent, searches = self._world.rank == 0, self._incumbent, self._searches

        def utility() -> Number | None:
            return incumbent.utility if is_first else searches.feasible_utility

        seconds = sampler_tuning.UNTRIED_SHARE * initial_seconds(setup)  # as long as the agents' first bounds may take
        shared = self._world.size > 1
        self.agent = WholeProblemAgent(setup, self.provider, utility, seconds, self._world.rank, shared)
        if is_first:
            self.record(self.agent, (), (self.agent.bounded_by,))

    def anew(self) -> "WholeProblemPart":
        """Return a part without a bound, for another plan."""
        return WholeProblemPart(self._world, self._incumbent, self._searches, self.provider)

    def exchange(self, improvers: Sequence[str]) -> list[MeasuredGain]:
        """Share the nodes of the search among ranks, and record the bound and the assignments on rank 0.

        Parameters
        ----------
        improvers
            Names of the improvers that have worked on the whole problem.

        Returns
        -------
        list of MeasuredGain
            The gains of the parts of other ranks.
        """
        whole_problem = self.agent
        before = None if whole_problem is None else whole_problem.gap
        leaves = exchange_nodes(self._world, whole_problem)
        if whole_problem is None or self._world.rank > 0:
            return []
        self.record(whole_problem, leaves, improvers)
        after = whole_problem.gap
        if before is None or after is None or after >= before:
            return []
        return [MeasuredGain(whole_problem.searched_by, 0.0, closed_gap=before - after)]

    def record(
        self, whole_problem: WholeProblemAgent, leaves: Sequence[NDArray[np.int64]], improvers: Sequence[str]
    ) -> None:
        """Record the assignments that a search has reached, and the bound that improvers have proven (rank 0)."""
        self._searches.record(leaves, whole_problem.searched_by)
        if whole_problem.is_contradicted:
            self._give_up("the bound of the whole problem is below the utility of an assignment")
            return
        self._incumbent.update_bound(whole_problem.bound, ", ".join(improvers))

    def check(self, world: World) -> bool:
        """Check without kernels what the bound rests on, on the CPU; a wrong bound is replaced by a safe one.

        Parameters
        ----------
        world
            The ranks that take part; all of them call this method.

        Returns
        -------
        bool
            Whether the bound is right, as far as the check shows.
        """
        wrong = [text for text in world.allgather(world.on_all_ranks(self._error)) if text]
        if wrong:
            self._give_up(wrong[0])
        return not wrong

    def _error(self) -> str | None:
        """Return what is wrong with the bound of this rank; None if nothing is known."""
        if self.agent is None or self.agent.dual.remote is not None:  # a GPU's bounds have a check of their own
            return None
        feasible = self._world.rank == 0 and self._incumbent.feasible
        seconds = min(
            MAX_CHECK_INTERVAL, sampler_tuning.UNNOTICED_SHARE * (time.perf_counter() - self._incumbent.start)
        )
        return self.agent.error(self._incumbent.values if feasible else None, time.perf_counter() + seconds)

    def _give_up(self, error: str) -> None:
        """Report an error of the program, and go on with the sum of the factors' largest entries as the bound."""
        agent, self.agent, self.provider = self.agent, None, None
        if agent is not None and self._world.rank == 0:
            _LOG.error(f"dmcmc: error of the program: {error}; the sum of the largest entries is the bound")
            self._incumbent.forget_bound()
            self._incumbent.update_bound(agent.largest_sum, agent.bounded_by)
