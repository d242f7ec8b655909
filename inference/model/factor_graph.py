"""The factors of a problem or subproblem in compressed arrays, which compiled kernels read.

A factor graph links variables and factors. Each factor has a scope and a table or an automaton; each variable has a
list of its factors (compressed sparse rows, CSR). All structures that need the factors of a variable are made from it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, automaton_of
from dmcmc.inference.model.densify import tabular_factors
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import FlatTables, flatten, flatten_scopes
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.compile import writable
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_KEY_SIZE

T = TypeVar("T")

_LOW_BITS = 32  # bits of an int64 that the float64 ``low`` part holds


class FactorGraph(NamedTuple):
    """Factors with a scope: dense tables first, then automata (``dmcmc.inference.model.automaton``).

    A *position* is an index into ``scope``: it stands for one variable of one factor.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    free : int
        Number of free variables. The variables from this one on are boundary variables, whose values are given.
    dense : int
        Number of dense factors; factors ``dense`` and above are automata.
    scope_start : (factors + 1,) int64
        The variables of factor f are ``scope[scope_start[f]:scope_start[f + 1]]``.
    scope : (positions,) int64
        Variables of all factors, one scope after the other.
    stride : (positions,) int64
        Stride of the variable in its dense table (C order, in entries). For an automaton: offset of the variable's
        layer in ``following``; add ``first_step`` for the offset in ``data``.
    table_start : (dense + 1,) int64
        Offset of each dense table in ``data``, and the end of the last one.
    data : (entries,) int32, int64 or float64
        Dense tables, then the utilities of the automata's transitions.
    low : (entries or 0,) float64
        Low part of each utility whose high part is in ``data``, see :func:`split_integers`; empty otherwise.
    following : (transitions,) int32
        Next state of each transition of each layer, stored as (state, value).
    first_step : int
        Offset of the first transition's utility in ``data``.
    forbidden_entry : int32, int64 or float64
        The number that stands for −∞ in ``data``, see ``dmcmc.inference.model.tables``.
    start : (n + 1,) int64
        The factors of variable v are ``factor[start[v]:start[v + 1]]``, ascending.
    factor : (positions,) int64
        Factors of all variables, one variable after the other.
    position : (positions,) int64
        For each entry of ``factor``, the position of the variable in ``scope``.
    """

    domains: NDArray[np.int64]
    free: int
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
    def factors(self) -> int:
        """The number of factors."""
        return self.scope_start.size - 1

    @property
    def widest(self) -> int:
        """The largest domain size."""
        return int(self.domains.max(initial=1))

    @property
    def flat(self) -> FlatTables:
        """The scopes and tables of a graph without automata."""
        return FlatTables(self.scope_start, self.scope, self.table_start, self.data)

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes as tuples."""
        return self.flat.scopes()

    def scope_of(self, f: int) -> NDArray[np.int64]:
        """Return the scope of a factor."""
        return self.scope[self.scope_start[f] : self.scope_start[f + 1]]

    def factors_of(self, v: int) -> NDArray[np.int64]:
        """Return the factors of a variable."""
        return self.factor[self.start[v] : self.start[v + 1]]

    @property
    def columns(self) -> int:
        """The number of table entries if each dense table is copied once per variable in its scope."""
        return int((np.diff(self.table_start) * np.diff(self.scope_start[: self.dense + 1])).sum())

    @property
    def vector_start(self) -> NDArray[np.int64]:
        """The offsets of one vector per position, (positions,), each with an entry per value of the variable."""
        sizes = self.domains[self.scope]
        return np.cumsum(sizes) - sizes


def build_graph(problem: Problem, stop: Deadline = NO_DEADLINE) -> FactorGraph:
    """Return the factor graph of a problem without its constants; sparse factors and automata are kept as automata.

    Global constraints are decomposed, or relaxed if their decomposition is large. All variables are free. Utilities of
    type int64 are split, see :func:`split_integers`. Small problems of the same shape share the arrays that do not
    depend on the entries. Between constraints, ``OutOfTime`` is raised if the deadline has passed.
    """
    if not problem.facts.get_or_compute("plain", partial(_uses_flat_tables, problem)):
        return _graph_of_factors(problem, stop)
    data = problem.flat.data
    return of_shape(problem, "graph", lambda: _graph_of_factors(problem, stop)._replace(data=data[:0].copy()))._replace(
        data=data
    )


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
    if not problem.facts.get_or_compute("plain", partial(_uses_flat_tables, problem)):
        return make()
    return problem.shape_facts.get_or_compute((name, problem.flat.data.dtype), make)


def _uses_flat_tables(problem: Problem) -> bool:
    """Return whether a problem is small and its graph can use the problem's flat tables directly."""
    if not (problem.domains.size + len(problem.factors) <= MAX_KEY_SIZE and problem.dense):
        return False
    scopes = [factor.scope for factor in problem.factors]
    return all(scopes) and sum(map(len, scopes)) <= MAX_KEY_SIZE and problem.flat.data.dtype != np.int64


def _graph_of_factors(problem: Problem, stop: Deadline) -> FactorGraph:
    """Build the factor graph of a problem without a cache."""
    factors = [factor for factor in tabular_factors(problem, True, stop) if factor.scope]
    dense = [factor for factor in factors if type(factor) is Factor]
    automata = [_automaton(factor) for factor in factors if type(factor) is not Factor]
    all_dense = len(dense) == len(problem.factors)
    flat = problem.flat if all_dense else flatten([f.scope for f in dense], [f.table for f in dense])
    return split_integers(_graph(flat, problem.domains, problem.n_variables, automata))


def graph_of_tables(flat: FlatTables, domains: NDArray[np.int64], free: int) -> FactorGraph:
    """Return the factor graph of dense tables.

    Parameters
    ----------
    flat : FlatTables
        The tables; their scopes are indices of ``domains``.
    domains : (n,) int64
        Domain sizes.
    free : int
        Number of free variables; they come before the boundary variables.
    """
    return _graph(flat, domains, free, ())


def factors_of_variables(
    scope_start: NDArray[np.int64], scope: NDArray[np.int64], variables: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ``start``, ``factor`` and ``position`` of :class:`FactorGraph` for scopes of any kind.

    Parameters
    ----------
    scope_start, scope : (factors + 1,) and (positions,) int64
        The scopes, one after the other.
    variables : int
        Number of variables.
    """
    start = np.zeros(variables + 1, dtype=np.int64)
    np.cumsum(np.bincount(scope, minlength=variables), out=start[1:])
    position = np.argsort(scope, kind="stable")
    factor = np.repeat(np.arange(scope_start.size - 1), scope_start[1:] - scope_start[:-1])[position]
    return start, factor, position


def split_integers(graph: FactorGraph) -> FactorGraph:
    """Return a graph whose int64 utilities are sums of two float64 parts, so that kernels add them exactly.

    ``data`` then has the high parts and ``low`` the low parts, or ``low`` is empty if ``data`` is exact. Graphs of
    another dtype are returned unchanged.
    """
    if graph.data.dtype != np.int64:
        return graph
    is_forbidden = graph.data == graph.forbidden_entry
    high = (graph.data >> _LOW_BITS) << _LOW_BITS
    low = (graph.data - high).astype(np.float64)
    wide = bool((np.abs(high) >= 2**52).any())
    data = high.astype(np.float64) + (0.0 if wide else low)
    data[is_forbidden] = -np.inf
    low_parts = np.where(is_forbidden, 0.0, low) if wide else np.zeros(0)
    return graph._replace(data=data, low=low_parts, forbidden_entry=np.float64(-np.inf))


def _graph(flat: FlatTables, domains: NDArray[np.int64], free: int, automata: Sequence[AutomatonFactor]) -> FactorGraph:
    """Return the factor graph of dense tables followed by automata."""
    domains, scope_start, scope, stride = writable(domains), flat.scope_start, flat.scope, flat.strides(domains)
    data, following = flat.data, np.zeros(0, dtype=np.int32)
    if automata:
        more_start, more_scope = flatten_scopes([factor.scope for factor in automata])
        scope_start = np.concatenate([scope_start, scope_start[-1] + more_start[1:]])
        scope = np.concatenate([scope, more_scope])
        layers = [layer for factor in automata for layer in factor.layers]
        data = flatten([()] * (len(layers) + 1), [data, *(layer.utility.reshape(-1) for layer in layers)]).data
        following = np.concatenate([layer.following.reshape(-1) for layer in layers])
        sizes = np.array([layer.following.size for layer in layers], dtype=np.int64)
        stride = np.concatenate([stride, np.cumsum(sizes) - sizes])
    start, factor, position = factors_of_variables(scope_start, scope, domains.size)
    return FactorGraph(
        domains=domains,
        free=free,
        dense=flat.tables,
        scope_start=writable(scope_start),
        scope=writable(scope),
        stride=stride,
        table_start=writable(flat.at),
        data=data,
        low=np.zeros(0),
        following=following,
        first_step=flat.data.size,
        forbidden_entry=data.dtype.type(forbidden_value(data.dtype)),
        start=start,
        factor=factor,
        position=position,
    )


def _automaton(factor: Factor) -> AutomatonFactor:
    """Convert a factor that is not dense into an automaton."""
    if isinstance(factor, AutomatonFactor):
        return factor
    assert isinstance(factor, SparseFactor)
    return automaton_of(factor)
