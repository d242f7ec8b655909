"""Functions, operators and constants of expressions: bounded work on numbers, strings and short sequences.

``PYTHON`` and ``FUNCTIONAL`` are the functions that Python expressions and XCSP's functional form may call; ``BINARY``,
``COMPARE`` and ``UNARY`` are the operators by the node types of :mod:`ast`.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dmcmc.inference.runtime.errors import DmcmcError

_MAX_BITS = 4096  # bits of an integer; bounds the work of an operation
_MAX_ITEMS = 4096  # items of a sequence; bounds the work of an operation
_INTEGER_LIMIT = 1 << _MAX_BITS
_INTEGER_TYPES = frozenset((int, bool))
_NUMBER_TYPES = frozenset((int, bool, float))


class ExpressionError(DmcmcError):
    """An expression that is invalid, unsupported or too slow. The message continues the words ``the expression``."""


def number(value: Any) -> int | float:
    """Return a number unchanged; raise ``ExpressionError`` for an integer of more than 4096 bits, or no number."""
    if type(value) is float or (type(value) in _INTEGER_TYPES and -_INTEGER_LIMIT < value < _INTEGER_LIMIT):
        return value  # type: ignore[no-any-return]
    if isinstance(value, int):
        raise ExpressionError(f"has a number of more than {_MAX_BITS} bits")
    raise ExpressionError(f"calculates with {str(value)[:40]!r}, which is not a number")


def integer(value: Any) -> int:
    """Return an integer, or raise ``ExpressionError``."""
    if not isinstance(value, int):
        raise ExpressionError(f"needs a whole number, not {str(value)[:40]!r}")
    return value


def check_length(length: int) -> None:
    """Raise ``ExpressionError`` if a sequence is too long."""
    if length > _MAX_ITEMS:
        raise ExpressionError(f"has a sequence of more than {_MAX_ITEMS} items")


def sequence(value: Any) -> tuple[Any, ...]:
    """Return the items of a sequence as a tuple."""
    if not isinstance(value, tuple | str | frozenset | range):
        raise ExpressionError(f"iterates over {str(value)[:40]!r}, which is not a sequence")
    check_length(len(value))
    return tuple(value)


def add(a: Any, b: Any) -> Any:
    """Return a + b for numbers, strings or sequences."""
    if type(a) in _NUMBER_TYPES and type(b) in _NUMBER_TYPES:
        return number(a + b)
    if isinstance(a, str | tuple) and type(a) is type(b):
        check_length(len(a) + len(b))
        joined: Any = a
        return joined + b
    return number(number(a) + number(b))


def subtract(a: Any, b: Any) -> int | float:
    """Return a − b."""
    if type(a) in _NUMBER_TYPES and type(b) in _NUMBER_TYPES:
        return number(a - b)
    return number(number(a) - number(b))


def multiply(a: Any, b: Any) -> int | float:
    """Return a · b for numbers."""
    if type(a) in _NUMBER_TYPES and type(b) in _NUMBER_TYPES:
        return number(a * b)
    return number(number(a) * number(b))


def divide(a: Any, b: Any) -> int | float:
    """Return a / b."""
    return number(a) / number(b)


def floor_divide(a: Any, b: Any) -> int | float:
    """Return a // b."""
    return number(a) // number(b)


def modulo(a: Any, b: Any) -> int | float:
    """Return a % b for numbers."""
    return number(a) % number(b)


def negate(a: Any) -> int | float:
    """Return −a."""
    return -number(a)


def power(a: Any, b: Any) -> int | float:
    """Return a ** b, or raise ``ExpressionError`` if it is too large."""
    a, b = number(a), number(b)
    if isinstance(a, int) and isinstance(b, int) and abs(b) * a.bit_length() > _MAX_BITS:
        raise ExpressionError(f"has a power of more than {_MAX_BITS} bits")
    return number(a**b)


def _bitwise(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    """Return a bitwise operation that checks that its operands are integers or truth values, as in Python."""
    return lambda a, b: function(integer(a), integer(b))


def _round(value: Any, digits: Any = None) -> int | float:
    """Return Python's ``round`` for bounded arguments.

    ``digits`` is limited to ±400, beyond the exponents of floats (10^±308).
    """
    if digits is None:
        return round(number(value))
    if abs(integer(digits)) > 400:
        raise ExpressionError("rounds to more than 400 digits")
    return number(round(number(value), digits))


def _sum(items: Any, start: Any = 0) -> Any:
    """Return Python's ``sum`` for numbers or sequences."""
    total = start
    for item in sequence(items):
        total = add(total, item)
    return total


def _extreme(choose: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return ``max`` or ``min`` as Python defines it."""
    return lambda *items: choose(sequence(items[0]) if len(items) == 1 else items)


def _int(value: Any) -> int:
    """Return Python's ``int`` for bounded arguments."""
    if isinstance(value, str):
        check_length(len(value))
        return integer(int(value))
    return integer(int(number(value)))


def _float(value: Any) -> float:
    """Return Python's ``float``."""
    return float(value if isinstance(value, str) else number(value))


def _range(*bounds: Any) -> tuple[Any, ...]:
    """Return the items of Python's ``range``."""
    return sequence(range(*map(integer, bounds)))


def _text(value: Any) -> str:
    """Return Python's ``str``."""
    return value if isinstance(value, str) else str(number(value))


def _of_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks that its arguments are numbers."""
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
"""Functions that Python expressions may call: builtins, and functions of ``math``, with or without that prefix."""


def _truncated_division(a: Any, b: Any) -> int:
    """Return a / b rounded towards zero, as XCSP's ``div`` does."""
    quotient = abs(integer(a)) // abs(integer(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _folded(function: Callable[[Any, Any], Any], start: int) -> Callable[..., Any]:
    """Extend a binary function to any number of operands, folded from the left; ``start`` is the result of none."""

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
    "div": _truncated_division,
    "mod": lambda a, b: integer(a) - _truncated_division(a, b) * b,
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
    ast.BitXor: _bitwise(operator.xor),
    ast.BitAnd: _bitwise(operator.and_),
    ast.BitOr: _bitwise(operator.or_),
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
    ast.Invert: lambda a: ~integer(a),
    ast.Not: operator.not_,
}
"""Functions for the binary, comparison and unary operators."""
