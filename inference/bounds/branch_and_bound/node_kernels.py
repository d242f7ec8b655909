# mypy: ignore-errors
"""Compiled loops over the nodes of a search.

CPU kernels for a node: inherit the parent's tables, remove values, ascend, prune, choose a branching variable.

``dual_bounder`` calls ``run_nodes``, which processes one group of jobs. A node is a row (an assignment of the boundary
variables) together with a mask of the values that each hidden variable may take. Its tables are the reparametrised
potentials of its hidden variables, and its bound is the sum of their maxima, which sweeps of dual ascent lower. A sweep
moves utility between the tables of all triangles, higher-order factors and variables once. The whole graph of an agent
contains its boundary variables, the hidden graph does not: a row's tables are slices of the whole graph's tables.

Values that are removed become forbidden in the unary and the pairwise tables. Tables are compacted: the remaining
values of a variable are moved to its first positions whenever it loses values. Neither step changes the effect of a
sweep on the remaining values.

Bounds and thresholds are int64 in the agent's integer scale. Table entries below ``FORBIDDEN_BELOW`` are forbidden.

Arguments that several kernels share (n hidden variables; W is the largest padded domain size):

* graph : DualGraph of the hidden variables, with the domain sizes of the compacted tables
* tables : DualPotentials, the working tables of the node: unary (n, W), pairwise (m, W, W), three tables (W, W) per
  triangle, and higher-order tables, all int32
* value_of : (n, W) int16, original value of each position in the compacted tables
* scratch : (SCRATCH_TABLES, W, W) int32, workspace of the sweeps
* halt : (1,) uint8, becomes 1 when the work has to stop

CPU kernels that store the tables of a search node in a buffer entry and fetch them again.

A branch and bound stores the tables of its open nodes, so that the children can continue the dual ascent of their
parent. The arguments are:

* buffer : NodeTableBuffer, the stored tables: arrays whose first axis is the buffer entry
* entry : int, a buffer entry, which holds one node
* workspace : WorkingTables, the tables of the node that is being processed

A triangle a, b, c (triplet region) has three int32 tables of W rows and columns, over its pairs ab, ac and bc: the
triplet tables. They are stored in 16 bits, divided by 2^shift, with the same shift for all triplet tables of a node; it
is 0 for most nodes. The remainder of each entry moves to the pairwise table over the same two variables, so the utility
of every assignment stays the same. Entries are rounded down, so the maximum of a triangle stays at most 0, as the bound
assumes.
"""

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    LEAF,
    NO_VARIABLE,
    OUT_OF_RANGE,
)
from dmcmc.inference.bounds.contract.tuning import BRANCH_GAP_BITS, BRANCH_SHARE
from dmcmc.inference.bounds.dual.ascent_kernels import bound_by_ascent, condition, decode_row
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, magnitude_of, max_marginals_of
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import padded_size
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

MAX_INT16 = (1 << 15) - 1
FORBIDDEN_INT16 = -MAX_INT16 - 1  # stands for a forbidden entry of an int16 table


@njit(nogil=True, allocates=False)
def shift_for(largest):
    """Return the right shift in bits after which the largest absolute entry fits into 16 bits."""
    shift = 0
    while largest >> shift > MAX_INT16:
        shift += 1
    return shift


@njit(nogil=True, allocates=False)
def store(buffer, entry, workspace):
    """Store the working tables in a buffer entry; the working tables are invalid afterwards.

    The shift is the smallest one after which all triplet entries fit into 16 bits.
    """
    graph, tables = workspace.graph, workspace.potentials
    triplets, stored = tables.triangle.reshape(-1), buffer.triplet[entry].reshape(-1)
    largest_magnitude = np.int32(0)
    for i in range(triplets.size):
        largest_magnitude = max(largest_magnitude, magnitude_of(triplets[i]))
    shift = shift_for(largest_magnitude)
    for i in range(triplets.size):
        stored[i] = np.int16(FORBIDDEN_INT16) if triplets[i] < FORBIDDEN_BELOW else np.int16(triplets[i] >> shift)
    if shift > 0:
        for t in range(graph.triangles.shape[0]):
            for k in range(3):
                pair = tables.pair[graph.triangles[t, k]]
                _add_remainder(tables.triangle[t, k], pair, np.int32((1 << shift) - 1))
    copy_entries(tables.pair.reshape(-1), buffer.pair[entry].reshape(-1))
    copy_entries(tables.unary.reshape(-1), buffer.unary[entry].reshape(-1))
    copy_entries(tables.higher_order, buffer.higher_order[entry])
    copy_entries(graph.domains, buffer.domains[entry])
    copy_entries(workspace.value_of.reshape(-1), buffer.value_of[entry].reshape(-1))
    buffer.bit_shifts[entry] = shift


@njit(nogil=True, allocates=False)
def _add_remainder(triplet, pair, bit_mask):
    """Add the remainders of a triplet table's entries to the pairwise table over the same variables.

    ``triplet`` and ``pair`` are (W, W) int32. ``bit_mask`` selects the low bits of an entry that the shift removes.
    """
    for i in range(triplet.shape[0]):
        for j in range(triplet.shape[1]):
            pair_entry = pair[i, j]
            remainder = np.int32(0) if triplet[i, j] < FORBIDDEN_BELOW else np.int32(triplet[i, j] & bit_mask)
            pair[i, j] = FORBIDDEN if pair_entry < FORBIDDEN_BELOW else np.int32(pair_entry + remainder)


@njit(nogil=True, allocates=False)
def fetch(buffer, entry, workspace):
    """Copy a buffer entry to the working tables; the triplet entries are multiplied by 2^shift."""
    tables = workspace.potentials
    stored, triplets = buffer.triplet[entry].reshape(-1), tables.triangle.reshape(-1)
    shift = np.int32(buffer.bit_shifts[entry])
    for i in range(stored.size):
        x = np.int32(stored[i])
        triplets[i] = FORBIDDEN if x == FORBIDDEN_INT16 else np.int32(x << shift)
    copy_entries(buffer.pair[entry].reshape(-1), tables.pair.reshape(-1))
    copy_entries(buffer.unary[entry].reshape(-1), tables.unary.reshape(-1))
    copy_entries(buffer.higher_order[entry], tables.higher_order)
    copy_entries(buffer.domains[entry], workspace.graph.domains)
    copy_entries(buffer.value_of[entry].reshape(-1), workspace.value_of.reshape(-1))


# long: the steps at a node, in order
@njit(nogil=True)
def run_nodes(
    graphs, potentials, buffer, workspace, jobs, masks, bounds, variables, first_values, temperature, scratch, halt
):
    """Process jobs in order: compute each node's bound and branching variable.

    A job whose source is -1 starts from the tables of its row; any other job inherits the stored tables of its source
    entry. The tables of a node are stored if it has a branching variable or if the next job inherits them. If a row is
    infeasible, or its tables leave the integer range, later jobs that inherit from it get the same result
    (``failed_row_bound``; 0 while no row has failed). Jobs after ``halt`` are not processed.

    Parameters
    ----------
    graphs : RowGraphs
        The agent's graph over all variables, and that over its hidden variables.
    potentials : DualPotentials
        Reparametrised tables of the whole graph, from which rows start.
    buffer : NodeTableBuffer
        Stored tables of nodes, one buffer entry per node.
    workspace : WorkingTables
        Working memory for the tables of one node.
    jobs : (k, JOB_FIELDS) int64
        The jobs of one group; only the first one may start from a row. Columns: row number, buffer entry to inherit
        tables from, buffer entry to store them in, threshold, sweeps of dual ascent, and one that is unused on the CPU.
    masks : (k, n, W) bool
        In: values that a node may take. Out: values that remain. Indexed by original values.
    bounds : (k,) int64
        Output: upper bounds, ``MINUS_INFINITY`` for an infeasible node, or ``OUT_OF_RANGE``.
    variables : (k,) int64
        Output: branching variables, or ``LEAF`` or ``NO_VARIABLE``.
    first_values : (k, W) bool
        Output: values of the branching variable in the first branch.
    temperature : float32
        Smoothing temperature of a node's first sweep; it falls during the sweeps. 0 for no smoothing.
    """
    failed_row_bound = np.int64(0)
    hidden, digits = graphs.hidden, np.zeros(graphs.shape.size, dtype=np.int64)
    max_marginals = np.zeros(potentials.unary.shape[1], dtype=np.int64)
    graph, tables, value_of = workspace.graph, workspace.potentials, workspace.value_of
    for k in range(jobs.shape[0]):
        if halt[0] != 0:
            return
        source, target, threshold = jobs[k, JOB_SOURCE], jobs[k, JOB_TARGET], jobs[k, JOB_THRESHOLD]
        if source < 0:
            decode_row(jobs[k, JOB_ROW], graphs.shape, digits)
            constant, in_range = condition(graphs, potentials, tables, digits)
            if constant == MINUS_INFINITY:
                failed_row_bound = MINUS_INFINITY if in_range else OUT_OF_RANGE
                bounds[k], variables[k] = failed_row_bound, NO_VARIABLE
                continue
            sweeps_made = np.int64(0)
            for v in range(value_of.shape[0]):
                graph.domains[v] = hidden.domains[v]
                for i in range(value_of.shape[1]):
                    value_of[v, i] = i
        elif failed_row_bound != 0:
            bounds[k], variables[k] = failed_row_bound, NO_VARIABLE
            continue
        else:
            fetch(buffer, source, workspace)
            constant, sweeps_made = buffer.row_constants[source], buffer.sweeps_made[source]
        for v in range(value_of.shape[0]):
            graph.widths[v] = padded_size(graph.domains[v])
            for i in range(graph.domains[v]):
                if not masks[k, v, value_of[v, i]]:
                    tables.unary[v, i] = FORBIDDEN
        best, sweeps_made, in_range = bound_by_ascent(
            graph, tables, value_of, constant, sweeps_made, threshold, jobs[k, JOB_WORK], temperature, scratch, halt
        )
        bounds[k] = best
        for v in range(value_of.shape[0]):
            for i in range(masks.shape[2]):
                masks[k, v, i] = False
            for i in range(graph.domains[v]):
                masks[k, v, value_of[v, i]] = tables.unary[v, i] >= FORBIDDEN_BELOW
        variables[k] = NO_VARIABLE
        if in_range and best != MINUS_INFINITY and best >= threshold:
            variables[k] = _choose(
                graph, tables, value_of, max_marginals, scratch[0, 0], best - threshold, first_values[k]
            )
        inherited = k + 1 < jobs.shape[0] and jobs[k + 1, JOB_SOURCE] == target and source != target
        if variables[k] >= 0 or inherited:
            store(buffer, target, workspace)
            buffer.row_constants[target], buffer.sweeps_made[target] = constant, sweeps_made


@njit(nogil=True)
def _choose(graph, tables, value_of, max_marginals, maxima, margin, first_values):
    """Choose the branching variable, and set ``first_values`` to the values of the first branch.

    The chosen variable has the largest sum, over its values, of the gap between the value's max-marginal and the sum of
    the maxima of the unary and pairwise tables over the variable. The gap is large for many values and for tables that
    disagree. The first branch takes the best value. If the mean gap is less than ``margin`` / 2^``BRANCH_GAP_BITS``, it
    takes the best 1 / ``BRANCH_SHARE`` of the values instead: removing the best value alone would hardly lower the
    bound of the second branch.

    Parameters
    ----------
    max_marginals : (W,) int64
        Workspace.
    maxima : (W,) int32
        Workspace, see ``pair_kernels.max_marginals_of``.
    margin : int64
        Distance by which the bound has to fall to close the node.
    first_values : (W,) bool
        Output, by original value.

    Returns
    -------
    int
        The branching variable, or ``LEAF`` if every variable has one value.
    """
    chosen, largest_gap = LEAF, np.int64(-1)
    for v in range(value_of.shape[0]):
        total, n_allowed = max_marginals_of(graph, tables, v, max_marginals, maxima)
        if n_allowed < 2:
            continue
        gap = np.int64(0)
        for i in range(graph.domains[v]):
            if max_marginals[i] != MINUS_INFINITY:
                gap += total - max_marginals[i]
        if gap > largest_gap:
            chosen, largest_gap = v, gap
    for i in range(first_values.size):
        first_values[i] = False
    if chosen >= 0:
        _, n_allowed = max_marginals_of(graph, tables, chosen, max_marginals, maxima)
        for _ in range(
            1 if largest_gap // n_allowed >= margin >> BRANCH_GAP_BITS else max(1, n_allowed // BRANCH_SHARE)
        ):
            best = -1
            for i in range(graph.domains[chosen]):
                if max_marginals[i] != MINUS_INFINITY and (best < 0 or max_marginals[i] > max_marginals[best]):
                    best = i
            first_values[value_of[chosen, best]] = True
            max_marginals[best] = MINUS_INFINITY
    return chosen
