"""Convert a problem to dense tables only, the form that elimination and samplers work on.

A factor that is not dense is expanded if that is cheap. Otherwise its automaton is written as a chain of tables over
(previous state, variable, next state), with a hidden variable for each state in between. A hidden variable belongs to
an agent of the scope. If listing the allowed tuples of a factor (or the words of its automaton) takes much less memory,
one hidden variable enumerates them, and each variable of the scope has a table with this hidden variable. For each
allowed assignment of the original variables there is exactly one allowed assignment of the hidden variables, and both
have the same utility. Hidden variables come last, so an assignment starts with the values of the original variables.

The default of a sparse factor is the utility of all tuples that it does not list. A sparse factor with an allowed
default also becomes a chain if it lists few tuples. If it lists many tuples it becomes a dense table, where that is
smaller and fits. Rows with a default are not kept sparse: a join with another table needs rows for all values of the
other table's variables, each with its own sum. Within a step or two, such a bucket is as large as the dense one
(``benchmarks/elimination/default_values.py``).

Sizes are estimated with 8 bytes per table entry, 16 while a table is expanded (the table and its copy). The limits
below were chosen by measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.model.automaton import AutomatonFactor, automaton_of
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import MAX_ARRAY_AXES, SparseFactor, format_count
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, format_bytes
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import MAX_CHAIN_ENTRIES


@dataclass(frozen=True)
class DenseProblem:
    """A problem with dense tables only that is equivalent to another problem.

    Attributes
    ----------
    problem : Problem
        The equivalent problem; its first ``n_original`` variables are those of the original problem.
    n_original : int
        Number of variables of the original problem.
    """

    problem: Problem
    n_original: int

    def restrict(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values of the original problem's variables, shape (n_original,)."""
        return values[: self.n_original]


def densify(
    problem: Problem, memory: int, keep_sparse: bool = False, relax: bool = False, stop: Deadline = NO_DEADLINE
) -> DenseProblem:
    """Return an equivalent problem with dense tables only.

    Parameters
    ----------
    problem : Problem
        The original problem; it is returned unchanged if all its factors are dense.
    memory : int
        Limit on the bytes of one expanded table, and of the tables of all chains.
    keep_sparse : bool
        Whether to keep sparse factors whose default is forbidden, and to convert automata with few words to such
        factors.
    relax : bool
        Whether large global constraints, and automata with large chains, are relaxed: the utility of an assignment is
        then at least as high as in the original problem, and a bound on it is a bound of the original problem, too.
    stop : Deadline
        When to give up with ``OutOfTime``.

    Returns
    -------
    DenseProblem
        The equivalent problem, or the relaxed one.

    Raises
    ------
    OutOfMemory
        If a factor fits neither as a table nor as a chain.
    ResourceError
        If a constraint has no small decomposition and may not be relaxed.
    """
    if problem.dense:
        return DenseProblem(problem, problem.n_variables)
    builder, factors = DenseProblemBuilder(problem), tabular_factors(problem, relax, stop)
    for factor in relax_large_chains(factors, stop) if relax else factors:
        stop.check()
        sparse = as_sparse(factor, memory) if keep_sparse else None
        if type(factor) is Factor or sparse is not None:
            builder.factors.append(sparse or factor)
            continue
        if 8 * prod(factor.shape) <= memory and _is_best_expanded(factor, memory):
            builder.expand(factor)
        else:
            builder.add(factor, memory)
    return DenseProblem(builder.finished(), problem.n_variables)


def tabular_factors(problem: Problem, relax: bool, stop: Deadline = NO_DEADLINE) -> Sequence[Factor]:
    """Return the factors of a problem with the decompositions of its global constraints into tables and automata.

    Parameters
    ----------
    problem : Problem
        The problem.
    relax : bool
        Whether large constraints are relaxed: those whose decomposition is too large, and the largest ones if all
        decompositions together are too large.
    stop : Deadline
        When to give up with ``OutOfTime``; looked at between constraints if they are relaxed.

    Returns
    -------
    sequence of Factor
        The factors in order; the parts of a constraint stand in its place.

    Raises
    ------
    ResourceError
        If a constraint has no small decomposition and may not be relaxed.
    """
    if problem.tabular:
        return problem.factors
    if not relax:
        return [part for factor in problem.factors for part in factor.decomposed()]
    parts = []
    for factor in problem.factors:
        stop.check()
        parts.append(factor.relaxation)
    sizes = {i: sum(map(_decomposed_size, parts[i])) for i, f in enumerate(problem.factors) if not f.is_tabular}
    used = 0
    for i in sorted(sizes, key=lambda i: (sizes[i], i)):
        used += sizes[i]
        if used > tuning.MAX_EXAMINED_ENTRIES:
            parts[i] = ()
    return [part for found in parts for part in found]


def relax_large_chains(factors: Sequence[Factor], stop: Deadline = NO_DEADLINE) -> Sequence[Factor]:
    """Return factors without the automata with the largest chains, if all chains together are too large.

    An upper bound on the utility of such an automaton takes its place, unless it is 0. As most of the utility is not in
    tables any more, only chains that are examined in little time stay.
    """
    if sum(factor.chain_entries for factor in factors) <= MAX_CHAIN_ENTRIES:
        return factors
    used, found = 0, list(factors)
    for i in sorted(range(len(found)), key=lambda i: (factors[i].chain_entries, i)):
        used += factors[i].chain_entries
        stop.check()
        if isinstance(factor := found[i], AutomatonFactor) and used > tuning.MAX_EXAMINED_ENTRIES:
            found[i] = factor.upper_bound()
    return [factor for factor in found if factor.scope or factor.table.item() != 0]


def _decomposed_size(factor: Factor) -> int:
    """Return the number of entries of a table, or of the chain of an automaton."""
    return sum(factor.chain_sizes) if isinstance(factor, AutomatonFactor) else prod(factor.shape)


def _is_best_expanded(factor: Factor, memory: int) -> bool:
    """Return whether a factor should become a dense table, given the limit on the bytes of one table.

    An automaton whose chain has far fewer entries than its table stays a chain: a large table takes long to expand, and
    bounds on it are slow to improve, while dual ascent passes messages along a chain of small tables at once.
    """
    n_entries = prod(factor.shape)
    if len(factor.shape) > MAX_ARRAY_AXES:
        return False
    if (
        isinstance(factor, AutomatonFactor)
        and n_entries > tuning.SMALL_STEP_CELLS
        and tuning.MIN_COMPRESSION * sum(factor.chain_sizes) <= n_entries
    ):
        return False
    return n_entries <= max(tuning.MAX_ENUMERATED_ENTRIES, tuning.SHARE_PER_ITEM * memory / 8)


def as_sparse(factor: Factor, memory: int) -> SparseFactor | None:
    """Return a factor as a list of its allowed tuples; None if it has an allowed default or too many tuples.

    A tuple of k values takes 4 k bytes and its utility 8 bytes, 4 (k + 2) in total.
    """
    if isinstance(factor, SparseFactor):
        return factor if factor.default_is_forbidden else None
    if not isinstance(factor, AutomatonFactor):
        return None
    n_words, n_transitions = _count_words(factor) or 0, sum(layer.following.size for layer in factor.layers)
    max_words = tuning.WORKSPACE_SHARE * memory / (4 * (len(factor.scope) + 2))
    return factor.to_sparse() if n_words <= min(tuning.MIN_COMPRESSION * n_transitions, max_words) else None


def _count_words(factor: Factor) -> int | None:
    """Return the number of allowed tuples of a factor that can be listed; None for other factors."""
    if isinstance(factor, AutomatonFactor):
        return prod(factor.shape) - factor.forbidden_entries()
    return factor.allowed_tuples()[1].size if isinstance(factor, SparseFactor) and factor.default_is_forbidden else None


class DenseProblemBuilder:
    """Collects the dense factors and the hidden variables of an equivalent problem.

    Attributes
    ----------
    problem : Problem
        The original problem.
    factors : list of Factor
        The factors of the equivalent problem so far.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.factors: list[Factor] = []
        self.sizes: list[int] = []
        self.names: list[str] = []
        self.owners: list[int] = []
        self.chain_bytes = 0

    def expand(self, factor: Factor) -> None:
        """Add a factor as one dense table."""
        MEMORY_ACCOUNT.claim(16 * prod(factor.shape), f"factor {factor.name or list(factor.scope)}, written out")
        self.factors.append(Factor(factor.scope, factor.table, factor.name))

    def add(self, factor: Factor, memory: int) -> None:
        """Add a factor as a chain, as a dense table if that is half as large, or as a list of its allowed tuples."""
        chain = factor if isinstance(factor, AutomatonFactor) else automaton_of(_sparse(factor))
        table_sizes = chain.chain_sizes
        n_words = _count_words(factor) if sum(table_sizes) > tuning.MAX_ENUMERATED_ENTRIES else None
        if n_words:
            is_smaller = (
                tuning.MIN_COMPRESSION * n_words * sum(factor.shape) < sum(table_sizes) or 8 * max(table_sizes) > memory
            )
            if is_smaller and 8 * n_words * max(factor.shape) <= memory:
                self._add_list(factor.to_sparse() if isinstance(factor, AutomatonFactor) else _sparse(factor))
                return
        if len(factor.shape) <= MAX_ARRAY_AXES and 16 * prod(factor.shape) <= min(memory, 8 * sum(table_sizes)):
            self.expand(factor)
            return
        what = f"factor {factor.name or list(factor.scope)}"
        if 8 * max(table_sizes) > memory:
            raise OutOfMemory(
                f"{what}: fits the memory neither as a table of {format_count(prod(factor.shape))} entries nor as a"
                f" chain of tables, one of {format_count(max(table_sizes))}; raise budget.memory"
            )
        self.add_chain(chain, memory)

    def add_chain(self, chain: AutomatonFactor, memory: int) -> None:
        """Add an automaton as a chain of tables, with a hidden variable for the state between two layers.

        Raises
        ------
        OutOfMemory
            If the tables of all chains together do not fit ``memory`` bytes.
        """
        what = f"factor {chain.name or list(chain.scope)}, as a chain of tables"
        added = sum(a.utility.dtype.itemsize * size for a, size in zip(chain.layers, chain.chain_sizes, strict=True))
        self.chain_bytes += added
        if self.chain_bytes > memory:
            raise OutOfMemory(f"{what}: needs {format_bytes(self.chain_bytes)} with all others; raise budget.memory")
        MEMORY_ACCOUNT.claim(added, what)
        states, hidden = [*chain.states, 1], self._add_state_variables(chain)
        for i, (v, layer) in enumerate(zip(chain.scope, chain.layers, strict=True)):
            table, scope = _layer_table(layer.following, layer.utility, states[i + 1]), [v]
            if i + 1 < len(chain.layers):
                scope = [v, hidden[i]]
            else:
                table = table[..., 0]
            if i:
                scope = [hidden[i - 1], *scope]
            else:
                table = table[0]
            table = np.ascontiguousarray(table)
            table.flags.writeable = False
            self.factors.append(Factor(tuple(scope), table, chain.name))

    def _add_list(self, factor: SparseFactor) -> None:
        """Add a hidden variable that enumerates a factor's tuples, and its tables; the first has the utilities."""
        tuples, utilities = factor.allowed_tuples()
        rows, (hidden,) = np.arange(len(tuples)), self._add_variables(factor, [("row", len(tuples), factor.scope[0])])
        for i, (v, size) in enumerate(zip(factor.scope, factor.shape, strict=True)):
            table = np.full((size, len(tuples)), forbidden_value(utilities.dtype), dtype=utilities.dtype)
            table[tuples[:, i], rows] = utilities if i == 0 else 0
            table.flags.writeable = False
            self.factors.append(Factor((v, hidden), table, factor.name))

    def _add_state_variables(self, chain: AutomatonFactor) -> list[int]:
        """Create the state variables between the layers; each belongs to the owner of the preceding scope variable."""
        return self._add_variables(chain, [("state", size, chain.scope[i]) for i, size in enumerate(chain.states[1:])])

    def _add_variables(self, factor: Factor, wanted: Sequence[tuple[str, int, int]]) -> list[int]:
        """Create hidden variables for a factor.

        Parameters
        ----------
        factor : Factor
            The factor that the variables are for; its name is part of their names.
        wanted : sequence of (str, int, int)
            For each hidden variable: its role ("state" or "row"), its domain size, and a variable whose owner will own
            it.

        Returns
        -------
        list of int
            The indices of the hidden variables.
        """
        first = self.problem.n_variables + len(self.sizes)
        for role, size, neighbour in wanted:
            self.sizes.append(size)
            self.names.append(f"{factor.name or 'factor'}.{role}{len(self.sizes)}")
            self.owners.append(int(self.problem.owner[neighbour]))
        return list(range(first, first + len(wanted)))

    def finished(self) -> Problem:
        """Return the equivalent problem."""
        p = self.problem
        taken = set(p.variables)
        for i, name in enumerate(self.names):
            while name in taken:
                name += "'"
            self.names[i] = name
            taken.add(name)
        return Problem(
            variables=(*p.variables, *self.names),
            domains=np.append(p.domains, np.array(self.sizes, dtype=np.int64)),
            agents=p.agents,
            owner=np.append(p.owner, np.array(self.owners, dtype=np.int64)),
            factors=tuple(self.factors),
            labels=(*p.labels, *(None for _ in self.sizes)),
            sense=p.sense,
            name=p.name,
        )


def _sparse(factor: Factor) -> SparseFactor:
    """Return the factor if it is sparse; raise TypeError otherwise."""
    if not isinstance(factor, SparseFactor):
        raise TypeError(f"a factor of type {type(factor).__name__}")
    return factor


def _layer_table(following: NDArray[np.int32], utility: Array, n_next: int) -> Array:
    """Return one layer's table over (previous state, value, next state), with ``n_next`` next states."""
    lowest = forbidden_value(utility.dtype)
    table = np.full((*utility.shape, n_next), lowest, dtype=utility.dtype)
    allowed = ~forbidden(utility)
    states, values = np.nonzero(allowed)
    table[states, values, following[allowed]] = utility[allowed]
    return table
