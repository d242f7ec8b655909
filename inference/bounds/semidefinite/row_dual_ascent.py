"""Improve the semidefinite bounds of single rows by dual ascent on the agent with the positive semidefinite term added.

A row b is an assignment of the agent's boundary variables, and y is an assignment of its hidden variables. The
certificate adds a squared norm |w_b + Σ_u l_{y_u}|² of factor vectors to the utility of every assignment (see
``certificate``). The norm expands into unary and pairwise tables, so the sum is the utility of another agent over the
same variables, with integer entries. No assignment has a lower utility there, so an upper bound for that agent also
holds for the original agent. The semidefinite descent uses the same messages φ for all rows; a few sweeps of dual
ascent adapt them to each row.
"""

from itertools import combinations, pairwise

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.certificate import PsdTerm
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array, Floats, Ints

# Sweeps of dual ascent with the row fixed; ten times as many with a free interface precede them, once for all rows.
_SWEEPS_PER_ROW = 5
_FORBIDDEN = forbidden_value(np.dtype(np.int64))


def ascent_bounds(
    local: LocalProblem, matrix: UtilityMatrix, term: PsdTerm, rows: Ints, stop: Deadline = NO_DEADLINE
) -> Ints:
    """Return upper bounds of the given rows in the matrix's scale, rounded up, by a few sweeps of dual ascent.

    A row that is proven infeasible has the bound ``MINUS_INFINITY``.

    Parameters
    ----------
    local : LocalProblem
        The agent's problem.
    matrix : UtilityMatrix
        The agent's utilities.
    term : PsdTerm
        The positive semidefinite term and the messages of the certificate.
    rows : (k,) int64
        Numbers of the rows.
    stop : Deadline
        The deadline; bounds are valid even if it ends the ascent.
    """
    state = DualState(add_psd_term(local, matrix, term), triangles=False, backend=Backend(stop=stop))
    state.improve(sweeps=_SWEEPS_PER_ROW, rows=rows)
    bounds, scale = np.empty(rows.size, dtype=np.int64), state.layout.scale
    for i, bound in enumerate(state.bounds[rows].tolist()):
        value = scale.decode(bound)
        # division by 4^bits, rounded up
        bounds[i] = MINUS_INFINITY if value == -np.inf else -(-int(value) >> 2 * term.bits)
    return bounds


def add_psd_term(local: LocalProblem, matrix: UtilityMatrix, term: PsdTerm) -> LocalProblem:
    """Return the agent with the term added to its utilities.

    Utilities of the result are integers, in multiples of 4^-bits of the matrix's scale, where ``bits`` is that of the
    term. The squared norm contributes |l_a|² to each value a, and twice the inner product of l_a and l_b to each pair
    of values. The messages move utility from the pairwise to the unary tables.
    """
    hidden_vectors, interface_vectors, messages, bits = term
    starts, factors = matrix.starts, list[Factor]()

    def add(scope: tuple[int, ...], utilities: Array, added: Array | int) -> None:
        """Add a factor with the given utilities plus ``added``; forbidden entries stay forbidden.

        ``utilities`` are in the matrix's scale, ``added`` is in multiples of 4^-bits of it.
        """
        table = (utilities.astype(np.int64) << 2 * bits) + added
        table[utilities < FORBIDDEN_BELOW] = _FORBIDDEN
        factors.append(Factor(scope, table, ""))

    unary_terms, spans = term.unary_terms, [slice(a, b) for a, b in pairwise(starts.tolist())]
    for u, span in zip(local.hidden, spans, strict=True):
        add((u,), matrix.unary[span], unary_terms[span])
    for (i, u), (j, v) in combinations(enumerate(local.hidden), 2):
        a, b = spans[i], spans[j]
        message_sum = messages[j, a][:, None] + messages[i, b]
        add((u, v), matrix.pairs[a, b], _doubled_products(hidden_vectors[a], hidden_vectors[b]) - message_sum)
    interface_starts = np.cumsum([0, *matrix.shape])
    vectors_of_variable = [interface_vectors[a:b] for a, b in pairwise(interface_starts.tolist())]
    zero = np.zeros(1, dtype=np.int64)
    for x, value_vectors, table in zip(local.interface, vectors_of_variable, matrix.interface_pairs, strict=True):
        square_norms = np.einsum("br,br->b", value_vectors, value_vectors).astype(np.int64)
        add((x,), np.broadcast_to(zero, square_norms.shape), square_norms)
        for u, span in zip(local.hidden, spans, strict=True):
            add((x, u), table[:, span], _doubled_products(value_vectors, hidden_vectors[span]))
    for (x, left_vectors), (y, right_vectors) in combinations(
        zip(local.interface, vectors_of_variable, strict=True), 2
    ):
        products = _doubled_products(left_vectors, right_vectors)
        add((x, y), np.broadcast_to(zero, products.shape), products)
    for positions, table in matrix.interface_tables:
        add(tuple(local.interface[position] for position in positions), table, 0)
    return LocalProblem(local.agent, local.interface, local.hidden, tuple(factors), local.domains)


def _doubled_products(left: Floats, right: Floats) -> Ints:
    """Return twice the inner products of integer-valued vectors, (rows of ``left``, rows of ``right``) int64."""
    products: Ints = 2 * (left @ right.T).astype(np.int64)
    return products
