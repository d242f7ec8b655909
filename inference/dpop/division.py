"""Divide a problem among its agents: local problems and crossing factors (DMCMC paper, Definitions 1-2).

A *crossing* factor has variables of several agents. An agent's interface B_i holds its variables in crossing factors
(the boundary variables); its other variables H_i are hidden. A *row* is an assignment of the interface.

An interface can be represented by one variable over a list of rows, sampled or left after pruning
(:class:`InterfaceCompression`). With a list of k rows, one variable with k values replaces the whole interface. Tables
over the interface and crossing factors are evaluated at the rows. A table over many interface variables then has k
entries instead of the product of their domain sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import FlatTables, flatten, table_ranges, varying_entries
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.subproblem import LocalFacts, Subproblem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import Order, best_order, order_as_given
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import Memo
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import LONG_BUDGET, SMALL_BUDGET

_ORDERS = Memo[Order]()  # by structure key; the variables are positions among the agent's hidden variables


@dataclass(frozen=True)
class LocalProblem(Subproblem):
    """The subproblem of one agent, with an elimination order of its hidden variables and a plan.

    The order and the plan are computed on first access and then cached; :meth:`set_order` must come before that.

    Attributes
    ----------
    order_budget : float
        Upper bound on the words touched by the search for an elimination order (about 2 ns each).
    stop : Deadline
        Deadline of that search. A search that begins after the deadline tries only the deterministic rules.
    given_order : tuple of int or None
        The hidden variables in a prescribed elimination order; None to search for one.
    """

    order_budget: float = LONG_BUDGET
    stop: Deadline = NO_DEADLINE
    given_order: tuple[int, ...] | None = None

    @cached_property
    def order(self) -> Order:
        """The best elimination order found for the hidden variables, with the interface kept."""
        if self.given_order is not None:
            return order_as_given([f.scope for f in self.factors], self.domains, self.given_order, self.interface)
        # An agent without an interface usually is the whole problem.
        over = self.stop is not NO_DEADLINE and self.stop.over
        budget = min(self.order_budget, SMALL_BUDGET if self.interface else LONG_BUDGET, 0.0 if over else np.inf)
        cached: Order | None = self.known.find(("order", budget))
        if cached is not None:
            return cached
        shared = _ORDERS.find((self.structure_key, budget))
        if shared is not None:
            return self.known.get_or_compute(("order", budget), partial(self._renamed, shared))
        scopes = [f.scope for f in self.factors]
        order = best_order(scopes, self.domains, self.hidden, self.interface, budget=budget, stop=self.stop)
        if not self.stop.over:  # otherwise the order may depend on the clock
            position = {v: i for i, v in enumerate(self.hidden)}
            _ORDERS.put(
                (self.structure_key, budget), replace(order, variables=tuple([position[v] for v in order.variables]))
            )
        return order

    def _renamed(self, order: Order) -> Order:
        """Return an order of positions among the hidden variables as an order of these variables."""
        return replace(order, variables=tuple([self.hidden[position] for position in order.variables]))

    def with_order_budget(self, words: float, stop: Deadline) -> "LocalProblem":
        """Return this problem with a limit and a deadline for the search for its elimination order.

        It shares the cache of results, whose keys contain the limit.
        """
        limited = object.__new__(LocalProblem)  # much faster than dataclasses.replace, and there may be 10^5 agents
        limited.__dict__.update(self.__dict__, order_budget=words, stop=stop)
        for derived in ("order", "plan"):
            limited.__dict__.pop(derived, None)
        return limited

    def set_order(self, order: Order) -> None:
        """Set an elimination order that another process has found, instead of searching."""
        self.__dict__["order"] = order

    @cached_property
    def plan(self) -> EliminationPlan:
        """The plan of the elimination of the hidden variables in ``order``."""
        order = self.order.variables
        return self.known.get_or_compute(("plan", order), lambda: self._planned(order))

    def _planned(self, order: tuple[int, ...]) -> EliminationPlan:
        """Plan the elimination of the hidden variables in the given order."""
        return plan_elimination([f.scope for f in self.factors], self.domains, order, self.interface)


@dataclass(frozen=True)
class Division:
    """A problem divided among its agents.

    Attributes
    ----------
    locals : sequence of LocalProblem
        One local problem per agent.
    crossing : sequence of Factor
        The factors over variables of several agents.
    constants : tuple of Factor
        The factors with empty scope.
    """

    locals: Sequence[LocalProblem]
    crossing: Sequence[Factor]
    constants: tuple[Factor, ...]

    @cached_property
    def scopes(self) -> Sequence[tuple[int, ...]]:
        """The scopes of the crossing factors."""
        return IndexGroups.of(factor.scope for factor in self.crossing)

    def set_scopes(self, scopes: Sequence[tuple[int, ...]]) -> None:
        """Set the scopes of the crossing factors where they are known without the factors."""
        self.__dict__["scopes"] = scopes

    @cached_property
    def magnitudes(self) -> tuple[list[int | float], list[int | float]]:
        """Sum over each agent's factors of the largest finite |entry|, and that entry of each crossing factor."""
        local_sums = [sum(magnitude(f.table) for f in local.factors) for local in self.locals]
        return local_sums, [magnitude(f.table) for f in self.crossing]

    @cached_property
    def mean_shared_domain(self) -> float:
        """The mean domain size of the interface variables of all agents; 1 if there are none."""
        shared = [v for local in self.locals for v in local.interface]
        return float(self.locals[0].domains[shared].mean()) if shared else 1.0

    def with_order_budget(self, words: float, stop: Deadline) -> "Division":
        """Return the division with a limit and a deadline for the search for each agent's elimination order.

        Parameters
        ----------
        words
            Upper bound on the words touched per agent (about 2 ns each).
        stop
            Deadline of the searches.
        """
        division = replace(self, locals=tuple(local.with_order_budget(words, stop) for local in self.locals))
        division.__dict__.update(
            {name: self.__dict__[name] for name in ("magnitudes", "mean_shared_domain") if name in self.__dict__}
        )
        return division

    def with_elimination_ranks(self, rank: Mapping[int, int]) -> "Division":
        """Return the division with each agent's hidden variables eliminated by ascending ``rank``."""
        given_order = (tuple(sorted(local.hidden, key=rank.__getitem__)) for local in self.locals)
        pairs = zip(self.locals, given_order, strict=True)
        return replace(self, locals=tuple(replace(local, given_order=order) for local, order in pairs))


# Codes for a crossing and a constant factor, in place of an agent's index. A layout's ``factors`` hold the factors with
# code c at position c + 2.
_CROSSING = -1
_CONSTANT = -2


class _DivisionLayout(NamedTuple):
    """How problems of one structure are divided.

    Attributes
    ----------
    factors : list of tuple of int
        Factor indices: those of the constants, of the crossing factors, and of each agent's own factors.
    interfaces, hidden : list of tuple of int
        Each agent's interface and hidden variables.
    known : LocalFacts
        The cache of each agent's results.
    pieces : list of _TableRange or None
        The position of each agent's tables in the problem's flat tables; None if they are not adjacent.
    """

    factors: list[tuple[int, ...]]
    interfaces: list[tuple[int, ...]]
    hidden: list[tuple[int, ...]]
    known: LocalFacts
    pieces: "list[_TableRange | None]"


class _TableRange(NamedTuple):
    """A contiguous range of a problem's flat tables.

    Attributes
    ----------
    layout : FlatTables
        Scopes and offsets of the tables, without entries.
    first, begin, end : int
        Number of the first table; first entry, and the end of the last one, in the problem's entries.
    """

    layout: FlatTables
    first: int
    begin: int
    end: int


def divide(problem: Problem) -> Division:
    """Divide a problem among its agents.

    Problems that differ only in their table entries share the result of the graph work.
    """
    flat: FlatTables | None = problem.__dict__.get("flat")  # None if the tables do not lie in one array
    layout = (
        _layout_of(problem, None)
        if flat is None
        else problem.shape_facts.get_or_compute("parts", lambda: _layout_of(problem, flat))
    )
    factor = problem.factors.__getitem__
    constants, crossing, *local_factors = (tuple(map(factor, numbers)) for numbers in layout.factors)

    def local_problem(agent: int, interface: tuple[int, ...], hidden: tuple[int, ...]) -> LocalProblem:
        """Return an agent's problem, with a view of its tables in the problem's flat tables if they are adjacent."""
        piece = layout.pieces[agent] if flat is not None else None
        named = agent, interface, hidden, local_factors[agent], problem.domains
        if flat is None or piece is None:
            return LocalProblem(*named, facts=layout.known)
        # The first three fields of a layout are the scopes and offsets.
        tables = FlatTables(*piece.layout[:3], flat.data[piece.begin : piece.end])
        local = LocalProblem(*named, tables=tables, facts=layout.known)
        local.set_ranges(problem.ranges.of_tables(piece.first, piece.first + tables.tables))
        return local

    locals_ = map(local_problem, range(problem.n_agents), layout.interfaces, layout.hidden)
    return Division(tuple(locals_), crossing, constants)


def _layout_of(problem: Problem, flat: FlatTables | None) -> _DivisionLayout:
    """Find each agent's factors, interface and hidden variables."""
    agent_of = _agents_of_factors(problem.owner, *problem.scope_arrays)
    factors_by_agent = np.argsort(agent_of, kind="stable")  # each agent's factors stay in the problem's order
    begins = np.searchsorted(agent_of[factors_by_agent], np.arange(_CONSTANT, problem.n_agents + 1)).tolist()
    numbers: tuple[int, ...] = tuple(factors_by_agent.tolist())
    factors = [numbers[begin:end] for begin, end in pairwise(begins)]
    shared = np.zeros(problem.n_variables, dtype=np.bool_)
    crossing_scopes = [problem.factors[number].scope for number in factors[_CROSSING - _CONSTANT]]
    shared[np.fromiter(chain.from_iterable(crossing_scopes), dtype=np.int64)] = True
    interfaces, hidden = _by_owner(problem, np.flatnonzero(shared)), _by_owner(problem, np.flatnonzero(~shared))
    pieces: list[_TableRange | None] = [None] * problem.n_agents
    if flat is not None:
        empty = _table_range_of(flat, ())  # of all agents without factors of their own
        pieces = [_table_range_of(flat, indices) if indices else empty for indices in factors[-_CONSTANT:]]
    return _DivisionLayout(factors, interfaces, hidden, LocalFacts(), pieces)


def _by_owner(problem: Problem, variables: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """Return for each agent those of the given (ascending) variables that it owns, ascending."""
    owner = problem.owner[variables]
    by_owner = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[by_owner], np.arange(problem.n_agents + 1))
    members = tuple(variables[by_owner].tolist())
    return [members[begin:end] for begin, end in pairwise(ends.tolist())]


def _table_range_of(flat: FlatTables, numbers: Sequence[int]) -> _TableRange | None:
    """Return the range of the flat tables with the (ascending) indices ``numbers``; None if they are not adjacent."""
    if numbers and numbers[-1] - numbers[0] >= len(numbers):
        return None
    first, last = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
    part = flat.table_range(first, last)
    return _TableRange(part._replace(data=part.data[:0].copy()), first, int(flat.at[first]), int(flat.at[last]))


def shared_variables(problem: Problem) -> NDArray[np.int64]:
    """Return the variables that share a factor with another agent's variable, ascending."""
    start, scope = problem.scope_arrays
    is_crossing = _agents_of_factors(problem.owner, start, scope) == _CROSSING
    return np.unique(scope[np.repeat(is_crossing, np.diff(start))])


def _agents_of_factors(
    owner: NDArray[np.int64], scope_start: NDArray[np.int64], scope: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each factor the agent that owns all its variables, or ``_CROSSING`` or ``_CONSTANT``."""
    agent_of, has_scope = np.full(scope_start.size - 1, _CONSTANT, dtype=np.int64), np.diff(scope_start) > 0
    if has_scope.any():
        owners, starts = owner[scope], scope_start[:-1][has_scope]
        first, last = np.minimum.reduceat(owners, starts), np.maximum.reduceat(owners, starts)
        agent_of[has_scope] = np.where(first == last, first, _CROSSING)
    return agent_of


def own_utilities(local: LocalProblem) -> int:
    """Return the number of utilities in an agent's local factors: entries of tables that are not all equal or −∞."""
    if local.tables is not None:
        return varying_entries(local.tables, local.ranges)
    other = SparseFactor, AutomatonFactor, GlobalConstraint
    tables = [factor.table for factor in local.factors if not isinstance(factor, other)]
    sparse = sum(factor.utilities.size for factor in local.factors if isinstance(factor, SparseFactor))
    flat = flatten([()] * len(tables), tables)
    return sparse + varying_entries(flat, table_ranges(flat))


Rows = NDArray[np.int64]  # (k, |B_i|) int64: values of the interface variables, one row per assignment


@dataclass(frozen=True)
class InterfaceCompression:
    """The agents whose interfaces are represented by lists of rows (compressed agents).

    Attributes
    ----------
    domains : (n,) int64
        Domain sizes of the problem's variables.
    owner : (n,) int64
        The agent of each variable.
    interfaces : dict of int to tuple of int
        Interface variables of each compressed agent.
    rows : dict of int to (k, interface) int64
        Rows of each compressed agent.
    """

    domains: NDArray[np.int64]
    owner: NDArray[np.int64]
    interfaces: Mapping[int, tuple[int, ...]]
    rows: Mapping[int, Rows]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Domain sizes of the problem's variables; with row lists, entry n + a is the number of rows of agent a."""
        if not self.rows:
            return self.domains
        agents = int(self.owner.max(initial=-1)) + 1
        lists = np.ones(max(agents, max(self.rows, default=-1) + 1), dtype=np.int64)
        for agent, rows in self.rows.items():
            lists[agent] = len(rows)
        return np.concatenate([self.domains, lists])

    def row_variable(self, agent: int) -> int:
        """Return the index of the variable over a compressed agent's rows."""
        return len(self.domains) + agent

    def scope(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Return a scope with the interface variables of compressed agents replaced by their row variables.

        Each row variable appears once, at its first occurrence.
        """
        if not self.rows:
            return tuple(variables)
        return tuple(dict.fromkeys(self._replaced(v) for v in variables))

    def table(self, scope: Sequence[int], values: Array, uncompressed: int = -1) -> EncodedTable:
        """Return a table evaluated at the rows of the compressed agents.

        Parameters
        ----------
        scope
            Variables of the table.
        values
            The table, one axis per variable.
        uncompressed
            An agent whose variables stay unchanged; −1 for none.
        """
        new_scope = tuple(dict.fromkeys(self._replaced(v, uncompressed) for v in scope))
        if new_scope == tuple(scope):
            return EncodedTable(new_scope, values)
        indices = []
        for v in scope:
            axis = new_scope.index(self._replaced(v, uncompressed))
            shape = [-1 if i == axis else 1 for i in range(len(new_scope))]
            if new_scope[axis] != v:
                agent = int(self.owner[v])
                indices.append(self.rows[agent][:, self.interfaces[agent].index(v)].reshape(shape))
            else:
                indices.append(np.arange(self.sizes[v]).reshape(shape))
        sizes = [int(self.sizes[v]) for v in new_scope]
        MEMORY_ACCOUNT.claim(
            prod(sizes) * values.itemsize, f"factors between agents over {len(new_scope)} lists of rows"
        )
        return EncodedTable(new_scope, np.ascontiguousarray(values[tuple(indices)]))

    def local(self, local: LocalProblem) -> LocalProblem:
        """Return the local problem with the row variable as its interface; unchanged for uncompressed agents."""
        if local.agent not in self.rows:
            return local
        factors = []
        for factor in local.factors:
            scope, values = self.table(factor.scope, factor.table)
            factors.append(Factor(scope, values, factor.name))
        return LocalProblem(local.agent, (self.row_variable(local.agent),), local.hidden, tuple(factors), self.sizes)

    def expand(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return an assignment with the values of row variables replaced by the interface values of these rows."""
        if not self.rows:
            return dict(values)
        n, expanded = len(self.domains), dict[int, int]()
        for v, value in values.items():
            if v < n:
                expanded[v] = value
            else:
                row = self.rows[v - n][value]
                expanded |= dict(zip(self.interfaces[v - n], row.tolist(), strict=True))
        return expanded

    def compressed_agents(self, scope: Sequence[int]) -> list[int]:
        """Return the compressed agents that own interface variables of a scope, ascending."""
        if not self.rows:
            return []
        return sorted({self._replaced(v) - len(self.domains) for v in scope if self._replaced(v) != v})

    def _replaced(self, variable: int, uncompressed: int = -1) -> int:
        """Return the row variable of a compressed agent's interface variable, and any other variable unchanged."""
        agent = int(self.owner[variable]) if variable < len(self.domains) else -1
        inside = agent in self.rows and agent != uncompressed and variable in self.interfaces[agent]
        return self.row_variable(agent) if inside else variable
