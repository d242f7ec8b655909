"""A problem as arrays and native constraints, for solvers in other processes.

Read the parts of a problem from the arrays of ``CostProblem.save``, in the process of an engine.

This module imports nothing of dmcmc, so that the process starts fast.

Facts that follow from several descriptions of loads together, for engines that state them as implied constraints.

Describe global constraints by plain numbers, as an engine in another process takes them.

Constraints that the engine knows have a description by their parameters. All others that are functions of loads of
cells (``dmcmc.inference.constraints.global_constraint``) are described as such.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import CellLoads, GlobalConstraint
from dmcmc.inference.constraints.no_overlap import NoOverlapConstraint
from dmcmc.inference.model.factor import Factor

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
    """Return the descriptions of global constraints (``dmcmc.samplers.external.problem_arrays``)."""
    found: list[dict[str, Any]] = json.loads(arrays["constraints"].tobytes())
    return found


def split(array: NDArray[Any], sizes: NDArray[Any]) -> list[NDArray[Any]]:
    """Return consecutive parts of an array with the given sizes."""
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes.size else []


def codes_by_scope(constraints: Iterable[dict[str, Any]]) -> dict[frozenset[int], dict[int, list[int]]]:
    """Return, for the scope of each hard all-different constraint, the codes of the values by variable."""
    return {
        frozenset(given["scope"]): dict(zip(given["scope"], given["codes"], strict=True))
        for given in constraints
        if "codes" in given and given["kind"] == "loads" and given["cost"] is None
    }


def never_shared(codes: Mapping[frozenset[int], dict[int, list[int]]], given: dict[str, Any]) -> bool:
    """Return whether an all-different constraint keeps items out of each other's cells, and all are somewhere.

    Parameters
    ----------
    codes : mapping
        The result of :func:`codes_by_scope`.
    given : dict
        The description of loads.
    """
    own = codes.get(frozenset(given["scope"]))
    if own is None:
        return False
    pairs = set[tuple[int, int]]()
    for item in given["items"]:
        if len(item["positions"]) != 1 or min(item["first"]) < 0:
            return False
        if any(end - first != 1 for first, end in zip(item["first"], item["end"], strict=True)):
            return False
        pairs.update(zip(item["first"], own[given["scope"][item["positions"][0]]], strict=True))
    return len({cell for cell, _ in pairs}) == len(pairs)


def implied_limits(
    groups: Iterable[frozenset[int]], limits: Iterable[tuple[frozenset[int], int]]
) -> list[tuple[list[frozenset[int]], int]]:
    """Return lists of groups of literals with the largest number of them that have a true literal.

    If at most k literals of a set are true, and each is in at most c groups, at most c · k groups have a true one.
    For meetings at k tables, which have two participants each, at most 2 k participants are busy (Bofill et al.).

    Parameters
    ----------
    groups : iterable of frozenset of int
        Groups of literals.
    limits : iterable of (frozenset of int, int)
        Sets of literals, with the largest number of them that may be true.
    """
    known, found = list(groups), []
    for literals, limit in limits:
        inside = [group for group in known if group <= literals]
        counts = Counter(literal for group in inside for literal in group)
        most = max(counts.values(), default=0) * limit
        if most < len(inside):
            found.append((inside, most))
    return found


# Kinds that are described by their parameters, if hard, and if soft.
_HARD_KINDS = ("no_overlap", "cumulative", "adjacency", "place_changes", "precedence", "element")
_SOFT_KINDS = ("adjacency", "place_changes", "precedence", "element")


class ConstraintCosts(NamedTuple):
    """A global constraint with its cost per unit of violation.

    Attributes
    ----------
    constraint : GlobalConstraint
        The constraint.
    cost : int or None
        The cost; None for a hard constraint.
    by_loads : bool
        Whether it is described by the loads of cells even if it could be by its parameters.
    """

    constraint: GlobalConstraint
    cost: int | None
    by_loads: bool = False

    def described(self) -> dict[str, Any]:
        """Return the constraint as numbers and lists: ``kind``, ``scope``, ``cost`` and the parameters."""
        constraint = self.constraint
        kinds = _HARD_KINDS if self.cost is None else _SOFT_KINDS
        common = {"scope": list(constraint.scope), "cost": self.cost}
        by_parameters = isinstance(constraint, NoOverlapConstraint) and _has_few_pairs(constraint)
        if not self.by_loads and (constraint.kind in kinds or by_parameters):
            return {"kind": constraint.kind, **common, **_plain(constraint.parameters())}
        loads = constraint.cell_loads()
        assert loads is not None
        codes = _plain({name: c for name, c in constraint.parameters().items() if name == "codes"})
        return {"kind": "loads", **common, **codes, **_plain(_used_loads(loads))}


def _has_few_pairs(constraint: NoOverlapConstraint) -> bool:
    """Return whether a soft no-overlap constraint in one place has fewer pairs of intervals than cells of time."""
    n = constraint.intervals
    return constraint.places is None and n * (n - 1) // 2 <= constraint.loads.cells


def is_native(factor: Factor) -> bool:
    """Return whether a factor is a global constraint that can be described."""
    if not isinstance(factor, GlobalConstraint):
        return False
    kinds = _HARD_KINDS if factor.cost is None else _SOFT_KINDS
    return factor.kind in kinds or factor.cell_loads() is not None


def _used_loads(loads: CellLoads) -> dict[str, Any]:
    """Return the parameters of loads, with the penalties up to the largest load that occurs."""
    largest = sum(item.weight for item in loads.items)
    return {
        "items": [item._asdict() for item in loads.items],
        "width": loads.width,
        "penalty": loads.penalty if loads.counts_runs else loads.penalty[: largest + 1],
        "counts_runs": loads.counts_runs,
    }


def _plain(value: Any) -> Any:
    """Return nested parameters with lists in place of arrays and tuples."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
