"""Utilities as toulbar2's costs: nonnegative integers, rounded down, so that proofs also hold for the utilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, frexp
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact, exact_sum, round_up
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Array, Number

_MAX_TOTAL_COST = 2**52  # maximum of the sum of all costs: they pass through float64
_SCALED_TOTAL_COST = 2**52  # sum to which the costs of floats are scaled: as fine as the rounding of their sums


@dataclass(frozen=True)
class CostProblem:
    """A cost minimisation problem (weighted CSP): each factor is subtracted from its largest entry.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    scopes : list of (arity,) int64
        Scopes of the factors that are not constant.
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
    at_most_one : list
        Groups of (variable, value) pairs; an assignment has at most one pair of each.
    """

    domains: NDArray[np.int64]
    scopes: list[NDArray[np.int64]]
    costs: list[NDArray[np.int64]]
    best: Exact
    scale: Fraction
    exact: bool
    top: int
    feasible: bool
    at_most_one: Sequence[Sequence[tuple[int, int]]] = ()

    def bound(self, cost: int) -> Number:
        """Return an upper bound on the utility of an assignment whose cost is at least ``cost``."""
        return round_up(self.best - Fraction(cost) / self.scale if not self.exact else self.best - cost)

    def cost_to_beat(self, utility: Number) -> int:
        """Return a cost such that every assignment better than ``utility`` has a lower cost."""
        cost = ceil((self.best - Fraction(utility)) * self.scale)
        return max(0, min(self.top, cost))

    def of(self, values: NDArray[np.int64]) -> int:
        """Return the cost of an assignment; ``top`` or more if it violates a factor. ``at_most_one`` is not checked."""
        total = 0
        for scope, cost in zip(self.scopes, self.costs, strict=True):
            total += int(cost[np.ravel_multi_index(tuple(values[scope]), tuple(self.domains[scope]))])
        return total

    def save(self, stream: BinaryIO) -> None:
        """Write the problem as a NumPy archive for the search process."""
        np.savez(
            stream,
            domains=self.domains,
            arity=np.array([len(scope) for scope in self.scopes], dtype=np.int64),
            scope=np.concatenate([*self.scopes, np.zeros(0, dtype=np.int64)]),
            size=np.array([cost.size for cost in self.costs], dtype=np.int64),
            cost=np.concatenate([*self.costs, np.zeros(0, dtype=np.int64)]),
            group=np.array([len(pairs) for pairs in self.at_most_one], dtype=np.int64),
            pair=np.array([pair for pairs in self.at_most_one for pair in pairs], dtype=np.int64).reshape(-1, 2),
        )


def costs_of(scopes: Sequence[Sequence[int]], tables: Sequence[Array], domains: NDArray[np.int64]) -> CostProblem:
    """Convert utilities, including constants, to costs.

    Parameters
    ----------
    scopes, tables
        As in :class:`dmcmc.inference.model.problem.Factor`.
    domains : (n,) int64
        Domain sizes.
    """
    masks = [forbidden(table) for table in tables]
    maxima = [None if mask.all() else table[~mask].max().item() for table, mask in zip(tables, masks, strict=True)]
    feasible = all(maximum is not None for maximum in maxima)
    largest = [maximum or 0 for maximum in maxima]
    exact = all(table.dtype.kind == "i" for table in tables)
    losses = [_losses(table, mask, maximum) for table, mask, maximum in zip(tables, masks, largest, strict=True)]
    total = sum(float(loss.max(initial=0)) for loss in losses)
    power = 0 if exact else frexp(_SCALED_TOTAL_COST / total)[1] - 1 if total else 0
    while total * 2.0**power > _MAX_TOTAL_COST:
        power -= 1
    exact = exact and not power
    # The product with a power of two is exact; the difference before may be off by half a unit in its last place.
    costs = [(loss if exact else np.floor(loss * 2.0**power * (1 - 2.0**-50))).astype(np.int64) for loss in losses]
    top = sum(int(loss.max(initial=0)) for loss in costs) + 1
    for loss, mask in zip(costs, masks, strict=True):
        loss[mask.reshape(-1)] = top
    nonconstant = [i for i, scope in enumerate(scopes) if len(scope)]
    return CostProblem(
        domains=np.asarray(domains, dtype=np.int64),
        scopes=[np.array(scopes[i], dtype=np.int64) for i in nonconstant],
        costs=[costs[i] for i in nonconstant],
        best=exact_sum(largest),
        scale=Fraction(2) ** power,
        exact=exact,
        top=top,
        feasible=feasible,
    )


def _losses(table: Array, is_forbidden: NDArray[np.bool_], largest: Number) -> NDArray[np.int64] | NDArray[np.float64]:
    """Return how far each entry is below the maximum, flat; 0 for forbidden entries."""
    if table.dtype.kind == "i":
        entries = np.where(is_forbidden, largest, table).astype(np.int64)
        if int(largest) - int(entries.min(initial=largest)) < 2**62:
            return np.asarray(int(largest) - entries).reshape(-1)
        return np.array([float(int(largest) - entry) for entry in entries.reshape(-1).tolist()])
    return np.asarray(largest - np.where(is_forbidden, largest, table)).reshape(-1)
