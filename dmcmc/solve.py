"""The whole path: Problem → agents' local problems → tables → UTIL up → VALUE down → Result.

The only place that sees all of it. The same code runs in one process and on every rank of a run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmcmc.combination import arithmetic_for, relaxation_of, shift_rooms
from dmcmc.config import Config, Cooling, Local
from dmcmc.inference.agents import Division, LocalProblem, divide
from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.backends import Backend
from dmcmc.inference.densify import densify
from dmcmc.inference.device import opened
from dmcmc.inference.dpop import UtilMessage, UtilStep, util_step
from dmcmc.inference.errors import DmcmcError
from dmcmc.inference.problem import Problem
from dmcmc.inference.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.threads import cores
from dmcmc.mpi.phases import Post, Sent, util_phase, value_phase
from dmcmc.mpi.placement import place_agents
from dmcmc.mpi.world import World
from dmcmc.outcome import Outcome, judge
from dmcmc.progress import Progress, Silent
from dmcmc.provenance import provenance
from dmcmc.result import AgentMetrics, Result, TracePoint, guarantee_report
from dmcmc.samplers import registry
from dmcmc.samplers.auto import choose_method
from dmcmc.samplers.protocol import SampledTable, Settings
from dmcmc.samplers.schedule import Temperature


@dataclass(frozen=True)
class Task:
    """What every rank knows before the work starts.

    Attributes
    ----------
    original : Problem
        What was asked; the answer is evaluated on it.
    problem : Problem
        The same as dense tables; variables beyond the original ones are hidden states.
    methods : tuple of str
        The local solver of each agent.
    owner : tuple of int
        The rank of each agent.
    """

    original: Problem
    problem: Problem
    config: Config
    division: Division
    arithmetic: Arithmetic
    tree: PseudoTree
    methods: tuple[str, ...]
    owner: tuple[int, ...]
    backend: Backend


def solve(
    problem: Problem, config: Config, world: World | None = None, progress: Progress | None = None
) -> Result | None:
    """Solve a problem; called by every rank with the same arguments.

    Parameters
    ----------
    problem
        What to solve.
    config
        How; its ``problem`` section is not looked at.
    world
        The ranks, from :func:`dmcmc.mpi.world.connect`; this process alone if None.
    progress
        Told how far this rank is.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a table does not fit the memory, or a method is not known; on every rank alike.
    """
    world, progress = world or World(), progress or Silent()
    start = time.perf_counter()
    task = _prepare(problem, config, world)
    mine = [agent for agent, rank in enumerate(task.owner) if rank == world.rank]
    progress.stage("local tables", len(mine))
    tables = _local_tables(task, mine, progress)
    progress.stage("combining")
    clocks = {agent: tables[agent].seconds for agent in mine}
    post = Post(world, task.owner)
    steps, up = util_phase(task.tree, post, clocks, _util_work(task, tables))
    values, down = value_phase(task.tree, post, clocks, steps, lambda agent, b: tables[agent].witness(b))
    metrics = [(a, _metrics(task, a, tables[a], steps[a], world.rank, (up.get(a, Sent()), down[a]))) for a in mine]
    roots = {a: steps[a].total for a in mine if task.tree.parent[a] < 0}
    gathered = world.gather((values, metrics, roots, max(clocks.values(), default=0.0), opened()))
    if gathered is None:
        return None
    return _result(task, gathered, world, time.perf_counter() - start)


def _prepare(original: Problem, config: Config, world: World) -> Task:
    """Divide the problem, choose each agent's method and place the agents: the same on every rank.

    The costly part, planning each agent's elimination, is shared out among the ranks.
    """
    problem = densify(original, config.budget.memory).problem
    division = divide(problem)
    arithmetic = arithmetic_for(problem, config.combine)
    surveyed: list[tuple[str, float]] = []
    failure: DmcmcError | None = None
    try:
        surveyed = [
            _survey(local, config.local, config.budget.memory, arithmetic)
            for local in division.locals[world.rank :: world.size]
        ]
    except DmcmcError as error:
        failure = error
    shares = world.allgather(failure or surveyed)
    for share in shares:
        if isinstance(share, DmcmcError):
            raise share
    choices = [shares[agent % world.size][agent // world.size] for agent in range(problem.n_agents)]
    return Task(
        original=original,
        problem=problem,
        config=config,
        division=division,
        arithmetic=arithmetic,
        tree=build_pseudotree(problem, division),
        methods=tuple(method for method, _ in choices),
        owner=place_agents([cost for _, cost in choices], world.size),
        backend=Backend.of(config.device, max(1, cores() // world.local_size), world.local_size),
    )


def _survey(local: LocalProblem, options: Local, memory: int, arithmetic: Arithmetic) -> tuple[str, float]:
    """Return an agent's method and roughly what it costs, in table cells."""
    method = options.method
    if method == "auto":
        method = choose_method(local, options.cells, memory, arithmetic)
    solver = registry.get(method)
    solver.check(local, memory, arithmetic)
    if method == "exact":
        return method, float(local.plan.cells)
    return method, float(local.rows) * options.runs * options.samples * len(local.hidden) * 50


def _settings(task: Task, progress: Progress) -> Settings:
    options = task.config.local
    return Settings(
        arithmetic=task.arithmetic,
        seed=task.config.seed,
        runs=options.runs,
        samples=options.samples,
        temperature=temperature_of(options.temperature),
        backend=task.backend,
        progress=progress.advance,
    )


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configuration's temperature as samplers take it."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))


def _local_tables(task: Task, mine: Sequence[int], progress: Progress) -> dict[int, SampledTable]:
    """Return the table of each of this rank's agents, solved in one batch a method."""
    tables: dict[int, SampledTable] = {}
    settings = _settings(task, progress)
    for method in sorted({task.methods[a] for a in mine}):
        batch = [a for a in mine if task.methods[a] == method]
        solved = registry.get(method).solve([task.division.locals[a] for a in batch], settings)
        tables |= dict(zip(batch, solved, strict=True))
    return tables


def _util_work(task: Task, tables: Mapping[int, SampledTable]) -> Callable[[int, list[UtilMessage]], UtilStep]:
    """Return the UTIL step of an agent as a function of its children's messages."""
    relaxation = relaxation_of(task.config.combine)
    rooms = shift_rooms(task.division, task.tree, task.arithmetic)

    def work(agent: int, messages: list[UtilMessage]) -> UtilStep:
        crossing = [task.arithmetic.encode(task.division.crossing[i]) for i in task.tree.placed[agent]]
        return util_step(
            [*tables[agent].lower, *crossing],
            messages,
            task.division.locals[agent].interface,
            task.tree.separators[agent],
            task.problem.domains,
            task.arithmetic,
            backend=task.backend,
            memory=task.config.budget.memory,
            name=task.problem.agents[agent],
            relaxation=relaxation,
            room=rooms[agent],
        )

    return work


def _metrics(
    task: Task, agent: int, table: SampledTable, step: UtilStep, rank: int, sent: tuple[Sent, Sent]
) -> AgentMetrics:
    local = task.division.locals[agent]
    own = range(task.original.n_variables)
    return AgentMetrics(
        name=task.problem.agents[agent],
        method=table.method,
        exact=table.exact,
        variables=sum(v in own for v in (*local.interface, *local.hidden)),
        interface=sum(v in own for v in local.interface),
        rank=rank,
        rows=local.rows,
        cells=table.cells,
        updates=table.updates,
        time=table.seconds,
        msg_count=sum(s.count for s in sent),
        msg_size=sum(s.size for s in sent),
        z=step.z,
    )


def _result(task: Task, gathered: Sequence[tuple], world: World, seconds: float) -> Result:  # type: ignore[type-arg]
    """Put the ranks' parts together; the assignment is evaluated on the original factors."""
    problem = task.original
    chosen: dict[int, int] = {}
    metrics: dict[int, AgentMetrics] = {}
    roots: dict[int, int | float] = {}
    for values, agents, totals, *_ in gathered:
        chosen |= values
        metrics |= dict(agents)
        roots |= totals
    agents_in_order = tuple(metrics[a] for a in range(problem.n_agents))
    values = np.array([chosen[v] for v in range(problem.n_variables)], dtype=np.int64)
    proven = all(m.exact for m in agents_in_order)
    outcome: Outcome = judge(
        problem,
        values,
        [roots[a] for a in sorted(roots)] if proven else None,
        task.arithmetic,
        task.division.constants,
        addends=len(task.problem.factors),
    )
    options = task.config.local
    sampled = sum(not m.exact for m in agents_in_order)
    report = options.guarantee and guarantee_report(
        options.guarantee.alpha, options.guarantee.epsilon, options.runs * options.samples, sampled
    )
    return Result(
        status=outcome.status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=None if outcome.status == "infeasible" else problem.assignment(values),
        sense="max" if problem.sense == "max" else "min",
        time=seconds,
        simulated_time=max(clock for *_, clock, _ in gathered),
        msg_count=sum(m.msg_count for m in agents_in_order),
        msg_size=sum(m.msg_size for m in agents_in_order),
        agents=agents_in_order,
        trace=(TracePoint(seconds, outcome.objective, outcome.bound),),
        guarantee=report or None,
        provenance=provenance(
            task.config,
            world.size,
            task.backend.threads,
            _plan(task, agents_in_order),
            "cuda" if any(gpu for *_, gpu in gathered) else "cpu",
        ),
    )


def _plan(task: Task, agents: Sequence[AgentMetrics]) -> dict[str, object]:
    """Return what was chosen, as plain data."""
    names = task.problem.agents
    return {
        "arithmetic": task.arithmetic.dtype.name,
        "pseudo_tree": {names[a]: names[p] if p >= 0 else None for a, p in enumerate(task.tree.parent)},
        "separators": {
            names[a]: [task.problem.variables[v] for v in sep] for a, sep in enumerate(task.tree.separators) if sep
        },
        "methods": dict(zip(names, task.methods, strict=True)),
        "combine": {a.name: "exact" if a.z is None else f"mini-bucket, z = {a.z}" for a in agents},
        "ranks": dict(zip(names, task.owner, strict=True)),
    }
