# mypy: ignore-errors
"""CPU kernels that store the tables of a search node in a buffer entry and fetch them again.

A branch and bound stores the tables of its open nodes, so that the children can continue the dual ascent of their
parent. The arguments are:

* buffer : NodeTableBuffer, the stored tables: arrays whose first axis is the buffer entry
* entry : int, a buffer entry, which holds one node
* workspace : WorkingTables, the tables of the node that is being processed

A triangle a, b, c (triplet region) has three int32 tables of W rows and columns, over its pairs ab, ac and bc: the
triplet tables. They are stored in 16 bits, divided by 2^shift, with the same shift for all triplet tables of a node; it
is 0 for most nodes. The remainder of each entry moves to the pairwise table over the same two variables, so the utility
of every assignment stays the same. Entries are rounded down, so the maximum of a triangle stays at most 0, as the bound
assumes.
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, magnitude_of
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

MAX_INT16 = (1 << 15) - 1
FORBIDDEN_INT16 = -MAX_INT16 - 1  # stands for a forbidden entry of an int16 table


@njit(nogil=True, allocates=False)
def shift_for(largest):
    """Return the right shift in bits after which the largest absolute entry fits into 16 bits."""
    shift = 0
    while largest >> shift > MAX_INT16:
        shift += 1
    return shift


@njit(nogil=True, allocates=False)
def store(buffer, entry, workspace):
    """Store the working tables in a buffer entry; the working tables are invalid afterwards.

    The shift is the smallest one after which all triplet entries fit into 16 bits.
    """
    graph, tables = workspace.graph, workspace.potentials
    triplets, stored = tables.triangle.reshape(-1), buffer.triplet[entry].reshape(-1)
    largest_magnitude = np.int32(0)
    for i in range(triplets.size):
        largest_magnitude = max(largest_magnitude, magnitude_of(triplets[i]))
    shift = shift_for(largest_magnitude)
    for i in range(triplets.size):
        stored[i] = np.int16(FORBIDDEN_INT16) if triplets[i] < FORBIDDEN_BELOW else np.int16(triplets[i] >> shift)
    if shift > 0:
        for t in range(graph.triangles.shape[0]):
            for k in range(3):
                pair = tables.pair[graph.triangles[t, k]]
                _add_remainder(tables.triangle[t, k], pair, np.int32((1 << shift) - 1))
    copy_entries(tables.pair.reshape(-1), buffer.pair[entry].reshape(-1))
    copy_entries(tables.unary.reshape(-1), buffer.unary[entry].reshape(-1))
    copy_entries(tables.higher_order, buffer.higher_order[entry])
    copy_entries(graph.domains, buffer.domains[entry])
    copy_entries(workspace.value_of.reshape(-1), buffer.value_of[entry].reshape(-1))
    buffer.bit_shifts[entry] = shift


@njit(nogil=True, allocates=False)
def _add_remainder(triplet, pair, bit_mask):
    """Add the remainders of a triplet table's entries to the pairwise table over the same variables.

    ``triplet`` and ``pair`` are (W, W) int32. ``bit_mask`` selects the low bits of an entry that the shift removes.
    """
    for i in range(triplet.shape[0]):
        for j in range(triplet.shape[1]):
            pair_entry = pair[i, j]
            remainder = np.int32(0) if triplet[i, j] < FORBIDDEN_BELOW else np.int32(triplet[i, j] & bit_mask)
            pair[i, j] = FORBIDDEN if pair_entry < FORBIDDEN_BELOW else np.int32(pair_entry + remainder)


@njit(nogil=True, allocates=False)
def fetch(buffer, entry, workspace):
    """Copy a buffer entry to the working tables; the triplet entries are multiplied by 2^shift."""
    tables = workspace.potentials
    stored, triplets = buffer.triplet[entry].reshape(-1), tables.triangle.reshape(-1)
    shift = np.int32(buffer.bit_shifts[entry])
    for i in range(stored.size):
        x = np.int32(stored[i])
        triplets[i] = FORBIDDEN if x == FORBIDDEN_INT16 else np.int32(x << shift)
    copy_entries(buffer.pair[entry].reshape(-1), tables.pair.reshape(-1))
    copy_entries(buffer.unary[entry].reshape(-1), tables.unary.reshape(-1))
    copy_entries(buffer.higher_order[entry], tables.higher_order)
    copy_entries(buffer.domains[entry], workspace.graph.domains)
    copy_entries(buffer.value_of[entry].reshape(-1), workspace.value_of.reshape(-1))
