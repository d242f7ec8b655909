# mypy: ignore-errors
"""Redraw a block given the rest: condition its factors, eliminate, choose values backwards; and do so many times.

The elimination is that of :mod:`dmcmc.inference.elimination`, on tables of float64 in which a violation has a price.
"""

import numpy as np

from dmcmc.inference.elimination.arena_kernels import add_strided
from dmcmc.inference.elimination.join_kernels import run_buckets
from dmcmc.inference.elimination.plan import Program
from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.elimination.semirings import LOG_SUM, MAXIMUM
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_selection_kernels import entry_of
from dmcmc.samplers.blocks.sweep_kernels import choose_value

_MAXIMUM, _LOG_SUM = MAXIMUM, LOG_SUM


@njit(nogil=True)
def touching(graph, room, size):
    """Number the block's variables in ``room.place``; return the factors that touch it, and their scopes in it."""
    room.place[:] = -1
    for i in range(size):
        room.place[room.block[i]] = i
    room.seen_factor[:] = False
    factors, count, length = room.factors, 0, 0
    for i in range(size):
        v = room.block[i]
        for j in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[j]
            if not room.seen_factor[f]:
                room.seen_factor[f] = True
                factors[count] = f
                count += 1
    for i in range(count):
        for s in range(graph.scope_start[factors[i]], graph.scope_start[factors[i] + 1]):
            length += room.place[graph.scope[s]] >= 0
    start, scope = np.zeros(count + 1, dtype=np.int64), np.empty(length, dtype=np.int64)
    length = 0
    for i in range(count):
        for s in range(graph.scope_start[factors[i]], graph.scope_start[factors[i] + 1]):
            p = room.place[graph.scope[s]]
            if p >= 0:
                scope[length] = p
                length += 1
        start[i + 1] = length
    return factors[:count], start, scope


@njit(nogil=True)
def condition(graph, z, room, f, scope, out):
    """Write a factor, given all variables outside of the block, to ``out``; axes by ``scope``, places in the block."""
    k = scope.size
    dims, strides = np.empty(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    for j in range(k):
        dims[j] = graph.domains[room.block[scope[j]]]
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    if f >= graph.dense:
        walk_all(graph, z, room, f, scope, dims, out)
        return
    at = graph.at[f]
    for s in range(first, last):
        p = room.place[graph.scope[s]]
        if p < 0:
            at += z[graph.scope[s]] * graph.stride[s]
        else:
            for j in range(k):
                if scope[j] == p:
                    strides[j] = graph.stride[s]
    out[:] = 0.0
    add_strided(out, graph.data, at, dims, strides, -np.inf)


@njit(nogil=True)
def walk_all(graph, z, room, f, scope, dims, out):
    """Write an automaton for all values of the block's variables in it."""
    k = scope.size
    digit = np.zeros(k, dtype=np.int64)
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    which = np.full(last - first, -1, dtype=np.int64)
    for s in range(first, last):
        for j in range(k):
            if scope[j] == room.place[graph.scope[s]]:
                which[s - first] = j
    for i in range(out.size):
        state, paid = 0, 0.0
        for s in range(first, last):
            w = graph.scope[s]
            value = digit[which[s - first]] if which[s - first] >= 0 else z[w]
            step = graph.stride[s] + state * graph.domains[w] + value
            entry = graph.data[graph.first_step + step]
            if entry == graph.never:
                paid = graph.never
                break
            paid += entry
            state = graph.following[step]
        out[i] = paid
        for j in range(k - 1, -1, -1):
            digit[j] += 1
            if digit[j] < dims[j]:
                break
            digit[j] = 0


@njit(nogil=True)
def draw_values(program, arena, values, temperature, state):
    """Choose values, last bucket first: at temperature 0 the best, ties at random, else by their probability."""
    for b in range(program.variable.size - 1, -1, -1):
        v = program.variable[b]
        total = np.zeros(program.domains[v])
        for i in range(program.input_start[b], program.input_start[b + 1]):
            t = program.inputs[i]
            at, step = program.at[t], 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                u = program.scope[s]
                at += values[u] * step
                step *= program.domains[u]
            for x in range(total.size):
                total[x] += arena[at + x * step]
        values[v] = choose_value(total, total.size, 1.0 if temperature > 0 else 0.0, state)


@njit(nogil=True)
def redraw(graph, z, room, size, temperature, state):
    """Draw the variables ``room.block[:size]``, in whose order they are eliminated, given all others.

    Parameters
    ----------
    temperature : float
        0 takes a best assignment, any of them.

    Returns
    -------
    gain : float
        Of utility; a violation has its price.
    cells : int
        Joined; −1 if the arena has no room, and nothing was changed.
    """
    factors, start, scope = touching(graph, room, size)
    domains = np.empty(size, dtype=np.int64)
    for i in range(size):
        domains[i] = graph.domains[room.block[i]]
    order = np.arange(size)
    begin, scopes, sizes, input_start, inputs, _, cells, low = plan_buckets(start, scope, order, order, domains)
    at = np.empty(sizes.size, dtype=np.int64)
    total = 0
    for t in range(sizes.size):
        at[t] = total
        total += sizes[t]
        if total > room.arena.size:
            return 0.0, -1
    program = Program(domains, begin, scopes, at, order, input_start, inputs, cells, low)
    before = 0.0
    for t in range(factors.size):
        f = factors[t]
        before += entry_of(graph, z, f)
        out = room.arena[at[t] : at[t] + sizes[t]]
        condition(graph, z, room, f, scopes[begin[t] : begin[t + 1]], out)
        if temperature > 0:
            for i in range(out.size):
                out[i] /= temperature
    lowest = room.arena.dtype.type(-np.inf)
    run_buckets(program, room.arena, 0, size, lowest, _LOG_SUM if temperature > 0 else _MAXIMUM)
    values = np.zeros(size, dtype=np.int64)
    draw_values(program, room.arena, values, temperature, state)
    for i in range(size):
        z[room.block[i]] = values[i]
    after = 0.0
    for t in range(factors.size):
        after += entry_of(graph, z, factors[t])
    return after - before, cells.sum()
