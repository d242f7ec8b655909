"""Where a descent begins: half of what is negative in the pairs' utilities, turned round.

A square adds 2 L Lᵀ to the tables of pairs. With L Lᵀ minus half the part of their matrix that has negative
eigenvalues, only the other part is left: about what fifty steps from a random start lead to. It takes as long as
about eight steps.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network

_PART = 0.5  # of the negative part
_LEAST = 1 / 64  # of the largest negative eigenvalue: vectors for smaller ones take more time than they bring
STEPS = 10  # that the start takes as long as, at most


def spectral_start(network: Network, unit: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the vectors of hidden values (n, r) and shifts (h, n) that a descent begins with, in units.

    Shifts take the means of rows and columns from pairs' tables: what is left has eigenvectors that tell of pairs.
    """
    owner, first = network.owner, network.starts[:-1]
    sizes = np.diff(network.starts).astype(np.float32)
    table = network.pairs.astype(np.float32)
    live = network.pairs >= THRESHOLD
    table[~live] = table[live].min(initial=0.0)
    table *= np.float32(1 / unit)
    means = np.add.reduceat(table, first, axis=1) / sizes
    overall = np.add.reduceat(means, first, axis=0) / sizes[:, None]
    shifts: NDArray[np.float32] = (means.T - overall[:, owner] / 2).astype(np.float32)
    shifts[owner, np.arange(owner.size)] = 0
    table -= shifts[owner]
    table -= shifts[owner].T
    for a, b in zip(network.starts[:-1], network.starts[1:], strict=True):
        table[a:b, a:b] = 0
    try:
        values, vectors = np.linalg.eigh(table)
    except np.linalg.LinAlgError:  # did not converge: shifts alone then
        return np.zeros((owner.size, 1), dtype=np.float32), shifts
    many = max(1, int((values < _LEAST * min(0.0, float(values[0]))).sum()))
    lengths = np.sqrt(np.maximum(0, -_PART * values[:many]))
    return np.ascontiguousarray(vectors[:, :many] * lengths, dtype=np.float32), shifts
