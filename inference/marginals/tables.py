"""Where a junction tree's tables are: dense in one array, or listed where most entries are impossible."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.junction_tree_passes import passes_on, row_passes_on
from dmcmc.inference.junction_tree.cliques import CliqueTree, clique_tree
from dmcmc.inference.junction_tree.passes import Passes, Passing
from dmcmc.inference.junction_tree.sparse_passes import RowPasses
from dmcmc.inference.junction_tree.table_layout import Layout, clique_cells, lay_out
from dmcmc.inference.model.arithmetic import Arithmetic, Table, narrowest
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import SEARCH_LONG, best_order
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.join import everything, rows_of
from dmcmc.inference.sparse.sparse_table import TooWide

_UNLIMITED = 1 << 33  # bytes that a factor's table may take where there is no limit

Kind = Literal["auto", "dense", "incomplete"]


class Means(NamedTuple):
    """What a junction tree may take: bytes of tables (None for no limit), time, and where."""

    memory: int | None = None
    stop: Stop = NO_STOP
    device: str = "auto"


class Tables(Protocol):
    """The tables of a junction tree.

    Attributes
    ----------
    tree : CliqueTree
    numbers : Arithmetic
    passes : Passing
        What makes them.
    observed, home : (variables,) int64
        The value of each that is observed, −1 for none, may change; the clique that its table is made from.
    """

    tree: CliqueTree
    numbers: Arithmetic
    passes: Passing
    observed: Ints
    home: Ints

    @property
    def cells(self) -> int:
        """What one pass works through."""
        ...

    def total(self, root: int) -> int | float:
        """Return what a component adds up to."""
        ...

    def shown(self, variable: int) -> Array:
        """Return the table over a variable."""
        ...

    def leave_device(self) -> None:
        """Go on on the CPU."""
        ...


def tables_of(problem: Problem, maximise: bool, means: Means, kind: Kind) -> Tables:
    """Plan a junction tree, and take what its tables need.

    Parameters
    ----------
    kind
        ``auto``: listed where dense tables do not fit the memory.

    Raises
    ------
    ResourceError
        If they do not fit.
    """
    if kind == "incomplete":
        return ListedTables(problem, maximise, means)
    try:
        return DenseTables(problem, maximise, means)
    except ResourceError as error:
        if kind == "dense":
            raise
        try:
            return ListedTables(problem, maximise, means)
        except (OutOfMemory, TooWide):
            raise error from None


class DenseTables:
    """Tables with all entries; see :class:`Tables`."""

    def __init__(self, problem: Problem, maximise: bool, means: Means) -> None:
        dense = densify(problem, _UNLIMITED if means.memory is None else means.memory).problem
        self.numbers = _numbers(dense.factors, maximise)
        tables = [self.numbers.encode(f) for f in dense.factors if f.scope]
        tables += [Table((v,), np.zeros(dense.domains[v], self.numbers.dtype)) for v in _alone(dense)]
        self.tree = _tree([t.scope for t in tables], dense.domains, means.stop)
        self._check(dense.domains, means.memory)
        self._layout: Layout = lay_out(self.tree, tables, dense.domains, self.numbers)
        ACCOUNT.claim(self._layout.entries * self.numbers.dtype.itemsize, "the tables of a junction tree")
        self._arena = np.zeros(self._layout.entries, dtype=self.numbers.dtype)
        for t, factor in enumerate(self._layout.factors):
            self._table(t)[...] = factor.values.reshape(-1)
        semiring = MAX_PLUS if maximise else LOG_SUM_EXP
        self._host = Passes(self._layout, self._arena, self.numbers, semiring, means.stop)
        self.passes = passes_on(Backend.of(means.device, 1), self._host, self.tree)
        self.observed, self.home = self._layout.program.observed, self._layout.home

    @property
    def cells(self) -> int:
        """Entries of all cliques together."""
        return sum(clique_cells(self.tree, self._layout.program.domains))

    def total(self, root: int) -> int | float:
        """Return what a component adds up to."""
        total: int | float = self._table(self._layout.up(root)).item()
        return total

    def shown(self, variable: int) -> Array:
        """Return the table over a variable."""
        return self._table(self._layout.shown(variable))

    def leave_device(self) -> None:
        """Go on on the CPU."""
        self.passes = self._host

    def _table(self, t: int) -> Array:
        at = self._layout.program.at
        return self._arena[at[t] : at[t + 1]]

    def _check(self, domains: Ints, memory: int | None) -> None:
        """Raise an error if the tables would be too large."""
        size, sizes = self.numbers.dtype.itemsize, domains.tolist()
        separators = sum(math.prod(sizes[v] for v in s) for s in self.tree.separators)
        need, cells = 2 * size * separators, clique_cells(self.tree, domains)
        if memory is not None and need > memory:
            largest = max(cells)
            raise ResourceError(
                f"the junction tree needs {need:,} bytes for its messages (its largest clique has {largest:,} entries)"
                f" and budget.memory leaves it {memory:,}; raise budget.memory, or bound the sum: --task pr --z N"
            )


class ListedTables:
    """Tables of what is possible; factors that list that are taken as they are. See :class:`Tables`."""

    def __init__(self, problem: Problem, maximise: bool, means: Means) -> None:
        problem = densify(problem, _UNLIMITED if means.memory is None else means.memory, lists=True).problem
        self.numbers, domains = _numbers(problem.factors, maximise), problem.domains
        tables = [rows_of(factor, domains, self.numbers) for factor in problem.factors if factor.scope]
        tables += [everything(v, domains, self.numbers) for v in _alone(problem)]
        self.tree = _tree([t.scope for t in tables], domains, means.stop)
        self.rows = RowPasses(self.tree, tables, domains, self.numbers, maximise, means.memory, means.stop)
        self.passes: Passing = row_passes_on(Backend.of(means.device, 1), self.rows)
        self.observed, self.home = self.rows.observed, self.rows.home

    @property
    def cells(self) -> int:
        """Rows of all cliques together."""
        return self.rows.rows

    def total(self, root: int) -> int | float:
        """Return what a component adds up to."""
        return self.rows.total(root)

    def shown(self, variable: int) -> Array:
        """Return the table over a variable."""
        return self.rows.shown(variable)

    def leave_device(self) -> None:
        """Go on on the CPU."""
        self.passes = self.rows


def _tree(scopes: Sequence[tuple[int, ...]], domains: Ints, stop: Stop) -> CliqueTree:
    order = best_order(scopes, domains, range(domains.size), budget=SEARCH_LONG, stop=stop).variables
    return clique_tree(scopes, domains, order)


def _alone(problem: Problem) -> list[int]:
    """Return the variables that are in no factor."""
    return sorted(set(range(problem.n_variables)) - {v for f in problem.factors for v in f.scope})


def _numbers(factors: Sequence[Factor], maximise: bool) -> Arithmetic:
    """Return int64 where that is exact and maxima are wanted, else float64."""
    listed = [f.arrays()[-1] for f in factors if f.scope]
    whole = all(array.dtype.kind == "i" for array in listed)
    chosen = narrowest(sum(magnitude(array) for array in listed), whole)
    if not maximise:
        return Arithmetic(np.dtype(np.float64), -np.inf, float(chosen.total))
    return Arithmetic(np.dtype(np.int64), -(1 << 61), chosen.total, True) if chosen.dtype == np.int32 else chosen
