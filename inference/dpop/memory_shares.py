"""Divide a memory budget among the data that exist at the same time; the shares were chosen by measurement.

The UTIL steps of DPOP (messages from the leaves up) leave their tables in memory until VALUE has chosen the values from
the roots down.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.dpop.tuning import STEPS_SHARE, WORK_SHARE
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import format_bytes


class MemoryShares(NamedTuple):
    """Shares of one rank's memory budget, in bytes.

    Attributes
    ----------
    problem : int
        The problem's tables, which every rank holds.
    work : int
        One elimination at a time, with its copies; after all agents have tables, the UTIL steps of all agents.
    steps : int
        The part of ``work`` for the UTIL steps that stay until VALUE; the remainder is for copies that the current
        step makes.
    agent_data : int
        Tables, chains and bounds of all agents.
    """

    problem: int
    work: int
    steps: int
    agent_data: int


def split_memory(budget: int, *problems: Problem) -> MemoryShares:
    """Divide a memory budget.

    Parameters
    ----------
    budget
        Bytes per rank.
    problems
        The problems in memory; tables that they share count once.

    Raises
    ------
    ResourceError
        If their tables alone exceed the budget.
    """
    return split_memory_after_tables(bytes_of_tables(*problems), budget)


def split_memory_after_tables(size: int, budget: int) -> MemoryShares:
    """Divide a memory budget of which the problem's tables take ``size`` bytes; see ``split_memory``."""
    if size >= budget:
        raise ResourceError(
            f"the problem's own tables take {format_bytes(size)} and budget.memory allows {format_bytes(budget)};"
            " raise budget.memory"
        )
    work = int(WORK_SHARE * (budget - size))
    return MemoryShares(size, work, int(STEPS_SHARE * work), budget - size - work)


def largest_share(needs: Sequence[float], total: float) -> float:
    """Return the max-min fair limit per consumer, such that all consumers together take at most ``total``.

    Consumers that need less than an equal share leave their unused part to the larger ones. If all needs fit,
    the largest consumer gets the remainder.

    Parameters
    ----------
    needs
        The needs of each consumer, in any unit.
    total
        The amount to divide, in the same unit.

    Examples
    --------
    >>> largest_share([1, 2, 30, 40], 23)
    10.0
    >>> largest_share([1, 2], 23)
    22.0
    """
    remaining, n_remaining = float(total), len(needs)
    for need in sorted(needs)[:-1]:
        if need > remaining / n_remaining:
            return remaining / n_remaining
        remaining, n_remaining = remaining - need, n_remaining - 1
    return remaining
