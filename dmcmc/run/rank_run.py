"""One rank's part of a run: its agents, messages and clocks, and the decisions that all ranks make together.

``dmcmc.run.solve`` and the private solver drive it: :meth:`RankRun.first_tables`, then in turn
:meth:`RankRun.combine` (UTIL and VALUE messages), :meth:`RankRun.agree` (rank 0 decides) and
:meth:`RankRun.improve`, until ``agree`` returns a directive to stop. All ranks call these methods at the same time,
because they exchange messages inside.

A *combination* or *cycle* sends UTIL messages up the agents' pseudo-tree and VALUE messages down. A *row* is one
assignment of an agent's boundary variables (its interface). *Encoded* numbers are utilities in the number type of
the tables.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.interface_rows import Rows
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.size_statistics import total_statistics
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import Clock, latest
from dmcmc.mpi.team import MpiTeam
from dmcmc.mpi.world import World
from dmcmc.results.result import AgentMetrics, Result
from dmcmc.run.agent.agent import Agent
from dmcmc.run.agent.uncombined_bound import clamped_sum, largest_sums, problem_bound, uncombined_bounds
from dmcmc.run.agent_steps import Sides, gather_sides
from dmcmc.run.combination_limits import CombinationHistory, FinishedCombination, may_end_with_incumbent
from dmcmc.run.improvers.protocol import RankState, TimeSlice
from dmcmc.run.improvers.recombine import TABLE_GROWTH_FACTOR
from dmcmc.run.improvers.registry import GLOBAL_IMPROVERS, proposals_of
from dmcmc.run.incumbent import title_of, total_of
from dmcmc.run.initial_tables import first_tables, initial_seconds
from dmcmc.run.local_search import MIN_RELATIVE_GAIN, IncumbentSearch
from dmcmc.run.metrics import AgentWork, RankOutcome, checks_of, early_result, metrics_of, result_of
from dmcmc.run.monitoring.progress import ProgressReporter
from dmcmc.run.planning.combination_plan import slicing_seconds, will_prove
from dmcmc.run.planning.setup import Setup
from dmcmc.run.run_improvers import CombinationContext, gap_of, improve_agents, time_slice_of
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.improver_statistics import improvers_of_assignment, shares_of_bound_gain
from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    EXTERNAL_SEARCH,
    GPU_CHAINS,
    LOCAL_SEARCH,
    SAMPLING,
    SEMIDEFINITE,
    UNION_BOUND,
    MeasuredGain,
    Proposal,
    ranks_of_work,
)
from dmcmc.run.scheduler.rank_report import RankReport
from dmcmc.run.scheduler.scheduler import Scheduler
from dmcmc.run.union.node_exchange import exchange_nodes
from dmcmc.run.union.union_agent import UnionAgent
from dmcmc.run.util_value_cycle import Cycle, run_cycle, run_outside
from dmcmc.samplers import improve_in_team
from dmcmc.samplers.auto.choose import FIRST_SHARE
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.contract.protocol import Resumable

# Table size of the first combination, relative to what the time allows, if the union of all agents is bounded, too: a
# combination that takes a few percent of the time gives cutoffs to the union, which then gains more.
_FIRST_SIZE_WITH_UNION = 1 / 32
_POLL_SECONDS = 0.05  # seconds between two polls of the external search engine


class RankRun:
    """A run as one rank sees it.

    Parameters
    ----------
    setup
        The plan, which all ranks share; its backend has the deadline.
    world
        The ranks.
    search
        Local search over the whole assignment, which has an incumbent.
    progress
        Receives the stages of the run.
    explain
        Called with the setup if it has changed.
    team
        The ranks that work on the rows of one agent, from ``team_of``; this rank alone if None.

    Attributes
    ----------
    is_ready : callable
        Returns whether an improver, given by its name, has its kernels on this rank.
    mine : list of int
        This rank's agents.
    agents : dict of int to Agent
        The same agents with their tables, once they are made.
    sides : Sides
        How the agents' lower and upper tables are indexed.
    mailbox : Mailbox
        Sends and receives messages between agents.
    clocks : dict of int to Clock
        Per agent of this rank: its ready time if every agent had its own machine (simulated time).
    incumbent : Incumbent
        Best assignment and bound so far, on rank 0.
    union : UnionAgent or None
        This rank's part of the union of all agents, if that is bounded and searched.
    goal_reached : bool
        Whether the first tables already reach the goal of the run.
    cycles : int
        Number of combinations begun.
    """

    sides: Sides
    _helped: Resumable | None  # chains of another rank's agent
    # largest total utility of each agent's factors, and of all factors between agents
    _largest_utilities: tuple[dict[int, Number], Number]

    def __init__(
        self,
        setup: Setup,
        world: World,
        search: IncumbentSearch,
        progress: ProgressReporter,
        explain: Callable[[Setup], None],
        team: MpiTeam | None = None,
    ) -> None:
        self.setup, self.world, self.search = setup, world, search
        self.is_ready: Callable[[str], bool] = lambda improver: True
        self.team, self._helped = team or MpiTeam(world, None, True), None
        self.progress, self.explain = progress, explain
        self.mine = setup.agents_of_rank(world.rank)
        self.mailbox = Mailbox(world, setup.owner)
        self.incumbent = search.incumbent
        self.incumbent.setup, self.incumbent.scheduler = setup, Scheduler(ranks_of_work(setup.owner, world.size))
        if setup.config.local.method == "exact" and (sampled := setup.methods.count(SAMPLER)):
            subject = "1 agent is" if sampled == 1 else f"{sampled} agents are"
            self.incumbent.note = f"{subject} sampled: local.method: exact does not fit budget.memory there"
        self.agents: dict[int, Agent] = {}
        self._union_provider: str | None = None
        self.union: UnionAgent | None = None
        self.clocks = dict.fromkeys(self.mine, Clock())
        self._checks: dict[int, int] = {}
        self.cycles, self._rows_pruned = 0, True  # pruning has not been tried yet, so it may help
        self.goal_reached = False
        self._tables_changed, self._measured_gains = True, list[MeasuredGain]()
        self._combining = CombinationHistory()

    def first_tables(self) -> None:
        """Make each agent's first table, after some search; agents whose elimination is given up are sampled."""
        self.progress.stage("searching")
        self.search.before_tables(self.setup)
        self.search.begin_on_gpu(self.setup)
        self.progress.stage("local tables", len(self.mine))
        plan = self.setup
        if self._stops_at_gap:
            self._largest_utilities = self.world.on_first_rank(
                partial(largest_sums, self.setup.division, self.setup.arithmetic)
            )
        before, start_time, searching = self.incumbent.utility, time.perf_counter(), not will_prove(plan)
        background_search = self.search.in_background(
            searching, MIN_RELATIVE_GAIN, brief_seconds=self.search.brief_search_seconds(plan)
        )
        with background_search, self.search.overlapped.overlapping():
            self.setup, self.agents, self.sides, self._helped = first_tables(
                plan,
                self.team,
                self.world,
                self.search.best,
                self.progress.advance,
                self._gap_is_small_enough,
                self._goal_reached,
            )
        self.incumbent.setup = self.setup
        if self.setup is not plan:
            self.explain(self.setup)
        self._checks = {number: checks_of(self.setup, number, agent.table) for number, agent in self.agents.items()}
        self.clocks = {a: Clock(agent.table.seconds, self._checks[a]) for a, agent in self.agents.items()}
        self._measured_gains += [gain for agent in self.agents.values() for gain in agent.gains]
        self._set_trace_labels([gain.improver for gain in self._measured_gains])
        if self.setup.timed and searching and self.world.rank == 0:
            after = self.incumbent.utility
            utility_gain = 0.0 if before is None or after is None else float(after - before)
            self._measured_gains.append(
                MeasuredGain(LOCAL_SEARCH, time.perf_counter() - start_time, objective_gain=utility_gain)
            )
        if self.search.engine.has_ended_run():
            self.goal_reached = True
        elif self.setup.config.budget.gap > 0:
            self._check_gap()

    def bound_union(self, provider: str | None) -> None:
        """Bound the union of all agents by a provider after the first combination; None if there is no union.

        The first combination is then made with smaller tables, so that it comes soon; it is enlarged if that gains.
        """
        self._union_provider = provider
        if provider is not None:
            self._combining.size_factor = _FIRST_SIZE_WITH_UNION

    def _check_gap(self) -> None:
        """Check whether the sum of the tables' bounds already meets the requested gap."""
        parts = self.world.gather(self.world.on_all_ranks(self._uncombined_bounds))

        def reached() -> bool:
            if self.setup.config.local.bound != "none":
                self.incumbent.update_bound(problem_bound(self.setup.division, self.setup.arithmetic, parts or []))
            return self.incumbent.reached

        self.goal_reached = self.world.on_first_rank(reached)

    def _gap_is_small_enough(self, bounds: Mapping[int, Number]) -> bool:
        """Return whether bounds of some agents, with the largest entries of all others, meet the requested gap.

        Parameters
        ----------
        bounds
            Encoded upper bounds of some agents' utilities, by agent.
        """
        if not self._stops_at_gap or self.search.quality.negated_violation < 0:
            return False
        target, worth = self.setup.config.budget.gap, self.search.quality
        largest_by_agent, largest_crossing = self._largest_utilities
        bound = clamped_sum([*({**largest_by_agent, **bounds}).values(), largest_crossing], self.setup.arithmetic)
        difference = float(bound) - float(worth.utility)
        return difference <= target * max(1.0, abs(float(worth.objective)))

    def _goal_reached(self) -> bool:
        """Return whether the goal is reached, for instance by a proof of the search engine (rank 0)."""
        return self.incumbent.reached

    @property
    def _stops_at_gap(self) -> bool:
        """Whether first tables stop early at the requested gap.

        They do not in runs without time budget, whose work is the same on any number of ranks.
        """
        return self.setup.timed and self.setup.config.budget.gap > 0

    def combine(self) -> Cycle | ResourceError:
        """Send UTIL messages up and VALUE messages down; return the cycle, or the error if it did not finish or fit.

        If no table has changed since the last combination, return its result again. If a combination with larger tables
        fails, return to the last one.

        Raises
        ------
        ResourceError
            If the first combination fails and the run cannot end with the incumbent, or other ranks did not fail.
        """
        history = self._combining
        if history.last is not None and not self._tables_changed and history.enlarged_seconds is None:
            return history.last.cycle
        self.cycles += 1
        slices = "" if self.setup.slicing is None else f", in slices: about {slicing_seconds(self.setup):.2g} s"
        self.progress.stage(f"combining{slices}")
        tables = self.world.on_all_ranks(lambda: {number: agent.exported() for number, agent in self.agents.items()})
        start_time = time.perf_counter()
        stop = (
            history.deadline(self.setup, start_time, self.incumbent.combination_seconds)
            if self.setup.timed
            else NO_DEADLINE
        )
        try:
            with self.search.in_background(not will_prove(self.setup)):
                cycle = run_cycle(self.setup, self.mailbox, self.clocks, tables, self.sides, stop, history.size_factor)
        except ResourceError as error:
            if not self.world.is_agreed(error):
                raise
            if history.enlarged_seconds is not None and history.last is not None:
                self._measured_gains.append(history.undo_enlargement(time.perf_counter() - start_time))
                return history.last.cycle
            if history.last is None and not may_end_with_incumbent(self.setup, error):
                raise
            return error
        self.incumbent.combination_seconds = time.perf_counter() - start_time
        self._measured_gains += history.record(FinishedCombination(tables, cycle), self.incumbent.combination_seconds)
        return cycle

    def agree(self, cycle: Cycle | ResourceError) -> Directive:
        """Record the results of the cycle on rank 0, and return its directive for the next cycle on all ranks."""
        if isinstance(cycle, ResourceError):
            directive = self.incumbent.give_up(cycle)
            if self.setup.timed and not isinstance(cycle, OutOfTime):
                self.search.use_remaining_time()
            return directive
        self._record_assignment(cycle)
        reports = self.world.gather(self.world.on_all_ranks(partial(self._report, cycle)))
        directive = self.world.on_first_rank(lambda: self._decide(reports or []))
        if (
            directive.stop
            and not self.search.decodes_only
            and self.world.on_first_rank(lambda: self.incumbent.timed_out)
        ):
            self.search.use_remaining_time()  # the time reserved for another combination is free
            self.incumbent.timed_out = True
        return directive

    def _report(self, cycle: Cycle) -> RankReport:
        """Return what rank 0 needs to know of this rank's work since its last report."""
        self._measured_gains += self.search.engine.take_gains()
        gpu_search = self.search.gpu_search
        self._measured_gains += [] if gpu_search is None else gpu_search.take_gains()
        report = RankReport(
            cycle.roots,
            self._proposals(cycle),
            tuple(self._measured_gains),
            any(z_of_upper is not None for _, z_of_upper in cycle.z.values()),
            self._rows_pruned,
            self.setup.backend.stop.is_cancelled,
            tuple(agent.filtered.sizes for agent in self.agents.values() if agent.filtered and agent.filtered.sizes),
        )
        self._measured_gains.clear()
        return report

    def _record_assignment(self, cycle: Cycle) -> None:
        """Gather the values that the cycle has chosen for all variables, and record the assignment on rank 0."""
        own_values = cycle.values
        own_pairs = np.array([[*own_values], [*own_values.values()]], dtype=np.int64).T
        parts = self.world.gather(own_pairs, "values")
        values: NDArray[np.int64] | None = None
        if parts is not None:
            values = np.zeros(self.setup.problem.n_variables, dtype=np.int64)
            for variables, chosen in (part.T for part in parts):
                values[variables] = chosen
        if values is not None:
            self.incumbent.record_tables(values)
        self.search.make_1_optimal(values)

    def _decide(self, reports: list[RankReport]) -> Directive:
        """Record what all ranks have proven, and return the directive for the next cycle (rank 0)."""
        bounds_of_roots: dict[int, Number | None] = {}
        for report in reports:
            bounds_of_roots |= report.roots
        roots = {agent: bounds_of_roots[agent] for agent in sorted(bounds_of_roots)}
        self.incumbent.filtered = total_statistics([sizes for report in reports for sizes in report.filtered_sizes])
        shares_of_gain = shares_of_bound_gain(gain for report in reports for gain in report.gains)
        self.incumbent.update_bound(total_of(roots, self.setup.arithmetic), parts=shares_of_gain)
        return self.incumbent.direct(reports)

    def _set_trace_labels(self, kinds: Sequence[str]) -> None:
        """Set the improver names of the next trace points, for a new assignment and for a new bound."""
        bound_kinds = [kind for kind in dict.fromkeys(kinds) if kind not in (SAMPLING, LOCAL_SEARCH)] or kinds
        self.incumbent.assignment_source = ", ".join(improvers_of_assignment(kinds)) or "prune"
        self.incumbent.bound_source = ", ".join(bound_kinds) or "prune"

    def _proposals(self, cycle: Cycle) -> tuple[Proposal, ...]:
        """Return the improvers' proposals for this rank; without a time budget, only the external search has one.

        The cost of a recombination is estimated as the last combination's seconds times the growth of the tables.
        """
        if not self.setup.timed:
            return proposals_of(
                RankState({}, {}, is_first_rank=False, external_search_active=self.search.engine.may_improve)
            )
        if self.union is None and self._takes_part_in_union and self.is_ready(UNION_BOUND):
            self._start_union()
        agents = dict(self.agents)
        gaps = {number: gap_of(self.setup, cycle.chosen, agent) for number, agent in agents.items()}
        if self.union is not None:
            agents[self.union.number], gaps[self.union.number] = self.union.agent, self.union.gap
        tables_split = any(z is not None for z_pair in cycle.z.values() for z in z_pair)
        may_enlarge = self._combining.may_enlarge(self.setup)
        recombination_seconds = (
            TABLE_GROWTH_FACTOR * self.incumbent.combination_seconds if tables_split and may_enlarge else None
        )
        return proposals_of(
            RankState(
                agents,
                gaps,
                self.world.rank == 0,
                recombination_seconds,
                self.search.engine.may_improve,
                self._gpu_search_active,
                self.is_ready,
            )
        )

    @property
    def _takes_part_in_union(self) -> bool:
        """Whether this rank bounds the union of all agents: not if it helps another rank with the rows of an agent."""
        return self._union_provider is not None and (self.world.rank == 0 or self.team.size == 1)

    def _start_union(self) -> None:
        """Give the union of all agents its first bound on this rank."""
        assert self._union_provider is not None, "a plan wants the union"
        is_first, size = self.world.rank == 0, self.world.size

        def utility() -> Number | None:
            return self.incumbent.utility if is_first else self.search.quality.feasible_utility

        seconds = FIRST_SHARE * initial_seconds(self.setup)  # as long as the agents' first bounds may take
        self.union = UnionAgent(self.setup, self._union_provider, utility, seconds, self.world.rank, size > 1)
        if is_first:
            self.incumbent.update_bound(self.union.bound, BOUND)

    def _exchange_union(self, improvers: Sequence[str]) -> None:
        """Share the nodes of the union's search among ranks, and record the bound and the assignments (rank 0)."""
        before = None if self.union is None else self.union.gap
        leaves = exchange_nodes(self.world, self.union)
        if self.union is None or self.world.rank > 0:
            return
        for values in leaves:
            self.search.record(values, by=BRANCH)
        after = self.union.gap
        if before is not None and after is not None and after < before:  # by other ranks' parts
            self._measured_gains.append(MeasuredGain(BRANCH, 0.0, closed_gap=before - after))
        self.incumbent.update_bound(self.union.bound, ", ".join(improvers))

    @property
    def _gpu_search_active(self) -> bool:
        """Whether a background search on this rank's GPU is still active."""
        return self.search.gpu_search is not None and self.search.gpu_search.running

    def improve(self, directive: Directive) -> None:
        """Run the improvers in their allocated time: first for this rank's agents, then for all ranks together.

        The external search and the GPU chains, which run in the background, are resumed or stopped first. Then the
        agents get their outside bounds (upper bounds on what all others can add to their rows). This needs a bound of
        every component, and a last cycle with one UTIL step per agent; it is left out if no table may change.
        """
        last = self._combining.last
        assert last is not None, "there has been no combination yet"
        self.progress.stage(title_of(self.incumbent, directive.improvers, self.setup.backend.stop.left))
        if directive.allocations_of(EXTERNAL_SEARCH):
            self.search.engine.resume()
        else:
            self.setup = self.incumbent.setup = self.search.engine.disengage(self.setup)
        if self.search.gpu_search is not None:
            self.search.gpu_search.allow(sum(allocation.seconds for allocation in directive.allocations_of(GPU_CHAINS)))
        cycle, outsides = last.cycle, dict[int, UtilMessage]()
        self._tables_changed = directive.changes_tables
        if directive.bounded and self._tables_changed and cycle.per_agent:
            with self.search.in_background():
                outsides, sent = run_outside(self.setup, self.mailbox, cycle, last.tables, self.sides.upper)
            self._combining.record_extra_messages(sent)
        context = CombinationContext(cycle.chosen, outsides, self.sides)
        slice = self.world.on_all_ranks(
            partial(
                time_slice_of,
                self.setup,
                self.agents,
                context,
                directive,
                self._search_on_all_ranks,
                self._combining.enlarge,
                self._wait_for_engine,
            )
        )
        if self.union is not None:
            slice = self.union.added_to(slice)
        if self._tables_changed or directive.works_on_union:
            pruned = self.world.on_all_ranks(partial(self.team.run, partial(self._improve_agents, slice, directive)))
        if self._tables_changed:
            self._rows_pruned = pruned
            self._gather_sides()
        if directive.works_on_union:
            self.world.run(partial(self._exchange_union, directive.improvers_of_union))
        if directive.allocations_of(BOUND):
            self.world.on_all_ranks(self._suggest_roundings)
        for kind in GLOBAL_IMPROVERS:
            if allocations := directive.allocations_of(kind.name):
                self.incumbent.assignment_source = kind.name
                kind.carry_out(slice, allocations)
        self._set_trace_labels([kind for kind in directive.improvers if kind not in (EXTERNAL_SEARCH, GPU_CHAINS)])
        self._measured_gains += slice.gains

    def _improve_agents(self, slice: TimeSlice, directive: Directive) -> bool:
        """Improve this rank's agents, or help with another rank's agent; return whether rows were pruned."""
        if self.team.rank > 0:
            self._helped = improve_in_team.help_on(self._helped, self.setup.backend, self.team)
            return False
        pruned = improve_agents(slice, directive)
        improve_in_team.end(self.team)
        return pruned

    def _suggest_roundings(self) -> None:
        """Suggest roundings of the dual bounds as start points to the search, for agents without boundary variables."""
        starts: dict[int, NDArray[np.int64]] = {}
        for agent in (*self.agents.values(), *(() if self.union is None else (self.union.agent,))):
            if not agent.local.interface and not agent.table.exact and self.is_ready(SEMIDEFINITE):
                hidden = list(agent.local.hidden)
                for number, values in enumerate(agent.upper.roundings(self.setup.config.seed + self.cycles)):
                    starts.setdefault(number, self.search.best.copy())[hidden] = values
        self.search.suggest([*starts.values()])

    def _search_on_all_ranks(self, seconds: float) -> float:
        """Search for some seconds on all ranks together; return the gain in utility (rank 0)."""
        before = self.incumbent.utility
        self._rows_pruned = self.search.improve(seconds, 0) or self._rows_pruned
        after = self.incumbent.utility
        return 0.0 if before is None or after is None else float(after - before)

    def _wait_for_engine(self, seconds: float) -> None:
        """Wait for the external search engine on all ranks, until it ends or the time is over."""
        engine, until = self.search.engine.process, time.perf_counter() + seconds
        while engine is not None and engine.on and not self.setup.backend.stop.over and time.perf_counter() < until:
            engine.wait(_POLL_SECONDS)
        if seconds > 0:
            self.world.wait()

    def _gather_sides(self) -> None:
        """Exchange between all ranks how the tables are indexed now, and advance the clocks of this rank's agents."""
        self.sides = gather_sides(self.setup, self.world, *self.world.on_all_ranks(self._listed_rows))
        for number, agent in self.agents.items():
            before, self._checks[number] = self._checks[number], checks_of(self.setup, number, agent.table)
            self.clocks[number] = self.clocks[number].after(agent.last_seconds, max(0, self._checks[number] - before))

    def _listed_rows(self) -> tuple[dict[int, Rows], dict[int, Rows]]:
        """Return the sampled rows, and the unpruned ones, of this rank's agents whose tables have only these rows."""
        lower, upper = self.sides.lower.rows, self.sides.upper.rows
        sampled = {
            number: lower[number]
            for number, agent in self.agents.items()
            if number in lower and number not in upper and agent.lower.local is not agent.local
        }
        unpruned = {
            number: agent.pruning.listed_values(agent.local)
            for number, agent in self.agents.items()
            if agent.pruning.listing is not None
        }
        return sampled, unpruned

    def give_up(self, error: ResourceError) -> None:
        """End with the incumbent because time or memory ran out; if it was memory, search until the deadline.

        Raises
        ------
        ResourceError
            The error itself, if other ranks have not raised it: they would wait for this rank.
        """
        if not self.world.is_agreed(error):
            raise error
        self.incumbent.give_up(error)
        if self.setup.timed and isinstance(error, OutOfMemory):
            with suppress(OutOfMemory):
                self.search.use_remaining_time()

    def result(self) -> Result | None:
        """Return the result, put together from all ranks' parts; None except on rank 0."""
        metrics = self.agents_metrics()
        bounds_by_agent = dict[int, Number]()
        bound_is_known = self.world.size == 1 and self.incumbent.bounded
        if self.setup.config.local.bound != "none" and not bound_is_known:
            bounds_by_agent = self.world.on_all_ranks(self._uncombined_bounds)
        shares = self.world.gather(
            RankOutcome(
                metrics, latest(self.clocks.values()), is_gpu_in_use(), bounds_by_agent, self.world.message_counts()
            )
        )
        if shares is None:
            return None
        if not self.incumbent.bounded:
            self.incumbent.update_bound(
                problem_bound(self.setup.division, self.setup.arithmetic, [share.upper_bounds for share in shares])
            )
        seconds = time.perf_counter() - self.incumbent.start
        make_1_optimal = self.search.make_original_1_optimal
        return result_of(self.setup, self.incumbent, shares, self.world.size, seconds, self.cycles, make_1_optimal)

    def _uncombined_bounds(self) -> dict[int, Number]:
        """Return upper bounds on the utilities of this rank's agents, from their own tables."""
        return uncombined_bounds(self.setup.division, self.setup.arithmetic, self.mine, self.agents)

    def agents_metrics(self) -> dict[int, AgentMetrics]:
        """Return the metrics of this rank's agents; called by all ranks."""
        return self.world.on_all_ranks(lambda: {number: self._metrics(number) for number in self.mine})

    def best_so_far(self) -> Result:
        """Return the result if the run ended now; callable from any thread, without other ranks (rank 0)."""
        return early_result(
            self.setup, self.incumbent, self.world.size, self.cycles, self.search.make_original_1_optimal
        )

    def _metrics(self, number: int) -> AgentMetrics:
        """Return the metrics of an agent."""
        first, later = self._combining.messages_of(number)
        work, last = AgentWork(None, None, None), self._combining.last
        if last is not None:
            work = AgentWork(last.tables[number], last.cycle.z[number][0], last.cycle.chosen[number])
        elif number in self.agents:
            work = AgentWork(self.agents[number].table, None, None)
        return metrics_of(self.setup, number, work, self.world.rank, first, later)
