"""Solve a problem of which each rank reads only its own agents' parts (a private run).

All ranks know the index: the agents, and the scopes of the factors between them. It determines the agents' pseudo-tree
and the placement of agents on ranks. Arithmetic, choices, evaluation and bound are agreed by sums and by counts of
work. The agents exchange DPOP's messages, over variables that they share.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from dmcmc.algorithms import registry
from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import AgentIndex, read_agent, read_index
from dmcmc.inference.model.exact_sum import round_up
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import Clock, latest
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge
from dmcmc.results.provenance import provenance
from dmcmc.results.result import AgentMetrics, Result
from dmcmc.run.agent_steps import Sides
from dmcmc.run.compilation import agent_kernel_sets, kernel_sets
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.run.compilation.prepare_gpu import prepare_gpu
from dmcmc.run.distribution.rank_view import RankView, rank_view_of
from dmcmc.run.incumbent import total_of
from dmcmc.run.initial_tables import first_tables, team_of
from dmcmc.run.metrics import (
    AgentWork,
    checks_of,
    choices_of,
    control_of,
    guarantee_of,
    messages_of,
    metrics_of,
    work_of,
)
from dmcmc.run.monitoring.interrupt import Interrupt, RunHandle
from dmcmc.run.monitoring.progress import NoProgress, ProgressReporter
from dmcmc.run.planning.divided_problem import DividedProblem, with_memory_limit, work_deadline
from dmcmc.run.planning.plan import agree_on_tree, plan
from dmcmc.run.planning.setup import Setup
from dmcmc.run.planning.work_counts import AgreedPlacement
from dmcmc.run.presolve.restore_result import OriginalProblem
from dmcmc.run.private.agents_start import AgentsStart
from dmcmc.run.private.agree_on_problem import (
    PartialUtility,
    agree_on_arithmetic,
    divide_memory,
    partial_utility,
    share_magnitudes,
    total_quality,
)
from dmcmc.run.private.anytime import PrivateIncumbent, PrivateRun
from dmcmc.run.private.rank_assignment import RankAssignment
from dmcmc.run.solve import solve_tiny
from dmcmc.run.util_value_cycle import Cycle, run_cycle
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.local_search.local_search import LocalSearch

AgentReader = Callable[[AgentIndex, int], Problem]
# One rank's part of the result: metrics, clock, whether a GPU was used, message counts
_RankPart = tuple[Mapping[int, AgentMetrics], Clock, bool, Mapping[str, tuple[int, int]]]


def solve_directory(
    folder: str | os.PathLike[str],
    config: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    share_assignment: bool = False,
    ending: RunHandle | None = None,
) -> Result | None:
    """Solve a problem that ``dmcmc split`` has written; called by every rank with the same arguments.

    Parameters
    ----------
    folder
        Folder of the agents' files. Rank 0 reads the index, every rank its own agents' files.
    config
        Settings of the run.
    world
        The ranks; this process alone if None.
    progress
        Receives this rank's progress.
    share_assignment
        Whether to gather the assignment. Otherwise each rank keeps its agents' values, and writes one file per agent
        into a folder next to ``config.output``, if that is given.
    ending
        As for :func:`dmcmc.run.solve.solve`. A result that is delivered early, without other ranks, has no assignment;
        each rank then writes its agents' values next to ``config.output``.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a file is wrong or a table does not fit the memory; raised on every rank.
    """
    world = world or World()
    try:
        _refuse(config)
        index = world.on_first_rank(lambda: read_index(folder))
        config = with_memory_limit(config, world)
        with MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()):
            run = _PrivateSolver(index, config, world, progress or NoProgress())
            return run.solve(partial(read_agent, folder), share_assignment, ending)
    except BaseException as error:
        world.abort_on_exit(error)
        raise


def _refuse(config: Settings) -> None:
    """Raise an error for settings that need the whole problem on one rank."""
    if config.local.order is not None:
        raise Unavailable("problem.directory: agents find their orders themselves; leave local.order out")
    if (algorithm_name := config.algorithm_settings.name) != registry.OWN:
        raise Unavailable(f"problem.directory: is solved by {registry.OWN}, not {algorithm_name}; leave algorithm out")
    if isinstance(config.start, dict):
        raise Unavailable("problem.directory: start: is the folder of agents' values that an earlier run has written")
    if config.search not in ("auto", "none"):
        raise Unavailable(f"problem.directory: search: {config.search} needs the whole problem; give problem.file")


class _PrivateSolver:
    """One rank's part of a private run.

    Attributes
    ----------
    public_view : RankView
        The problem as every rank knows it, without any agent's own part.
    tree : PseudoTree
        The agents' pseudo-tree.
    owner : sequence of int
        The rank of each agent.
    helpers : sequence
        For each agent, the ranks that help with its rows.
    mine : list of int
        This rank's agents.
    known : list of int
        The agents whose files this rank reads: its own, or the one that it helps.
    """

    def __init__(self, index: AgentIndex, config: Settings, world: World, progress: ProgressReporter) -> None:
        self.index, self.config, self.world, self.progress = index, config, world, progress
        self.public_view = public_view = rank_view_of(index, {})
        self.tree, self.tree_messages = agree_on_tree(public_view.problem, public_view.division, config.combine, world)
        work = list(map(float, index.table_entries))
        self.owner = place(work, self.tree.parent, world.size)
        self.helpers = helpers_of(work, self.owner, world.size)
        self.mine = [agent for agent, rank in enumerate(self.owner) if rank == world.rank]
        helped = [agent for agent, ranks in enumerate(self.helpers) if world.rank in ranks]
        self.known = self.mine or helped  # a helper of another rank's agent reads that agent's file itself

    def solve(self, read: AgentReader, share_assignment: bool, ending: RunHandle | None = None) -> Result | None:
        """Read this rank's parts, plan, make tables, combine them, and gather the result."""
        with KernelSupply(self.world, self.config, self.progress) as kernels:
            result = self._solve(read, share_assignment, ending, kernels)
            seconds = sum(self.world.allgather(kernels.seconds))
            return None if result is None else msgspec.structs.replace(result, time_compiling=seconds)

    def _solve(
        self, read: AgentReader, share_assignment: bool, ending: RunHandle | None, kernels: KernelSupply
    ) -> Result | None:
        """Start the clock; read this rank's parts, plan, make tables, combine them, and gather the result."""
        world, config = self.world, self.config
        needed = [kernel_sets.planning(config), kernel_sets.order_search()]
        kernels.request(*needed)
        start = time.perf_counter()
        parts = world.on_all_ranks(lambda: {agent: read(self.index, agent) for agent in self.known})
        self.agents_start = world.on_all_ranks(lambda: AgentsStart(self.index, parts, config))
        parts = self.agents_start.with_costs(parts)
        view = rank_view_of(self.index, parts)
        storage = RankAssignment(self.index, self.mine, view.problem, parts, config)
        if config.budget.time is not None:
            return self._anytime(view, storage, start, share_assignment, ending, kernels)
        setup, factors = self._plan(view, NO_DEADLINE)
        kernels.request(*world.bcast(agent_kernel_sets.agent_work(setup, "none", solve_tiny).tables))
        self.progress.stage("local tables", len(self.mine))
        with team_of(setup, world, private=True) as team:
            setup, agents, sides, _ = first_tables(
                setup,
                team,
                world,
                None,
                self.progress.advance,
                gap_is_met=lambda bounds: False,
                goal_is_reached=lambda: False,
            )
        self.progress.stage("combining")
        tables = world.on_all_ranks(lambda: {number: agent.exported() for number, agent in agents.items()})
        clocks = {a: Clock(table.seconds, checks_of(setup, a, table)) for a, table in tables.items()}
        cycle = run_cycle(setup, Mailbox(world, setup.owner), clocks, tables, sides, NO_DEADLINE)
        outcome = self._outcome(view, setup, cycle, sides, factors)
        assignment = self._deliver(storage, cycle.values, share_assignment)
        metrics = world.on_all_ranks(lambda: {a: self._metrics(setup, a, tables, cycle) for a in self.mine})
        shares = world.gather((metrics, latest(clocks.values()), is_gpu_in_use(), world.message_counts()))
        result = None
        if shares is not None:
            assert outcome is not None
            result = self._result(setup, outcome, assignment, shares, time.perf_counter() - start)
        return self.agents_start.report(result, self.mine, cycle.values, share_assignment, world)

    def _anytime(
        self,
        view: RankView,
        storage: RankAssignment,
        start: float,
        share_assignment: bool,
        ending: RunHandle | None,
        kernels: KernelSupply,
    ) -> Result | None:
        """Run cycles until the time is over or the goal is reached."""
        world, progress, handle = self.world, self.progress, ending or RunHandle()
        seconds = self.config.budget.time or 0.0
        stop = Deadline(work_deadline(start, seconds, len(self.index.agents)), cancellation=handle.cancellation)
        try:
            setup, factors = self._plan(view, stop)
        except OutOfTime as error:  # without a plan there is no answer, so plan without a deadline
            if not world.is_agreed(error):
                raise
            setup, factors = self._plan(view, NO_DEADLINE)
        needed = world.bcast(agent_kernel_sets.agent_work(setup, "deadline", solve_tiny))
        later = world.bcast(agent_kernel_sets.for_improvers(setup, needed))
        compile_seconds = kernels.request(*needed.tables, *later.values())
        setup, gpu_seconds = prepare_gpu(setup, world, progress, kernels, stop)
        compile_seconds += gpu_seconds
        start, stop = start + compile_seconds, replace(stop, until=stop.until + compile_seconds)
        incumbent = PrivateIncumbent(
            view.problem, self.config, start, stop.until, progress.point, setup, factors=factors
        )

        def evaluate(known: Mapping[int, int]) -> AssignmentQuality | None:
            counted = view.counted(self.mine, self.tree.placed)
            parts = world.gather(world.on_all_ranks(lambda: partial_utility(counted, known)))
            return None if parts is None else total_quality(parts, view.problem, view.division.constants)

        armed = Interrupt(stop, armed=ending is None)
        with handle.deliver_if_late(stop), armed, team_of(setup, world, private=True) as team:
            run = PrivateRun(setup.with_stop(stop), world, incumbent, progress, evaluate, storage, team)
            run.is_ready = lambda improver: improver not in later or kernels.is_ready(later[improver])
            saved, initial = world.on_all_ranks(storage.load), self._initial_values(view, setup.with_stop(stop))
            run.take(self._with_shared_values(initial))  # this also saves it
            for known in (self.agents_start.values(self.mine), saved):
                if any(world.allgather(bool(known))):
                    run.take(self._with_shared_values(initial | known))
            handle.save_partial = lambda: storage.leave(run.best)
            handle.best = partial(self._best_so_far, run, incumbent)
            try:
                run.first_tables()
                while not (directive := run.agree(run.combine())).stop:
                    run.improve(directive)
            except (OutOfTime, OutOfMemory) as error:
                run.give_up(error)
        storage.end()
        assignment = self._deliver(storage, run.best, share_assignment)
        shares = world.gather(
            (run.agents_metrics(), latest(run.clocks.values()), is_gpu_in_use(), world.message_counts())
        )
        result = None if shares is None else self._timed_result(run, incumbent, assignment, shares)
        return self.agents_start.report(result, self.mine, run.best, share_assignment, world)

    def _best_so_far(self, run: PrivateRun, incumbent: PrivateIncumbent) -> Result | None:
        """Return the result if the run ended now (rank 0); callable from any thread, without other ranks."""
        if self.world.rank > 0:
            return None
        incumbent.timed_out = True
        return self._timed_result(run, incumbent, None, [({}, Clock(), is_gpu_in_use(), {})])

    def _timed_result(
        self,
        run: PrivateRun,
        incumbent: PrivateIncumbent,
        assignment: dict[str, Label] | None,
        shares: Sequence[_RankPart],
    ) -> Result:
        """Return the result of a run with a time budget, from all ranks' parts (rank 0)."""
        result = self._result(run.setup, incumbent.outcome, assignment, shares, time.perf_counter() - incumbent.start)
        timed_out = incumbent.timed_out and not incumbent.reached
        return msgspec.structs.replace(
            result,
            status="timeout" if timed_out else result.status,
            cycle=run.cycles,
            note=incumbent.note or result.note,
            trace=tuple(incumbent.trace),
            work=work_of(incumbent),
        )

    def _initial_values(self, view: RankView, setup: Setup) -> dict[int, int]:
        """Return a greedy assignment of this rank's agents, 1-optimal with respect to the factors that it knows."""
        backend, problem = setup.backend, view.problem
        search = LocalSearch(problem, problem, self.config.seed, backend.threads, backend.stop)
        values = self.world.on_all_ranks(search.first)
        return {v: int(values[v]) for agent in self.mine for v in self.index.variables_by_agent[agent]}

    def _with_shared_values(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return the values of this rank's agents, and those of all shared variables."""
        return {**values, **self.world.union({v: x for v, x in values.items() if self.index.is_shared[v]})}

    def _plan(self, view: RankView, stop: Deadline) -> tuple[Setup, int]:
        """Agree on arithmetic and memory, and plan; return the plan and the number of factors."""
        world, config = self.world, self.config
        counted = view.counted(self.mine, self.tree.placed)
        arithmetic, factors = agree_on_arithmetic(counted, view.division.constants, config.combine, world)
        shares = divide_memory(counted, config.budget.bytes, world)
        share_magnitudes(view.division, self.mine, self.tree.placed, world)
        parts = DividedProblem(
            OriginalProblem(view.problem), view.problem, view.problem, config, view.division, arithmetic
        )
        placed = AgreedPlacement(self.tree, self.owner, shares, self.tree_messages, self.helpers)
        return plan(parts, world, stop=stop, placed=placed), factors

    def _outcome(self, view: RankView, setup: Setup, cycle: Cycle, sides: Sides, factors: int) -> SolveOutcome | None:
        """Return the outcome of the assignment and the bound (rank 0)."""
        constants = view.division.constants

        def evaluate() -> PartialUtility:
            known = dict(cycle.values)
            for agent in self.mine:
                known |= sides.lower.expand(cycle.contexts[agent])
            return partial_utility(view.counted(self.mine, self.tree.placed), known)

        parts = self.world.gather((self.world.on_all_ranks(evaluate), cycle.roots))
        if parts is None:
            return None
        quality = total_quality([part for part, _ in parts], view.problem, constants)
        roots: dict[int, Number | None] = {}
        for _, part in parts:
            roots |= part
        bound = total_of({agent: roots[agent] for agent in sorted(roots)}, setup.arithmetic)
        if bound is not None and quality.negated_violation == 0:
            bound = max(bound, round_up(quality.utility))
        proof = None if bound is None else BoundProof([bound], setup.arithmetic, factors)
        return judge(view.problem, quality, constants, proof)

    def _deliver(self, storage: RankAssignment, values: Mapping[int, int], shared: bool) -> dict[str, Label] | None:
        """Return the assignment on rank 0, or let each rank write its own agents' values."""
        if shared:
            return self._gather_assignment(storage.by_name(values))
        self.world.on_all_ranks(partial(storage.write, values))
        return None

    def _gather_assignment(self, named_values: Mapping[int, Mapping[str, Label]]) -> dict[str, Label] | None:
        """Gather the assignment on rank 0."""
        parts = self.world.gather({v: pair for a in named_values for v, pair in self._numbered(a, named_values[a])})
        if parts is None:
            return None
        label_by_variable = {v: pair for part in parts for v, pair in part.items()}
        return dict(label_by_variable[v] for v in sorted(label_by_variable))

    def _numbered(self, agent: int, values: Mapping[str, Label]) -> list[tuple[int, tuple[str, Label]]]:
        """Return (variable index, (variable name, value)) for each variable of an agent."""
        return list(zip(self.index.variables_by_agent[agent], values.items(), strict=True))

    def _metrics(self, setup: Setup, agent: int, tables: Mapping[int, SampledTable], cycle: Cycle) -> AgentMetrics:
        """Return the metrics of an agent."""
        work = AgentWork(tables[agent], cycle.z[agent][0], cycle.chosen[agent])
        sent = [phase[agent] for phase in cycle.sent if agent in phase]
        return metrics_of(setup, agent, work, self.world.rank, sent, [])

    def _result(
        self,
        setup: Setup,
        outcome: SolveOutcome,
        assignment: dict[str, Label] | None,
        shares: Sequence[_RankPart],
        seconds: float,
    ) -> Result:
        """Return the result, put together from all ranks' parts (rank 0)."""
        metrics_by_agent: dict[int, AgentMetrics] = {}
        for metrics, *_ in shares:
            metrics_by_agent |= metrics
        agents = tuple(metrics_by_agent[agent] for agent in sorted(metrics_by_agent))
        guarantee, why_not = guarantee_of(setup, agents)
        clock = latest(share[1] for share in shares)
        choices = choices_of(setup, agents)
        public_choices = {
            name: choice for name, choice in choices.items() if name not in ("separators", "orders")
        }  # the others name variables
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
            provenance=provenance(self.config, self.world.size, setup.backend.threads, public_choices, device),
        )
