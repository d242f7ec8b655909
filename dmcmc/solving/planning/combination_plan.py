"""Plan how agents' tables are combined by UTIL steps: exactly, split into mini-buckets, or in slices.

A UTIL step of an agent joins its tables, crossing factors (between agents) and its children's messages, and eliminates
its boundary variables (the interface). The result is its message to its parent. In the VALUE phase, which goes back
down, every agent chooses its boundary values. The size of a step is limited by the memory, by the time budget, and by
what its parent can join.

*Mini-buckets* split the tables that meet at a variable into groups (*buckets*) of at most z variables, which are
maximised separately; the message is then an upper bound. *Slices* fix (*cut*) some variables, and repeat the steps
for each combination of their values. A *listed* agent has a table over a list of its rows (assignments of its
boundary variables); a *row variable* whose values are these rows stands in for its interface.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import dmcmc.solving.tuning as tuning
from dmcmc.config.settings import Combine
from dmcmc.inference.dpop.agent_step import UtilMessage
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.division_cost import agent_costs
from dmcmc.inference.dpop.slicing import PredictedStep, Slicing, StepScopes, largest_share, plan_slices, predict_steps
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.exact_or_mini_buckets import EXACT, Relaxation
from dmcmc.inference.minibuckets.moment_matching import magnitude_limit_of
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World

if TYPE_CHECKING:  # a setup has numbers that are chosen here
    from dmcmc.inference.dpop.pseudotree import PseudoTree
    from dmcmc.samplers.auto.choose import AgentChoice, AgentWorkCounts, ResourceLimits
    from dmcmc.solving.planning.divided_problem import DividedProblem
    from dmcmc.solving.planning.plan import Setup


class MessagesTooWide(ResourceError):
    """Raised if messages from an agent's children leave no memory for its own UTIL step.

    The combination is then tried again with narrower messages (:func:`narrowed_limits`).

    Attributes
    ----------
    agent : int
        The agent whose step failed; -1 if not set.
    z : int
        Largest mini-bucket limit (variables per table) that the agents below it may use in the next attempt.
    """

    agent: int = -1
    z: int = 0


def relaxation_of(combine: Combine) -> Relaxation:
    """Return how an agent's UTIL step may be relaxed: exact, or split into mini-buckets.

    Its z is None if the settings leave z to the program.
    """
    z = combine.z if isinstance(combine.z, int) else None
    return Relaxation(
        "exact" if combine.method == "sliced" else combine.method, z, combine.partition, combine.moment_matching
    )


def matching_headroom(division: Division, tree: "PseudoTree", arithmetic: Arithmetic) -> list[int | float]:
    """Return, per agent, how large moment matching may make the entries of its message: a multiple of their magnitude.

    Moment matching moves utility between the mini-buckets of a step, which makes entries larger. The multiple is the
    same for all agents: the largest magnitude that the arithmetic allows, divided by the total magnitude. A parent
    joins its children's tables with its own, so the magnitudes add up to at most what the arithmetic can hold. If sums
    are floats, each agent has the whole limit.
    """
    headroom = magnitude_limit_of(arithmetic)
    if not arithmetic.exact:
        return [headroom] * len(tree.parent)
    agent_magnitudes, crossing_magnitudes = division.magnitudes
    magnitude = [int(m) for m in agent_magnitudes]
    for agent in tree.bottom_up:
        magnitude[agent] += sum(int(crossing_magnitudes[i]) for i in tree.placed[agent])
        if tree.parent[agent] >= 0:
            magnitude[tree.parent[agent]] += magnitude[agent]
    factor = int(headroom) // max(1, int(arithmetic.total))
    return [m * factor for m in magnitude]


def entries_per_step(
    parts: "DividedProblem",
    tree: "PseudoTree",
    surveys: "Sequence[AgentWorkCounts]",
    choices: "Sequence[AgentChoice]",
    entries: int,
    stop: Deadline = NO_DEADLINE,
) -> int:
    """Return the limit of entries for each agent's UTIL step, so that all steps together retain at most ``entries``.

    Agents that need less leave their rest to the other agents. Where agents have upper tables besides lower ones, each
    side gets half. The steps' needs are planned only if they could exceed the limit.

    Parameters
    ----------
    parts, tree, surveys, choices
        The divided problem, its pseudo-tree, and each agent's counted work and method.
    entries
        Table entries for all steps together.
    stop
        Deadline of the planning of the steps' needs.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    problem, division = parts.problem, parts.division
    sides = 1 if all(choice.method == "exact" for choice in choices) else 2
    rows_by_agent = {a: choice.listed for a, choice in enumerate(choices) if choice.listed}
    if sides * sum(join_sizes(problem, division, tree, rows_by_agent)) <= entries:
        return entries // sides
    if problem.n_agents > tuning.MAX_PLANNED_AGENTS:
        return max(1, entries // (sides * problem.n_agents))
    scopes = {
        local.agent: work.remaining_tables(local.interface) if choice.method == "exact" else (local.interface,)
        for local, work, choice in zip(division.locals, surveys, choices, strict=True)
    }
    needs = [cost.step_entries for cost in agent_costs(problem, division, tree, scopes, rows_by_agent, stop)]
    return max(1, int(largest_share(needs, entries / sides)))


def join_sizes(
    problem: Problem, division: Division, tree: "PseudoTree", listed: Mapping[int, int] | None = None
) -> Iterator[float]:
    """Yield, for each agent, the entries of its UTIL step if all tables that meet there were joined into one.

    Parameters
    ----------
    problem, division, tree
        The problem, its agents' parts, and the pseudo-tree.
    listed
        Number of rows, by agent whose table is over a list of rows.
    """
    rows, owner = listed or {}, problem.owner
    for local in division.locals:
        variables = {*local.interface, *tree.separators[local.agent]}
        for child in tree.children[local.agent]:
            variables.update(tree.separators[child])
        listed_agents = {int(owner[v]) for v in variables if int(owner[v]) in rows} if rows else set()
        size = prod(float(problem.domains[v]) for v in variables if not listed_agents or int(owner[v]) not in rows)
        yield min(1e300, size * prod(float(rows[a]) for a in listed_agents))


def bytes_per_slice(step_bytes: int, shared_bytes: int) -> int:
    """Return the bytes that a slice of an agent's UTIL step may take.

    Parameters
    ----------
    step_bytes
        Bytes that a whole step may take.
    shared_bytes
        Bytes for the steps of all agents together.
    """
    return max(step_bytes, shared_bytes // tuning.SLICE_MEMORY_DIVISOR)


def step_attempts(setup: "Setup", size_factor: float = 1.0) -> list[tuple[Relaxation, int]]:
    """Return the ways to do an agent's UTIL step, each with its limit in bytes of tables; the first that fits is taken.

    With a time budget, exact tables and mini-buckets have to fit the time as well; otherwise, mini-buckets would become
    as large as the memory, however short the time. The last attempt is limited by the memory only.

    Parameters
    ----------
    setup
        The plan of the run.
    size_factor
        Factor on the table size that the time budget allows.

    Notes
    -----
    Entries in time = size factor * part of the time * seconds * threads * (joined cells per second) / (mean domain size
    of the boundary variables): a step joins that many cells for each entry of its result. Exact tables may have the
    bytes of these entries; mini-buckets begin with 1/8 of that, and grow by a factor of four up to the memory.
    """
    relaxation, memory = relaxation_of(setup.divided.config.combine), setup.step_bytes
    seconds, last = setup.divided.config.budget.time, (relaxation, memory)
    if seconds is None or relaxation.method == "exact" or relaxation.z is not None:
        return [last]
    time_part = min(tuning.STEP_TIME_PART, tuning.ALL_STEPS_TIME_PART / max(1, setup.divided.problem.n_agents))
    entries = (
        size_factor
        * time_part
        * seconds
        * setup.limits.threads
        * COSTS.joined_cells_per_second
        / setup.divided.division.mean_shared_domain
    )
    bytes_in_time = int(min(entries, memory)) * setup.divided.arithmetic.dtype.itemsize
    if bytes_in_time >= memory:
        return [last]
    sizes, size = (
        [],
        bytes_in_time // tuning.MINI_BUCKET_SLOWDOWN,
    )  # larger sizes only apply if a join exceeds the smaller ones
    while size < memory:
        sizes.append(size)
        size = 4 * max(1, size)
    mini_bucket_attempts = [*((relaxation, size) for size in sizes), last]
    return (
        mini_bucket_attempts if relaxation.method == "mini-bucket" else [(EXACT, bytes_in_time), *mini_bucket_attempts]
    )


def exact_bytes(setup: "Setup") -> int:
    """Return the bytes of tables up to which an agent's UTIL step is exact; 0 if mini-buckets are asked for."""
    relaxation, memory = step_attempts(setup)[0]
    return 0 if relaxation.method == "mini-bucket" else memory


def refused_step(
    error: ResourceError, tree: "PseudoTree", agent: int, children: Sequence[UtilMessage]
) -> ResourceError:
    """Return the error of an agent's step, as ``MessagesTooWide`` if narrower messages from its children would help.

    ``widest - 1`` is the next z: one variable less than the widest message has. Messages of one variable cannot get
    narrower; the given error is then returned.
    """
    widest = max((len(table.scope) for message in children for table in message), default=0)
    if widest < 2:
        return error
    wide_error = MessagesTooWide(str(error))
    wide_error.agent, wide_error.z = agent, widest - 1
    wide_error.order = tree.bottom_up.index(agent)  # the order of errors does not depend on the ranks
    return wide_error


def narrowed_limits(tree: "PseudoTree", limits: Mapping[int, int], error: MessagesTooWide) -> dict[int, int]:
    """Return the new z of all agents below the one that failed; raise the error if they have used it already.

    Parameters
    ----------
    tree
        The agents' pseudo-tree.
    limits
        The z of earlier attempts, by agent; agents without a limit are not in it.
    error
        The error of the failed step, with the agent and the z to use.
    """
    agents_below, narrowed_z = list(tree.children[error.agent]), dict[int, int]()
    if any(limits.get(child, error.z + 1) <= error.z for child in agents_below):
        raise error
    while agents_below:
        agent = agents_below.pop()
        narrowed_z[agent] = min(limits.get(agent, error.z), error.z)
        agents_below.extend(tree.children[agent])
    return narrowed_z


def largest_join(setup: "Setup") -> float:
    """Return the entries of the largest UTIL step if all tables that meet at an agent were joined into one."""
    return setup.facts.get_or_compute(
        "join", lambda: max(join_sizes(setup.divided.problem, setup.divided.division, setup.tree), default=1.0)
    )


def may_split_buckets(setup: "Setup") -> bool:
    """Return whether UTIL steps may split buckets."""
    if setup.slicing is not None or setup.divided.config.combine.method == "exact":
        return False
    return largest_join(setup) * setup.divided.arithmetic.dtype.itemsize > exact_bytes(setup)


def choose_slicing(
    parts: "DividedProblem",
    tree: "PseudoTree",
    surveys: "Sequence[AgentWorkCounts]",
    choices: "Sequence[AgentChoice]",
    limits: "ResourceLimits",
    max_entries: tuple[int, int],
) -> Slicing | None:
    """Return how UTIL steps are sliced; None if slicing is not wanted, or tables fit without it.

    With ``combine.method: auto`` it is also None if the slices would take too many cells or steps.

    Parameters
    ----------
    parts, tree, surveys, choices, limits
        The parts of the plan so far.
    max_entries
        Two limits of the entries of an agent's step: for whole tables, and for slices (whose tables are not retained).

    Raises
    ------
    ResourceError
        If the settings ask for slices, and no slices fit the memory.
    """
    problem, combine = parts.problem, parts.config.combine
    requested = combine.method == "sliced"
    if not requested and (
        combine.method != "auto" or combine.z != "auto" or problem.n_agents > tuning.MAX_SLICED_AGENTS
    ):
        return None
    if any(choice.listed for choice in choices):
        if requested:
            raise ResourceError("combine.method: sliced needs tables of all rows; raise local.rows or budget.memory")
        return None
    largest = max(join_sizes(problem, parts.division, tree), default=0.0)
    max_cells = (
        tuning.MAX_SLICED_CELLS
        if limits.time is None
        else tuning.STEP_TIME_PART * limits.time * limits.threads * COSTS.joined_cells_per_second
    )
    if largest <= max_entries[0] or (not requested and largest > tuning.MAX_JOIN_FACTOR * max_cells):
        return None
    scopes = {
        local.agent: work.remaining_tables(local.interface) if choice.method == "exact" else (local.interface,)
        for local, work, choice in zip(parts.division.locals, surveys, choices, strict=True)
    }
    try:
        found = find_slicing(parts, tree, scopes, problem.domains, max_entries[1])
    except ResourceError:
        if requested:
            raise
        return None
    return found if found.cut and (requested or found.cells <= max_cells) else None


def combines_per_node(parts: "DividedProblem", tree: "PseudoTree", mode: str, backend: Backend, world: World) -> bool:
    """Return whether one rank of each node combines for all of the node's agents; called by all ranks.

    ``mode`` is the setting ``combine.mode``; ``shared`` asks for it. With ``auto``, this is done if ranks share a GPU,
    and the agents' tables are large enough for it. It is not done in a session, which repeats messages of agents.
    """
    if mode != "auto" or world.size == 1 or parts.retained is not None:
        return mode == "shared"
    cells = sum(join_sizes(parts.problem, parts.division, tree))
    return all(world.allgather(world.gpu_sharers > 1 and backend.worth_gpu(cells * COSTS.seconds_per_cell)))


def find_slicing(
    parts: "DividedProblem",
    tree: "PseudoTree",
    table_scopes: Mapping[int, Sequence[tuple[int, ...]]],
    sizes: NDArray[np.int64],
    max_entries: int,
    to_table_scope: Callable[[Sequence[int]], tuple[int, ...]] = tuple,
) -> Slicing:
    """Return the variables to slice by, so that no agent's step exceeds the limit of entries.

    Parameters
    ----------
    parts, tree
        The divided problem and its pseudo-tree.
    table_scopes
        Scopes of each agent's tables over its interface.
    sizes : (n,) int64
        Domain sizes.
    max_entries
        Entries that a step may have.
    to_table_scope
        Maps a scope of problem variables to the variables of the tables, in which a row variable may stand in for an
        agent's interface.
    """
    requested = parts.config.combine.method == "sliced"
    steps = predicted_steps(parts.division, tree, table_scopes, sizes, to_table_scope, brief=not requested)
    return plan_slices(tree, steps, sizes, max_entries, float("inf") if requested else tuning.MAX_SLICED_STEPS)


def predicted_steps(
    division: Division,
    tree: "PseudoTree",
    table_scopes: Mapping[int, Sequence[tuple[int, ...]]],
    sizes: NDArray[np.int64],
    to_table_scope: Callable[[Sequence[int]], tuple[int, ...]] = tuple,
    brief: bool = False,
) -> list[PredictedStep]:
    """Return a prediction of all agents' exact UTIL steps.

    Parameters are as for :func:`find_slicing`. With ``brief``, less time goes to the search for elimination orders.
    """
    step_scopes = [
        StepScopes(
            table_scopes[local.agent],
            [to_table_scope(division.crossing[i].scope) for i in tree.placed[local.agent]],
            to_table_scope(local.interface),
            to_table_scope(tree.separators[local.agent]),
        )
        for local in division.locals
    ]
    return predict_steps(tree, step_scopes, sizes, brief)


def slicing_seconds(setup: "Setup") -> float:
    """Return the estimated seconds of all sliced UTIL steps."""
    assert setup.slicing is not None
    return sum(agent_slicing_seconds(setup, setup.slicing))


def agent_slicing_seconds(setup: "Setup", slicing: Slicing) -> list[float]:
    """Return the estimated seconds of each agent's sliced UTIL steps.

    The estimate is cells * (seconds per cell) / threads + steps * (seconds per step).
    """
    in_place = setup.divided.arithmetic.exact and setup.backend.device == "cpu"
    cell = tuning.SLICED_CELL_SECONDS if in_place else COSTS.seconds_per_cell
    pairs = zip(slicing.agent_cells, slicing.agent_steps, strict=True)
    return [cells * cell / setup.backend.threads + steps * tuning.SLICED_STEP_SECONDS for cells, steps in pairs]
