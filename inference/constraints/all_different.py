"""The all-different constraint, whose propagation keeps the values that a matching supports (Régin, AAAI 1994)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import (
    CellItem,
    CellLoads,
    Domains,
    LoadConstraint,
    excess_penalty,
    int_arrays,
)
from dmcmc.inference.model.factor import Factor


def supported_values(domains: Sequence[Sequence[int]]) -> list[list[bool]] | None:
    """Return for each value of each variable whether an assignment of different values uses it; None if none exists.

    Given one matching, value x is supported for a variable with matched value c if exchanging values along a path of
    variables is possible: x reaches an unmatched value, or x reaches c (Régin 1994). Reachability is computed by
    squaring the (values, values) matrix of arcs.

    >>> supported_values([[0, 1], [0, 1], [0, 1, 2]])
    [[True, True], [True, True], [False, False, True]]
    """
    index_of = {x: i for i, x in enumerate(sorted({x for domain in domains for x in domain}))}
    numbered = [[index_of[x] for x in domain] for domain in domains]
    matching = _matching(numbered, len(index_of))
    if matching is None:
        return None
    # An arc leads from the value of a variable to each value that the variable could take instead.
    arcs = np.zeros((len(index_of), len(index_of)), dtype=np.bool_)
    for current, domain in zip(matching, numbered, strict=True):
        arcs[current, domain] = True
    reach = arcs | np.eye(len(index_of), dtype=np.bool_)
    for _ in range(len(index_of).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    free = np.ones(len(index_of), dtype=np.bool_)
    free[matching] = False
    reaches_free = np.asarray(reach[:, free].any(axis=1))  # an alternating path leads from here to an unmatched value
    return [
        [bool(reaches_free[x] or reach[x, current]) for x in domain]
        for current, domain in zip(matching, numbered, strict=True)
    ]


def _matching(domains: Sequence[Sequence[int]], values: int) -> list[int] | None:
    """Match each variable with a value, all different, by augmenting paths; None if there is no such matching."""
    holder, value_of = [-1] * values, [-1] * len(domains)
    for start in range(len(domains)):
        reached_from: dict[int, int] = {}  # per value, the variable from which the search reached it
        stack, end = [start], -1
        while stack and end < 0:
            v = stack.pop()
            for x in domains[v]:
                if x not in reached_from:
                    reached_from[x] = v
                    if holder[x] < 0:
                        end = x
                        break
                    stack.append(holder[x])
        if end < 0:
            return None
        while end >= 0:
            v = reached_from[end]
            holder[end], value_of[v], end = v, end, value_of[v]
    return value_of


class AllDifferentConstraint(LoadConstraint):
    """No two variables have the same value; some values may be exempt.

    The degree of violation is the number of variables that have to change: Σ_values max(0, occurrences − 1).

    Attributes
    ----------
    codes : tuple of ndarray of int64, shape (values,)
        For each variable, a number of each of its values: values are the same if their numbers are. Values with the
        number −1 are exempt.
    """

    kind = "all_different"
    summary = "no two variables have the same value"
    per_value = ("codes",)
    codes: tuple[NDArray[np.int64], ...]

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        return {"codes": int_arrays(given["codes"], shape, what)}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell per value."""
        distinct = np.unique(np.concatenate([*self.codes, [-1]]))[1:]
        items = []
        for i, codes in enumerate(self.codes):
            items.append(CellItem.of_cells((i,), np.where(codes < 0, -1, np.searchsorted(distinct, codes)), 1))
        width = np.ones(max(1, distinct.size), dtype=np.int64)
        return CellLoads(tuple(items), width, excess_penalty(1, len(self.scope)))

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove all unsupported values, by a matching (Régin, AAAI 1994)."""
        # An exempt value gets a number for each variable, so that it conflicts with nothing.
        numbers = [np.where(codes < 0, -1 - i, codes) for i, codes in enumerate(self.codes)]
        lists = [codes[domain].tolist() for codes, domain in zip(numbers, domains, strict=True)]
        distinct = [list(dict.fromkeys(codes)) for codes in lists]
        supported = supported_values(distinct) if all(distinct) else None
        if supported is None:
            return None
        result = []
        for codes, domain, values, flags in zip(numbers, domains, distinct, supported, strict=True):
            allowed = np.array([value for value, flag in zip(values, flags, strict=True) if flag], dtype=np.int64)
            result.append(domain & np.isin(codes, allowed))
        return result

    def parts(self) -> list[Factor]:
        """Return an automaton per value, or for a hard constraint a table per pair if these have fewer entries."""
        values = np.unique(np.concatenate([*self.codes, [-1]]))[1:].tolist()
        sizes = [codes.size for codes in self.codes]
        pair_entries = sum(a * b for a, b in combinations(sizes, 2))
        # a chain's table over (state, value, next state) has 2 · 2 entries per value
        chain_entries = 4 * sum(int((codes == value).any()) * codes.size for value in values for codes in self.codes)
        if self.cost is None and pair_entries <= chain_entries:
            return [
                self.table_part((i, j), _conflicts(self.codes[i], self.codes[j]))
                for i, j in combinations(range(len(self.scope)), 2)
                if np.intersect1d(self.codes[i][self.codes[i] >= 0], self.codes[j]).size
            ]
        found = []
        for value in values:
            positions = [i for i, codes in enumerate(self.codes) if (codes == value).any()]
            weights = [(self.codes[i] == value).astype(np.int64) for i in positions]
            found.append(self.sum_part(positions, weights, excess_penalty(1, len(positions))))
        return [part for part in found if part is not None]


def _conflicts(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 1 for each pair of equal values that are not exempt, shape (values of first, values of second)."""
    conflicts: NDArray[np.int64] = ((first[:, None] == second) & (first[:, None] >= 0)).astype(np.int64)
    return conflicts
