"""Plan a run: count each agent's work, choose its method by the machine's speed, and place the agents on ranks.

A row is one assignment of an agent's boundary variables. If an agent has too many rows to sample all of them, its table
has only a list of rows. Each agent's work (rows, cells, bytes) is counted on one rank.

A run without time for the agents' tables is not planned at all. The separators of a pseudo-tree can have as many
variables in total as the square of the number of agents. Neither building them nor a Python step per agent can end in a
time budget that is far too short for them, and the local search uses all cores if nothing is planned in vain. Lower
estimates that take time linear in the problem decide.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isqrt
from typing import NamedTuple, cast

import numpy as np
from msgspec.structs import replace as replace_settings
from numpy.typing import NDArray

import dmcmc.solving.tuning as tuning
from dmcmc.config.settings import Combine, Settings
from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.dpop.pseudotree import PseudoTree, TreeSize, build_pseudotree, neighbours_of, tree_names, tree_size
from dmcmc.inference.dpop.slicing import MemoryShares, Slicing, largest_share, split_memory
from dmcmc.inference.dpop.trees import DISTRIBUTED, depth_first
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import RepeatedRecords, flatten_groups, narrow
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.inference.runtime.threads import cores, run_parallel
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES
from dmcmc.mpi.compute_node import helpers_of, place
from dmcmc.mpi.distributed_dfs import distributed_dfs_tree
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.choose import (
    SAMPLER,
    AgentChoice,
    AgentWorkCounts,
    ResourceLimits,
    WorkCountList,
    choose,
    count_agent_work,
    exact_option,
    exceeded_limit,
    fixed_choice,
    inspect_machine,
    sampled_choice,
    weights_of,
)
from dmcmc.samplers.auto.rates import NOMINAL, Rates, load_rates
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.registry import get as sampler_of
from dmcmc.solving.planning import combination_plan, divided_problem

_BYTES_PER_ROW = 128  # per row: lower and upper table, bounds and bookkeeping
_BYTES_PER_STATE = 4  # per row and hidden variable: its value in the chain of the row, an int32


class AgreedPlacement(NamedTuple):
    """The pseudo-tree and the placement of agents on ranks, agreed by all ranks before the agents' work is counted.

    It is needed if each rank knows only its own agents' parts of the problem.

    Attributes
    ----------
    tree : PseudoTree
        The agents' pseudo-tree.
    owner : tuple of int
        The rank of each agent; empty if agents are placed later, by their counted work.
    shares : MemoryShares
        Shares of the memory budget.
    tree_messages : dict of SentMessages
        The messages that each agent has sent to build the tree.
    helpers : tuple of tuple of int
        For each agent, other ranks that work on its rows.
    private : bool
        Whether agents keep their elimination orders private; otherwise rank 0 receives them.
    """

    tree: PseudoTree
    owner: tuple[int, ...]
    shares: MemoryShares
    tree_messages: Mapping[int, SentMessages] = {}
    helpers: tuple[tuple[int, ...], ...] = ()
    private: bool = True


class CountingOptions(NamedTuple):
    """Options by which agents' work is counted.

    Attributes
    ----------
    config : Settings
        Settings of the run.
    arithmetic : Arithmetic
        Number type of the tables.
    shares : MemoryShares
        Shares of the memory budget.
    rows, listed : int
        Largest number of rows of a sampled agent's table, and of listed rows if the agent has more. Used if
        ``local.rows`` is ``auto``.
    """

    config: Settings
    arithmetic: Arithmetic
    shares: MemoryShares
    rows: int
    listed: int

    @property
    def planned(self) -> bool:
        """Whether exact eliminations are planned."""
        return self.config.local.method in ("auto", "exact")


def max_rows(division: Division, config: Settings, shares: MemoryShares) -> int:
    """Return the largest number of rows of a sampled agent's table; fewer if all agents' tables exceed the memory.

    An agent with h hidden variables takes 128 + 4 h bytes per row. The largest agent's share of the memory, divided by
    the largest of these sizes, limits the rows.
    """
    if config.local.method == "exact" and config.budget.time is None:
        return tuning.MAX_SAMPLED_ROWS
    row_bytes, table_bytes = array("q"), array("d")
    for local in division.locals:
        row_bytes.append(_BYTES_PER_ROW + _BYTES_PER_STATE * len(local.hidden))
        table_bytes.append(row_bytes[-1] * min(local.rows, tuning.MAX_SAMPLED_ROWS))
    return max(
        1, min(tuning.MAX_SAMPLED_ROWS, int(largest_share(table_bytes, shares.agent_data)) // max(row_bytes, default=1))
    )


def max_listed_rows(parts: divided_problem.DividedProblem, shares: MemoryShares) -> int:
    """Return the number of rows to list if there are too many, so that tables over two agents' lists fit the memory.

    A table over two lists of k rows has k * k entries. With memory M, entries of b bytes and at most n agents that meet
    (an agent and its neighbours), k is the root of M / (2 b n), limited to 64 .. 4096.
    """
    degrees = neighbours_of(parts.problem, parts.division).lengths
    max_neighbours = 1 + int(degrees.max()) if degrees.any() else 0  # itself among them
    return max(
        tuning.MIN_LISTED_ROWS,
        min(
            tuning.MAX_LISTED_ROWS,
            isqrt(shares.steps // (2 * parts.arithmetic.dtype.itemsize * max(1, max_neighbours))),
        ),
    )


def count_work(
    division: Division,
    counting: CountingOptions,
    world: World,
    threads: int,
    stop: Deadline,
    placed: AgreedPlacement | None,
) -> WorkCountList:
    """Count all agents' work, each on one rank: the owner's rank if only that rank knows the agent's factors."""
    agents, planned = len(division.locals), counting.planned
    counting_rank = [agent % world.size for agent in range(agents)] if placed is None else placed.owner
    own_agents = [division.locals[a] for a in range(agents) if counting_rank[a] == world.rank]

    def count_own_agents() -> dict[int, AgentWorkCounts]:
        if planned:  # orders of few variables hold the interpreter's lock
            run_parallel(
                [partial(getattr, local, "plan") for local in own_agents if len(local.hidden) > MAX_EXACT_VARIABLES],
                threads,
            )
        return {local.agent: _survey(local, counting, stop) for local in own_agents}

    counted = world.on_all_ranks(count_own_agents)
    works = world.allgather((narrow(list(counted)), WorkCountList.of(list(counted.values()))), "surveys")
    if planned and not (placed is not None and placed.private):
        orders = {local.agent: local.order for local in own_agents}
        gathered = world.allgather(orders) if placed is None else world.gather(orders) or []
        for agent, order in ((agent, order) for rank_orders in gathered for agent, order in rank_orders.items()):
            division.locals[agent].set_order(order)
    return WorkCountList.merged(agents, works)


def _survey(local: LocalProblem, counting: CountingOptions, stop: Deadline) -> AgentWorkCounts:
    """Count an agent's work; raise an error if the requested method is impossible.

    With a time budget, an agent that is too large for ``exact`` is sampled: some answer is better than none. If only
    listed rows are sampled, the check treats the boundary variables as hidden ones, so that no row is enumerated.
    """
    stop.check()
    options, memory, arithmetic = counting.config.local, counting.shares.work, counting.arithmetic
    row_limit = counting.rows if options.rows == "auto" else options.rows
    listed = (
        0 if local.rows <= row_limit else (min(counting.listed, row_limit) if options.rows == "auto" else options.rows)
    )
    if options.method != "auto" and not (options.method == "exact" and counting.config.budget.time is not None):
        checked = local
        if listed and options.method != "exact":
            hidden = (*local.interface, *local.hidden)
            checked = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
        sampler_of(options.method).check(checked, memory, arithmetic)
    sampled = listed, options.runs, options.samples
    return count_agent_work(local, *sampled, memory, arithmetic, counting.planned, options.bound != "none")


@dataclass(frozen=True)
class Setup:
    """The plan of a run, which is the same on every rank, except for the number of threads in the backend.

    Attributes
    ----------
    divided : DividedProblem
        The problem divided among its agents.
    tree : PseudoTree
        The agents' pseudo-tree.
    surveys : sequence of AgentWorkCounts
        The counted work of each agent: rows, cells, table sizes.
    choices : sequence of AgentChoice
        The chosen method of each agent.
    limits : ResourceLimits
        Time and memory by which the choices were made.
    rates : Rates
        The machine's speed by which the choices were made.
    step_bytes : int
        Bytes that an agent's UTIL step may take.
    owner : tuple of int
        The rank of each agent.
    backend : Backend
        Devices, threads and deadline.
    slicing : Slicing or None
        How UTIL steps are sliced; None for whole tables.
    one_rank_combines : bool
        Whether one rank of each node combines the tables of all of the node's agents.
    tree_messages : dict of SentMessages
        The messages that each agent has sent to build the pseudo-tree.
    helpers : tuple of tuple of int
        For each agent, the ranks that help with its rows because they own no agent.
    facts : DerivedFacts
        Cache of what follows from the plan without the tables' entries.
    """

    divided: divided_problem.DividedProblem
    tree: PseudoTree
    surveys: Sequence[AgentWorkCounts]
    choices: Sequence[AgentChoice]
    limits: ResourceLimits
    rates: Rates
    step_bytes: int
    owner: tuple[int, ...]
    backend: Backend
    slicing: Slicing | None = None
    one_rank_combines: bool = False
    tree_messages: Mapping[int, SentMessages] = field(default_factory=dict)
    helpers: tuple[tuple[int, ...], ...] = ()
    facts: DerivedFacts = field(default_factory=DerivedFacts, compare=False, repr=False)

    def without_gpu(self, error: Exception, world: World) -> "Setup":
        """Return this plan for the CPU alone after the GPU of a rank has failed, on all ranks.

        What earlier runs of a session have kept may be in the memory of the GPU, and is dropped.

        Raises
        ------
        Exception
            The error itself, if it is not a failure of a GPU, if the plan uses none, or if other ranks continue.
        """
        if self.backend.device == "cpu" or gpu_fault(error) is None or not world.is_agreed(error):
            raise error
        if self.divided.retained is not None:
            self.divided.retained.forget_all()
        return self.on_cpu()

    def on_cpu(self) -> "Setup":
        """Return this plan for the CPU alone."""
        choices = [choice._replace(device="cpu") for choice in self.choices]
        divided = replace(self.divided, config=replace_settings(self.divided.config, device="cpu"))
        backend = replace(self.backend, device="cpu")
        return replace(self, divided=divided, choices=choices, backend=backend, facts=DerivedFacts())

    def chosen_for_cpu(self, world: World) -> "Setup":
        """Return the plan of ``device: cpu``, with this plan's placement of agents; called by all ranks."""
        limits, method = replace(self.limits, gpu=False, opened=False), self.divided.config.local.method
        surveys = cast(WorkCountList, self.surveys)
        choices = world.on_first_rank(lambda: _choose(surveys, method, limits, self.rates))
        return replace(self.on_cpu(), limits=limits, choices=choices)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The local solver of each agent."""
        return tuple(choice.method for choice in self.choices)

    @cached_property
    def listed_rows(self) -> tuple[int, ...]:
        """Number of listed rows of each sampled agent's table; 0 for all rows."""
        return tuple(choice.listed for choice in self.choices)

    @cached_property
    def weights(self) -> list[float]:
        """An estimate of each agent's optimality gap, relative to the others; right for agents that this rank knows."""
        weights: list[float] = weights_of(self.divided.division.locals).tolist()
        return weights

    @property
    def will_prove(self) -> bool:
        """Whether the tables prove the optimum, given time: all are exact, and no bucket may be split."""

        def proven() -> bool:
            return all(choice.method == "exact" for choice in self.choices) and not combination_plan.may_split_buckets(
                self
            )

        return self.facts.get_or_compute("proven", proven)

    @property
    def proves_on_gpu(self) -> bool:
        """Whether the tables will prove the optimum, and a GPU computes some of them."""
        return self.will_prove and any(choice.device != "cpu" for choice in self.choices)

    @property
    def leaves_gpu_idle(self) -> bool:
        """Whether the agents' tables are made and combined on the CPU alone."""
        return self.backend.device != "cuda" and all(choice.device == "cpu" for choice in self.choices)

    @property
    def table_seconds(self) -> float:
        """The estimated seconds of the agents' tables on one rank."""
        return sum(choice.seconds for choice in self.choices) / max(1, self.limits.threads)

    @property
    def deviation(self) -> str | None:
        """How the plan deviates from the settings, for the result; None if it does not."""
        sampled = self.methods.count(SAMPLER) if self.divided.config.local.method == "exact" else 0
        if not sampled:
            return None
        subject = "1 agent is" if sampled == 1 else f"{sampled} agents are"
        return f"{subject} sampled: local.method: exact does not fit budget.memory there"

    @property
    def tree_size(self) -> TreeSize:
        """Depth, induced width and table sizes of the pseudo-tree."""
        return self.facts.get_or_compute(
            "tree", lambda: tree_size(self.divided.problem, self.divided.division, self.tree)
        )

    def exact_seconds(self, agent: int) -> float | None:
        """Return the estimated seconds of a sampled agent's exact elimination; None if it is not allowed."""
        if self.methods[agent] == "exact" or self.divided.config.local.method not in ("auto", "exact"):
            return None
        work = self.surveys[agent]
        return None if exceeded_limit(work, self.limits) else exact_option(work, self.limits, self.rates).seconds

    @property
    def never_given_up(self) -> bool:
        """Whether exact agents stay exact however long they take; no other methods are compiled for them then."""
        budget = self.divided.config.budget.time
        exact = sum(choice.seconds for choice in self.choices if choice.method == "exact")
        return budget is None or exact <= tuning.NEVER_GIVEN_UP_PART * budget

    def possible_choices(self, agents: Iterable[int]) -> list[tuple[int, AgentChoice]]:
        """Return the choices of some agents, and the fallback choices of exact agents that may be given up."""
        choices = [(agent, self.choices[agent]) for agent in agents]
        if self.never_given_up:
            return choices
        may_fail = [agent for agent, choice in choices if choice.method == "exact" and not self.surveys[agent].obstacle]
        return choices + [
            (agent, sampled_choice(self.surveys[agent], SAMPLER, "", self.limits, self.rates)) for agent in may_fail
        ]

    def may_filter(self, agent: int) -> bool:
        """Return whether function filtering may be used for a sampled agent."""
        local, choice = self.divided.division.locals[agent], self.choices[agent]
        suitable = bool(local.hidden) and not local.interface and self.surveys[agent].cells <= tuning.MAX_FILTERED_CELLS
        return (
            suitable
            and choice.method != "exact"
            and choice.bound != "none"
            and self.divided.config.local.method == "auto"
        )

    def agents_of_rank(self, rank: int) -> list[int]:
        """Return the agents that a rank owns."""
        return [agent for agent, owner in enumerate(self.owner) if owner == rank]

    def agent_helped_by(self, rank: int) -> int | None:
        """Return the agent with whose rows a rank without own agents helps; None if there is none."""
        return next((agent for agent, ranks in enumerate(self.helpers) if rank in ranks), None)

    def with_stop(self, stop: Deadline) -> "Setup":
        """Return the same plan with a deadline."""
        return self if stop is self.backend.stop else replace(self, backend=replace(self.backend, stop=stop))

    def with_arithmetic(self, arithmetic: Arithmetic) -> "Setup":
        """Return the same plan with another encoding of the utilities."""
        presolved = replace(self.divided.presolved, arithmetic=arithmetic)
        return replace(self, divided=replace(self.divided, presolved=presolved))

    def with_choices(self, choices: Mapping[int, AgentChoice]) -> "Setup":
        """Return the same plan with other choices for some agents; the same object if there are none."""
        if not choices:
            return self
        changed = RepeatedRecords.of(choices.get(a, choice) for a, choice in enumerate(self.choices))
        return replace(self, choices=changed, facts=DerivedFacts())

    def sampling_settings(self) -> Sampling:
        """Return the settings of the local solvers."""
        options = self.divided.config.local
        return Sampling(
            arithmetic=self.divided.arithmetic,
            seed=self.divided.config.seed,
            runs=options.runs,
            samples=options.samples,
            temperature=divided_problem.temperature_of(options.temperature),
            backend=self.backend,
            starts=options.starts,
            memory=self.limits.memory,
            diagnose=(options.diagnose or options.guarantee is not None) and not self.divided.timed,
        )


def prepare(original: Problem, config: Settings, world: World, measure: Callable[[], Rates] = load_rates) -> Setup:
    """Divide the problem, choose each agent's method and place the agents; see :func:`plan`."""
    return plan(divided_problem.divide_problem(original, config, world), world, measure)


def plan(
    parts: divided_problem.DividedProblem,
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
    division = divided_problem.with_order_search(parts, world, stop)
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
        replace(parts, division=division),
        plan_parts.placed.tree,
        plan_parts.surveys,
        plan_parts.choices,
        plan_parts.limits,
        plan_parts.rates,
        plan_parts.step_bytes,
        owner=plan_parts.placed.owner,
        backend=backend,
        slicing=plan_parts.slicing,
        one_rank_combines=plan_parts.one_rank_combines,
        tree_messages=plan_parts.placed.tree_messages,
        helpers=plan_parts.placed.helpers,
        facts=plan_parts.facts,
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
    parts: divided_problem.DividedProblem,
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
        step_bytes = size * combination_plan.entries_per_step(parts, tree, surveys, choices, shares.steps // size, stop)
        slice_bytes = combination_plan.bytes_per_slice(step_bytes, shares.steps)
        slicing = combination_plan.choose_slicing(
            parts, tree, surveys, choices, limits, (step_bytes // size, slice_bytes // size)
        )
        step_bytes = step_bytes if slicing is None else slice_bytes
        ranks = place([choice.seconds for choice in choices], tree.parent, world.size)
        return limits, rates, choices, step_bytes, ranks, slicing

    limits, rates, choices, step_bytes, owner, slicing = world.on_first_rank(decision)
    owner = agreed.owner or owner
    helpers = agreed.helpers or helpers_of([choice.seconds for choice in choices], owner, world.size)
    one_rank_combines = combination_plan.combines_per_node(parts, tree, config.combine.mode, backend, world)
    agreed = agreed._replace(owner=owner, helpers=helpers)
    return _PlanParts(agreed, surveys, choices, limits, rates, step_bytes, slicing, one_rank_combines, DerivedFacts())


def scatter_problem(
    unscattered: divided_problem.UnscatteredProblem, world: World, stop: Deadline
) -> tuple[divided_problem.DividedProblem, AgreedPlacement]:
    """Send each rank its agents' parts of a problem that only rank 0 knows; return this rank's view and the placement.

    The search for the pseudo-tree ends at the deadline.
    """
    placement = _agree_on_placement(unscattered.parts, unscattered.parts.division, world, stop)
    work = list(map(float, unscattered.index.table_entries))
    owner = place(work, placement.tree.parent, world.size)
    placement = placement._replace(owner=owner, helpers=helpers_of(work, owner, world.size), private=False)
    return unscattered.scatter(owner, placement.helpers, world), placement


def _agree_on_placement(
    parts: divided_problem.DividedProblem, division: Division, world: World, stop: Deadline
) -> AgreedPlacement:
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


def check_time_for_tables(problem: Problem, division: Division, ranks: int, stop: Deadline) -> None:
    """Raise an error if the agents' tables cannot be planned and combined before the deadline.

    Parameters
    ----------
    problem, division
        The problem and its division among agents.
    ranks
        Number of ranks, among which the agents are divided.
    stop
        The deadline; without one nothing is estimated.

    Raises
    ------
    OutOfTime
        If the estimate exceeds the time that is left.
    """
    left, agents = stop.left, len(division.locals)
    if agents < tuning.MIN_ESTIMATED_AGENTS or left == float("inf"):
        return
    needed = tuning.SECONDS_PER_PLANNED_AGENT * agents / ranks
    if needed <= left:
        needed += tuning.SECONDS_PER_SEPARATOR_VARIABLE * separator_variables(problem, division)
    if needed > left:
        raise OutOfTime("the time budget is too short for the agents' tables")


def separator_variables(problem: Problem, division: Division) -> int:
    """Return a lower bound on the total number of variables of all separators of the depth-first pseudo-tree.

    A variable is in the separators of all agents on the path from the deepest agent that shares a factor with it up to
    its owner, which is not counted.
    """
    neighbours = neighbours_of(problem, division)
    by_degree = np.argsort(-np.diff(neighbours.start), kind="stable").tolist()
    depth = _depths(np.array(depth_first(neighbours, by_degree), dtype=np.int64))
    start, variables = flatten_groups(division.scopes)
    lengths = np.diff(start)
    if not lengths.size:
        return 0
    depths = depth[problem.owner[variables]]
    path = np.repeat(np.maximum.reduceat(depths, start[:-1]), lengths) - depths
    longest = np.zeros(problem.n_variables, dtype=np.int64)
    np.maximum.at(longest, variables, path)
    return int(longest.sum())


def _depths(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the depth of each node of a forest, 0 for roots, by doubling the lengths of the paths to ancestors."""
    is_root = parent < 0
    ancestor, depth = np.where(is_root, np.arange(parent.size), parent), (~is_root).astype(np.int64)
    while not is_root[ancestor].all():
        depth += depth[ancestor]
        ancestor = ancestor[ancestor]
    return depth
