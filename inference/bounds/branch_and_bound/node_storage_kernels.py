# mypy: ignore-errors
"""CPU kernels that store a node's tables in a buffer entry and fetch them, without changing any sum of entries.

Triplet tables are stored in 16 bits, as multiples of a power of two that all triplet tables of a node share. The
remainder of each entry moves to the pairwise table over the same variables. Entries are rounded down, so the maximum
of a triplet region stays at most 0. The power is 1 for most nodes.
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, magnitude_of
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

MAX_INT16 = (1 << 15) - 1
FORBIDDEN_INT16 = -MAX_INT16 - 1  # stands for a forbidden entry


@njit(nogil=True)
def shift_for(largest):
    """Return the right shift in bits after which the largest absolute entry fits into 16 bits."""
    shift = 0
    while largest >> shift > MAX_INT16:
        shift += 1
    return shift


@njit(nogil=True)
def store(buffer, entry, workspace, graph):
    """Store the working tables in a buffer entry; the working tables are invalid afterwards."""
    unpacked, packed = workspace.triplet.reshape(-1), buffer.triplet[entry].reshape(-1)
    largest = np.int32(0)
    for i in range(unpacked.size):
        largest = max(largest, magnitude_of(unpacked[i]))
    shift = shift_for(largest)
    for i in range(unpacked.size):
        packed[i] = np.int16(FORBIDDEN_INT16) if unpacked[i] < FORBIDDEN_BELOW else np.int16(unpacked[i] >> shift)
    if shift > 0:
        for t in range(graph.triangles.shape[0]):
            for k in range(3):
                _add_remainder(
                    workspace.triplet[t, k], workspace.pair[graph.triangles[t, k]], np.int32((1 << shift) - 1)
                )
    copy_entries(workspace.pair.reshape(-1), buffer.pair[entry].reshape(-1))
    copy_entries(workspace.unary.reshape(-1), buffer.unary[entry].reshape(-1))
    copy_entries(workspace.higher_order, buffer.higher_order[entry])
    copy_entries(workspace.domains, buffer.domains[entry])
    copy_entries(workspace.value_of.reshape(-1), buffer.value_of[entry].reshape(-1))
    buffer.bit_shifts[entry] = shift


@njit(nogil=True)
def _add_remainder(unpacked, pair, bit_mask):
    """Add the low bits of a triplet table's entries, selected by ``bit_mask``, to the pairwise table."""
    for i in range(unpacked.shape[0]):
        for j in range(unpacked.shape[1]):
            x = pair[i, j]
            remainder = np.int32(0) if unpacked[i, j] < FORBIDDEN_BELOW else np.int32(unpacked[i, j] & bit_mask)
            pair[i, j] = FORBIDDEN if x < FORBIDDEN_BELOW else np.int32(x + remainder)


@njit(nogil=True)
def fetch(buffer, entry, workspace):
    """Copy a buffer entry to the working tables."""
    packed, unpacked = buffer.triplet[entry].reshape(-1), workspace.triplet.reshape(-1)
    shift = np.int32(buffer.bit_shifts[entry])
    for i in range(packed.size):
        x = np.int32(packed[i])
        unpacked[i] = FORBIDDEN if x == FORBIDDEN_INT16 else np.int32(x << shift)
    copy_entries(buffer.pair[entry].reshape(-1), workspace.pair.reshape(-1))
    copy_entries(buffer.unary[entry].reshape(-1), workspace.unary.reshape(-1))
    copy_entries(buffer.higher_order[entry], workspace.higher_order)
    copy_entries(buffer.domains[entry], workspace.domains)
    copy_entries(buffer.value_of[entry].reshape(-1), workspace.value_of.reshape(-1))
