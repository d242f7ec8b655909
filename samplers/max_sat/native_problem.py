"""MaxSAT: its search process, the form in which it takes a problem, and whether it suits the problem."""

import importlib.util
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.external.process import EngineProcess
from dmcmc.samplers.toulbar2.compact_problem import CompactProblem, native_parts


def native_problem(problem: Problem) -> CompactProblem:
    """Return a problem in the form in which the MaxSAT engine takes it; its variables are those of the problem.

    Dense and sparse factors and automata stay as they are, except that automata become linear constraints where they
    stand for one with equal weights. Global constraints are described by the loads of their cells. Others are replaced
    by their decomposition, or relaxed where that is too large: the result then gives bounds, and its assignments may
    violate them.

    Parameters
    ----------
    problem : Problem
        The problem.
    """
    return native_parts(problem, _has_loads, lambda linear: np.unique(linear.terms[:, 2]).size == 1, by_loads=True)


def suits(problem: Problem) -> bool:
    """Return whether MaxSAT suits a problem: its costs are few and small integers, and its formula is not too large.

    Parameters
    ----------
    problem : Problem
        The problem; its hard constraints may be of any kind.
    """
    if not _has_few_small_costs(problem):
        return False
    if any(isinstance(f, GlobalConstraint) and not _has_loads(f) and f.decomposition is None for f in problem.factors):
        return False
    return number_of_literals(native_problem(problem)) <= tuning.MAX_LITERALS


def number_of_literals(given: CompactProblem) -> int:
    """Return the approximate number of literals in the clauses of a problem's formula.

    Parameters
    ----------
    given : CompactProblem
        The problem as :func:`native_problem` returns it.
    """
    total = int((given.problem.domains**2).sum())
    for factor in given.problem.factors:
        entries = len(factor.tuples) if isinstance(factor, SparseFactor) else prod(factor.shape)
        total += entries * (len(factor.scope) + 1)
    total += sum(3 * len(terms) * min(abs(low or 0) + abs(high or 0), len(terms)) for terms, low, high in given.linear)
    total += sum(4 * layer.utility.size for automaton in given.native.automata for layer in automaton.layers)
    for constraint in given.native.constraints:
        loads = constraint.cell_loads()
        assert loads is not None
        sizes = np.zeros(loads.cells + 1, dtype=np.int64)
        for item in loads.items:
            total += 4 * int((item.end - item.first).sum())
            cells = np.unique(np.stack([item.first.reshape(-1), item.end.reshape(-1)]), axis=1)
            np.add.at(sizes, cells[0], item.weight)
            np.add.at(sizes, cells[1], -item.weight)
        limit = max(1, int(np.count_nonzero(loads.penalty == 0)))
        counted = np.cumsum(sizes[:-1])
        total += 10 * loads.cells if loads.counts_runs else int((3 * counted * np.minimum(limit, counted)).sum())
    return total


def _has_loads(factor: Factor) -> bool:
    """Return whether a factor is a global constraint that is a function of the loads of cells."""
    return isinstance(factor, GlobalConstraint) and factor.cell_loads() is not None


def _has_few_small_costs(problem: Problem) -> bool:
    """Return whether all utilities are integers, with few different losses of which none is far above the others."""
    losses = set[int]()
    for factor in problem.factors:
        for utilities in _utilities(factor):
            if utilities.dtype.kind != "i":
                return False
            allowed = np.unique(utilities[~forbidden(utilities)])
            losses.update((allowed[-1:] - allowed).tolist())
            if len(losses) > tuning.MAX_DIFFERENT_COSTS + 1:
                return False
    losses.discard(0)
    return not losses or max(losses) <= tuning.MAX_COST_RATIO * min(losses)


def _utilities(factor: Factor) -> Sequence[Array]:
    """Return the utilities of a factor in parts, of which each has its own maximum."""
    if isinstance(factor, GlobalConstraint):
        return () if factor.cost is None else (np.array([0, -factor.cost]),)
    if isinstance(factor, AutomatonFactor):
        return [layer.utility for layer in factor.layers]
    return (factor.utilities if isinstance(factor, SparseFactor) else factor.table,)


def available() -> bool:
    """Return whether python-sat is installed."""
    return importlib.util.find_spec("pysat") is not None


class MaxSatProcess(EngineProcess):
    """A MaxSAT process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.

    Raises
    ------
    Unavailable
        If python-sat is not installed.
    """

    engine = Path(__file__).with_name("worker.py")
    max_discarded_seconds = 0.0

    def __init__(self, memory: int = 0) -> None:
        if not available():
            raise Unavailable("MaxSAT needs python-sat; pip install 'dmcmc[search]'")
        super().__init__(memory)
