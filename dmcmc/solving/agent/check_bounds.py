"""Check that upper tables are upper bounds, before they are combined and wherever an incumbent is known.

A lower table holds utilities that are attained, so a number of the upper table below it is wrong: a plug-in breaks its
contract, or this program has an error. Nothing may be called proven then. A *row* is one assignment of an agent's
boundary variables (its interface).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds import registry
from dmcmc.inference.model.arithmetic import is_allowed
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import DmcmcError

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent


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
