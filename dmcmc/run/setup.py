"""What every rank knows before the work starts: the problem divided, its numbers, the agents' tree, methods, places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from dmcmc.config.settings import Cooling, Settings
from dmcmc.inference.dpop.division import Division, LocalProblem, divide
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import cores, run_parallel
from dmcmc.mpi.placement import place_agents
from dmcmc.mpi.world import World
from dmcmc.run.combination import arithmetic_for
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import CPU_CELLS, Choice, Limits, choose, exact_option, fixed_choice
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.samplers.auto.survey import Survey, survey
from dmcmc.samplers.contract.protocol import Settings as SolverSettings
from dmcmc.samplers.model.schedule import Temperature

_QUICK = 0.05  # of the time budget
_ENUMERATED, _LISTED = 1 << 17, 4096  # rows of a sampled agent: all of them up to here, else so many


@dataclass(frozen=True)
class Task:
    """What every rank knows before the work starts.

    Attributes
    ----------
    original : Problem
        What was asked; the answer is evaluated on it.
    problem : Problem
        The same as dense tables; variables beyond the original ones are hidden states.
    surveys, choices : tuple
        Each agent's work, counted, and what it does.
    limits, rates
        What the choices were made by.
    owner : tuple of int
        The rank of each agent.
    """

    original: Problem
    problem: Problem
    config: Settings
    division: Division
    arithmetic: Arithmetic
    tree: PseudoTree
    surveys: tuple[Survey, ...]
    choices: tuple[Choice, ...]
    limits: Limits
    rates: Rates
    owner: tuple[int, ...]
    backend: Backend

    @property
    def methods(self) -> tuple[str, ...]:
        """The local solver of each agent."""
        return tuple(choice.method for choice in self.choices)

    @property
    def listed(self) -> tuple[int, ...]:
        """How many rows a sampled agent's table has where that is not all of them; 0 for all."""
        return tuple(choice.listed for choice in self.choices)

    def settings(self) -> SolverSettings:
        """Return what local solvers are told."""
        options = self.config.local
        return SolverSettings(
            arithmetic=self.arithmetic,
            seed=self.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=temperature_of(options.temperature),
            backend=self.backend,
        )


def prepare(original: Problem, config: Settings, world: World) -> Task:
    """Divide the problem, choose each agent's method and place the agents: the same on every rank.

    The costly part, planning each agent's elimination, is shared out among the ranks.
    """
    problem = densify(original, config.budget.memory).problem
    division = divide(problem)
    arithmetic = arithmetic_for(problem, config.combine)
    surveyed: list[Survey] = []
    failure: DmcmcError | None = None
    mine = division.locals[world.rank :: world.size]
    threads = max(1, cores() // world.local_size)
    try:
        if config.local.method in ("auto", "exact"):
            run_parallel([partial(getattr, local, "plan") for local in mine], threads)
        for local in mine:
            surveyed.append(_survey(local, config, arithmetic))
    except DmcmcError as error:
        failure = error
    shares = world.allgather(failure or surveyed)
    for share in shares:
        if isinstance(share, DmcmcError):
            raise share
    surveys = tuple(shares[agent % world.size][agent // world.size] for agent in range(problem.n_agents))
    backend = Backend.of(config.device, threads, world.local_size)
    limits, rates = _limits(surveys, config, world, backend)
    choices = _choose(surveys, config.local.method, limits, rates)
    return Task(
        original=original,
        problem=problem,
        config=config,
        division=division,
        arithmetic=arithmetic,
        tree=build_pseudotree(problem, division),
        surveys=surveys,
        choices=tuple(choices),
        limits=limits,
        rates=rates,
        owner=place_agents([choice.seconds for choice in choices], world.size),
        backend=backend,
    )


def _survey(local: LocalProblem, config: Settings, arithmetic: Arithmetic) -> Survey:
    """Count an agent's work; raise what forbids a method that was asked for."""
    options, memory, method = config.local, config.budget.memory, config.local.method
    most = _ENUMERATED if options.rows == "auto" else options.rows
    listed = 0 if local.rows <= most else (_LISTED if options.rows == "auto" else options.rows)
    if method != "auto":
        checked = local
        if listed and method != "exact":
            hidden = (*local.interface, *local.hidden)
            checked = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
        registry.get(method).check(checked, memory, arithmetic)
    planned = method in ("auto", "exact")
    return survey(local, listed, options.runs, options.samples, memory, arithmetic, planned)


def _choose(surveys: Sequence[Survey], method: str, limits: Limits, rates: Rates) -> list[Choice]:
    """Choose what each agent does, the same on every rank."""
    if method != "auto":
        return [fixed_choice(work, method, limits, rates) for work in surveys]
    return choose(surveys, limits, rates)


def _limits(surveys: Sequence[Survey], config: Settings, world: World, backend: Backend) -> tuple[Limits, Rates]:
    """Return what the run may take, and how fast it is: what rank 0 finds, told to all."""
    time, cells = config.budget.time, config.local.cells
    limits = Limits(
        time=time,
        gap=config.budget.gap,
        memory=config.budget.memory,
        cells=None if cells == "auto" else cells,
        threads=1 if time is None else backend.threads,  # without a time budget nothing depends on the machine
        ranks=world.size,
        bound=config.local.bound,
    )
    if config.local.method != "auto":
        return limits, NOMINAL
    found: tuple[Limits, Rates] | None = None
    if world.rank == 0:
        needed = [exact_option(work, limits, NOMINAL).seconds for work in surveys]
        open_already = config.device == "cuda"
        if open_already or (config.device == "auto" and _wants_a_gpu(surveys, needed, limits)):
            limits = replace(limits, gpu=gpu_problem() is None, opened=open_already)
        # What is quick by far needs no measuring.
        measured = time is not None and sum(needed) > _QUICK * time
        found = limits, load_rates() if measured else NOMINAL
    agreed: tuple[Limits, Rates] = world.bcast(found)
    return agreed


def _wants_a_gpu(surveys: Sequence[Survey], seconds: Sequence[float], limits: Limits) -> bool:
    """Return whether a GPU could change the choice: to look for one takes a moment."""
    if limits.time is not None:
        return limits.time > NOMINAL.gpu_open and sum(seconds) > NOMINAL.gpu_open
    return limits.cells is None and any(work.cells > CPU_CELLS for work in surveys)


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configuration's temperature as samplers take it."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))


def largest_join(task: Task) -> int:
    """Return the entries of the largest table that combining can take, if all an agent meets was one table."""
    tree, most = task.tree, 1
    for local in task.division.locals:
        met = {*local.interface, *tree.separators[local.agent]}
        for child in tree.children[local.agent]:
            met.update(tree.separators[child])
        most = max(most, prod(int(task.problem.domains[v]) for v in met))
    return most
