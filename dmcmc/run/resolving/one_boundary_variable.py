"""The whole problem as the local problem of one agent with one boundary variable, whose values are its rows."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Number
from dmcmc.solving.planning.divided_problem import arithmetic_for


class BoundaryProblem(NamedTuple):
    """A problem with one boundary variable.

    Attributes
    ----------
    local : LocalProblem
        The problem with dense tables; constants are left out.
    arithmetic : Arithmetic
        The encoding of its tables.
    addends : int
        Number of factors, constants included.
    memory : int
        Memory for its tables in bytes.
    """

    local: LocalProblem
    arithmetic: Arithmetic
    addends: int
    memory: int


def with_boundary(problem: Problem, v: int, settings: Settings, stop: Deadline = NO_DEADLINE) -> BoundaryProblem:
    """Return a problem with one boundary variable ``v``.

    Parameters
    ----------
    problem
        The problem; its agents do not matter.
    v
        The variable.
    settings
        Settings; the memory budget and ``combine`` are used.
    stop
        Deadline of planning its elimination.

    Raises
    ------
    ResourceError
        If dense tables do not fit the memory.
    """
    memory = split_memory(settings.budget.bytes, problem).work
    dense = densify(problem, memory).problem
    hidden = tuple(u for u in range(dense.n_variables) if u != v)
    factors = tuple(factor for factor in dense.factors if factor.scope)
    local = LocalProblem(0, (v,), hidden, factors, dense.domains, stop=stop)
    return BoundaryProblem(local, arithmetic_for(dense, settings.combine), len(dense.factors), memory)


def dense_dtype(problem: Problem, settings: Settings) -> np.dtype[np.generic]:
    """Return the number type of the sums of a problem with dense tables."""
    return arithmetic_for(densify(problem, settings.budget.bytes).problem, settings.combine).dtype


def row_total(tables: Iterable[EncodedTable], row: int, arithmetic: Arithmetic) -> Number:
    """Return the sum of a row's entries in some tables over one variable; −∞ if one of them is."""
    entries: list[Number] = [(table.values[row] if table.scope else table.values).item() for table in tables]
    return arithmetic.lowest if any(map(arithmetic.is_lowest, entries)) else sum(entries)
