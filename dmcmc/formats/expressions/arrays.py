"""Expressions over all assignments at once, by NumPy, where it surely gives what Python gives.

Every value is an array that ranges over the axes of its variables, as ``np.ix_`` makes them. Where Python might raise,
leave something out, or calculate with larger integers, there is no answer, and the assignments are gone through one by
one (:mod:`dmcmc.formats.expressions.closures`).
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from dmcmc.formats.expressions.functions import CONSTANTS
from dmcmc.inference.runtime.types import Array

_LARGEST, _EXACT_FLOAT = 2**62, 2**53


class _Doubt(Exception):
    """Python might say something else."""


class _Part(NamedTuple):
    """A value: ``kind`` is i (int64), f (float64), b (bool), O (text), or m (integers and floats, as float64).

    No integer among the values is larger than ``most``, in absolute value.
    """

    values: Array
    kind: str
    most: int = 1


def evaluate(
    node: ast.expr, names: Sequence[str], values: Sequence[Sequence[Any]], axes: Sequence[int]
) -> Array | None:
    """Return the values of an expression for all assignments, the last axis fastest; None where Python is needed.

    Parameters
    ----------
    node
        What :class:`dmcmc.formats.expressions.closures.Compiler` lets through.
    names
        Its free names.
    values
        Of each axis.
    axes
        Of each name.
    """
    shape = [len(v) for v in values]
    try:
        known = {name: _Part(np.array(value), *_kind([value])) for name, value in CONSTANTS.items()}
        for name, axis in zip(names, axes, strict=True):
            kind, most = _kind(values[axis])
            array = np.array(values[axis], dtype=object if kind == "O" else None)
            known[name] = _Part(array.reshape([-1 if i == axis else 1 for i in range(len(shape))]), kind, most)
        with np.errstate(all="ignore"):
            found = _value(node, known)
    except (_Doubt, TypeError, RecursionError):
        return None
    if found.kind == "O":
        return None
    whole = np.broadcast_to(found.values, shape).reshape(-1)
    return whole.astype(np.int64) if found.kind == "b" else whole


def _kind(values: Sequence[Any]) -> tuple[str, int]:
    """Return what values of one type are, and how large."""
    types = set(map(type, values))
    kind = {int: "i", float: "f", bool: "b", str: "O"}.get(types.pop() if len(types) == 1 else object)
    most = max(map(abs, values)) if kind == "i" else 1
    if kind is None or most > _LARGEST:
        raise _Doubt
    return kind, most


def _value(node: ast.expr, known: Mapping[str, _Part]) -> _Part:
    match node:
        case ast.Constant():
            kind, most = _kind([node.value])
            return _Part(np.array(node.value, dtype=object if kind == "O" else None), kind, most)
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.operand, known))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left, known), _value(node.right, known))
        case ast.BoolOp():
            parts = [_value(part, known) for part in node.values]
            stops = isinstance(node.op, ast.Or)
            return reduce(lambda rest, part: _choose(part, *((part, rest) if stops else (rest, part))), parts[::-1])
        case ast.Compare() if all(type(op) in _OPERATORS for op in node.ops):
            parts = [_value(part, known) for part in (node.left, *node.comparators)]
            links = zip(node.ops, parts, parts[1:], strict=False)
            return _both(*(_OPERATORS[type(op)](left, right) for op, left, right in links))
        case ast.IfExp():
            return _choose(*(_value(part, known) for part in (node.test, node.body, node.orelse)))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            return _CALLS[name](*(_value(part, known) for part in node.args))
    raise _Doubt


def _numbers(parts: Sequence[_Part]) -> tuple[list[Any], list[int], str]:
    """Return arrays of numbers that may be calculated with, their bounds, and i where all are integers, else f."""
    kinds = {"i" if part.kind == "b" else part.kind for part in parts}
    sizes = [part.most for part in parts]
    if not kinds <= {"i", "f"} or (len(kinds) > 1 and max(sizes) > _EXACT_FLOAT):
        raise _Doubt
    arrays = [part.values.astype(np.int64) if part.kind == "b" else part.values for part in parts]
    return arrays, sizes, "i" if kinds == {"i"} else "f"


def _calculate(ufunc: Any, bound: Callable[..., int]) -> Callable[..., _Part]:
    def calculate(*parts: _Part) -> _Part:
        arrays, sizes, kind = _numbers(parts)
        most = bound(*sizes) if kind == "i" else 1
        if most > _LARGEST:
            raise _Doubt
        return _Part(ufunc(*arrays), kind, most)

    return calculate


def _divide(ufunc: Any, whole: bool) -> Callable[[_Part, _Part], _Part]:
    """Return a quotient or a remainder by what is not zero; ``whole``: of integers alone, which remain some."""

    def divide(a: _Part, b: _Part) -> _Part:
        arrays, sizes, kind = _numbers([a, b])
        if not arrays[1].all() or (kind == "f" if whole else max(sizes) > _EXACT_FLOAT):
            raise _Doubt
        return _Part(ufunc(*arrays), kind if whole else "f", max(sizes) if whole else 1)

    return divide


def _compare(ufunc: Any) -> Callable[[_Part, _Part], _Part]:
    def compare(a: _Part, b: _Part) -> _Part:
        if a.kind == b.kind == "O":
            return _Part(np.asarray(ufunc(a.values, b.values), dtype=bool), "b")
        return _Part(ufunc(*_numbers([a, b])[0]), "b")

    return compare


def _extreme(better: Any) -> Callable[..., _Part]:
    """Return ``max`` or ``min`` of several numbers of one type: the first of the best, as in Python."""

    def extreme(*parts: _Part) -> _Part:
        if len(parts) < 2 or {part.kind for part in parts} not in ({"i"}, {"f"}):
            raise _Doubt
        best = reduce(lambda x, y: np.where(better(y, x), y, x), [part.values for part in parts])
        return _Part(best, parts[0].kind, max(part.most for part in parts))

    return extreme


def _true(part: _Part) -> Array:
    return part.values if part.kind == "b" else part.values != ("" if part.kind == "O" else 0)


def _both(*parts: _Part) -> _Part:
    return _Part(reduce(np.logical_and, map(_true, parts)), "b")


def _choose(test: _Part, yes: _Part, no: _Part) -> _Part:
    kinds, most = {yes.kind, no.kind}, max(yes.most, no.most)
    kind = yes.kind if len(kinds) == 1 else "i" if kinds == {"b", "i"} else "m"
    if kind == "m" and (most > _EXACT_FLOAT or "O" in kinds):
        raise _Doubt
    return _Part(np.where(_true(test), yes.values, no.values), kind, most)


def _power(a: _Part, b: _Part) -> _Part:
    (base, exponent), (m, n), kind = _numbers([a, b])
    if kind == "f" or exponent.min() < 0 or n * m.bit_length() > 62:
        raise _Doubt
    return _Part(np.power(base, exponent), kind, max(m, 1) ** n)


def _folded(function: Callable[[_Part, _Part], _Part]) -> Callable[..., _Part]:
    return lambda first, *rest: reduce(function, rest, first)


_ADD, _MULTIPLY = _calculate(np.add, lambda m, n: m + n), _calculate(np.multiply, lambda m, n: m * n)
_SUBTRACT, _NEGATE = _calculate(np.subtract, lambda m, n: m + n), _calculate(np.negative, lambda m: m)
_OPERATORS: Mapping[type, Callable[..., _Part]] = {
    ast.Add: _ADD,
    ast.Sub: _SUBTRACT,
    ast.Mult: _MULTIPLY,
    ast.Div: _divide(np.true_divide, whole=False),
    ast.FloorDiv: _divide(np.floor_divide, whole=True),
    ast.Mod: _divide(np.remainder, whole=True),
    ast.Pow: _power,
    ast.USub: _NEGATE,
    ast.Not: lambda part: _Part(np.logical_not(_true(part)), "b"),
    ast.Eq: _compare(np.equal),
    ast.NotEq: _compare(np.not_equal),
    ast.Lt: _compare(np.less),
    ast.LtE: _compare(np.less_equal),
    ast.Gt: _compare(np.greater),
    ast.GtE: _compare(np.greater_equal),
}
_CALLS: Mapping[str, Callable[..., _Part]] = {
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
    "and_": _both,
    "or_": lambda *parts: _Part(reduce(np.logical_or, map(_true, parts)), "b"),
    "if_": _choose,
}
"""Functions of Python and of XCSP: what both have is the same."""
