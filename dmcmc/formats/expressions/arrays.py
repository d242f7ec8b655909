"""Evaluate expressions for all assignments at once by NumPy, if the result is certainly the same as Python's.

``Expression`` (:mod:`dmcmc.formats.expressions.expression`) calls ``evaluate``. Every value is an array that broadcasts
over the axes of its variables, as with ``np.ix_``. If Python might raise an error, skip an operand, or use larger
integers, ``_NeedsPython`` abandons the evaluation and :mod:`dmcmc.formats.expressions.expression` evaluates the
assignments one by one.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from dmcmc.formats.expressions.functions import CONSTANTS
from dmcmc.inference.runtime.types import Array

_MAX_INTEGER = 2**62  # larger integers might overflow int64 in the next operation
_MAX_EXACT_FLOAT = 2**53  # float64 represents all integers up to this one


class _NeedsPython(Exception):
    """The result of NumPy might differ from that of Python."""


class _ArrayValue(NamedTuple):
    """Values of a subexpression for all assignments.

    Attributes
    ----------
    values : ndarray
        Broadcastable to the shape of all assignments: one axis per variable, of length 1 if the value does not depend
        on it.
    kind : str
        i (int64), f (float64), b (bool), O (text), or m (a mixture of integers and floats, as float64).
    max_abs : int
        Upper bound on the absolute value of the integers among the values; 1 for all other kinds except m.
    """

    values: Array
    kind: str
    max_abs: int = 1


def evaluate(
    node: ast.expr, names: Sequence[str], values: Sequence[Sequence[Any]], axes: Sequence[int]
) -> Array | None:
    """Return the values of an expression for all assignments, or None if Python has to evaluate it.

    Parameters
    ----------
    node
        A tree that :class:`dmcmc.formats.expressions.expression.Compiler` accepts.
    names
        Free names of the expression.
    values
        Values on each axis: one axis per variable of the scope, and one of length 1 per constant argument.
    axes
        Axis of each name.

    Returns
    -------
    ndarray or None
        int64 or float64, shape (assignments,), the last axis fastest; truth values as 0 and 1. None also for a text.
    """
    shape = [len(v) for v in values]
    try:
        known = {name: _ArrayValue(np.array(value), *_kind([value])) for name, value in CONSTANTS.items()}
        for name, axis in zip(names, axes, strict=True):
            kind, max_abs = _kind(values[axis])
            array = np.array(values[axis], dtype=object if kind == "O" else None)
            known[name] = _ArrayValue(array.reshape([-1 if i == axis else 1 for i in range(len(shape))]), kind, max_abs)
        with np.errstate(all="ignore"):
            result = _value(node, known)
    except (_NeedsPython, TypeError, RecursionError):
        return None
    if result.kind == "O":
        return None
    broadcast = np.broadcast_to(result.values, shape).reshape(-1)
    return broadcast.astype(np.int64) if result.kind == "b" else broadcast


def _kind(values: Sequence[Any]) -> tuple[str, int]:
    """Return the kind of values of one type (see ``_ArrayValue``), and an upper bound on their absolute value.

    Raises ``_NeedsPython`` for values of several types, of other types, or above 2^62.
    """
    types = set(map(type, values))
    kind = {int: "i", float: "f", bool: "b", str: "O"}.get(types.pop() if len(types) == 1 else object)
    max_abs = max(map(abs, values)) if kind == "i" else 1
    if kind is None or max_abs > _MAX_INTEGER:
        raise _NeedsPython
    return kind, max_abs


def _value(node: ast.expr, known: Mapping[str, _ArrayValue]) -> _ArrayValue:
    """Evaluate a syntax tree; ``known`` maps each name to its values."""
    match node:
        case ast.Constant():
            kind, max_abs = _kind([node.value])
            return _ArrayValue(np.array(node.value, dtype=object if kind == "O" else None), kind, max_abs)
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.operand, known))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left, known), _value(node.right, known))
        case ast.BoolOp():
            parts = [_value(part, known) for part in node.values]
            is_or = isinstance(node.op, ast.Or)
            return reduce(lambda rest, part: _choose(part, *((part, rest) if is_or else (rest, part))), parts[::-1])
        case ast.Compare() if all(type(op) in _OPERATORS for op in node.ops):
            parts = [_value(part, known) for part in (node.left, *node.comparators)]
            links = zip(node.ops, parts, parts[1:], strict=False)
            return _all_true(*(_OPERATORS[type(op)](left, right) for op, left, right in links))
        case ast.IfExp():
            return _choose(*(_value(part, known) for part in (node.test, node.body, node.orelse)))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            return _CALLS[name](*(_value(part, known) for part in node.args))
    raise _NeedsPython


def _numbers(parts: Sequence[_ArrayValue]) -> tuple[list[Any], list[int], str]:
    """Return the operands as numbers.

    Raises ``_NeedsPython`` for texts and mixtures, and for integers above 2^53 next to floats, which would be rounded.

    Returns
    -------
    arrays, sizes, kind
        The arrays, upper bounds on their absolute values, and ``i`` if all are integers, else ``f``.
    """
    kinds = {"i" if part.kind == "b" else part.kind for part in parts}
    sizes = [part.max_abs for part in parts]
    if not kinds <= {"i", "f"} or (len(kinds) > 1 and max(sizes) > _MAX_EXACT_FLOAT):
        raise _NeedsPython
    arrays = [part.values.astype(np.int64) if part.kind == "b" else part.values for part in parts]
    return arrays, sizes, "i" if kinds == {"i"} else "f"


def _calculate(ufunc: Any, bound: Callable[..., int]) -> Callable[..., _ArrayValue]:
    """Return an arithmetic operation on arrays.

    Parameters
    ----------
    ufunc
        NumPy's function.
    bound
        Maps upper bounds on the operands' absolute values to an upper bound on the result's.
    """

    def calculate(*parts: _ArrayValue) -> _ArrayValue:
        arrays, sizes, kind = _numbers(parts)
        max_abs = bound(*sizes) if kind == "i" else 1
        if max_abs > _MAX_INTEGER:
            raise _NeedsPython
        return _ArrayValue(ufunc(*arrays), kind, max_abs)

    return calculate


def _divide(ufunc: Any, integers_only: bool) -> Callable[[_ArrayValue, _ArrayValue], _ArrayValue]:
    """Return a division that rejects zero divisors; integer division and remainder take integers only.

    ``ufunc`` is NumPy's function. True division rejects integers above 2^53, which float64 would round.
    """

    def divide(a: _ArrayValue, b: _ArrayValue) -> _ArrayValue:
        arrays, sizes, kind = _numbers([a, b])
        if not arrays[1].all() or (kind == "f" if integers_only else max(sizes) > _MAX_EXACT_FLOAT):
            raise _NeedsPython
        return _ArrayValue(ufunc(*arrays), kind if integers_only else "f", max(sizes) if integers_only else 1)

    return divide


def _compare(ufunc: Any) -> Callable[[_ArrayValue, _ArrayValue], _ArrayValue]:
    """Return a comparison of numbers or of texts."""

    def compare(a: _ArrayValue, b: _ArrayValue) -> _ArrayValue:
        if a.kind == b.kind == "O":
            return _ArrayValue(np.asarray(ufunc(a.values, b.values), dtype=bool), "b")
        return _ArrayValue(ufunc(*_numbers([a, b])[0]), "b")

    return compare


def _extreme(better: Any) -> Callable[..., _ArrayValue]:
    """Return ``max`` or ``min`` of several numbers of one type; ties take the first, as in Python.

    ``better`` is ``np.greater`` or ``np.less``.
    """

    def extreme(*parts: _ArrayValue) -> _ArrayValue:
        if len(parts) < 2 or {part.kind for part in parts} not in ({"i"}, {"f"}):
            raise _NeedsPython
        best = reduce(lambda x, y: np.where(better(y, x), y, x), [part.values for part in parts])
        return _ArrayValue(best, parts[0].kind, max(part.max_abs for part in parts))

    return extreme


def _truth(part: _ArrayValue) -> Array:
    """Return the truth value of each entry."""
    return part.values if part.kind == "b" else part.values != ("" if part.kind == "O" else 0)


def _all_true(*parts: _ArrayValue) -> _ArrayValue:
    """Return whether all operands are true."""
    return _ArrayValue(reduce(np.logical_and, map(_truth, parts)), "b")


def _choose(test: _ArrayValue, yes: _ArrayValue, no: _ArrayValue) -> _ArrayValue:
    """Return ``yes`` where the test is true, else ``no``; both are evaluated everywhere.

    This differs from Python only in operands that raise errors, and these abandon the evaluation.
    """
    kinds, max_abs = {yes.kind, no.kind}, max(yes.max_abs, no.max_abs)
    kind = yes.kind if len(kinds) == 1 else "i" if kinds == {"b", "i"} else "m"
    if kind == "m" and (max_abs > _MAX_EXACT_FLOAT or "O" in kinds):
        raise _NeedsPython
    return _ArrayValue(np.where(_truth(test), yes.values, no.values), kind, max_abs)


def _power(a: _ArrayValue, b: _ArrayValue) -> _ArrayValue:
    """Return an integer power with a non-negative exponent and a result below 2^62.

    ``n * m.bit_length()`` bounds the number of bits of the result, with the bounds m and n on base and exponent.
    """
    (base, exponent), (m, n), kind = _numbers([a, b])
    if kind == "f" or exponent.min() < 0 or n * m.bit_length() > 62:
        raise _NeedsPython
    return _ArrayValue(np.power(base, exponent), kind, max(m, 1) ** n)


def _bitwise(ufunc: Any) -> Callable[[_ArrayValue, _ArrayValue], _ArrayValue]:
    """Return a bitwise operation on integers and truth values.

    ``ufunc`` is NumPy's function. Integers of k bits besides the sign, −2^k to 2^k − 1, have results of k bits. The
    result for two truth values is a truth value.
    """
    calculate = _calculate(ufunc, lambda m, n: 1 << max(m.bit_length(), n.bit_length()))

    def apply(a: _ArrayValue, b: _ArrayValue) -> _ArrayValue:
        if a.kind == b.kind == "b":
            return _ArrayValue(ufunc(a.values, b.values), "b")
        if not {a.kind, b.kind} <= {"i", "b"}:
            raise _NeedsPython
        return calculate(a, b)

    return apply


def _folded(function: Callable[[_ArrayValue, _ArrayValue], _ArrayValue]) -> Callable[..., _ArrayValue]:
    """Extend a binary operation to two or more operands."""
    return lambda first, *rest: reduce(function, rest, first)


_ADD = _calculate(np.add, lambda m, n: m + n)
_MULTIPLY = _calculate(np.multiply, lambda m, n: m * n)
_SUBTRACT = _calculate(np.subtract, lambda m, n: m + n)
_NEGATE = _calculate(np.negative, lambda m: m)
_OPERATORS: Mapping[type, Callable[..., _ArrayValue]] = {
    ast.Add: _ADD,
    ast.Sub: _SUBTRACT,
    ast.Mult: _MULTIPLY,
    ast.Div: _divide(np.true_divide, integers_only=False),
    ast.FloorDiv: _divide(np.floor_divide, integers_only=True),
    ast.Mod: _divide(np.remainder, integers_only=True),
    ast.Pow: _power,
    ast.BitXor: _bitwise(np.bitwise_xor),
    ast.BitAnd: _bitwise(np.bitwise_and),
    ast.BitOr: _bitwise(np.bitwise_or),
    ast.USub: _NEGATE,
    ast.Not: lambda part: _ArrayValue(np.logical_not(_truth(part)), "b"),
    ast.Eq: _compare(np.equal),
    ast.NotEq: _compare(np.not_equal),
    ast.Lt: _compare(np.less),
    ast.LtE: _compare(np.less_equal),
    ast.Gt: _compare(np.greater),
    ast.GtE: _compare(np.greater_equal),
}
_CALLS: Mapping[str, Callable[..., _ArrayValue]] = {
    "abs": _calculate(np.abs, lambda m: m),
    "max": _extreme(np.greater),
    "min": _extreme(np.less),
    "pow": _power,
    "add": _folded(_ADD),
    "sub": _SUBTRACT,
    "mul": _folded(_MULTIPLY),
    "neg": _NEGATE,
    "eq": _OPERATORS[ast.Eq],
    "ne": _OPERATORS[ast.NotEq],
    "lt": _OPERATORS[ast.Lt],
    "le": _OPERATORS[ast.LtE],
    "gt": _OPERATORS[ast.Gt],
    "ge": _OPERATORS[ast.GtE],
    "not_": _OPERATORS[ast.Not],
    "and_": _all_true,
    "or_": lambda *parts: _ArrayValue(reduce(np.logical_or, map(_truth, parts)), "b"),
    "if_": _choose,
}
"""Functions of Python and of XCSP; those that both have are the same."""
