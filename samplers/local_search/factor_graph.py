"""A problem's own factors as flat arrays: what decides exactly whether a move makes an assignment better."""

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
from dmcmc.inference.runtime.memo import LARGEST
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.local_search.graph_kernels import link_variables

T = TypeVar("T")

_HALF = 32  # bits of an int64 that go into the second number


class Graph(NamedTuple):
    """Factors with a scope, dense tables first, automata (:mod:`dmcmc.inference.model.automaton`) after them.

    A utility is kept as the sum of two float64, so that sums of int64 are exact and those of floats nearly so.

    Attributes
    ----------
    domains : (n,) int64
    dense : int
        Number of dense factors.
    scope_start : (factors + 1,) int64
    scope : (scope variables,) int64
    stride : (scope variables,) int64
        Of a variable in its dense table; in an automaton, where its layer lies.
    at : (factors,) int64
        Where a dense table begins in ``data``.
    data : (entries,) int32 or float64
        Tables, then what the layers of automata pay; −∞ as :mod:`dmcmc.inference.model.tables` has it.
    rest : (entries or 0,) float64
        What ``data`` has lost of an int64; empty where that is nothing.
    following : (steps,) int32
        The states after the steps of all layers.
    first_step : int
        Where the layers begin in ``data``.
    never : int32 or float64
        −∞ in ``data``.
    start : (n + 1,) int64
    factor, slot : (scope variables,) int64
        The factors of variable v are ``factor[start[v]:start[v + 1]]``; ``slot`` says where it stands in ``scope``.
    """

    domains: NDArray[np.int64]
    dense: int
    scope_start: NDArray[np.int64]
    scope: NDArray[np.int64]
    stride: NDArray[np.int64]
    at: NDArray[np.int64]
    data: Array
    rest: NDArray[np.float64]
    following: NDArray[np.int32]
    first_step: int
    never: Any
    start: NDArray[np.int64]
    factor: NDArray[np.int64]
    slot: NDArray[np.int64]

    @property
    def widest(self) -> int:
        """The largest domain."""
        return int(self.domains.max(initial=1))

    @property
    def columns(self) -> int:
        """How many entries the tables have when there is a copy of each for each of its variables."""
        sizes = np.diff(np.append(self.at, self.first_step))
        return int((sizes * np.diff(self.scope_start[: self.dense + 1])).sum())


def build_graph(problem: Problem) -> Graph:
    """Lay out a problem as it was asked, not as dense tables."""
    if not problem.known.once("plain", lambda: _plain(problem)):
        return _laid_out(problem)
    data = problem.flat.data
    return of_shape(problem, "graph", lambda: _laid_out(problem)._replace(data=data[:0].copy()))._replace(data=data)


def of_shape(problem: Problem, what: str, make: Callable[[], T]) -> T:
    """Return what depends on a problem's graph but not on its entries: worked out once for small ones of one shape."""
    if not problem.known.once("plain", lambda: _plain(problem)):
        return make()
    return problem.kin.once((what, problem.flat.data.dtype), make)


def _plain(problem: Problem) -> bool:
    """Return whether a graph has a small problem's flat tables as they are."""
    if problem.n_variables + len(problem.factors) > LARGEST or not problem.dense:
        return False
    scopes = [factor.scope for factor in problem.factors]
    return all(scopes) and sum(map(len, scopes)) <= LARGEST and problem.flat.data.dtype != np.int64


def _laid_out(problem: Problem) -> Graph:
    """Lay out a problem anew."""
    factors = [factor for factor in problem.factors if factor.scope]
    dense = [factor for factor in factors if type(factor) is Factor]
    automata = [_automaton(factor) for factor in factors if type(factor) is not Factor]
    whole = len(dense) == len(problem.factors)
    flat = problem.flat if whole else flatten([f.scope for f in dense], [f.table for f in dense])
    scopes = [f.scope for f in automata]
    scope = np.concatenate([flat.scope, np.array([v for s in scopes for v in s], dtype=np.int64)])
    scope_start = np.concatenate([flat.scope_start, flat.scope_start[-1] + np.cumsum([0, *map(len, scopes)])[1:]])
    data, rest, following, layers = _entries(flat, automata)
    domains = writable(problem.domains)
    start, factor, slot, stride = link_variables(scope_start, scope, domains, len(dense))
    stride[flat.scope.size :] = layers
    return Graph(
        domains=domains,
        dense=len(dense),
        scope_start=scope_start,
        scope=scope,
        stride=stride,
        at=flat.at[:-1],
        data=data,
        rest=rest,
        following=following,
        first_step=flat.data.size,
        never=data.dtype.type(forbidden_value(data.dtype)),
        start=start,
        factor=factor,
        slot=slot,
    )


def _automaton(factor: Factor) -> AutomatonFactor:
    """Return a factor that is not dense as an automaton."""
    if isinstance(factor, AutomatonFactor):
        return factor
    assert isinstance(factor, SparseFactor)
    return automaton_of(factor)


def _entries(
    flat: FlatTables, automata: Sequence[AutomatonFactor]
) -> tuple[Array, NDArray[np.float64], NDArray[np.int32], list[int]]:
    """Return all entries, what they lose of an int64, the states after steps, and where each layer begins."""
    layers = [layer for automaton in automata for layer in automaton.layers]
    data = flat.data
    if layers:
        data = flatten([()] * (len(layers) + 1), [flat.data, *(layer.utility.reshape(-1) for layer in layers)]).data
    following = np.concatenate([np.zeros(0, dtype=np.int32), *(layer.following.reshape(-1) for layer in layers)])
    begins = np.cumsum([0, *(layer.following.size for layer in layers)])[:-1].tolist()
    rest = np.zeros(0)
    if data.dtype == np.int64:
        hard = data == forbidden_value(data.dtype)
        high = (data >> _HALF) << _HALF
        low = (data - high).astype(np.float64)
        data = high.astype(np.float64) + (0.0 if (wide := bool((np.abs(high) >= 2**52).any())) else low)
        data[hard] = -np.inf
        rest = np.where(hard, 0.0, low) if wide else rest
    return data, rest, following, begins
