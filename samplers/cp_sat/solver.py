"""OR-tools' CP-SAT: its search process, the form in which it takes a problem, and the local solver ``cp-sat``.

The local solver makes one search per row of an agent's table. CP-SAT takes each factor as it is, without hidden
variables for the states of automata.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.external.problem_arrays import is_native
from dmcmc.samplers.external.process import EngineProcess
from dmcmc.samplers.toulbar2.compact_problem import CompactProblem, native_parts
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.samplers.toulbar2.solver import RowSearchSolver


def available() -> bool:
    """Return whether CP-SAT is installed."""
    return importlib.util.find_spec("ortools") is not None


class CpSatProcess(EngineProcess):
    """A CP-SAT process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.
    known : callable
        Returns the best known assignment, from which a search starts: value indices of the first variables; None if
        there is none.
    workers : int
        Number of CP-SAT's workers (threads).

    Raises
    ------
    Unavailable
        If CP-SAT is not installed.
    """

    engine = Path(__file__).with_name("worker.py")
    max_discarded_seconds = 1.0  # of its presolve; later a better assignment gains less than learned clauses are worth

    def __init__(
        self, memory: int = 0, known: Callable[[], NDArray[np.int64] | None] = lambda: None, workers: int = 1
    ) -> None:
        if not available():
            raise Unavailable("CP-SAT is not installed; pip install 'dmcmc[search]'")
        self._workers = workers
        super().__init__(memory, known)

    def _job(self, costs: CostProblem) -> dict[str, Any]:
        """Return the number of workers and the hint."""
        return {"workers": self._workers, "hint": self._known_values(costs)}


SOLVER = RowSearchSolver(
    "cp-sat",
    "CP-SAT, one search per row; proves its table if time allows (extra: search)",
    CpSatProcess,
    available,
    "ortools; pip install 'dmcmc[search]'",
)


# Maximum of the sum of all costs. CP-SAT computes with 64-bit integers, and multiplies costs in its linear relaxation.
MAX_TOTAL_COST = 2**40


def native_problem(problem: Problem) -> CompactProblem:
    """Return a problem in the form in which CP-SAT takes it; its variables are those of the problem.

    Dense and sparse factors stay as they are. Automata become linear constraints where they stand for one. Global
    constraints that cannot be described are relaxed: the result then gives bounds, and its assignments may violate
    them.

    Parameters
    ----------
    problem : Problem
        The problem.
    """
    return native_parts(problem, is_native, lambda constraint: True)


def excludes_minority(table: Array) -> bool:
    """Return whether a table forbids a minority of its entries, and all others are 0; CP-SAT gets it as cliques."""
    nonzero = np.count_nonzero(table)
    return bool(0 < 2 * nonzero < table.size and np.count_nonzero(forbidden(table)) == nonzero)


def global_share(problem: Problem) -> float:
    """Return the part of all (factor, variable) pairs that global constraints have; 0 for a problem of tables.

    Pairs of factors with a single variable do not count. A global constraint is a factor that is no table, as an
    automaton is.

    Parameters
    ----------
    problem : Problem
        The problem.
    """
    if problem.dense:
        return 0.0
    sizes = [(len(factor.scope), isinstance(factor, AutomatonFactor | GlobalConstraint)) for factor in problem.factors]
    total = sum(size for size, _ in sizes if size > 1)
    return sum(size for size, is_global in sizes if size > 1 and is_global) / max(1, total)
