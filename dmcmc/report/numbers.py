"""Numbers in few columns."""

from collections.abc import Sequence

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_WHOLE = 10**7  # written out below this
_LARGEST = 10**15


def short(number: float) -> str:
    """Return a count in at most nine characters.

    >>> short(1234567), short(208_369_728), short(3e27)
    ('1,234,567', '208 M', '3.0e27')
    """
    if number < _WHOLE:
        return f"{number:,.0f}"
    if number >= _LARGEST:
        return "> 1e300" if number > 10**300 else f"{float(number):.1e}".replace("e+", "e")
    size, unit = next((size, unit) for size, unit in _UNITS if number >= size)
    return f"{number / size:.3g} {unit}"


def parts_of(gains: Sequence[float]) -> list[float]:
    """Return what part of their sum numbers are; 0 where that is nothing.

    >>> parts_of([3.0, 1.0, 0.0]), parts_of([0.0])
    ([0.75, 0.25, 0.0], [0.0])
    """
    total = sum(gains)
    return [gain / total if total > 0 else 0.0 for gain in gains]
