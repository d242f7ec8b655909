"""One rank's part of a run: its agents, their messages and clocks, and what all ranks agree on."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.size_statistics import together
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Clock, latest
from dmcmc.mpi.team import Team
from dmcmc.mpi.world import World
from dmcmc.results.result import AgentMetrics, Result
from dmcmc.run.agent.agent import Agent
from dmcmc.run.agent.uncombined_bound import clamped_sum, largest_sums, loose_bounds, whole_bound
from dmcmc.run.agent_steps import Sides, gather_sides
from dmcmc.run.combination_limits import Combined, Combining, may_end_by
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.improvers.recombine import LARGER
from dmcmc.run.improvers.registry import OF_ALL, offers_of
from dmcmc.run.incumbent import title_of, total_of
from dmcmc.run.initial_tables import first_tables
from dmcmc.run.local_search import PAYS, Search
from dmcmc.run.metrics import Share, Work, checks_of, early_result, metrics_of, result_of
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.combination_plan import slicing_seconds, will_prove
from dmcmc.run.planning.setup import Setup
from dmcmc.run.run_improvers import Around, gap_of, improve_agents, slice_of
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.improver_statistics import decoded_by, lowered_by
from dmcmc.run.scheduler.proposal import BESIDE, BOUND, GPU_SEARCH, SAMPLE, SEARCH, Brought, Offer
from dmcmc.run.scheduler.rank_report import Report
from dmcmc.run.scheduler.scheduler import Controller
from dmcmc.run.util_value_cycle import Cycle, run_cycle, run_outside
from dmcmc.samplers import improve_in_team
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.contract.protocol import Resumable

_LOOK = 0.05  # seconds between two looks at what is waited for


class Run:
    """A run as one rank sees it.

    Parameters
    ----------
    setup
        What all ranks know; its backend knows when to end.
    search
        Local search over the whole assignment, which has an incumbent.
    progress
        Told how it goes.
    explain
        Called with the setup when that has changed.
    team
        The ranks that work on the rows of one agent, of :func:`.team_of`; this rank alone if None.

    Attributes
    ----------
    agents : dict
        This rank's agents.
    sides : Sides
        How their tables are indexed.
    clocks : dict
        When each would be ready if every agent had a machine of its own.
    incumbent : Incumbent
        The best so far, on rank 0.
    enough : bool
        Whether nothing more is wanted than what the first tables have proven.
    cycles : int
        Combinations begun.
    """

    sides: Sides
    _helped: Resumable | None  # chains of an agent of another rank
    _largest: tuple[dict[int, Number], Number]  # at most what agents' factors are worth, and those between agents

    def __init__(
        self,
        setup: Setup,
        world: World,
        search: Search,
        progress: Progress,
        explain: Callable[[Setup], None],
        team: Team | None = None,
    ) -> None:
        self.setup, self.world, self.search = setup, world, search
        self.team, self._helped = team or Team(world, None, True), None
        self.progress, self.explain = progress, explain
        self.mine = setup.of_rank(world.rank)
        self.post = Post(world, setup.owner)
        self.incumbent = search.incumbent
        self.incumbent.setup, self.incumbent.controller = setup, Controller(setup.owner)
        if setup.config.local.method == "exact" and (others := setup.methods.count(SAMPLER)):
            what = "1 agent is" if others == 1 else f"{others} agents are"
            self.incumbent.note = f"{what} sampled: local.method: exact does not fit budget.memory there"
        self.agents: dict[int, Agent] = {}
        self.clocks = dict.fromkeys(self.mine, Clock())
        self._checks: dict[int, int] = {}
        self.cycles, self._pruned = 0, True  # pruning has not been tried: it may help
        self.enough = False
        self._changed, self._brought = True, list[Brought]()
        self._combining = Combining()

    def first_tables(self) -> None:
        """Make each agent's first table, after some search; some agents may change their methods on the way."""
        self.progress.stage("searching")
        self.search.before_tables(self.setup)
        self.search.begin_on_gpu(self.setup)
        self.progress.stage("local tables", len(self.mine))
        chosen = self.setup
        if self._looks_for_gap:
            self._largest = self.world.decided(partial(largest_sums, self.setup.division, self.setup.arithmetic))
        before, begun, searching = self.incumbent.utility, time.perf_counter(), not will_prove(chosen)
        beside = self.search.beside(searching, PAYS, moment=self.search.moment(chosen))
        with beside, self.search.meanwhile.at_work():
            self.setup, self.agents, self.sides, self._helped = first_tables(
                chosen, self.team, self.world, self.search.best, self.progress.advance, self._near, self._ended
            )
        self.incumbent.setup = self.setup
        if self.setup is not chosen:
            self.explain(self.setup)
        self._checks = {number: checks_of(self.setup, number, agent.table) for number, agent in self.agents.items()}
        self.clocks = {a: Clock(agent.table.seconds, self._checks[a]) for a, agent in self.agents.items()}
        self._brought += [one for agent in self.agents.values() for one in agent.brought]
        self._name_work([one.kind for one in self._brought])
        if self.setup.timed and searching and self.world.rank == 0:
            after = self.incumbent.utility
            gained = 0.0 if before is None or after is None else float(after - before)
            self._brought.append(Brought(SEARCH, time.perf_counter() - begun, objective=gained))
        if self.search.engine.won():
            self.enough = True
        elif self.setup.config.budget.gap > 0:
            self._look_at_gap()

    def _look_at_gap(self) -> None:
        """Find out whether the tables' bounds alone say that the gap is as small as was asked for."""
        parts = self.world.gather(loose_bounds(self.setup.division, self.setup.arithmetic, self.mine, self.agents))

        def reached() -> bool:
            if self.setup.config.local.bound != "none":
                self.incumbent.update_bound(whole_bound(self.setup.division, self.setup.arithmetic, parts or []))
            return self.incumbent.reached

        self.enough = self.world.decided(reached)

    def _near(self, bounds: Mapping[int, Number]) -> bool:
        """Return whether bounds of some agents, and the largest entries of all others, make the gap small enough."""
        if not self._looks_for_gap or self.search.worth.kept < 0:
            return False
        target, worth = self.setup.config.budget.gap, self.search.worth
        own, between = self._largest
        bound = clamped_sum([*({**own, **bounds}).values(), between], self.setup.arithmetic)
        apart = float(bound) - float(worth.utility)
        return apart <= target * max(1.0, abs(float(worth.objective)))

    def _ended(self) -> bool:
        """Return whether a search engine has proven what is best (rank 0)."""
        return self.incumbent.reached

    @property
    def _looks_for_gap(self) -> bool:
        """Whether first bounds are held against a gap that was asked for: fixed work is the same on any ranks."""
        return self.setup.timed and self.setup.config.budget.gap > 0

    def combine(self) -> Cycle | ResourceError:
        """Send UTIL messages up and VALUE messages down; return why not where it is late, or a later one fails.

        Where no table is another, neither is what comes out.
        """
        made = self._combining
        if made.last is not None and not self._changed and made.again is None:
            return made.last.cycle
        self.cycles += 1
        slices = "" if self.setup.slicing is None else f", in slices: about {slicing_seconds(self.setup):.2g} s"
        self.progress.stage(f"combining{slices}")
        tables = {number: agent.exported() for number, agent in self.agents.items()}
        begun = time.perf_counter()
        stop = made.end(self.setup, begun, self.incumbent.combining) if self.setup.timed else NO_STOP
        try:
            with self.search.beside(not will_prove(self.setup)):
                cycle = run_cycle(self.setup, self.post, self.clocks, tables, self.sides, stop, made.larger)
        except ResourceError as error:
            if not self.world.is_agreed(error):
                raise
            if made.again is not None and made.last is not None:
                self._brought.append(made.go_back(time.perf_counter() - begun))
                return made.last.cycle
            if made.last is None and not may_end_by(self.setup, error):
                raise
            return error
        self.incumbent.combining = time.perf_counter() - begun
        self._brought += made.take(Combined(tables, cycle), self.incumbent.combining)
        return cycle

    def agree(self, cycle: Cycle | ResourceError) -> Directive:
        """Let rank 0 take in what this cycle found, and tell all ranks whether and how to go on."""
        if isinstance(cycle, ResourceError):
            directive = self.incumbent.give_up(cycle)
            if self.setup.timed and not isinstance(cycle, OutOfTime):
                self.search.until_the_end()
            return directive
        self._take_in(cycle)
        self._brought += self.search.engine.brought()
        on_gpu = self.search.on_gpu
        self._brought += [] if on_gpu is None else on_gpu.brought()
        report = Report(
            cycle.roots,
            self._offers(cycle),
            tuple(self._brought),
            any(above is not None for _, above in cycle.z.values()),
            self._pruned,
            self.setup.backend.stop.asked,
            tuple(one.filtered.kept for one in self.agents.values() if one.filtered and one.filtered.kept),
        )
        self._brought.clear()
        reports = self.world.gather(report)
        directive = self.world.decided(lambda: self._direct(reports or []))
        if directive.stop and not self.search.plain and self.world.decided(lambda: self.incumbent.timed_out):
            self.search.until_the_end()  # what was kept for combining once more is not needed
            self.incumbent.timed_out = True
        return directive

    def _take_in(self, cycle: Cycle) -> None:
        """Let rank 0 see what the cycle has found."""
        found = cycle.values
        own = np.array([[*found], [*found.values()]], dtype=np.int64).T
        parts = self.world.gather(own, "values")
        values: NDArray[np.int64] | None = None
        if parts is not None:
            values = np.zeros(self.setup.problem.n_variables, dtype=np.int64)
            for variables, chosen in (part.T for part in parts):
                values[variables] = chosen
        self.search.polish(values)

    def _direct(self, reports: list[Report]) -> Directive:
        """Take in what all ranks have proven, and decide (rank 0)."""
        found: dict[int, Number | None] = {}
        for report in reports:
            found |= report.roots
        roots = {agent: found[agent] for agent in sorted(found)}
        self.incumbent.filtered = together([kept for report in reports for kept in report.kept])
        parts = lowered_by(one for report in reports for one in report.brought)
        self.incumbent.update_bound(total_of(roots, self.setup.arithmetic), parts=parts)
        return self.incumbent.direct(reports)

    def _name_work(self, kinds: Sequence[str]) -> None:
        """Say what the next points of the trace come of: an assignment of tables from below, a bound of the others."""
        above = [kind for kind in dict.fromkeys(kinds) if kind not in (SAMPLE, SEARCH)] or kinds
        self.incumbent.by = ", ".join(decoded_by(kinds)) or "prune"
        self.incumbent.above = ", ".join(above) or "prune"

    def _offers(self, cycle: Cycle) -> tuple[Offer, ...]:
        """Return what this rank could do next."""
        if not self.setup.timed:
            return offers_of(Standing({}, {}, first=False, beside=self.search.engine.hopeful))
        gaps = {number: gap_of(self.setup, cycle.chosen, agent) for number, agent in self.agents.items()}
        relaxed = any(z is not None for both in cycle.z.values() for z in both)
        open_ended = self._combining.may_enlarge(self.setup)
        again = LARGER * self.incumbent.combining if relaxed and open_ended else None
        return offers_of(
            Standing(self.agents, gaps, self.world.rank == 0, again, self.search.engine.hopeful, self._on_gpu)
        )

    @property
    def _on_gpu(self) -> bool:
        """Whether a search on the GPU beside this rank may still bring something."""
        return self.search.on_gpu is not None and self.search.on_gpu.on

    def improve(self, directive: Directive) -> None:
        """Carry out what is granted: for this rank's agents, then together with all ranks."""
        last = self._combining.last
        assert last is not None, "there has been no cycle"
        self.progress.stage(title_of(self.incumbent, directive.kinds, self.setup.backend.stop.left))
        if directive.of(BESIDE):
            self.search.engine.go_on()
        else:
            self.setup = self.incumbent.setup = self.search.engine.disengage(self.setup)
        if self.search.on_gpu is not None:
            self.search.on_gpu.allow(sum(grant.seconds for grant in directive.of(GPU_SEARCH)))
        cycle, outsides = last.cycle, dict[int, UtilMessage]()
        self._changed = directive.changes_tables
        if directive.bounded and self._changed and cycle.whole:
            with self.search.beside():
                outsides, sent = run_outside(self.setup, self.post, cycle, last.tables, self.sides.upper)
            self._combining.sent_later(sent)
        around = Around(cycle.chosen, outsides, self.sides)
        slice = slice_of(self.setup, self.agents, around, directive, self._search, self._combining.enlarge, self._wait)
        if self._changed:
            self._pruned = self.world.together(partial(self.team.run, partial(self._improve_agents, slice, directive)))
            self._gather_sides()
        if directive.of(BOUND):
            self._suggest()
        for kind in OF_ALL:
            if granted := directive.of(kind.name):
                self.incumbent.by = kind.name
                kind.carry_out(slice, granted)
        self._name_work([kind for kind in directive.kinds if kind not in (BESIDE, GPU_SEARCH)])
        self._brought += slice.brought

    def _improve_agents(self, slice: Slice, directive: Directive) -> bool:
        """Let this rank's agents have what they are granted, or help another's; return whether rows were pruned."""
        if self.team.rank > 0:
            self._helped = improve_in_team.help_on(self._helped, self.setup.backend, self.team)
            return False
        pruned = improve_agents(slice, directive)
        improve_in_team.end(self.team)
        return pruned

    def _suggest(self) -> None:
        """Let the search begin at what the shares of bounds say is good, too: of agents that share nothing."""
        starts: dict[int, NDArray[np.int64]] = {}
        for agent in self.agents.values():
            if not agent.local.interface and not agent.table.exact:
                hidden = list(agent.local.hidden)
                for number, values in enumerate(agent.above.roundings(self.setup.config.seed + self.cycles)):
                    starts.setdefault(number, self.search.best.copy())[hidden] = values
        self.search.suggest([*starts.values()])

    def _search(self, seconds: float) -> float:
        """Search for some seconds, all ranks together; return what that has brought (rank 0)."""
        before = self.incumbent.utility
        self._pruned = self.search.improve(seconds, 0) or self._pruned
        after = self.incumbent.utility
        return 0.0 if before is None or after is None else float(after - before)

    def _wait(self, seconds: float) -> None:
        """Wait for the search engine, all ranks together, until it ends or the time does."""
        engine, until = self.search.engine.beside, time.perf_counter() + seconds
        while engine is not None and engine.on and not self.setup.backend.stop.over and time.perf_counter() < until:
            engine.wait(_LOOK)
        if seconds > 0:
            self.world.wait()

    def _gather_sides(self) -> None:
        """Tell all ranks how this rank's tables are indexed now."""
        lower, upper = self.sides.lower.rows, self.sides.upper.rows
        lists = {
            number: lower[number]
            for number, agent in self.agents.items()
            if number in lower and number not in upper and agent.below.local is not agent.local
        }
        listings = {
            number: agent.pruning.listed_values(agent.local)
            for number, agent in self.agents.items()
            if agent.pruning.listing is not None
        }
        self.sides = gather_sides(self.setup, self.world, lists, listings)
        for number, agent in self.agents.items():
            before, self._checks[number] = self._checks[number], checks_of(self.setup, number, agent.table)
            self.clocks[number] = self.clocks[number].after(agent.last, max(0, self._checks[number] - before))

    def give_up(self, error: ResourceError) -> None:
        """End with the incumbent: there was no time, or no memory, for more; a search has what is left of the time.

        Raises
        ------
        ResourceError
            The error itself, where other ranks have not raised it: they would wait for this one.
        """
        if not self.world.is_agreed(error):
            raise error
        self.incumbent.give_up(error)
        if self.setup.timed and isinstance(error, OutOfMemory):
            with suppress(OutOfMemory):
                self.search.until_the_end()

    def result(self) -> Result | None:
        """Put the ranks' parts together; None but on rank 0."""
        metrics = self.agents_metrics()
        loose = dict[int, Number]()
        known = self.world.size == 1 and self.incumbent.bounded
        if self.setup.config.local.bound != "none" and not known:
            loose = loose_bounds(self.setup.division, self.setup.arithmetic, self.mine, self.agents)
        shares = self.world.gather(Share(metrics, latest(self.clocks.values()), opened(), loose, self.world.counted()))
        if shares is None:
            return None
        if not self.incumbent.bounded:
            self.incumbent.update_bound(
                whole_bound(self.setup.division, self.setup.arithmetic, [share.loose for share in shares])
            )
        seconds = time.perf_counter() - self.incumbent.start
        polish = self.search.polish_asked
        return result_of(self.setup, self.incumbent, shares, self.world.size, seconds, self.cycles, polish)

    def agents_metrics(self) -> dict[int, AgentMetrics]:
        """Return what this rank's agents did; called by all ranks."""
        return self.world.together(lambda: {number: self._metrics(number) for number in self.mine})

    def best_so_far(self) -> Result:
        """Return what would be the result if nothing else came, from any thread and without other ranks (rank 0)."""
        return early_result(self.setup, self.incumbent, self.world.size, self.cycles, self.search.polish_asked)

    def _metrics(self, number: int) -> AgentMetrics:
        """Return what an agent did."""
        first, later = self._combining.sent_by(number)
        work, last = Work(None, None, None), self._combining.last
        if last is not None:
            work = Work(last.tables[number], last.cycle.z[number][0], last.cycle.chosen[number])
        elif number in self.agents:
            work = Work(self.agents[number].table, None, None)
        return metrics_of(self.setup, number, work, self.world.rank, first, later)
