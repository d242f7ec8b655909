# mypy: ignore-errors
"""Compiled Gibbs steps on blocks, and sweeps over them.

Redraw a block given all other variables: condition its factors, eliminate, and choose values backwards.

This is block Gibbs sampling, or at temperature 0 an exact optimisation of the block. The elimination is that of
``dmcmc.inference.elimination``, on float64 tables in which a violation is a finite loss.

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.samplers.blocks.neighbourhood_search.penalised_graph``. The scope of factor f is
    ``graph.scope[graph.scope_start[f]:graph.scope_start[f + 1]]``. Factors below ``graph.dense`` are dense tables, the
    others are automata. A forbidden entry has the finite utility ``graph.forbidden_entry``.
z : (n,) int64
    The assignment.
workspace : BlockWorkspace
    See the same module. ``workspace.block`` holds the block's variables in elimination order. The *place* of variable v
    is its index in the block, ``workspace.place[v]``; −1 for variables outside the block.
state : (1,) uint64
    State of the random number generator.

Single-variable draws on a penalised graph (Gibbs sweeps), and the utility of assignments.

Block moves use these kernels for single variables, and to measure temperatures by the spread of utilities.

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.samplers.blocks.neighbourhood_search.penalised_graph``. The factors of variable v are
    ``graph.factor[graph.start[v]:graph.start[v + 1]]``; those below ``graph.dense`` are dense tables, the others are
    automata. A forbidden entry has the finite utility ``graph.forbidden_entry``, a large loss. Variables from
    ``graph.free`` on are fixed.
z : (n,) int64
    The assignment.
state : (1,) uint64
    State of the random number generator.
"""

import math

import numpy as np

from dmcmc.inference.elimination.arena_kernels import add_strided, column_of
from dmcmc.inference.elimination.join_kernels import run_buckets
from dmcmc.inference.elimination.plan import BucketProgram
from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.elimination.semirings import LOG_SUM, MAXIMUM
from dmcmc.inference.orders.bitset_kernels import random_unit
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_selection_kernels import entry_of


@njit(nogil=True, allocates=False)
def utility_of_assignment(graph, z):
    """Return the utility of an assignment; each violation counts as the finite utility ``graph.forbidden_entry``."""
    value = 0.0
    for f in range(graph.scope_start.size - 1):
        value += entry_of(graph, z, f)
    return value


@njit(nogil=True)
def conditional_utilities(graph, z, v, out):
    """Write the utility of each value of v, all other variables fixed, to ``out``; return the number of entries read.

    ``out`` is (at least the domain size of v,) float64. Only factors of v are summed. ``z`` is unchanged at the end.
    """
    size = graph.domains[v]
    out[:size] = 0.0
    old = z[v]
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        if f >= graph.dense:
            for d in range(size):
                z[v] = d
                out[d] += entry_of(graph, z, f)
            continue
        offset, step = graph.table_start[f], 0
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            if graph.scope[s] == v:
                step = graph.stride[s]
            else:
                offset += z[graph.scope[s]] * graph.stride[s]
        for d in range(size):
            out[d] += graph.data[offset + d * step]
    z[v] = old
    return size * (graph.start[v + 1] - graph.start[v])


@njit(nogil=True)
def choose_value(scores, size, temperature, state):
    """Draw a value with probability proportional to exp(score / temperature).

    At temperature 0, return a value of the highest score, with ties broken at random. ``scores`` is (at least
    ``size``,) float64.
    """
    top = scores[:size].max()
    if temperature > 0:
        mass = 0.0
        for x in range(size):
            mass += math.exp((scores[x] - top) / temperature)
        remaining = random_unit(state) * mass
        for x in range(size - 1):
            remaining -= math.exp((scores[x] - top) / temperature)
            if remaining < 0:
                return x
        return size - 1
    ties, chosen = 0, 0
    for x in range(size):
        if scores[x] == top:
            ties += 1
            if ties == 1 or random_unit(state) * ties < 1.0:
                chosen = x
    return chosen


@njit(nogil=True)
def sweep(graph, z, temperature, state):
    """Draw each free variable once, given the others; return the gain of utility and the number of entries read."""
    gain, entries_read, widest = 0.0, 0, 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    scores = np.empty(widest)
    for v in range(graph.free):
        if graph.domains[v] > 1:
            entries_read += conditional_utilities(graph, z, v, scores)
            new = choose_value(scores, graph.domains[v], temperature, state)
            gain += scores[new] - scores[z[v]]
            z[v] = new
    return gain, entries_read


@njit(nogil=True)
def typical_spread(graph, z):
    """Return the root mean square, over the free variables, of the standard deviation of their values' utilities.

    Values whose number of violations differs from that of the current value are left out.
    """
    sums, widest = 0.0, 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    scores = np.empty(widest)
    for v in range(graph.free):
        conditional_utilities(graph, z, v, scores)
        count, mean, square = 0, 0.0, 0.0
        for d in range(graph.domains[v]):
            difference = scores[d] - scores[z[v]]
            if abs(difference) < -0.5 * graph.forbidden_entry:
                count += 1
                mean += difference
                square += difference * difference
        if count > 0:
            sums += max(0.0, square / count - (mean / count) * (mean / count))
    return math.sqrt(sums / max(1, graph.free))


@njit(nogil=True)
def mobility(graph, z, share):
    """Return the mean probability that a draw of a single variable changes its value, all others fixed.

    The mean is over the free variables with more than one value; it is 1 if there is none.

    Parameters
    ----------
    share : float
        The temperature of the draws, as a fraction of the typical spread (see :func:`typical_spread`). If the spread is
        0, the values of a variable differ only in violations, and the temperature is 1.
    """
    temperature, widest = share * typical_spread(graph, z), 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    if temperature <= 0:
        temperature = 1.0
    scores, moves, count = np.empty(widest), 0.0, 0
    for v in range(graph.free):
        if graph.domains[v] > 1:
            conditional_utilities(graph, z, v, scores)
            top, mass = scores[: graph.domains[v]].max(), 0.0
            for d in range(graph.domains[v]):
                mass += math.exp((scores[d] - top) / temperature)
            moves += 1.0 - math.exp((scores[z[v]] - top) / temperature) / mass
            count += 1
    return moves / count if count > 0 else 1.0


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
