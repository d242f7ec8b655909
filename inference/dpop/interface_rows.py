"""Represent an agent's interface by one variable over a list of rows, sampled or left after pruning.

A row is an assignment of the interface variables. With a list of k rows, one variable with k values replaces the whole
interface. Tables over the interface and crossing factors are evaluated at the rows. A table over many interface
variables then has k entries instead of the product of their domain sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array

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
