"""Make a problem of dense tables only: what elimination and samplers work on.

A factor that is not dense is expanded where that is cheap. Elsewhere its automaton is written out as a chain of tables
over (state before, variable, state afterwards) with a hidden variable for each state in between, owned by an agent of
the scope. What is possible in a factor, tuples that it lists or words of its automaton, becomes, where that is much
less, one hidden variable whose values are those, and a table over that and each variable of the scope. For every
assignment of the problem's own variables that is allowed exactly one assignment of the hidden ones is, and it has the
same utility. Hidden variables come last, so the first values of an assignment are those of the problem.

Few tuples beside a default that is possible are a chain, too; many are a dense table, where that is smaller and fits.
Rows and a default that are joined with another table have rows for all values of its other variables, each with its own
sum, so that a bucket of them is as large as the dense one in a step or two: see benchmarks/elimination/defaults.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, automaton_of
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor, count
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array

_EASY = 2**20  # entries that a table is always expanded to, and that a chain may always have
_LESS = 4  # times fewer entries of a list: then it is taken in place of a chain
_WORDS = 16  # words of an automaton for each of its steps, at most, where it becomes a list
_PART = 8  # of the memory that such a list may take
_SHARE = 64  # of the memory that expanding a factor may take while a chain is possible
_MOST_AXES = 32  # of an expanded table


@dataclass(frozen=True)
class DenseProblem:
    """A problem of dense tables that stands for another.

    Attributes
    ----------
    problem : Problem
        The first ``own`` variables are those of the original problem.
    own : int
        Number of variables of the original problem.
    """

    problem: Problem
    own: int

    def restrict(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values of the original problem's variables."""
        return values[: self.own]


def densify(problem: Problem, memory: int, lists: bool = False) -> DenseProblem:
    """Return a problem of dense tables with the same utilities.

    Parameters
    ----------
    problem
        Any; returned as it is where all its factors are dense.
    memory
        Bytes that one expanded table may take.
    lists
        Whether factors that list what is possible stay, and automata become such where their words are few.

    Raises
    ------
    ResourceError
        If a factor fits neither as a table nor as a chain.
    """
    if problem.dense:
        return DenseProblem(problem, problem.n_variables)
    chains = _Chains(problem)
    for factor in problem.factors:
        kept = as_list(factor, memory) if lists else None
        if type(factor) is Factor or kept is not None:
            chains.factors.append(kept or factor)
            continue
        cells = prod(factor.shape)
        easy = cells <= max(_EASY, memory // (8 * _SHARE)) and len(factor.shape) <= _MOST_AXES
        if easy and 8 * cells <= memory:
            chains.expand(factor)
        else:
            chains.add(factor, memory)
    return DenseProblem(chains.finished(), problem.n_variables)


def as_list(factor: Factor, memory: int) -> SparseFactor | None:
    """Return a factor as a list of what is possible: one that is such a list, or an automaton of few words."""
    if isinstance(factor, SparseFactor):
        return factor if factor.lists_possible else None
    if not isinstance(factor, AutomatonFactor):
        return None
    words, links = _words(factor) or 0, sum(layer.following.size for layer in factor.layers)
    room = memory // (_PART * 4 * (len(factor.scope) + 2))
    return factor.listed() if words <= min(_WORDS * links, room) else None


def _words(factor: Factor) -> int | None:
    """Return how many entries are possible of a factor that is or can be a list of them; None of another."""
    if isinstance(factor, AutomatonFactor):
        return prod(factor.shape) - factor.forbidden_entries()
    return factor.possible()[1].size if isinstance(factor, SparseFactor) and factor.lists_possible else None


class _Chains:
    """Collects factors and hidden variables."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.factors: list[Factor] = []
        self.sizes: list[int] = []
        self.names: list[str] = []
        self.owners: list[int] = []

    def expand(self, factor: Factor) -> None:
        """Add the table of a factor."""
        ACCOUNT.claim(16 * prod(factor.shape), f"factor {factor.name or list(factor.scope)}, written out")
        self.factors.append(Factor(factor.scope, factor.table, factor.name))

    def add(self, factor: Factor, memory: int) -> None:
        """Add the chain of a factor, its table where that is half as large, or a list of what is possible."""
        chain = factor if isinstance(factor, AutomatonFactor) else automaton_of(_sparse(factor))
        states = [*chain.states, 1]
        links = [a * size * b for a, size, b in zip(chain.states, chain.shape, states[1:], strict=True)]
        rows = _words(factor) if sum(links) > _EASY else None
        if rows:
            less = _LESS * rows * sum(factor.shape) < sum(links) or 8 * max(links) > memory
            if less and 8 * rows * max(factor.shape) <= memory:
                self._list(factor.listed() if isinstance(factor, AutomatonFactor) else _sparse(factor))
                return
        if len(factor.shape) <= _MOST_AXES and 16 * prod(factor.shape) <= min(memory, 8 * sum(links)):
            self.expand(factor)
            return
        what = f"factor {factor.name or list(factor.scope)}"
        for before, size, after in zip(chain.states, chain.shape, states[1:], strict=True):
            if 8 * before * size * after > memory:
                raise ResourceError(
                    f"{what}: fits the memory neither as a table of {count(prod(factor.shape))} entries nor as a chain"
                    f" of tables, one of {count(before * size * after)}; raise budget.memory"
                )
        hidden = self._hidden(factor, chain)
        for i, (v, layer) in enumerate(zip(chain.scope, chain.layers, strict=True)):
            table, scope = _link(layer.following, layer.utility, states[i + 1]), [v]
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
            self.factors.append(Factor(tuple(scope), table, factor.name))

    def _list(self, factor: SparseFactor) -> None:
        """Add the tables of a hidden variable whose values are a factor's tuples; the first has the utilities."""
        tuples, utilities = factor.possible()
        rows, (hidden,) = np.arange(len(tuples)), self._variables(factor, [("row", len(tuples), factor.scope[0])])
        for i, (v, size) in enumerate(zip(factor.scope, factor.shape, strict=True)):
            table = np.full((size, len(tuples)), forbidden_value(utilities.dtype), dtype=utilities.dtype)
            table[tuples[:, i], rows] = utilities if i == 0 else 0
            table.flags.writeable = False
            self.factors.append(Factor((v, hidden), table, factor.name))

    def _hidden(self, factor: Factor, chain: AutomatonFactor) -> list[int]:
        """Make the variables between the layers; each belongs to the agent of the variable before it."""
        return self._variables(factor, [("state", size, chain.scope[i]) for i, size in enumerate(chain.states[1:])])

    def _variables(self, factor: Factor, wanted: Sequence[tuple[str, int, int]]) -> list[int]:
        """Make hidden variables of a factor: what each is, its size, and a variable whose agent has it."""
        first = self.problem.n_variables + len(self.sizes)
        for what, size, beside in wanted:
            self.sizes.append(size)
            self.names.append(f"{factor.name or 'factor'}.{what}{len(self.sizes)}")
            self.owners.append(int(self.problem.owner[beside]))
        return list(range(first, first + len(wanted)))

    def finished(self) -> Problem:
        """Return the problem with its hidden variables."""
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
    if not isinstance(factor, SparseFactor):
        raise TypeError(f"a factor of type {type(factor).__name__}")
    return factor


def _link(following: NDArray[np.int32], utility: Array, after: int) -> Array:
    """Return the table over (state before, value, state afterwards) of a layer."""
    lowest = forbidden_value(utility.dtype)
    table = np.full((*utility.shape, after), lowest, dtype=utility.dtype)
    free = ~forbidden(utility)
    states, values = np.nonzero(free)
    table[states, values, following[free]] = utility[free]
    return table
