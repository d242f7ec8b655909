"""The max-marginals of one variable by one elimination of all others, where that fits the memory and the time.

A junction tree holds the max-marginals of all variables at once, and needs the memory of all cliques. An elimination
that keeps one variable needs little more than an elimination of the whole problem.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Ints
from dmcmc.results.outcome import BoundProof, SolveOutcome, judge, quality_of
from dmcmc.run.resolving.one_boundary_variable import row_total, with_boundary
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import SampledTable, Sampling


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
