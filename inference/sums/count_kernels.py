# mypy: ignore-errors
"""Counting modulo a number: sums of products of whole numbers, bucket by bucket."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_LOOK = 1 << 10  # entries between two looks at the flag


@njit(nogil=True, error_model="numpy")
def count_buckets(program, arena, modulus, halt):
    """Carry out a plan on counts.

    ``arena`` (entries,) uint64 has the input tables, entries below ``modulus``; every message entry becomes the sum
    over the eliminated variable of the product of the bucket's tables, modulo ``modulus`` (below 2^32, or 0 for 2^64,
    where wrapping does it). It ends early when ``halt`` (1,) uint8 becomes 1.
    """
    zero, one = np.uint64(0), np.uint64(1)
    buckets = program.variable.size
    for b in range(buckets):
        output = program.at.size - buckets + b
        first, last = program.scope_start[output], program.scope_start[output + 1]
        k = last - first
        begin, end = program.input_start[b], program.input_start[b + 1]
        count = end - begin
        x_size = program.domains[program.variable[b]]
        sizes = np.empty(k, dtype=np.int64)
        for j in range(k):
            sizes[j] = program.domains[program.scope[first + j]]
        # The last column is the eliminated variable's stride.
        strides = np.zeros((count, k + 1), dtype=np.int64)
        at = np.empty(count, dtype=np.int64)
        for i in range(count):
            t = program.inputs[begin + i]
            at[i] = program.at[t]
            step, position = 1, k - 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                while program.scope[first + position] != program.scope[s]:
                    position -= 1
                strides[i, position] = step
                step *= sizes[position]
            strides[i, k] = step
        digit = np.zeros(k, dtype=np.int64)
        for h in range(program.at[output], program.at[output] + program.cells[b] // x_size):
            if h % _LOOK == 0 and halt[0] != 0:
                return
            total = zero
            for x in range(x_size):
                product = one
                for i in range(count):
                    entry = arena[at[i] + x * strides[i, k]]
                    if entry == zero:
                        product = zero
                        break
                    if entry != one:
                        product *= entry
                        if modulus != zero:
                            product %= modulus
                total += product
            arena[h] = total if modulus == zero else total % modulus
            for j in range(k - 1, -1, -1):
                digit[j] += 1
                turned = digit[j] == sizes[j]
                change = 1 - sizes[j] if turned else 1
                for i in range(count):
                    at[i] += change * strides[i, j]
                if not turned:
                    break
                digit[j] = 0
