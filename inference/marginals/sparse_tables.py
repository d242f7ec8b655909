"""Sparse tables of a junction tree, for problems of which most entries are forbidden."""

import numpy as np

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.junction_tree_passes import row_passes_on
from dmcmc.inference.junction_tree.message_kernels import UP
from dmcmc.inference.junction_tree.passes import MessagePassing
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses
from dmcmc.inference.marginals.posterior_samples import sample_sparse
from dmcmc.inference.marginals.tree_plan import TreeResources, choose_numbers, isolated_variables, plan_tree
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.join import all_values, sparse_table_of


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
