# mypy: ignore-errors
"""Rows of an incomplete table extended, joined and filtered, a block at a time.

A row is a packed key, a field of bits for each variable, and a vector of values, one for each value of the variable
that the bucket eliminates. Keys grow at their low end, so what is made from sorted rows is sorted. What a row may be
worth, its own value plus bounds on all that is not in it, is looked up in dense tables; a row goes that cannot win.

Both kernels that make rows can be resumed: they stop when their block is full, and say where.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

DIGIT = 11  # bits of a pass of the radix sort


@njit(nogil=True)
def repack(keys, shift, mask, to):
    """Return keys with their fields moved: field j, at ``shift[j]``, comes to ``to[j]``; others are left out."""
    out = np.zeros(keys.size, dtype=np.int64)
    for i in range(keys.size):
        key, packed = keys[i], np.int64(0)
        for j in range(shift.size):
            packed |= ((key >> shift[j]) & mask[j]) << to[j]
        out[i] = packed
    return out


@njit(nogil=True)
def radix_sort(keys, values, bits):
    """Sort keys of so many bits, and values with them, in place; least digits first, stable."""
    n = keys.size
    other_keys, other_values = np.empty_like(keys), np.empty_like(values)
    a_keys, a_values, b_keys, b_values = keys, values, other_keys, other_values
    swapped = False
    for low in range(0, bits, DIGIT):
        place = np.zeros((1 << DIGIT) + 1, dtype=np.int64)
        last = (1 << DIGIT) - 1
        for i in range(n):
            place[((a_keys[i] >> low) & last) + 1] += 1
        if place.max() == n:  # all alike
            continue
        for d in range(1 << DIGIT):
            place[d + 1] += place[d]
        for i in range(n):
            d = (a_keys[i] >> low) & last
            b_keys[place[d]] = a_keys[i]
            b_values[place[d]] = a_values[i]
            place[d] += 1
        a_keys, a_values, b_keys, b_values = b_keys, b_values, a_keys, a_values
        swapped = not swapped
    if swapped:
        copy_entries(a_keys, keys)
        copy_entries(a_values, values)


@njit(nogil=True)
def starts_of(keys, shift):
    """Return where each run of equal ``keys >> shift`` begins, and the end: (runs + 1,) int64."""
    runs = 0
    for i in range(keys.size):
        if i == 0 or keys[i] >> shift != keys[i - 1] >> shift:
            runs += 1
    start = np.empty(runs + 1, dtype=np.int64)
    runs = 0
    for i in range(keys.size):
        if i == 0 or keys[i] >> shift != keys[i - 1] >> shift:
            start[runs] = i
            runs += 1
    start[runs] = keys.size
    return start


@njit(nogil=True)
def list_finite(table, half, sizes, to, keys, values):
    """Write the entries of a dense table that are not −∞, in C order over ``sizes``; return how many there are.

    ``to`` (k,) is where each variable's field begins.
    """
    digit = np.zeros(sizes.size, dtype=np.int64)
    count, key = 0, np.int64(0)
    for i in range(table.size):
        if table[i] > half:
            keys[count] = key
            values[count] = table[i]
            count += 1
        for j in range(sizes.size - 1, -1, -1):
            digit[j] += 1
            key += np.int64(1) << to[j]
            if digit[j] < sizes[j]:
                break
            key -= digit[j] << to[j]
            digit[j] = 0
    return count


@njit(nogil=True)
def spread_out(keys, values, shift, mask, stride, table):
    """Write rows into a dense table."""
    for i in range(keys.size):
        at = 0
        for j in range(shift.size):
            at += ((keys[i] >> shift[j]) & mask[j]) * stride[j]
        table[at] = values[i]


@njit(nogil=True)
def find(keys, key):
    """Return where a key stands in sorted ones; −1 if it does not."""
    low, high = 0, keys.size
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < keys.size and keys[low] == key else -1


@njit(nogil=True)
def bases(key, look, base):
    """Write where each table has its entries for a row."""
    for t in range(look.at.size):
        at = look.at[t]
        for f in range(look.first[t], look.first[t + 1]):
            at += ((key >> look.shift[f]) & look.mask[f]) * look.stride[f]
        base[t] = at


@njit(nogil=True)
def judge(vector, base, look, y, lowest, threshold, made):
    """Write a row's values with the exact tables added, −∞ where the bound says so; return whether any is left."""
    outside = vector.dtype.type(0)
    for t in range(look.exact, look.at.size):
        if look.of_x[t] == 0:
            outside = max(outside + look.data[base[t] + y * look.of_y[t]], lowest)
    for x in range(vector.size):
        made[x] = vector[x]
    for t in range(look.exact):
        at, step = base[t] + y * look.of_y[t], look.of_x[t]
        for x in range(made.size):
            made[x] = max(made[x] + look.data[at + x * step], lowest)
    alive, half = False, lowest / 2
    for x in range(made.size):
        bound = max(made[x] + outside, lowest)
        if made[x] > half and bound > half:
            for t in range(look.exact, look.at.size):
                if look.of_x[t] > 0:
                    bound = max(bound + look.data[base[t] + y * look.of_y[t] + x * look.of_x[t]], lowest)
        if made[x] > half and bound > threshold:
            alive = True
        else:
            made[x] = lowest
    return alive


@njit(nogil=True)
def extend(keys, vectors, look, size, bits, lowest, threshold, at, out_keys, out_vectors):
    """Add a variable to rows, with each of its values.

    Parameters
    ----------
    keys : (n,) int64
    vectors : (n, domain of x)
    look : Lookups
        Tables to add, and tables that bound the rest.
    size, bits
        Of the new variable.
    at : (3,) int64
        Row and value to begin with; where to go on afterwards. And how many candidates there were.

    Returns
    -------
    int
        Rows written.
    """
    base = np.empty(look.at.size, dtype=np.int64)
    count, i, y = 0, at[0], at[1]
    while i < keys.size:
        bases(keys[i], look, base)
        while y < size:
            if count == out_keys.size:
                at[0], at[1] = i, y
                return count
            at[2] += 1
            if judge(vectors[i], base, look, y, lowest, threshold, out_vectors[count]):
                out_keys[count] = (keys[i] << bits) | y
                count += 1
            y += 1
        i, y = i + 1, 0
    at[0], at[1] = i, 0
    return count


@njit(nogil=True)
def join_rows(keys, vectors, look, partner, lowest, threshold, at, out_keys, out_vectors):
    """Join rows with those of another incomplete table that agree with them.

    ``partner`` is a :class:`Partner`; the rest as in :func:`extend`.
    """
    base = np.empty(look.at.size, dtype=np.int64)
    both = np.empty(vectors.shape[1], dtype=vectors.dtype)
    count, i, e = 0, at[0], at[1]
    while i < keys.size:
        shared = np.int64(0)
        for j in range(partner.shift.size):
            shared |= ((keys[i] >> partner.shift[j]) & partner.mask[j]) << partner.to[j]
        group = find(partner.shared, shared)
        if group >= 0:
            e = max(e, partner.group[group])
            while e < partner.group[group + 1]:
                if count == out_keys.size:
                    at[0], at[1] = i, e
                    return count
                both[:] = lowest
                for r in range(partner.start[e], partner.start[e + 1]):
                    x = partner.x[r]
                    both[x] = max(vectors[i, x] + partner.values[r], lowest)
                key = (keys[i] << partner.bits) | partner.fresh[e]
                at[2] += 1
                bases(key, look, base)
                if judge(both, base, look, 0, lowest, threshold, out_vectors[count]):
                    out_keys[count] = key
                    count += 1
                e += 1
        i, e = i + 1, 0
    at[0], at[1] = i, 0
    return count


@njit(nogil=True)
def fill_vectors(table, first, last, look, lowest, threshold, out_keys, out_vectors):
    """Write vectors ``first`` to ``last`` - 1 of a :class:`Grouped` table; return how many are left of them."""
    base = np.empty(look.at.size, dtype=np.int64)
    vector = np.empty(out_vectors.shape[1], dtype=out_vectors.dtype)
    count = 0
    for e in range(first, last):
        vector[:] = lowest
        for r in range(table.start[e], table.start[e + 1]):
            vector[table.x[r]] = table.values[r]
        bases(table.keys[e], look, base)
        if judge(vector, base, look, 0, lowest, threshold, out_vectors[count]):
            out_keys[count] = table.keys[e]
            count += 1
    return count


@njit(nogil=True)
def best_of(vectors, out):
    """Write each vector's largest value."""
    for i in range(out.size):
        best = vectors[i, 0]
        for x in range(1, vectors.shape[1]):
            best = max(best, vectors[i, x])
        out[i] = best
