"""The protocol of bounders, which bound the nodes of a branch and bound, and the records of a batch of nodes.

A node is a row (an assignment of the agent's boundary variables) with the values that each hidden variable may take. A
job bounds one node. The search (``frontier``, ``row_search``) chooses the nodes; it knows no bounder by name. n is the
number of hidden variables of an agent, W the number of columns of its masks, at least its largest domain size. All
bounds are int64 in the agent's integer scale.

A bounder stores what the branches of a node start from (reparametrised tables, factor vectors) in numbered buffer
entries. A job names the entry that it starts from and the entry that receives its result.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.types import Ints

# Columns of a job: row number, buffer entry to start from (-1: start from the row), buffer entry that receives the
# node's result, pruning threshold in the integer scale, amount of work (see ``NodeWork``), and a number that a bounder
# may use for itself (the agent's index in a group). JOB_FIELDS is the number of columns.
JOB_ROW, JOB_SOURCE, JOB_TARGET, JOB_THRESHOLD, JOB_WORK, JOB_AGENT, JOB_FIELDS = range(7)
LEAF = -1  # in place of a branching variable: every variable has one value, and the bound is its exact utility
NO_VARIABLE = -2  # in place of a branching variable: the node is closed, or nothing is known of its bound
UNFINISHED = -3  # in place of a branching variable: the node has to be bounded, with more work, before it is branched
OUT_OF_RANGE = MINUS_INFINITY + 1  # in place of a bound: numbers left their range, so nothing is known
NOT_PROCESSED = MINUS_INFINITY + 2  # in place of a bound: the time was over before this node


class NodeWork(NamedTuple):
    """Amounts of work for a node, in the bounder's own unit: sweeps of dual ascent, steps of a descent.

    Attributes
    ----------
    root : int
        For a row that has just been opened, and for a node that was ``UNFINISHED``.
    restored : int
        For a node whose buffer entry was taken away, before it is branched.
    branch : int
        For a branch, which starts from its parent's buffer entry.
    """

    root: int
    restored: int
    branch: int


class SearchBatch(NamedTuple):
    """Jobs of a batch of nodes.

    Attributes
    ----------
    jobs : (k, JOB_FIELDS) int64
        One job per node to bound; the columns are ``JOB_ROW``, ``JOB_SOURCE`` and so on.
    groups : (g + 1,) int64
        The jobs ``groups[i]`` to ``groups[i + 1] - 1`` depend on each other and are processed in order: a job may start
        from the entry of the job before it, or overwrite an entry that the job before it has started from.
    masks : (k, n, W) bool
        Values that each node may take.
    """

    jobs: Ints
    groups: Ints
    masks: NDArray[np.bool_]


class BatchResult(NamedTuple):
    """Results of a batch, one per job.

    Attributes
    ----------
    bounds : (k,) int64
        Upper bound of the node, ``MINUS_INFINITY`` if it is infeasible; or ``OUT_OF_RANGE`` or ``NOT_PROCESSED``.
    masks : (k, n, W) bool
        Values that remain. Assignments with a removed value have utilities below the job's threshold.
    variables : (k,) int64
        Branching variable; or ``LEAF``, ``NO_VARIABLE`` or ``UNFINISHED``.
    parts : (k, W) uint8
        Partition of the branching variable's values: branch number i has the remaining values whose entry is i. The
        branches are numbered from 0 without a gap; those with higher numbers come first.
    """

    bounds: Ints
    masks: NDArray[np.bool_]
    variables: Ints
    parts: NDArray[np.uint8]

    @classmethod
    def unprocessed(cls, batch: SearchBatch) -> "BatchResult":
        """Return the result of a batch of which no job has been processed."""
        count, _, width = batch.masks.shape
        return cls(
            np.full(count, NOT_PROCESSED, dtype=np.int64),
            batch.masks.copy(),
            np.full(count, NO_VARIABLE, dtype=np.int64),
            np.zeros((count, width), dtype=np.uint8),
        )


class BatchRunner(Protocol):
    """Runs the batches of several bounders together."""

    def run(self, work: "Sequence[tuple[Bounder, SearchBatch]]", stop: Deadline) -> list[BatchResult]:
        """Process one batch of each bounder; nodes that are not reached before ``stop`` stay unprocessed.

        Parameters
        ----------
        work : sequence of (Bounder, SearchBatch)
            Bounders with this runner, with the batch of each.
        stop : Deadline
            Soon after it, no further node is processed.

        Returns
        -------
        list of BatchResult
            One per batch, in order.
        """
        ...


class Bounder(Protocol):
    """Bounds the nodes of one agent's search: upper bounds, remaining values, and where to branch.

    A bound is at least the utility of every assignment in the node, whatever the work was. The bound of a branch may
    lie above that of its parent; the frontier then keeps the parent's. A bounder does not choose nodes, and does not
    know which of them are open.

    Attributes
    ----------
    scale : Scale
        The agent's integer scale.
    allowed : (n, W) bool
        Allowed values of the hidden variables; W is the width of all masks.
    work : NodeWork
        Amounts of work that the search orders.
    max_branches : int
        Maximum number of branches of a node.
    """

    scale: Scale
    allowed: NDArray[np.bool_]
    work: NodeWork
    max_branches: int

    @property
    def capacity(self) -> int:
        """Number of buffer entries; their memory is reserved."""
        ...

    @property
    def batch_size(self) -> int:
        """Number of nodes to branch per batch, all agents together."""
        ...

    @property
    def runner(self) -> BatchRunner:
        """Runner of the batches; the same object for bounders whose batches can run together."""
        ...


def run_batches(work: Sequence[tuple[Bounder, SearchBatch]], stop: Deadline) -> list[BatchResult]:
    """Process one batch of each bounder, those with the same runner together; return one result per batch, in order."""
    results: list[BatchResult | None] = [None] * len(work)
    for runner in {id(bounder.runner): bounder.runner for bounder, _ in work}.values():
        indices = [k for k, (bounder, _) in enumerate(work) if bounder.runner is runner]
        for k, result in zip(indices, runner.run([work[k] for k in indices], stop), strict=True):
            results[k] = result
    return [result for result in results if result is not None]
