"""An agent's interface as one variable over a list of rows: those that were sampled, or those that can still matter.

A row is an assignment of the interface variables. With k rows listed, one variable with k values takes the place of
the whole interface: tables over the interface, and factors that cross to other agents, are read off at the rows. So a
table over many interface variables has k entries instead of the product of their domains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array

Rows = NDArray[np.int64]  # (k, |B_i|) values of the interface variables


@dataclass(frozen=True)
class Compression:
    """Which agents' interfaces are lists of rows.

    Attributes
    ----------
    domains : (n,) int64
        Domain sizes of the problem's variables.
    owner : (n,) int64
    interfaces : dict
        Interface variables of each compressed agent.
    rows : dict
        Its rows.
    """

    domains: NDArray[np.int64]
    owner: NDArray[np.int64]
    interfaces: Mapping[int, tuple[int, ...]]
    rows: Mapping[int, Rows]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Domain sizes of all variables; that of agent a's list of rows comes at n + a, where there are lists."""
        if not self.rows:
            return self.domains
        agents = int(self.owner.max(initial=-1)) + 1
        lists = np.ones(max(agents, max(self.rows, default=-1) + 1), dtype=np.int64)
        for agent, rows in self.rows.items():
            lists[agent] = len(rows)
        return np.concatenate([self.domains, lists])

    def variable(self, agent: int) -> int:
        """Return the variable over a compressed agent's rows."""
        return len(self.domains) + agent

    def scope(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Return a scope with the variables of compressed agents replaced, each list once, in order of appearance."""
        if not self.rows:
            return tuple(variables)
        return tuple(dict.fromkeys(self._replaced(v) for v in variables))

    def table(self, scope: Sequence[int], values: Array, apart: int = -1) -> Table:
        """Return a table over variables at the listed rows; those of agent ``apart`` stay as they are."""
        into = tuple(dict.fromkeys(self._replaced(v, apart) for v in scope))
        if into == tuple(scope):
            return Table(into, values)
        index = []
        for v in scope:
            axis = into.index(self._replaced(v, apart))
            shape = [-1 if i == axis else 1 for i in range(len(into))]
            if into[axis] != v:
                agent = int(self.owner[v])
                index.append(self.rows[agent][:, self.interfaces[agent].index(v)].reshape(shape))
            else:
                index.append(np.arange(self.sizes[v]).reshape(shape))
        sizes = [int(self.sizes[v]) for v in into]
        ACCOUNT.claim(prod(sizes) * values.itemsize, f"factors between agents over {len(into)} lists of rows")
        return Table(into, np.ascontiguousarray(values[tuple(index)]))

    def local(self, local: LocalProblem) -> LocalProblem:
        """Return an agent's problem with its listed rows as the interface."""
        if local.agent not in self.rows:
            return local
        factors = []
        for factor in local.factors:
            scope, values = self.table(factor.scope, factor.table)
            factors.append(Factor(scope, values, factor.name))
        return LocalProblem(local.agent, (self.variable(local.agent),), local.hidden, tuple(factors), self.sizes)

    def expand(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return values with those of lists of rows replaced by the rows'."""
        if not self.rows:
            return dict(values)
        n, found = len(self.domains), dict[int, int]()
        for v, value in values.items():
            if v < n:
                found[v] = value
            else:
                row = self.rows[v - n][value]
                found |= dict(zip(self.interfaces[v - n], row.tolist(), strict=True))
        return found

    def listed(self, scope: Sequence[int]) -> list[int]:
        """Return the agents of a scope's variables that stand for lists of rows, ascending."""
        if not self.rows:
            return []
        return sorted({self._replaced(v) - len(self.domains) for v in scope if self._replaced(v) != v})

    def _replaced(self, variable: int, apart: int = -1) -> int:
        agent = int(self.owner[variable]) if variable < len(self.domains) else -1
        inside = agent in self.rows and agent != apart and variable in self.interfaces[agent]
        return self.variable(agent) if inside else variable
