# mypy: ignore-errors
"""Extend, join and filter rows of sparse tables, one block at a time, on the CPU.

Rows are partial assignments of one bucket's message under construction; function filtering drops those that
cannot beat the incumbent. A row has a packed key with one bit field per assigned variable, and a vector
with one utility per value x of the variable that the bucket eliminates. Keys grow at their low end, so the
rows made from sorted rows are sorted.

The lookup tables are dense. The first ``lookups.exact`` of them are added to the row. The sum of the others
is an upper bound on everything that is not in the row yet. A value x remains if

    vector[x] + Σ exact tables + Σ bounding tables > threshold;

otherwise its utility is set to −∞. A row without a value left is dropped.

:func:`extend` and :func:`join_rows` can be resumed: they stop when their output block is full and store
their position.

Shared arguments
----------------
keys : (n,) int64; vectors : (n, x_size)
    The rows; vectors are in the dtype of the arithmetic; x_size is the domain size of the bucket's variable.
lookups : LookupTables
    All tables lie one after the other in ``data``; table t begins at ``offset[t]``. It depends on the key
    fields f from ``field_start[t]`` to ``field_start[t + 1]`` − 1; each adds ``((key >> shift[f]) & mask[f])
    * stride[f]`` to the offset. ``x_stride[t]`` and ``y_stride[t]`` are its strides of the bucket's variable
    and of the variable that is being added (0: the table does not depend on it).
base : (tables,) int64
    Offset in ``lookups.data`` of a row's entry in each lookup table, for x = 0 and y = 0.
lowest
    The −∞ of the arithmetic; sums are clamped to it, and sums below half of it mean −∞.
threshold
    The number that the upper bound of a row must exceed.
shift, mask : (k,) int64
    Position and mask of each variable's bit field in a key: value = (key >> shift) & mask.
out_keys : (block,) int64; out_vectors : (block, x_size)
    The output block.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

DIGIT_BITS = 11  # bits per pass of the radix sort: its 2^11 counters of 8 bytes fit the first-level cache


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
    """Sort keys (n,) int64 of ``bits`` bits, and ``values`` (n,) with them, in place.

    This is a stable radix sort that begins with the least significant digit.
    """
    n = keys.size
    other_keys, other_values = np.empty_like(keys), np.empty_like(values)
    source_keys, source_values, target_keys, target_values = keys, values, other_keys, other_values
    swapped = False
    for low in range(0, bits, DIGIT_BITS):
        position = np.zeros((1 << DIGIT_BITS) + 1, dtype=np.int64)
        digit_mask = (1 << DIGIT_BITS) - 1
        for i in range(n):
            position[((source_keys[i] >> low) & digit_mask) + 1] += 1
        if position.max() == n:  # all keys have the same digit
            continue
        for digit in range(1 << DIGIT_BITS):
            position[digit + 1] += position[digit]
        for i in range(n):
            digit = (source_keys[i] >> low) & digit_mask
            target_keys[position[digit]] = source_keys[i]
            target_values[position[digit]] = source_values[i]
            position[digit] += 1
        source_keys, source_values, target_keys, target_values = target_keys, target_values, source_keys, source_values
        swapped = not swapped
    if swapped:
        copy_entries(source_keys, keys)
        copy_entries(source_values, values)


@njit(nogil=True)
def starts_of(keys, shift):
    """Return the start of each run of equal ``keys >> shift`` in sorted keys, and the end: (runs + 1,) int64."""
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
    """Write keys and values of the entries of a dense table that are not −∞, in C order; return their number.

    ``table`` (entries,) is the dense table in C order over ``sizes`` (k,) int64. ``to`` (k,) int64 is the bit
    at which each variable's field begins. Entries that are not above ``half`` mean −∞.
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


@njit(nogil=True, allocates=False)
def spread_out(keys, values, shift, mask, stride, table):
    """Scatter the values of rows into a dense table (entries,); ``stride`` (k,) int64 are its strides in entries."""
    for i in range(keys.size):
        at = 0
        for j in range(shift.size):
            at += ((keys[i] >> shift[j]) & mask[j]) * stride[j]
        table[at] = values[i]


@njit(nogil=True, allocates=False)
def find(keys, n, key):
    """Return the index of a key in the ``n`` sorted keys at the start of ``keys``; −1 if it is not there."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < n and keys[low] == key else -1


@njit(nogil=True, allocates=False)
def find_entries(key, lookups, base):
    """Write to ``base`` where a row's entries begin in each lookup table."""
    for t in range(lookups.offset.size):
        at = lookups.offset[t]
        for f in range(lookups.field_start[t], lookups.field_start[t + 1]):
            at += ((key >> lookups.shift[f]) & lookups.mask[f]) * lookups.stride[f]
        base[t] = at


@njit(nogil=True, allocates=False)
def filter_vector(vector, base, lookups, y, lowest, threshold, total):
    """Add the exact tables to a row and set values that cannot exceed the threshold to −∞; return whether any is left.

    Bounding tables that do not depend on x are summed once for all values (``common_bound``).

    Parameters
    ----------
    vector : (x_size,)
        Utility of the row for each value x of the bucket's variable.
    base : (tables,) int64
        Offsets from :func:`find_entries`.
    lookups : LookupTables
        The lookup tables, see the module.
    y : int
        Value of the variable that is being added; 0 if the step adds none.
    lowest, threshold
        −∞ of the arithmetic, and the number that the bound of a value must exceed.
    total : (x_size,)
        Receives the sums, and −∞ for the values that are dropped.
    """
    common_bound = vector.dtype.type(0)
    for t in range(lookups.exact, lookups.offset.size):
        if lookups.x_stride[t] == 0:
            common_bound = max(common_bound + lookups.data[base[t] + y * lookups.y_stride[t]], lowest)
    for x in range(vector.size):
        total[x] = vector[x]
    for t in range(lookups.exact):
        at, step = base[t] + y * lookups.y_stride[t], lookups.x_stride[t]
        for x in range(total.size):
            total[x] = max(total[x] + lookups.data[at + x * step], lowest)
    any_left, half = False, total.dtype.type(lowest / 2)  # as a float64, integers near it would be rounded to it
    for x in range(total.size):
        bound = max(total[x] + common_bound, lowest)
        if total[x] > half and bound > half:
            for t in range(lookups.exact, lookups.offset.size):
                if lookups.x_stride[t] > 0:
                    bound = max(
                        bound + lookups.data[base[t] + y * lookups.y_stride[t] + x * lookups.x_stride[t]], lowest
                    )
        if total[x] > half and bound > threshold:
            any_left = True
        else:
            total[x] = lowest
    return any_left


@njit(nogil=True)
def extend(keys, vectors, lookups, size, bits, lowest, threshold, at, out_keys, out_vectors):
    """Extend rows by each value y of a new variable.

    Parameters
    ----------
    keys : (n,) int64
        Keys of the rows.
    vectors : (n, x_size)
        Vectors of the rows.
    lookups : LookupTables
        Tables that are added, and tables that bound what is not in the row yet.
    size, bits : int
        Domain size and field width of the new variable.
    lowest, threshold
        −∞, and the number that a row's bound must exceed.
    at : (3,) int64
        Index of the row and value y at which to start. On return, those at which to resume; ``at[2]`` is
        increased by the number of candidates checked.
    out_keys, out_vectors
        The output block.

    Returns
    -------
    int
        Number of rows written.
    """
    base = np.empty(lookups.offset.size, dtype=np.int64)
    count, i, y = 0, at[0], at[1]
    while i < keys.size:
        find_entries(keys[i], lookups, base)
        while y < size:
            if count == out_keys.size:
                at[0], at[1] = i, y
                return count
            at[2] += 1
            if filter_vector(vectors[i], base, lookups, y, lowest, threshold, out_vectors[count]):
                out_keys[count] = (keys[i] << bits) | y
                count += 1
            y += 1
        i, y = i + 1, 0
    at[0], at[1] = i, 0
    return count


@njit(nogil=True)
def join_rows(keys, vectors, lookups, partner, lowest, threshold, at, out_keys, out_vectors):
    """Join rows with the rows of another sparse table that agree on the shared variables.

    The other arguments and the result are as in :func:`extend`.

    Parameters
    ----------
    partner : JoinPartner
        The other table as vectors over the bucket's variable. ``shift``, ``mask`` and ``target_shift`` say where
        a shared variable lies in a row's key and in the packed shared values. ``shared`` (groups,) holds these
        packed values, ascending; the vectors of group g are ``group_start[g]`` to ``group_start[g + 1]`` − 1.
        Vector e has the packed values ``new_values[e]`` (``bits`` bits) of the new variables, and the entries
        ``start[e]`` to ``start[e + 1]`` − 1 of ``x`` and ``values``.
    at : (3,) int64
        Index of the row and of the partner's vector (0: the first one that agrees) at which to start. On return,
        those at which to resume; ``at[2]`` is increased by the number of candidates checked.
    """
    base = np.empty(lookups.offset.size, dtype=np.int64)
    joined = np.empty(vectors.shape[1], dtype=vectors.dtype)
    count, i, e = 0, at[0], at[1]
    while i < keys.size:
        shared = np.int64(0)
        for j in range(partner.shift.size):
            shared |= ((keys[i] >> partner.shift[j]) & partner.mask[j]) << partner.target_shift[j]
        group = find(partner.shared, partner.shared.size, shared)
        if group >= 0:
            e = max(e, partner.group_start[group])
            while e < partner.group_start[group + 1]:
                if count == out_keys.size:
                    at[0], at[1] = i, e
                    return count
                joined[:] = lowest
                for r in range(partner.start[e], partner.start[e + 1]):
                    x = partner.x[r]
                    joined[x] = max(vectors[i, x] + partner.values[r], lowest)
                key = (keys[i] << partner.bits) | partner.new_values[e]
                at[2] += 1
                find_entries(key, lookups, base)
                if filter_vector(joined, base, lookups, 0, lowest, threshold, out_vectors[count]):
                    out_keys[count] = key
                    count += 1
                e += 1
        i, e = i + 1, 0
    at[0], at[1] = i, 0
    return count


@njit(nogil=True)
def fill_vectors(table, first, last, lookups, lowest, threshold, out_keys, out_vectors):
    """Write the vectors ``first`` to ``last`` − 1 of a grouped table that pass the filter as rows; return their number.

    ``table`` is a ``GroupedTable``: vector e has key ``keys[e]`` and the entries ``start[e]`` to
    ``start[e + 1]`` − 1 of ``x`` (value of the bucket's variable) and ``values`` (utility).
    """
    base = np.empty(lookups.offset.size, dtype=np.int64)
    vector = np.empty(out_vectors.shape[1], dtype=out_vectors.dtype)
    count = 0
    for e in range(first, last):
        vector[:] = lowest
        for r in range(table.start[e], table.start[e + 1]):
            vector[table.x[r]] = table.values[r]
        find_entries(table.keys[e], lookups, base)
        if filter_vector(vector, base, lookups, 0, lowest, threshold, out_vectors[count]):
            out_keys[count] = table.keys[e]
            count += 1
    return count


@njit(nogil=True, allocates=False)
def best_of(vectors, out):
    """Write the largest value of each vector of ``vectors`` (n, x_size) to ``out`` (n,)."""
    for i in range(out.size):
        best = vectors[i, 0]
        for x in range(1, vectors.shape[1]):
            best = max(best, vectors[i, x])
        out[i] = best
