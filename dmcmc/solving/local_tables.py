"""Make every agent's initial table: exact, or sampled and bounded. With a time budget, slow eliminations are given up.

``RankRun.first_tables`` and the private solver call :func:`first_tables`; later improvements of the tables are made by
``dmcmc.anytime.improvers``. A row of an agent's table is one assignment of its boundary variables (its interface). A
rank without own agents may *help* with the rows of another rank's agent; both ranks then form a team.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import dmcmc.solving.tuning as tuning
from dmcmc.inference.bounds.search_rows import TighteningBudget, tighten
from dmcmc.inference.dpop.division import LocalProblem, Rows
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import MpiTeam, World
from dmcmc.results.result import BOUND, EXACT_ELIMINATION, SAMPLING
from dmcmc.samplers import in_team as improve_in_team
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import SAMPLER, AgentChoice, bound_seconds, sampled_choice
from dmcmc.samplers.chain_solver import ChainSolver, choose_rows
from dmcmc.samplers.contract.protocol import Resumable, SampledTable, Sampling, broadcast_from_first
from dmcmc.samplers.contract.tuning import FIRST_TABLE_SECONDS, UNTRIED_SHARE
from dmcmc.samplers.methods.blocks import BlockSolver, draws_are_frozen, sample_agent
from dmcmc.samplers.methods.exact import EliminatedTables, eliminate_in_turn
from dmcmc.solving.agent.agent import Agent, AgentContext
from dmcmc.solving.agent.bounds import MeasuredGain, agents_with_relaxation_in_time, uncombined_bounds
from dmcmc.solving.agent.checkpoint import Checkpoint, continue_sampling, resume_bound, start_bound
from dmcmc.solving.agent.filtered_table import FilteredTable
from dmcmc.solving.agent.tables import LowerTable
from dmcmc.solving.agent_steps import Sides, gather_sides

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup


class InitialTables(NamedTuple):
    """The initial tables of a rank.

    Attributes
    ----------
    setup : Setup
        The plan; agents whose elimination was given up have another method in ``choices``.
    agents : dict of int to Agent
        This rank's agents, with their initial tables.
    sides : Sides
        How the lower and the upper tables are indexed.
    helped : Resumable or None
        Chains of another rank's agent, some rows of which were sampled here; they can be resumed.
    """

    setup: "Setup"
    agents: dict[int, Agent]
    sides: Sides
    helped: Resumable | None


def team_of(setup: "Setup", world: World, private: bool = False) -> MpiTeam:
    """Return the ranks that work on the rows of one agent with this rank; all ranks enter and leave this context."""
    helped = setup.agent_helped_by(world.rank)
    agents = setup.agents_of_rank(world.rank) if helped is None else [helped]
    return MpiTeam(world, agents[0] if any(setup.helpers) else None, helped is None, private)


class ExactTables(NamedTuple):
    """The tables of the agents that this rank has eliminated exactly.

    Attributes
    ----------
    setup : Setup
        The plan; agents whose elimination was given up have another method in ``choices``, on all ranks.
    found : EliminatedTables
        The tables by agent, and the seconds after which eliminations were given up.
    checkpoint : Checkpoint or None
        The checkpoint of this rank's finished tables, if there is one.
    """

    setup: "Setup"
    found: EliminatedTables
    checkpoint: Checkpoint | None


def exact_tables(
    setup: "Setup",
    team: MpiTeam,
    world: World,
    best: NDArray[np.int64] | None,
    advance: Callable[[int], None],
    goal_is_reached: Callable[[], bool] = lambda: False,
) -> ExactTables:
    """Eliminate the exact agents of this rank, or of the rank that it helps; called by all ranks.

    An exact elimination that takes too long is given up and the agent is sampled instead. Agents that cannot be
    sampled, and all agents if their eliminations take little of the time budget, are never given up for lack of their
    share of the time.

    Parameters
    ----------
    setup
        The plan.
    team
        The ranks that work on the rows of one agent.
    world
        All ranks.
    best
        The best assignment so far; None if there is none.
    advance
        Called with the number of further rows that are done.
    goal_is_reached
        Returns whether the run has reached its goal; called on rank 0.

    Raises
    ------
    OutOfTime
        If eliminations were given up because the run has reached its goal.
    """
    checkpoint = None if team.rank else _checkpoint(setup, best)
    sampled: dict[int, AgentChoice] = {}
    with team.sharing_errors():
        work = _exact_work(setup, advance, checkpoint, team, world.rank)
        found = eliminate_in_turn(work.optional, work.settings, setup.divided.timed, on_finished=work.on_finished)
        if work.required:  # these agents have no alternative to elimination
            never_gives_up, stop = setup.divided.timed and setup.never_given_up, setup.backend.stop
            stop = stop.later(tuning.FIRST_ANSWER_GRACE) if never_gives_up else stop
            settings = replace(work.settings, backend=replace(setup.backend, stop=stop))
            more = eliminate_in_turn(work.required, settings, setup.divided.timed, True, work.on_finished)
            if more.given_up and (stop.over or not never_gives_up):
                raise OutOfTime("out of time")
            found.tables.update(more.tables)
            found.given_up.update(more.given_up)  # they did not fit the memory
        if found.given_up and not setup.divided.timed and setup.divided.config.local.method == "exact":
            raise OutOfMemory("local.method: exact: the tables of all agents together do not fit; raise budget.memory")
        found.tables.update(work.loaded)
        _retain(setup, work, found)
        for agent, spent in found.given_up.items():
            reason = f"exact elimination was given up after {spent:.2g} s"
            sampled[agent] = sampled_choice(setup.surveys[agent], SAMPLER, reason, setup.limits, setup.rates)
    sampled = world.union({} if team.rank else sampled)
    goal_reached: bool = bool(sampled) and world.on_first_rank(goal_is_reached)
    if goal_reached:
        raise OutOfTime("out of time")
    return ExactTables(setup.with_choices(sampled), found, checkpoint)


def first_tables(
    exact: ExactTables,
    team: MpiTeam,
    world: World,
    best: NDArray[np.int64] | None,
    advance: Callable[[int], None],
    gap_is_met: Callable[[Mapping[int, Number]], bool],
) -> InitialTables:
    """Make the initial tables of this rank's agents; called by all ranks.

    Sampling gets only a share of the remaining time, so that the first combination comes soon.

    Parameters
    ----------
    exact
        The tables of the agents that were eliminated exactly, and the plan.
    team
        The ranks that work on the rows of one agent.
    world
        All ranks.
    best
        The best assignment so far, from whose hidden values the chains of all rows start; None if there is none.
    advance
        Called with the number of further rows that are done.
    gap_is_met
        ``gap_is_met(bounds)`` returns whether upper bounds of some agents make the gap as small as requested.
    """
    setup, found, checkpoint = exact
    helped, mine = setup.agent_helped_by(world.rank), setup.agents_of_rank(world.rank)
    settings = _first_sampling(setup, best, advance)
    sides = gather_sides(setup, world, world.on_all_ranks(partial(_choose_row_lists, setup, mine, settings)), {})
    settings = replace(settings, team=team)
    if helped is not None:
        with team.sharing_errors():
            chains = _help_another_rank(setup, helped, sides, settings)
        return InitialTables(setup, {}, sides, chains)
    with team.sharing_errors():
        agents = _make_agents(setup, mine, found, sides, settings, checkpoint, best, gap_is_met)
    return InitialTables(setup, agents, sides, None)


def _first_sampling(setup: "Setup", best: NDArray[np.int64] | None, advance: Callable[[int], None]) -> Sampling:
    """Return the sampling settings of the initial tables."""
    stop = setup.backend.stop.later(tuning.FIRST_ANSWER_GRACE) if setup.divided.timed else NO_DEADLINE
    seconds = tuning.SAMPLING_SHARE * initial_seconds(setup) if setup.divided.timed else None
    incumbent = None if setup.divided.config.local_search == "none" else best
    backend = replace(setup.backend, stop=stop)
    return replace(setup.sampling_settings(), progress=advance, backend=backend, seconds=seconds, incumbent=incumbent)


def _make_agents(
    setup: "Setup",
    mine: Sequence[int],
    exact: EliminatedTables,
    sides: Sides,
    settings: Sampling,
    checkpoint: Checkpoint | None,
    best: NDArray[np.int64] | None,
    gap_is_met: Callable[[Mapping[int, Number]], bool],
) -> dict[int, Agent]:
    """Return this rank's agents: eliminated exactly, loaded from the checkpoint, or sampled and bounded."""

    def bounds_of(agents: Mapping[int, Agent]) -> dict[int, Number]:
        return uncombined_bounds(
            setup.divided.division,
            setup.divided.arithmetic,
            [a for a in agents if agents[a].table.upper is not None],
            agents,
        )

    context = AgentContext(setup.sampling_settings(), setup.divided.config.budget.gap)
    agents_so_far = {a: _exact_agent(setup, context, a, table) for a, table in exact.tables.items()}
    if checkpoint is not None and not setup.divided.timed:
        agents_so_far |= _load_agents(setup, context, [a for a in mine if a not in agents_so_far], sides, checkpoint)
    remaining = [a for a in mine if a not in agents_so_far]
    if settings.team.size > 1:
        broadcast_from_first(settings.team, bool(remaining))
    for numbers in _batches(setup, remaining, checkpoint is not None):
        new = _sampled_agents(setup, context, numbers, sides, settings)
        for number, spent in exact.given_up.items():
            if number in new:
                new[number].failed_elimination_seconds = spent
                new[number].gains.append(MeasuredGain(EXACT_ELIMINATION, spent, new[number].elimination_seconds or 0.0))
        agents_so_far.update(new)
        unbounded = [agents_so_far[a] for a in numbers if agents_so_far[a].table.upper is None]
        _first_bounds(setup, unbounded, lambda: gap_is_met(bounds_of(agents_so_far)))
        if checkpoint is not None and not setup.divided.timed:
            _save(setup, new.values(), checkpoint)
    if not setup.divided.timed:
        for agent in agents_so_far.values():
            if agent.filtered is not None:
                agent.filter(best, setup.backend, float("inf"))
    if settings.team.size > 1:
        improve_in_team.end(settings.team)
    return agents_so_far


def _help_another_rank(setup: "Setup", number: int, sides: Sides, settings: Sampling) -> Resumable | None:
    """Sample some rows of another rank's agent, unless it has a table already; return its chains."""
    method, chains = setup.methods[number], None
    if broadcast_from_first(settings.team, False) and isinstance(registry.get(method), ChainSolver | BlockSolver):
        chains = _sampled(setup, method, [sides.lower.local(setup.divided.division.locals[number])], settings)[1][0]
    return improve_in_team.help_on(chains, settings.backend, settings.team)


def _checkpoint(setup: "Setup", best: NDArray[np.int64] | None) -> Checkpoint | None:
    """Return the checkpoint of this rank's finished tables, if there is one; its key is independent of the clock."""
    folder, config = setup.divided.config.checkpoint, setup.divided.config
    if folder is None:
        return None
    settings = msgspec.json.encode([config.local, config.seed]) + (b"" if best is None else best.tobytes())
    return Checkpoint(folder, setup.divided.arithmetic, replace(setup.backend, stop=NO_DEADLINE), settings)


def _load_agents(
    setup: "Setup", context: AgentContext, numbers: Sequence[int], sides: Sides, checkpoint: Checkpoint
) -> dict[int, Agent]:
    """Return those sampled agents whose tables are in the checkpoint."""
    agents: dict[int, Agent] = {}
    for number in numbers:
        local, choice = sides.lower.local(setup.divided.division.locals[number]), setup.choices[number]
        if not setup.may_filter(number) and (table := checkpoint.load(local, choice.method, choice.bound)) is not None:
            agents[number] = Agent(context, setup.divided.division.locals[number], table, LowerTable(local))
    return agents


def _save(setup: "Setup", agents: Iterable[Agent], checkpoint: Checkpoint) -> None:
    """Save the tables of sampled agents in the checkpoint, except those of agents that will be filtered."""
    for agent in agents:
        if agent.filtered is None:
            checkpoint.save(setup.choices[agent.local.agent].bound, agent.lower.local, agent.table)


def _batches(setup: "Setup", numbers: Sequence[int], has_checkpoint: bool) -> Iterator[list[int]]:
    """Yield batches of agents to sample together: all of them, or, with a checkpoint, batches of a few seconds."""
    batch, seconds = list[int](), 0.0
    for number in numbers:
        batch.append(number)
        seconds += setup.choices[number].seconds
        if has_checkpoint and not setup.divided.timed and seconds >= tuning.BATCH_SECONDS:
            yield batch
            batch, seconds = [], 0.0
    if batch:
        yield batch


def _exact_agent(setup: "Setup", context: AgentContext, number: int, table: SampledTable) -> Agent:
    """Return an agent with an exact table."""
    local, choice = setup.divided.division.locals[number], setup.choices[number]
    gains = [MeasuredGain(EXACT_ELIMINATION, table.seconds, choice.seconds)]
    return Agent(context, local, table, LowerTable(local), gains=gains)


def _choose_row_lists(setup: "Setup", mine: Sequence[int], settings: Sampling) -> dict[int, Rows]:
    """Return the sampled rows of the agents that have too many rows to sample all.

    Raises
    ------
    OutOfTime
        If the deadline passes after the first agent.
    """
    chosen: dict[int, Rows] = {}
    for agent in mine:
        if setup.listed_rows[agent]:
            if chosen:
                settings.backend.stop.check()
            chosen[agent] = choose_rows(setup.divided.division.locals[agent], setup.listed_rows[agent], settings)
    return chosen


def _sampled_agents(
    setup: "Setup", context: AgentContext, numbers: Sequence[int], sides: Sides, settings: Sampling
) -> dict[int, Agent]:
    """Sample the agents that are not eliminated exactly, in one batch per method; return them with their tables."""
    agents: dict[int, Agent] = {}
    checks_frozen_chains = setup.divided.config.local.method == "auto"
    for method in sorted({setup.methods[a] for a in numbers}):
        batch = [a for a in numbers if setup.methods[a] == method]
        locals_ = [sides.lower.local(setup.divided.division.locals[a]) for a in batch]
        tables, chains = _sampled(setup, method, locals_, settings)
        for number, local, agent_chains, table in zip(batch, locals_, chains, tables, strict=True):
            full_problem = setup.divided.division.locals[number]
            if local is not full_problem:  # exact for the listed rows only
                table = replace(table, upper=None)
            agent = Agent(context, full_problem, table, LowerTable(local, agent_chains))
            agent.checks_for_frozen_chains, agent.team = checks_frozen_chains, settings.team
            agent.elimination_seconds, agent.gains = (
                setup.exact_seconds(number),
                [MeasuredGain(SAMPLING, table.seconds)],
            )
            continue_sampling(agent, setup.divided.retained_bounds, setup.divided.problem.agents[number])
            if setup.may_filter(number):
                agent.filtered = FilteredTable(setup.limits.memory, setup.divided.timed)
            agents[number] = agent
    return agents


def _sampled(
    setup: "Setup", method: str, locals_: Sequence[LocalProblem], settings: Sampling
) -> tuple[list[SampledTable], Sequence[Resumable | None]]:
    """Return the agents' sampled tables, and their chains if sampling can be resumed later (otherwise None)."""
    solver, tables = registry.get(method), list[SampledTable]()
    if setup.divided.timed and isinstance(solver, ChainSolver | BlockSolver):
        started: Sequence[Any] = solver.start(locals_, settings)
        for chains in started:
            settings.backend.stop.check()
            tables.append(chains.table())
        return tables, started
    if setup.divided.config.local.method == "auto" and isinstance(solver, ChainSolver):
        started = solver.start(locals_, settings)
        tables = [
            _unfrozen_table(local, agent_chains, settings) for local, agent_chains in zip(locals_, started, strict=True)
        ]
    else:
        tables = solver.solve(locals_, settings)
    return tables, [None] * len(locals_)


def _unfrozen_table(local: LocalProblem, chains: Resumable, settings: Sampling) -> SampledTable:
    """Return an agent's sampled table; if its chains are frozen, improve it by block moves.

    Chains are frozen if single-variable draws hardly ever change a value, or end with violations.
    """
    table = chains.table()
    if not draws_are_frozen(local, chains.states):
        return table
    more = sample_agent(local, settings, chains.states, local.rows).table()
    return replace(more, seconds=table.seconds + more.seconds, updates=table.updates)


class _ExactWork(NamedTuple):
    """The exact eliminations of a rank.

    Attributes
    ----------
    loaded : dict of SampledTable
        Tables that are known already, by agent.
    agents : list of (LocalProblem, float)
        All exact agents, with the estimated seconds of their eliminations.
    optional, required : list of (LocalProblem, float)
        The agents to eliminate: those that may be given up, and the others.
    settings : Sampling
        Settings of the eliminations that may be given up.
    on_finished : callable or None
        Called with each finished table.
    """

    loaded: dict[int, SampledTable]
    agents: list[tuple[LocalProblem, float]]
    optional: list[tuple[LocalProblem, float]]
    required: list[tuple[LocalProblem, float]]
    settings: Sampling
    on_finished: Callable[[LocalProblem, SampledTable], None] | None


def _exact_work(
    setup: "Setup", advance: Callable[[int], None], checkpoint: Checkpoint | None, team: MpiTeam, rank: int
) -> _ExactWork:
    """Return the exact eliminations of this rank, without those whose tables are known."""
    helped = setup.agent_helped_by(rank)
    served = setup.agents_of_rank(rank) if helped is None else [helped]
    loaded: dict[int, SampledTable] = {}
    exact_agents = [
        (setup.divided.division.locals[a], setup.choices[a].seconds) for a in served if setup.methods[a] == "exact"
    ]
    if checkpoint is not None:
        found_before = {local.agent: checkpoint.load(local, "exact", "none") for local, _ in exact_agents}
        loaded = {agent: table for agent, table in found_before.items() if table is not None}
    agents, retained = setup.divided.problem.agents, setup.divided.retained
    if retained is not None and not team.rank:  # the first rank of a team decides whether there is work
        for local in [
            setup.divided.division.locals[a] for a in served if setup.methods[a] == "exact" or setup.divided.timed
        ]:
            kept = retained.find_table(agents[local.agent], local, setup.divided.arithmetic)
            if kept is not None and not setup.listed_rows[local.agent]:
                loaded[local.agent] = kept
    exact = [(local, seconds) for local, seconds in exact_agents if local.agent not in loaded]
    if team.size > 1 and not broadcast_from_first(team, bool(exact)):
        exact = []
    backend = replace(setup.backend, stop=setup.backend.stop.by(_exact_end(setup)))
    settings = replace(setup.sampling_settings(), progress=advance, backend=backend, team=team)
    obstacles = setup.facts.get_or_compute(
        "obstacles", lambda: frozenset(work.agent for work in setup.surveys if work.obstacle)
    )
    must_be_exact = {a for a in served if a in obstacles or (setup.divided.timed and setup.never_given_up)}
    optional, required = (
        [pair for pair in exact if (pair[0].agent in must_be_exact) == kind] for kind in (False, True)
    )
    on_finished = None if checkpoint is None else partial(checkpoint.save, "none")
    return _ExactWork(loaded, exact_agents, optional, required, settings, on_finished)


def _retain(setup: "Setup", work: _ExactWork, found: EliminatedTables) -> None:
    """Retain the exact tables for later runs of a session."""
    if setup.divided.retained is not None:
        for local, _ in work.agents:
            if local.agent in found.tables:
                name = setup.divided.problem.agents[local.agent]
                setup.divided.retained.keep_table(name, local, setup.divided.arithmetic, found.tables[local.agent])


def _now() -> float:
    """Return the clock's time in seconds."""
    return time.perf_counter()


def _exact_end(setup: "Setup") -> float:
    """Return the time (``time.perf_counter``) at which exact agents give up; inf without a time budget.

    That is after 0.8 of the time budget if all agents are exact, else after 0.5. If ``local.method`` is ``auto``, it is
    also at most twice the estimated seconds from now (or half of the usual time for first tables, if that is more).
    """
    budget = setup.divided.config.budget.time
    if budget is None:
        return float("inf")
    if all(method == "exact" for method in setup.methods):
        return max(setup.backend.stop.until - (1 - tuning.ALL_EXACT_SHARE) * budget, _now() + tuning.MIN_EXACT_SECONDS)
    end = setup.backend.stop.until - (1 - tuning.EXACT_SHARE) * budget
    if (
        setup.divided.config.local.method == "auto"
    ):  # a given-up elimination is proposed again when all agents have a table
        planned = sum(choice.seconds for choice in setup.choices if choice.method == "exact")
        end = min(
            end,
            _now() + max(tuning.EXACT_SHARE * min(budget, FIRST_TABLE_SECONDS), tuning.ELIMINATION_TOLERANCE * planned),
        )
    return max(end, _now() + tuning.MIN_EXACT_SECONDS)


def initial_seconds(setup: "Setup") -> float:
    """Return the seconds for the initial tables; later time goes to the agents with the largest gaps."""
    left = max(0.0, setup.backend.stop.until - _now())
    return min(max(FIRST_TABLE_SECONDS, tuning.INITIAL_SHARE * left), left)


def _first_bounds(setup: "Setup", agents: Sequence[Agent], gap_is_met: Callable[[], bool]) -> None:
    """Make upper-bound tables of agents. If there is no time, the bound is the sum of the factors' largest entries.

    Parameters
    ----------
    agents
        Agents without an upper table.
    gap_is_met
        Returns whether the gap is as small as requested; tightening then stops.
    """
    stop, started = setup.backend.stop.later(tuning.FIRST_ANSWER_GRACE), list[Agent]()
    for agent in agents:
        start, provider = _now(), setup.choices[agent.local.agent].bound
        kept = setup.divided.retained_bounds, setup.divided.problem.agents[agent.local.agent]
        if provider == "none":
            continue
        if not resume_bound(agent, provider, *kept):
            if setup.divided.timed and stop.over:
                agent.table = replace(agent.table, upper=(_constant(setup, agent),))
                continue
            start_bound(agent, provider, *kept)
        agent.table = replace(agent.table, seconds=agent.table.seconds + _now() - start)
        agent.gains.append(MeasuredGain(BOUND, _now() - start))
        started.append(agent)

    def is_tight_enough(position: int) -> bool:
        started[position].update_bound()
        return started[position].close_enough() or gap_is_met()

    requests = [agent.bound_request(None) for agent in started]
    tightened = tighten(requests, setup.backend, _first_allowance(setup, started), is_tight_enough)
    for agent, seconds in zip(started, tightened, strict=True):
        agent.update_bound(seconds)
        agent.gains.append(MeasuredGain(BOUND, seconds))


def _first_allowance(setup: "Setup", agents: Sequence[Agent]) -> TighteningBudget:
    """Return the effort of the first bounds: seconds per agent, or a fixed number of sweeps."""
    one_core, numbers = replace(setup.limits, gpu=False, threads=1), [agent.local.agent for agent in agents]
    effort = sum(
        bound_seconds(setup.surveys[a], one_core, setup.rates, tuning.FIRST_SWEEPS, setup.choices[a].bound)
        for a in numbers
    )
    if not setup.divided.timed:
        return TighteningBudget(effort, sweeps=tuning.FIRST_SWEEPS)
    seconds_each = UNTRIED_SHARE * initial_seconds(setup) / max(1, len(agents))
    with_relaxation = {agent.local.agent for agent in agents_with_relaxation_in_time(agents, setup.backend)}
    seconds_of = {
        a: tuning.MIN_FIRST_BOUND_SECONDS
        if a in with_relaxation
        else max(tuning.MIN_FIRST_BOUND_SECONDS, setup.choices[a].first_bound)
        for a in numbers
    }
    return TighteningBudget(effort, [min(seconds_each, seconds_of[a]) for a in numbers])


def _constant(setup: "Setup", agent: Agent) -> EncodedTable:
    """Return an agent's cheapest upper bound, the sum of all factors' largest entries, as a table without variables."""
    arithmetic, total = setup.divided.arithmetic, 0
    for factor in agent.local.factors:
        total = max(total + arithmetic.encode(factor).values.max().item(), arithmetic.lowest)
    return EncodedTable((), np.array(arithmetic.outward(total, len(agent.local.factors)), dtype=arithmetic.dtype))
