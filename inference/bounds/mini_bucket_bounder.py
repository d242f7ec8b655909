"""Bound the nodes of a branch and bound by mini-buckets, a static heuristic: the messages are computed once.

Mini-bucket elimination (Dechter and Rish, 2003) eliminates the hidden variables in a fixed order, the boundary
variables stay. Branch and bound assigns them in the opposite order (Kask and Dechter, *A general scheme for automatic
generation of search heuristics*, Artificial Intelligence 129, 2001). Then a node's bound is a sum of table entries: of
the tables over assigned variables, and of the messages from the other variables' buckets to assigned ones. It costs
microseconds, where dual ascent makes sweeps, and is exact where no bucket was split. The tables are the potentials of
the agent's dual ascent, which bound better than the factors.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_ROW,
    JOB_THRESHOLD,
    LEAF,
    NO_VARIABLE,
    BatchResult,
    Bounder,
    NodeWork,
    SearchBatch,
)
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import allowed_values
from dmcmc.inference.bounds.contract.tuning import MAX_NODES_PER_BATCH, PREPARED_CELLS
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import LOWEST, elimination_of, tables_of
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.plan import largest_fitting, least_z, plan_mini_buckets, upper_bound_on_z
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import SHORT_BUDGET

_MAX_BRANCHES = 255  # the numbers of branches are stored in 8 bits


class HeuristicTable(NamedTuple):
    """A table of the factors, or a message, with the depths at which it is part of a node's bound.

    Attributes
    ----------
    columns : (arity,) int64
        Positions of its variables in a node's values: boundary variables, then hidden ones in the order of assignment.
    values : ndarray of int64
        Its entries, one axis per variable; ``LOWEST`` stands for minus infinity.
    first, last : int
        It counts in nodes with ``first`` to ``last`` assigned hidden variables.
    """

    columns: Ints
    values: NDArray[np.int64]
    first: int
    last: int


class StaticRunner:
    """Runs the batches of static bounders one after the other, a ``BatchRunner``."""

    def run(self, work: Sequence[tuple[Bounder, SearchBatch]], stop: Deadline) -> list[BatchResult]:
        """Process a batch of each bounder."""
        results = []
        for bounder, batch in work:
            assert isinstance(bounder, MiniBucketBounder)
            results.append(BatchResult.unprocessed(batch) if stop.over else bounder.bound(batch))
        return results


_RUNNER = StaticRunner()


class MiniBucketBounder:
    """Bounds the nodes of one agent by mini-bucket messages, a ``Bounder``.

    Parameters
    ----------
    state : DualState
        The agent's dual ascent; its present potentials are used.
    memory_limit : int
        Bytes for the messages; z is the largest number of variables of a message for which they fit.

    Raises
    ------
    ResourceError
        If even the smallest z needs more memory.
    OutOfTime
        If the deadline of ``state.backend`` passes.
    """

    def __init__(self, state: DualState, memory_limit: int) -> None:
        local, self.scale, self.allowed, self.runner = state.local, state.layout.scale, allowed_values(state), _RUNNER
        self.work = NodeWork(root=1, restored=1, branch=1)  # a bound does not depend on the amount of work
        self.capacity, self.batch_size = 1 << 20, MAX_NODES_PER_BATCH  # branches inherit nothing: entries are empty
        self.max_branches = min(_MAX_BRANCHES, self.allowed.shape[1])
        self._shape, names = local.interface_shape, (*local.hidden, *local.interface)
        tables = tables_of(state.layout.whole, state.potentials, names)
        scopes, domains = [table.scope for table in tables], local.domains
        order = best_order(scopes, domains, local.hidden, local.interface, budget=SHORT_BUDGET).variables
        # messages that fit the memory, and an elimination that takes well under a second
        entries = memory_limit // 8
        plan_of = partial(plan_mini_buckets, scopes, domains, order, local.interface, shifts=True)
        z = upper_bound_on_z(domains, order, entries), least_z(scopes, order)
        self.z, _ = largest_fitting(*z, entries, plan_of, PREPARED_CELLS)
        query = elimination_of(tables, domains, order, local.interface)
        resources = Resources(memory_limit, state.backend)
        elimination = eliminate_within(query, Relaxation("mini-bucket", self.z), resources).elimination
        plan = elimination.plan
        # number of the hidden variable that is assigned at each depth
        self._assigned_at = np.array([local.hidden.index(v) for v in reversed(order)], dtype=np.int64)
        messages = [elimination.table(t) for t in range(plan.tables - plan.buckets, plan.tables)]
        self._tables = self._heuristic_tables(tables, order, local.interface, None)
        self._tables += self._heuristic_tables(messages, order, local.interface, plan.program.variable)

    def bound(self, batch: SearchBatch) -> BatchResult:
        """Return the bounds of the nodes of a batch, and split the next variable in the order of assignment.

        A node's bound is that of its longest prefix of variables with a single value, so it holds for any masks.
        """
        results, counts = BatchResult.unprocessed(batch), batch.masks[:, self._assigned_at].sum(axis=2)
        depth = np.where((counts != 1).any(axis=1), (counts != 1).argmax(axis=1), counts.shape[1])
        values = self._values(batch)
        for d in np.unique(depth).tolist():
            chosen = np.flatnonzero(depth == d)
            results.bounds[chosen] = self._sums(values[chosen], d)
        infeasible = (counts == 0).any(axis=1) | (results.bounds <= LOWEST // 2)
        results.bounds[infeasible] = MINUS_INFINITY
        at_leaf = depth == counts.shape[1]
        variables = self._assigned_at[np.minimum(depth, counts.shape[1] - 1)]
        closed = infeasible | (results.bounds < batch.jobs[:, JOB_THRESHOLD])
        results.variables[:] = np.where(closed, NO_VARIABLE, np.where(at_leaf, LEAF, variables))
        ranks = np.cumsum(batch.masks[np.arange(len(variables)), variables], axis=1) - 1
        sizes = ranks[:, -1:] + 1
        branches = np.minimum(sizes, _MAX_BRANCHES)
        results.parts[:] = np.maximum(ranks, 0) * branches // np.maximum(sizes, 1)
        return results

    def _values(self, batch: SearchBatch) -> Ints:
        """Return the boundary values of nodes, then the first value of each hidden variable by order of assignment."""
        rows = batch.jobs[:, JOB_ROW]
        digits = np.stack(np.unravel_index(rows, self._shape), axis=1) if self._shape else np.zeros((rows.size, 0))
        return np.concatenate([digits.astype(np.int64), batch.masks[:, self._assigned_at].argmax(axis=2)], axis=1)

    def _sums(self, values: Ints, depth: int) -> Ints:
        """Return the bounds of nodes with ``depth`` assigned variables; minus infinity stays below ``LOWEST`` / 2."""
        total = np.zeros(len(values), dtype=np.int64)
        for table in self._tables:
            if table.first <= depth <= table.last:
                np.maximum(
                    total + table.values[tuple(values[:, column] for column in table.columns)], LOWEST, out=total
                )
        return total

    def _heuristic_tables(
        self, tables: Sequence[EncodedTable], order: Sequence[int], interface: Sequence[int], variables: Ints | None
    ) -> list[HeuristicTable]:
        """Return tables of factors, or messages with the variables that their buckets eliminate."""
        depth_of = {v: len(order) - i for i, v in enumerate(order)}  # number of assigned variables once v is
        column = {v: i for i, v in enumerate([*interface, *reversed(order)])}
        found = []
        for i, (scope, values) in enumerate(tables):
            last = len(order) if variables is None else depth_of[int(variables[i])] - 1
            first = max((depth_of.get(v, 0) for v in scope), default=0)
            found.append(HeuristicTable(np.array([column[v] for v in scope], dtype=np.int64), values, first, last))
        return found


def mini_bucket_bounder(state: DualState, memory_limit: int) -> MiniBucketBounder | None:
    """Return the bounder; None if memory or time do not suffice."""
    try:
        return MiniBucketBounder(state, memory_limit)
    except (ResourceError, OutOfTime):
        return None
