# mypy: ignore-errors
"""GPU kernels of dual ascent: sweeps on whole graphs, and bounds of rows, with one thread block per graph or row.

A row is one assignment of an agent's interface (boundary) variables. The whole graph has the interface and the hidden
variables; the hidden graph is what remains once a row is fixed. The device functions do what
``dmcmc.inference.bounds.dual.ascent_kernels`` does. Without smoothing, every bound and every allowed value equals the
CPU's to the bit. All threads of a block call every device function. The arguments that they share are:

block : Block
    Index arrays of all graphs, shared memory and the number W of columns of a table.
graph : int32
    Position of the graph's header in the index arrays.
tables : (entries,) int32
    All tables of the graph, in device memory: unary (n, W), pairs (m, W, W), triangles, higher-order factors; then the
    maxima of the unary and pairwise tables.
agents : (agents * AGENT_SIZE,) int64
    One record per agent: its graphs, tables, interface and temperature; the constants below are the fields.

An int32 entry below ``FORBIDDEN_BELOW`` is forbidden (minus infinity); an allowed entry has left the range if it is
beyond ±``MAX_MAGNITUDE``, and then no further message may be sent. Bounds and cutoffs are int64 in the agent's integer
scale. A temperature, in the same unit, smooths the maxima of the triangles' messages; 0 means exact maxima.

Positions are unsigned and arithmetic is cast to 32 bits: Numba's default, signed 64-bit integers, is slower.
"""

import numpy as np
from numba import cuda, int32, int64

from dmcmc.inference.bounds.contract.tuning import INITIAL_SWEEPS, PRUNE_EVERY, RECENTRE_EVERY, ROW_TEMPERATURE_RATIO
from dmcmc.inference.bounds.dual.cuda.condition_kernels import condition
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    DOMAINS,
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    INCIDENCE_RECORD,
    INCIDENT,
    INCIDENT_START,
    IS_FIRST,
    MAXIMA_AT,
    OTHER,
    PAIR_AT,
    PAIR_VARIABLES,
    PAIRS,
    TABLE,
    TRIANGLES,
    N,
)  # fmt: skip
from dmcmc.inference.bounds.dual.cuda.pair_kernels import higher_order_pass, variable_pass
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import Block, any_thread, shared_array, span
from dmcmc.inference.bounds.dual.cuda.triangle_kernels import recentre, triangle_pass
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import annealed_temperature
from dmcmc.inference.runtime.compile import cuda_inline, cuda_jit, device_function

# Fields of a job's record: index of the agent, row number, and cutoff or MINUS_INFINITY; length of the record.
JOB_AGENT = 0
JOB_ROW = 1
JOB_CUTOFF = 2
JOB_SIZE = 3
# Fields of an agent's record: positions in the descriptors of its whole and its hidden graph; start of its tables in
# the arena; position in the descriptors of its interface variables' domain sizes; number of interface variables;
# temperature of its first sweeps in units of 1 / TEMPERATURE_UNIT; length of the record.
WHOLE_GRAPH, HIDDEN_GRAPH, TABLES_START, INTERFACE_SHAPE, INTERFACE_SIZE, TEMPERATURE, AGENT_SIZE = range(7)
TEMPERATURE_UNIT = 1 << 16  # agents' records are integers, so temperatures are stored with 16 fractional bits
MAX_PARTIAL_SUMS = 32  # threads (a warp) that add up the maxima of tables, each a partial sum
MAX_INTERFACE = 32  # largest number of interface variables: the size of a shared array with their values
MAX_REGISTERS = 128  # per thread, so that two blocks of 256 threads share a multiprocessor
_annealed_temperature = device_function(annealed_temperature)
OUT_OF_RANGE = MINUS_INFINITY + 1  # result for a row whose entries left the range in conditioning; its bound stays


@cuda.jit(device=True)
def sweep(block, graph, tables, forward, temperature):
    """Make one sweep over triangles, higher-order factors and variables; return False if an entry left the range.

    ``forward`` visits the variables in ascending order. ``temperature`` is float32, 0 for exact maxima.
    """
    descriptors = block.descriptors
    if descriptors[graph + TRIANGLES] > 0 and not triangle_pass(block, graph, tables, temperature):
        return False
    if descriptors[graph + FACTORS] > 0 and not higher_order_pass(block, graph, tables):
        return False
    return variable_pass(block, graph, tables, forward)


@cuda.jit(device=True)
def ascend(block, graph, tables, first, last, initial_temperature, begin, sweeps):
    """Make the sweeps ``first`` to ``last`` - 1, in alternating directions; return the number of the next sweep.

    The result is less than ``last`` if an entry left the range. The annealing schedule starts at
    ``initial_temperature`` (float32) and has ``sweeps`` sweeps; sweep ``first`` is number ``begin`` of them. Every
    ``RECENTRE_EVERY`` sweeps, the tables of each triangle are recentred, so that they do not drift out of the range.
    """
    for number in range(first, last):
        temperature = _annealed_temperature(initial_temperature, np.int32(begin + number - first), sweeps)
        if not sweep(block, graph, tables, number % 2 == 0, temperature):
            return number
        if block.descriptors[graph + TRIANGLES] > 0 and number % RECENTRE_EVERY == RECENTRE_EVERY - 1:
            recentre(block, graph, tables)
    return last


@cuda.jit(device=True)
def temperature_of(agents, agent):
    """Return the temperature of an agent's first sweep on its whole graph, float32.

    ``agent`` is the position of the agent's record in ``agents``.
    """
    return np.float32(np.float32(agents[agent + TEMPERATURE]) / np.float32(TEMPERATURE_UNIT))


@cuda.jit(device=True)
def row_temperature_of(agents, agent):
    """Return the temperature of the first sweep of each row and branch-and-bound node of an agent, float32."""
    return np.float32(temperature_of(agents, agent) * ROW_TEMPERATURE_RATIO)


@cuda.jit(device=True)
def bound(block, graph, tables, partial_sums):
    """Return the sum of the maxima of all tables (int64), ``MINUS_INFINITY`` if all entries of a table are forbidden.

    Triangles are not counted, since every pass leaves a triangle with a maximum of 0. The maxima of unary and pair
    tables remain in ``tables``, in the entries that the graph reserves for them. ``partial_sums`` is shared memory for
    ``MAX_PARTIAL_SUMS`` int64 partial sums.
    """
    descriptors, width = block.descriptors, np.int32(8 * len(block.octets))
    n, m = np.int32(descriptors[graph + N]), np.int32(descriptors[graph + PAIRS])
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    maxima_start = np.int32(descriptors[graph + MAXIMA_AT])
    for q in range(tid, np.int32(n + m), threads):
        tables[np.uint32(maxima_start + q)] = FORBIDDEN
    cuda.syncthreads()
    for task in range(tid, np.int32((n + m) * width), threads):
        q = np.int32(task // width)
        column = np.int32(task - q * width)
        best = FORBIDDEN
        if q < n:
            best = tables[np.uint32(task)]
        else:
            position = np.int32(descriptors[graph + PAIR_AT] + (q - n) * width * width + column)
            for _ in range(width):
                best = max(best, tables[np.uint32(position)])
                position = np.int32(position + width)
        if best >= FORBIDDEN_BELOW:
            cuda.atomic.max(tables, np.int64(maxima_start + q), best)
    cuda.syncthreads()
    summands = min(np.int32(MAX_PARTIAL_SUMS), threads)
    if tid < summands:
        total = np.int64(0)
        for q in range(tid, np.int32(n + m), summands):
            maximum = tables[np.uint32(maxima_start + q)]
            total = (
                np.int64(MINUS_INFINITY) if maximum < FORBIDDEN_BELOW or total == MINUS_INFINITY else total + maximum
            )
        for s in range(tid, np.int32(descriptors[graph + FACTORS]), summands):
            best = FORBIDDEN
            first, last = span(descriptors, graph, ENTRY_START, s)
            for cell in range(first, last):
                best = max(best, tables[np.uint32(descriptors[graph + FACTOR_TABLES_AT] + cell)])
            total = np.int64(MINUS_INFINITY) if best < FORBIDDEN_BELOW or total == MINUS_INFINITY else total + best
        partial_sums[tid] = total
    cuda.syncthreads()
    total = np.int64(0)
    for q in range(summands):
        total = (
            np.int64(MINUS_INFINITY)
            if partial_sums[q] == MINUS_INFINITY or total == MINUS_INFINITY
            else total + partial_sums[q]
        )
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def remove_values(block, graph, tables, total_bound, constant, threshold):
    """Forbid the values whose bound is below ``threshold``, one thread per value.

    The bound of a value is the bound of the graph without its variable and the variable's pairs, plus the value's entry
    in the unary table, plus its max-marginal in each of these pairs.

    Parameters
    ----------
    total_bound : int64
        Result of the preceding call of ``bound``, whose maxima in ``tables`` are used.
    constant : int64
        Utility of the tables over interface variables alone, which is added to the bound.
    threshold : int64
        The cutoff of the row, in the integer scale.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    for task in range(np.int32(cuda.threadIdx.x), np.int32(n * width), np.int32(cuda.blockDim.x)):
        if tables[np.uint32(task)] < FORBIDDEN_BELOW:
            continue
        v = np.int32(task // width)
        value_bound = max_marginal(block, graph, tables, v, np.int32(task - v * width))
        bound_without_v = constant + total_bound - sum_of_maxima(block, graph, tables, v)
        if value_bound < FORBIDDEN_BELOW or bound_without_v + value_bound < threshold:
            tables[np.uint32(task)] = FORBIDDEN
    cuda.syncthreads()


@cuda.jit(device=True)
def max_marginal(block, graph, tables, v, i):
    """Return the entry of value i of v in the unary table plus its largest entry in each pairwise table over v (int64).

    ``v`` and ``i`` are int32.
    """
    descriptors, width = block.descriptors, np.int32(8 * len(block.octets))
    total = np.int64(tables[np.uint32(v * width + i)])
    first, last = span(descriptors, graph, INCIDENT_START, v)
    for position in range(first, last):
        incidence = np.int32(descriptors[graph + INCIDENT] + position * INCIDENCE_RECORD)
        is_first = descriptors[incidence + IS_FIRST] != 0
        cell = np.int32(descriptors[incidence + TABLE] + (i * width if is_first else i))
        step = np.int32(1) if is_first else width
        best = FORBIDDEN
        for _ in range(descriptors[descriptors[graph + DOMAINS] + descriptors[incidence + OTHER]]):
            best = max(best, tables[np.uint32(cell)])
            cell = np.int32(cell + step)
        total += best
    return total


@cuda.jit(device=True)
def sum_of_maxima(block, graph, tables, v):
    """Return the sum of the maxima of v's unary and pairwise tables (int64), which ``bound`` has left in ``tables``."""
    descriptors, width = block.descriptors, np.int32(8 * len(block.octets))
    maxima_start = np.int32(descriptors[graph + MAXIMA_AT])
    total = np.int64(tables[np.uint32(maxima_start + v)])
    first, last = span(descriptors, graph, INCIDENT_START, v)
    for position in range(first, last):
        table = descriptors[np.int32(descriptors[graph + INCIDENT] + position * INCIDENCE_RECORD) + TABLE]
        # number of the pair, from the start of its table
        e = np.int32((table - descriptors[graph + PAIR_AT]) // (width * width))
        total += tables[np.uint32(maxima_start + descriptors[graph + N] + e)]
    return total


@cuda.jit(device=True)
def decode_row(descriptors, agents, agent, row, digits):
    """Write the value of each interface variable in a row, given the row's number, to the shared array ``digits``."""
    if cuda.threadIdx.x == 0:
        for k in range(agents[agent + INTERFACE_SIZE] - 1, -1, -1):
            size = descriptors[agents[agent + INTERFACE_SHAPE] + k]
            digits[k] = row % size
            row = row // size
    cuda.syncthreads()


@cuda.jit(device=True)
def propagate_removals(block, graph, tables):
    """Forbid the values that are forbidden in the unary tables in the pairwise tables as well.

    Each thread handles one row or column of a table at a time: pair e has W rows for the values of its first variable,
    then W columns for those of its second one.
    """
    descriptors, width = block.descriptors, np.uint32(8 * len(block.octets))
    pairs_start = np.uint32(descriptors[graph + PAIR_AT])
    pair_variables = np.uint32(descriptors[graph + PAIR_VARIABLES])
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(np.uint32(descriptors[graph + PAIRS]) * np.uint32(2 * width))
    while task < total:
        e = np.uint32(task // np.uint32(2 * width))
        i = np.uint32(task - e * np.uint32(2 * width))
        is_second = i >= width
        i = np.uint32(i - width) if is_second else i
        v = np.uint32(descriptors[np.uint32(pair_variables + e + e + (np.uint32(1) if is_second else np.uint32(0)))])
        if tables[np.uint32(v * width + i)] < FORBIDDEN_BELOW:
            cell = np.uint32(pairs_start + e * width * width + (i if is_second else i * width))
            for _ in range(8 * len(block.octets)):
                tables[cell] = FORBIDDEN
                cell = np.uint32(cell + (width if is_second else np.uint32(1)))
        task = np.uint32(task + np.uint32(cuda.blockDim.x))
    cuda.syncthreads()


@cuda_inline
def bound_by_ascent(block, graph, tables, partial_sums, constant, sweeps_made, threshold, sweeps, temperature, is_node):
    """Alternate sweeps of dual ascent with the removal of values whose bound is below the threshold.

    Values are removed every ``PRUNE_EVERY`` sweeps. The loop ends as soon as the bound is below the threshold. The
    removed values of a search node also become forbidden in its pairwise tables. A row without a threshold loses no
    values.

    Parameters
    ----------
    partial_sums : (MAX_PARTIAL_SUMS,) int64
        Shared memory for reductions.
    constant : int64
        Utility of the factors over interface variables alone, which is added to the bound of the tables.
    sweeps_made : int32
        Sweeps made since the row was fixed, including those of the node's ancestors; its parity gives the direction of
        the next sweep.
    threshold : int64
        Pruning threshold of the bound; ``MINUS_INFINITY`` if there is none.
    sweeps : int64
        Maximum number of sweeps.
    temperature : float32
        Smoothing temperature of the first of these sweeps.
    is_node : bool
        Whether the tables are those of a search node, not of a row.

    Returns
    -------
    best : int64
        Upper bound, or ``MINUS_INFINITY`` if the row or node is infeasible.
    sweeps_made : int32
        Total number of sweeps, including those made before.
    in_range : bool
        Whether all entries are within the integer range.
    """
    sweeps_done, in_range, prunes = np.int32(0), True, is_node or threshold > MINUS_INFINITY
    if is_node:
        propagate_removals(block, graph, tables)
    while True:
        best = bound(block, graph, tables, partial_sums)
        if best == MINUS_INFINITY or constant + best < threshold:
            break
        if prunes:
            remove_values(block, graph, tables, best, constant, threshold)
        if is_node:
            propagate_removals(block, graph, tables)
        if not in_range or sweeps_done >= sweeps:
            best = bound(block, graph, tables, partial_sums)
            break
        next_check = min(np.int32(sweeps), np.int32(sweeps_done + PRUNE_EVERY)) if prunes else np.int32(sweeps)
        # ``ascend`` counts sweeps since the row was fixed, ``next_check`` those of this call.
        sweep_limit = np.int32(sweeps_made + next_check - sweeps_done)
        sweeps_reached = ascend(
            block, graph, tables, sweeps_made, sweep_limit, temperature, sweeps_done, np.int32(sweeps)
        )
        in_range = sweeps_reached == sweep_limit
        sweeps_made, sweeps_done = np.int32(sweeps_reached), next_check
        cuda.syncthreads()
    return np.int64(MINUS_INFINITY) if best == MINUS_INFINITY else best + constant, sweeps_made, in_range


@cuda_jit(max_registers=MAX_REGISTERS)
def sweep_graphs(descriptors, agents, arena, chosen, firsts, lasts, next_sweeps, shared_size, octets):
    """Make sweeps on whole graphs: block k makes the sweeps ``firsts[k]`` to ``lasts[k]`` - 1 of agent ``chosen[k]``.

    Parameters
    ----------
    descriptors : (entries,) int32
    agents : (agents * AGENT_SIZE,) int64
    arena : (entries,) int32
        Tables of all agents' whole graphs; changed in place.
    chosen, firsts, lasts : (blocks,) int64
        Index of the agent; numbers of its first sweep and of the sweep after its last.
    next_sweeps : (blocks,) int64
        Receives the number of the next sweep of each agent; less than ``lasts`` if an entry left the range.
    shared_size : int
        Number of int32 entries of dynamic shared memory per block.
    octets : tuple of W / 8 zeros
    """
    block, number = Block(descriptors, shared_array(), shared_size, octets), cuda.blockIdx.x
    agent = np.int64(chosen[number]) * AGENT_SIZE
    graph = np.int32(agents[agent + WHOLE_GRAPH])
    tables = arena[agents[agent + TABLES_START] :]
    first, last = np.int32(firsts[number]), np.int32(lasts[number])
    initial_temperature = temperature_of(agents, agent)
    next_sweep = ascend(block, graph, tables, first, last, initial_temperature, first, INITIAL_SWEEPS)
    if cuda.threadIdx.x == 0:
        next_sweeps[number] = next_sweep


@cuda_jit(max_registers=MAX_REGISTERS)
def bound_rows(descriptors, agents, arena, jobs, workspace, block_entries, sweeps, bounds, shared_size, octets):
    """Bound rows: block k takes the jobs k, k + blocks, and so on.

    Parameters
    ----------
    descriptors : (entries,) int32
    agents : (agents * AGENT_SIZE,) int64
    arena : (entries,) int32
        Tables of all agents' whole graphs.
    jobs : (jobs * JOB_SIZE,) int64
        One record per job: index of the agent, row number in C order over the interface, and cutoff, which removes
        values with which the row stays below it; ``MINUS_INFINITY`` removes nothing.
    workspace : (blocks * block_entries,) int32
        Workspace for the tables of each block's hidden graph.
    block_entries : int
        Number of workspace entries per block.
    sweeps : int
        Sweeps per row.
    bounds : (jobs,) int64
        Receives the bound in the agent's integer scale; ``MINUS_INFINITY`` for an infeasible row, ``OUT_OF_RANGE`` if
        an entry left the range in conditioning, so that there is no new bound.
    shared_size : int
        Number of int32 entries of dynamic shared memory per block.
    octets : tuple of W / 8 zeros
    """
    block = Block(descriptors, shared_array(), shared_size, octets)
    partial_sums = cuda.shared.array(MAX_PARTIAL_SUMS, int64)
    digits = cuda.shared.array(MAX_INTERFACE, int32)
    tid = np.int32(cuda.threadIdx.x)
    conditioned = workspace[np.int64(cuda.blockIdx.x) * block_entries :]
    for job in range(cuda.blockIdx.x, bounds.size, cuda.gridDim.x):
        agent = jobs[job * JOB_SIZE + JOB_AGENT] * AGENT_SIZE
        whole, hidden = np.int32(agents[agent + WHOLE_GRAPH]), np.int32(agents[agent + HIDDEN_GRAPH])
        tables = arena[agents[agent + TABLES_START] :]
        cutoff, temperature = jobs[job * JOB_SIZE + JOB_CUTOFF], row_temperature_of(agents, agent)
        cuda.syncthreads()
        decode_row(descriptors, agents, agent, jobs[job * JOB_SIZE + JOB_ROW], digits)
        constant, overflow = condition(block, whole, hidden, tables, conditioned, digits)
        fits = not any_thread(overflow)
        best = np.int64(OUT_OF_RANGE)
        if constant == MINUS_INFINITY:
            best = np.int64(MINUS_INFINITY)
        elif fits:
            best, _, _ = bound_by_ascent(
                block, hidden, conditioned, partial_sums, constant, np.int32(0), cutoff, sweeps, temperature, False
            )
            if cutoff > MINUS_INFINITY:
                # Removed values are only known to stay below the cutoff.
                best = max(best, cutoff - 1)
        if tid == 0:
            bounds[job] = best
        cuda.syncthreads()
