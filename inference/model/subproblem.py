"""Subproblems: some variables of a problem, and the factors over them (DMCMC paper, Definitions 1-2).

The boundary variables of a subproblem (an agent's interface B_i) are shared with the rest of the problem; the others
are hidden (H_i). A *row* is an assignment of the boundary variables. The whole problem is a subproblem without boundary
variables.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import FactorGraph, graph_of_tables
from dmcmc.inference.model.flat_tables import FlatTables, TableRanges, flatten, flatten_scopes, table_ranges
from dmcmc.inference.runtime.memo import DerivedFacts, digest, is_short_key


class LocalFacts(dict[int, DerivedFacts]):
    """The cache of each agent's results, made when it is first used; copies for other processes are empty."""

    def __missing__(self, agent: int) -> DerivedFacts:
        return self.setdefault(agent, DerivedFacts())

    def __reduce__(self) -> tuple[type["LocalFacts"], tuple[()]]:
        return LocalFacts, ()


@dataclass(frozen=True)
class Subproblem:
    """Hidden variables, boundary variables (the interface, possibly empty), and the factors over them.

    ``known`` holds what depends only on the structure, and is shared by subproblems that differ only in table entries.

    Attributes
    ----------
    agent : int
        Index of the agent.
    interface, hidden : tuple of int
        Variable indices of the problem, ascending.
    factors : tuple of Factor
        The factors with non-empty scope over these variables; scopes are variable indices of the problem.
    domains : ndarray of int64
        Domain sizes of all variables of the problem.
    tables : FlatTables or None
        View of the factors' tables in the problem's flat tables; None if they are not adjacent there.
    facts : LocalFacts or None
        Caches of results, shared with the problems of the same structure; None for a new cache.
    """

    agent: int
    interface: tuple[int, ...]
    hidden: tuple[int, ...]
    factors: tuple[Factor, ...]
    domains: NDArray[np.int64]
    tables: FlatTables | None = field(default=None, kw_only=True, compare=False, repr=False)
    facts: LocalFacts | None = field(default=None, kw_only=True, compare=False, repr=False)

    @cached_property
    def known(self) -> DerivedFacts:
        """Results cached for all agents that differ only in the entries of their tables."""
        return DerivedFacts() if self.facts is None else self.facts[self.agent]

    @property
    def flat(self) -> FlatTables:
        """All tables in one array, in the order of the factors; a copy unless ``tables`` is set."""
        if self.tables is not None:
            return self.tables
        return flatten([f.scope for f in self.factors], [f.table for f in self.factors])

    @cached_property
    def ranges(self) -> TableRanges:
        """The smallest and largest entries of the factors' tables."""
        return table_ranges(self.flat)

    def set_ranges(self, ranges: TableRanges) -> None:
        """Set the ranges of the factors' tables where they are known already."""
        self.__dict__["ranges"] = ranges

    @property
    def scope_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The offsets and the variables of the factors' scopes, as in ``flat``, without copying any table."""
        if self.tables is not None:
            return self.tables.scope_start, self.tables.scope
        return flatten_scopes([f.scope for f in self.factors])

    @property
    def graph(self) -> FactorGraph:
        """The factor graph, with hidden variables numbered before interface variables; only hidden ones are free.

        The part that depends on the structure alone is cached for small agents.
        """
        flat = self.flat
        if not is_short_key(flat.scope.size):
            return self._graph(flat)
        key = "graph", flat.data.dtype
        return self.known.get_or_compute(key, lambda: self._graph(flat)._replace(data=flat.data[:0].copy()))._replace(
            data=flat.data
        )

    def _graph(self, flat: FlatTables) -> FactorGraph:
        """Return the factor graph of the agent's tables."""
        variables = [*self.hidden, *self.interface]
        number = np.zeros(len(self.domains), dtype=np.int64)
        number[variables] = np.arange(len(variables))
        return graph_of_tables(flat._replace(scope=number[flat.scope]), self.domains[variables], len(self.hidden))

    @property
    def structure_key(self) -> bytes:
        """Digest of the factor graph and the domain sizes: agents with equal digests have equal elimination plans."""
        return self.known.get_or_compute("shape", self._shape)

    def _shape(self) -> bytes:
        """Compute the digest of the agent's factor graph and domain sizes."""
        variables = np.array([*self.hidden, *self.interface], dtype=np.int64)
        positions = {v: i for i, v in enumerate(variables.tolist())}
        lengths = np.array([len(self.hidden), *(len(f.scope) for f in self.factors)], dtype=np.int64)
        scope_positions = np.array([positions[v] for f in self.factors for v in f.scope], dtype=np.int64)
        return digest(self.domains[variables], lengths, scope_positions)

    @cached_property
    def interface_shape(self) -> tuple[int, ...]:
        """Domain sizes of the interface variables."""
        return self.known.get_or_compute("interface", lambda: tuple([int(self.domains[v]) for v in self.interface]))

    @property
    def is_enumerable(self) -> bool:
        """Whether the rows are few enough to be enumerated."""
        return self.rows <= tuning.MAX_ENUMERATED_ENTRIES

    @property
    def rows(self) -> int:
        """Number of rows: assignments of the interface."""
        return self.known.get_or_compute("rows", lambda: prod(self.interface_shape))

    @property
    def entries(self) -> int:
        """Number of entries of the factors' tables."""
        return self.known.get_or_compute("entries", lambda: sum([f.table.size for f in self.factors]))
