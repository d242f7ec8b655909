"""Dual ascent on what a square has made of an agent: each row shifts utilities between variables and pairs once more.

With its square an agent is another one, over the same variables and worth no less in any assignment, whose tables are
whole numbers. Descent gives all rows the same shifts; a few sweeps find each row its own.
"""

from itertools import combinations, pairwise

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.certificate import Square
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Array, Floats, Ints

_SWEEPS = 5  # of each row, after ten times as many with the interface free
_FORBIDDEN = forbidden_value(np.dtype(np.int64))


def ascended(local: LocalProblem, network: Network, square: Square, rows: Ints, stop: Stop = NO_STOP) -> Ints:
    """Return bounds of some rows in the network's scale, rounded up; NEVER where a row is proven infeasible."""
    state = DualState(with_square(local, network, square), triangles=False, backend=Backend(stop=stop))
    state.improve(sweeps=_SWEEPS, rows=rows)
    found, scale = np.empty(rows.size, dtype=np.int64), state.layout.scale
    for i, bound in enumerate(state.bounds[rows].tolist()):
        value = scale.decode(bound)
        found[i] = NEVER if value == -np.inf else -(-int(value) >> 2 * square.bits)
    return found


def with_square(local: LocalProblem, network: Network, square: Square) -> LocalProblem:
    """Return an agent whose utilities are the network's with the square, in multiples of 4^-bits of the scale."""
    hidden, outer, moved, bits = square
    starts, factors = network.starts, list[Factor]()

    def add(scope: tuple[int, ...], utilities: Array, added: Array | int) -> None:
        """Add a table: utilities in the scale, and what comes to them."""
        table = (utilities.astype(np.int64) << 2 * bits) + added
        table[utilities < THRESHOLD] = _FORBIDDEN
        factors.append(Factor(scope, table, ""))

    own, places = square.own, [slice(a, b) for a, b in pairwise(starts.tolist())]
    for u, at in zip(local.hidden, places, strict=True):
        add((u,), network.unary[at], own[at])
    for (i, u), (j, v) in combinations(enumerate(local.hidden), 2):
        a, b = places[i], places[j]
        shift = moved[j, a][:, None] + moved[i, b]
        add((u, v), network.pairs[a, b], _twice(hidden[a], hidden[b]) - shift)
    ends = np.cumsum([0, *network.shape])
    around = [outer[a:b] for a, b in pairwise(ends.tolist())]
    nothing = np.zeros(1, dtype=np.int64)
    for x, vectors, table in zip(local.interface, around, network.crossing, strict=True):
        squares = np.einsum("br,br->b", vectors, vectors).astype(np.int64)
        add((x,), np.broadcast_to(nothing, squares.shape), squares)
        for u, at in zip(local.hidden, places, strict=True):
            add((x, u), table[:, at], _twice(vectors, hidden[at]))
    for (x, one), (y, other) in combinations(zip(local.interface, around, strict=True), 2):
        products = _twice(one, other)
        add((x, y), np.broadcast_to(nothing, products.shape), products)
    for positions, table in network.inside:
        add(tuple(local.interface[position] for position in positions), table, 0)
    return LocalProblem(local.agent, local.interface, local.hidden, tuple(factors), local.domains)


def _twice(left: Floats, right: Floats) -> Ints:
    """Return twice the products of whole vectors."""
    found: Ints = 2 * (left @ right.T).astype(np.int64)
    return found
