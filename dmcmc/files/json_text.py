"""Read JSON text that may be damaged: whatever is wrong with it is one kind of error."""

import json
from typing import Any, NoReturn

from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

_MAX_DEPTH = 64  # nested lists and objects; files of dmcmc have at most ten
# Largest magnitude of a number. Sums of utilities are below 2^1000; sums and differences of a few of them fit float64.
_MAX_NUMBER = 1e302
_BYTES_PER_OBJECT = 150  # bytes of one value of a list or object, or half of an object; measured
_MAX_DIGITS = 302  # digits of an integer below that limit


def plain_json(content: bytes) -> Any:
    """Return the data in JSON text.

    Integers stay integers. Numbers are finite and small enough for float64.

    Raises
    ------
    ValueError
        If the text is not UTF-8 or not JSON, is nested too deeply, or has a number or a character that cannot be
        written again. The message is one line.

    Examples
    --------
    >>> plain_json(b'{"x": [1, 2.5]}')
    {'x': [1, 2.5]}
    """
    try:
        text = content.decode("utf-8")
        objects = 2 * text.count("{") + text.count("[") + text.count(",")
        MEMORY_ACCOUNT.claim(_BYTES_PER_OBJECT * objects, "the values of JSON text")
        data = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refused)
        if "\\ud" in text.lower():  # half of a character: it cannot be encoded
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(data)
    return data


_TOO_DEEP = f"lists and objects are nested more than {_MAX_DEPTH} deep"


def _integer(text: str) -> int:
    """Return an integer of limited length."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"it has an integer of {len(text)} digits; at most {_MAX_DIGITS}")
    return int(text)


def _float(text: str) -> float:
    """Return a finite float."""
    value = float(text)
    if not abs(value) <= _MAX_NUMBER:
        _refused(text[:20])
    return value


def _refused(text: str) -> NoReturn:
    """Raise an error for a number that is too large, infinite or NaN."""
    raise ValueError(f"it has the number {text}; numbers are finite and at most {_MAX_NUMBER:g}")


def _check_depth(data: Any) -> None:
    """Raise an error if lists and objects are nested too deeply."""
    level = [data]
    for _ in range(_MAX_DEPTH):
        parts = [part for part in level if isinstance(part, dict | list)]
        if not parts:
            return
        level = [inner for part in parts for inner in (part.values() if isinstance(part, dict) else part)]
    raise ValueError(_TOO_DEEP)
