# mypy: ignore-errors
"""Extend, join and filter rows of sparse tables, one block at a time, on the CPU.

A row is a packed key, with one bit field per variable, and a vector with one value per value of the variable that the
bucket eliminates. Keys grow at their low end, so the rows made from sorted rows are sorted. An upper bound on the total
utility of a row is its own value plus bounds on everything that is not in it; these are looked up in dense tables. A
row whose bound does not exceed the threshold is dropped.

The two kernels that make rows can be resumed: they stop when their output block is full and store their position.

Shared arguments: ``keys`` (n,) int64 and ``vectors`` (n, x_size) are rows; ``look`` is a
:class:`dmcmc.inference.sparse.lookups.LookupTables`; ``lowest`` is the −∞ of the arithmetic; ``threshold`` must be
exceeded; ``out_keys`` (block,) int64 and ``out_vectors`` (block, x_size) are the output block.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

DIGIT_BITS = 11  # bits per pass of the radix sort


@njit(nogil=True)
def repack(keys, shift, mask, to):
    """Return keys (n,) int64 with field j moved from bit ``shift[j]`` to ``to[j]``; other fields are dropped."""
    out = np.zeros(keys.size, dtype=np.int64)
    for i in range(keys.size):
        key, packed = keys[i], np.int64(0)
        for j in range(shift.size):
            packed |= ((key >> shift[j]) & mask[j]) << to[j]
        out[i] = packed
    return out


@njit(nogil=True)
def radix_sort(keys, values, bits):
    """Sort keys of ``bits`` bits, and ``values`` with them, in place: least significant digit first, stable."""
    n = keys.size
    other_keys, other_values = np.empty_like(keys), np.empty_like(values)
    a_keys, a_values, b_keys, b_values = keys, values, other_keys, other_values
    swapped = False
    for low in range(0, bits, DIGIT_BITS):
        position = np.zeros((1 << DIGIT_BITS) + 1, dtype=np.int64)
        last = (1 << DIGIT_BITS) - 1
        for i in range(n):
            position[((a_keys[i] >> low) & last) + 1] += 1
        if position.max() == n:  # all keys have the same digit
            continue
        for d in range(1 << DIGIT_BITS):
            position[d + 1] += position[d]
        for i in range(n):
            d = (a_keys[i] >> low) & last
            b_keys[position[d]] = a_keys[i]
            b_values[position[d]] = a_values[i]
            position[d] += 1
        a_keys, a_values, b_keys, b_values = b_keys, b_values, a_keys, a_values
        swapped = not swapped
    if swapped:
        copy_entries(a_keys, keys)
        copy_entries(a_values, values)


@njit(nogil=True)
def starts_of(keys, shift):
    """Return the start of each run of equal ``keys >> shift``, and the end: (runs + 1,) int64."""
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
    """Write the entries of a dense table that are not −∞, in C order over ``sizes``; return their number.

    ``to`` (k,) int64 is the bit at which each variable's field begins; ``half`` is the threshold of −∞.
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
    """Write rows into a dense table (entries,); ``stride`` (k,) int64 are its strides."""
    for i in range(keys.size):
        at = 0
        for j in range(shift.size):
            at += ((keys[i] >> shift[j]) & mask[j]) * stride[j]
        table[at] = values[i]


@njit(nogil=True)
def find(keys, key):
    """Return the index of a key in sorted keys; −1 if it is not there."""
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
    """Write the offset of a row's entries in each table to ``base`` (tables,) int64."""
    for t in range(look.at.size):
        at = look.at[t]
        for f in range(look.first[t], look.first[t + 1]):
            at += ((key >> look.shift[f]) & look.mask[f]) * look.stride[f]
        base[t] = at


@njit(nogil=True)
def judge(vector, base, look, y, lowest, threshold, total):
    """Add the exact tables to a row and set values that cannot exceed the threshold to −∞; return whether any is left.

    ``total`` (x_size,) receives the values; ``y`` is the value of the variable that is being added.
    """
    rest_bound = vector.dtype.type(0)
    for t in range(look.exact, look.at.size):
        if look.of_x[t] == 0:
            rest_bound = max(rest_bound + look.data[base[t] + y * look.of_y[t]], lowest)
    for x in range(vector.size):
        total[x] = vector[x]
    for t in range(look.exact):
        at, step = base[t] + y * look.of_y[t], look.of_x[t]
        for x in range(total.size):
            total[x] = max(total[x] + look.data[at + x * step], lowest)
    any_left, half = False, lowest / 2
    for x in range(total.size):
        bound = max(total[x] + rest_bound, lowest)
        if total[x] > half and bound > half:
            for t in range(look.exact, look.at.size):
                if look.of_x[t] > 0:
                    bound = max(bound + look.data[base[t] + y * look.of_y[t] + x * look.of_x[t]], lowest)
        if total[x] > half and bound > threshold:
            any_left = True
        else:
            total[x] = lowest
    return any_left


@njit(nogil=True)
def extend(keys, vectors, look, size, bits, lowest, threshold, at, out_keys, out_vectors):
    """Extend rows by each value of a new variable.

    Parameters
    ----------
    keys : (n,) int64
        Keys of the rows.
    vectors : (n, x_size)
        Vectors of the rows.
    look : LookupTables
        Tables that are added, and tables that bound the rest.
    size, bits : int
        Domain size and field width of the new variable.
    lowest, threshold
        −∞, and the number that a row's bound must exceed.
    at : (3,) int64
        Row and value at which to start; on return, those at which to resume, and the number of candidates so far.
    out_keys, out_vectors
        The output block.

    Returns
    -------
    int
        Number of rows written.
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
    """Join rows with the rows of another sparse table that agree with them.

    ``partner`` is a :class:`dmcmc.inference.sparse.lookups.JoinPartner`; the rest is as in :func:`extend`.
    """
    base = np.empty(look.at.size, dtype=np.int64)
    joined = np.empty(vectors.shape[1], dtype=vectors.dtype)
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
                joined[:] = lowest
                for r in range(partner.start[e], partner.start[e + 1]):
                    x = partner.x[r]
                    joined[x] = max(vectors[i, x] + partner.values[r], lowest)
                key = (keys[i] << partner.bits) | partner.fresh[e]
                at[2] += 1
                bases(key, look, base)
                if judge(joined, base, look, 0, lowest, threshold, out_vectors[count]):
                    out_keys[count] = key
                    count += 1
                e += 1
        i, e = i + 1, 0
    at[0], at[1] = i, 0
    return count


@njit(nogil=True)
def fill_vectors(table, first, last, look, lowest, threshold, out_keys, out_vectors):
    """Write vectors ``first`` to ``last`` − 1 of a :class:`GroupedTable` that can win; return their number."""
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
    """Write the largest value of each vector to ``out`` (n,)."""
    for i in range(out.size):
        best = vectors[i, 0]
        for x in range(1, vectors.shape[1]):
            best = max(best, vectors[i, x])
        out[i] = best
