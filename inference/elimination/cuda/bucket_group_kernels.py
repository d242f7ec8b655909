# mypy: ignore-errors
"""Assign buckets to CPU or GPU and order them into waves; compiled for the CPU.

A wave is a set of buckets that do not depend on each other, so that they share GPU launches.

Shared arguments, all int64 and fields of :class:`dmcmc.inference.elimination.plan.BucketProgram`:

variable : (buckets,)
    The variable that each bucket eliminates; consecutive buckets of one variable are its mini-buckets.
input_start, inputs : (buckets + 1,), (inputs,)
    The tables that bucket b joins are ``inputs[input_start[b]:input_start[b + 1]]``. Tables are numbered: first the
    input tables, then one message per bucket.
cells : (buckets,)
    Entries of each bucket's joined table, which is never written to memory: the bucket's work.
given : int
    Number of input tables; table ``given + b`` is the message of bucket b.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def group_buckets(variable, input_start, inputs, cells, given, threshold):
    """Return each bucket's group, and the bucket that consumes its message (−1 if none), both (buckets,) int64.

    Group 0 (A) runs on the CPU before the GPU, group 1 (G) on the GPU, group 2 (C) on the CPU afterwards. Buckets with
    at least ``threshold`` joined cells go to the GPU, and with them all buckets between two of them. All mini-buckets
    of a variable are in the same group.

    Parameters
    ----------
    variable, input_start, inputs, cells, given
        See the module.
    threshold : int
        Joined cells from which a bucket goes to the GPU.
    """
    n_buckets = variable.size
    consumer = np.full(n_buckets, -1, dtype=np.int64)
    for b in range(n_buckets):
        for i in range(input_start[b], input_start[b + 1]):
            if inputs[i] >= given:
                consumer[inputs[i] - given] = b
    large = cells >= threshold
    for b in range(1, n_buckets):  # the mini-buckets of a variable stay together
        if variable[b] == variable[b - 1]:
            large[b] |= large[b - 1]
    for b in range(n_buckets - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            large[b] |= large[b + 1]
    # whether a bucket of G consumes the message, directly or through other buckets
    needed = np.zeros(n_buckets, dtype=np.bool_)
    for b in range(n_buckets - 1, -1, -1):
        if consumer[b] >= 0:
            needed[b] = large[consumer[b]] or needed[consumer[b]]
    for b in range(n_buckets - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            needed[b] |= needed[b + 1]
    group = np.zeros(n_buckets, dtype=np.int64)
    b = 0
    while b < n_buckets:
        end = b + 1
        while end < n_buckets and variable[end] == variable[b]:
            end += 1
        has_gpu_input, any_large, any_needed = False, False, False
        for c in range(b, end):
            any_large |= large[c]
            any_needed |= needed[c]
            for i in range(input_start[c], input_start[c + 1]):
                if inputs[i] >= given:
                    has_gpu_input |= group[inputs[i] - given] > 0
        for c in range(b, end):
            group[c] = 1 if any_large or (has_gpu_input and any_needed) else (2 if has_gpu_input else 0)
        b = end
    return group, consumer


@njit(nogil=True)
def bucket_levels(input_start, inputs, given, group):
    """Return the wave of each bucket of group G, (buckets,) int64; −1 outside G.

    The level of a bucket is one more than the highest level among the buckets whose messages it consumes.
    """
    level = np.full(group.size, -1, dtype=np.int64)
    for b in range(group.size):
        if group[b] == 1:
            level[b] = 0
            for i in range(input_start[b], input_start[b + 1]):
                if inputs[i] >= given:
                    level[b] = max(level[b], level[inputs[i] - given] + 1)
    return level


@njit(nogil=True)
def best_threshold(variable, input_start, inputs, cells, given, thresholds, seconds_per_cell, seconds_per_wave):
    """Return the threshold of the cheapest division between CPU and GPU, and its estimated seconds.

    The estimate is seconds_per_cell · (joined cells of all buckets on the CPU) + seconds_per_wave · (waves on the GPU).

    Parameters
    ----------
    thresholds : (candidates,) int64
        Candidate thresholds: joined cells from which a bucket goes to the GPU.
    seconds_per_cell
        Seconds per joined cell on the CPU. The GPU's time per cell is neglected.
    seconds_per_wave
        Seconds per wave for its launches.
    """
    best, best_seconds = thresholds[0], np.inf
    for threshold in thresholds:
        group, _ = group_buckets(variable, input_start, inputs, cells, given, threshold)
        seconds, n_waves = 0.0, 0
        level = bucket_levels(input_start, inputs, given, group)
        for b in range(group.size):
            n_waves = max(n_waves, level[b] + 1)
            if group[b] != 1:
                seconds += seconds_per_cell * cells[b]
        seconds += seconds_per_wave * n_waves
        if seconds < best_seconds:
            best, best_seconds = threshold, seconds
    return best, best_seconds
