# mypy: ignore-errors
"""Put tables into an elimination's arena, and read maximising values back from it."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, error_model="numpy")
def add_strided(out, source, at, dims, strides, lowest):
    """Add a strided view of ``source`` to ``out``, clamped.

    out (entries,) in C order over ``dims`` (k,) int64; ``strides`` (k,) int64 are the view's, 0 repeats it.
    """
    k = dims.size
    if k == 0:
        out[0] = max(out.dtype.type(out[0] + source[at]), lowest)
        return
    digit = np.zeros(k, dtype=np.int64)
    inner, stride = dims[k - 1], strides[k - 1]
    for begin in range(0, out.size, inner):
        to = out[begin : begin + inner]
        if stride == 1:
            view = source[at : at + inner]
            for i in range(inner):
                to[i] = max(out.dtype.type(to[i] + view[i]), lowest)
        else:
            for i in range(inner):
                to[i] = max(out.dtype.type(to[i] + source[at + i * stride]), lowest)
        for j in range(k - 2, -1, -1):
            digit[j] += 1
            at += strides[j]
            if digit[j] < dims[j]:
                break
            at -= digit[j] * strides[j]
            digit[j] = 0


@njit(nogil=True)
def place_inputs(program, arena, scope_start, scope, at, data, lowest):
    """Copy the given tables to the front of the arena, axes in the plan's order."""
    for t in range(at.size - 1):
        first, last = scope_start[t], scope_start[t + 1]
        k = last - first
        dims = np.empty(k, dtype=np.int64)
        strides = np.empty(k, dtype=np.int64)
        for j in range(k):
            v = program.scope[program.scope_start[t] + j]
            dims[j] = program.domains[v]
            step = 1
            for s in range(last - 1, first - 1, -1):
                if scope[s] == v:
                    strides[j] = step
                    break
                step *= program.domains[scope[s]]
        to = arena[program.at[t] : program.at[t] + at[t + 1] - at[t]]
        step, same = 1, True
        for j in range(k - 1, -1, -1):
            same &= strides[j] == step
            step *= dims[j]
        if same:
            source = data[at[t] : at[t + 1]]
            for i in range(to.size):
                to[i] = source[i]
        else:
            for i in range(to.size):
                to[i] = 0
            add_strided(to, data, at[t], dims, strides, lowest)


@njit(nogil=True)
def choose_values(program, arena, values, lowest, first, last):
    """Set the maximising values of buckets ``first`` to ``last`` - 1; ``values`` (variables,) int64 has the others.

    Buckets last to first, all mini-buckets of a variable together; ties go to the lowest value. Reads one row of every
    table.
    """
    b = last - 1
    while b >= first:
        v = program.variable[b]
        total = np.zeros(program.domains[v], dtype=arena.dtype)
        while b >= first and program.variable[b] == v:
            for i in range(program.input_start[b], program.input_start[b + 1]):
                t = program.inputs[i]
                at, step = program.at[t], 1
                for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                    u = program.scope[s]
                    at += values[u] * step
                    step *= program.domains[u]
                for x in range(total.size):
                    total[x] = max(arena.dtype.type(total[x] + arena[at + x * step]), lowest)
            b -= 1
        best = 0
        for x in range(1, total.size):
            if total[x] > total[best]:
                best = x
        values[v] = best


@njit(nogil=True)
def choose_rows(program, arena, rows, lowest, first, last):
    """Do :func:`choose_values` for every row of (rows, variables)."""
    for r in range(rows.shape[0]):
        choose_values(program, arena, rows[r], lowest, first, last)
