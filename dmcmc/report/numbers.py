"""Format numbers for narrow columns and text for figures, and compute shares; tables, pages and figures use it."""

from collections.abc import Sequence

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_FIRST_ABBREVIATED = 10**7  # smaller counts are written out, with at most nine characters
_FIRST_EXPONENTIAL = 10**15  # larger counts are written with an exponent


def short(number: float) -> str:
    """Return a count as text of at most nine characters.

    >>> short(1234567), short(208_369_728), short(3e27)
    ('1,234,567', '208 M', '3.0e27')
    """
    if number < _FIRST_ABBREVIATED:
        return f"{number:,.0f}"
    if number >= _FIRST_EXPONENTIAL:
        return "> 1e300" if number > 10**300 else f"{float(number):.1e}".replace("e+", "e")
    size, unit = next((size, unit) for size, unit in _UNITS if number >= size)
    return f"{number / size:.3g} {unit}"


def literal(text: str) -> str:
    r"""Return text for matplotlib, which would read the part between two dollar signs as a formula.

    >>> print(literal("cost in $"))
    cost in \$
    """
    return text.replace("$", r"\$")


def shares_of(gains: Sequence[float]) -> list[float]:
    """Return each number as a share of the sum of all; 0 if the sum is not positive.

    >>> shares_of([3.0, 1.0, 0.0]), shares_of([0.0])
    ([0.75, 0.25, 0.0], [0.0])
    """
    total = sum(gains)
    return [gain / total if total > 0 else 0.0 for gain in gains]
