# mypy: ignore-errors
"""Fixing an agent's interface, by a block of GPU threads: what is left of its tables, and a constant."""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CLUSTER_AT,
    CORNER,
    DOMAINS,
    ENDS,
    ENTRY_AT,
    PAIR,
    PAIR_AT,
    PAIRS,
    SCOPE_AT,
    SCOPES,
    SLICES,
    STAR_AT,
    STARS,
    TRIANGLES,
    N,
)  # fmt: skip
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD


@cuda.jit(device=True)
def fix(words, whole, hidden, tables, part, octets, digits):
    """Set ``part`` to what is left with the interface at ``digits``; return its constant, whether an entry is large.

    The constant is NEVER if the interface alone is forbidden. An entry of ``part`` is made by one thread from start to
    end, the copy of its tables but for the stars included: nothing waits in between.
    """
    width, n = np.int32(8 * len(octets)), np.int32(words[hidden + N])
    square = np.int32(width * width)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    copy(tables, np.int32(0), part, np.int32(0), np.int32(n * width))
    pairs, cliques = np.int32(words[hidden + PAIRS]), np.int32(words[hidden + TRIANGLES])
    for e in range(pairs):
        copy(tables, words[whole + PAIR_AT] + e * square, part, words[hidden + PAIR_AT] + e * square, square)
    copy(tables, words[whole + CLUSTER_AT], part, words[hidden + CLUSTER_AT], np.int32(3 * cliques * square))
    constant, over = np.int64(0), False
    for x in range(n, words[whole + N]):
        alone = tables[np.uint32(x * width + digits[x - n])]
        if alone < THRESHOLD:
            return np.int64(NEVER), over
        constant += alone
    for e in range(pairs, words[whole + PAIRS]):
        a, b = np.int32(words[words[whole + ENDS] + 2 * e]), np.int32(words[words[whole + ENDS] + 2 * e + 1])
        entry, large = fix_pair(tables, words[whole + PAIR_AT] + e * square, part, a, b, n, width, digits)
        if entry < THRESHOLD:
            return np.int64(NEVER), over
        over = over or large
        constant += entry
    for k in range(words[whole + TRIANGLES]):
        clique = np.int32(words[whole + CLIQUES] + k * CLIQUE)
        a, b, c = words[clique + CORNER], words[clique + CORNER + 1], words[clique + CORNER + 2]
        if c < n:
            continue
        at = np.int32(words[clique + CLUSTER])
        first, large = np.int64(0), False
        if b < n:
            into = np.int32(words[hidden + PAIR_AT] + words[clique + PAIR] - words[whole + PAIR_AT])
            for cell in range(tid, square, threads):
                x = np.int32(part[np.uint32(into + cell)] + tables[np.uint32(at + cell)])
                x = DEAD if x < THRESHOLD else x
                large = large or (x >= THRESHOLD and abs(x) > LIMIT)
                part[np.uint32(into + cell)] = x
        else:
            first, large = fix_pair(tables, at, part, a, b, n, width, digits)
        second, large_second = fix_pair(tables, at + square, part, a, c, n, width, digits)
        third, large_third = fix_pair(tables, at + 2 * square, part, b, c, n, width, digits)
        if min(first, min(second, third)) < THRESHOLD:
            return np.int64(NEVER), over
        over = over or large or large_second or large_third
        constant += first + second + third
    kept = np.int32(0)
    for s in range(words[whole + STARS]):
        scope = np.int32(words[whole + SCOPES] + words[words[whole + SCOPE_AT] + s])
        end = np.int32(words[whole + SCOPES] + words[words[whole + SCOPE_AT] + s + 1])
        at = np.int32(words[whole + STAR_AT] + words[words[whole + ENTRY_AT] + s])
        if kept < words[hidden + STARS] and words[words[hidden + SLICES] + kept] == s:
            into = np.int32(words[hidden + STAR_AT] + words[words[hidden + ENTRY_AT] + kept])
            entries = words[words[hidden + ENTRY_AT] + kept + 1] - words[words[hidden + ENTRY_AT] + kept]
            for cell in range(tid, entries, threads):
                place, step, rest = np.int32(0), np.int32(1), np.int32(cell)
                for q in range(end - 1, scope - 1, -1):
                    u = np.int32(words[q])
                    d = np.int32(words[words[whole + DOMAINS] + u])
                    if u < n:
                        place = np.int32(place + (rest % d) * step)
                        rest = np.int32(rest // d)
                    else:
                        place = np.int32(place + digits[u - n] * step)
                    step = np.int32(step * d)
                part[np.uint32(into + cell)] = tables[np.uint32(at + place)]
            kept = np.int32(kept + 1)
            continue
        place = np.int32(0)
        for q in range(scope, end):
            place = np.int32(place * words[words[whole + DOMAINS] + words[q]] + digits[words[q] - n])
        entry = tables[np.uint32(at + place)]
        if entry < THRESHOLD:
            return np.int64(NEVER), over
        constant += entry
    return constant, over


@cuda.jit(device=True)
def copy(source, at, target, to, size):
    """Copy entries, each thread the same ones of a table, wherever it is."""
    for i in range(np.int32(cuda.threadIdx.x), np.int32(size), np.int32(cuda.blockDim.x)):
        target[np.uint32(to + i)] = source[np.uint32(at + i)]


@cuda.jit(device=True)
def fix_pair(tables, at, part, a, b, n, width, digits):
    """Add what is left of a table over a and b, b in the interface, to a's; return the entry if a is fixed too."""
    y = np.int32(digits[b - n])
    if a >= n:
        return np.int64(tables[np.uint32(at + digits[a - n] * width + y)]), False
    over = False
    # The thread that copied an entry of a's table adds to it.
    begin = np.int32(a * width)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    i = np.int32((tid - begin % threads + threads) % threads)
    while i < width:
        x = np.int32(part[np.uint32(begin + i)] + tables[np.uint32(at + i * width + y)])
        x = DEAD if x < THRESHOLD else x
        over = over or (x >= THRESHOLD and abs(x) > LIMIT)
        part[np.uint32(begin + i)] = x
        i = np.int32(i + threads)
    return np.int64(0), over
