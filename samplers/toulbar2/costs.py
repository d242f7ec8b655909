"""Utilities as toulbar2's costs: nonnegative integers, rounded down, so that proofs also hold for the utilities."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.building.levels import max_degree
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.arithmetic import Exact, exact_sum, round_up, scaling_exponent
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.tables import forbidden, normalise
from dmcmc.inference.runtime.types import Array, Number
from dmcmc.samplers.external.problem_arrays import ConstraintCosts
from dmcmc.samplers.toulbar2.linear_constraints import LinearConstraint

T = TypeVar("T")

# Maximum of the sum of all costs, which pass through float64, and the sum to which the costs of floats are scaled: as
# fine as the rounding of their sums.
MAX_TOTAL_COST = 2**52


class Utilities(NamedTuple):
    """The utilities of a factor: a table, or listed tuples and a default.

    Attributes
    ----------
    scope : sequence of int
        Variable indices; empty for a constant.
    entries : ndarray
        The table, or the utilities of the listed tuples followed by the default.
    tuples : ndarray of int32, shape (tuples, arity), or None
        The listed tuples, distinct; None for a table.
    """

    scope: Sequence[int]
    entries: Array
    tuples: NDArray[np.int32] | None = None


class TupleCosts(NamedTuple):
    """Costs of listed tuples, and a default for all others.

    Attributes
    ----------
    scope : ndarray of int64, shape (arity,)
        Variable indices.
    tuples : ndarray of int32, shape (tuples, arity)
        The listed tuples, distinct.
    costs : ndarray of int64, shape (tuples + 1,)
        The cost of each tuple, and the default at the end; ``top`` where forbidden.
    """

    scope: NDArray[np.int64]
    tuples: NDArray[np.int32]
    costs: NDArray[np.int64]

    def of(self, values: NDArray[np.int64]) -> int:
        """Return the cost of an assignment."""
        listed = np.flatnonzero((self.tuples == values[self.scope]).all(axis=1))
        return int(self.costs[listed[0] if listed.size else -1])


class NativeFactors(NamedTuple):
    """Factors that an engine takes without tables.

    Attributes
    ----------
    automata : sequence of AutomatonFactor
        Automata, which may have costs.
    constraints : sequence of GlobalConstraint
        Global constraints that can be described (``dmcmc.samplers.external.problem_arrays``).
    by_loads : bool
        Whether the constraints are described by the loads of cells even if they could be by their parameters.
    """

    automata: Sequence[AutomatonFactor] = ()
    constraints: Sequence[GlobalConstraint] = ()
    by_loads: bool = False


NO_NATIVE_FACTORS = NativeFactors()


class AutomatonCosts(NamedTuple):
    """An automaton whose transitions have costs (``dmcmc.inference.model.automaton``).

    Attributes
    ----------
    scope : ndarray of int64, shape (arity,)
        Variable indices.
    following : list of ndarray of int32, shape (states, values)
        For each variable, the state that follows a state and a value; arbitrary where the transition is forbidden.
    costs : list of ndarray of int64, shape (states, values)
        For each variable, the cost of each transition; ``top`` where forbidden.
    """

    scope: NDArray[np.int64]
    following: list[NDArray[np.int32]]
    costs: list[NDArray[np.int64]]

    def of(self, values: NDArray[np.int64]) -> int:
        """Return the cost of an assignment."""
        state = total = 0
        for v, following, costs in zip(self.scope.tolist(), self.following, self.costs, strict=True):
            total += int(costs[state, values[v]])
            state = int(following[state, values[v]])
        return total


@dataclass(frozen=True)
class CostProblem:
    """A cost minimisation problem (weighted CSP): each factor is subtracted from its largest entry.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    scopes : list of (arity,) int64
        Scopes of the tables that are not constant.
    costs : list of int64 arrays
        Cost tables, flat, in C order; ``top`` where forbidden.
    best : int or Fraction
        Exact utility of an assignment of cost 0: the sum of the largest entries of all factors.
    scale : Fraction
        Costs per unit of utility.
    exact : bool
        Whether the costs are exact: utilities are integers and not scaled.
    top : int
        Larger than the cost of any assignment without violations.
    feasible : bool
        False if a table forbids all its entries.
    listed : sequence of TupleCosts
        Cost functions given by tuples and a default.
    linear : sequence of LinearConstraint
        Hard linear constraints.
    automata : sequence of AutomatonCosts
        Automata; only CP-SAT and MaxSAT take them.
    constraints : sequence of ConstraintCosts
        Global constraints; only CP-SAT and MaxSAT take them.
    """

    domains: NDArray[np.int64]
    scopes: list[NDArray[np.int64]]
    costs: list[NDArray[np.int64]]
    best: Exact
    scale: Fraction
    exact: bool
    top: int
    feasible: bool
    listed: Sequence[TupleCosts] = ()
    linear: Sequence[LinearConstraint] = ()
    automata: Sequence[AutomatonCosts] = ()
    constraints: Sequence[ConstraintCosts] = ()

    def bound(self, cost: int) -> Number:
        """Return an upper bound on the utility of an assignment whose cost is at least ``cost``."""
        return round_up(self.best - Fraction(cost) / self.scale if not self.exact else self.best - cost)

    def cost_to_beat(self, utility: Number) -> int:
        """Return a cost such that every assignment better than ``utility`` has a lower cost."""
        cost = ceil((self.best - Fraction(utility)) * self.scale)
        return max(0, min(self.top, cost))

    def of(self, values: NDArray[np.int64]) -> int:
        """Return the cost of an assignment; ``top`` or more if it violates a factor."""
        total = sum(factor.of(values) for factor in self.listed)
        total += sum(automaton.of(values) for automaton in self.automata)
        for constraint, unit, _ in self.constraints:
            degree = constraint.degree(values[list(constraint.scope)].tolist())
            total += degree * unit if unit is not None else self.top if degree else 0
        for scope, cost in zip(self.scopes, self.costs, strict=True):
            total += int(cost[np.ravel_multi_index(tuple(values[scope]), tuple(self.domains[scope]))])
        return total + self.top * sum(not constraint.holds(values) for constraint in self.linear)

    def save(self, stream: BinaryIO) -> None:
        """Write the problem as a NumPy archive for the search process."""
        none = np.zeros(0, dtype=np.int64)
        sides = [side for constraint in self.linear for side in _at_least(constraint)]
        layers = [
            layer for automaton in self.automata for layer in zip(automaton.following, automaton.costs, strict=True)
        ]
        np.savez(
            stream,
            domains=self.domains,
            top=np.array(self.top, dtype=np.int64),
            arity=np.array([len(scope) for scope in self.scopes], dtype=np.int64),
            scope=np.concatenate([*self.scopes, none]),
            size=np.array([cost.size for cost in self.costs], dtype=np.int64),
            cost=np.concatenate([*self.costs, none]),
            listed_arity=np.array([factor.scope.size for factor in self.listed], dtype=np.int64),
            listed_scope=np.concatenate([*(factor.scope for factor in self.listed), none]),
            listed_tuples=np.array([len(factor.tuples) for factor in self.listed], dtype=np.int64),
            listed_value=np.concatenate([*(factor.tuples.reshape(-1) for factor in self.listed), none]),
            listed_cost=np.concatenate([*(factor.costs for factor in self.listed), none]),
            terms=np.array([len(terms) for terms, _ in sides], dtype=np.int64),
            term=np.concatenate([*(terms for terms, _ in sides), none.reshape(0, 3)]),
            minimum=np.array([minimum for _, minimum in sides], dtype=np.int64),
            automaton_arity=np.array([automaton.scope.size for automaton in self.automata], dtype=np.int64),
            automaton_scope=np.concatenate([*(automaton.scope for automaton in self.automata), none]),
            automaton_states=np.array([len(following) for following, _ in layers], dtype=np.int64),
            automaton_following=np.concatenate([*(following.reshape(-1) for following, _ in layers), none]),
            automaton_cost=np.concatenate([*(costs.reshape(-1) for _, costs in layers), none]),
            constraints=np.frombuffer(json.dumps([c.described() for c in self.constraints]).encode(), dtype=np.uint8),
        )


def _at_least(constraint: LinearConstraint) -> list[tuple[NDArray[np.int64], int]]:
    """Return a linear constraint as conditions "sum of the weights ≥ minimum": the terms and the minimum of each."""
    sides = [] if constraint.low is None else [(constraint.terms, constraint.low)]
    if constraint.high is not None:
        sides.append((constraint.terms * np.array([1, 1, -1], dtype=np.int64), -constraint.high))
    return sides


def costs_of(scopes: Sequence[Sequence[int]], tables: Sequence[Array], domains: NDArray[np.int64]) -> CostProblem:
    """Convert utility tables, including constants, to costs.

    Parameters
    ----------
    scopes, tables
        As in :class:`dmcmc.inference.model.problem.Factor`.
    domains : (n,) int64
        Domain sizes.
    """
    return costs_of_utilities([Utilities(*factor) for factor in zip(scopes, tables, strict=True)], domains)


def costs_of_utilities(
    factors: Sequence[Utilities],
    domains: NDArray[np.int64],
    linear: Sequence[LinearConstraint] = (),
    check: Callable[[], None] = lambda: None,
    native: NativeFactors = NO_NATIVE_FACTORS,
    max_total: int = MAX_TOTAL_COST,
) -> CostProblem:
    """Convert utilities, including constants, to costs.

    Parameters
    ----------
    factors : sequence of Utilities
        The factors.
    domains : (n,) int64
        Domain sizes.
    linear : sequence of LinearConstraint
        Hard linear constraints in addition.
    check : callable
        Called once or twice per factor; it may raise an error to end the conversion.
    native : NativeFactors
        Factors that the engine takes as automata and as global constraints.
    max_total : int
        Maximum of the sum of all costs, at most 2^52; the costs of floats are scaled to it.
    """
    layers = [layer for automaton in native.automata for layer in automaton.layers]
    soft = [constraint for constraint in native.constraints if constraint.cost is not None]
    units = [normalise(np.array([0, -constraint.cost])) for constraint in soft if constraint.cost is not None]
    factors = [*factors, *(Utilities((), entries) for entries in [*(layer.utility for layer in layers), *units])]
    multiples = [1] * (len(factors) - len(soft)) + [max_degree(constraint) for constraint in soft]
    tables = [factor.entries for factor in factors]
    masks = [forbidden(table) for table in _checked(tables, check)]
    maxima = [None if mask.all() else table[~mask].max().item() for table, mask in zip(tables, masks, strict=True)]
    feasible = all(maximum is not None for maximum in maxima)
    largest = [maximum or 0 for maximum in maxima]
    exact = all(table.dtype.kind == "i" for table in tables)
    parts = zip(tables, masks, largest, strict=True)
    losses = [_losses(table, mask, maximum) for table, mask, maximum in _checked(parts, check)]
    total = sum(multiple * float(loss.max(initial=0)) for multiple, loss in zip(multiples, losses, strict=True))
    exact = exact and total <= max_total
    power = 0 if exact else scaling_exponent(max_total, total)
    # The product with a power of two is exact; the difference before may be off by half a unit in its last place.
    costs = [
        (loss if exact else np.floor(np.ldexp(loss.astype(np.float64), power) * (1 - 2.0**-50))).astype(np.int64)
        for loss in _checked(losses, check)
    ]
    top = sum(multiple * int(loss.max(initial=0)) for multiple, loss in zip(multiples, costs, strict=True)) + 1
    for loss, mask in zip(costs, masks, strict=True):
        loss[mask.reshape(-1)] = top
    scopes = [np.array(factor.scope, dtype=np.int64) for factor in factors]
    dense = [i for i, factor in enumerate(factors) if scopes[i].size and factor.tuples is None]
    return CostProblem(
        domains=np.asarray(domains, dtype=np.int64),
        scopes=[scopes[i] for i in dense],
        costs=[costs[i] for i in dense],
        best=exact_sum(largest),
        scale=Fraction(2) ** power,
        exact=exact,
        top=top,
        feasible=feasible,
        listed=[
            TupleCosts(scopes[i], factor.tuples, costs[i])
            for i, factor in enumerate(factors)
            if factor.tuples is not None
        ],
        linear=list(linear),
        automata=_automata_costs(native.automata, costs[len(costs) - len(soft) - len(layers) :]),
        constraints=_constraint_costs(native, costs[len(costs) - len(soft) :]),
    )


def _automata_costs(automata: Sequence[AutomatonFactor], costs: Sequence[NDArray[np.int64]]) -> list[AutomatonCosts]:
    """Return the automata with the costs of their layers, which are given flat, one automaton after the other."""
    remaining = iter(costs)  # also holds the units of constraints, at the end
    return [
        AutomatonCosts(
            np.array(automaton.scope, dtype=np.int64),
            [layer.following for layer in automaton.layers],
            [next(remaining).reshape(layer.following.shape) for layer in automaton.layers],
        )
        for automaton in automata
    ]


def _constraint_costs(native: NativeFactors, costs: Sequence[NDArray[np.int64]]) -> list[ConstraintCosts]:
    """Return constraints with their costs per unit of violation; those of the soft ones are given as [0, unit]."""
    units = iter(costs)
    return [
        ConstraintCosts(c, None if c.cost is None else int(next(units)[1]), native.by_loads) for c in native.constraints
    ]


def _checked(items: Iterable[T], check: Callable[[], None]) -> Iterator[T]:
    """Yield items, and call ``check`` before each."""
    for item in items:
        check()
        yield item


def _losses(table: Array, is_forbidden: NDArray[np.bool_], largest: Number) -> NDArray[np.int64] | NDArray[np.float64]:
    """Return how far each entry is below the maximum, flat; 0 for forbidden entries."""
    if table.dtype.kind == "i":
        entries = np.where(is_forbidden, largest, table).astype(np.int64)
        if int(largest) - int(entries.min(initial=largest)) < 2**62:
            return np.asarray(int(largest) - entries).reshape(-1)
        return np.array([float(int(largest) - entry) for entry in entries.reshape(-1).tolist()])
    return np.asarray(largest - np.where(is_forbidden, largest, table)).reshape(-1)
