"""The tables of a junction tree: dense tables in one array, or sparse tables if most entries are forbidden."""

from typing import Literal, Protocol

import numpy as np

from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.passes import MessagePassing
from dmcmc.inference.marginals.dense_tables import DenseTreeTables
from dmcmc.inference.marginals.sparse_tables import SparseTreeTables
from dmcmc.inference.marginals.tree_plan import TreeResources
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import KeyTooWide

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
