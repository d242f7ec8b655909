"""The whole problem as that of one agent, with no boundary variable or with one, whose values are its rows.

With one boundary variable, one elimination of all others gives its max-marginals. It needs little more memory than an
elimination of the whole problem, where a junction tree needs the memory of all cliques.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.dpop.slicing import split_memory
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Ints, Number
from dmcmc.results.outcome import BoundProof, SolveOutcome, judge, quality_of
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
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


class ValueAnswer(NamedTuple):
    """The best assignment with a fixed value of a variable.

    Attributes
    ----------
    outcome : SolveOutcome
        Status, objective and bound.
    values : (n,) int64 or None
        The assignment; None if no allowed assignment has the value.
    """

    outcome: SolveOutcome
    values: Ints | None


def answers_by_elimination(
    problem: Problem, v: int, settings: Settings, stop: Deadline, seconds: float
) -> list[ValueAnswer] | None:
    """Return the best assignment with each value of a variable.

    Parameters
    ----------
    problem
        The problem; its agents do not matter.
    v
        The variable.
    settings
        Settings; the memory budget and the device are used.
    stop
        Deadline of the elimination.
    seconds
        An elimination that is estimated to take longer is not begun.

    Returns
    -------
    list of ValueAnswer or None
        One answer per value; None if the elimination does not fit the memory or the time.
    """
    try:
        local, arithmetic, addends, memory = with_boundary(problem, v, settings, stop)
        if local.plan.cells * COSTS.seconds_per_cell > seconds:
            return None
        solver = registry.get("exact")
        solver.check(local, memory, arithmetic)
        backend = Backend(settings.device, cores(), stop=stop)
        table = solver.solve([local], Sampling(arithmetic, backend=backend))[0]
        return list(_answers(problem, addends, v, table, arithmetic))
    except ResourceError:
        return None


def _answers(
    problem: Problem, addends: int, v: int, table: SampledTable, arithmetic: Arithmetic
) -> Iterator[ValueAnswer]:
    """Yield the answer for each value of the variable that the table keeps; ``addends`` is the number of factors."""
    constants = [factor for factor in problem.factors if not factor.scope]
    for value in range(int(problem.domains[v])):
        total = row_total(table.lower, value, arithmetic)
        proof = BoundProof([total], arithmetic, addends)
        if arithmetic.is_lowest(total):
            yield ValueAnswer(SolveOutcome("infeasible", None, None, None, None), None)
            continue
        chosen = {v: value, **table.witness({v: value})}
        values = np.array([chosen[u] for u in range(problem.n_variables)], dtype=np.int64)
        yield ValueAnswer(judge(problem, quality_of(problem, values), constants, proof), values)


def undivided(problem: Problem, settings: Settings) -> Problem:
    """Return the problem with one agent, unless a baseline algorithm solves it, whose agents are part of the method.

    A constraint over all variables would make all of them part of the agents' interfaces.
    """
    if settings.algorithm_settings.name != "dmcmc":
        return problem
    owner = np.zeros(problem.n_variables, dtype=np.int64)
    return dataclasses.replace(problem, agents=("all agents",), owner=owner)


def undivided_settings(settings: Settings) -> Settings:
    """Return settings for the runs on changed problems: no files, and a search that suits the whole problem."""
    return replace(settings, checkpoint=None, output=None, search="auto")
