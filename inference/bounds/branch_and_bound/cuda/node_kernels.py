# mypy: ignore-errors
"""CUDA kernels over the nodes of a search: branching, bounding, storing.

GPU kernel that processes nodes of the branch and bound, one group of jobs per thread block.

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

Device functions by which a thread block chooses a node's branching variable; they agree with the CPU kernels.

``run_nodes`` calls the three functions in their order here, with all threads of the block. The max-marginal of a value
is its unary entry plus, for each pairwise table over its variable, the largest entry with this value.

Arguments that the functions share; n hidden variables, tables of W columns:

* block : Block, with the index arrays of all graphs, see ``dmcmc.inference.bounds.dual.cuda.descriptors``. A
  graph has a header, whose fields have named offsets: ``descriptors[graph + N]`` is n
* graph : int32, position of the header of the node's graph in ``descriptors``
* tables : (entries,) int32, working tables of the node, unary tables (n, W) first; the maxima of the unary and pairwise
  tables start at ``descriptors[graph + MAXIMA_AT]``
* max_marginals : (n * W + n,) int64, max-marginal of each value, followed by one score per variable

Device functions that store a node's tables in a buffer entry and fetch them; they agree with the CPU kernels.

The working tables of a node lie one after the other: unary tables, pairwise tables, three tables per triangle a, b, c
of variables, over its pairs ab, ac and bc (the triplet tables), then higher-order tables. A buffer entry holds the same
tables in the same order, but two 16-bit triplet entries per int32. A triplet entry is stored divided by
2^``bit_shift``, rounded down; its remainder is added to the pairwise table over the same two variables, so the utility
of every assignment stays the same. ``FORBIDDEN_INT16`` stands for a forbidden triplet entry.

All threads of the block call every function. Each thread loads several int32 before it uses the first one, to hide the
latency. Positions are unsigned and arithmetic is cast to 32 bits: Numba's default, signed 64-bit integers, is slower.

Arguments that the functions share:

* block : Block, with the index arrays of all graphs, see ``dmcmc.inference.bounds.dual.cuda.descriptors``. A
  graph has a header, whose fields have named offsets: ``descriptors[graph + TRIANGLES]`` is its number of triangles,
  ``TRIANGLE_TABLES_AT`` and ``FACTOR_TABLES_AT`` the starts of the triplet and the higher-order tables
* graph : int32, position of the header of the node's graph in ``descriptors``
* workspace : (entries,) int32, working tables of the block
* entry : (entry_size,) int32, a buffer entry
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
    LEAF,
    NO_VARIABLE,
    OUT_OF_RANGE,
)
from dmcmc.inference.bounds.branch_and_bound.node_kernels import FORBIDDEN_INT16, shift_for
from dmcmc.inference.bounds.contract.tuning import BRANCH_GAP_BITS, BRANCH_SHARE
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
    max_marginal,
    row_temperature_of,
    sum_of_maxima,
)
from dmcmc.inference.bounds.dual.cuda.condition_kernels import condition
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    TRIANGLE_LIST,
    TRIANGLE_PAIRS,
    TRIANGLE_RECORD,
    TRIANGLE_TABLES,
    TRIANGLE_TABLES_AT,
    TRIANGLES,
    N,
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import Block, any_thread, shared_array
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.runtime.compile import cuda_jit, device_function


@cuda.jit(device=True)
def find_max_marginals(block, graph, tables, max_marginals):
    """Compute the max-marginal of each value in its unary and pairwise tables; ``MINUS_INFINITY`` for a removed value.

    Each thread computes one value at a time.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    for task in range(np.int32(cuda.threadIdx.x), np.int32(n * width), np.int32(cuda.blockDim.x)):
        v = np.int32(task // width)
        if tables[np.uint32(task)] < FORBIDDEN_BELOW:
            max_marginals[task] = MINUS_INFINITY
        else:
            max_marginals[task] = max_marginal(block, graph, tables, v, np.int32(task - v * width))
    cuda.syncthreads()


@cuda.jit(device=True)
def score_variables(block, graph, tables, max_marginals):
    """Write each variable's score behind the max-marginals: the sum of its values' gaps, or -1 if it has one value.

    The gap of a value is the sum of the maxima of the unary and pairwise tables minus the value's max-marginal.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    for v in range(np.int32(cuda.threadIdx.x), n, np.int32(cuda.blockDim.x)):
        largest = sum_of_maxima(block, graph, tables, v)
        total_gap, n_allowed = np.int64(0), np.int32(0)
        for i in range(width):
            value = max_marginals[v * width + i]
            if value != MINUS_INFINITY:
                n_allowed += np.int32(1)
                total_gap += largest - value
        max_marginals[n * width + v] = total_gap if n_allowed > 1 else np.int64(-1)
    cuda.syncthreads()


@cuda.jit(device=True)
def choose_variable(block, graph, max_marginals, margin, in_first_branch):
    """Return the variable with the largest score, or ``LEAF`` if every variable has one value.

    The first branch takes the best value of the variable. If the values' mean gap (score / number of values) is less
    than ``margin`` / 2^``BRANCH_GAP_BITS``, it takes the best 1 / ``BRANCH_SHARE`` of the values instead: removing the
    best value alone would hardly lower the bound of the second branch.

    Parameters
    ----------
    margin : int64
        Distance by which the bound has to fall to close the node.
    in_first_branch : (W,) uint8
        Output: 1 for the values of the first branch, otherwise 0.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    chosen, highest = np.int64(LEAF), np.int64(-1)
    for v in range(n):
        if max_marginals[n * width + v] > highest:
            chosen, highest = np.int64(v), max_marginals[n * width + v]
    for i in range(np.int32(cuda.threadIdx.x), width, np.int32(cuda.blockDim.x)):
        in_first_branch[i], n_allowed, n_better = 0, np.int32(0), np.int32(0)
        if chosen >= 0 and max_marginals[chosen * width + i] != MINUS_INFINITY:
            own_value = max_marginals[chosen * width + i]
            for j in range(width):
                other = max_marginals[chosen * width + j]
                if other != MINUS_INFINITY:
                    n_allowed += np.int32(1)
                    if other > own_value or (other == own_value and j < i):
                        n_better += np.int32(1)
        if n_allowed > 0:
            # ``highest`` is the sum of the gaps of the chosen variable's values
            takes_best_only = highest // n_allowed >= margin >> BRANCH_GAP_BITS
            in_first_branch[i] = n_better < (
                np.int32(1) if takes_best_only else max(np.int32(1), np.int32(n_allowed // BRANCH_SHARE))
            )
    return chosen


_PAIRS_PER_LOAD = 8  # int32 that a thread loads before it uses the first one
_ENTRIES_PER_LOAD = 2 * _PAIRS_PER_LOAD
_shift_for = device_function(shift_for)


@cuda.jit(device=True)
def copy_entries(source, source_start, target, target_start, size):
    """Copy ``size`` int32 from ``source``, from ``source_start`` on, to ``target``, from ``target_start`` on."""
    loaded = cuda.local.array(_PAIRS_PER_LOAD, int32)
    threads = np.uint32(cuda.blockDim.x)
    i, end = np.uint32(cuda.threadIdx.x), np.uint32(size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                loaded[q] = source[np.uint32(np.uint32(source_start) + position)]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                target[np.uint32(np.uint32(target_start) + position)] = loaded[q]
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)


@cuda.jit(device=True)
def packed_sizes(descriptors, graph, width):
    """Return how many int32 the packed triplet tables and the higher-order tables take in a buffer entry.

    ``width`` is the number W of columns; three tables of W² entries per triangle take 3 W² / 2 int32.
    """
    higher_order_size = (
        np.int32(descriptors[descriptors[graph + ENTRY_START] + descriptors[graph + FACTORS]])
        if descriptors[graph + FACTORS] > 0
        else np.int32(0)
    )
    return np.int32(3 * descriptors[graph + TRIANGLES] * width * width // 2), higher_order_size


@cuda.jit(device=True)
def fetch(block, graph, entry, workspace, bit_shift):
    """Copy a buffer entry to the working tables; ``bit_shift`` is the left shift that restores the triplet entries."""
    loaded, descriptors = cuda.local.array(_PAIRS_PER_LOAD, int32), block.descriptors
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT])
    triplet_size, higher_order_size = packed_sizes(descriptors, graph, np.int32(8 * len(block.octets)))
    copy_entries(entry, 0, workspace, 0, triplets_at)
    i, end = tid, np.uint32(triplet_size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                loaded[q] = entry[np.uint32(triplets_at + position)]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                # both 16-bit halves, with their signs
                low, high = np.int32(np.int32(loaded[q] << 16) >> 16), np.int32(loaded[q] >> 16)
                target = np.uint32(triplets_at + np.uint32(2) * position)
                workspace[target] = FORBIDDEN if low == FORBIDDEN_INT16 else np.int32(low << bit_shift)
                workspace[np.uint32(target + np.uint32(1))] = (
                    FORBIDDEN if high == FORBIDDEN_INT16 else np.int32(high << bit_shift)
                )
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)
    source = triplets_at + np.uint32(triplet_size)
    copy_entries(entry, source, workspace, descriptors[graph + FACTOR_TABLES_AT], higher_order_size)
    cuda.syncthreads()


@cuda.jit(device=True)
def thread_maximum(workspace, start, size):
    """Return the calling thread's largest absolute allowed entry among ``size`` entries from ``start`` on.

    The result is 0 if the thread sees no allowed entry; forbidden entries do not count.
    """
    loaded, largest_of_thread = cuda.local.array(_ENTRIES_PER_LOAD, int32), np.int32(0)
    i, end, threads = np.uint32(cuda.threadIdx.x), np.uint32(size), np.uint32(cuda.blockDim.x)
    while i < end:
        for q in range(_ENTRIES_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            loaded[q] = workspace[np.uint32(np.uint32(start) + position)] if position < end else np.int32(0)
        for q in range(_ENTRIES_PER_LOAD):
            largest_of_thread = max(largest_of_thread, np.int32(0) if loaded[q] < FORBIDDEN_BELOW else abs(loaded[q]))
        i = np.uint32(i + np.uint32(_ENTRIES_PER_LOAD) * threads)
    return largest_of_thread


@cuda.jit(device=True)
def store(block, graph, workspace, entry, largest):
    """Store the working tables in a buffer entry; return the right shift of the triplet entries in bits.

    The working tables are invalid afterwards. ``largest`` (1,) int32, in shared memory, is workspace: it receives the
    largest absolute triplet entry.
    """
    loaded, descriptors = cuda.local.array(_ENTRIES_PER_LOAD, int32), block.descriptors
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at, width = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT]), np.int32(8 * len(block.octets))
    triplet_size, higher_order_size = packed_sizes(descriptors, graph, width)
    if tid == 0:
        largest[0] = 0
    cuda.syncthreads()
    cuda.atomic.max(largest, 0, np.int32(thread_maximum(workspace, triplets_at, 2 * triplet_size)))
    cuda.syncthreads()
    bit_shift = np.int32(_shift_for(largest[0]))
    i, end = tid, np.uint32(triplet_size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                source = np.uint32(triplets_at + np.uint32(2) * position)
                loaded[2 * q], loaded[2 * q + 1] = workspace[source], workspace[np.uint32(source + np.uint32(1))]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                low, high = loaded[2 * q], loaded[2 * q + 1]
                low = np.int32(FORBIDDEN_INT16) if low < FORBIDDEN_BELOW else np.int32(low >> bit_shift)
                high = np.int32(FORBIDDEN_INT16) if high < FORBIDDEN_BELOW else np.int32(high >> bit_shift)
                entry[np.uint32(triplets_at + position)] = np.int32((low & 0xFFFF) | (high << 16))
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)
    if bit_shift > 0:
        add_remainders(descriptors, graph, workspace, np.int32((np.int32(1) << bit_shift) - 1), np.int32(width * width))
        cuda.syncthreads()
    copy_entries(workspace, 0, entry, 0, triplets_at)
    target = triplets_at + np.uint32(triplet_size)
    copy_entries(workspace, descriptors[graph + FACTOR_TABLES_AT], entry, target, higher_order_size)
    cuda.syncthreads()
    return bit_shift


@cuda.jit(device=True)
def add_remainders(descriptors, graph, workspace, bit_mask, table_size):
    """Add the remainders of the triplet entries to the pairwise tables over the same variables.

    Each thread handles the same positions of all pairs, so no entry is updated by two threads.

    Parameters
    ----------
    bit_mask : int32
        Selects the low bits of an entry that the shift removes.
    table_size : int32
        Entries of a table, W * W.
    """
    for t in range(descriptors[graph + TRIANGLES]):
        clique = np.int32(descriptors[graph + TRIANGLE_LIST] + t * TRIANGLE_RECORD)
        for k in range(3):
            source = np.int32(descriptors[clique + TRIANGLE_TABLES] + k * table_size)
            pair = np.int32(descriptors[clique + TRIANGLE_PAIRS + k])
            for i in range(np.int32(cuda.threadIdx.x), table_size, np.int32(cuda.blockDim.x)):
                x, y = workspace[np.uint32(source + i)], workspace[np.uint32(pair + i)]
                remainder = np.int32(0) if x < FORBIDDEN_BELOW else np.int32(x & bit_mask)
                workspace[np.uint32(pair + i)] = FORBIDDEN if y < FORBIDDEN_BELOW else np.int32(y + remainder)


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
