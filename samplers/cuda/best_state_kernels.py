# mypy: ignore-errors
"""Select the best state of each row after a launch of chains of any sampler.

A row is an assignment of the agent's boundary variables; several chains, its runs, sample its hidden variables. The
utility of a state in chain units is its scaled utility minus 2^k per violation; k is the agent's ``VIOLATION_SHIFT``.
So more than half of −2^k means that there is no violation. Headers and launch parts are indexed by the constants of
``dmcmc.samplers.cuda.descriptors``.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda.descriptors import (
    AGENT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER_SIZE,
    HIDDEN,
    PART_ROWS,
    PART_SIZE,
    ROWS,
    ROWS_BEFORE,
    RUNS,
    STATES_BEFORE,
    VIOLATION_SHIFT,
)


@cuda_jit()
def select_best_states(
    parts,
    part_of_block,
    headers,
    group,
    first,
    repair,
    best_states,
    best_utility,
    states_before,
    utility_before,
    states_after,
    utility_after,
):
    """Select the best state of each row among its runs in this launch and the earlier rounds; ties go to the earliest.

    The launch has the grid of the chains' kernel: one thread per chain, a row's runs in consecutive threads. The thread
    of the row's run 0 compares the runs; the others end at once. If ``group`` does not divide the threads of a block,
    the last threads of the block have no chain.

    Parameters
    ----------
    parts : (parts · PART_SIZE,) int64
        The parts of the launch: rows of one agent in consecutive blocks, see ``dmcmc.samplers.cuda.descriptors``.
    part_of_block : (blocks,) int32
        The part that each block works on.
    headers : (agents · HEADER_SIZE,) int64
        The agents' headers, see ``dmcmc.samplers.cuda.descriptors``.
    group : int
        Number of chains that must be in one block: the runs of a row if they exchange states, otherwise 1.
    first : bool
        Whether this is the first round, so that rows have no state yet.
    repair : bool
        Whether this round samples only rows whose state has a violation; the other rows keep their state.
    best_states : (hidden · all threads,) uint8 or uint16
        Best state of each chain; variables first, then threads.
    best_utility : (all threads,) int64
        Utility of each chain's best state, in chain units.
    states_before, states_after : (values,) uint8 or uint16
        States of the rows before and after this round: for each agent (hidden, rows). ``states_after`` is written.
    utility_before, utility_after : (rows of all agents,) int64
        Utilities of these states in chain units. ``utility_after`` is written.
    """
    block, tid, threads = np.uint32(cuda.blockIdx.x), np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    part = part_of_block[block]
    h = np.int64(parts[PART_SIZE * part + AGENT]) * HEADER_SIZE
    runs, rows, hidden = (
        np.uint32(headers[h + RUNS]),
        np.uint32(parts[PART_SIZE * part + PART_ROWS]),
        np.uint32(headers[h + HIDDEN]),
    )
    chain_threads = np.uint32(threads - threads % np.uint32(group))
    chain = (block - np.uint32(parts[PART_SIZE * part + FIRST_BLOCK])) * chain_threads + tid
    if tid >= chain_threads or chain % runs != 0 or chain >= rows * runs:
        return
    row = np.int64(parts[PART_SIZE * part + FIRST_ROW]) + np.int64(chain // runs)
    all_threads = np.uint64(cuda.gridDim.x) * np.uint64(threads)
    thread = np.uint64(block) * np.uint64(threads) + np.uint64(tid)
    row_at = np.uint64(headers[h + ROWS_BEFORE] + row)
    winner, best, improved = thread, utility_before[row_at], False
    violation = headers[h + VIOLATION_SHIFT]
    half_violation = np.int64(1) << np.int64(violation - 1) if violation > 0 else np.int64(0)
    # Repair rounds skip rows without violations, whose utility is above −2^k / 2.
    skipped = repair and (violation == 0 or best > -half_violation)
    for run in range(runs if not skipped else 0):
        utility = best_utility[thread + np.uint64(run)]
        if utility > best or (first and run == 0):
            winner, best, improved = thread + np.uint64(run), utility, True
    utility_after[row_at] = best
    for v in range(hidden):
        at = np.uint64(headers[h + STATES_BEFORE]) + np.uint64(v) * np.uint64(headers[h + ROWS]) + np.uint64(row)
        states_after[at] = best_states[np.uint64(v) * all_threads + winner] if improved else states_before[at]
