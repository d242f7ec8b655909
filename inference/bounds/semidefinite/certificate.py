"""Turn the result of a descent into a proof, by rounding it to integers and computing exactly from there.

A row b is an assignment of the agent's boundary variables, y is an assignment of its hidden variables, and θ(b, y) is
their utility. Take any vector l_a for each value a of a hidden variable, any vector w_b for each row, and any messages
φ. The squared norm in

    θ(b, y) ≤ θ(b, y) + |w_b + Σ_u l_{y_u}|²

is not negative. The right-hand side is a sum of tables over single variables and over pairs, between which the messages
move utility. The sum of the tables' maxima therefore bounds the row, whatever the vectors are. No eigenvalue has to be
certified.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.runtime.types import Floats, Ints
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

_MAX_FRACTION_BITS = 12  # fraction bits of a vector entry; products of two entries have twice as many
_MIN_FRACTION_BITS = 2  # with fewer bits the rounded vectors prove too little
_PRODUCT_BITS = 50  # bits of a sum of products: exact in float64
_SUM_BITS = 60  # bits of a bound: exact in int64


class PsdTerm(NamedTuple):
    """The positive semidefinite term L Lᵀ and the messages of a bound, in fixed-point integers.

    Attributes
    ----------
    hidden_vectors : (n, r) float64
        Factor vectors of the hidden values: integers, in multiples of 2^-bits.
    interface_vectors : (interface values + 1, r) float64
        Factor vectors of the boundary variables' values, and of the constant: integers, in multiples of 2^-bits.
    messages : (h, n) int64
        Messages in multiples of 4^-bits.
    bits : int
        Fraction bits of a vector entry.
    """

    hidden_vectors: Floats
    interface_vectors: Floats
    messages: Ints
    bits: int

    @property
    def unary_terms(self) -> Ints:
        """Utilities that the term and the messages add to the hidden values, (n,) int64, in multiples of 4^-bits."""
        found: Ints = np.einsum("ar,ar->a", self.hidden_vectors, self.hidden_vectors).astype(
            np.int64
        ) + self.messages.sum(axis=0)
        return found


def round_psd_term(matrix: UtilityMatrix, vectors: Floats, messages: Floats) -> PsdTerm | None:
    """Round factor vectors and messages to integers whose sums are exact; return None if they are too large."""
    bits = _fraction_bits(matrix, vectors, messages)
    if bits is None:
        return None
    n = matrix.variable_of.size
    integers = np.rint(np.ldexp(vectors.astype(np.float64), bits))
    integer_messages = np.rint(np.ldexp(messages.astype(np.float64), 2 * bits)).astype(np.int64)
    integer_messages[matrix.variable_of, np.arange(n)] = 0
    return PsdTerm(integers[:n], integers[n:], integer_messages, bits)


def bounds_with_term(matrix: UtilityMatrix, term: PsdTerm, rows: Ints) -> Ints:
    """Return exact upper bounds of the given rows with a rounded term, in the matrix's scale, rounded up."""
    bits, bounds = 2 * term.bits, np.full(rows.size, MINUS_INFINITY, dtype=np.int64)
    pair_sum = pair_maxima_sum(matrix, term.hidden_vectors, term.messages, bits)
    if pair_sum == MINUS_INFINITY:
        return bounds
    unary_terms, batch = term.unary_terms, max(1, MAX_EXAMINED_ENTRIES // matrix.variable_of.size)
    for first in range(0, rows.size, batch):
        digits = matrix.digits(rows[first : first + batch])
        vectors = row_vectors(matrix, term.interface_vectors, digits)
        utilities, constants = matrix.value_utilities(digits), matrix.interface_utilities(digits)
        entries = (utilities << bits) + unary_terms + 2 * (vectors @ term.hidden_vectors.T).astype(np.int64)
        entries[utilities < FORBIDDEN_BELOW] = MINUS_INFINITY
        best = np.maximum.reduceat(entries, matrix.starts[:-1], axis=1)
        infeasible = (best == MINUS_INFINITY).any(axis=1) | (constants < FORBIDDEN_BELOW)
        square_norms = np.einsum("br,br->b", vectors, vectors).astype(np.int64)
        scaled_bounds = (
            (np.where(infeasible, 0, constants) << bits)
            + square_norms
            + np.where(infeasible[:, None], 0, best).sum(axis=1)
            + pair_sum
        )
        # division by 2^bits, rounded up
        bounds[first : first + batch] = np.where(infeasible, MINUS_INFINITY, -(-scaled_bounds >> bits))
    return bounds


def row_vectors(matrix: UtilityMatrix, interface_vectors: Floats, digits: Ints) -> Floats:
    """Return the vector w of each row: the sum of its boundary values' factor vectors and the constant's, (rows, r)."""
    found: Floats = interface_vectors[interface_positions(matrix, digits)].sum(axis=1) + interface_vectors[-1]
    return found


def interface_positions(matrix: UtilityMatrix, digits: Ints) -> Ints:
    """Return the positions of the rows' boundary values among all values of the interface, (rows, interface)."""
    return digits + np.cumsum([0, *matrix.shape[:-1]], dtype=np.int64)[: len(matrix.shape)]


def _fraction_bits(matrix: UtilityMatrix, vectors: Floats, messages: Floats) -> int | None:
    """Return the number of fraction bits for which all sums are exact; None if there is none."""
    if not (np.isfinite(vectors).all() and np.isfinite(messages).all()):
        return None
    n, h = matrix.variable_of.size, matrix.starts.size - 1
    norms = np.sqrt(np.einsum("ar,ar->a", vectors, vectors, dtype=np.float64))
    longest_norm = max(float(norms.max(initial=0.0)), float(norms[n:].max(initial=0.0)) * (len(matrix.shape) + 1))
    return fraction_bits_for(longest_norm, float(np.abs(messages).max(initial=0.0)), h)


def fraction_bits_for(longest_norm: float, largest_message: float, h: int) -> int | None:
    """Return the number of fraction bits for which all sums are exact; None if it would be too small.

    A product of two vectors needs 2 bits + ``norm_bits`` bits, at most ``_PRODUCT_BITS``. A bound adds about (h + 1)²
    table entries; it needs 2 bits + ``entry_bits`` + 2 log2(h + 1) bits, at most ``_SUM_BITS``. A scaled utility is
    below 2^22.

    Parameters
    ----------
    longest_norm : float
        Upper bound on the norms of the factor vectors, and on those of the rows' vectors.
    largest_message : float
        Upper bound on the absolute values of the messages.
    h : int
        Number of hidden variables.
    """
    if not (math.isfinite(longest_norm) and math.isfinite(largest_message)):
        return None
    longest_norm = max(1.0, longest_norm)
    norm_bits = 2 * math.ceil(math.log2(longest_norm + 1))
    entry_bits = math.ceil(math.log2(8 * longest_norm**2 + 2 * h * largest_message + 2**22))
    # limits: resolution wanted, exact float64 products, exact int64 sums
    bits = min(
        _MAX_FRACTION_BITS,
        (_PRODUCT_BITS - norm_bits) // 2,
        (_SUM_BITS - entry_bits - 2 * math.ceil(math.log2(h + 1))) // 2,
    )
    return bits if bits >= _MIN_FRACTION_BITS else None


def pair_maxima_sum(matrix: UtilityMatrix, hidden_vectors: Floats, messages: Ints, bits: int) -> int:
    """Return the sum of the exact maxima of all pairwise tables, in multiples of 2^-bits of a utility.

    The table of the pair (u, v) has the entries utilities · 2^bits + 2 products - messages of both values. The result
    is ``MINUS_INFINITY`` if a table has no allowed entry.

    Parameters
    ----------
    matrix : UtilityMatrix
    hidden_vectors : (n, r) float64
        Factor vectors of the hidden values: integers whose products are multiples of 2^-bits.
    messages : (h, n) int64
        Messages in multiples of 2^-bits.
    bits : int
        Fraction bits of products and messages.
    """
    total, starts = 0, matrix.starts
    for u, (first, end) in enumerate(pairwise(starts[:-1].tolist())):  # the values of u; those of later ones follow
        utilities = matrix.pairs[first:end, end:]
        products = (hidden_vectors[first:end] @ hidden_vectors[end:].T).astype(np.int64)
        moved = messages[matrix.variable_of[end:], first:end].T + messages[u, end:]
        entries = (utilities.astype(np.int64) << bits) + 2 * products - moved
        column_maxima = np.where(utilities < FORBIDDEN_BELOW, MINUS_INFINITY, entries).max(axis=0)
        maxima = np.maximum.reduceat(column_maxima, starts[u + 1 : -1] - end)
        if (maxima == MINUS_INFINITY).any():
            return MINUS_INFINITY
        total += int(maxima.sum())
    return total
