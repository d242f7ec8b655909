# mypy: ignore-errors
"""Messages of listed cliques on an NVIDIA GPU: what rows are worth, put together where they belong.

A launch makes all messages that need nothing of each other. The rows that go to one entry of a message are a group, in
the order of ``ints``; groups are cut into chunks, and a thread takes a chunk, however uneven the groups are (CUBE §IV).
Then chunks of what chunks came to are put together, until a group is one number: in the same order every time, so
the same to the bit. Sums are kept as a largest term and what all terms add up to relative to it.

A launch's words: how many messages it makes, the first chunk of each and the number of chunks (n + 1), the places of
their descriptions (n).
"""

import math

import numpy as np
from numba import config, cuda

from dmcmc.inference.runtime.compile import cuda_jit

THREADS = 8 if config.ENABLE_CUDASIM else 256  # of a block
# A description: where in ``ints`` the chunks begin, each one's first and the end; where the results go, in the messages
# if they are FINAL. Of rows: where the order of the rows is in ``ints``, the rows' keys and values (−1: none), how many
# messages are added, how many variables are observed; then place of the rows in ``ints`` (−1: as they are) and
# beginning in the messages of each that is added, and shift, mask and value of each that is observed. Of chunks: where
# those begin that are put together.
CHUNKS, TO, FINAL, FROM, KEYS, VALUES, ADDED, OBSERVED, HEADER = range(9)


@cuda.jit(device=True)
def find(words, thread):
    """Return where the description of a thread's message is, and its chunk in that; −1 for a thread too many."""
    n = words[0]
    if thread >= words[1 + n]:
        return np.int64(-1), np.int64(0)
    low, high = np.int64(0), n - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if words[1 + middle] <= thread:
            low = middle
        else:
            high = middle - 1
    return words[2 + n + low], thread - words[1 + low]


@cuda.jit(device=True)
def worth_of(row, words, at, keys, values, ints, messages, lowest):
    """Return what a row is worth, with what is added; −∞ where it is not as observed."""
    number = values.dtype.type
    key, where = keys[words[at + KEYS] + row], at + HEADER + 2 * words[at + ADDED]
    for o in range(words[at + OBSERVED]):
        if ((key >> words[where + 3 * o]) & words[where + 3 * o + 1]) != words[where + 3 * o + 2]:
            return lowest
    worth = number(0)
    if words[at + VALUES] >= 0:
        worth = values[words[at + VALUES] + row]
    for a in range(words[at + ADDED]):
        place, begin = words[at + HEADER + 2 * a], words[at + HEADER + 2 * a + 1]
        entry = row if place < 0 else np.int64(ints[place + row])
        worth = max(number(worth + messages[begin + entry]), lowest)
    return worth


@cuda.jit(device=True)
def put(top, total, other, more):
    """Return the larger of two terms, and what both add up to relative to it."""
    if other > top:
        return other, more + (total * math.exp(float(top - other)) if total > 0.0 else 0.0)
    return top, total + (more * math.exp(float(other - top)) if more > 0.0 else 0.0)


@cuda.jit(device=True)
def write(words, at, chunk, top, total, sums, lowest, half, messages, tops, totals):
    """Write what a chunk came to."""
    to = words[at + TO] + chunk
    if words[at + FINAL] == 0:
        tops[to] = top
        totals[to if sums else 0] = total
    elif sums:
        messages[to] = top + math.log(total) if total > 0.0 else lowest
    else:
        messages[to] = top if top > half else lowest


@cuda_jit()
def put_rows(words, keys, values, ints, messages, sums, lowest, half, tops, totals):
    """Put rows together, chunk by chunk."""
    at, chunk = find(words, cuda.grid(1))
    if at < 0:
        return
    first = words[at + CHUNKS] + chunk
    top, total = lowest, 0.0
    for i in range(ints[first], ints[first + 1]):
        worth = worth_of(np.int64(ints[words[at + FROM] + i]), words, at, keys, values, ints, messages, lowest)
        if not sums:
            top = max(top, worth)
        elif worth > lowest:
            top, total = put(top, total, worth, 1.0)
    write(words, at, chunk, top, total, sums, lowest, half, messages, tops, totals)


@cuda_jit()
def put_chunks(words, ints, messages, sums, lowest, half, tops, totals):
    """Put together what chunks came to."""
    at, chunk = find(words, cuda.grid(1))
    if at < 0:
        return
    first, begin = words[at + CHUNKS] + chunk, words[at + FROM]
    top, total = lowest, 0.0
    for i in range(ints[first], ints[first + 1]):
        other = tops[begin + i]
        if not sums:
            top = max(top, other)
        elif totals[begin + i] > 0.0:
            top, total = put(top, total, other, totals[begin + i])
    write(words, at, chunk, top, total, sums, lowest, half, messages, tops, totals)
