"""The factor graph of a problem as flat arrays, read by the kernels that score moves exactly."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, automaton_of
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.compile import writable
from dmcmc.inference.runtime.memo import MAX_KEY_SIZE
from dmcmc.inference.runtime.types import Array

T = TypeVar("T")

_LOW_BITS = 32  # bits of an int64 that the float64 ``low`` part holds


class FactorGraph(NamedTuple):
    """Factors with a scope: dense tables first, then automata (``dmcmc.inference.model.automaton``).

    A utility is the sum of two float64 numbers, so that sums of int64 are exact and sums of floats nearly exact.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    dense : int
        Number of dense factors; factors ``dense`` and above are automata.
    scope_start : (factors + 1,) int64
        The variables of factor f are ``scope[scope_start[f]:scope_start[f + 1]]``.
    scope : (scope entries,) int64
        Variables of all factors, one scope after the other.
    stride : (scope entries,) int64
        Stride of the variable in its dense table (C order, in entries). For an automaton: offset of the variable's
        layer in ``following``; add ``first_step`` for the offset in ``data``.
    table_start : (dense,) int64
        Offset of each dense table in ``data``.
    data : (entries,) int32 or float64
        Dense tables, then the utilities of the automata's transitions.
    low : (entries or 0,) float64
        Low part of each int64 utility that float64 cannot hold; empty if ``data`` is exact.
    following : (transitions,) int32
        Next state of each transition of each layer, stored as (state, value).
    first_step : int
        Offset of the first transition's utility in ``data``.
    forbidden_entry : int32 or float64
        The number that stands for −∞ in ``data``, see ``dmcmc.inference.model.tables``.
    start : (n + 1,) int64
        The factors of variable v are ``factor[start[v]:start[v + 1]]``.
    factor : (scope entries,) int64
        Factors of all variables, one variable after the other.
    position : (scope entries,) int64
        For each entry of ``factor``, the index of the variable in ``scope``.
    """

    domains: NDArray[np.int64]
    dense: int
    scope_start: NDArray[np.int64]
    scope: NDArray[np.int64]
    stride: NDArray[np.int64]
    table_start: NDArray[np.int64]
    data: Array
    low: NDArray[np.float64]
    following: NDArray[np.int32]
    first_step: int
    forbidden_entry: Any
    start: NDArray[np.int64]
    factor: NDArray[np.int64]
    position: NDArray[np.int64]

    @property
    def widest(self) -> int:
        """The largest domain size."""
        return int(self.domains.max(initial=1))

    @property
    def columns(self) -> int:
        """The number of table entries if each dense table is copied once per variable in its scope."""
        sizes = np.diff(np.append(self.table_start, self.first_step))
        return int((sizes * np.diff(self.scope_start[: self.dense + 1])).sum())


def build_graph(problem: Problem) -> FactorGraph:
    """Return the factor graph of a problem, with sparse factors and automata kept as automata."""
    if not problem.facts.get_or_compute("plain", lambda: _uses_flat_tables(problem)):
        return _build_graph(problem)
    data = problem.flat.data
    return of_shape(problem, "graph", lambda: _build_graph(problem)._replace(data=data[:0].copy()))._replace(data=data)


def of_shape(problem: Problem, name: str, make: Callable[[], T]) -> T:
    """Return data that depends on the structure of a problem but not on its entries.

    The result is cached for small problems: problems of the same shape share it.

    Parameters
    ----------
    problem : Problem
    name : str
        Key of the cache entry.
    make : callable
        Computes the data.
    """
    if not problem.facts.get_or_compute("plain", lambda: _uses_flat_tables(problem)):
        return make()
    return problem.shape_facts.get_or_compute((name, problem.flat.data.dtype), make)


def _uses_flat_tables(problem: Problem) -> bool:
    """Return whether a problem is small and its graph can use the problem's flat tables directly."""
    if problem.n_variables + len(problem.factors) > MAX_KEY_SIZE or not problem.dense:
        return False
    scopes = [factor.scope for factor in problem.factors]
    return all(scopes) and sum(map(len, scopes)) <= MAX_KEY_SIZE and problem.flat.data.dtype != np.int64


def _build_graph(problem: Problem) -> FactorGraph:
    """Build the factor graph of a problem without a cache."""
    factors = [factor for factor in problem.factors if factor.scope]
    dense = [factor for factor in factors if type(factor) is Factor]
    automata = [_automaton(factor) for factor in factors if type(factor) is not Factor]
    all_dense = len(dense) == len(problem.factors)
    flat = problem.flat if all_dense else flatten([f.scope for f in dense], [f.table for f in dense])
    scopes = [f.scope for f in automata]
    scope = np.concatenate([flat.scope, np.array([v for s in scopes for v in s], dtype=np.int64)])
    scope_start = np.concatenate([flat.scope_start, flat.scope_start[-1] + np.cumsum([0, *map(len, scopes)])[1:]])
    data, low, following, layer_start = _entries(flat, automata)
    domains = writable(problem.domains)
    start, factor, position = _factors_by_variable(scope_start, scope, domains.size)
    stride = np.concatenate([_dense_strides(flat.scope_start, domains[flat.scope]), np.array(layer_start, np.int64)])
    return FactorGraph(
        domains=domains,
        dense=len(dense),
        scope_start=scope_start,
        scope=scope,
        stride=stride,
        table_start=flat.at[:-1],
        data=data,
        low=low,
        following=following,
        first_step=flat.data.size,
        forbidden_entry=data.dtype.type(forbidden_value(data.dtype)),
        start=start,
        factor=factor,
        position=position,
    )


def _factors_by_variable(
    scope_start: NDArray[np.int64], scope: NDArray[np.int64], variables: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ``start``, ``factor`` and ``position`` of :class:`FactorGraph`: the factors of each variable."""
    start = np.concatenate([[0], np.cumsum(np.bincount(scope, minlength=variables))])
    position = np.argsort(scope, kind="stable")
    factor = np.repeat(np.arange(scope_start.size - 1), np.diff(scope_start))[position]
    return start, factor, position


def _dense_strides(scope_start: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stride of each variable in the tables of dense factors, (scope entries,).

    Parameters
    ----------
    scope_start : (factors + 1,) int64
        Where the scope of each factor begins.
    sizes : (scope entries,) int64
        The domain size of each variable of each scope.
    """
    strides, arities = np.ones_like(sizes), np.diff(scope_start)
    for distance in range(1, int(arities.max(initial=0))):  # from the last variable of the scope
        here = scope_start[1:][arities > distance] - 1 - distance
        strides[here] = strides[here + 1] * sizes[here + 1]
    return strides


def _automaton(factor: Factor) -> AutomatonFactor:
    """Convert a factor that is not dense into an automaton."""
    if isinstance(factor, AutomatonFactor):
        return factor
    assert isinstance(factor, SparseFactor)
    return automaton_of(factor)


def _entries(
    flat: FlatTables, automata: Sequence[AutomatonFactor]
) -> tuple[Array, NDArray[np.float64], NDArray[np.int32], list[int]]:
    """Return all entries, their low parts, the next states of the transitions, and the offset of each layer."""
    layers = [layer for automaton in automata for layer in automaton.layers]
    data = flat.data
    if layers:
        data = flatten([()] * (len(layers) + 1), [flat.data, *(layer.utility.reshape(-1) for layer in layers)]).data
    following = np.concatenate([np.zeros(0, dtype=np.int32), *(layer.following.reshape(-1) for layer in layers)])
    layer_start = np.cumsum([0, *(layer.following.size for layer in layers)])[:-1].tolist()
    low_parts = np.zeros(0)
    if data.dtype == np.int64:
        is_forbidden = data == forbidden_value(data.dtype)
        high = (data >> _LOW_BITS) << _LOW_BITS
        low = (data - high).astype(np.float64)
        data = high.astype(np.float64) + (0.0 if (wide := bool((np.abs(high) >= 2**52).any())) else low)
        data[is_forbidden] = -np.inf
        low_parts = np.where(is_forbidden, 0.0, low) if wide else low_parts
    return data, low_parts, following, layer_start
