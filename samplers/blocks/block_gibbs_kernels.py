# mypy: ignore-errors
"""Redraw a block given all other variables: condition its factors, eliminate, and choose values backwards.

This is block Gibbs sampling, or at temperature 0 an exact optimisation of the block. The elimination is that of
``dmcmc.inference.elimination``, on float64 tables in which a violation is a finite loss.

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.samplers.blocks.block_workspace.penalised_graph``. The scope of factor f is
    ``graph.scope[graph.scope_start[f]:graph.scope_start[f + 1]]``. Factors below ``graph.dense`` are dense tables, the
    others are automata. A forbidden entry has the finite utility ``graph.forbidden_entry``.
z : (n,) int64
    The assignment.
workspace : BlockWorkspace
    See the same module. ``workspace.block`` holds the block's variables in elimination order. The *place* of variable v
    is its index in the block, ``workspace.place[v]``; −1 for variables outside the block.
state : (1,) uint64
    State of the random number generator.
"""

import numpy as np

from dmcmc.inference.elimination.arena_kernels import add_strided, column_of
from dmcmc.inference.elimination.join_kernels import run_buckets
from dmcmc.inference.elimination.plan import BucketProgram
from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.elimination.semirings import LOG_SUM, MAXIMUM
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_selection_kernels import entry_of
from dmcmc.samplers.blocks.sweep_kernels import choose_value


@njit(nogil=True)
def factors_touching_block(graph, workspace, size):
    """Set ``workspace.place`` for the block; return the factors that have a variable in it, and their scopes as places.

    Returns
    -------
    factors : (factors_touching_block factors,) int64
        A view of ``workspace.factors``.
    start : (factors_touching_block factors + 1,) int64
        The scope of the i-th of them, restricted to the block, is ``scope[start[i]:start[i + 1]]``.
    scope : (scope entries,) int64
        Places in the block.
    """
    workspace.place[:] = -1
    for i in range(size):
        workspace.place[workspace.block[i]] = i
    workspace.seen_factor[:] = False
    factors, count, length = workspace.factors, 0, 0
    for i in range(size):
        v = workspace.block[i]
        for j in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[j]
            if not workspace.seen_factor[f]:
                workspace.seen_factor[f] = True
                factors[count] = f
                count += 1
    for i in range(count):
        for s in range(graph.scope_start[factors[i]], graph.scope_start[factors[i] + 1]):
            length += workspace.place[graph.scope[s]] >= 0
    start, scope = np.zeros(count + 1, dtype=np.int64), np.empty(length, dtype=np.int64)
    length = 0
    for i in range(count):
        for s in range(graph.scope_start[factors[i]], graph.scope_start[factors[i] + 1]):
            p = workspace.place[graph.scope[s]]
            if p >= 0:
                scope[length] = p
                length += 1
        start[i + 1] = length
    return factors[:count], start, scope


@njit(nogil=True)
def condition(graph, z, workspace, f, scope, out):
    """Write factor f, conditioned on the present values of all variables outside the block, to ``out``.

    The axes of ``out`` are the block's variables at the places ``scope``, in C order; ``out`` is a flat float64 array.
    """
    k = scope.size
    dims, strides = np.empty(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    for j in range(k):
        dims[j] = graph.domains[workspace.block[scope[j]]]
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    if f >= graph.dense:
        tabulate_automaton(graph, z, workspace, f, scope, dims, out)
        return
    offset = graph.table_start[f]
    for s in range(first, last):
        p = workspace.place[graph.scope[s]]
        if p < 0:
            offset += z[graph.scope[s]] * graph.stride[s]
        else:
            for j in range(k):
                if scope[j] == p:
                    strides[j] = graph.stride[s]
    out[:] = 0.0
    add_strided(out, graph.data, offset, dims, strides, -np.inf)


@njit(nogil=True)
def tabulate_automaton(graph, z, workspace, f, scope, dims, out):
    """Write the utilities of automaton f for all values of its variables in the block to ``out``, flat and in C order.

    ``scope`` has the places of these variables and ``dims`` their domain sizes. The automaton reads the values of its
    scope in turn: each transition adds a utility and leads to a next state, and the initial state is 0.
    """
    k = scope.size
    index = np.zeros(k, dtype=np.int64)
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    axis = np.full(last - first, -1, dtype=np.int64)
    for s in range(first, last):
        for j in range(k):
            if scope[j] == workspace.place[graph.scope[s]]:
                axis[s - first] = j
    for i in range(out.size):
        state, utility = 0, 0.0
        for s in range(first, last):
            w = graph.scope[s]
            value = index[axis[s - first]] if axis[s - first] >= 0 else z[w]
            transition = graph.stride[s] + state * graph.domains[w] + value
            entry = graph.data[graph.first_step + transition]
            if entry == graph.forbidden_entry:
                utility = graph.forbidden_entry
                break
            utility += entry
            state = graph.following[transition]
        out[i] = utility
        for j in range(k - 1, -1, -1):
            index[j] += 1
            if index[j] < dims[j]:
                break
            index[j] = 0


@njit(nogil=True)
def draw_values(program, arena, values, temperature, state):
    """Choose the block's values, last bucket first: at temperature 0 the best, else by their probability.

    The utility of each value of a bucket's variable is the sum of the bucket's input tables at the values chosen
    before. The bucket's variable is the first axis of each input. At temperature 0 ties are broken at random.

    Parameters
    ----------
    program : BucketProgram
        The elimination of the block: bucket b eliminates ``variable[b]``. Its input tables are
        ``inputs[input_start[b]:input_start[b + 1]]``; table t has the scope ``scope[scope_start[t]:scope_start[t +
        1]]`` and begins at ``arena[at[t]]``.
    arena : (entries,) float64
        All tables of the elimination, divided by the temperature if it is positive.
    values : (block size,) int64
        Receives the values.
    temperature : float
        Only whether it is positive matters here.
    """
    for b in range(program.variable.size - 1, -1, -1):
        v = program.variable[b]
        total = np.zeros(program.domains[v])
        for i in range(program.input_start[b], program.input_start[b + 1]):
            t = program.inputs[i]
            offset, step = column_of(program, t, values)
            for x in range(total.size):
                total[x] += arena[offset + x * step]
        values[v] = choose_value(total, total.size, 1.0 if temperature > 0 else 0.0, state)


@njit(nogil=True)
def redraw(graph, z, workspace, size, temperature, state):
    """Draw the variables ``workspace.block[:size]`` given all others; they are eliminated in this order.

    Parameters
    ----------
    size : int
        Number of variables of the block.
    temperature : float
        Utilities are divided by it; 0 takes a best assignment, with ties broken at random.

    Returns
    -------
    gain : float
        Gain of utility, each violation counted as a finite loss.
    cells : int
        Joined table cells; −1 if the arena is too small, and ``z`` is unchanged.
    """
    factors, start, scope = factors_touching_block(graph, workspace, size)
    domains = np.empty(size, dtype=np.int64)
    for i in range(size):
        domains[i] = graph.domains[workspace.block[i]]
    order = np.arange(size)
    begin, scopes, sizes, input_start, inputs, _, cells, row_axes = plan_buckets(start, scope, order, order, domains)
    table_at = np.empty(sizes.size, dtype=np.int64)
    arena_size = 0
    for t in range(sizes.size):
        table_at[t] = arena_size
        arena_size += sizes[t]
        if arena_size > workspace.arena.size:
            return 0.0, -1
    program = BucketProgram(domains, begin, scopes, table_at, order, input_start, inputs, cells, row_axes)
    before = 0.0
    for t in range(factors.size):
        f = factors[t]
        before += entry_of(graph, z, f)
        out = workspace.arena[table_at[t] : table_at[t] + sizes[t]]
        condition(graph, z, workspace, f, scopes[begin[t] : begin[t + 1]], out)
        if temperature > 0:
            for i in range(out.size):
                out[i] /= temperature
    lowest = workspace.arena.dtype.type(-np.inf)
    run_buckets(program, workspace.arena, 0, size, lowest, LOG_SUM if temperature > 0 else MAXIMUM)
    values = np.zeros(size, dtype=np.int64)
    draw_values(program, workspace.arena, values, temperature, state)
    for i in range(size):
        z[workspace.block[i]] = values[i]
    after = 0.0
    for t in range(factors.size):
        after += entry_of(graph, z, factors[t])
    return after - before, cells.sum()
