"""Agree on a problem that no rank knows as a whole: its arithmetic, its size, and the utility of an assignment.

The private solver calls these functions on all ranks. Everything is computed by exact sums over ranks, so that it is
the same on any number of ranks, and equal to the values of a run that reads the problem from one file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dmcmc.config.settings import Combine
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.memory_shares import MemoryShares, split_memory_after_tables
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import MAX_TOTAL_UTILITY, Arithmetic, Exact, exact_sum, narrowest, nearest
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.solving.distribution.rank_view import RankView, rank_view_of
from dmcmc.solving.presolve.presolve_problem import CentredTables, centred_tables
from dmcmc.solving.tuning import SHARED_MEMORY_FACTOR

if TYPE_CHECKING:
    from dmcmc.formats.agent_files import AgentIndex


def agree_on_arithmetic(
    counted: Sequence[Factor], constants: Sequence[Factor], combine: Combine, world: World
) -> tuple[Arithmetic, int]:
    """Return the arithmetic in which the whole problem is solved, and its number of factors.

    Parameters
    ----------
    counted
        Factors that this rank evaluates.
    constants
        Factors without variables, which all ranks know.
    combine
        Settings of the combination.
    world
        The ranks.

    Raises
    ------
    ProblemError
        If the sum of all utilities does not fit a float64.
    """
    integer = all(world.allgather(all(factor.table.dtype.kind == "i" for factor in counted)))
    magnitudes = (magnitude(factor.table) if integer else float(magnitude(factor.table)) for factor in counted)
    parts = world.allgather((exact_sum(magnitudes), len(counted)))
    arithmetic = world.on_all_ranks(lambda: narrowest(nearest(sum(total for total, _ in parts)), integer))
    if exact_sum(magnitude(f.table) for f in constants) > MAX_TOTAL_UTILITY:
        world.agree(ProblemError(f"constants add up to more than {MAX_TOTAL_UTILITY:.3g}; scale them down"))
    if combine.method == "mini-bucket" and combine.moment_matching:
        arithmetic = with_headroom(arithmetic)
    return arithmetic, sum(count for _, count in parts) + len(constants)


def agree_on_view(
    index: "AgentIndex",
    parts: Mapping[int, Problem],
    agents: Sequence[int],
    placed: Sequence[Sequence[int]],
    combine: Combine,
    world: World,
) -> RankView:
    """Return the problem as this rank knows it, with tables around 0 where integers need it to be summed exactly.

    What the middles of all tables add up to becomes a constant that all ranks know. A run that reads the problem from
    one file does the same.

    Parameters
    ----------
    index
        Public data of all agents.
    parts
        Problem of each agent that this rank knows.
    agents
        Agents of this rank.
    placed
        For each agent the factors between agents that it evaluates.
    combine
        Settings of the combination.
    world
        The ranks.
    """
    view = rank_view_of(index, parts)
    counted, constants = view.counted(agents, placed), view.division.constants
    arithmetic, _ = agree_on_arithmetic(counted, constants, combine, world)
    if arithmetic.exact or not arithmetic.integral:
        return view
    centred = centred_tables(counted)
    moved = CentredTables(centred.factors, sum(world.allgather(centred.constant)))
    fits = abs(moved.constant) < 1 << 63
    if not fits or not agree_on_arithmetic(centred.factors, constants, combine, world)[0].exact:
        return view
    given = {agent: replace(part, factors=tuple(centred_tables(part.factors).factors)) for agent, part in parts.items()}
    return rank_view_of(index, given, moved.constants)


def share_magnitudes(division: Division, agents: Sequence[int], placed: Sequence[Sequence[int]], world: World) -> None:
    """Share with all ranks the magnitudes of each agent's factors (summed) and of each factor between agents.

    Moment matching needs headroom by that: the rank that makes an agent's step has to know it for all agents below.

    Parameters
    ----------
    division
        All agents; receives the magnitudes.
    agents
        Agents of this rank.
    placed
        For each agent the factors between agents that it evaluates.
    world
        The ranks.
    """
    agent_magnitudes = {a: sum(magnitude(f.table) for f in division.locals[a].factors) for a in agents}
    between = {i: magnitude(division.crossing[i].table) for a in agents for i in placed[a]}
    of_agents, of_factors = world.union(agent_magnitudes), world.union(between)
    magnitudes = (
        [of_agents[a] for a in range(len(division.locals))],
        [of_factors[i] for i in range(len(division.crossing))],
    )
    division.__dict__["magnitudes"] = magnitudes


def divide_memory(counted: Sequence[Factor], budget: int, world: World) -> MemoryShares:
    """Divide a rank's memory budget; if tables are small, as if the rank had all of them.

    Tables are small if twice the size of all ranks' tables fits the budget. Choices then equal those of a run that
    reads the problem from one file.

    Raises
    ------
    ResourceError
        If a rank's own tables take all of its budget.
    """
    sizes = world.allgather(sum(factor.table.nbytes for factor in counted))
    size = sum(sizes) if SHARED_MEMORY_FACTOR * sum(sizes) <= budget else max(sizes)
    return world.on_all_ranks(lambda: split_memory_after_tables(size, budget))


class PartialUtility(NamedTuple):
    """Utility of the factors that one rank evaluates.

    Attributes
    ----------
    violations : int
        Number of forbidden entries.
    utility : Exact
        Exact sum of the other entries.
    """

    violations: int
    utility: Exact


def partial_utility(counted: Iterable[Factor], values: Mapping[int, int]) -> PartialUtility:
    """Evaluate the factors of a rank for an assignment."""
    entries = [factor.entry([values[v] for v in factor.scope]) for factor in counted]
    return PartialUtility(sum(entry is None for entry in entries), exact_sum(e for e in entries if e is not None))


def total_quality(parts: Sequence[PartialUtility], problem: Problem, constants: Sequence[Factor]) -> AssignmentQuality:
    """Return violations and utility of an assignment from the parts that the ranks have evaluated.

    Parameters
    ----------
    parts
        Violations and utility of each rank's factors.
    problem
        The problem, for the sense of the objective.
    constants
        Factors without variables, which all ranks know.
    """
    entries = [factor.entry(()) for factor in constants]
    utility_of_ranks = sum(part.utility for part in parts)
    total = nearest(utility_of_ranks + exact_sum(entry for entry in entries if entry is not None))
    violations = sum(part.violations for part in parts) + sum(entry is None for entry in entries)
    return AssignmentQuality(-violations, utility_of_ranks, problem.to_own_sense(total))
