"""The form in which a search engine takes a problem, and the bytes that it takes there."""

from collections.abc import Iterator

import numpy as np

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Array
from dmcmc.results.result import AND_OR, BRANCH_AND_BOUND, CP_SAT, MAX_SAT, TOULBAR2
from dmcmc.samplers.cp_sat.native_problem import excludes_minority, global_share, native_problem
from dmcmc.samplers.max_sat import native_problem as max_sat_problem
from dmcmc.samplers.toulbar2.compact_problem import MAX_TABLE_ARITY, CompactProblem, compact_problem
from dmcmc.samplers.tuning import common

_BYTES_PER_ENTRY = 48  # bytes per table entry in the engine
_BYTES_PER_WIDE_ENTRY = 200  # bytes per listed tuple, or entry of a table, over more than three variables
# A hard table over two variables becomes cliques in CP-SAT: its entries are read, and then only their pattern is kept.
# Measured on office calendars with 28 million such entries.
_BYTES_PER_HARD_ENTRY = 20
_BYTES_PER_TABLE = 2000  # bytes per table or variable besides the entries
OWN_ENGINES = frozenset({BRANCH_AND_BOUND, AND_OR})
"""Engines of dmcmc, which are threads: they take tables only, and need compiled kernels."""


def has_many_constraints(problem: Problem) -> bool:
    """Return whether global constraints have most of a problem's (factor, variable) pairs."""
    return global_share(problem) >= common.MAJORITY_SHARE


def given_to_engine(engine: str, problem: Problem, memory: int) -> CompactProblem:
    """Return a problem in the form in which an engine takes it; it is computed once.

    Parameters
    ----------
    engine : str
        Name of the engine.
    problem : Problem
        The problem.
    memory : int
        Memory for the tables in bytes.

    Raises
    ------
    ResourceError
        If a factor fits the memory in none of the forms that the engine takes.
    """
    if problem.dense:
        return CompactProblem(problem)

    def given() -> CompactProblem:
        """Return the problem in the engine's form."""
        if engine == CP_SAT:
            return native_problem(problem)
        if engine == MAX_SAT:
            return max_sat_problem.native_problem(problem)
        return compact_problem(problem, memory, dense_only=engine in OWN_ENGINES)

    return problem.facts.get_or_compute(("given to engine", engine, memory), given)


def bytes_in_engine(given: CompactProblem, engine: str = TOULBAR2) -> int:
    """Return the approximate number of bytes that a problem takes in the engine, in the form in which it is given."""
    entries = sum(
        size * (_BYTES_PER_ENTRY if arity <= MAX_TABLE_ARITY else _BYTES_PER_WIDE_ENTRY) for arity, size in sizes(given)
    )
    entries -= (_BYTES_PER_ENTRY - _BYTES_PER_HARD_ENTRY) * hard_entries(given, engine)
    return entries + _BYTES_PER_TABLE * (len(given.problem.factors) + len(given.linear) + given.problem.n_variables)


def hard_entries(given: CompactProblem, engine: str) -> int:
    """Return the number of entries that CP-SAT only reads: those of conflicts, and the many −∞ of other hard tables."""
    if engine != CP_SAT:
        return 0
    pairs = (f for f in given.problem.factors if len(f.scope) == 2 and not isinstance(f, SparseFactor))
    tables = (factor.table for factor in pairs)
    return sum(table.size if excludes_minority(table) else _many_forbidden(table) for table in tables)


def _many_forbidden(table: Array) -> int:
    """Return the number of forbidden entries of a table that forbids most of them; 0 for other tables."""
    count = int(np.count_nonzero(forbidden(table)))
    return count if 2 * count > table.size else 0


def sizes(given: CompactProblem) -> Iterator[tuple[int, int]]:
    """Yield the arity and the number of costs of each table or list of tuples, and 1 and the terms of each sum."""
    for factor in given.problem.factors:
        yield len(factor.scope), factor.utilities.size if isinstance(factor, SparseFactor) else factor.table.size
    for constraint in given.linear:
        yield 1, len(constraint.terms)
    for automaton in given.native.automata:
        yield 1, sum(layer.utility.size for layer in automaton.layers)
    for factor in given.native.constraints:
        yield 1, sum(array.size for array in factor.arrays())
