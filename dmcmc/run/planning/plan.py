"""Plan a run: choose each agent's method by its counted work and this machine's rates, and place the agents."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.memory_shares import Shares, bytes_of_tables, shares_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.compact_sequences import Repeated
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import Known
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.distributed_dfs import token_tree
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.run.planning.combination_plan import room_for_steps, shares_a_core, slicing_ahead
from dmcmc.run.planning.divided_problem import Deal, Divided, divided, searching
from dmcmc.run.planning.setup import Setup
from dmcmc.run.planning.work_counts import Counting, Placed, count, listed_at_most, rows_at_most
from dmcmc.samplers.auto.choose import Choice, Limits, choose, fixed_choice
from dmcmc.samplers.auto.machine import look_around
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.samplers.auto.survey import Survey, Surveys, weights_of

_KEPT = 4  # of what UTIL steps may take, a slice has one part in so many: messages stay, its tables do not


def prepare(original: Problem, config: Settings, world: World, measure: Callable[[], Rates] = load_rates) -> Setup:
    """Divide the problem, choose each agent's method and place the agents; see :func:`plan`."""
    return plan(divided(original, config, world), world, measure)


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
    rows, listed = rows_at_most(division, config, shares), listed_at_most(parts, shares)
    counting = Counting(config, arithmetic, shares, rows, listed)
    surveys = count(division, counting, world, threads, stop, placed)

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
