"""Tables of the nodes of a branch and bound with dual ascent: stored ones in a buffer, and working tables.

A node is a row (an assignment of the agent's boundary variables) with the values that each hidden variable may take. A
node's tables are the reparametrised potentials of a dual ascent over its n hidden variables; a
sweep of the ascent moves utility between the tables of all factors once. W is the number of columns of a table: the
largest domain size, rounded up to a multiple of 8. A triplet region is a triangle a, b, c of three pairs; t is the
number of them.

Tables are compacted on the CPU: the values of a variable that remain are moved to its first positions. ``value_of``
gives the original value of each position. Masks are always indexed by original values.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials, empty_potentials
from dmcmc.inference.runtime.types import Ints


class WorkingTables(NamedTuple):
    """Working memory for one node: the reparametrised tables of its hidden variables.

    Attributes
    ----------
    graph : DualGraph
        The hidden graph, with the domain sizes of the compacted tables.
    potentials : DualPotentials
        Of ``graph``.
    value_of : (n, W) int16
        Original value of each position in a variable's compacted tables.
    """

    graph: DualGraph
    potentials: DualPotentials
    value_of: NDArray[np.int16]


class NodeTableBuffer(NamedTuple):
    """Stored tables of nodes, one entry per node, in a compact form.

    Attributes
    ----------
    unary : (entries, n, W) int32
        Unary tables.
    pair : (entries, pairs, W, W) int32
        Pairwise tables.
    higher_order : (entries, size) int32
        Tables of the factors of three or more variables, one after the other.
    triplet : (entries, t, 3, W, W) int16
        Tables of the triplet regions, divided by 2 to the power of ``bit_shifts``.
    domains : (entries, n) int64
        Domain sizes of the compacted tables.
    value_of : (entries, n, W) int16
        Original value of each position.
    bit_shifts : (entries,) int64
        Right shift of the triplet tables, in bits.
    row_constants : (entries,) int64
        Utility of the row without hidden variables, in the agent's integer scale.
    sweeps_made : (entries,) int64
        Sweeps of dual ascent since the row's boundary variables were fixed.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    triplet: NDArray[np.int16]
    higher_order: NDArray[np.int32]
    domains: Ints
    value_of: NDArray[np.int16]
    bit_shifts: Ints
    row_constants: Ints
    sweeps_made: Ints


def entry_bytes(hidden: DualGraph, width: int) -> int:
    """Return the bytes of a buffer entry for a hidden graph whose tables have ``width`` columns.

    These are 4 per unary, pairwise and higher-order entry, 2 per triplet entry and per value, 8 per domain size, and 24
    for the shift, the constant and the number of sweeps.
    """
    n, table_size = hidden.domains.size, width * width
    entries = n * width + len(hidden.pairs) * table_size + int(hidden.entry_start[-1])
    return 4 * entries + 6 * len(hidden.triangles) * table_size + n * (2 * width + 8) + 24


def make_node_buffer(hidden: DualGraph, width: int, capacity: int) -> NodeTableBuffer:
    """Allocate a buffer of ``capacity`` entries; the operating system assigns memory as entries are used."""
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return NodeTableBuffer(
        np.empty((capacity, n, width), dtype=np.int32),
        np.empty((capacity, m, width, width), dtype=np.int32),
        np.empty((capacity, t, 3, width, width), dtype=np.int16),
        np.empty((capacity, int(hidden.entry_start[-1])), dtype=np.int32),
        np.empty((capacity, n), dtype=np.int64),
        np.empty((capacity, n, width), dtype=np.int16),
        *(np.empty(capacity, dtype=np.int64) for _ in range(3)),
    )


def make_working_tables(hidden: DualGraph, width: int) -> WorkingTables:
    """Allocate the working memory for one node."""
    graph = hidden._replace(domains=np.empty_like(hidden.domains), widths=np.empty_like(hidden.widths))
    return WorkingTables(graph, empty_potentials(hidden, width), np.empty((graph.domains.size, width), dtype=np.int16))
