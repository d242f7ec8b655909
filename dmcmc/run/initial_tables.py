"""Every agent's first table: exact, or sampled and bounded. With a time budget, what takes too long is given up."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.tighten import Allowance, tighten
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.interface_rows import Rows
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.team import Team
from dmcmc.mpi.world import World
from dmcmc.run.agent.agent import Agent, Means
from dmcmc.run.agent.checkpoint import Checkpoint
from dmcmc.run.agent.filtered_table import FilteredTable
from dmcmc.run.agent.lower_table import LowerTable
from dmcmc.run.agent.uncombined_bound import loose_bounds
from dmcmc.run.agent_steps import Sides, gather_sides
from dmcmc.run.improvers.exact_elimination import Eliminated, eliminate_in_turn
from dmcmc.run.improvers.semidefinite import soon_lifted
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import BOUND, ELIMINATE, SAMPLE, Brought
from dmcmc.samplers import improve_in_team, registry
from dmcmc.samplers.auto.choose import FIRST_SHARE, SOON, Choice, bound_seconds, sampled_choice
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import Resumable, SampledTable, Sampling
from dmcmc.samplers.contract.team import said_by_first
from dmcmc.samplers.methods.block_chains import frozen
from dmcmc.samplers.methods.blocks import BlockSolver, sampled_from
from dmcmc.samplers.row_choice import choose_rows

_FIRST_SWEEPS = 3  # of a row's dual ascent, where no time is given
_SOME, _ALL = 0.5, 0.8  # of the time budget: then exact agents give up; where all agents are
_PLANNED = 2.0  # times what eliminations should take: then they are given up, where other agents wait for a table
_SAMPLED = 0.2  # of the time that first tables have a share of goes to the first samples at most
_FIRST = 0.25  # of a long time budget is what they have a share of
_LEAST = 0.1  # seconds that exact agents get even when the budget is over
_GRACE = 0.25  # seconds beyond the budget, and after Ctrl-C, for a first answer that is worth something
_PORTION = 2.0  # seconds of sampling, about, after which what is finished is kept
_FIRST_LEAST = 0.02  # seconds of an agent's first bound


class First(NamedTuple):
    """What first tables come to on a rank.

    Attributes
    ----------
    setup : Setup
        As it is now.
    agents : dict
        This rank's, with their first tables.
    sides : Sides
        How those are indexed.
    helped : Resumable or None
        The chains of another rank's agent, a share of whose rows was sampled here: to go on with.
    """

    setup: Setup
    agents: dict[int, Agent]
    sides: Sides
    helped: Resumable | None


def team_of(setup: Setup, world: World, private: bool = False) -> Team:
    """Return the ranks that work on the rows of one agent with this rank; a context that all ranks enter and leave."""
    helped = setup.helped_by(world.rank)
    agents = setup.of_rank(world.rank) if helped is None else [helped]
    return Team(world, agents[0] if any(setup.helpers) else None, helped is None, private)


def first_tables(
    setup: Setup,
    team: Team,
    world: World,
    best: NDArray[np.int64] | None,
    advance: Callable[[int], None],
    near: Callable[[Mapping[int, Number]], bool],
    ended: Callable[[], bool],
) -> First:
    """Make this rank's agents' first tables.

    An exact elimination that takes too long is given up; the agent is sampled instead, and ``setup.choices`` say so on
    all ranks. Sampling has a part of the time that is left, so that there soon is a first combination.

    Parameters
    ----------
    best
        The best assignment so far: rows begin with its hidden values; None where nobody has one.
    near
        Whether at most what some agents can be worth makes the gap as small as was asked for.
    ended
        Whether nothing more is wanted; asked on rank 0.

    Raises
    ------
    OutOfTime
        If eliminations were given up because nothing more is wanted: what would be sampled then is of no use.
    """
    helped, mine = setup.helped_by(world.rank), setup.of_rank(world.rank)
    served = mine if helped is None else [helped]
    checkpoint = None if team.rank else _checkpoint(setup, best)
    eliminating = partial(_exact_tables, setup, served, advance, checkpoint, team)
    exact, given_up = world.together(partial(team.run, eliminating))
    sampled = world.merged({} if team.rank else given_up)
    over: bool = bool(sampled) and world.decided(ended)
    if over:
        raise OutOfTime("out of time")
    setup = setup.changed(sampled)
    settings = _first_sampling(setup, best, advance)
    sides = gather_sides(setup, world, world.together(partial(_row_lists, setup, mine, settings)), {})
    settings = replace(settings, team=team)
    if helped is not None:
        helping = partial(_help, setup, helped, sides, settings)
        return First(setup, {}, sides, world.together(partial(team.run, helping)))
    sampling = partial(_agents, setup, mine, exact, sides, settings, checkpoint, best, near)
    return First(setup, world.together(partial(team.run, sampling)), sides, None)


def _first_sampling(setup: Setup, best: NDArray[np.int64] | None, advance: Callable[[int], None]) -> Sampling:
    """Return what local solvers are told for first tables."""
    stop = setup.backend.stop.later(_GRACE) if setup.timed else NO_STOP
    seconds = _SAMPLED * _soon(setup) if setup.timed else None
    known = None if setup.config.polish == "none" else best
    backend = replace(setup.backend, stop=stop)
    return replace(setup.sampling(), progress=advance, backend=backend, seconds=seconds, incumbent=known)


def _agents(
    setup: Setup,
    mine: Sequence[int],
    exact: Eliminated,
    sides: Sides,
    settings: Sampling,
    checkpoint: Checkpoint | None,
    best: NDArray[np.int64] | None,
    near: Callable[[Mapping[int, Number]], bool],
) -> dict[int, Agent]:
    """Return this rank's agents: those that have been eliminated, and all others sampled and bounded."""

    def bounds_of(agents: Mapping[int, Agent]) -> dict[int, Number]:
        return loose_bounds(
            setup.division, setup.arithmetic, [a for a in agents if agents[a].table.upper is not None], agents
        )

    means = Means(setup.sampling(), setup.config.budget.gap)
    made = {a: _agent(setup, means, a, table) for a, table in exact.tables.items()}
    if checkpoint is not None and not setup.timed:
        made |= _restored(setup, means, [a for a in mine if a not in made], sides, checkpoint)
    left = [a for a in mine if a not in made]
    if settings.team.size > 1:
        said_by_first(settings.team, bool(left))
    for numbers in _portions(setup, left, checkpoint is not None):
        new = _sampled_agents(setup, means, numbers, sides, settings)
        for number, spent in exact.given_up.items():
            if number in new:
                new[number].in_vain = spent
                new[number].brought.append(Brought(ELIMINATE, spent, new[number].price or 0.0))
        made.update(new)
        unbounded = [made[a] for a in numbers if made[a].table.upper is None]
        _first_bounds(setup, unbounded, lambda: near(bounds_of(made)))
        if checkpoint is not None and not setup.timed:
            _keep(setup, new.values(), checkpoint)
    if not setup.timed:
        for agent in made.values():
            if agent.filtered is not None:
                agent.filter(best, setup.backend, float("inf"))
    improve_in_team.end(settings.team)
    return made


def _help(setup: Setup, number: int, sides: Sides, settings: Sampling) -> Resumable | None:
    """Work on a share of the rows of another rank's agent, if that has no table of it yet; return its chains."""
    method, chains = setup.methods[number], None
    if said_by_first(settings.team, False) and isinstance(registry.get(method), ChainSolver | BlockSolver):
        chains = _sampled(setup, method, [sides.lower.local(setup.division.locals[number])], settings)[1][0]
    return improve_in_team.help_on(chains, settings.backend, settings.team)


def _checkpoint(setup: Setup, best: NDArray[np.int64] | None) -> Checkpoint | None:
    """Return where this rank's finished tables are kept, if anywhere; what depends on the clock is not."""
    folder, config = setup.config.checkpoint, setup.config
    if folder is None:
        return None
    settings = msgspec.json.encode([config.local, config.seed]) + (b"" if best is None else best.tobytes())
    return Checkpoint(folder, setup.arithmetic, replace(setup.backend, stop=NO_STOP), settings)


def _restored(
    setup: Setup, means: Means, numbers: Sequence[int], sides: Sides, checkpoint: Checkpoint
) -> dict[int, Agent]:
    """Return those of some sampled agents whose tables have been kept."""
    agents: dict[int, Agent] = {}
    for number in numbers:
        local, choice = sides.lower.local(setup.division.locals[number]), setup.choices[number]
        if not setup.filters(number) and (table := checkpoint.find(local, choice.method, choice.bound)) is not None:
            whole, weight = setup.division.locals[number], setup.weights[number]
            agents[number] = Agent(means, whole, table, LowerTable(local), weight=weight)
    return agents


def _keep(setup: Setup, agents: Iterable[Agent], checkpoint: Checkpoint) -> None:
    """Keep the tables of sampled agents, but for those that will be filtered."""
    for agent in agents:
        if agent.filtered is None:
            checkpoint.keep(setup.choices[agent.local.agent].bound, agent.below.local, agent.table)


def _portions(setup: Setup, numbers: Sequence[int], kept: bool) -> Iterator[list[int]]:
    """Yield agents that are sampled together: all, or, where their tables are kept, so many that it takes a while."""
    portion, seconds = list[int](), 0.0
    for number in numbers:
        portion.append(number)
        seconds += setup.choices[number].seconds
        if kept and not setup.timed and seconds >= _PORTION:
            yield portion
            portion, seconds = [], 0.0
    if portion:
        yield portion


def _agent(setup: Setup, means: Means, number: int, table: SampledTable) -> Agent:
    """Return an agent with an exact table."""
    local, choice = setup.division.locals[number], setup.choices[number]
    brought = [Brought(ELIMINATE, table.seconds, choice.seconds)]
    return Agent(means, local, table, LowerTable(local), weight=setup.weights[number], brought=brought)


def _row_lists(setup: Setup, mine: Sequence[int], settings: Sampling) -> dict[int, Rows]:
    """Return the rows that are sampled of agents with too many."""
    return {a: choose_rows(setup.division.locals[a], setup.listed[a], settings) for a in mine if setup.listed[a]}


def _sampled_agents(
    setup: Setup, means: Means, numbers: Sequence[int], sides: Sides, settings: Sampling
) -> dict[int, Agent]:
    """Return agents whose methods do not eliminate all of them: sampled, those of one method together."""
    agents: dict[int, Agent] = {}
    watched = setup.config.local.method == "auto"
    for method in sorted({setup.methods[a] for a in numbers}):
        batch = [a for a in numbers if setup.methods[a] == method]
        locals_ = [sides.lower.local(setup.division.locals[a]) for a in batch]
        tables, chains = _sampled(setup, method, locals_, settings)
        for number, local, run, table in zip(batch, locals_, chains, tables, strict=True):
            whole = setup.division.locals[number]
            if local is not whole:  # exact for the listed rows only
                table = replace(table, upper=None)
            agent = Agent(means, whole, table, LowerTable(local, run), weight=setup.weights[number])
            agent.watched, agent.team = watched, settings.team
            agent.price, agent.brought = setup.exact_price(number), [Brought(SAMPLE, table.seconds)]
            if setup.filters(number):
                agent.filtered = FilteredTable(setup.limits.memory, setup.timed)
            agents[number] = agent
    return agents


def _sampled(
    setup: Setup, method: str, locals_: Sequence[LocalProblem], settings: Sampling
) -> tuple[list[SampledTable], Sequence[Resumable | None]]:
    """Return sampled tables, and chains to go on with later where that may be."""
    solver, tables = registry.get(method), list[SampledTable]()
    if setup.timed and isinstance(solver, ChainSolver | BlockSolver):
        started: Sequence[Any] = solver.start(locals_, settings)
        for begun in started:
            settings.backend.stop.check()
            tables.append(begun.table())
        return tables, started
    if setup.config.local.method == "auto" and isinstance(solver, ChainSolver):
        started = solver.start(locals_, settings)
        tables = [_thawed(local, one, settings) for local, one in zip(locals_, started, strict=True)]
    else:
        tables = solver.solve(locals_, settings)
    return tables, [None] * len(locals_)


def _thawed(local: LocalProblem, chains: Resumable, settings: Sampling) -> SampledTable:
    """Return what an agent's chains have found; where they are frozen, what block moves then make of it."""
    table = chains.table()
    if not frozen(local, chains.states):
        return table
    more = sampled_from(local, settings, chains.states, local.rows).table()
    return replace(more, seconds=table.seconds + more.seconds, updates=table.updates)


def _exact_tables(
    setup: Setup, served: Sequence[int], advance: Callable[[int], None], checkpoint: Checkpoint | None, team: Team
) -> tuple[Eliminated, dict[int, Choice]]:
    """Return the tables of exact agents, and what those do instead that were given up."""
    kept: dict[int, SampledTable] = {}
    wanted = [(setup.division.locals[a], setup.choices[a].seconds) for a in served if setup.methods[a] == "exact"]
    if checkpoint is not None:
        found_before = {local.agent: checkpoint.find(local, "exact", "none") for local, _ in wanted}
        kept = {agent: table for agent, table in found_before.items() if table is not None}
    finished = None if checkpoint is None else partial(checkpoint.keep, "none")
    exact = [(local, seconds) for local, seconds in wanted if local.agent not in kept]
    if team.size > 1 and not said_by_first(team, bool(exact)):
        exact = []
    stop = setup.backend.stop.by(_exact_end(setup))
    settings = replace(setup.sampling(), progress=advance, backend=replace(setup.backend, stop=stop), team=team)
    sure = setup.timed and setup.never_given_up
    obstacles = setup.facts.once("obstacles", lambda: frozenset(w.agent for w in setup.surveys if w.obstacle))

    def has_to_be(local: LocalProblem) -> bool:
        return sure or local.agent in obstacles

    found = eliminate_in_turn([one for one in exact if not has_to_be(one[0])], settings, setup.timed, finished=finished)
    if needed := [one for one in exact if has_to_be(one[0])]:  # there is no other way
        stop = setup.backend.stop.later(_GRACE) if sure else setup.backend.stop
        settings = replace(settings, backend=replace(setup.backend, stop=stop))
        more = eliminate_in_turn(needed, settings, setup.timed, patient=True, finished=finished)
        if more.given_up and (stop.over or not sure):
            raise OutOfTime("out of time")
        found.tables.update(more.tables)
        found.given_up.update(more.given_up)  # memory was short
    if found.given_up and not setup.timed and setup.config.local.method == "exact":
        raise OutOfMemory("local.method: exact: an agent's tables do not fit beside the others'; raise budget.memory")
    found.tables.update(kept)
    sampled = {}
    for agent, spent in found.given_up.items():
        why = f"exact elimination was given up after {spent:.2g} s"
        sampled[agent] = sampled_choice(setup.surveys[agent], SAMPLER, why, setup.limits, setup.rates)
    return found, sampled


def _now() -> float:
    return time.perf_counter()


def _exact_end(setup: Setup) -> float:
    """Return when exact agents give up: there is little else to do with the time where all are."""
    budget = setup.config.budget.time
    if budget is None:
        return float("inf")
    if all(method == "exact" for method in setup.methods):
        return max(setup.backend.stop.until - (1 - _ALL) * budget, _now() + _LEAST)
    end = setup.backend.stop.until - (1 - _SOME) * budget
    if setup.config.local.method == "auto":  # what is given up is offered again, when all have a table
        planned = sum(choice.seconds for choice in setup.choices if choice.method == "exact")
        end = min(end, _now() + max(_SOME * min(budget, SOON), _PLANNED * planned))
    return max(end, _now() + _LEAST)


def _soon(setup: Setup) -> float:
    """Return the seconds that first tables have a share of: what comes later goes where the gap is."""
    left = max(0.0, setup.backend.stop.until - _now())
    return min(max(SOON, _FIRST * left), left)


def _first_bounds(setup: Setup, agents: Sequence[Agent], near: Callable[[], bool]) -> None:
    """Bound tables from above; where there is no time, by the sum of what each factor can be worth.

    Parameters
    ----------
    near
        Whether the gap is as small as was asked for.
    """
    stop, started = setup.backend.stop.later(_GRACE), list[Agent]()
    for agent in agents:
        start, provider = _now(), setup.choices[agent.local.agent].bound
        if provider == "none":
            continue
        if setup.timed and stop.over:
            agent.table = replace(agent.table, upper=(_constant(setup, agent),))
            continue
        agent.start_bound(provider)
        agent.table = replace(agent.table, seconds=agent.table.seconds + _now() - start)
        agent.brought.append(Brought(BOUND, _now() - start))
        started.append(agent)

    def enough(place: int) -> bool:
        started[place].take_bound()
        return started[place].close_enough() or near()

    requests = [agent.request(None) for agent in started]
    tightened = tighten(requests, setup.backend, _first_allowance(setup, started), enough)
    for agent, bound in zip(started, tightened, strict=True):
        agent.take_bound(bound.seconds)
        agent.brought.append(Brought(BOUND, bound.seconds))


def _first_allowance(setup: Setup, agents: Sequence[Agent]) -> Allowance:
    """Return what the first bounds may take: some time for each, or a fixed amount of work."""
    core, numbers = replace(setup.limits, gpu=False, threads=1), [agent.local.agent for agent in agents]
    effort = sum(
        bound_seconds(setup.surveys[a], core, setup.rates, _FIRST_SWEEPS, setup.choices[a].bound) for a in numbers
    )
    if not setup.timed:
        return Allowance(effort, sweeps=_FIRST_SWEEPS)
    left = FIRST_SHARE * _soon(setup) / max(1, len(agents))
    lifted = {agent.local.agent for agent in soon_lifted(agents, setup.backend)}
    most = {a: _FIRST_LEAST if a in lifted else max(_FIRST_LEAST, setup.choices[a].first_bound) for a in numbers}
    return Allowance(effort, [min(left, most[a]) for a in numbers])


def _constant(setup: Setup, agent: Agent) -> Table:
    """Return the least that needs no work as a table: the sum of all factors' largest entries, for every row."""
    arithmetic, total = setup.arithmetic, 0
    for factor in agent.local.factors:
        total = max(total + arithmetic.encode(factor).values.max().item(), arithmetic.lowest)
    return Table((), np.array(arithmetic.outward(total, len(agent.local.factors)), dtype=arithmetic.dtype))
