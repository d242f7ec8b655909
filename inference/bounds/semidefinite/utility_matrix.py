"""An agent's factors as one square table over all values of its hidden variables, and what a row adds to each value."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import Scale, quantise
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.types import Ints


class Network(NamedTuple):
    """Hidden variables one after the other, n values in all; whole numbers of a scale, sums below THRESHOLD are −∞.

    Attributes
    ----------
    starts : (h + 1,) int64
        The values of hidden variable u are ``starts[u]:starts[u + 1]``.
    owner : (n,) int64
        The variable of each value.
    pairs : (n, n) int32
        Symmetric; nothing where both values are of one variable.
    unary : (n,) int64
    crossing : tuple of (d, n) int64
        What each value of an interface variable adds to the hidden ones; one for each interface variable.
    inside : tuple of (positions, table)
        Tables over the interface alone, by positions in it.
    shape : tuple of int
        Domain sizes of the interface.
    scale : Scale
    """

    starts: Ints
    owner: Ints
    pairs: NDArray[np.int32]
    unary: Ints
    crossing: tuple[Ints, ...]
    inside: tuple[tuple[tuple[int, ...], Ints], ...]
    shape: tuple[int, ...]
    scale: Scale

    def digits(self, rows: Ints) -> Ints:
        """Return the interface's values in some rows, (rows, interface)."""
        if not self.shape:
            return np.zeros((rows.size, 0), dtype=np.int64)
        return np.stack(np.unravel_index(rows, self.shape), axis=1).astype(np.int64)

    def values(self, digits: Ints) -> Ints:
        """Return what each hidden value is worth by itself in some rows, (rows, n)."""
        found = np.repeat(self.unary[None], len(digits), axis=0)
        for table, column in zip(self.crossing, digits.T, strict=True):
            found += table[column]
        return found

    def constants(self, digits: Ints) -> Ints:
        """Return what some rows are worth without hidden variables, (rows,)."""
        found = np.zeros(len(digits), dtype=np.int64)
        for positions, table in self.inside:
            found += table[tuple(digits[:, position] for position in positions)]
        return found

    @property
    def unit(self) -> float:
        """Half the spread of a pair's utilities, in the scale: what descents measure in; 0 where nothing varies."""
        first, live = self.starts[:-1], self.pairs >= THRESHOLD
        entries = np.where(live, self.pairs, 0).astype(np.float64)
        count, total, square = (
            np.add.reduceat(np.add.reduceat(one, first, axis=0, dtype=np.float64), first, axis=1)
            for one in (live, entries, entries * entries)
        )
        varied = np.triu(square > 0, 1)
        count, total, square = count[varied], total[varied], square[varied]
        spreads = np.maximum(0.0, square / count - (total / count) ** 2)
        return float(np.sqrt(spreads.mean())) / 2 if spreads.size else 0.0


def takes(local: LocalProblem) -> bool:
    """Return whether every factor is over two variables at most, or over the interface alone."""
    hidden = set(local.hidden)
    return bool(local.hidden) and all(len(f.scope) <= 2 or not hidden.intersection(f.scope) for f in local.factors)


def lay_out(local: LocalProblem) -> Network:
    """Lay out an agent's factors, which :func:`takes` must allow; rounded up as for a dual ascent."""
    scale, tables = quantise(local.factors)
    sizes = [int(local.domains[v]) for v in local.hidden]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    place = {v: slice(int(a), int(a) + d) for v, a, d in zip(local.hidden, starts, sizes, strict=False)}
    position = {v: i for i, v in enumerate(local.interface)}
    n = int(starts[-1])
    pairs, unary = np.zeros((n, n), dtype=np.int32), np.zeros(n, dtype=np.int64)
    crossing = tuple(np.zeros((d, n), dtype=np.int64) for d in local.interface_shape)
    inside = []
    for factor, table in zip(local.factors, tables, strict=True):
        scope, hidden = factor.scope, [v for v in factor.scope if v in place]
        if not hidden:
            inside.append((tuple(position[v] for v in scope), table.astype(np.int64)))
        elif len(scope) == 1:
            unary[place[hidden[0]]] += table
        elif len(hidden) == 1:
            across = table if scope[1] == hidden[0] else table.T
            crossing[position[scope[0] if scope[1] == hidden[0] else scope[1]]][:, place[hidden[0]]] += across
        else:
            _add(pairs, place[scope[0]], place[scope[1]], table)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return Network(starts, owner, pairs, unary, crossing, tuple(inside), local.interface_shape, scale)


def _add(pairs: NDArray[np.int32], rows: slice, columns: slice, table: NDArray[np.int32]) -> None:
    """Add a table over two variables, both ways."""
    total = pairs[rows, columns] + table
    total[total < THRESHOLD] = DEAD
    pairs[rows, columns] = total
    pairs[columns, rows] = total.T
