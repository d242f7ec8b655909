"""Utilities as toulbar2 has them: whole costs from 0 on, rounded down, so that its proofs hold for the utilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, frexp
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact, exact_sum, not_below
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Array, Number

_MOST = 2**52  # what all costs add up to at most: they pass through float64
_FINE = 2**52  # what the costs of floats are scaled to together: as fine as the rounding of their sums


@dataclass(frozen=True)
class Costs:
    """A problem of costs.

    Attributes
    ----------
    domains : (n,) int64
    scopes : list of (arity,) int64
        Of factors that are not constant.
    costs : list of int64 arrays
        Flat, in C order; ``top`` where forbidden.
    best : int or Fraction
        What utilities add up to where all costs are 0, exactly.
    scale : Fraction
        Costs per unit of utility.
    whole : bool
        Whether costs are exact: utilities are whole and not scaled.
    top : int
        More than any assignment costs that breaks nothing.
    feasible : bool
        False if some table forbids all there is.
    at_most_one : list
        Groups of (variable, value), of which an assignment has one at most.
    """

    domains: NDArray[np.int64]
    scopes: list[NDArray[np.int64]]
    costs: list[NDArray[np.int64]]
    best: Exact
    scale: Fraction
    whole: bool
    top: int
    feasible: bool
    at_most_one: Sequence[Sequence[tuple[int, int]]] = ()

    def bound(self, cost: int) -> Number:
        """Return at most what an assignment is worth that costs at least so much."""
        return not_below(self.best - Fraction(cost) / self.scale if not self.whole else self.best - cost)

    def to_beat(self, utility: Number) -> int:
        """Return a cost that every better assignment is below."""
        cost = ceil((self.best - Fraction(utility)) * self.scale)
        return max(0, min(self.top, cost))

    def of(self, values: NDArray[np.int64]) -> int:
        """Return what an assignment costs; ``top`` or more where it breaks something."""
        total = 0
        for scope, cost in zip(self.scopes, self.costs, strict=True):
            total += int(cost[np.ravel_multi_index(tuple(values[scope]), tuple(self.domains[scope]))])
        return total

    def save(self, stream: BinaryIO) -> None:
        """Write the problem as arrays, for the process that searches it."""
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


def costs_of(scopes: Sequence[Sequence[int]], tables: Sequence[Array], domains: NDArray[np.int64]) -> Costs:
    """Return utilities, constants among them, as costs.

    Parameters
    ----------
    scopes, tables
        As :class:`dmcmc.inference.model.problem.Factor` has them.
    """
    hard = [forbidden(table) for table in tables]
    most = [None if h.all() else table[~h].max().item() for table, h in zip(tables, hard, strict=True)]
    feasible = all(m is not None for m in most)
    largest = [m or 0 for m in most]
    whole = all(table.dtype.kind == "i" for table in tables)
    lost = [_lost(table, h, m) for table, h, m in zip(tables, hard, largest, strict=True)]
    total = sum(float(part.max(initial=0)) for part in lost)
    power = 0 if whole else frexp(_FINE / total)[1] - 1 if total else 0
    while total * 2.0**power > _MOST:
        power -= 1
    whole = whole and not power
    # A product with a power of two is exact; the difference it is of may be off by half a unit in its last place.
    costs = [(part if whole else np.floor(part * 2.0**power * (1 - 2.0**-50))).astype(np.int64) for part in lost]
    top = sum(int(part.max(initial=0)) for part in costs) + 1
    for part, h in zip(costs, hard, strict=True):
        part[h.reshape(-1)] = top
    kept = [i for i, scope in enumerate(scopes) if len(scope)]
    return Costs(
        domains=np.asarray(domains, dtype=np.int64),
        scopes=[np.array(scopes[i], dtype=np.int64) for i in kept],
        costs=[costs[i] for i in kept],
        best=exact_sum(largest),
        scale=Fraction(2) ** power,
        whole=whole,
        top=top,
        feasible=feasible,
    )


def _lost(table: Array, hard: NDArray[np.bool_], most: Number) -> NDArray[np.int64] | NDArray[np.float64]:
    """Return how much each entry is below the best, flat; 0 where it is forbidden."""
    if table.dtype.kind == "i":
        entries = np.where(hard, most, table).astype(np.int64)
        if int(most) - int(entries.min(initial=most)) < 2**62:
            return np.asarray(int(most) - entries).reshape(-1)
        return np.array([float(int(most) - entry) for entry in entries.reshape(-1).tolist()])
    return np.asarray(most - np.where(hard, most, table)).reshape(-1)
