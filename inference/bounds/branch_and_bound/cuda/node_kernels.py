# mypy: ignore-errors
"""GPU kernel that processes nodes of the branch and bound, one group of jobs per thread block.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. Its bound is the sum of the maxima of its reparametrised tables, which sweeps of dual ascent lower; a sweep moves
utility between the tables of all triangles, higher-order factors and variables once. The whole graph of an agent
contains its boundary variables, the hidden graph does not: a row's tables are the slices of the whole graph's tables.

The results equal those of the CPU kernels to the bit if no sweep is smoothed; smoothed sweeps add in another order.
Tables are not compacted here: their width is a compile-time constant, and skipping rows and columns costs more time
than it saves. Positions are unsigned and arithmetic is cast to 32 bits: Numba's default, signed 64-bit integers, is
slower.

Arguments that the functions share; n hidden variables, m pairs, tables of W columns:

* block : Block, with the index arrays of all graphs, see ``dmcmc.inference.bounds.dual.cuda.descriptors``. A graph has
  a header, whose fields have named offsets: ``descriptors[graph + PAIRS]`` is its number of pairs,
  ``descriptors[graph + PAIR_AT]`` the start of its pairwise tables in ``node_tables``
* graph : int32, position of the header of the node's graph in ``descriptors``
* node_tables : (entries,) int32, working tables of the block: unary (n, W), pairs (m, W, W), three tables (W, W) per
  triangle, higher-order tables, and the n + m maxima of the unary and pairwise tables
"""

import numpy as np
from numba import cuda, int32, int64

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_AGENT,
    JOB_FIELDS,
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    NO_VARIABLE,
    OUT_OF_RANGE,
)
from dmcmc.inference.bounds.branch_and_bound.cuda.branching_kernels import (
    choose_variable,
    find_max_marginals,
    score_variables,
)
from dmcmc.inference.bounds.branch_and_bound.cuda.node_storage_kernels import fetch, store
from dmcmc.inference.bounds.dual.cuda.ascent_kernels import (
    AGENT_SIZE,
    HIDDEN_GRAPH,
    MAX_INTERFACE,
    MAX_PARTIAL_SUMS,
    MAX_REGISTERS,
    TABLES_START,
    WHOLE_GRAPH,
    bound_by_ascent,
    decode_row,
    row_temperature_of,
)
from dmcmc.inference.bounds.dual.cuda.condition_kernels import condition
from dmcmc.inference.bounds.dual.cuda.descriptors import N
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import Block, any_thread, shared_array
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.runtime.compile import cuda_jit

NOTE_FIELDS = 3  # int64 per buffer entry: the row's constant, sweeps made, right shift of the triplet tables in bits


@cuda.jit(device=True)
def next_index(counter, broadcast):
    """Return the next value of a global counter to all threads; ``broadcast`` (1,) int32 is shared memory."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        broadcast[0] = cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    return broadcast[0]


@cuda_jit(max_registers=MAX_REGISTERS)
def run_nodes(
    descriptors, agents, arena, jobs, groups, counter, workspaces, workspace_size, buffer, entry_size, entry_notes,
    bounds, variables, first_values, masks, mask_size, marginals, shared_entries, octets,
):  # fmt: skip
    """Process jobs: each block takes the next group of jobs until none is left.

    The tables of a node are stored if it has a branching variable or if the next job inherits them. If a row is
    infeasible or out of range, the jobs of the group that would inherit its tables get the same result
    (``failed_row_bound``; 0 while no row of the group has failed).

    Parameters
    ----------
    agents : (agents * AGENT_SIZE,) int64
        One record per agent: positions in ``descriptors`` of its whole and its hidden graph, start of its tables in
        ``arena``, position of its boundary variables' domain sizes, their number, and the temperature.
    arena : (entries,) int32
        Reparametrised tables of all agents' whole graphs, in which the boundary variables are free.
    jobs : (k * JOB_FIELDS,) int64
        One record per job: row number, buffer entry to inherit tables from (-1: start from the row), buffer entry to
        store the tables in, threshold, sweeps, and index of the agent.
    groups : (g + 1,) int64
        First job of each group; the jobs of a group run in order in one block.
    counter : (1,) int32
        Next group; 0 at first.
    workspaces : (blocks * workspace_size,) int32
        Working tables of the blocks.
    buffer : (entries * entry_size,) int32
        Stored tables.
    entry_notes : (entries * NOTE_FIELDS,) int64
        Record of each buffer entry: constant of its row, sweeps made, and bit shift of its triplet tables.
    bounds, variables : (k,) int64
        Outputs: upper bounds, ``MINUS_INFINITY`` or ``OUT_OF_RANGE``; branching variables, ``LEAF`` or ``NO_VARIABLE``.
    first_values : (k * W,) uint8
        Output: values of the branching variable in the first branch.
    masks : (k * mask_size,) uint8
        In: values that a node may take. Out: values that remain. The first n * W entries of a job's mask are used,
        where n is the number of hidden variables of its agent.
    marginals : (blocks * (mask_size + mask_size / W),) int64
        Workspace for max-marginals (one per value) and scores (one per variable).
    """
    block = Block(descriptors, shared_array(), shared_entries, octets)
    partial_sums = cuda.shared.array(MAX_PARTIAL_SUMS, int64)
    digits = cuda.shared.array(MAX_INTERFACE, int32)
    broadcast = cuda.shared.array(1, int32)
    tid, threads, width = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x), np.int32(8 * len(octets))
    # one max-marginal per value and one score per variable
    marginals_per_block, number = np.int64(mask_size + mask_size // width), np.int64(cuda.blockIdx.x)
    block_marginals = marginals[number * marginals_per_block : (number + 1) * marginals_per_block]
    node_tables = workspaces[number * workspace_size : (number + 1) * workspace_size]
    while True:
        group = next_index(counter, broadcast)
        if group >= groups.size - 1:
            break
        failed_row_bound = np.int64(0)
        for job in range(groups[group], groups[group + 1]):
            cuda.syncthreads()
            agent = jobs[job * JOB_FIELDS + JOB_AGENT] * AGENT_SIZE
            whole, hidden = np.int32(agents[agent + WHOLE_GRAPH]), np.int32(agents[agent + HIDDEN_GRAPH])
            agent_tables, n_values = arena[agents[agent + TABLES_START] :], np.int32(descriptors[hidden + N] * width)
            target, source = jobs[job * JOB_FIELDS + JOB_TARGET], jobs[job * JOB_FIELDS + JOB_SOURCE]
            threshold = jobs[job * JOB_FIELDS + JOB_THRESHOLD]
            constant, sweeps_made = np.int64(0), np.int32(0)
            if source < 0:
                decode_row(descriptors, agents, agent, jobs[job * JOB_FIELDS + JOB_ROW], digits)
                constant, local_overflow = condition(block, whole, hidden, agent_tables, node_tables, digits)
                overflow = any_thread(local_overflow)
                if overflow or constant == MINUS_INFINITY:
                    failed_row_bound = np.int64(
                        MINUS_INFINITY if constant == MINUS_INFINITY and not overflow else OUT_OF_RANGE
                    )
                    if tid == 0:
                        bounds[job] = failed_row_bound
                        variables[job] = NO_VARIABLE
                    continue
            elif failed_row_bound != 0:
                if tid == 0:
                    bounds[job] = failed_row_bound
                    variables[job] = NO_VARIABLE
                continue
            else:
                constant = entry_notes[source * NOTE_FIELDS]
                sweeps_made = np.int32(entry_notes[source * NOTE_FIELDS + 1])
                bit_shift = np.int32(entry_notes[source * NOTE_FIELDS + 2])
                entry = buffer[source * entry_size : (source + 1) * entry_size]
                fetch(block, hidden, entry, node_tables, bit_shift)
            cuda.syncthreads()
            mask = masks[job * mask_size : (job + 1) * mask_size]
            first_branch = first_values[job * width : (job + 1) * width]
            for i in range(tid, n_values, threads):
                if mask[i] == 0:
                    node_tables[np.uint32(i)] = FORBIDDEN
            cuda.syncthreads()
            sweeps, temperature = jobs[job * JOB_FIELDS + JOB_WORK], row_temperature_of(agents, agent)
            best, sweeps_made, in_range = bound_by_ascent(
                block, hidden, node_tables, partial_sums, constant, sweeps_made, threshold, sweeps, temperature, True
            )
            for i in range(tid, n_values, threads):
                mask[i] = node_tables[np.uint32(i)] >= FORBIDDEN_BELOW
            branch_variable = np.int64(NO_VARIABLE)
            if in_range and best != MINUS_INFINITY and best >= threshold:
                find_max_marginals(block, hidden, node_tables, block_marginals)
                score_variables(block, hidden, node_tables, block_marginals)
                branch_variable = choose_variable(block, hidden, block_marginals, best - threshold, first_branch)
            # the next job of the group starts from the tables of this one
            inherited = False
            if job + 1 < groups[group + 1] and source != target:
                inherited = jobs[(job + 1) * JOB_FIELDS + JOB_SOURCE] == target
            if branch_variable >= 0 or inherited:
                entry = buffer[target * entry_size : (target + 1) * entry_size]
                bit_shift = store(block, hidden, node_tables, entry, broadcast)
                if tid == 0:
                    entry_notes[target * NOTE_FIELDS] = constant
                    entry_notes[target * NOTE_FIELDS + 1] = sweeps_made
                    entry_notes[target * NOTE_FIELDS + 2] = bit_shift
            if tid == 0:
                bounds[job] = best
                variables[job] = branch_variable
