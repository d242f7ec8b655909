"""What every rank knows before the work starts: the divided problem, the agents' tree, methods, places."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isqrt
from typing import NamedTuple

from dmcmc.config.settings import Cooling, Settings
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree, neighbours_of
from dmcmc.inference.dpop.shares import Shares, bytes_of_tables, largest_share, shares_of
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact import Repeated, narrow
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.subsets import FEW
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import Known
from dmcmc.inference.runtime.threads import cores, run_parallel
from dmcmc.mpi.contents import Sent
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.token_tree import token_tree
from dmcmc.mpi.world import World
from dmcmc.run.planning.combination import joins, room_for_steps, shares_a_core, slicing_ahead
from dmcmc.run.planning.divided import Deal, Divided, divided, searching
from dmcmc.samplers import registry
from dmcmc.samplers.auto.choose import Choice, Limits, choose, exact_option, fixed_choice, sampled_choice, too_much
from dmcmc.samplers.auto.machine import look_around
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.samplers.auto.survey import SAMPLER, Survey, Surveys, survey, weights_of
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.model.schedule import Temperature

_ENUMERATED, _LISTED = 1 << 17, 4096  # rows of a sampled agent: all of them up to here, else so many
_LISTED_LEAST = 64  # however little memory there is
_ROW, _STATES = 128, 4  # bytes of a row, both sides and what is thought of it; of each hidden variable in it

_KEPT = 4  # of what UTIL steps may take, a slice has one part in so many: messages stay, its tables do not
_SERIOUS = 0.05  # of the time budget: exact agents that take less will not be given up
_FILTERED = 1e19  # joined cells beyond which no incumbent leaves few enough: 10^16 take half a minute


@dataclass(frozen=True)
class Setup(Divided):
    """What every rank knows before the work starts.

    All of it is the same on every rank, but for the backend: the numbers of threads may differ.

    Attributes
    ----------
    surveys, choices : sequence
        Each agent's work, counted, and what it does.
    limits, rates
        What the choices were made by.
    room : int
        Bytes that an agent's UTIL step may take.
    owner : tuple of int
        The rank of each agent.
    slicing : Slicing or None
        Which variables UTIL steps work off value by value; None where tables are joined as they are.
    one_core : bool
        Whether one rank of each node combines for all of its agents.
    told : dict
        What agents have sent to find their tree.
    helpers : tuple of tuple of int
        Of each agent the ranks that work on its rows beside its own: those that own no agent.
    facts : Known
        What follows from all of it but the tables' entries.
    """

    tree: PseudoTree
    surveys: Sequence[Survey]
    choices: Sequence[Choice]
    limits: Limits
    rates: Rates
    room: int
    owner: tuple[int, ...]
    backend: Backend
    slicing: Slicing | None = None
    one_core: bool = False
    told: Mapping[int, Sent] = field(default_factory=dict)
    helpers: tuple[tuple[int, ...], ...] = ()
    facts: Known = field(default_factory=Known, compare=False, repr=False)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The local solver of each agent."""
        return tuple(choice.method for choice in self.choices)

    @cached_property
    def listed(self) -> tuple[int, ...]:
        """How many rows a sampled agent's table has where that is not all of them; 0 for all."""
        return tuple(choice.listed for choice in self.choices)

    @property
    def largest_join(self) -> float:
        """The entries of the largest table that combining can take, if all an agent meets was one table."""
        return self.facts.once("join", lambda: max(joins(self.problem, self.division, self.tree), default=1.0))

    def exact_price(self, agent: int) -> float | None:
        """Return about what the exact elimination of an agent that is sampled takes; None where that is not allowed."""
        work, asked = self.surveys[agent], self.config.local.method
        if self.methods[agent] == "exact" or asked not in ("auto", "exact") or too_much(work, self.limits):
            return None
        return exact_option(work, self.limits, self.rates).seconds

    @property
    def never_given_up(self) -> bool:
        """Whether exact agents stay exact whatever the clock says: nothing else is compiled for them."""
        budget = self.config.budget.time
        exact = sum(choice.seconds for choice in self.choices if choice.method == "exact")
        return budget is None or exact <= _SERIOUS * budget

    def possible(self, agents: Iterable[int]) -> list[tuple[int, Choice]]:
        """Return what agents do; of exact ones that may be given up, what they do then, too."""
        found = [(agent, self.choices[agent]) for agent in agents]
        if self.never_given_up:
            return found
        doubtful = [agent for agent, choice in found if choice.method == "exact" and not self.surveys[agent].obstacle]
        return found + [
            (agent, sampled_choice(self.surveys[agent], SAMPLER, "", self.limits, self.rates)) for agent in doubtful
        ]

    def filters(self, agent: int) -> bool:
        """Return whether an agent that is sampled may be eliminated without what cannot beat the incumbent."""
        local, choice = self.division.locals[agent], self.choices[agent]
        alone = bool(local.hidden) and not local.interface and self.surveys[agent].cells <= _FILTERED
        return alone and choice.method != "exact" and choice.bound != "none" and self.config.local.method == "auto"

    def of_rank(self, rank: int) -> list[int]:
        """Return the agents that a rank works for."""
        return [agent for agent, owner in enumerate(self.owner) if owner == rank]

    def helped_by(self, rank: int) -> int | None:
        """Return the agent whose rows a rank without an agent of its own works on."""
        return next((agent for agent, ranks in enumerate(self.helpers) if rank in ranks), None)

    def ending(self, stop: Stop) -> "Setup":
        """Return the same for work that has to end."""
        return replace(self, backend=replace(self.backend, stop=stop))

    def changed(self, choices: Mapping[int, Choice]) -> "Setup":
        """Return the same with other choices of some agents; the same object if there are none."""
        if not choices:
            return self
        changed = Repeated.of(choices.get(a, choice) for a, choice in enumerate(self.choices))
        return replace(self, choices=changed, facts=Known())

    def sampling(self) -> Sampling:
        """Return what local solvers are told."""
        options = self.config.local
        return Sampling(
            arithmetic=self.arithmetic,
            seed=self.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=temperature_of(options.temperature),
            backend=self.backend,
            starts=options.starts,
        )


def prepare(original: Problem, config: Settings, world: World, measure: Callable[[], Rates] = load_rates) -> Setup:
    """Divide the problem, choose each agent's method and place the agents; see :func:`plan`."""
    return plan(divided(original, config, world), world, measure)


class Placed(NamedTuple):
    """What is agreed on before agents' own parts are read, where each rank reads those of its agents only.

    Attributes
    ----------
    tree : PseudoTree
    owner : tuple of int
        The rank of each agent.
    shares : Shares
        Of the budget.
    told : dict
        What agents have sent to find the tree.
    helpers : tuple of tuple of int
        Ranks that work on each agent's rows, too.
    private : bool
        Whether agents keep their orders to themselves; else rank 0 is told.
    """

    tree: PseudoTree
    owner: tuple[int, ...]
    shares: Shares
    told: Mapping[int, Sent] = {}
    helpers: tuple[tuple[int, ...], ...] = ()
    private: bool = True


def plan(
    parts: Divided,
    world: World,
    measure: Callable[[], Rates] = load_rates,
    stop: Stop = NO_STOP,
    placed: Placed | None = None,
) -> Setup:
    """Choose each agent's method and place the agents; called by all ranks.

    The costly part, planning each agent's elimination, is shared out among the ranks. What depends on a machine is
    decided by rank 0: ranks may have different numbers of cores.

    Parameters
    ----------
    measure
        Returns this machine's rates, where a choice depends on them.
    stop
        When the run has to end.
    placed
        Where each rank knows its own agents' factors only.

    Raises
    ------
    ResourceError
        If an agent's tables do not fit the memory; :class:`.OutOfTime` as ``stop`` says.
    """
    config, threads = parts.config, max(1, cores() // world.core_sharers)
    division = searching(parts, world, stop)
    backend = world.together(partial(Backend.of, config.device, threads, world.gpu_sharers))
    fixed = not parts.timed and world.size == 1 and placed is None and config.local.order is None
    found: _Planned | None
    if fixed:  # by what problems of one shape have in common
        size = bytes_of_tables(parts.asked.problem, parts.original, parts.problem)
        key = config.local, config.combine, config.device, config.budget, size, threads, parts.arithmetic.dtype
        found = parts.problem.kin.find(key)
        if found is None:
            found = _planned(parts, division, backend, world, measure, stop, None).quick()
            if not stop.over:  # else it may depend on the clock
                parts.problem.kin.put(key, found)
        weights = parts.problem.known.once("weights", lambda: weights_of(division.locals))
        found = found._replace(surveys=Surveys(found.surveys.kinds, weights))
    else:
        found = _planned(parts, division, backend, world, measure, stop, placed)
    return Setup(
        *(parts.asked, parts.original, parts.problem, config, division, parts.arithmetic),
        *(found.placed.tree, found.surveys, found.choices, found.limits, found.rates, found.room),
        owner=found.placed.owner,
        backend=backend,
        slicing=found.slicing,
        one_core=found.one_core,
        told=found.placed.told,
        helpers=found.placed.helpers,
        facts=found.facts,
        dealt=parts.dealt,
    )


class _Planned(NamedTuple):
    """What a plan comes to; as in :class:`Setup`. ``placed`` has every agent's rank."""

    placed: Placed
    surveys: Surveys
    choices: Sequence[Choice]
    limits: Limits
    rates: Rates
    room: int
    slicing: Slicing | None
    one_core: bool
    facts: Known

    def quick(self) -> "_Planned":
        """Return the same in what is looked at sooner, and takes more memory."""
        tree, choices = self.placed.tree.quick(), tuple(self.choices)
        return self._replace(placed=self.placed._replace(tree=tree), choices=choices)


def _planned(
    parts: Divided,
    division: Division,
    backend: Backend,
    world: World,
    measure: Callable[[], Rates],
    stop: Stop,
    placed: Placed | None,
) -> _Planned:
    """Count agents' work, choose their methods, and place them."""
    config, arithmetic, threads = parts.config, parts.arithmetic, backend.threads
    known = _placed(parts, division, world, stop) if placed is None else placed
    tree, shares = known.tree, known.shares
    rows, listed = _rows_at_most(division, config, shares), _listed_at_most(parts, shares)
    counting = _Counting(config, arithmetic, shares, rows, listed)
    surveys = _surveys(division, counting, world, threads, stop, placed)

    def decision() -> tuple[Limits, Rates, Sequence[Choice], int, tuple[int, ...], Slicing | None]:
        limits, rates = _limits(surveys, config, shares, world.size, threads, measure)
        choices = _choose(surveys, config.local.method, limits, rates)
        size = arithmetic.dtype.itemsize
        room = size * room_for_steps(parts, tree, surveys, choices, shares.steps // size)
        sliced = max(room, shares.steps // _KEPT)
        slicing = slicing_ahead(parts, tree, surveys, choices, limits, (room // size, sliced // size))
        room = room if slicing is None else sliced
        places = place([choice.seconds for choice in choices], tree.parent, world.size)
        return limits, rates, choices, room, places, slicing

    limits, rates, choices, room, owner, slicing = world.decided(decision)
    owner = known.owner or owner
    helpers = known.helpers or helpers_of([choice.seconds for choice in choices], owner, world.size)
    one_core = shares_a_core(parts, tree, config.combine.mode, backend, world)
    known = known._replace(owner=owner, helpers=helpers)
    return _Planned(known, surveys, choices, limits, rates, room, slicing, one_core, Known())


def deal_out(deal: Deal, world: World, stop: Stop) -> tuple[Divided, Placed]:
    """Hand each rank its agents' parts of a problem that rank 0 alone knows; return what it knows then, and places.

    The tree is looked for until it is time to stop.
    """
    known = _placed(deal.parts, deal.parts.division, world, stop)
    work = list(map(float, deal.index.entries))
    owner = place(work, known.tree.parent, world.size)
    known = known._replace(owner=owner, helpers=helpers_of(work, owner, world.size), private=False)
    return deal.hand_out(owner, known.helpers, world), known


def _placed(parts: Divided, division: Division, world: World, stop: Stop) -> Placed:
    """Return what all ranks know of where agents stand, and of the memory."""
    budget, asked = parts.config.budget.bytes, parts.asked.problem
    shares = world.decided(lambda: shares_of(budget, asked, parts.original, parts.problem))
    if parts.config.combine.tree == "depth-first":
        agents = len(division.locals)
        tree, told = token_tree(
            parts.problem, division, [agent * world.size // agents for agent in range(agents)], world
        )
        return Placed(tree, (), shares, told)
    # By the clock ranks could come to different trees.
    return Placed(world.decided(lambda: build_pseudotree(parts.problem, division, stop)), (), shares)


class _Counting(NamedTuple):
    """What agents' work is counted by.

    Where nobody says, a sampled agent's table has ``rows`` rows at most, or lists of ``listed``.
    """

    config: Settings
    arithmetic: Arithmetic
    shares: Shares
    rows: int
    listed: int

    @property
    def planned(self) -> bool:
        """Whether eliminations are of interest."""
        return self.config.local.method in ("auto", "exact")


def _rows_at_most(division: Division, config: Settings, shares: Shares) -> int:
    """Return the most rows of a sampled agent's table; fewer where all agents' would be too many for the memory."""
    if config.local.method == "exact" and config.budget.time is None:
        return _ENUMERATED
    sizes, needs = array("q"), array("d")
    for local in division.locals:
        sizes.append(_ROW + _STATES * len(local.hidden))
        needs.append(sizes[-1] * min(local.rows, _ENUMERATED))
    return max(1, min(_ENUMERATED, int(largest_share(needs, shares.kept)) // max(sizes, default=1)))


def _listed_at_most(parts: Divided, shares: Shares) -> int:
    """Return how many rows are listed where there are too many: tables over two agents' lists have to fit."""
    degrees = neighbours_of(parts.problem, parts.division).lengths
    most = 1 + int(degrees.max()) if degrees.any() else 0  # itself among them
    return max(_LISTED_LEAST, min(_LISTED, isqrt(shares.steps // (2 * parts.arithmetic.dtype.itemsize * max(1, most)))))


def _surveys(
    division: Division,
    counting: _Counting,
    world: World,
    threads: int,
    stop: Stop,
    placed: Placed | None,
) -> Surveys:
    """Count all agents' work, each on one rank: that of its owner, where only that one knows its factors."""
    agents, planned = len(division.locals), counting.planned
    home = [agent % world.size for agent in range(agents)] if placed is None else placed.owner
    mine = [division.locals[a] for a in range(agents) if home[a] == world.rank]

    def count() -> dict[int, Survey]:
        if planned:  # orders of few variables hold the interpreter's lock
            run_parallel([partial(getattr, local, "plan") for local in mine if len(local.hidden) > FEW], threads)
        return {local.agent: _survey(local, counting, stop) for local in mine}

    counted = world.together(count)
    works = world.allgather((narrow(list(counted)), Surveys.of(list(counted.values()))), "surveys")
    if planned and not (placed is not None and placed.private):
        found = {local.agent: local.order for local in mine}
        told = world.allgather(found) if placed is None else world.gather(found) or []
        for agent, order in ((agent, order) for part in told for agent, order in part.items()):
            division.locals[agent].take_order(order)
    return Surveys.merged(agents, works)


def _survey(local: LocalProblem, counting: _Counting, stop: Stop) -> Survey:
    """Count an agent's work; raise what forbids a method that was asked for.

    With a time budget an agent that ``exact`` is too much for is sampled: some answer is better than none.
    """
    stop.check()
    options, memory, arithmetic = counting.config.local, counting.shares.work, counting.arithmetic
    most = counting.rows if options.rows == "auto" else options.rows
    listed = 0 if local.rows <= most else (min(counting.listed, most) if options.rows == "auto" else options.rows)
    if options.method != "auto" and not (options.method == "exact" and counting.config.budget.time is not None):
        checked = local
        if listed and options.method != "exact":
            hidden = (*local.interface, *local.hidden)
            checked = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
        registry.get(options.method).check(checked, memory, arithmetic)
    return survey(local, listed, options.runs, options.samples, memory, arithmetic, counting.planned)


def _choose(surveys: Surveys, method: str, limits: Limits, rates: Rates) -> Sequence[Choice]:
    """Choose what each agent does; where each is judged by itself, once for all of a kind."""
    kinds = surveys.kinds.kinds
    if method != "auto":
        return Repeated([fixed_choice(work, method, limits, rates) for work in kinds], surveys.kinds.which)
    if limits.time is None:
        return Repeated(choose(kinds, limits, rates), surveys.kinds.which)
    return Repeated.of(choose(surveys, limits, rates))


def _limits(
    surveys: Sequence[Survey],
    config: Settings,
    shares: Shares,
    ranks: int,
    threads: int,
    measure: Callable[[], Rates],
) -> tuple[Limits, Rates]:
    """Return what the run may take, and how fast it is; without a time budget nothing depends on the machine."""
    seconds, cells = config.budget.time, config.local.cells
    limits = Limits(
        time=seconds,
        gap=config.budget.gap,
        memory=shares.work,
        kept=shares.kept // max(1, len(surveys)),
        cells=None if cells == "auto" else cells,
        threads=1 if seconds is None else threads,
        ranks=ranks,
        bound=config.local.bound,
    )
    if config.local.method != "auto":
        return limits, NOMINAL
    return look_around(surveys, limits, config.device, measure)


def temperature_of(option: str | float | Cooling) -> Temperature:
    """Return the configuration's temperature as samplers take it."""
    if isinstance(option, Cooling):
        return Temperature(option.start, option.end, option.schedule)
    return Temperature() if isinstance(option, str) else Temperature.constant(float(option))
