"""Join the tables of one bucket and maximise over its variable, without writing the joined table.

The picture, for a bucket that eliminates x with separator (h, l), l the trailing variables taken together::

    out[h, l] = max over x of   Σ scalars(x, h)  +  base(x, l)  +  Σ vectors(x, h, l)
                                one number           one row       one row each
                                a (h, x)             cached        contiguous in l

The loop over l is innermost and contiguous in every operand: the compiler vectorises it. Indices into h are counted
like an odometer: no division and no remainder per cell.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def join_max(arena, out, high, base, scalars, vectors, lowest, begin, end):
    """Fill rows ``begin`` to ``end`` of ``out``.

    Parameters
    ----------
    arena : (entries,) numbers
        Holds the scalar and vector tables.
    out : (rows, width) numbers
        The message; rows are the assignments of h in C order.
    high : (k,) int64
        Domain sizes of h.
    base : (domain of x, width) numbers
        The sum of the tables over x and l alone.
    scalars, vectors : (tables, 2 + k) int64
        For each table: offset in the arena, stride of x, strides of h. A scalar table does not vary with l, a vector
        table is contiguous in it.
    lowest : number
        −∞ of the arithmetic; sums are clamped to it.
    """
    k = high.size
    width = out.shape[1]
    ns, nv = scalars.shape[0], vectors.shape[0]
    digit = np.zeros(k, dtype=np.int64)
    s_at = scalars[:, 0].copy()
    v_at = vectors[:, 0].copy()
    rest = begin
    for j in range(k - 1, -1, -1):
        digit[j] = rest % high[j]
        rest //= high[j]
        for t in range(ns):
            s_at[t] += digit[j] * scalars[t, 2 + j]
        for t in range(nv):
            v_at[t] += digit[j] * vectors[t, 2 + j]
    number = out.dtype.type
    half = lowest / 2
    row = np.empty(width, dtype=out.dtype)
    for h in range(begin, end):
        best = out[h]
        best[:] = lowest
        for x in range(base.shape[0]):
            shared = number(0)
            for t in range(ns):
                shared = max(number(shared + arena[s_at[t] + x * scalars[t, 1]]), lowest)
            if shared < half:
                continue  # forbidden for every l
            below = base[x]
            if nv == 0:
                for i in range(width):
                    best[i] = max(best[i], number(below[i] + shared))
            elif nv == 1:
                at = v_at[0] + x * vectors[0, 1]
                first = arena[at : at + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(below[i] + shared) + first[i]))
            elif nv == 2:
                at = v_at[0] + x * vectors[0, 1]
                first = arena[at : at + width]
                at = v_at[1] + x * vectors[1, 1]
                second = arena[at : at + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(number(below[i] + shared) + first[i]) + second[i]))
            else:
                for i in range(width):
                    row[i] = number(below[i] + shared)
                for t in range(nv):
                    at = v_at[t] + x * vectors[t, 1]
                    other = arena[at : at + width]
                    for i in range(width):
                        row[i] = max(number(row[i] + other[i]), lowest)
                for i in range(width):
                    best[i] = max(best[i], row[i])
        for i in range(width):
            best[i] = max(best[i], lowest)
        for j in range(k - 1, -1, -1):
            digit[j] += 1
            step = 1
            if digit[j] == high[j]:
                step = 1 - high[j]
                digit[j] = 0
            for t in range(ns):
                s_at[t] += step * scalars[t, 2 + j]
            for t in range(nv):
                v_at[t] += step * vectors[t, 2 + j]
            if step == 1:
                break
