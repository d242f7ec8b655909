"""Every agent's first table: exact, or sampled and bounded. With a time budget, what takes too long is given up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dmcmc.inference.bounds.tighten import Allowance, tighten
from dmcmc.inference.dpop.compression import Rows
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.run.agent.agent import Agent, Means
from dmcmc.run.agent.lower_table import LowerTable
from dmcmc.run.cycle import Sides, gather_sides
from dmcmc.run.setup import Setup
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import FIRST_SHARE, Choice, bound_seconds, sampled_choice
from dmcmc.samplers.auto.survey import SAMPLER
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import Resumable, SampledTable, Sampling
from dmcmc.samplers.methods.exact import at_once
from dmcmc.samplers.row_choice import choose_rows

_FIRST_SWEEPS = 3  # of a row's dual ascent, where no time is given
_CHOSEN, _ASKED = 0.5, 0.8  # of the time budget: then exact agents give up; where local.method asks for them
_LEAST = 0.1  # seconds that exact agents get even when the budget is over
_AMPLE = 3.0  # times its part of that is what one agent may take: most estimates are wrong by the same factor
_GRACE = 0.25  # seconds beyond the budget, and after Ctrl-C, for a first answer that is worth something
_FIRST_LEAST = 0.02  # seconds of an agent's first bound


def first_tables(
    setup: Setup, world: World, mine: Sequence[int], advance: Callable[[int], None]
) -> tuple[Setup, dict[int, Agent], Sides]:
    """Return the setup as it is now, this rank's agents with their first tables, and how those are indexed.

    An exact elimination that takes too long is given up; the agent is sampled instead, and ``setup.choices`` say so on
    all ranks.
    """
    exact, given_up = world.together(partial(_exact_tables, setup, mine, advance))
    setup = setup.changed(world.merged(given_up))
    stop = setup.backend.stop.later(_GRACE) if setup.timed else NO_STOP
    settings = replace(setup.sampling(), progress=advance, backend=replace(setup.backend, stop=stop))
    sides = gather_sides(setup, world, world.together(partial(_row_lists, setup, mine, settings)), {})

    def agents() -> dict[int, Agent]:
        means = Means(setup.arithmetic, setup.backend, setup.config.budget.gap)
        made = {a: _agent(setup, means, a, table) for a, table in exact.items()}
        made |= _sampled_agents(setup, means, [a for a in mine if a not in exact], sides, settings)
        _first_bounds(setup, [made[a] for a in mine if made[a].table.upper is None])
        return made

    return setup, world.together(agents), sides


def _agent(setup: Setup, means: Means, number: int, table: SampledTable) -> Agent:
    """Return an agent with a table over its interface."""
    local = setup.division.locals[number]
    return Agent(means, local, table, LowerTable(local))


def _row_lists(setup: Setup, mine: Sequence[int], settings: Sampling) -> dict[int, Rows]:
    """Return the rows that are sampled of agents with too many."""
    return {a: choose_rows(setup.division.locals[a], setup.listed[a], settings) for a in mine if setup.listed[a]}


def _sampled_agents(
    setup: Setup, means: Means, numbers: Sequence[int], sides: Sides, settings: Sampling
) -> dict[int, Agent]:
    """Return agents whose methods do not eliminate all of them: sampled, those of one method together."""
    agents: dict[int, Agent] = {}
    for method in sorted({setup.methods[a] for a in numbers}):
        batch = [a for a in numbers if setup.methods[a] == method]
        solver, locals_ = registry.get(method), [sides.lower.local(setup.division.locals[a]) for a in batch]
        chains: Sequence[Resumable | None] = [None] * len(batch)
        if setup.timed and isinstance(solver, ChainSolver):
            started = solver.start(locals_, settings)
            chains, tables = started, [run.table() for run in started]
        else:
            tables = solver.solve(locals_, settings)
        for number, local, run, table in zip(batch, locals_, chains, tables, strict=True):
            whole = setup.division.locals[number]
            if local is not whole:  # exact for the listed rows only
                table = replace(table, upper=None)
            agents[number] = Agent(means, whole, table, LowerTable(local, run))
    return agents


def _exact_tables(
    setup: Setup, mine: Sequence[int], advance: Callable[[int], None]
) -> tuple[dict[int, SampledTable], dict[int, Choice]]:
    """Return the tables of this rank's exact agents, and what those do instead that were given up.

    The quick ones come first. Each has time in proportion to its estimate: one that takes much longer than expected
    leaves at least half of what is left to the others. Without a time budget, and for agents that are best eliminated
    together, there are no turns.
    """
    settings = replace(setup.sampling(), progress=advance)
    seconds = {a: setup.choices[a].seconds for a in mine if setup.methods[a] == "exact"}
    agents = sorted(seconds, key=lambda a: (seconds[a], a))
    locals_ = [setup.division.locals[a] for a in agents]
    tables: dict[int, SampledTable] = {}
    given_up: dict[int, Choice] = {}
    end, total = _exact_end(setup), sum(seconds.values())
    for places in at_once(locals_, setup.backend if setup.timed else None):
        group, expected, start = [agents[i] for i in places], sum(seconds[agents[i]] for i in places), _now()
        stop = NO_STOP
        if setup.timed and not any(setup.surveys[a].obstacle for a in group):
            left = max(0.0, end - start)
            part = left * expected / total
            until = min(end, start + max(_LEAST, min(_AMPLE * part, max(part, 0.5 * left))))
            stop = setup.backend.stop.by(until)
        limited = replace(settings, backend=replace(settings.backend, stop=stop))
        try:
            tables |= zip(group, registry.get("exact").solve([locals_[i] for i in places], limited), strict=True)
        except OutOfTime:
            why = f"exact elimination was given up after {_now() - start:.2g} s"
            for agent in group:
                given_up[agent] = sampled_choice(setup.surveys[agent], SAMPLER, why, setup.limits, setup.rates)
        total -= expected
    return tables, given_up


def _now() -> float:
    return time.perf_counter()


def _exact_end(setup: Setup) -> float:
    """Return when exact agents give up."""
    budget = setup.config.budget.time
    if budget is None:
        return float("inf")
    share = _ASKED if setup.config.local.method == "exact" else _CHOSEN
    return max(setup.backend.stop.until - (1 - share) * budget, _now() + _LEAST)


def _first_bounds(setup: Setup, agents: Sequence[Agent]) -> None:
    """Bound tables from above; where there is no time, by the sum of what each factor can be worth."""
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
        started.append(agent)

    def enough(place: int) -> bool:
        started[place].take_bound()
        return started[place].close_enough()

    requests = [agent.request(None) for agent in started]
    tightened = tighten(requests, setup.backend, _first_allowance(setup, started), enough)
    for agent, bound in zip(started, tightened, strict=True):
        agent.take_bound(bound.seconds)


def _first_allowance(setup: Setup, agents: Sequence[Agent]) -> Allowance:
    """Return what the first bounds may take: some time for each, or a fixed amount of work."""
    core, numbers = replace(setup.limits, gpu=False, threads=1), [agent.local.agent for agent in agents]
    effort = sum(
        bound_seconds(setup.surveys[a], core, setup.rates, _FIRST_SWEEPS, setup.choices[a].bound) for a in numbers
    )
    if not setup.timed:
        return Allowance(effort, sweeps=_FIRST_SWEEPS)
    left = FIRST_SHARE * max(0.0, setup.backend.stop.until - _now()) / max(1, len(agents))
    return Allowance(effort, [min(left, max(_FIRST_LEAST, setup.choices[a].first_bound)) for a in numbers])


def _constant(setup: Setup, agent: Agent) -> Table:
    """Return the least that needs no work as a table: the sum of all factors' largest entries, for every row."""
    arithmetic, total = setup.arithmetic, 0
    for factor in agent.local.factors:
        total = max(total + arithmetic.encode(factor).values.max().item(), arithmetic.lowest)
    return Table((), np.array(arithmetic.outward(total, len(agent.local.factors)), dtype=arithmetic.dtype))
