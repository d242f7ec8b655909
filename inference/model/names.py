"""Numbers that a caller gives, and errors about unknown names.

Numbers that a caller gives: Python or NumPy ones, not NaN; all whole numbers are read here.

The ends of error messages about unknown names: what was probably meant, and the known names.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_LISTED

_MAX_MAGNITUDE = 2**60  # of whole numbers
_ADVICE = " (0 to allow; -inf, or inf for costs, to forbid)"


def plain_value(value: Any) -> Any:
    """Return a scalar of NumPy as one of Python, and anything else unchanged."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


def python_number(value: Any, what: str, advice: str = _ADVICE) -> int | float:
    """Return a value as a Python int or float.

    Parameters
    ----------
    value : object
        The number, of Python or NumPy.
    what : str
        Name of the number, for error messages.
    advice : str
        What to write in place of a Boolean, for its error message.

    Returns
    -------
    int or float
        The number; infinities are allowed.

    Raises
    ------
    ProblemError
        If the value is no number, a Boolean, or NaN.
    """
    plain = plain_value(value)
    if isinstance(plain, bool):
        raise ProblemError(f"{what} is {plain}: a number is needed{advice}")
    if not isinstance(plain, int | float):
        raise ProblemError(f"{what} is {plain!r}: a number is needed")
    if plain != plain:
        raise ProblemError(f"{what} is NaN: a number is needed")
    return plain


def whole_number(value: Any, what: str, lowest: int = -_MAX_MAGNITUDE) -> int:
    """Return a value as a Python int; 2.0 is 2, and 1.5 or a Boolean is refused.

    Parameters
    ----------
    value : object
        The number, of Python or NumPy.
    what : str
        Name of the number, for error messages.
    lowest : int
        The smallest number that is allowed.

    Returns
    -------
    int
        The number, at most 2^60 in magnitude, so that sums of a few numbers fit 64 bits.

    Raises
    ------
    ProblemError
        If the value is not a whole number, or too small or too large.
    """
    number = python_number(value, what, "")
    if isinstance(number, float):
        if not number.is_integer():
            raise ProblemError(f"{what} is {number}: a whole number is needed; use a finer unit for fractions")
        number = int(number)
    if not lowest <= number <= _MAX_MAGNITUDE:
        limits = f"at least {lowest}" if number < lowest and lowest > -_MAX_MAGNITUDE else "at most 2^60 in magnitude"
        raise ProblemError(f"{what} is {number}: it must be {limits}")
    return number


def whole_numbers(values: Any, what: str, lowest: int = -_MAX_MAGNITUDE) -> list[int]:
    """Return values as Python ints, as :func:`whole_number` does; ``what`` names them in the plural."""
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise ProblemError(f"{what}: a list of whole numbers is needed, not {values!r}")
    plain = np.atleast_1d(values).tolist() if isinstance(values, np.ndarray) else list(values)
    if plain and set(map(type, plain)) == {int} and lowest <= min(plain) and max(plain) <= _MAX_MAGNITUDE:
        return plain
    return [whole_number(value, f"{what}: a number", lowest) for value in plain]


def cost_per_unit(cost: Any, what: str) -> int | float | None:
    """Return the cost per unit of violation of a constraint, at least 0; None for a hard constraint."""
    if cost is None:
        return None
    number = python_number(cost, f"{what}: the cost", "")
    if not 0 <= number < float("inf"):
        raise ProblemError(f"{what}: the cost must be a finite number >= 0, not {number}")
    return int(number) if number == int(number) else number


def suggest_name(name: object, known: Collection[str], what: str = "known variables") -> str:
    """Return ``; did you mean 'x'?`` if a known name is similar, otherwise the known names.

    Parameters
    ----------
    name : object
        The unknown name.
    known : collection of str
        The known names.
    what : str
        Noun for the known names, in the plural.

    Returns
    -------
    str
        The end of a sentence; empty if there are no known names.

    Examples
    --------
    >>> suggest_name("dexk", ["desk", "seat"]), suggest_name("x", ["desk", "seat"])
    ("; did you mean 'desk'?", '; known variables: desk, seat')
    """
    similar = difflib.get_close_matches(str(name), known, n=1)
    if similar:
        return f"; did you mean {similar[0]!r}?"
    return f"; {what}: {list_shortly(known)}" if known else ""


def list_shortly(texts: Iterable[object]) -> str:
    """Return texts separated by commas, the first ``MAX_LISTED`` of them.

    Parameters
    ----------
    texts : iterable of object
        Names or values.

    Returns
    -------
    str
        The list, with ``...`` at its end if some are left out.

    Examples
    --------
    >>> list_shortly("abc"), list_shortly(range(100))
    ('a, b, c', '0, 1, 2, 3, 4, 5, 6, 7, ...')
    """
    first = [str(text) for text in islice(texts, MAX_LISTED + 1)]
    return ", ".join(first[:MAX_LISTED]) + (", ..." if len(first) > MAX_LISTED else "")


def list_values(values: Sequence[object]) -> str:
    """Return the values of a variable for an error message.

    Parameters
    ----------
    values : sequence of object
        The labels, or a range.

    Returns
    -------
    str
        ``its values are ...``.

    Examples
    --------
    >>> list_values(range(5)), list_values(["red", "green"])
    ('its values are 0 to 4', "its values are 'red', 'green'")
    """
    if isinstance(values, range) and len(values) > 1:
        return f"its values are {values[0]} to {values[-1]}"
    return f"its values are {list_shortly(map(repr, values))}"
