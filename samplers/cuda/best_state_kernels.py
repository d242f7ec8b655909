# mypy: ignore-errors
"""After a launch of chains, whichever the sampler: the best state of each row."""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda.descriptors import (
    AGENT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER,
    HIDDEN,
    PART,
    PART_ROWS,
    ROWS,
    ROWS_BEFORE,
    RUNS,
    STATES_BEFORE,
    VIOLATION,
)


@cuda_jit()
def keep_best(
    entries,
    where,
    heads,
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
    """Keep the best state of each row, of its runs in this launch and of earlier rounds; ties go to the earliest."""
    block, tid, threads = np.uint32(cuda.blockIdx.x), np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    e = where[block]
    h = np.int64(entries[PART * e + AGENT]) * HEADER
    runs, rows, hidden = (
        np.uint32(heads[h + RUNS]),
        np.uint32(entries[PART * e + PART_ROWS]),
        np.uint32(heads[h + HIDDEN]),
    )
    used = np.uint32(threads - threads % np.uint32(group))
    index = (block - np.uint32(entries[PART * e + FIRST_BLOCK])) * used + tid
    if tid >= used or index % runs != 0 or index >= rows * runs:
        return
    row = np.int64(entries[PART * e + FIRST_ROW]) + np.int64(index // runs)
    slots = np.uint64(cuda.gridDim.x) * np.uint64(threads)
    slot = np.uint64(block) * np.uint64(threads) + np.uint64(tid)
    place = np.uint64(heads[h + ROWS_BEFORE] + row)
    winner, top, improved = slot, utility_before[place], False
    violation = heads[h + VIOLATION]
    half = np.int64(1) << np.int64(violation - 1) if violation > 0 else np.int64(0)
    done = repair and (violation == 0 or top > -half)  # a repair leaves rows alone that violate nothing
    for run in range(runs if not done else 0):
        utility = best_utility[slot + np.uint64(run)]
        if utility > top or (first and run == 0):
            winner, top, improved = slot + np.uint64(run), utility, True
    utility_after[place] = top
    for v in range(hidden):
        at = np.uint64(heads[h + STATES_BEFORE]) + np.uint64(v) * np.uint64(heads[h + ROWS]) + np.uint64(row)
        states_after[at] = best_states[np.uint64(v) * slots + winner] if improved else states_before[at]
