# mypy: ignore-errors
"""Copy tables into the arena of an elimination, and look maximising values up in it.

Shared arguments
----------------
program
    A :class:`dmcmc.inference.elimination.plan.BucketProgram`: the plan as flat arrays. Tables are numbered: first the
    inputs, then one message per bucket.
arena : (entries,)
    All tables, in the dtype of the arithmetic; table t begins at ``program.at[t]``.
lowest
    The −∞ of the arithmetic; sums are clamped to it.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, error_model="numpy")
def add_strided(out, source, at, dims, strides, lowest):
    """Add a strided view of ``source`` to ``out``, clamped to ``lowest``.

    Parameters
    ----------
    out : (entries,)
        In C order over ``dims``.
    source : (source_entries,)
        The array that is viewed.
    at : int
        Offset of the view's first entry in ``source``.
    dims, strides : (k,) int64
        Sizes of the axes, and the view's stride for each of them; stride 0 repeats an entry.
    """
    k = dims.size
    if k == 0:
        out[0] = max(out.dtype.type(out[0] + source[at]), lowest)
        return
    index = np.zeros(k, dtype=np.int64)
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
            index[j] += 1
            at += strides[j]
            if index[j] < dims[j]:
                break
            at -= index[j] * strides[j]
            index[j] = 0


@njit(nogil=True)
def place_inputs(program, arena, scope_start, scope, at, data, lowest):
    """Copy the input tables to the front of the arena, with axes in the plan's order.

    Parameters
    ----------
    scope_start, scope : int64
        The scope of input t is ``scope[scope_start[t]:scope_start[t + 1]]``, in the axis order of its data.
    at : (inputs + 1,) int64
        The entries of input t are ``data[at[t]:at[t + 1]]``, in C order.
    data : (entries,)
        Entries of all inputs.
    """
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
        target = arena[program.at[t] : program.at[t] + at[t + 1] - at[t]]
        step, same_order = 1, True
        for j in range(k - 1, -1, -1):
            same_order &= strides[j] == step
            step *= dims[j]
        if same_order:
            source = data[at[t] : at[t + 1]]
            for i in range(target.size):
                target[i] = source[i]
        else:
            for i in range(target.size):
                target[i] = 0
            add_strided(target, data, at[t], dims, strides, lowest)


@njit(nogil=True, allocates=False)
def column_of(program, t, values):
    """Return the offset of table t's entry for value 0 of its first variable, given the others, and the next's step."""
    at, step = program.at[t], 1
    for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
        u = program.scope[s]
        at += values[u] * step
        step *= program.domains[u]
    return at, step


@njit(nogil=True)
def choose_values(program, arena, values, lowest, first, last):
    """Set the maximising values of the variables of buckets ``first`` to ``last`` − 1.

    Buckets are processed last to first, with all mini-buckets of a variable together; ties go to the lowest value. One
    row of each table is read.

    Parameters
    ----------
    values : (variables,) int64
        Holds the values of all variables that the buckets' messages depend on; the maximising values are written in
        place.
    """
    b = last - 1
    while b >= first:
        v = program.variable[b]
        total = np.zeros(program.domains[v], dtype=arena.dtype)
        while b >= first and program.variable[b] == v:
            for i in range(program.input_start[b], program.input_start[b + 1]):
                t = program.inputs[i]
                at, step = column_of(program, t, values)
                for x in range(total.size):
                    total[x] = max(arena.dtype.type(total[x] + arena[at + x * step]), lowest)
            b -= 1
        best = 0
        for x in range(1, total.size):
            if total[x] > total[best]:
                best = x
        values[v] = best


@njit(nogil=True)
def choose_values_in_rows(program, arena, rows, lowest, first, last):
    """Call :func:`choose_values` for every row of ``rows`` (rows, variables) int64."""
    for r in range(rows.shape[0]):
        choose_values(program, arena, rows[r], lowest, first, last)
