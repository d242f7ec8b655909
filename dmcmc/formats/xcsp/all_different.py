"""The global constraint ``allDifferent`` of XCSP, as hard tables over pairs of variables."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from dmcmc.formats.xcsp.relations import ValueIndex
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.types import Array, Number

MAX_OPERANDS = 1000  # largest number of operands: they have half a million pairs
_FORBIDDEN = np.iinfo(np.int64).min  # utility of a forbidden entry in int64


def operands_of(
    text: str, scope: Sequence[int], variables: Mapping[str, int], constant: Callable[[str], Number | None]
) -> list[tuple[int] | Number]:
    """Return the operands of the constraint.

    Parameters
    ----------
    text
        Text of the element ``<parameters>``: names of variables and numbers, mostly in brackets, ``[ x y 3 ]``. Empty
        if the file has no such element, as FRODO's files: then the operands are the variables of the scope.
    scope
        Indices of the variables of the constraint, with repetitions.
    variables
        Index of each variable of the problem by its name.
    constant
        Returns the number that a word stands for, or None.

    Returns
    -------
    list
        ``(v,)`` for the variable with index v, or a number.

    Raises
    ------
    ValueError
        For a word that is neither a variable of the scope nor a number; the message says so.
    """
    words = text.strip()
    if not words:
        return [(v,) for v in scope]
    if words.startswith("[") and words.endswith("]"):
        words = words[1:-1]
    operands: list[tuple[int] | Number] = []
    for word in words.split():
        v, value = variables.get(word, -1), constant(word)
        if v in scope:
            operands.append((v,))
        elif value is not None:
            operands.append(value)
        else:
            raise ValueError(f"parameter {word[:40]!r} is neither a variable of its scope nor a number")
    return operands


def all_different(
    operands: Sequence[tuple[int] | Number],
    domain_of: Sequence[str],
    domains: Mapping[str, ValueIndex],
    name: str,
) -> list[Factor]:
    """Return factors that forbid equal values of any two operands.

    Pairs of variables with the same domains share one table. A constant removes its value from every domain. If an
    operand occurs twice, no assignment satisfies the constraint.

    Parameters
    ----------
    operands
        ``(v,)`` for the variable with index v, or a number.
    domain_of
        Name of each variable's domain.
    domains
        The index of each value by the name of a domain.
    name
        Name of the factors.
    """
    if len(set(operands)) < len(operands):
        return [Factor.of((), np.array(_FORBIDDEN), name=name)]
    variables = [operand[0] for operand in operands if isinstance(operand, tuple)]
    constants = {operand for operand in operands if not isinstance(operand, tuple)}
    factors: list[Factor] = []
    for v in variables:
        removed = [value in constants for value in domains[domain_of[v]]]
        if any(removed):
            factors.append(Factor.of((v,), np.where(removed, _FORBIDDEN, 0), name=name))
    tables: dict[tuple[str, str], Factor] = {}
    for u, v in combinations(variables, 2):
        pair = (domain_of[u], domain_of[v])
        if pair not in tables:
            tables[pair] = Factor.of((0, 1), _unequal(domains[pair[0]], domains[pair[1]]), name=name)
        factors.append(tables[pair].renamed((u, v), name))
    return factors


def _unequal(left: ValueIndex, right: ValueIndex) -> Array:
    """Return the utilities of the pairs of values: 0 if they differ, forbidden if not."""
    table: Array = np.zeros((len(left), len(right)), dtype=np.int64)
    for value, i in left.items():
        if value in right:
            table[i, right[value]] = _FORBIDDEN
    return table
