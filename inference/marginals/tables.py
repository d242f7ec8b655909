"""The tables of a junction tree: dense, sparse, and their plan.

The tables of a junction tree: dense tables in one array, or sparse tables if most entries are forbidden.

Dense tables of a junction tree, in one array.

Sparse tables of a junction tree, for problems of which most entries are forbidden.

The plan of a junction tree: its resources, its cliques, and the number type of its tables.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.choose_processor import passes_on, row_passes_on
from dmcmc.inference.junction_tree.cliques import CliqueTree, CliqueTreeLayout, clique_cells, clique_tree, lay_out
from dmcmc.inference.junction_tree.message_kernels import UP
from dmcmc.inference.junction_tree.passes import CliqueTreePasses, MessagePassing
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses
from dmcmc.inference.marginals.posterior_samples import sample_dense, sample_sparse
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, narrowest
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import format_count
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import KeyTooWide, all_values, sparse_table_of
from dmcmc.inference.tuning import LONG_BUDGET

_DEFAULT_FACTOR_BYTES = 1 << 33  # limit on a factor's expanded table if no memory limit is given


class TreeResources(NamedTuple):
    """The resources of a junction tree.

    Attributes
    ----------
    memory : int or None
        Limit on the bytes of all tables; None for no limit.
    stop : Deadline
        When to give up.
    device : {"auto", "cpu", "cuda"}
        Where messages are computed.
    """

    memory: int | None = None
    stop: Deadline = NO_DEADLINE
    device: str = "auto"

    @property
    def factor_bytes(self) -> int:
        """Limit on the bytes of a factor's expanded table."""
        return _DEFAULT_FACTOR_BYTES if self.memory is None else self.memory


def plan_tree(scopes: Sequence[tuple[int, ...]], domains: Ints, stop: Deadline) -> CliqueTree:
    """Return the clique tree of the best elimination order found within the search budget."""
    order = best_order(scopes, domains, range(domains.size), budget=LONG_BUDGET, stop=stop).variables
    return clique_tree(scopes, domains, order)


def isolated_variables(problem: Problem) -> list[int]:
    """Return the variables that are in no factor's scope."""
    return sorted(set(range(problem.n_variables)) - {v for f in problem.factors for v in f.scope})


def choose_numbers(factors: Sequence[Factor], maximise: bool) -> Arithmetic:
    """Return int64 arithmetic if maxima are computed and it is exact, otherwise float64.

    Sums are over exponentials, so they need float64. In int64, −∞ is −2^61, a quarter of the smallest number, so that
    four such numbers can be added without overflow.
    """
    utility_arrays = [f.arrays()[-1] for f in factors if f.scope]
    all_integers = all(array.dtype.kind == "i" for array in utility_arrays)
    chosen = narrowest(sum(magnitude(array) for array in utility_arrays), all_integers)
    if not maximise:
        return Arithmetic(np.dtype(np.float64), -np.inf, float(chosen.total))
    return Arithmetic(np.dtype(np.int64), -(1 << 61), chosen.total, True) if chosen.dtype == np.int32 else chosen


_MAX_CELLS = 2**62  # entries of a clique that kernels count in int64; no pass over more ends


class DenseTreeTables:
    """Tables with all entries, in one array; see ``JunctionTreeTables``."""

    def __init__(self, problem: Problem, maximise: bool, resources: TreeResources) -> None:
        dense = densify(problem, resources.factor_bytes, stop=resources.stop).problem
        self.numbers = choose_numbers(dense.factors, maximise)
        tables = [self.numbers.encode(f) for f in dense.factors if f.scope]
        tables += [
            EncodedTable((v,), np.zeros(dense.domains[v], self.numbers.dtype)) for v in isolated_variables(dense)
        ]
        self.tree = plan_tree([t.scope for t in tables], dense.domains, resources.stop)
        self._check(dense.domains, resources.memory)
        self._layout: CliqueTreeLayout = lay_out(self.tree, tables, dense.domains, self.numbers)
        MEMORY_ACCOUNT.claim(self._layout.entries * self.numbers.dtype.itemsize, "the tables of a junction tree")
        self._arena = np.zeros(self._layout.entries, dtype=self.numbers.dtype)
        for t, factor in enumerate(self._layout.factors):
            self._table(t)[...] = factor.values.reshape(-1)
        semiring = MAX_PLUS if maximise else LOG_SUM_EXP
        self._cpu_passes = CliqueTreePasses(self._layout, self._arena, self.numbers, semiring, resources.stop)
        self.passes = passes_on(Backend.of(resources.device, 1), self._cpu_passes, self.tree)
        self.observed, self.home = self._layout.program.observed, self._layout.home

    @property
    def cells(self) -> int:
        """The number of entries of all cliques together."""
        return sum(clique_cells(self.tree, self._layout.program.domains))

    def total(self, root: int) -> int | float:
        """Return the total of the connected component with this root clique."""
        total: int | float = self._table(self._layout.up_message(root)).item()
        return total

    def marginal(self, variable: int) -> Array:
        """Return the marginal table of a variable, shape (domain size,)."""
        return self._table(self._layout.marginal(variable))

    def sample(self, samples: int, rng: np.random.Generator) -> Ints:
        """Draw assignments, shape (samples, variables); the upward messages are up to date, and sums."""
        if self.passes is not self._cpu_passes:  # messages on the device are not copied to the host
            self._cpu_passes.run(UP, np.arange(len(self.tree.scopes)))
        return sample_dense(self._cpu_passes, self.tree.scopes, samples, rng)

    def leave_device(self) -> None:
        """Continue on the CPU."""
        self.passes = self._cpu_passes

    def _table(self, t: int) -> Array:
        """Return the entries of the table with this number, as a view of the arena."""
        at = self._layout.program.at
        return self._arena[at[t] : at[t + 1]]

    def _check(self, domains: Ints, memory: int | None) -> None:
        """Raise ResourceError if the messages do not fit the memory, or a clique has too many entries to count."""
        size, sizes = self.numbers.dtype.itemsize, domains.tolist()
        separators = sum(math.prod(sizes[v] for v in s) for s in self.tree.separators)
        message_bytes, largest = 2 * size * separators, max(clique_cells(self.tree, domains), default=1)
        if largest > _MAX_CELLS:
            raise ResourceError(
                f"the junction tree has a clique of {format_count(largest)} entries; bound the sum: --task pr --z N"
            )
        if memory is not None and message_bytes > memory:
            raise ResourceError(
                f"the junction tree needs {message_bytes:,} bytes for its messages (its largest clique has {largest:,}"
                f" entries), more than the {memory:,} of budget.memory; raise it, or bound the sum: --task pr --z N"
            )


class SparseTreeTables:
    """Sparse tables of the allowed entries; sparse factors are used without expansion. See ``JunctionTreeTables``."""

    def __init__(self, problem: Problem, maximise: bool, resources: TreeResources) -> None:
        problem = densify(problem, resources.factor_bytes, keep_sparse=True, stop=resources.stop).problem
        self.numbers, domains = choose_numbers(problem.factors, maximise), problem.domains
        tables = [sparse_table_of(factor, domains, self.numbers) for factor in problem.factors if factor.scope]
        tables += [all_values(v, domains, self.numbers) for v in isolated_variables(problem)]
        self.tree = plan_tree([t.scope for t in tables], domains, resources.stop)
        self.rows = SparsePasses(self.tree, tables, domains, self.numbers, maximise, resources.memory, resources.stop)
        self.passes: MessagePassing = row_passes_on(Backend.of(resources.device, 1), self.rows)
        self.observed, self.home = self.rows.observed, self.rows.home

    @property
    def cells(self) -> int:
        """The number of rows of all cliques together."""
        return self.rows.rows

    def total(self, root: int) -> int | float:
        """Return the total of the connected component with this root clique."""
        return self.rows.total(root)

    def marginal(self, variable: int) -> Array:
        """Return the marginal table of a variable, shape (domain size,)."""
        return self.rows.marginal(variable)

    def sample(self, samples: int, rng: np.random.Generator) -> Ints:
        """Draw assignments, shape (samples, variables); the upward messages are up to date, and sums."""
        if self.passes is not self.rows:  # messages on the device are not copied to the host
            self.rows.run(UP, np.arange(len(self.tree.scopes)))
        return sample_sparse(self.rows, samples, rng)

    def leave_device(self) -> None:
        """Continue on the CPU."""
        self.passes = self.rows


TableFormat = Literal["auto", "dense", "incomplete"]


class JunctionTreeTables(Protocol):
    """The tables of a junction tree, and the passes that compute them.

    Attributes
    ----------
    tree : CliqueTree
        The cliques and their parents.
    numbers : Arithmetic
        The number type of all tables.
    passes : MessagePassing
        Computes messages and tables.
    observed : ndarray of int64, shape (variables,)
        The observed value index of each variable, −1 for an unobserved one; callers may change it.
    home : ndarray of int64, shape (variables,)
        The clique from which each variable's table is computed.
    """

    tree: CliqueTree
    numbers: Arithmetic
    passes: MessagePassing
    observed: Ints
    home: Ints

    @property
    def cells(self) -> int:
        """The number of entries or rows that one pass reads."""
        ...

    def total(self, root: int) -> int | float:
        """Return the total of the connected component with this root clique."""
        ...

    def marginal(self, variable: int) -> Array:
        """Return the marginal table of a variable, shape (domain size,)."""
        ...

    def sample(self, samples: int, rng: np.random.Generator) -> Ints:
        """Draw assignments, shape (samples, variables); the upward messages are up to date, and sums."""
        ...

    def leave_device(self) -> None:
        """Continue on the CPU."""
        ...


def build_tables(
    problem: Problem, maximise: bool, resources: TreeResources, table_format: TableFormat
) -> JunctionTreeTables:
    """Plan a junction tree and allocate its tables.

    Parameters
    ----------
    problem : Problem
        Any problem.
    maximise : bool
        Whether to compute maxima instead of sums.
    resources : TreeResources
        Memory, time and device.
    table_format : {"auto", "dense", "incomplete"}
        Representation of the tables; "auto" uses sparse tables if dense ones do not fit the memory.

    Returns
    -------
    JunctionTreeTables
        The tables, without messages.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    """
    if table_format == "incomplete":
        return SparseTreeTables(problem, maximise, resources)
    try:
        return DenseTreeTables(problem, maximise, resources)
    except ResourceError as error:
        if table_format == "dense":
            raise
        try:
            return SparseTreeTables(problem, maximise, resources)
        except (OutOfMemory, KeyTooWide):
            raise error from None
