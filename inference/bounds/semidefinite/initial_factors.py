"""Compute the factor vectors and messages that a descent starts from, by an eigenvalue decomposition.

The bound adds a positive semidefinite term to the utilities, which adds 2 L Lᵀ to the matrix of pairwise utilities; the
rows of L are the values' factor vectors. With eigenvalues λ and eigenvectors q of that matrix, the start sets
L Lᵀ = -½ Σ λ q qᵀ over the negative λ, which cancels its negative semidefinite part. A random start needs about fifty
steps to get as far; the decomposition takes as long as about eight steps.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.bounds.tuning.semidefinite import MIN_EIGENVALUE_RATIO

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
