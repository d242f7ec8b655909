"""Choose how each factor of a problem is given to a search engine: as compactly as the engine takes it.

toulbar2 takes tables, lists of tuples with a default cost, and hard linear constraints. Other automata become chains of
small tables with a hidden variable for each state (``dmcmc.inference.model.densify``), as toulbar2 decomposes weighted
regular constraints itself. Our branch and bound takes dense tables and constraints of type "at most one". CP-SAT and
MaxSAT take automata and global constraints.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.densify import DenseProblemBuilder, densify, relax_large_chains, tabular_factors
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.toulbar2.costs import (
    MAX_TOTAL_COST,
    NO_NATIVE_FACTORS,
    CostProblem,
    NativeFactors,
    Utilities,
    costs_of_utilities,
)
from dmcmc.samplers.toulbar2.linear_constraints import LinearConstraint, linear_constraint

MAX_TABLE_ARITY = 3  # toulbar2 stores tables over more variables as lists of tuples


class CompactProblem(NamedTuple):
    """A problem whose factors are dense tables, sparse factors, and linear constraints.

    Attributes
    ----------
    problem : Problem
        The dense and the sparse factors. Its first variables are those of the original problem; hidden variables for
        the states of automata follow.
    linear : sequence of LinearConstraint
        The other factors, over the original variables.
    native : NativeFactors
        Factors that the engine takes as automata and as global constraints, over the original variables.
    """

    problem: Problem
    linear: Sequence[LinearConstraint] = ()
    native: NativeFactors = NO_NATIVE_FACTORS


def compact_problem(problem: Problem, memory: int, dense_only: bool = False) -> CompactProblem:
    """Return a problem in the form in which a search engine takes it.

    Parameters
    ----------
    problem : Problem
        The problem.
    memory : int
        Maximum of bytes per expanded table.
    dense_only : bool
        Whether the engine takes no other factors than dense tables and constraints of type "at most one".

    Raises
    ------
    ResourceError
        If a factor fits the memory in none of the forms that the engine takes.
    """
    if problem.dense:
        return CompactProblem(problem)
    linear: list[LinearConstraint] = []
    others: list[Factor] = []
    relaxed = tabular_factors(problem, True) if dense_only else [p for f in problem.factors for p in f.relaxation]
    for factor in relaxed:
        constraint = linear_constraint(factor)
        if constraint is not None and not (dense_only and constraint.group() is None):
            linear.append(constraint)
        else:
            others.append(factor)
    if linear or not problem.tabular:
        problem = _with_factors(problem, others)
    if dense_only:
        return CompactProblem(densify(problem, memory, relax=True).problem, linear)
    builder = DenseProblemBuilder(problem)
    for factor in relax_large_chains(others):
        _add(builder, factor, memory)
    return CompactProblem(builder.finished(), linear)


def native_parts(
    problem: Problem,
    is_native: Callable[[Factor], bool],
    is_linear: Callable[[LinearConstraint], bool],
    by_loads: bool = False,
) -> CompactProblem:
    """Return a problem for an engine that takes automata and global constraints as they are.

    Its variables are those of the problem. Other global constraints are relaxed.

    Parameters
    ----------
    problem : Problem
        The problem.
    is_native : callable
        Returns whether the engine takes a factor as it is; otherwise it gets the factor's relaxation.
    is_linear : callable
        Returns whether the engine takes an automaton as the linear constraint for which it stands.
    by_loads : bool
        See :class:`NativeFactors`.
    """
    if problem.dense:
        return CompactProblem(problem)
    automata, constraints = list[AutomatonFactor](), list[GlobalConstraint]()
    linear, others = list[LinearConstraint](), list[Factor]()
    for factor in [part for f in problem.factors for part in ([f] if is_native(f) else f.relaxation)]:
        constraint = linear_constraint(factor)
        if isinstance(factor, GlobalConstraint):
            constraints.append(factor)
        elif constraint is not None and is_linear(constraint):
            linear.append(constraint)
        elif isinstance(factor, AutomatonFactor):
            automata.append(factor)
        else:
            others.append(factor)
    return CompactProblem(_with_factors(problem, others), linear, NativeFactors(automata, constraints, by_loads))


def _with_factors(problem: Problem, factors: Sequence[Factor]) -> Problem:
    """Return a problem with the same variables and other factors."""
    parts = (problem.variables, problem.domains, problem.agents, problem.owner)
    return Problem(*parts, tuple(factors), problem.labels, problem.sense)


def _add(builder: DenseProblemBuilder, factor: Factor, memory: int) -> None:
    """Add a factor in the form that takes the least memory; a table over few variables stays or becomes a table."""
    if type(factor) is Factor:
        builder.factors.append(factor)
        return
    entries, arity = prod(factor.shape), len(factor.shape)
    if 8 * entries <= memory and (arity <= MAX_TABLE_ARITY or entries <= tuning.PLAIN_TABLE_ENTRIES):
        builder.expand(factor)
    elif isinstance(factor, SparseFactor):
        if arity > MAX_TABLE_ARITY:
            builder.factors.append(factor)
        else:
            builder.add(factor, memory)
    elif isinstance(factor, AutomatonFactor):
        words, chain_entries = entries - factor.forbidden_entries(), sum(factor.chain_sizes)
        if arity > MAX_TABLE_ARITY and words * (arity + 1) <= chain_entries:
            builder.factors.append(factor.to_sparse())
        elif 8 * chain_entries <= memory:
            builder.add_chain(factor, memory)
        else:
            builder.add(factor, memory)
    else:
        builder.expand(factor)


def costs_of_problem(problem: Problem, memory: int, constants: bool = True, dense_only: bool = False) -> CostProblem:
    """Return the costs of all utilities of a problem.

    Parameters
    ----------
    problem : Problem
        The problem.
    memory : int
        Maximum of bytes per expanded table.
    constants : bool
        Whether to include factors without variables; otherwise the caller adds their sum to the results.
    dense_only : bool
        Whether the engine takes no other factors than dense tables and constraints of type "at most one", as our branch
        and bound does.
    """
    return costs_of_compact(compact_problem(problem, memory, dense_only), constants)


def costs_of_compact(
    compact: CompactProblem,
    constants: bool = True,
    check: Callable[[], None] = lambda: None,
    max_total: int = MAX_TOTAL_COST,
) -> CostProblem:
    """Return the costs of a problem in compact form.

    Parameters
    ----------
    compact : CompactProblem
        The problem.
    constants : bool
        As for :func:`costs_of_problem`.
    check : callable
        Called often; it may raise an error to end the conversion.
    max_total : int
        Maximum of the sum of all costs.
    """
    factors = [factor for factor in compact.problem.factors if constants or factor.scope]
    return costs_of_utilities(
        [_utilities(factor) for factor in factors],
        compact.problem.domains,
        compact.linear,
        check,
        compact.native,
        max_total,
    )


def _utilities(factor: Factor) -> Utilities:
    """Return the utilities of a dense or sparse factor."""
    if isinstance(factor, SparseFactor):
        return Utilities(factor.scope, factor.utilities, factor.tuples)
    return Utilities(factor.scope, factor.table)
