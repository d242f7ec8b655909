"""Dense tables of a junction tree, in one array."""

import math

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.junction_tree_passes import passes_on
from dmcmc.inference.junction_tree.message_kernels import UP
from dmcmc.inference.junction_tree.passes import CliqueTreePasses
from dmcmc.inference.junction_tree.table_layout import CliqueTreeLayout, clique_cells, lay_out
from dmcmc.inference.marginals.posterior_samples import sample_dense
from dmcmc.inference.marginals.tree_plan import TreeResources, choose_numbers, isolated_variables, plan_tree
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import format_count
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints

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
