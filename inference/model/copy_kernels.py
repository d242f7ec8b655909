# mypy: ignore-errors
"""Copies of arrays: ``a[:] = b`` compiles the text of an error, which takes seconds of every kernel that has it."""

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def copy_entries(source, target):
    """Copy the entries of an array (n,) to the front of another one."""
    for i in range(source.size):
        target[i] = source[i]
