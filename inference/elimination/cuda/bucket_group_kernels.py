# mypy: ignore-errors
"""Which buckets a GPU gets, and in which order it may take them; compiled."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def group_buckets(variable, input_start, inputs, cells, given, threshold):
    """Return 0, 1, 2 for a bucket of A, G, C, and the bucket that takes each bucket's message (−1: none)."""
    n = variable.size
    taker = np.full(n, -1, dtype=np.int64)
    for b in range(n):
        for i in range(input_start[b], input_start[b + 1]):
            if inputs[i] >= given:
                taker[inputs[i] - given] = b
    large = cells >= threshold
    for b in range(1, n):  # the mini-buckets of a variable stay together
        if variable[b] == variable[b - 1]:
            large[b] |= large[b - 1]
    for b in range(n - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            large[b] |= large[b + 1]
    needed = np.zeros(n, dtype=np.bool_)  # by a bucket of G, however far
    for b in range(n - 1, -1, -1):
        if taker[b] >= 0:
            needed[b] = large[taker[b]] or needed[taker[b]]
    for b in range(n - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            needed[b] |= needed[b + 1]
    group = np.zeros(n, dtype=np.int64)
    b = 0
    while b < n:
        end = b + 1
        while end < n and variable[end] == variable[b]:
            end += 1
        fed, any_large, wanted = False, False, False
        for c in range(b, end):
            any_large |= large[c]
            wanted |= needed[c]
            for i in range(input_start[c], input_start[c + 1]):
                if inputs[i] >= given:
                    fed |= group[inputs[i] - given] > 0
        for c in range(b, end):
            group[c] = 1 if any_large or (fed and wanted) else (2 if fed else 0)
        b = end
    return group, taker


@njit(nogil=True)
def bucket_levels(input_start, inputs, given, group):
    """Return the waves of group G: a bucket's level is one more than those it takes messages of (−1 outside G)."""
    level = np.full(group.size, -1, dtype=np.int64)
    for b in range(group.size):
        if group[b] == 1:
            level[b] = 0
            for i in range(input_start[b], input_start[b + 1]):
                if inputs[i] >= given:
                    level[b] = max(level[b], level[inputs[i] - given] + 1)
    return level


@njit(nogil=True)
def best_threshold(variable, input_start, inputs, cells, given, thresholds, cell, wave):
    """Return the threshold of the cheapest division between CPU and GPU, and its seconds.

    Parameters
    ----------
    thresholds
        Joined cells from which a bucket goes to the GPU.
    cell
        Seconds of a joined cell on the CPU. What the GPU takes for one counts as nothing.
    wave
        Seconds of a wave's launches.
    """
    best, least = thresholds[0], np.inf
    for threshold in thresholds:
        group, _ = group_buckets(variable, input_start, inputs, cells, given, threshold)
        seconds, waves = 0.0, 0
        level = bucket_levels(input_start, inputs, given, group)
        for b in range(group.size):
            waves = max(waves, level[b] + 1)
            if group[b] != 1:
                seconds += cell * cells[b]
        seconds += wave * waves
        if seconds < least:
            best, least = threshold, seconds
    return best, least
