"""The matrix of the semidefinite relaxation, the part that rows share, and the factors to begin with.

Lay out an agent's factors as one matrix over all values of its hidden variables, plus the terms that a row adds.

A row is an assignment of the agent's boundary variables (its interface). The hidden variables are the agent's other
variables, over which its rows are maximised. The semidefinite bounds read utilities only from this matrix.

Compute the factor vectors and messages that a descent starts from, by an eigenvalue decomposition.

The bound adds a positive semidefinite term to the utilities, which adds 2 L Lᵀ to the matrix of pairwise utilities; the
rows of L are the values' factor vectors. With eigenvalues λ and eigenvectors q of that matrix, the start sets L Lᵀ = -½
Σ λ q qᵀ over the negative λ, which cancels its negative semidefinite part. A random start needs about fifty steps to
get as far; the decomposition takes as long as about eight steps.

The positive semidefinite term that all rows of an agent share, in single precision; descents start from it.

A row is an assignment of the agent's boundary variables (its interface). The term is the squared norm that
``certificate`` defines. ``relaxation`` chooses it by a descent on the *joint* agent, whose boundary variables are
hidden as well: a bound of the joint agent holds for every row, and so does each row's own certificate with the same
factor vectors, which is tighter. Bounds are convex in the Gram matrix S = L Lᵀ of the factor vectors. If L has at least
as many columns as the optimal S has rank, descent in L finds the minimum without eigenvalue computations (Burer and
Monteiro, Math. Program. 95, 2003).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import MIN_EIGENVALUE_RATIO
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, Scale, quantise
from dmcmc.inference.runtime.types import Floats, Ints

if TYPE_CHECKING:
    from dmcmc.inference.model.subproblem import Subproblem


class UtilityMatrix(NamedTuple):
    """Utilities of an agent whose hidden variables share only unary and pairwise factors.

    The values of all hidden variables are numbered consecutively, n in all. Utilities are integers of ``scale``; an
    integer below ``FORBIDDEN_BELOW`` stands for minus infinity.

    Attributes
    ----------
    starts : (h + 1,) int64
        The values of hidden variable u are ``starts[u]:starts[u + 1]``.
    variable_of : (n,) int64
        The hidden variable of each value.
    pairs : (n, n) int32
        Pairwise utilities, symmetric; zero where both values belong to the same variable.
    unary : (n,) int64
        Unary utility of each value.
    interface_pairs : tuple of (d, n) int64
        For each boundary variable: the utility that each of its d values adds to each hidden value.
    interface_tables : tuple of (positions, table)
        Factors over boundary variables alone, with the positions of their scopes in the interface.
    shape : tuple of int
        Domain sizes of the boundary variables.
    scale : Scale
        Converts integers to utilities.
    """

    starts: Ints
    variable_of: Ints
    pairs: NDArray[np.int32]
    unary: Ints
    interface_pairs: tuple[Ints, ...]
    interface_tables: tuple[tuple[tuple[int, ...], Ints], ...]
    shape: tuple[int, ...]
    scale: Scale

    def digits(self, rows: Ints) -> Ints:
        """Return the values of the boundary variables in the given rows, (rows, interface) int64."""
        if not self.shape:
            return np.zeros((rows.size, 0), dtype=np.int64)
        return np.stack(np.unravel_index(rows, self.shape), axis=1).astype(np.int64)

    def value_utilities(self, digits: Ints) -> Ints:
        """Return each hidden value's unary utility in the rows with the given digits, (rows, n) int64."""
        found = np.repeat(self.unary[None], len(digits), axis=0)
        for table, column in zip(self.interface_pairs, digits.T, strict=True):
            found += table[column]
        return found

    def interface_utilities(self, digits: Ints) -> Ints:
        """Return the utility of the rows with the given digits without the hidden variables, (rows,) int64."""
        found = np.zeros(len(digits), dtype=np.int64)
        for positions, table in self.interface_tables:
            found += table[tuple(digits[:, interface_position] for interface_position in positions)]
        return found

    @property
    def unit(self) -> float:
        """The unit of a descent in ``scale``: half the root mean variance of the pairwise tables, 0 if constant."""
        first, allowed = self.starts[:-1], self.pairs >= FORBIDDEN_BELOW
        entries = np.where(allowed, self.pairs, 0).astype(np.float64)
        # per pair of variables: number of allowed entries, their sum, and the sum of their squares
        count, total, square = (
            np.add.reduceat(np.add.reduceat(array, first, axis=0, dtype=np.float64), first, axis=1)
            for array in (allowed, entries, entries * entries)
        )
        varying = np.triu(square > 0, 1)
        count, total, square = count[varying], total[varying], square[varying]
        variances = np.maximum(0.0, square / count - (total / count) ** 2)
        return float(np.sqrt(variances.mean())) / 2 if variances.size else 0.0


def is_pairwise(local: "Subproblem") -> bool:
    """Return whether there are hidden variables and each of their factors has at most two variables."""
    hidden = set(local.hidden)
    return bool(local.hidden) and all(len(f.scope) <= 2 or not hidden.intersection(f.scope) for f in local.factors)


def build_utility_matrix(local: "Subproblem") -> UtilityMatrix:
    """Build the utility matrix of an agent with pairwise factors; utilities are rounded up as for a dual ascent."""
    scale, tables = quantise(local.factors)
    sizes = [int(local.domains[v]) for v in local.hidden]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    span = {v: slice(int(a), int(a) + d) for v, a, d in zip(local.hidden, starts, sizes, strict=False)}
    interface_position = {v: i for i, v in enumerate(local.interface)}
    n = int(starts[-1])
    pairs, unary = np.zeros((n, n), dtype=np.int32), np.zeros(n, dtype=np.int64)
    interface_pairs = tuple(np.zeros((d, n), dtype=np.int64) for d in local.interface_shape)
    interface_tables = []
    for factor, table in zip(local.factors, tables, strict=True):
        scope, hidden = factor.scope, [v for v in factor.scope if v in span]
        if not hidden:
            interface_tables.append((tuple(interface_position[v] for v in scope), table.astype(np.int64)))
        elif len(scope) == 1:
            unary[span[hidden[0]]] += table
        elif len(hidden) == 1:
            oriented = table if scope[1] == hidden[0] else table.T
            interface_pairs[interface_position[scope[0] if scope[1] == hidden[0] else scope[1]]][
                :, span[hidden[0]]
            ] += oriented
        else:
            _add_pair_table(pairs, span[scope[0]], span[scope[1]], table)
    variable_of = np.repeat(np.arange(len(sizes)), sizes)
    return UtilityMatrix(
        starts, variable_of, pairs, unary, interface_pairs, tuple(interface_tables), local.interface_shape, scale
    )


def joint_matrix(matrix: UtilityMatrix, rows: Ints, cutoffs: Floats) -> UtilityMatrix:
    """Return the matrix of the agent whose boundary variables are hidden as well; they follow the others.

    A row's excess is its utility minus its cutoff. The utility that boundary variables add by themselves, minus the
    cutoff, is bounded by a sum of unary tables: each value has the largest such number of a row with this value,
    divided by the number of boundary variables. A descent that lowers the joint agent's bound thus lowers the largest
    excess. The numbers are relative to the largest one. Values that occur in no row are forbidden.

    Parameters
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    rows : (k,) int64
        Rows that matter.
    cutoffs : (k,) float64
        Their cutoffs, in the scale.
    """
    if not matrix.shape:
        return matrix
    n, o = matrix.variable_of.size, sum(matrix.shape)
    pairs, digits = np.zeros((n + o, n + o), dtype=np.int32), matrix.digits(rows)
    pairs[:n, :n] = matrix.pairs
    tables = np.concatenate(matrix.interface_pairs)
    pairs[n:, :n] = np.where(tables < FORBIDDEN_BELOW, FORBIDDEN, tables)
    pairs[:n, n:] = pairs[n:, :n].T
    excesses = matrix.interface_utilities(digits) - cutoffs
    # only differences matter, and an excess below FORBIDDEN stands for minus infinity like any other one
    share = np.rint((excesses - excesses.max(initial=-np.inf)) / len(matrix.shape)).clip(FORBIDDEN).astype(np.int64)
    added = [np.full(d, FORBIDDEN, dtype=np.int64) for d in matrix.shape]
    for utilities, column in zip(added, digits.T, strict=True):
        np.maximum.at(utilities, column, share)
    starts = np.concatenate([matrix.starts, n + np.cumsum(matrix.shape)])
    variable_of = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    unary = np.concatenate([matrix.unary, *added])
    return UtilityMatrix(starts, variable_of, pairs, unary, (), (), (), matrix.scale)


def _add_pair_table(pairs: NDArray[np.int32], rows: slice, columns: slice, table: NDArray[np.int32]) -> None:
    """Add a table over two hidden variables to both triangles of ``pairs``.

    ``rows`` and ``columns`` are the positions of the two variables' values. A sum below ``FORBIDDEN_BELOW`` becomes
    ``FORBIDDEN``.
    """
    total = pairs[rows, columns] + table
    total[total < FORBIDDEN_BELOW] = FORBIDDEN
    pairs[rows, columns] = total
    pairs[columns, rows] = total.T


_NEGATIVE_SHARE = 0.5  # of the negative semidefinite part: the term adds its Gram matrix twice


def spectral_start(matrix: UtilityMatrix, unit: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a descent's initial factor vectors of the hidden values, (n, r), and messages, (h, n), in units.

    The messages remove the row and column means of each pairwise table, so that the eigenvectors describe
    interactions of pairs and not unary effects.
    """
    variable_of, first = matrix.variable_of, matrix.starts[:-1]
    sizes = np.diff(matrix.starts).astype(np.float32)
    residual = matrix.pairs.astype(np.float32)
    allowed = matrix.pairs >= FORBIDDEN_BELOW
    residual[~allowed] = residual[allowed].min(initial=0.0)
    residual *= np.float32(1 / unit)
    means = np.add.reduceat(residual, first, axis=1) / sizes
    overall = np.add.reduceat(means, first, axis=0) / sizes[:, None]
    messages: NDArray[np.float32] = (means.T - overall[:, variable_of] / 2).astype(np.float32)
    messages[variable_of, np.arange(variable_of.size)] = 0
    residual -= messages[variable_of]
    residual -= messages[variable_of].T
    for a, b in zip(matrix.starts[:-1], matrix.starts[1:], strict=True):
        residual[a:b, a:b] = 0
    try:
        values, vectors = np.linalg.eigh(residual)
    except np.linalg.LinAlgError:  # did not converge: start from the messages alone
        return np.zeros((variable_of.size, 1), dtype=np.float32), messages
    rank = max(1, int((values < MIN_EIGENVALUE_RATIO * min(0.0, float(values[0]))).sum()))
    norms = np.sqrt(np.maximum(0, -_NEGATIVE_SHARE * values[:rank]))
    return np.ascontiguousarray(vectors[:, :rank] * norms, dtype=np.float32), messages


Float32Array = NDArray[np.float32]
InitialFactors = Callable[[UtilityMatrix, float], tuple[Float32Array, Float32Array]]
FORBIDDEN_UTILITY = -1e9  # units: stands for minus infinity in float32


class DescentPoint(NamedTuple):
    """Variables of a descent, in units.

    Attributes
    ----------
    vectors : (n + interface values + 1, r) float32
        Factor vectors of the n hidden values, of the values of the boundary variables, and of the constant. The vector
        of a row is the sum of those of its boundary values and of the constant.
    messages : (variables, values) float32
        ``messages[v, a]`` is moved from the table of the pair (u, v) to value a of u. Hidden variables and their values
        come first, boundary variables may follow.
    """

    vectors: Float32Array
    messages: Float32Array


@dataclass
class SharedTerm:
    """Factor vectors and messages that bound all rows of an agent.

    Attributes
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    unit : float
        Unit of all single-precision numbers, in the matrix's scale.
    point : DescentPoint
        Factor vectors and messages.
    """

    matrix: UtilityMatrix
    unit: float
    point: DescentPoint

    @classmethod
    def initial(cls, matrix: UtilityMatrix, initialise: InitialFactors = spectral_start) -> "SharedTerm | None":
        """Return the term that a descent starts from; None if every table of two hidden variables is constant.

        ``initialise`` returns the factor vectors and messages of a joint matrix, given that matrix and the unit.
        """
        unit = matrix.unit
        if unit <= 0:
            return None
        rows = np.arange(math.prod(matrix.shape))
        vectors, messages = initialise(joint_matrix(matrix, rows, np.zeros(rows.size)), unit)
        return cls(matrix, unit, DescentPoint(np.concatenate([vectors, np.zeros_like(vectors[:1])]), messages))

    def joint(self, rows: Ints, cutoffs: Floats) -> "SharedTerm":
        """Return the term for the agent whose boundary variables are hidden as well; see ``joint_matrix``."""
        return SharedTerm(joint_matrix(self.matrix, rows, cutoffs), self.unit, self.point)

    def take(self, point: DescentPoint) -> None:
        """Replace the point by one that a descent has found.

        The descent leaves out variables with a single value. Messages move their tables to the other variables.
        """
        first, n = self.matrix.starts[:-1], self.matrix.variable_of.size
        for variable in np.flatnonzero(np.diff(self.matrix.starts) == 1).tolist():
            moved = self.in_units(self.matrix.pairs[first[variable]])
            point.messages[variable, :n] = np.where(moved > FORBIDDEN_UTILITY, moved, 0)
        self.point = point

    def scaled(self, point: DescentPoint) -> tuple[Floats, Floats]:
        """Return a point's vectors and the hidden variables' messages as float64, in the matrix's scale."""
        h, n = self.matrix.starts.size - 1, self.matrix.variable_of.size
        messages = point.messages[:h, :n].astype(np.float64) * self.unit
        return point.vectors.astype(np.float64) * np.sqrt(self.unit), messages

    def in_units(self, integers: Ints | NDArray[np.int32]) -> Float32Array:
        """Return integers of the matrix's scale in units; forbidden entries become ``FORBIDDEN_UTILITY``."""
        scaled_values: Float32Array = integers.astype(np.float32) * np.float32(1 / self.unit)
        scaled_values[integers < FORBIDDEN_BELOW] = FORBIDDEN_UTILITY
        return scaled_values
