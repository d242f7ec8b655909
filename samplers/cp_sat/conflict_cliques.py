"""Cover the pairs of values that exclude each other by cliques: sets of values of which at most one can be chosen.

A hard table over two variables forbids pairs of values. As clauses, such pairs have a weak linear relaxation: it allows
half of each of three values that exclude each other. The conflict graph has the values as nodes and the excluded pairs
as edges. One inequality for each of its cliques does not have this weakness (Padberg, *Mathematical Programming* 5,
1973). The meetings of a person give a clique for each time slot. The cover is found greedily, within cliques of the
graph of variables.

CP-SAT's process imports this file; it imports no other module of dmcmc, so that the process starts fast.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.tuning import engines as tuning

_Mask = NDArray[np.bool_]
_Nodes = NDArray[np.int64]


def clique_cover(conflicts: Mapping[tuple[int, int], _Mask]) -> list[list[tuple[int, int]]]:
    """Return cliques that contain each excluded pair of values of two variables.

    Parameters
    ----------
    conflicts : mapping of (int, int) to (values, values) bool
        For pairs of variables u < v, which pairs of values exclude each other.

    Returns
    -------
    list of list of (int, int)
        Each clique as pairs of a variable and a value.
    """
    uncovered = {pair: mask.copy() for pair, mask in conflicts.items()}
    cliques: list[list[tuple[int, int]]] = []
    for variables in _variable_cliques(conflicts):
        cliques += _LocalGraph(variables, conflicts, uncovered).cover()
    for (u, v), mask in uncovered.items():
        for a in np.flatnonzero(mask.any(axis=1)).tolist():
            cliques.append([(u, a), *((v, b) for b in np.flatnonzero(mask[a]).tolist())])
    return cliques


def _variable_cliques(conflicts: Mapping[tuple[int, int], _Mask]) -> list[list[int]]:
    """Return cliques of variables, of which any two have conflicts, that contain all pairs; the largest come first.

    A clique grows by the variable that has the most neighbours in common with it, as long as its values are few enough.
    """
    neighbours: dict[int, set[int]] = {}
    sizes: dict[int, int] = {}
    for (u, v), mask in conflicts.items():
        neighbours.setdefault(u, set()).add(v)
        neighbours.setdefault(v, set()).add(u)
        sizes[u], sizes[v] = mask.shape
    left = {*conflicts}
    found = []
    for u, v in sorted(conflicts):
        if (u, v) not in left:
            continue
        clique, common = [u, v], neighbours[u] & neighbours[v]
        total = sizes[u] + sizes[v]
        while common:
            best = max(sorted(common), key=lambda w: len(neighbours[w] & common))
            common &= neighbours[best]
            if total + sizes[best] <= tuning.MAX_CLIQUE_VALUES:
                clique.append(best)
                total += sizes[best]
        clique.sort()
        left -= {(a, b) for a in clique for b in clique}
        found += [clique] if total <= tuning.MAX_CLIQUE_VALUES else []
    return sorted(found, key=lambda clique: (-len(clique), clique))


class _LocalGraph:
    """The conflict graph of the values of some variables.

    Parameters
    ----------
    variables : list of int
        The variables, of which any two have conflicts.
    conflicts, uncovered : mapping of (int, int) to (values, values) bool
        The excluded pairs, and those that are in no clique yet; the latter are changed.
    """

    def __init__(
        self, variables: list[int], conflicts: Mapping[tuple[int, int], _Mask], uncovered: dict[tuple[int, int], _Mask]
    ) -> None:
        pairs = [(i, j) for i in range(len(variables)) for j in range(i + 1, len(variables))]
        self._uncovered, self._pairs, self._variables = uncovered, pairs, variables
        sizes = [0] * len(variables)
        for i, j in pairs:
            sizes[i], sizes[j] = conflicts[variables[i], variables[j]].shape
        self._first = np.cumsum([0, *sizes])
        self._of = np.repeat(np.arange(len(variables)), sizes)
        self._adjacent: _Mask = self._of[:, None] == self._of[None, :]
        self._left: _Mask = np.zeros(self._adjacent.shape, dtype=bool)
        for i, j in pairs:
            rows, columns = self._span(i), self._span(j)
            for matrix, source in ((self._adjacent, conflicts), (self._left, uncovered)):
                mask = source[variables[i], variables[j]]
                matrix[rows, columns], matrix[columns, rows] = mask, mask.T
        np.fill_diagonal(self._adjacent, False)

    def cover(self) -> list[list[tuple[int, int]]]:
        """Return cliques that contain all pairs that are in no clique yet, and mark these pairs."""
        cliques: list[list[tuple[int, int]]] = []
        for node in range(len(self._of)):
            while (left := np.flatnonzero(self._left[node])).size:
                clique = self._maximal_clique(node, int(left[0]))
                self._left[np.ix_(clique, clique)] = False
                cliques.append(self._as_values(clique))
        for i, j in self._pairs:
            self._uncovered[self._variables[i], self._variables[j]][:] = False
        return cliques

    def _maximal_clique(self, first: int, second: int) -> _Nodes:
        """Return a maximal clique with two adjacent nodes; candidates with many neighbours among them come first."""
        candidates = np.flatnonzero(self._adjacent[first] & self._adjacent[second])
        among = self._adjacent[np.ix_(candidates, candidates)]
        free = np.ones(len(candidates), dtype=bool)
        chosen = []
        for i in np.argsort(-among.sum(axis=1), kind="stable").tolist():
            if free[i]:
                chosen.append(i)
                free &= among[i]
        return np.array([first, second, *candidates[chosen].tolist()], dtype=np.int64)

    def _span(self, i: int) -> slice:
        """Return the nodes of a variable, given by its position."""
        return slice(int(self._first[i]), int(self._first[i + 1]))

    def _as_values(self, nodes: _Nodes) -> list[tuple[int, int]]:
        """Return nodes as pairs of a variable and a value."""
        positions = self._of[nodes]
        values = nodes - self._first[positions]
        return [(self._variables[i], a) for i, a in zip(positions.tolist(), values.tolist(), strict=True)]
