"""Bounds of agents without a combination of their tables, checks of bounds, and gains of work on them.

The whole problem is bounded by the sum of the largest entries of each agent's upper table, before the first combination
and in runs that end without one. Bounds are encoded: utilities in the number type of the tables, in which −∞ is a
sentinel.

A lower table holds utilities that are attained, so a number of the upper table below it is wrong: a plug-in breaks its
contract, or this program has an error. Nothing may be called proven then. A *row* is one assignment of an agent's
boundary variables (its interface).

An *improver* is a component that can raise the objective or lower the upper bound. The first tables are made in the
names of improvers, too, so that every result lists who has found what. A *core second* is one second of one CPU core.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.search_rows import runs_on_gpu
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, is_allowed
from dmcmc.inference.model.device_table import largest_entry
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.solving.tuning import GPU_TRIAL_SECONDS, MAX_TRIAL_PART

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent
    from dmcmc.solving.planning.divided_problem import DividedProblem


def uncombined_bounds(
    division: Division, arithmetic: Arithmetic, numbers: Sequence[int], agents: "Mapping[int, Agent]"
) -> dict[int, Number]:
    """Return an encoded upper bound on each agent's utility: from its upper table, or from its factors without one.

    Parameters
    ----------
    division
        The agents' local problems.
    arithmetic
        Encoding of the tables.
    numbers
        The agents to bound.
    agents
        The agents that have a table.
    """
    bounds: dict[int, Number] = {}
    for number in numbers:
        upper = agents[number].table.upper if number in agents else None
        if upper is None:
            bounds[number] = largest_sum(division.locals[number].factors, arithmetic)
        else:
            bounds[number] = clamped_sum([largest_entry(table) for table in upper], arithmetic)
    return bounds


def problem_bound(division: Division, arithmetic: Arithmetic, parts: Sequence[Mapping[int, Number]]) -> Number | None:
    """Return an upper bound on the whole problem (encoded) from the agents' bounds; None if an agent has none."""
    bounds = [bound for part in parts for bound in part.values()]
    if len(bounds) < len(division.locals):
        return None
    return clamped_sum([*bounds, largest_sum(division.crossing, arithmetic)], arithmetic)


def largest_sum(factors: Sequence[Factor], arithmetic: Arithmetic) -> Number:
    """Return the sum of each factor's largest entry (encoded), an upper bound on their sum."""
    total: Number = 0
    for factor in factors:
        largest = factor.table.max().item()
        if largest == forbidden_value(factor.table.dtype):
            return arithmetic.lowest
        total += largest
    return total


def largest_total(problem: Problem, arithmetic: Arithmetic) -> Number:
    """Return the sum of the largest entries of all factors with variables (encoded), from the problem's flat tables."""
    flat = problem.flat
    with_scope = np.diff(flat.scope_start) > 0
    if not with_scope.any():
        return 0
    largest = np.maximum.reduceat(flat.data, flat.at[:-1])[with_scope]
    if (largest == forbidden_value(flat.data.dtype)).any():
        return arithmetic.lowest
    total: Number = sum(largest.tolist())
    return total


def largest_sums(division: Division, arithmetic: Arithmetic) -> tuple[dict[int, Number], Number]:
    """Return an upper bound for each agent's own factors, and one for all factors between agents."""
    agent_bounds = {local.agent: largest_sum(local.factors, arithmetic) for local in division.locals}
    return agent_bounds, largest_sum(division.crossing, arithmetic)


def clamped_sum(numbers: Sequence[Number], arithmetic: Arithmetic) -> Number:
    """Return a sum of encoded numbers; −∞ if one of them is −∞."""
    return arithmetic.lowest if any(map(arithmetic.is_lowest, numbers)) else sum(numbers)


class BoundError(DmcmcError):
    """An upper bound below a utility that is attained; the message names the source of the bound, agent and row."""

    exit_code = 1


def check_bounds(agent: "Agent", problem: Problem, provider: str, listed: NDArray[np.int64] | None = None) -> None:
    """Raise BoundError if an agent's upper table is below its lower table in a row that is not pruned.

    Parameters
    ----------
    agent : Agent
        The agent.
    problem : Problem
        The problem, for the names in the message.
    provider : str
        Name of the agent's bound provider.
    listed : (k, boundary variables) int64 or None
        The rows of the lower table, if it has only these.
    """
    table, interface, arithmetic = agent.table, agent.local.interface, agent.context.arithmetic
    if table.upper is None or table.exact:
        return
    if agent.enumerated:
        lower, upper = agent.rows(table.lower), agent.rows(table.upper)
    elif (
        listed is not None and len(table.lower) == 1 and set().union(*(t.scope for t in table.upper)) <= set(interface)
    ):
        lower, upper = table.lower[0].values, np.zeros(len(listed), dtype=arithmetic.dtype)
        for one in table.upper:
            columns = tuple(listed[:, interface.index(v)] for v in one.scope)
            upper = arithmetic.add(upper, np.broadcast_to(one.values[columns], upper.shape))
    else:
        return
    _check_rows(agent, problem, provider, (lower, upper), listed)


def check_incumbent(agent: "Agent", problem: Problem, provider: str, values: NDArray[np.int64]) -> None:
    """Raise BoundError if an agent's upper table is below the utility that an assignment without violations has there.

    The parameters are those of :func:`check_bounds`, and the values of all variables.
    """
    table, local, arithmetic = agent.table, agent.local, agent.context.arithmetic
    if table.upper is None or table.exact or not set().union(*(t.scope for t in table.upper)) <= set(local.interface):
        return
    entries = [factor.entry(values[list(factor.scope)].tolist()) for factor in local.factors]
    attained = [entry for entry in entries if entry is not None]
    if len(attained) == len(entries):
        upper = np.zeros(1, dtype=arithmetic.dtype)
        for one in table.upper:
            upper = arithmetic.add(upper, one.values[tuple(values[list(one.scope)])])
        lower, row = np.array([sum(attained)], dtype=arithmetic.dtype), values[list(local.interface)][None]
        _check_rows(agent, problem, provider, (lower, upper), row)


def _check_rows(
    agent: "Agent",
    problem: Problem,
    provider: str,
    sides: tuple[NDArray[Any], NDArray[Any]],
    listed: NDArray[np.int64] | None,
) -> None:
    """Raise BoundError if an upper bound is below an attained utility by more than the rounding error."""
    lower, upper = sides
    wrong = is_allowed(lower) & (upper < lower - agent.context.arithmetic.rounding(len(agent.local.factors)))
    if listed is None and agent.pruning.pruned is not None:
        wrong &= ~agent.pruning.pruned
    if not wrong.any():
        return
    row, interface = int(wrong.argmax()), agent.local.interface
    values = np.unravel_index(row, agent.local.interface_shape) if listed is None else listed[row]
    shown = ", ".join(
        f"{problem.variables[v]}={problem.label(v, int(x))!r}" for v, x in zip(interface, values, strict=True)
    )
    source, search = "an error of dmcmc, please report it", agent.upper.boundary_search
    if provider not in registry.built_in:
        source = f"bound provider {provider!r}, a plug-in"
    elif search is not None and not type(search.bounder).__module__.startswith("dmcmc."):
        source = f"bounder {type(search.bounder).__name__}, a plug-in"
    raise BoundError(
        f"{source}: agent {problem.agents[agent.local.agent]!r}, row {row} ({shown}): the upper bound {upper[row]} is"
        f" below the utility {lower[row]}, which is attained; no result can be proven"
    )


class GapCheck:
    """Compares bounds of some agents, and the largest entries of all others, with the best assignment.

    Parameters
    ----------
    divided
        The divided problem.
    world
        The ranks, which all make the check together.
    quality
        Violations and utility of the best assignment.
    """

    def __init__(self, divided: "DividedProblem", world: World, quality: AssignmentQuality) -> None:
        self._divided, self._quality = divided, quality
        self._largest_by_agent, self._largest_crossing = world.on_first_rank(
            partial(largest_sums, divided.division, divided.arithmetic)
        )

    def is_met(self, bounds: Mapping[int, Number]) -> bool:
        """Return whether the gap is as small as requested.

        Parameters
        ----------
        bounds
            Encoded upper bounds of some agents' utilities, by agent.
        """
        quality = self._quality
        if quality.negated_violation < 0:
            return False
        bound = clamped_sum(
            [*({**self._largest_by_agent, **bounds}).values(), self._largest_crossing], self._divided.arithmetic
        )
        difference = float(bound) - float(quality.utility)
        return difference <= self._divided.config.budget.gap * max(1.0, abs(float(quality.objective)))


class Effect(Flag):
    """The numbers that the work of an improver changes.

    Attributes
    ----------
    ASSIGNMENTS
        It finds whole assignments; their gain is reported at once.
    LOWER_TABLES
        It raises agents' lower tables, from which the next combination makes an assignment.
    BOUNDS
        It lowers upper bounds.
    """

    ASSIGNMENTS = auto()
    LOWER_TABLES = auto()
    BOUNDS = auto()


class MeasuredGain(NamedTuple):
    """The measured cost and gain of a piece of work.

    Attributes
    ----------
    improver : str
        Name of the improver.
    seconds : float
        Seconds that the work has taken.
    estimated_seconds : float
        Seconds that it was estimated to take; 0 if it can use any number of seconds.
    closed_gap : float
        Utility by which the agent's part of the optimality gap has shrunk.
    objective_gain : float
        Utility by which the best assignment has improved, if that is known at once.
    """

    improver: str
    seconds: float
    estimated_seconds: float = 0.0
    closed_gap: float = 0.0
    objective_gain: float = 0.0


@dataclass
class ImproverRecord:
    """Totals of one improver in this run.

    Attributes
    ----------
    seconds : float
        Seconds taken, summed over agents.
    objective, bound : float
        Utility by which the objective was raised and by which the upper bound was lowered.
    estimated_seconds : float
        Estimated seconds of the work that had an estimate.
    seconds_with_estimate : float
        Seconds that this work has taken.
    """

    seconds: float = 0.0
    objective: float = 0.0
    bound: float = 0.0
    estimated_seconds: float = 0.0
    seconds_with_estimate: float = 0.0


def agents_with_relaxation_in_time(agents: "Sequence[Agent]", backend: Backend) -> "list[Agent]":
    """Return the agents whose relaxation has time to show whether it helps; their dual ascent waits for it.

    An agent without that time is excluded from relaxations for the rest of the run.
    """
    waiting = [agent for agent in agents if agent.awaits_relaxation]
    seconds_per_agent = trial_seconds(backend, len(waiting))
    return [agent for agent in waiting if agent.upper.has_time_for_relaxation(seconds_per_agent)]


def trial_seconds(backend: Backend, agents: int) -> float:
    """Return the core seconds in which each agent's relaxation has to show whether it helps.

    On the CPU this is the agent's share of the remaining core seconds. On a GPU all agents are relaxed together, so the
    result is inf (time enough for all), or 0 if too little time is left for any.

    Parameters
    ----------
    backend
        Its deadline gives the remaining seconds.
    agents
        Number of agents that share the CPU cores.
    """
    if runs_on_gpu(backend, backend.stop.left):
        return math.inf if MAX_TRIAL_PART * backend.stop.left > GPU_TRIAL_SECONDS else 0.0
    return MAX_TRIAL_PART * backend.stop.left * backend.threads / max(1, agents)
