"""What every rank knows before the work starts: the problem divided, its numbers, the agents' tree, methods, places."""

from dataclasses import dataclass

from dmcmc.combination import arithmetic_for
from dmcmc.config import Config, Cooling, Local
from dmcmc.inference.agents import Division, LocalProblem, divide
from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.backends import Backend
from dmcmc.inference.densify import densify
from dmcmc.inference.errors import DmcmcError
from dmcmc.inference.problem import Problem
from dmcmc.inference.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.threads import cores
from dmcmc.mpi.placement import place_agents
from dmcmc.mpi.world import World
from dmcmc.samplers import registry
from dmcmc.samplers.auto import choose_method
from dmcmc.samplers.protocol import Settings
from dmcmc.samplers.schedule import Temperature

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
    methods : tuple of str
        The local solver of each agent.
    listed : tuple of int
        How many rows a sampled agent's table has where that is not all of them; 0 for all.
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
    listed: tuple[int, ...]
    owner: tuple[int, ...]
    backend: Backend

    def settings(self) -> Settings:
        """Return what local solvers are told."""
        options = self.config.local
        return Settings(
            arithmetic=self.arithmetic,
            seed=self.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=temperature_of(options.temperature),
            backend=self.backend,
        )


def prepare(original: Problem, config: Config, world: World) -> Task:
    """Divide the problem, choose each agent's method and place the agents: the same on every rank.

    The costly part, planning each agent's elimination, is shared out among the ranks.
    """
    problem = densify(original, config.budget.memory).problem
    division = divide(problem)
    arithmetic = arithmetic_for(problem, config.combine)
    surveyed: list[tuple[str, int, float]] = []
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
        methods=tuple(method for method, _, _ in choices),
        listed=tuple(listed for _, listed, _ in choices),
        owner=place_agents([cost for *_, cost in choices], world.size),
        backend=Backend.of(config.device, max(1, cores() // world.local_size), world.local_size),
    )


def _survey(local: LocalProblem, options: Local, memory: int, arithmetic: Arithmetic) -> tuple[str, int, float]:
    """Return an agent's method, how many rows it lists (0: all) and roughly what it costs, in table cells."""
    method = options.method
    if method == "auto":
        method = choose_method(local, options.cells, memory, arithmetic)
    solver = registry.get(method)
    if method == "exact":
        solver.check(local, memory, arithmetic)
        return method, 0, float(local.plan.cells)
    most = _ENUMERATED if options.rows == "auto" else options.rows
    listed = 0 if local.rows <= most else (_LISTED if options.rows == "auto" else options.rows)
    if listed:
        hidden = (*local.interface, *local.hidden)
        solver.check(LocalProblem(local.agent, (), hidden, local.factors, local.domains), memory, arithmetic)
    else:
        solver.check(local, memory, arithmetic)
    rows = listed or local.rows
    return method, listed, float(rows) * options.runs * options.samples * len(local.hidden) * 50


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configuration's temperature as samplers take it."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))
