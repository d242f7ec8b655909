"""Bound the nodes of a branch and bound by semidefinite relaxations, many at once, on an array library.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. Its bound is that of the row's relaxation, and a descent chooses its factor vectors: it starts from those of the
parent, or for a row from those that all rows share, and ``certificates`` proves the result in integers. A node with at
most one free variable is solved exactly. The nodes of several agents share batches; ``SemidefiniteRunner`` holds what
the agents have in common.
"""

import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    LEAF,
    NO_VARIABLE,
    OUT_OF_RANGE,
    UNFINISHED,
    BatchResult,
    Bounder,
    NodeWork,
    SearchBatch,
)
from dmcmc.inference.bounds.contract.tuning import (
    DOMAIN_PARTS,
    MAX_NODES_PER_BATCH,
    MIN_NODES_FOR_TIMING,
    MIN_STEP_SECONDS,
    PLANNED_TIME_SHARE,
    STEPPED_SECONDS_PER_PRODUCT,
)
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import (
    Certificates,
    ExactNodes,
    certificate_bytes,
    certificates,
    certify,
)
from dmcmc.inference.bounds.semidefinite.node_steps import (
    BRANCH_SCHEDULE,
    ROOT_SCHEDULE,
    NodeArrays,
    NodeSchedule,
    NodeShape,
)
from dmcmc.inference.bounds.semidefinite.utility_matrix import SharedTerm, UtilityMatrix
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.types import Floats, Ints

_LOG = logging.getLogger(__name__)
_MAX_ARRAY_ENTRIES = 1 << 31  # kernels use 32-bit indices
MAX_BRANCHES = 2 * DOMAIN_PARTS - 1


class NodeSchedules(NamedTuple):
    """Schedules of the descents; they differ in their numbers of steps.

    Attributes
    ----------
    root : NodeSchedule
        For rows, and for nodes that are restored or unfinished.
    branch : NodeSchedule
        For branches.
    """

    root: NodeSchedule = ROOT_SCHEDULE
    branch: NodeSchedule = BRANCH_SCHEDULE


_SCHEDULES = NodeSchedules()


def max_nodes_per_batch(shape: NodeShape, free_bytes: int) -> int:
    """Return the number of nodes for which the given memory suffices; 0 if it does not suffice for one.

    The number is reduced by a quarter until a batch fits. The bytes of the steps count twice, as a reserve for
    temporary arrays.
    """
    max_nodes = min(MAX_NODES_PER_BATCH, (_MAX_ARRAY_ENTRIES - 1) // (shape.m * max(shape.m, shape.r)))
    while max_nodes > 0:
        batch = shape._replace(nodes=max_nodes)
        # factor 2: a reserve for temporary arrays
        if 2 * batch.bytes + certificate_bytes(batch) <= free_bytes:
            break
        max_nodes = max_nodes * 3 // 4
    return max_nodes


class SemidefiniteRunner:
    """Runs the batches of some agents' bounders, a ``BatchRunner``; the agents share buffers on the array library.

    Parameters
    ----------
    terms : sequence of SharedTerm
        The term that all rows of an agent share, for each agent.
    arrays : NodeArrays
        The array library.
    capacity : int
        Buffer entries of each agent.
    max_nodes : int
        Maximum number of nodes that are bounded at once.
    schedules : NodeSchedules
        Schedules of the descents.

    Attributes
    ----------
    buffers : AgentBuffers
        The agents' data and the stored factor vectors.
    bounders : list of SemidefiniteBounder
        One per agent.
    max_nodes : int
        Maximum number of nodes that are bounded at once.
    exact : bool
        Whether the device's first certificate equals the CPU's; False before the comparison.
    """

    def __init__(
        self,
        terms: Sequence[SharedTerm],
        arrays: NodeArrays,
        capacity: int,
        max_nodes: int,
        schedules: NodeSchedules = _SCHEDULES,
    ) -> None:
        self.buffers = AgentBuffers(terms, arrays, capacity * len(terms))
        self.capacity, self.max_nodes, self.schedules = capacity, max_nodes, schedules
        self.exact: bool | None = None  # whether the device's first certificate is that of the CPU
        h = self.buffers.shape.h
        self._has_table = np.stack([_pairs_with_tables(term.matrix, h) for term in terms]).astype(np.int64)
        self._step_seconds = dict[int, float]()
        self._bounds = np.zeros(len(terms) * (1 + capacity), dtype=np.int64)  # of the stored nodes
        self.bounders = [SemidefiniteBounder(self, agent) for agent in range(len(terms))]

    def run(self, work: Sequence[tuple[Bounder, SearchBatch]], stop: Deadline) -> list[BatchResult]:
        """Process one batch of each bounder: first all nodes that start from rows or continue, then the branches."""
        results = [BatchResult.unprocessed(batch) for _, batch in work]
        parts = [cast(SemidefiniteBounder, bounder).layout(batch) for bounder, batch in work]
        agent_of = np.repeat(np.arange(len(work)), [len(batch.jobs) for _, batch in work])
        index = np.concatenate([np.arange(len(batch.jobs)) for _, batch in work])
        jobs = np.concatenate([part.jobs for part in parts])
        starts = NodeStarts(*(np.concatenate(arrays) for arrays in zip(*(part.starts for part in parts), strict=True)))
        is_root = (jobs[:, JOB_SOURCE] < 0) | (jobs[:, JOB_WORK] == self.schedules.root.steps)
        for schedule, chosen in zip(self.schedules, map(np.flatnonzero, (is_root, ~is_root)), strict=True):
            first = 0
            while first < chosen.size and (count := self._affordable(schedule, stop)):
                part = chosen[first : first + count]
                found = self._bound(starts.at(part), jobs[part], schedule, stop)
                for number, (result, (bounder, _)) in enumerate(zip(results, work, strict=True)):
                    of_agent = agent_of[part] == number
                    at, (n, width) = index[part[of_agent]], bounder.allowed.shape
                    result.bounds[at], result.variables[at] = found.bounds[of_agent], found.variables[of_agent]
                    result.masks[at] = found.masks[of_agent, :n, :width]
                    result.parts[at] = found.parts[of_agent, :width]
                first += count
        return results

    def _bound(self, starts: NodeStarts, jobs: Ints, schedule: NodeSchedule, stop: Deadline) -> BatchResult:
        """Bound some nodes, and store what their branches start from.

        Parameters
        ----------
        starts : NodeStarts
            The nodes.
        jobs : (k, JOB_FIELDS) int64
            Their jobs; sources and targets are entries of the buffers.
        schedule : NodeSchedule
            The schedule of their descents.
        stop : Deadline
            The steps end early at this time; bounds are valid even then.
        """
        began, batch = time.perf_counter(), RowNodeBatch(self.buffers, starts)
        steps_made = batch.run(schedule, stop)
        bounds, gaps = self._certify(batch)
        masks, free = starts.allowed.copy(), batch.exists.sum(axis=1)
        solved = np.flatnonzero(free <= 1)
        if solved.size:
            bounds[solved] = _solve(batch, solved, masks)
        variables, parts = choose_branches(gaps, masks, self._degrees(batch))
        variables[solved] = LEAF
        # A branch that is not below its parent has not converged: it makes more steps before it is branched.
        stalled = (variables >= 0) & (schedule is self.schedules.branch) & (bounds >= self._bounds[jobs[:, JOB_SOURCE]])
        variables[stalled] = UNFINISHED
        closed = (bounds == OUT_OF_RANGE) | (bounds < jobs[:, JOB_THRESHOLD]) | (bounds == MINUS_INFINITY)
        variables[closed] = NO_VARIABLE
        stored = np.flatnonzero((variables >= 0) | (variables == UNFINISHED) | (jobs[:, JOB_SOURCE] < 0))
        self.buffers.store(batch.steps.best, stored, jobs[stored, JOB_TARGET])
        self._bounds[jobs[stored, JOB_TARGET]] = bounds[stored]
        if steps_made == schedule.steps and starts.rows.size >= min(MIN_NODES_FOR_TIMING, self.max_nodes):
            seconds = (time.perf_counter() - began) / (starts.rows.size * steps_made)
            # the first batch also loads libraries and allocates
            self._step_seconds[schedule.steps] = seconds if schedule.steps in self._step_seconds else 0.0
        return BatchResult(bounds, masks, variables, parts)

    def _degrees(self, batch: RowNodeBatch) -> Ints:
        """Return the number of free variables with which each variable shares a table, (nodes, h) int64."""
        tables = self._has_table[batch.starts.agents]
        degrees: Ints = np.einsum("ku,kuv->kv", batch.exists.astype(np.int64), tables)
        return degrees

    def _affordable(self, schedule: NodeSchedule, stop: Deadline) -> int:
        """Return the number of nodes for which memory and time suffice; 0 if the time is too short for any batch."""
        seconds = PLANNED_TIME_SHARE * stop.left
        if math.isinf(seconds):
            return self.max_nodes
        if schedule.steps * MIN_STEP_SECONDS > seconds:
            return 0
        shape = self.buffers.shape
        step_seconds = self._step_seconds.get(schedule.steps) or STEPPED_SECONDS_PER_PRODUCT * shape.n**2 * shape.r
        return min(self.max_nodes, int(seconds / (schedule.steps * step_seconds)))

    def _certify(self, batch: RowNodeBatch) -> Certificates:
        """Return the certificates of a batch.

        The CPU checks the first bound that the device computes. If they differ, the CPU computes all bounds from then
        on.
        """
        found = certificates(batch, on_host=self.exact is False)
        if self.exact is None:
            first = certify(ExactNodes.of(batch, slice(1)).on_host())
            self.exact = bool(found.bounds[0] == first.bounds[0])
            if not self.exact:
                _LOG.warning(
                    "dmcmc: semidefinite certificates of the GPU differ from the CPU's; the CPU computes all of them"
                )
                found = certificates(batch, on_host=True)
        return found


class _Layout(NamedTuple):
    """A batch of one agent with the runner's entries and array sizes.

    Attributes
    ----------
    jobs : (k, JOB_FIELDS) int64
        The jobs; sources and targets are entries of the buffers.
    starts : NodeStarts
        The nodes.
    """

    jobs: Ints
    starts: NodeStarts


class SemidefiniteBounder:
    """Bounds the nodes of one agent of a runner, a ``Bounder``.

    Parameters
    ----------
    runner : SemidefiniteRunner
        The agents' runner.
    agent : int
        The agent's index in the runner.
    """

    def __init__(self, runner: SemidefiniteRunner, agent: int) -> None:
        matrix, (root, branch) = runner.buffers.terms[agent].matrix, runner.schedules
        self.max_branches = MAX_BRANCHES
        self.runner, self.agent, self.scale, self.capacity = runner, agent, matrix.scale, runner.capacity
        self.work = NodeWork(root.steps, root.steps, branch.steps)
        self.batch_size = max(1, runner.max_nodes // DOMAIN_PARTS)
        sizes = np.diff(matrix.starts)
        self.allowed = np.zeros((sizes.size, int(sizes.max())), dtype=np.bool_)
        offsets = np.arange(matrix.variable_of.size) - matrix.starts[matrix.variable_of]
        self.allowed[matrix.variable_of, offsets] = matrix.unary >= FORBIDDEN_BELOW
        self._first_entry = len(runner.buffers.terms) + agent * runner.capacity

    def layout(self, batch: SearchBatch) -> _Layout:
        """Return a batch with the runner's entries and array sizes."""
        jobs, shape, (n, width) = batch.jobs.copy(), self.runner.buffers.shape, self.allowed.shape
        inherits = jobs[:, JOB_SOURCE] >= 0
        jobs[inherits, JOB_SOURCE] += self._first_entry
        jobs[:, JOB_TARGET] += self._first_entry
        allowed = np.zeros((len(jobs), shape.h, shape.d), dtype=np.bool_)
        allowed[:, :n, :width] = batch.masks
        agents = np.full(len(jobs), self.agent, dtype=np.int64)
        entries = np.where(inherits, jobs[:, JOB_SOURCE], self.agent)
        return _Layout(jobs, NodeStarts(agents, jobs[:, 0], allowed, entries))


def choose_branches(gaps: Floats, allowed: NDArray[np.bool_], degrees: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """Choose each node's branching variable, and partition its values.

    The variable shares the most tables with other free variables. Of several ones, it is the one whose values differ
    least: no single value then dominates, and every branch excludes much of what the relaxation combines. A domain of
    at least 2 ``DOMAIN_PARTS`` values is split into that many parts, among which the values are distributed by rank;
    a smaller one into its values. That lowers the bound further per node than two branches do.

    Parameters
    ----------
    gaps : (k, h, d) float64
        How far each value lies below the best one of its variable, see ``Certificates``.
    allowed : (k, h, d) bool
        Values that each variable may take.
    degrees : (k, h) int64
        Number of free variables with which each variable shares a table.

    Returns
    -------
    variables : (k,) int64
        Branching variables.
    parts : (k, d) uint8
        Number of the branch that each value belongs to.
    """
    counts, nodes = allowed.sum(axis=2), np.arange(len(allowed))
    finite = np.where(allowed & np.isfinite(gaps), gaps, 0.0)
    mean_gaps = finite.sum(axis=2) / np.maximum(counts, 1)
    # below 1, so that it decides only between equal degrees
    relative_gaps = 0.999 * mean_gaps / np.maximum(mean_gaps.max(axis=1, keepdims=True), 1e-9)
    variables = np.where(counts > 1, degrees - relative_gaps, -np.inf).argmax(axis=1)
    is_allowed, count = allowed[nodes, variables], counts[nodes, variables]
    order = np.argsort(np.where(is_allowed, gaps[nodes, variables], np.inf), axis=1, kind="stable")
    ranks = np.argsort(order, axis=1, kind="stable")
    branches = np.where(count < 2 * DOMAIN_PARTS, count, DOMAIN_PARTS)
    return variables, np.where(is_allowed, ranks % np.maximum(branches, 1)[:, None], 0).astype(np.uint8)


def _pairs_with_tables(matrix: UtilityMatrix, h: int) -> NDArray[np.bool_]:
    """Return which pairs of hidden variables share a table, (h, h) bool; padded variables share none."""
    first, found = matrix.starts[:-1], np.zeros((h, h), dtype=np.bool_)
    entries = np.add.reduceat(np.add.reduceat(matrix.pairs != 0, first, axis=0, dtype=np.int64), first, axis=1)
    found[: first.size, : first.size] = entries > 0
    return found


def _solve(batch: RowNodeBatch, chosen: Ints, masks: NDArray[np.bool_]) -> Ints:
    """Return the exact utilities of nodes with at most one free variable, and fix that in ``masks``."""
    (_, h, d, _), get = batch.shape, batch.buffers.arrays.get
    utilities = get(batch.values)[chosen].reshape(chosen.size, h, d)
    best = np.where(batch.exists[chosen], utilities.max(axis=2), 0)
    free = batch.exists[chosen][:, :, None]
    is_best = np.arange(d) == utilities.argmax(axis=2)[:, :, None]
    masks[chosen] = np.where(free, is_best, masks[chosen])
    constants = batch.constants[chosen]
    infeasible = (best < FORBIDDEN_BELOW).any(axis=1) | (constants < FORBIDDEN_BELOW)
    return np.where(infeasible, MINUS_INFINITY, constants + best.sum(axis=1))
