"""Solve a problem of which each rank reads its own agents' parts only.

Everybody knows the index: agents, and the scopes of factors between them. The agents' tree and the ranks' agents
follow from it. Numbers, choices, evaluation and bound are agreed by sums and by counts of work; what agents tell each
other are DPOP's messages, over variables that they share.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from dmcmc.algorithms import registry
from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import Index, read_agent, read_index
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.model.exact_sum import not_below
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, Unavailable
from dmcmc.inference.runtime.memory import ACCOUNT, resident_memory
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.distributed_dfs import token_tree
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Clock, Sent, latest
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Outcome, Proof, Worth, judge
from dmcmc.results.provenance import provenance
from dmcmc.results.result import AgentMetrics, Result
from dmcmc.run.agent_steps import Sides
from dmcmc.run.compilation.compile_ahead import warm_up_filtering, warm_up_planning, warm_up_solving, warm_up_weighing
from dmcmc.run.compilation.prepare_gpu import settled, warm_up_gpu
from dmcmc.run.distribution.rank_view import View, view_of
from dmcmc.run.incumbent import total_of
from dmcmc.run.initial_tables import first_tables, team_of
from dmcmc.run.metrics import Work, checks_of, choices_of, control_of, guarantee_of, messages_of, metrics_of, work_of
from dmcmc.run.monitoring.interrupt import Ending, Interrupt
from dmcmc.run.monitoring.progress import Progress, Silent
from dmcmc.run.planning.divided_problem import Divided, end_of, sharing_memory
from dmcmc.run.planning.plan import plan
from dmcmc.run.planning.setup import Setup
from dmcmc.run.planning.work_counts import Placed
from dmcmc.run.presolve.restore_result import Asked
from dmcmc.run.private.agree_on_problem import (
    Valued,
    magnitudes_among,
    numbers_of,
    shares_among,
    value_of,
    worth_of_all,
)
from dmcmc.run.private.anytime import PrivateIncumbent, PrivateRun
from dmcmc.run.private.rank_assignment import OwnParts
from dmcmc.run.solve import solve
from dmcmc.run.util_value_cycle import Cycle, run_cycle
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.local_search.local_search import LocalSearch

Read = Callable[[Index, int], Problem]
_Share = tuple[Mapping[int, AgentMetrics], Clock, bool, Mapping[str, tuple[int, int]]]  # of one rank in the result


def solve_directory(
    folder: str | os.PathLike[str],
    config: Settings,
    world: World | None = None,
    progress: Progress | None = None,
    share_assignment: bool = False,
    ending: Ending | None = None,
) -> Result | None:
    """Solve a problem that ``dmcmc split`` has written; called by every rank with the same arguments.

    Parameters
    ----------
    folder
        Rank 0 reads the index, every rank its own agents' files.
    share_assignment
        Gather the assignment. Else each rank keeps its agents' values: where ``config.output`` is given it writes one
        file an agent into a folder beside it.
    ending
        As for :func:`dmcmc.run.solve.solve`. What it then leaves without other ranks has no assignment: each rank
        writes its agents' values beside ``config.output``.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        What is wrong with a file, or does not fit the memory; on every rank alike.
    """
    world = world or World()
    try:
        _refuse(config)
        index = world.decided(lambda: read_index(folder))
        config = sharing_memory(config, world)
        with ACCOUNT.open(config.budget.bytes, resident_memory()):
            run = _Run(index, config, world, progress or Silent())
            return run.solve(partial(read_agent, folder), share_assignment, ending)
    except BaseException as error:
        world.give_up(error)
        raise


def _refuse(config: Settings) -> None:
    """Refuse what needs the whole problem."""
    if config.local.order is not None:
        raise Unavailable("problem.directory: agents find their orders themselves; leave local.order out")
    if (asked := config.asked_algorithm.name) != registry.OWN:
        raise Unavailable(f"problem.directory: is solved by {registry.OWN}, not {asked}; leave algorithm out")
    if config.search not in ("auto", "none"):
        raise Unavailable(f"problem.directory: search: {config.search} needs the whole problem; give problem.file")


class _Run:
    """One rank's part of a run."""

    def __init__(self, index: Index, config: Settings, world: World, progress: Progress) -> None:
        self.index, self.config, self.world, self.progress = index, config, world, progress
        self.everybody = everybody = view_of(index, {})
        agents, self.told = len(index.agents), dict[int, Sent]()
        if config.combine.tree == "depth-first":
            before = [agent * world.size // agents for agent in range(agents)]
            self.tree, self.told = token_tree(everybody.problem, everybody.division, before, world)
        else:
            self.tree = world.decided(lambda: build_pseudotree(everybody.problem, everybody.division))
        work = list(map(float, index.entries))
        self.owner = place(work, self.tree.parent, world.size)
        self.helpers = helpers_of(work, self.owner, world.size)
        self.mine = [agent for agent, rank in enumerate(self.owner) if rank == world.rank]
        helped = [agent for agent, ranks in enumerate(self.helpers) if world.rank in ranks]
        self.known = self.mine or helped  # a rank that works on another's rows has an agent's file for itself, too

    def solve(self, read: Read, share_assignment: bool, ending: Ending | None = None) -> Result | None:
        """Read this rank's parts, plan, make tables, combine them, and put the ranks' parts together."""
        world, config = self.world, self.config
        warm_up_planning(self.everybody.problem, config, world, self.progress)
        if config.budget.time is not None:
            warm_up_weighing(config, world, self.progress)
        start = time.perf_counter()
        parts = world.together(lambda: {agent: read(self.index, agent) for agent in self.known})
        view = view_of(self.index, parts)
        own = OwnParts(self.index, self.mine, view.problem, parts, config)
        if config.budget.time is not None:
            return self._anytime(view, own, start, share_assignment, ending)
        setup, factors = self._plan(view, NO_STOP)
        start += warm_up_solving(setup, world, self.progress, solve, stoppable=False)
        self.progress.stage("local tables", len(self.mine))
        with team_of(setup, world, private=True) as team:
            setup, agents, sides, _ = first_tables(
                setup, team, world, None, self.progress.advance, near=lambda bounds: False, ended=lambda: False
            )
        self.progress.stage("combining")
        tables = {number: agent.exported() for number, agent in agents.items()}
        clocks = {a: Clock(table.seconds, checks_of(setup, a, table)) for a, table in tables.items()}
        cycle = run_cycle(setup, Post(world, setup.owner), clocks, tables, sides, NO_STOP)
        outcome = self._outcome(view, setup, cycle, sides, factors)
        assignment = self._delivered(own, cycle.values, share_assignment)
        metrics = world.together(lambda: {a: self._metrics(setup, a, tables, cycle) for a in self.mine})
        shares = world.gather((metrics, latest(clocks.values()), opened(), world.counted()))
        if shares is None:
            return None
        assert outcome is not None
        return self._result(setup, outcome, assignment, shares, time.perf_counter() - start)

    def _anytime(
        self, view: View, own: OwnParts, start: float, share_assignment: bool, ending: Ending | None
    ) -> Result | None:
        """Go through cycles until the time is over, or all is proven."""
        world, progress, seconds, watching = (
            self.world,
            self.progress,
            self.config.budget.time or 0.0,
            ending or Ending(),
        )
        stop = Stop(end_of(start, seconds, len(self.index.agents)), wish=watching.wish)
        try:
            setup, factors = self._plan(view, stop)
        except OutOfTime as error:  # there is no answer without a plan
            if not world.is_agreed(error):
                raise
            setup, factors = self._plan(view, NO_STOP)
        warming = warm_up_solving(setup, world, progress, partial(solve, ending=Ending()), stoppable=True)
        warming += warm_up_filtering(setup, world, progress)
        warming += warm_up_gpu(setup, world, progress, searching=False)
        setup = settled(setup)
        start, stop = start + warming, replace(stop, until=stop.until + warming)
        incumbent = PrivateIncumbent(
            view.problem, self.config, start, stop.until, progress.point, setup, factors=factors
        )

        def valued(known: Mapping[int, int]) -> Worth | None:
            counted = view.counted(self.mine, self.tree.placed)
            parts = world.gather(world.together(lambda: value_of(counted, known)))
            return None if parts is None else worth_of_all(parts, view.problem, view.division.constants)

        armed = Interrupt(stop, armed=ending is None)
        with watching.watched(stop), armed, team_of(setup, world, private=True) as team:
            run = PrivateRun(setup.ending(stop), world, incumbent, progress, valued, own, team)
            before, first = world.together(own.found), self._first(view, setup.ending(stop))
            run.take(self._crossed(first))  # and kept, from now on
            if any(world.allgather(bool(before))):
                run.take(self._crossed(first | before))
            watching.leave = lambda: own.leave(run.best)
            watching.best = partial(self._best_so_far, run, incumbent)
            try:
                run.first_tables()
                while not (directive := run.agree(run.combine())).stop:
                    run.improve(directive)
            except (OutOfTime, OutOfMemory) as error:
                run.give_up(error)
        own.end()
        assignment = self._delivered(own, run.best, share_assignment)
        shares = world.gather((run.agents_metrics(), latest(run.clocks.values()), opened(), world.counted()))
        return None if shares is None else self._timed_result(run, incumbent, assignment, shares)

    def _best_so_far(self, run: PrivateRun, incumbent: PrivateIncumbent) -> Result | None:
        """Return what would be the result if nothing else came, from any thread; no other rank is asked (rank 0)."""
        if self.world.rank > 0:
            return None
        incumbent.timed_out = True
        return self._timed_result(run, incumbent, None, [({}, Clock(), opened(), {})])

    def _timed_result(
        self,
        run: PrivateRun,
        incumbent: PrivateIncumbent,
        assignment: dict[str, Label] | None,
        shares: Sequence[_Share],
    ) -> Result:
        """Put the ranks' parts of a run with a time budget together (rank 0)."""
        result = self._result(run.setup, incumbent.outcome, assignment, shares, time.perf_counter() - incumbent.start)
        late = incumbent.timed_out and not incumbent.reached
        return msgspec.structs.replace(
            result,
            status="timeout" if late else result.status,
            cycle=run.cycles,
            note=incumbent.note or result.note,
            trace=tuple(incumbent.trace),
            work=work_of(incumbent),
        )

    def _first(self, view: View, setup: Setup) -> dict[int, int]:
        """Return a first assignment of this rank's agents: greedy and 1-optimal as far as it knows."""
        backend, problem = setup.backend, view.problem
        search = LocalSearch(problem, problem, self.config.seed, backend.threads, backend.stop)
        found = self.world.together(search.first)
        return {v: int(found[v]) for agent in self.mine for v in self.index.own[agent]}

    def _crossed(self, own: Mapping[int, int]) -> dict[int, int]:
        """Return this rank's agents' values and those that all others share."""
        return {**own, **self.world.merged({v: x for v, x in own.items() if self.index.is_shared[v]})}

    def _plan(self, view: View, stop: Stop) -> tuple[Setup, int]:
        """Agree on numbers and memory, and choose what each agent does; return that with the number of factors."""
        world, config = self.world, self.config
        counted = view.counted(self.mine, self.tree.placed)
        arithmetic, factors = numbers_of(counted, view.division.constants, config.combine, world)
        shares = shares_among(counted, config.budget.bytes, world)
        magnitudes_among(view.division, self.mine, self.tree.placed, world)
        parts = Divided(Asked(view.problem), view.problem, view.problem, config, view.division, arithmetic)
        placed = Placed(self.tree, self.owner, shares, self.told, self.helpers)
        return plan(parts, world, stop=stop, placed=placed), factors

    def _outcome(self, view: View, setup: Setup, cycle: Cycle, sides: Sides, factors: int) -> Outcome | None:
        """Hold what the assignment is worth against what is proven (rank 0)."""
        constants = view.division.constants

        def valued() -> Valued:
            known = dict(cycle.values)
            for agent in self.mine:
                known |= sides.lower.expand(cycle.contexts[agent])
            return value_of(view.counted(self.mine, self.tree.placed), known)

        parts = self.world.gather((self.world.together(valued), cycle.roots))
        if parts is None:
            return None
        worth = worth_of_all([part for part, _ in parts], view.problem, constants)
        roots: dict[int, Number | None] = {}
        for _, part in parts:
            roots |= part
        bound = total_of({agent: roots[agent] for agent in sorted(roots)}, setup.arithmetic)
        if bound is not None and worth.kept == 0:
            bound = max(bound, not_below(worth.utility))
        proof = None if bound is None else Proof([bound], setup.arithmetic, factors)
        return judge(view.problem, worth, constants, proof)

    def _delivered(self, own: OwnParts, values: Mapping[int, int], shared: bool) -> dict[str, Label] | None:
        """Gather the assignment on rank 0, or let each rank write its own agents' values."""
        if shared:
            return self._shared(own.named(values))
        self.world.together(partial(own.write, values))
        return None

    def _shared(self, own: Mapping[int, Mapping[str, Label]]) -> dict[str, Label] | None:
        """Gather the assignment on rank 0."""
        parts = self.world.gather({v: pair for a in own for v, pair in self._numbered(a, own[a])})
        if parts is None:
            return None
        found = {v: pair for part in parts for v, pair in part.items()}
        return dict(found[v] for v in sorted(found))

    def _numbered(self, agent: int, values: Mapping[str, Label]) -> list[tuple[int, tuple[str, Label]]]:
        return list(zip(self.index.own[agent], values.items(), strict=True))

    def _metrics(self, setup: Setup, agent: int, tables: Mapping[int, SampledTable], cycle: Cycle) -> AgentMetrics:
        work = Work(tables[agent], cycle.z[agent][0], cycle.chosen[agent])
        sent = [phase[agent] for phase in cycle.sent if agent in phase]
        return metrics_of(setup, agent, work, self.world.rank, sent, [])

    def _result(
        self,
        setup: Setup,
        outcome: Outcome,
        assignment: dict[str, Label] | None,
        shares: Sequence[_Share],
        seconds: float,
    ) -> Result:
        """Put the ranks' parts together (rank 0)."""
        found: dict[int, AgentMetrics] = {}
        for metrics, *_ in shares:
            found |= metrics
        agents = tuple(found[agent] for agent in sorted(found))
        guarantee, why_not = guarantee_of(setup, agents)
        clock = latest(share[1] for share in shares)
        known = choices_of(setup, agents)
        chosen = {name: what for name, what in known.items() if name not in ("separators", "orders")}  # name variables
        device = "cuda" if any(share[2] for share in shares) else "cpu"
        return Result(
            status=outcome.status,
            objective=outcome.objective,
            bound=outcome.bound,
            gap=outcome.gap,
            violation=outcome.violation,
            assignment=None if outcome.status == "infeasible" else assignment,
            sense="max" if self.index.sense == "max" else "min",
            time=seconds,
            simulated_time=clock.seconds,
            ncccs=clock.checks,
            messages=messages_of(agents),
            control=control_of(share[3] for share in shares),
            msg_count=sum(m.msg_count for m in agents),
            msg_size=sum(m.msg_size for m in agents),
            cycle=1,
            note=why_not,
            agents=agents,
            guarantee=guarantee,
            provenance=provenance(self.config, self.world.size, setup.backend.threads, chosen, device),
        )
