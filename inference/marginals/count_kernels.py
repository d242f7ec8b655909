# mypy: ignore-errors
"""Count assignments modulo a number by bucket elimination over non-negative integers."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, error_model="numpy")
def count_buckets(program, arena, modulus, halt):
    """Eliminate all buckets of a plan on counts modulo ``modulus``.

    Every message entry becomes the sum over the eliminated variable of the product of the bucket's tables. Tables are
    numbered: inputs first, then one message per bucket.

    Parameters
    ----------
    program : BucketProgram
        The elimination program of the plan (``EliminationPlan.program``). ``variable[b]`` is the variable that bucket b
        eliminates, ``cells[b]`` the entries of its join; its tables are ``inputs[input_start[b]:input_start[b + 1]]``.
        Table t has the scope ``scope[scope_start[t]:scope_start[t + 1]]`` and begins at ``at[t]`` in the arena.
        ``domains`` are the domain sizes.
    arena : ndarray of uint64, shape (entries,)
        The input tables, with entries below ``modulus``, at the offsets ``program.at``; receives the messages.
    modulus : uint64
        A number below 2^32, or 0 for arithmetic modulo 2^64, which wraps.
    halt : ndarray of uint8, shape (1,)
        The kernel returns early when ``halt[0]`` becomes 1.
    """
    zero, one = np.uint64(0), np.uint64(1)
    buckets = program.variable.size
    for b in range(buckets):
        output = program.at.size - buckets + b
        first, last = program.scope_start[output], program.scope_start[output + 1]
        arity = last - first
        begin, end = program.input_start[b], program.input_start[b + 1]
        count = end - begin
        x_size = program.domains[program.variable[b]]
        sizes = np.empty(arity, dtype=np.int64)
        for j in range(arity):
            sizes[j] = program.domains[program.scope[first + j]]
        # The last column holds the strides of the eliminated variable.
        strides = np.zeros((count, arity + 1), dtype=np.int64)
        positions = np.empty(count, dtype=np.int64)
        for i in range(count):
            t = program.inputs[begin + i]
            positions[i] = program.at[t]
            step, position = 1, arity - 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                while program.scope[first + position] != program.scope[s]:
                    position -= 1
                strides[i, position] = step
                step *= sizes[position]
            strides[i, arity] = step
        digit = np.zeros(arity, dtype=np.int64)
        for cell in range(program.at[output], program.at[output] + program.cells[b] // x_size):
            if halt[0] != 0:
                return
            total = zero
            for x in range(x_size):
                product = one
                for i in range(count):
                    entry = arena[positions[i] + x * strides[i, arity]]
                    if entry == zero:
                        product = zero
                        break
                    if entry != one:
                        product *= entry
                        if modulus != zero:
                            product %= modulus
                total += product
            arena[cell] = total if modulus == zero else total % modulus
            for j in range(arity - 1, -1, -1):
                digit[j] += 1
                wraps = digit[j] == sizes[j]
                change = 1 - sizes[j] if wraps else 1
                for i in range(count):
                    positions[i] += change * strides[i, j]
                if not wraps:
                    break
                digit[j] = 0
