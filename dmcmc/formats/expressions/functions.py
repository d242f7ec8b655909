"""What expressions may call: functions of bounded work over numbers, strings and short sequences."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dmcmc.inference.runtime.errors import DmcmcError

_MOST_BITS = 4096
_MOST_ITEMS = 4096
_HUGE = 1 << _MOST_BITS
_WHOLE = frozenset((int, bool))
_NUMBER = frozenset((int, bool, float))


class ExpressionError(DmcmcError):
    """An expression that is not valid, not supported or takes too long. The message continues ``the expression``."""


def number(value: Any) -> int | float:
    """Return a number of bounded size, or say that it is none."""
    if type(value) is float or (type(value) in _WHOLE and -_HUGE < value < _HUGE):
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        raise ExpressionError(f"has a number of more than {_MOST_BITS} bits")
    raise ExpressionError(f"calculates with {str(value)[:40]!r}, which is no number")


def integer(value: Any) -> int:
    """Return a whole number, or say that it is none."""
    if not isinstance(value, int):
        raise ExpressionError(f"needs a whole number, not {str(value)[:40]!r}")
    return value


def check_length(length: int) -> None:
    """Refuse a sequence that is too long."""
    if length > _MOST_ITEMS:
        raise ExpressionError(f"has a sequence of more than {_MOST_ITEMS} items")


def sequence(value: Any) -> tuple[Any, ...]:
    """Return the items of a sequence."""
    if not isinstance(value, tuple | str | frozenset | range):
        raise ExpressionError(f"goes through {str(value)[:40]!r}, which is no sequence")
    check_length(len(value))
    return tuple(value)


def add(a: Any, b: Any) -> Any:
    """Return a + b of numbers, strings or sequences."""
    if type(a) in _NUMBER and type(b) in _NUMBER:
        return number(a + b)
    if isinstance(a, str | tuple) and type(a) is type(b):
        check_length(len(a) + len(b))
        joined: Any = a
        return joined + b
    return number(number(a) + number(b))


def subtract(a: Any, b: Any) -> int | float:
    """Return a − b."""
    if type(a) in _NUMBER and type(b) in _NUMBER:
        return number(a - b)
    return number(number(a) - number(b))


def multiply(a: Any, b: Any) -> int | float:
    """Return a · b of numbers."""
    if type(a) in _NUMBER and type(b) in _NUMBER:
        return number(a * b)
    return number(number(a) * number(b))


def divide(a: Any, b: Any) -> int | float:
    """Return a / b."""
    return number(a) / number(b)


def floor_divide(a: Any, b: Any) -> int | float:
    """Return a // b."""
    return number(a) // number(b)


def modulo(a: Any, b: Any) -> int | float:
    """Return a % b of numbers."""
    return number(a) % number(b)


def negate(a: Any) -> int | float:
    """Return −a."""
    return -number(a)


def power(a: Any, b: Any) -> int | float:
    """Return a ** b, unless it is too large."""
    a, b = number(a), number(b)
    if isinstance(a, int) and isinstance(b, int) and abs(b) * a.bit_length() > _MOST_BITS:
        raise ExpressionError(f"has a power of more than {_MOST_BITS} bits")
    return number(a**b)


def _round(value: Any, digits: Any = None) -> int | float:
    if digits is None:
        return round(number(value))
    if abs(integer(digits)) > 400:
        raise ExpressionError("rounds to more than 400 digits")
    return number(round(number(value), digits))


def _sum(items: Any, start: Any = 0) -> Any:
    total = start
    for item in sequence(items):
        total = add(total, item)
    return total


def _extreme(choose: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *items: choose(sequence(items[0]) if len(items) == 1 else items)


def _int(value: Any) -> int:
    if isinstance(value, str):
        check_length(len(value))
        return integer(int(value))
    return integer(int(number(value)))


def _float(value: Any) -> float:
    return float(value if isinstance(value, str) else number(value))


def _range(*bounds: Any) -> tuple[Any, ...]:
    return sequence(range(*map(integer, bounds)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(number(value))


def _of_number(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function(*map(number, values))


CONSTANTS: Mapping[str, Any] = {"inf": math.inf, "pi": math.pi}

_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(number(value)),
    "all": lambda items: all(sequence(items)),
    "any": lambda items: any(sequence(items)),
    "bool": bool,
    "float": _float,
    "int": _int,
    "len": lambda items: len(sequence(items)),
    "list": sequence,
    "max": _extreme(max),
    "min": _extreme(min),
    "pow": power,
    "range": _range,
    "round": _round,
    "set": lambda items: frozenset(sequence(items)),
    "sorted": lambda items: tuple(sorted(sequence(items))),
    "str": _text,
    "sum": _sum,
    "tuple": sequence,
}
_MATH = ("ceil", "cos", "exp", "floor", "log", "sin", "sqrt", "tanh")

PYTHON: Mapping[str, Callable[..., Any]] = _BUILTINS | {name: _of_number(getattr(math, name)) for name in _MATH}
"""What Python's expressions may call: builtins, and functions of ``math``, with or without that name before them."""


def _truncated(a: Any, b: Any) -> int:
    """Return a / b rounded towards zero, as XCSP's ``div`` does."""
    quotient = abs(integer(a)) // abs(integer(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _folded(function: Callable[[Any, Any], Any], start: int) -> Callable[..., Any]:
    def fold(*values: Any) -> Any:
        total: Any = start
        for value in values:
            total = function(total, value)
        return total

    return fold


FUNCTIONAL: Mapping[str, Callable[..., Any]] = {
    "neg": negate,
    "abs": PYTHON["abs"],
    "add": _folded(add, 0),
    "sub": subtract,
    "mul": _folded(multiply, 1),
    "div": _truncated,
    "mod": lambda a, b: integer(a) - _truncated(a, b) * b,
    "pow": power,
    "min": lambda *values: min(map(number, values)),
    "max": lambda *values: max(map(number, values)),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "le": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
    "not_": lambda a: not a,
    "and_": lambda *values: all(values),
    "or_": lambda *values: any(values),
    "xor": lambda a, b: bool(a) != bool(b),
    "iff": lambda a, b: bool(a) == bool(b),
    "if_": lambda test, yes, no: yes if test else no,
}
"""XCSP 2.1's functions; those named like a Python keyword have an underscore."""

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: add,
    ast.Sub: subtract,
    ast.Mult: multiply,
    ast.Div: divide,
    ast.FloorDiv: floor_divide,
    ast.Mod: modulo,
    ast.Pow: power,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: negate,
    ast.UAdd: number,
    ast.Not: operator.not_,
}
"""What operators do: binary, comparing and unary ones."""
