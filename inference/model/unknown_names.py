"""The ends of error messages about unknown names: what was probably meant, and the known names."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from dmcmc.inference.tuning import MAX_LISTED


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
