"""One rank's part of a run with a time budget: tables are combined and improved in turn until the goal or the deadline.

:func:`improve_until_stop` drives it: :meth:`RankRun.first_tables`, then in turn :meth:`RankRun.combine` (UTIL and VALUE
messages), :meth:`RankRun.agree` (rank 0 decides) and :meth:`RankRun.improve`, until ``agree`` returns a directive to
stop. All ranks call these methods at the same time, because they exchange messages inside.

The tables and their combinations are those of a run with fixed work (:class:`.rank_tables.RankTables`), and the ranks
agree on assignments and bounds in the same ways (:class:`.coordinator.Coordinator`).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dmcmc.anytime.director import CombinationLimits, Director, may_end_with_incumbent, title_of
from dmcmc.anytime.improvers import registry
from dmcmc.anytime.improvers.protocol import Improver, TimeSlice, WholeProblemWork
from dmcmc.anytime.local_search import IncumbentSearch, WholeSearches
from dmcmc.anytime.run_improvers import (
    AgentWorkDone,
    CombinationContext,
    improve_agents,
    proposals_after,
    starts_of,
    time_slice_of,
)
from dmcmc.anytime.scheduler.proposal import Directive, MeasuredGain, Needs, Proposal, RankReport, ranks_of_work
from dmcmc.anytime.scheduler.scheduler import Scheduler
from dmcmc.anytime.whole_problem.whole_problem_agent import WholeProblemPart
from dmcmc.inference.bounds.branch_and_bound.cuda.check_bounds import check_dual_bounds
from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken
from dmcmc.inference.runtime.device import gpu_has_failed
from dmcmc.inference.runtime.errors import GpuFault, OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL
from dmcmc.results.result import LOCAL_SEARCH, Result
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.samplers.in_team import end, help_on
from dmcmc.solving.agent.checkpoint import UNION_NAME, keep_agent
from dmcmc.solving.combine_tables import Cycle
from dmcmc.solving.coordinator import Coordinator, CycleReport, row_filter
from dmcmc.solving.local_tables import exact_tables, team_of
from dmcmc.solving.observe import Interrupt, RunHandle, Watch
from dmcmc.solving.planning.combination_plan import step_attempts
from dmcmc.solving.planning.plan import Setup
from dmcmc.solving.rank_tables import RankTables
from dmcmc.tuning import run as tuning

_LOG = logging.getLogger(__name__)


class SliceEnd(CancellationToken):
    """The cancellation of a run, which another event also requests for the work of one time slice.

    Parameters
    ----------
    run : CancellationToken
        The cancellation of the run.
    event : CancellationToken
        The event.
    """

    def __init__(self, run: CancellationToken, event: CancellationToken) -> None:
        self.run, self._event, self._ends_slice = run, event, False

    @property
    def requested_at(self) -> float:
        """Time at which work has to end."""
        return min(self.run.requested_at, self._event.requested_at) if self._ends_slice else self.run.requested_at

    @requested_at.setter
    def requested_at(self, when: float) -> None:
        self.run.requested_at = when

    @contextmanager
    def within_slice(self) -> Iterator[None]:
        """End the work of the block when the event is requested."""
        self._ends_slice = True
        try:
            yield
        finally:
            self._ends_slice = False


class NextPlan(NamedTuple):
    """A plan that a run changes to, once it can be carried out.

    Attributes
    ----------
    find : callable
        Returns the plan if it can be carried out, otherwise None; called by all ranks.
    slice_end : SliceEnd
        Ends a time slice as soon as this rank can carry out the plan. It is the cancellation of the run's deadline.
    """

    find: Callable[[], Setup | None]
    slice_end: SliceEnd


class RankImprovers:
    """The improvers of a run on one rank: they propose work after a combination, and do what rank 0 allocates.

    Parameters
    ----------
    improvers
        The improvers of the run.
    tables
        This rank's agents.
    coordinator
        How the ranks agree on the answer.
    searches
        The searches over the whole assignment.
    whole_problem
        This rank's part of the whole problem.
    limits
        The table size of the next combination, which an improver may enlarge.

    Attributes
    ----------
    is_ready : callable
        Returns whether an improver, given by its name, has its kernels on this rank.
    gains : list of MeasuredGain
        Costs and gains of work since the last report to rank 0.
    tables_changed : bool
        Whether tables may have changed since the last combination.
    rows_pruned : bool
        Whether the last work on tables has pruned rows, or may have; True before any work.
    """

    def __init__(
        self,
        improvers: Sequence[Improver],
        tables: RankTables,
        coordinator: Coordinator,
        searches: "WholeSearches",
        whole_problem: WholeProblemPart,
        limits: CombinationLimits,
    ) -> None:
        self._improvers, self._tables, self._coordinator, self._searches = improvers, tables, coordinator, searches
        self._union, self._limits, self._world, self._incumbent = (
            whole_problem,
            limits,
            tables.world,
            coordinator.incumbent,
        )
        self.is_ready: Callable[[str], bool] = lambda improver: True
        self.gains, self.tables_changed, self.rows_pruned = list[MeasuredGain](), True, True

    def proposals(self, cycle: Cycle) -> tuple[Proposal, ...]:
        """Return the improvers' proposals for this rank after a combination.

        The cost of another combination is estimated as the last one's seconds times the growth of the tables.
        """
        enlarged_seconds, tables = None, self._tables
        if self._limits.may_enlarge and len(step_attempts(tables.setup, self._limits.size_factor)) > 1:
            enlarged_seconds = tuning.TABLE_GROWTH_FACTOR * self._incumbent.combination_seconds
        best, is_ready = self._coordinator.best, self.is_ready
        return proposals_after(
            cycle, self._improvers, tables, best, self._searches, self._union, enlarged_seconds, is_ready
        )

    def improve(self, directive: Directive) -> None:
        """Run the improvers in their allocated time: first for this rank's agents, then for all ranks together.

        Work in the background goes on or stops first. Then the agents get their outside bounds (upper bounds on what
        all others can add to their rows). This needs a bound of every component, and a last cycle with one UTIL step
        per agent; it is left out if no table may change.
        """
        tables, last, whole = self._tables, self._tables.last, self._whole_problem_work()
        assert last is not None, "there has been no combination yet"
        for improver in self._improvers:
            improver.begin(whole, directive.allocations_of(improver.name))
        self.tables_changed, outsides = directive.changes_tables, dict[int, UtilMessage]()
        if directive.bounded and self.tables_changed and last.cycle.per_agent:
            with self._searches.in_background():
                outsides = tables.outside_bounds()
        context = CombinationContext(last.cycle.chosen, outsides, tables.sides)
        slice = self._world.on_all_ranks(partial(time_slice_of, tables, context, directive, whole))
        slice = slice if self._union.agent is None else self._union.agent.added_to(slice)
        self._improve_tables(slice, directive)
        active = [improver for improver in self._improvers if directive.allocations_of(improver.name)]
        self._world.on_all_ranks(partial(self._suggest_starts, active))
        self._improve_whole_problem(slice, active, directive)
        self._coordinator.name_sources([one.name for one in active if not one.properties.needs.in_background])

    def _whole_problem_work(self) -> WholeProblemWork:
        """Return the callbacks for improvers; storing them here would keep the run in a reference cycle."""
        background = self._searches.background
        return WholeProblemWork(
            self._search_on_all_ranks,
            self._limits.enlarge,
            self._continue_engine,
            background.wait_for_engine,
            background.allow_gpu_seconds,
        )

    def _improve_tables(self, slice: TimeSlice, directive: Directive) -> None:
        """Improve the tables of all agents and of the whole problem, as the directive says."""
        if self.tables_changed or directive.works_on_union:
            with self._tables.team.sharing_errors():
                done = self._improve_agents(slice, directive)
            self.gains += done.gains
        if self.tables_changed:
            self.rows_pruned = done.pruned
            self._tables.index_again()
        if directive.works_on_union:
            self.gains += self._world.run(partial(self._union.exchange, directive.improvers_of_union))

    def _improve_agents(self, slice: TimeSlice, directive: Directive) -> AgentWorkDone:
        """Improve this rank's agents, or help with another rank's agent."""
        tables = self._tables
        if tables.team.rank > 0:
            tables.helped = help_on(tables.helped, tables.setup.backend, tables.team)
            return AgentWorkDone(False, [])
        done = improve_agents(self._improvers, slice, directive)
        end(tables.team)
        return done

    def _improve_whole_problem(self, slice: TimeSlice, active: Sequence[Improver], directive: Directive) -> None:
        """Let those improvers of the whole problem work that have an allocation; called by all ranks."""
        for improver in active:
            if improver.properties.needs is Needs.CORE:
                continue
            self._incumbent.assignment_source, before = improver.name, self._incumbent.utility
            self.gains += improver.run(slice, directive.allocations_of(improver.name))
            if any(self._world.allgather(bool(slice.found))):
                self._searches.record_best(slice.found)
                slice.found.clear()
                gain = _gain(before, self._incumbent.utility)
                self.gains.append(MeasuredGain(improver.name, 0.0, objective_gain=gain))

    def _suggest_starts(self, active: Sequence[Improver]) -> None:
        """Suggest assignments to the local search, which improvers have made from their work on this rank's agents."""
        agents = [*self._tables.agents.values(), *(() if self._union.agent is None else (self._union.agent.agent,))]
        seed = self._tables.setup.divided.config.seed + self._tables.combinations
        if (best := self._coordinator.best) is not None:
            self._searches.suggest(starts_of(active, agents, best, self.is_ready, seed))

    def _continue_engine(self, wanted: bool) -> None:
        """Let the external search in the background go on, or end it, which frees its core."""
        setup = self._searches.background.continue_engine(wanted, self._tables.setup)
        self._tables.setup = self._incumbent.setup = setup

    def _search_on_all_ranks(self, seconds: float) -> float:
        """Search for some seconds on all ranks together; return the gain in utility (rank 0)."""
        before = self._incumbent.utility
        self.rows_pruned = self._searches.improve(seconds) or self.rows_pruned
        return _gain(before, self._incumbent.utility)


class RankRun:
    """A run with a time budget as one rank sees it.

    Parameters
    ----------
    tables
        This rank's agents, before their first tables.
    coordinator
        How the ranks agree on the answer.
    searches
        The searches over the whole assignment.
    watch
        The observer of the run, given by the caller.
    whole_problem
        This rank's part of the whole problem; None if that is not bounded. The first combination is then made
        with smaller tables, so that it comes soon; it is enlarged if that gains.

    Attributes
    ----------
    director : Director
        Decides on rank 0 what follows a combination.
    work : RankImprovers
        The improvers on this rank.
    incumbent : Incumbent
        Best assignment and bound so far, on rank 0.
    whole_problem : WholeProblemPart
        This rank's part of the whole problem.
    goal_reached : bool
        Whether the first tables already reach the goal of the run.
    """

    def __init__(
        self,
        tables: RankTables,
        coordinator: Coordinator,
        searches: "WholeSearches",
        watch: Watch,
        whole_problem: WholeProblemPart | None = None,
    ) -> None:
        self.tables, self.coordinator, self.searches, self.watch = tables, coordinator, searches, watch
        self.world, self.incumbent = tables.world, coordinator.incumbent
        coordinator.take_plan(tables)
        improvers = registry.create(tables.setup.divided.timed)
        owner, properties = ranks_of_work(tables.setup.owner, self.world.size), registry.declared(improvers)
        self.director = Director(self.incumbent, Scheduler(owner, properties))
        coordinator.effects = {name: declared.effect for name, declared in properties.items()}
        # A rank that helps another one with the rows of an agent has no part of the whole problem.
        takes_part = self.world.rank == 0 or tables.team.size == 1
        no_part = WholeProblemPart(self.world, self.incumbent, searches, None)
        self.whole_problem = no_part if whole_problem is None or not takes_part else whole_problem
        self._limits, self.goal_reached = CombinationLimits(), False
        if whole_problem is not None:
            self._limits.size_factor = tuning.FIRST_SIZE_WITH_UNION
        self.work = RankImprovers(improvers, tables, coordinator, searches, self.whole_problem, self._limits)

    @property
    def setup(self) -> Setup:
        """The plan of the run."""
        return self.tables.setup

    @setup.setter
    def setup(self, setup: Setup) -> None:
        self.tables.setup = self.incumbent.setup = setup

    def first_tables(self) -> None:
        """Make each agent's first table, after some search; agents whose elimination is given up are sampled."""
        tables, plan, progress, incumbent = self.tables, self.setup, self.watch.progress, self.incumbent
        progress.stage("searching")
        self.coordinator.search_before_tables(tables)
        progress.stage("local tables", len(tables.mine))
        before, start = incumbent.utility, time.perf_counter()
        given, gap_is_met = (self.coordinator.best, progress.advance), self.coordinator.first_gap_check(tables)
        with self.searches.during_tables(plan):
            exact = exact_tables(plan, tables.team, self.world, *given, lambda: incumbent.reached)
            tables.make(exact, *given, gap_is_met)
        if self.setup is not plan:
            incumbent.setup = self.setup
            self.watch.planned(self.setup)
        self.work.gains += [gain for agent in tables.agents.values() for gain in agent.gains]
        self.coordinator.name_sources(tables.improvers)
        if self.searches.exist and plan.divided.timed and not plan.will_prove and self.world.rank == 0:
            gained, seconds = _gain(before, incumbent.utility), time.perf_counter() - start
            self.work.gains.append(MeasuredGain(LOCAL_SEARCH, seconds, objective_gain=gained))
        self.goal_reached = self.searches.background.have_ended_run() or self.coordinator.gap_is_met(tables)

    def combine(self) -> Cycle | ResourceError:
        """Send UTIL messages up and VALUE messages down; return the cycle, or the error if it did not finish or fit.

        If no table has changed since the last combination, return its result again. If a combination with larger tables
        fails, return to the last one.

        Raises
        ------
        ResourceError
            If the first combination fails and the run cannot end with the incumbent, or other ranks did not fail.
        """
        limits, tables, setup, last = self._limits, self.tables, self.setup, self.tables.last
        if last is not None and not self.work.tables_changed and limits.enlarged_seconds is None:
            return last.cycle
        self.watch.progress.stage(tables.combining_title)
        start, expected = time.perf_counter(), self.incumbent.combination_seconds
        budget, stop = setup.divided.config.budget.time, NO_DEADLINE
        if budget is not None:
            stop = limits.deadline(setup.backend.stop, budget, start, expected)
        try:
            with self.searches.in_background(not setup.will_prove):
                cycle = tables.combine(stop, limits.size_factor, row_filter(self.coordinator, tables))
        except ResourceError as error:
            if not self.world.is_agreed(error):
                raise
            if limits.enlarged_seconds is not None and last is not None:
                self.work.gains.append(limits.undo_enlargement(time.perf_counter() - start))
                return last.cycle
            if last is None and not may_end_with_incumbent(setup.divided.config, error):
                raise
            return error
        self.incumbent.combination_seconds = time.perf_counter() - start
        self.work.gains += limits.finish(self.incumbent.combination_seconds)
        return cycle

    def agree(self, cycle: Cycle | ResourceError) -> Directive:
        """Record the results of the cycle on rank 0, and return its directive for the next cycle on all ranks."""
        if isinstance(cycle, ResourceError):
            self.incumbent.give_up(cycle)
            if self.setup.divided.timed and not isinstance(cycle, OutOfTime):
                self.searches.use_remaining_time()
            return Directive(True)
        self.coordinator.record(cycle, self.tables.sides)
        reports = self.world.gather(self.world.on_all_ranks(partial(self._report, cycle)))
        directive = self.world.on_first_rank(lambda: self.director.decide(reports or []))
        if directive.stop:
            self.searches.use_remaining_time(reserved=True)
        return directive._replace(best=self.coordinator.known_values(directive.best))

    def _report(self, cycle: Cycle) -> RankReport:
        """Return what rank 0 needs to know of this rank's work since its last report."""
        self.work.gains += self.searches.background.take_gains()
        cycle_report = CycleReport.of(self.tables, cycle, self.work.rows_pruned)
        report = RankReport(cycle_report.roots, self.work.proposals(cycle), tuple(self.work.gains), *cycle_report[1:])
        self.work.gains.clear()
        return report

    def improve(self, directive: Directive) -> None:
        """Run the improvers in their allocated time: first for this rank's agents, then for all ranks together."""
        self.watch.progress.stage(title_of(self.incumbent, directive.improvers, self.setup.backend.stop.left))
        self.work.improve(directive)

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
        if self.setup.divided.timed and isinstance(error, OutOfMemory):
            with suppress(OutOfMemory):
                self.searches.use_remaining_time()

    def check_gpu_bounds(self) -> None:
        """Check the bounds of this rank's agents that a GPU has computed; called by all ranks.

        Raises
        ------
        GpuFault
            On all ranks, if one is wrong. The bound of the problem is dropped.
        """
        whole_problem = [] if self.whole_problem.agent is None else [self.whole_problem.agent.agent]
        bounds = [agent.upper for agent in (*self.tables.agents.values(), *whole_problem)]
        on_gpu = [upper for upper in bounds if upper.dual is not None and upper.dual.remote is not None]
        begin, budget = time.perf_counter(), self.setup.divided.config.budget.time or 0.0
        latest = max(begin + 2 * MAX_CHECK_INTERVAL, self.setup.backend.stop.until + sampler_tuning.GRACE_SECONDS / 2)
        seconds = min(latest - begin, max(2 * MAX_CHECK_INTERVAL, sampler_tuning.UNNOTICED_SHARE * budget))

        def check() -> None:
            """Check agent by agent; each gets an equal part of the time."""
            for number, upper in enumerate(on_gpu, 1):
                assert upper.dual is not None
                check_dual_bounds(upper.dual, upper.boundary_search, begin + seconds * number / len(on_gpu))

        try:
            self.world.on_all_ranks(check)
        except GpuFault as fault:
            if not gpu_has_failed():
                _LOG.error(f"dmcmc: {fault}")
                self.incumbent.forget_bound()
            raise

    def result(self) -> Result | None:
        """Return the result, put together from all ranks' parts; None except on rank 0."""
        return self.coordinator.result(self.tables)


def _gain(before: Number | None, after: Number | None) -> float:
    """Return the gain in utility between two incumbents; 0 without a feasible one."""
    return 0.0 if before is None or after is None else float(after - before)


def keep_for_next_run(tables: RankTables, whole_problem: WholeProblemPart) -> None:
    """Keep the tables and bounds of a rank's agents, and of the whole problem, for the next run of a session."""
    retained, choices, names = (
        tables.setup.divided.retained_bounds,
        tables.setup.choices,
        tables.setup.divided.problem.agents,
    )
    if retained is None:
        return
    for number, agent in tables.agents.items():
        keep_agent(agent, choices[number].bound, retained, names[number])
    if whole_problem.agent is not None:
        keep_agent(whole_problem.agent.agent, whole_problem.provider or "", retained, UNION_NAME)


def improve_until_stop(  # long: tables, plans and failures of a GPU in the order of a run
    setup: Setup,
    coordinator: Coordinator,
    search: IncumbentSearch | None,
    watch: Watch,
    is_ready: Callable[[str], bool],
    whole_problem: WholeProblemPart | None = None,
    next_plan: NextPlan | None = None,
) -> Result | None:
    """Make the agents' tables, and combine and improve them in turn until the goal or the deadline.

    Parameters
    ----------
    setup
        The plan; its backend has the deadline.
    coordinator
        How the ranks agree on the answer.
    search
        This rank's search over the whole assignment; None if no rank knows the whole problem.
    watch
        The observer of the run, given by the caller. Ctrl-C is left to a caller that handles signals.
    is_ready
        Returns whether an improver, given by its name, has its kernels on this rank.
    whole_problem
        This rank's part of the whole problem, which may already have a bound; None if that is not bounded.
    next_plan
        A plan to change to after a combination, if there is time to make the tables again. A single rank ends its time
        slice as soon as it can carry out that plan. None if there is no other plan.
    """
    searches = WholeSearches(coordinator.world, search)
    world, handle, stop = coordinator.world, watch.handle or RunHandle(), setup.backend.stop
    of_run = stop if next_plan is None else replace(stop, cancellation=next_plan.slice_end.run)
    interrupt = Interrupt(of_run, armed=setup.divided.timed and not watch.handles_signals)
    with handle.deliver_if_late(stop), interrupt, team_of(setup, world, coordinator.private) as team:

        def change_in_slice(run: RankRun, directive: Directive, coming: NextPlan) -> Setup | None:
            """Improve tables; return the plan to change to if that has ended the work too early for a combination."""
            try:
                with coming.slice_end.within_slice() if world.size == 1 else nullcontext():
                    run.improve(directive)
            except OutOfTime:
                better = coming.find() if world.size == 1 else None
                if better is None:
                    raise
                return better
            return None

        def improve(plan: Setup) -> Setup | Result | None:
            """Make and improve tables by a plan, from the best assignment and bound so far.

            Return the result, or the plan by which to go on.
            """
            part = whole_problem if plan is setup or whole_problem is None else whole_problem.anew()
            run = RankRun(RankTables(plan, world, team), coordinator, searches, watch, part)
            handle.best, run.work.is_ready = partial(coordinator.best_so_far, run.tables), is_ready
            begun, first_seconds, coming = time.perf_counter(), 0.0, next_plan if plan is setup else None
            try:
                run.first_tables()
                while not run.goal_reached:
                    directive = run.agree(run.combine())
                    if directive.stop:
                        break
                    first_seconds = first_seconds or time.perf_counter() - begun
                    if coming is None or not world.bcast(stop.left > first_seconds):
                        run.improve(directive)
                    elif (better := coming.find()) is not None or (better := change_in_slice(run, directive, coming)):
                        return better.with_stop(stop)
            except (OutOfTime, OutOfMemory) as error:
                run.give_up(error)
            run.check_gpu_bounds()
            if run.whole_problem.check(world):
                world.on_all_ranks(partial(keep_for_next_run, run.tables, run.whole_problem))
            return run.result()

        plan: Setup = setup
        while True:
            try:
                outcome = improve(plan)
            except Exception as error:
                outcome = plan.without_gpu(error, world)
            if not isinstance(outcome, Setup):
                return outcome
            plan = outcome
