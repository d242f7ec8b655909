"""Numbers that a caller gives: Python or NumPy ones, not NaN."""

from typing import Any

import numpy as np

from dmcmc.inference.runtime.errors import ProblemError


def python_number(value: Any, what: str) -> int | float:
    """Return a value as a Python int or float.

    Parameters
    ----------
    value : object
        The number, of Python or NumPy.
    what : str
        Name of the number, for error messages.

    Returns
    -------
    int or float
        The number; infinities are allowed.

    Raises
    ------
    ProblemError
        If the value is no number, a Boolean, or NaN.
    """
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
    if isinstance(plain, bool):
        raise ProblemError(f"{what} is {plain}: a number is needed (0 to allow; -inf, or inf for costs, to forbid)")
    if not isinstance(plain, int | float):
        raise ProblemError(f"{what} is {plain!r}: a number is needed")
    if plain != plain:
        raise ProblemError(f"{what} is NaN: a number is needed")
    return plain
