# mypy: ignore-errors
"""Messages of sparse cliques on an NVIDIA GPU: compute the values of rows and reduce them per target entry.

A row is an allowed assignment of a clique's variables, packed into one int64 key; only allowed rows are stored (the
CUBE paper calls such tables incomplete). A launch computes all messages that do not depend on each other. The rows
that project to one entry of a message form a group; ``ints`` holds the rows ordered by group. Groups are cut into
chunks, and one thread reduces one chunk, however uneven the groups are (CUBE §IV). Further launches reduce the results
of chunks until one number per group is left. The order is always the same, hence results are reproducible bit by bit.
A sum is stored as its largest term and the sum of all terms relative to it.

The descriptor of a launch (int64): number n of messages, first chunk of each and number of chunks (n + 1 values),
position of each message's record (n values), then the records.

Shared arguments
----------------
descriptor : int64
    The descriptor of the launch.
keys : (rows,) int64; values : (rows,)
    Packed keys and utilities of the rows of all cliques and separators.
ints : int32
    Orders of rows, starts of chunks, and indices of rows in separators.
messages : (entries,)
    All messages and marginals, in the dtype of the arithmetic.
sums : bool
    Whether exponentials are summed; otherwise the maximum is taken.
lowest, half
    The −∞ of the arithmetic, and the bound below which a sum means −∞.
tops : (chunks,); totals : (chunks,) float64
    Largest term of each chunk, and the sum of its terms relative to it; ``totals`` is used for sums only.
"""

import math

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.cuda.join_kernels import last_at_most
from dmcmc.inference.runtime.compile import cuda_jit

THREADS = 8 if config.ENABLE_CUDASIM else 256  # threads per block
# A record. CHUNKS: position in ``ints`` of the chunks' starts and their end. TO: position of the results, in
# ``messages`` if FINAL, otherwise in ``tops``. For rows: FROM: position in ``ints`` of the order of the rows; KEYS,
# VALUES: offset of the rows' keys and values (−1: none); ADDED, OBSERVED: numbers of added messages and of observed
# variables. The record continues with, for each added message, the position in ``ints`` of the rows' indices (−1: the
# row itself) and the offset in ``messages``, and for each observed variable shift, mask and value. For chunks: FROM is
# the first chunk that is reduced.
CHUNKS, TO, FINAL, FROM, KEYS, VALUES, ADDED, OBSERVED, HEADER = range(9)


@cuda.jit(device=True)
def find(descriptor, thread):
    """Return the position of the record of a thread's message, and its chunk there; −1 for a thread without a chunk."""
    n = descriptor[0]
    if thread >= descriptor[1 + n]:
        return np.int64(-1), np.int64(0)
    i = last_at_most(descriptor, 1, n, thread)
    return descriptor[2 + n + i], thread - descriptor[1 + i]


@cuda.jit(device=True)
def row_value(row, descriptor, at, keys, values, ints, messages, lowest):
    """Return the value of a row with the added messages; −∞ if it disagrees with the evidence.

    ``at`` is the position of the message's record in ``descriptor``; ``row`` is relative to the record's KEYS and
    VALUES.
    """
    number = values.dtype.type
    key, observed_at = keys[descriptor[at + KEYS] + row], at + HEADER + 2 * descriptor[at + ADDED]
    for o in range(descriptor[at + OBSERVED]):
        if ((key >> descriptor[observed_at + 3 * o]) & descriptor[observed_at + 3 * o + 1]) != descriptor[
            observed_at + 3 * o + 2
        ]:
            return lowest
    value = number(0)
    if descriptor[at + VALUES] >= 0:
        value = values[descriptor[at + VALUES] + row]
    for a in range(descriptor[at + ADDED]):
        indices, begin = descriptor[at + HEADER + 2 * a], descriptor[at + HEADER + 2 * a + 1]
        entry = row if indices < 0 else np.int64(ints[indices + row])
        value = max(number(value + messages[begin + entry]), lowest)
    return value


@cuda.jit(device=True)
def merge_terms(top, total, other_top, other_total):
    """Merge two partial log-sum-exps, each a largest term and the sum of its terms relative to it."""
    if other_top > top:
        return other_top, other_total + (total * math.exp(float(top - other_top)) if total > 0.0 else 0.0)
    return top, total + (other_total * math.exp(float(other_top - top)) if other_total > 0.0 else 0.0)


@cuda.jit(device=True)
def write(descriptor, at, chunk, top, total, sums, lowest, half, messages, tops, totals):
    """Write the result of a chunk: to ``messages`` if it is final, otherwise to ``tops`` and ``totals``.

    ``at`` is the position of the message's record in ``descriptor``.
    """
    target = descriptor[at + TO] + chunk
    if descriptor[at + FINAL] == 0:
        tops[target] = top
        totals[target if sums else 0] = total
    elif sums:
        messages[target] = top + math.log(total) if total > 0.0 else lowest
    else:
        messages[target] = top if top > half else lowest


@cuda_jit()
def reduce_rows(descriptor, keys, values, ints, messages, sums, lowest, half, tops, totals):
    """Reduce chunks of rows; one thread per chunk."""
    at, chunk = find(descriptor, cuda.grid(1))
    if at < 0:
        return
    first = descriptor[at + CHUNKS] + chunk
    top, total = lowest, 0.0
    for i in range(ints[first], ints[first + 1]):
        value = row_value(
            np.int64(ints[descriptor[at + FROM] + i]), descriptor, at, keys, values, ints, messages, lowest
        )
        if not sums:
            top = max(top, value)
        elif value > lowest:
            top, total = merge_terms(top, total, value, 1.0)
    write(descriptor, at, chunk, top, total, sums, lowest, half, messages, tops, totals)


@cuda_jit()
def reduce_chunks(descriptor, ints, messages, sums, lowest, half, tops, totals):
    """Reduce chunks of the results of chunks; one thread per chunk."""
    at, chunk = find(descriptor, cuda.grid(1))
    if at < 0:
        return
    first, begin = descriptor[at + CHUNKS] + chunk, descriptor[at + FROM]
    top, total = lowest, 0.0
    for i in range(ints[first], ints[first + 1]):
        other = tops[begin + i]
        if not sums:
            top = max(top, other)
        elif totals[begin + i] > 0.0:
            top, total = merge_terms(top, total, other, totals[begin + i])
    write(descriptor, at, chunk, top, total, sums, lowest, half, messages, tops, totals)
