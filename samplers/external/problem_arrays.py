"""Read the parts of a problem from the arrays of ``CostProblem.save``, in the process of an engine.

This module imports nothing of dmcmc, so that the process starts fast.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
"""The arrays by name."""


class TableCosts(NamedTuple):
    """A cost function given by all its costs.

    Attributes
    ----------
    scope : list of int
        Variable indices.
    cost : ndarray of int64, flat
        The costs, in C order.
    """

    scope: list[int]
    cost: NDArray[np.int64]


class ListedCosts(NamedTuple):
    """A cost function given by tuples and a default.

    Attributes
    ----------
    scope : list of int
        Variable indices.
    tuples : ndarray of int64, shape (tuples, arity)
        The listed tuples.
    cost : ndarray of int64, shape (tuples + 1,)
        Their costs, and the default at the end.
    """

    scope: list[int]
    tuples: NDArray[np.int64]
    cost: NDArray[np.int64]


class AutomatonLayer(NamedTuple):
    """The transitions of an automaton for one variable.

    Attributes
    ----------
    following : ndarray of int, shape (states, values)
        The next state.
    cost : ndarray of int64, shape (states, values)
        The cost.
    """

    following: NDArray[Any]
    cost: NDArray[np.int64]


def tables(arrays: Arrays) -> list[TableCosts]:
    """Return the cost functions that are given by all their costs."""
    scopes, costs = split(arrays["scope"], arrays["arity"]), split(arrays["cost"], arrays["size"])
    return [TableCosts(scope.tolist(), cost) for scope, cost in zip(scopes, costs, strict=True)]


def listed(arrays: Arrays) -> list[ListedCosts]:
    """Return the cost functions that are given by tuples and a default."""
    arity, count = arrays["listed_arity"], arrays["listed_tuples"]
    parts = zip(
        split(arrays["listed_scope"], arity),
        split(arrays["listed_value"], count * arity),
        split(arrays["listed_cost"], count + 1),
        strict=True,
    )
    return [ListedCosts(scope.tolist(), values.reshape(-1, scope.size), cost) for scope, values, cost in parts]


def linear(arrays: Arrays) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield the terms (variable, value, weight) of each linear constraint, and the least sum of their weights."""
    yield from zip(split(arrays["term"], arrays["terms"]), arrays["minimum"].tolist(), strict=True)


def automata(arrays: Arrays) -> Iterator[tuple[list[int], list[AutomatonLayer]]]:
    """Yield the scope of each automaton, and its layers, one for each variable."""
    scope, domains = arrays["automaton_scope"], arrays["domains"]
    sizes = arrays["automaton_states"] * domains[scope]
    following, cost = split(arrays["automaton_following"], sizes), split(arrays["automaton_cost"], sizes)
    end = 0
    for arity in arrays["automaton_arity"].tolist():
        begin, end = end, end + arity
        variables = scope[begin:end].tolist()
        yield (
            variables,
            [
                AutomatonLayer(f.reshape(-1, domains[v]), c.reshape(-1, domains[v]))
                for v, f, c in zip(variables, following[begin:end], cost[begin:end], strict=True)
            ],
        )


def constraints(arrays: Arrays) -> list[dict[str, Any]]:
    """Return the descriptions of global constraints (``dmcmc.samplers.external.native_constraints``)."""
    found: list[dict[str, Any]] = json.loads(arrays["constraints"].tobytes())
    return found


def split(array: NDArray[Any], sizes: NDArray[Any]) -> list[NDArray[Any]]:
    """Return consecutive parts of an array with the given sizes."""
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes.size else []
