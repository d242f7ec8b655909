"""Plan a run: choose each agent's method by its counted work and the machine's speed, and place agents on ranks.

:func:`plan` is called by ``dmcmc.run.solve`` and the private solver, and by ``dmcmc.plan`` through :func:`prepare`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dmcmc.config.settings import Combine, Settings
from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.memory_shares import MemoryShares, split_memory
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree, tree_names
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.dpop.trees.registry import DISTRIBUTED
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.compact_sequences import RepeatedRecords
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.distributed_dfs import distributed_dfs_tree
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.choose import AgentChoice, ResourceLimits, choose, fixed_choice
from dmcmc.samplers.auto.machine import inspect_machine
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.samplers.auto.survey import AgentWorkCounts, WorkCountList
from dmcmc.solving.planning.combination_plan import bytes_per_slice, choose_slicing, combines_per_node, entries_per_step
from dmcmc.solving.planning.divided_problem import DividedProblem, UnscatteredProblem, divide_problem, with_order_search
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.planning.work_counts import AgreedPlacement, CountingOptions, count_work, max_listed_rows, max_rows


def prepare(original: Problem, config: Settings, world: World, measure: Callable[[], Rates] = load_rates) -> Setup:
    """Divide the problem, choose each agent's method and place the agents; see :func:`plan`."""
    return plan(divide_problem(original, config, world), world, measure)


def plan(
    parts: DividedProblem,
    world: World,
    measure: Callable[[], Rates] = load_rates,
    stop: Deadline = NO_DEADLINE,
    placed: AgreedPlacement | None = None,
) -> Setup:
    """Choose each agent's method and place the agents; called by all ranks.

    The ranks share the costly part, planning each agent's elimination. Rank 0 decides what depends on the machine,
    because ranks may have different numbers of cores.

    Parameters
    ----------
    parts
        The divided problem.
    world
        The ranks.
    measure
        Returns this machine's speed, if a choice depends on it.
    stop
        Deadline of the run.
    placed
        The placement of agents, if each rank knows its own agents' factors only; None otherwise.

    Raises
    ------
    ResourceError
        If an agent's tables do not fit the memory.
    OutOfTime
        After the deadline of ``stop``.
    """
    config, threads = parts.config, max(1, cores() // world.core_sharers)
    division = with_order_search(parts, world, stop)
    backend = world.on_all_ranks(partial(Backend.of, config.device, threads, world.gpu_sharers))
    cacheable = not parts.timed and world.size == 1 and placed is None and config.local.order is None
    plan_parts: _PlanParts | None
    if cacheable:  # the plan depends only on what problems of the same shape have in common
        size = bytes_of_tables(parts.given.problem, parts.original, parts.problem)
        names = tree_names(parts.problem, config.combine.tree, config.combine.root)
        key = config.local, config.combine, config.device, config.budget, size, threads, parts.arithmetic.dtype, names
        plan_parts = parts.problem.shape_facts.find(key)
        if plan_parts is None:
            plan_parts = _plan_parts(parts, division, backend, world, measure, stop, None).quick()
            if not stop.over:  # otherwise, the plan may depend on the clock
                parts.problem.shape_facts.put(key, plan_parts)
    else:
        plan_parts = _plan_parts(parts, division, backend, world, measure, stop, placed)
    return Setup(
        *(parts.given, parts.original, parts.problem, config, division, parts.arithmetic),
        *(
            plan_parts.placed.tree,
            plan_parts.surveys,
            plan_parts.choices,
            plan_parts.limits,
            plan_parts.rates,
            plan_parts.step_bytes,
        ),
        owner=plan_parts.placed.owner,
        backend=backend,
        slicing=plan_parts.slicing,
        one_rank_combines=plan_parts.one_rank_combines,
        tree_messages=plan_parts.placed.tree_messages,
        helpers=plan_parts.placed.helpers,
        facts=plan_parts.facts,
        scattered=parts.scattered,
        retained=parts.retained,
    )


class _PlanParts(NamedTuple):
    """The parts of a plan, as in :class:`Setup`; ``placed`` has every agent's rank."""

    placed: AgreedPlacement
    surveys: WorkCountList
    choices: Sequence[AgentChoice]
    limits: ResourceLimits
    rates: Rates
    step_bytes: int
    slicing: Slicing | None
    one_rank_combines: bool
    facts: DerivedFacts

    def quick(self) -> "_PlanParts":
        """Return the same plan with sequences that are faster to read, and take more memory."""
        tree, choices = self.placed.tree.as_tuples(), tuple(self.choices)
        return self._replace(placed=self.placed._replace(tree=tree), choices=choices)


def _plan_parts(
    parts: DividedProblem,
    division: Division,
    backend: Backend,
    world: World,
    measure: Callable[[], Rates],
    stop: Deadline,
    placed: AgreedPlacement | None,
) -> _PlanParts:
    """Count the agents' work, choose their methods, and place them."""
    config, arithmetic, threads = parts.config, parts.arithmetic, backend.threads
    agreed = _agree_on_placement(parts, division, world, stop) if placed is None else placed
    tree, shares = agreed.tree, agreed.shares
    rows = max_rows(division, config, shares)
    max_listed = max_listed_rows(parts, shares) if any(local.rows > rows for local in division.locals) else rows
    counting = CountingOptions(config, arithmetic, shares, rows, max_listed)
    surveys = count_work(division, counting, world, threads, stop, placed)

    def decision() -> tuple[ResourceLimits, Rates, Sequence[AgentChoice], int, tuple[int, ...], Slicing | None]:
        limits, rates = _limits(surveys, config, shares, world.size, threads, measure)
        choices = _choose(surveys, config.local.method, limits, rates)
        size = arithmetic.dtype.itemsize
        step_bytes = size * entries_per_step(parts, tree, surveys, choices, shares.steps // size, stop)
        slice_bytes = bytes_per_slice(step_bytes, shares.steps)
        slicing = choose_slicing(parts, tree, surveys, choices, limits, (step_bytes // size, slice_bytes // size))
        step_bytes = step_bytes if slicing is None else slice_bytes
        ranks = place([choice.seconds for choice in choices], tree.parent, world.size)
        return limits, rates, choices, step_bytes, ranks, slicing

    limits, rates, choices, step_bytes, owner, slicing = world.on_first_rank(decision)
    owner = agreed.owner or owner
    helpers = agreed.helpers or helpers_of([choice.seconds for choice in choices], owner, world.size)
    one_rank_combines = combines_per_node(parts, tree, config.combine.mode, backend, world)
    agreed = agreed._replace(owner=owner, helpers=helpers)
    return _PlanParts(agreed, surveys, choices, limits, rates, step_bytes, slicing, one_rank_combines, DerivedFacts())


def scatter_problem(
    unscattered: UnscatteredProblem, world: World, stop: Deadline
) -> tuple[DividedProblem, AgreedPlacement]:
    """Send each rank its agents' parts of a problem that only rank 0 knows; return this rank's view and the placement.

    The search for the pseudo-tree ends at the deadline.
    """
    placement = _agree_on_placement(unscattered.parts, unscattered.parts.division, world, stop)
    work = list(map(float, unscattered.index.table_entries))
    owner = place(work, placement.tree.parent, world.size)
    placement = placement._replace(owner=owner, helpers=helpers_of(work, owner, world.size), private=False)
    return unscattered.scatter(owner, placement.helpers, world), placement


def _agree_on_placement(parts: DividedProblem, division: Division, world: World, stop: Deadline) -> AgreedPlacement:
    """Return what all ranks agree on: the pseudo-tree, the memory shares, and the messages sent for the tree.

    ``owner`` is empty: the agents are placed later.
    """
    budget, given_problem = parts.config.budget.bytes, parts.given.problem
    shares = world.on_first_rank(lambda: split_memory(budget, given_problem, parts.original, parts.problem))
    tree, tree_messages = agree_on_tree(parts.problem, division, parts.config.combine, world, stop)
    return AgreedPlacement(tree, (), shares, tree_messages)


def agree_on_tree(
    problem: Problem, division: Division, combine: Combine, world: World, stop: Deadline = NO_DEADLINE
) -> tuple[PseudoTree, dict[int, SentMessages]]:
    """Return the pseudo-tree that the settings ask for, and the messages that each agent has sent for it.

    Called by all ranks. Either the agents find the tree by messages, or rank 0 builds it for all: with a deadline, or a
    plug-in, ranks could build different trees.
    """
    if combine.tree == DISTRIBUTED:
        return distributed_dfs_tree(problem, division, world, combine.root)
    return world.on_first_rank(lambda: build_pseudotree(problem, division, stop, combine.tree, combine.root)), {}


def _choose(surveys: WorkCountList, method: str, limits: ResourceLimits, rates: Rates) -> Sequence[AgentChoice]:
    """Choose each agent's method; where agents are judged independently, once for all agents of the same shape."""
    distinct = surveys.kinds.distinct
    if method != "auto":
        return RepeatedRecords(
            [fixed_choice(work, method, limits, rates) for work in distinct], surveys.kinds.record_index
        )
    if limits.time is None:
        return RepeatedRecords(choose(distinct, limits, rates), surveys.kinds.record_index)
    return RepeatedRecords.of(choose(surveys, limits, rates))


def _limits(
    surveys: Sequence[AgentWorkCounts],
    config: Settings,
    shares: MemoryShares,
    ranks: int,
    threads: int,
    measure: Callable[[], Rates],
) -> tuple[ResourceLimits, Rates]:
    """Return the limits of the run and the machine's speed; without a time budget nothing depends on the machine.

    The speed is nominal (a constant) if the method of all agents is given.
    """
    seconds, cells = config.budget.time, config.local.cells
    limits = ResourceLimits(
        time=seconds,
        gap=config.budget.gap,
        memory=shares.work,
        retained_memory=shares.agent_data // max(1, len(surveys)),
        cells=None if cells == "auto" else cells,
        threads=1 if seconds is None else threads,
        ranks=ranks,
        bound=config.local.bound,
    )
    if config.local.method != "auto":
        return limits, NOMINAL
    return inspect_machine(surveys, limits, config.device, measure)
