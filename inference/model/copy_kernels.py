# mypy: ignore-errors
"""Array copies for kernels.

The slice assignment ``a[:] = b`` makes Numba compile an error message, which adds seconds to the compile time of every
kernel that contains it.
"""

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, allocates=False)
def copy_entries(source, target):
    """Copy the entries of ``source``, shape (n,), to the first n entries of ``target``."""
    for i in range(source.size):
        target[i] = source[i]
