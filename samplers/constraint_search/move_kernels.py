# mypy: ignore-errors
"""Moves of a constraint search. Each changes some variables and records their old values, so that it can be undone.

Shared arguments: ``model`` and ``state`` as in :mod:`dmcmc.samplers.constraint_search.state_kernels`, and

changed : (2, capacity) int64
    The variables that the move has changed, in order, and their values before.
count : int
    Number of changes so far; each move returns the new number.
moved : (n,) int64
    For each variable, the number of the last move that changed it.
number : int
    Number of this move.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.constraint_search.state_kernels import (
    DEGREE,
    SOFT,
    WEIGHTED,
    cells_of,
    change_value,
    cost_change,
    draw,
    draw_unit,
)

MAX_REBUILT = 8
"""A rebuilding move frees at most this many variables."""


@njit(nogil=True, allocates=False)
def change(model, state, changed, count, v, new):
    """Give a variable a new value and record the old one."""
    changed[0, count], changed[1, count] = v, state.z[v]
    change_value(model, state, v, new)
    return count + 1


@njit(nogil=True, allocates=False)
def undo(model, state, changed, count):
    """Undo all changes of a move."""
    for i in range(count - 1, -1, -1):
        change_value(model, state, changed[0, i], changed[1, i])


@njit(nogil=True, allocates=False)
def value_like(model, v, other, value):
    """Return the value of v with the label that ``value`` has for another variable; −1 if there is none."""
    if value < 0:
        return -1
    if model.value_of.size:
        return np.int64(model.value_of[v, model.label[model.value_start[other] + value]])
    return value if value < model.graph.domains[v] else -1


@njit(nogil=True, allocates=False)
def pick_variable(model, state, focus):
    """Return a random variable; with ``focus`` one of a random violated constraint, table or automaton, if any is."""
    graph = model.graph
    n = graph.domains.size
    violated = np.int64(state.totals[3])
    if focus and violated > 0:
        c = state.violated[draw(state, violated)]
        constraints = model.hard.size
        if c >= constraints:
            first, last = graph.scope_start[c - constraints], graph.scope_start[c - constraints + 1]
            if last > first:
                return graph.scope[first + draw(state, last - first)]
        elif model.item_start[c + 1] > model.item_start[c]:
            first, size = model.item_start[c], model.item_start[c + 1] - model.item_start[c]
            item = first + draw(state, size)
            for step in range(size):  # prefer an item in cells with a penalty
                other = first + (item - first + step) % size
                if is_in_conflict(model, state, other):
                    item = other
                    break
            column = draw(state, 2) if model.item_variable[item, 1] >= 0 else 0
            return model.item_variable[item, column]
    return draw(state, n)


@njit(nogil=True, allocates=False)
def is_in_conflict(model, state, item):
    """Return whether an item occupies a cell with a penalty; True for constraints that count runs."""
    c = model.item_constraint[item]
    if model.counts_runs[c]:
        return True
    begin, end = cells_of(model, state, item)
    while begin < end and model.penalty[model.penalty_start[c] + state.load[begin]] <= 0:
        begin += 1
    return begin < end


@njit(nogil=True, allocates=False)
def single_move(model, state, changed, v):
    """Give a variable another random value."""
    size = model.graph.domains[v]
    if size < 2:
        return 0
    new = (state.z[v] + 1 + draw(state, size - 1)) % size
    return change(model, state, changed, 0, v, new)


@njit(nogil=True, allocates=False)
def follow(model, state, changed, moved, number, count):
    """Let variables follow those that have changed: the others of tables that leave them one value.

    A variable follows if a table over two variables forbids its value, and allows one other value only, given the
    variable that has changed. For instance, all participants' copies of a meeting's time follow one of them. Each
    variable follows once; ``moved`` marks those that have changed.
    """
    graph = model.graph
    for i in range(count):
        moved[changed[0, i]] = number
    done = 0
    while done < count:
        v = changed[0, done]
        done += 1
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            first = graph.scope_start[f]
            if state.degree[model.hard.size + f] == 0 or f >= graph.dense or graph.scope_start[f + 1] - first != 2:
                continue
            s = first + 1 if graph.position[i] == first else first
            u = graph.scope[s]
            if moved[u] == number or count == changed.shape[1]:
                continue
            new = only_allowed_value(model, state, f, s)
            if new >= 0:
                moved[u] = number
                count = change(model, state, changed, count, u, new)
    return count


@njit(nogil=True, allocates=False)
def only_allowed_value(model, state, f, s):
    """Return the value of the variable at ``scope[s]`` that dense table f allows; −1 if it allows none or several."""
    graph = model.graph
    u, found = graph.scope[s], -1
    entry = graph.table_start[f] + state.offset[f] - state.z[u] * graph.stride[s]
    for value in range(graph.domains[u]):
        if graph.data[entry + value * graph.stride[s]] != np.inf:
            if found >= 0:
                return -1
            found = value
    return found


@njit(nogil=True, allocates=False)
def has_followers(model):
    """Return whether some dense table over two variables allows one value only for some value of a variable."""
    graph = model.graph
    for f in range(graph.dense):
        first = graph.scope_start[f]
        if graph.scope_start[f + 1] - first != 2:
            continue
        for a in range(2):
            v, u, entry = graph.scope[first + a], graph.scope[first + 1 - a], graph.table_start[f]
            for x in range(graph.domains[v]):
                allowed = 0
                for y in range(graph.domains[u]):
                    if graph.data[entry + x * graph.stride[first + a] + y * graph.stride[first + 1 - a]] != np.inf:
                        allowed += 1
                if allowed == 1 and graph.domains[u] > 1:
                    return True
    return False


@njit(nogil=True, allocates=False)
def pair_move(model, state, changed, v):
    """Give a variable and its partner random values, for instance a start and its place."""
    count = single_move(model, state, changed, v)
    other = model.partner[v]
    if other >= 0 and model.graph.domains[other] > 1:
        new = (state.z[other] + 1 + draw(state, model.graph.domains[other] - 1)) % model.graph.domains[other]
        count = change(model, state, changed, count, other, new)
    return count


@njit(nogil=True, allocates=False)
def swap_move(model, state, changed, v):
    """Swap the values of a variable and of another one that shares a constraint with it.

    Half of the swaps of variables with partners swap the partners' values, too.
    """
    other = neighbour(model, state, v)
    if other < 0 or other == v:
        return 0
    count = swap_values(model, state, changed, 0, v, other)
    a, b = model.partner[v], model.partner[other]
    if count and a >= 0 and b >= 0 and a != b and draw(state, 2) == 0:
        count = swap_values(model, state, changed, count, a, b)
    return count


@njit(nogil=True, allocates=False)
def swap_values(model, state, changed, count, v, other):
    """Swap the values of two variables if both have both labels."""
    mine, its = value_like(model, other, v, state.z[v]), value_like(model, v, other, state.z[other])
    if mine < 0 or its < 0 or its == state.z[v]:
        return count
    count = change(model, state, changed, count, v, its)
    return change(model, state, changed, count, other, mine)


@njit(nogil=True, allocates=False)
def neighbour(model, state, v):
    """Return a random variable that shares a constraint with v in the same role, or a table; −1 if there is none."""
    graph = model.graph
    loads = model.items_start[v + 1] - model.items_start[v]
    tables = graph.start[v + 1] - graph.start[v]
    if loads + tables == 0:
        return -1
    i = draw(state, loads + tables)
    if i < loads:
        item = model.items[model.items_start[v] + i]
        c = model.item_constraint[item]
        other = model.item_start[c] + draw(state, model.item_start[c + 1] - model.item_start[c])
        column = 1 if model.item_variable[item, 1] == v else 0
        return model.item_variable[other, column]
    f = graph.factor[graph.start[v] + i - loads]
    size = graph.scope_start[f + 1] - graph.scope_start[f]
    return graph.scope[graph.scope_start[f] + draw(state, size)]


@njit(nogil=True, allocates=False)
def ejection_chain(model, state, changed, moved, number, v):
    """Give a variable a random value, and each variable that is in its way the value that was given up, and so on.

    With constraints that allow each value once, or tables over two variables that forbid equal values, this is a Kempe
    chain. Each variable moves at most once.
    """
    graph = model.graph
    count = single_move(model, state, changed, v)
    if count == 0:
        return 0
    moved[v] = number
    done = 0
    while done < count:
        v, old = changed[0, done], changed[1, done]
        done += 1
        for i in range(model.items_start[v], model.items_start[v + 1]):
            item = model.items[i]
            c = model.item_constraint[item]
            if not model.hard[c] or model.counts_runs[c] or state.degree[c] == 0 or count == changed.shape[1]:
                continue
            u = variable_in_the_way(model, state, moved, number, v, item)
            if u < 0:
                continue
            new = value_like(model, u, v, old)
            if new < 0 or new == state.z[u]:
                continue
            moved[u] = number
            count = change(model, state, changed, count, u, new)
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            first = graph.scope_start[f]
            if state.degree[model.hard.size + f] == 0 or graph.scope_start[f + 1] - first != 2:
                continue
            u = graph.scope[first + 1] if graph.position[i] == first else graph.scope[first]
            new = value_like(model, u, v, old)
            if moved[u] != number and new >= 0 and new != state.z[u] and count < changed.shape[1]:
                moved[u] = number
                count = change(model, state, changed, count, u, new)
    return count


@njit(nogil=True, allocates=False)
def variable_in_the_way(model, state, moved, number, v, item):
    """Return a variable of another item that shares cells with a penalty with an item of v; −1 if there is none."""
    c = model.item_constraint[item]
    begin, end = cells_of(model, state, item)
    penalty = model.penalty_start[c]
    while begin < end and model.penalty[penalty + state.load[begin]] == 0:
        begin += 1  # the first cell of the item with a penalty
    if begin >= end:
        return -1
    column = 1 if model.item_variable[item, 1] == v else 0
    first, size = model.item_start[c], model.item_start[c + 1] - model.item_start[c]
    shift = draw(state, size)
    for step in range(size):
        other = first + (shift + step) % size
        u = model.item_variable[other, column]
        if other == item or u < 0 or moved[u] == number or u == v:
            continue
        at, until = cells_of(model, state, other)
        if at < min(end, until) and until > begin:
            return u
    return -1


@njit(nogil=True, allocates=False)
def rebuild_move(model, state, changed, moved, number, v, soft_weight):
    """Free some variables around one, and give each its best value in random order (ruin and recreate).

    The variables are those of one constraint (for instance the meetings of a person or in a place), of a range of its
    cells (the meetings of a day), or variables that share different constraints with the first one.
    """
    count = 0
    if model.items_start[v + 1] > model.items_start[v] and draw(state, 3) > 0:
        count = free_range(model, state, changed, moved, number, v)
    else:
        count = free_neighbours(model, state, changed, moved, number, v)
    for i in range(count):  # the order is random: swap entry i with a later one
        j = i + draw(state, count - i)
        changed[0, i], changed[0, j] = changed[0, j], changed[0, i]
        changed[1, i], changed[1, j] = changed[1, j], changed[1, i]
    for i in range(count):
        u = changed[0, i]
        change_value(model, state, u, best_value(model, state, u, soft_weight))
    return count


@njit(nogil=True, allocates=False)
def free_neighbours(model, state, changed, moved, number, v):
    """Free a variable and random ones that share a constraint or a table with it; return their number."""
    size, count, u = 2 + draw(state, MAX_REBUILT - 1), 0, v
    for _ in range(3 * size):
        if count < size and u >= 0 and moved[u] != number and model.graph.domains[u] > 1:
            moved[u] = number
            count = change(model, state, changed, count, u, -1)
        u = neighbour(model, state, v)
    return count


@njit(nogil=True, allocates=False)
def free_range(model, state, changed, moved, number, v):
    """Free variables with items anywhere in a constraint, or near the cells of the item of v; return their number."""
    item = model.items[model.items_start[v] + draw(state, model.items_start[v + 1] - model.items_start[v])]
    c, column = model.item_constraint[item], 1 if model.item_variable[item, 1] == v else 0
    size, count = 2 + draw(state, MAX_REBUILT - 1), 0
    begin, end = cells_of(model, state, item)
    reach = np.int64(1) << 60 if draw(state, 2) == 0 else draw(state, 4) * (end - begin)
    first, items = model.item_start[c], model.item_start[c + 1] - model.item_start[c]
    shift = item - first
    for step in range(items):
        other = first + (shift + step) % items
        u = model.item_variable[other, column]
        at, until = cells_of(model, state, other)
        is_near = at < until and at <= begin + reach and until > begin - reach
        if count < size and is_near and u >= 0 and moved[u] != number and model.graph.domains[u] > 1:
            moved[u] = number
            count = change(model, state, changed, count, u, -1)
        if step == 0:
            shift = draw(state, items)
    return count


@njit(nogil=True, allocates=False)
def best_value(model, state, v, soft_weight):
    """Return the value of an unassigned variable with the least weighted degree and soft cost; ties are random."""
    best, least, ties = np.int64(0), np.inf, 0
    for value in range(model.graph.domains[v]):
        total = cost_change(model, state, v, value, soft_weight)
        if total < least - 1e-9 * abs(least):
            best, least, ties = np.int64(value), total, 1
        elif total <= least + 1e-9 * abs(least):
            ties += 1
            if draw(state, ties) == 0:
                best = np.int64(value)
    return best


@njit(nogil=True, allocates=False)
def build_assignment(model, state, order, soft_weight):
    """Assign all unassigned variables in a given order, each its best value."""
    for v in order:
        if state.z[v] < 0:
            change_value(model, state, v, best_value(model, state, v, soft_weight))


@njit(nogil=True, allocates=False)
def anneal(model, state, settings, changed, moved, counters, best, best_totals, statistics, halt):
    """Make moves at one temperature, and keep the best assignment.

    Parameters
    ----------
    settings : (8,) float64
        Temperature, probability that a move starts from a violated constraint, weight of the soft cost, and the
        cumulative probabilities of the moves: single, pair, swap, ejection chain, rebuild.
    counters : (2,) int64
        Number of moves of all calls, which this call raises; number of moves to make.
    best : (n,) int64
        The best assignment.
    best_totals : (2,) float64
        Its degree and soft cost.
    statistics : (3, 5) float64
        Per kind of move the number of moves and of changes; in the last row the number, mean and sum of squared
        deviations of the total after each move of this call.
    halt : (1,) uint8
        Ends the loop when it is set.
    """
    temperature, focus, soft_weight = settings[0], settings[1], settings[2]
    statistics[2, :3] = 0.0
    for made in range(counters[1]):
        if made & 127 == 0 and halt[0]:
            return
        counters[0] += 1
        number = counters[0]
        before = state.totals[WEIGHTED] + soft_weight * state.totals[SOFT]
        kind, chosen = 0, draw_unit(state)
        while kind < 4 and chosen >= settings[3 + kind]:
            kind += 1
        v = pick_variable(model, state, draw_unit(state) < focus)
        count, after, accepted = 0, before, False
        if kind == 0:
            size = model.graph.domains[v]
            if size > 1:
                new = (state.z[v] + 1 + draw(state, size - 1)) % size
                rise = cost_change(model, state, v, new, soft_weight)
                accepted = rise <= 0 or draw_unit(state) < np.exp(-rise / temperature)
                if accepted:
                    count = change(model, state, changed, 0, v, new)
        elif kind == 1:
            count = pair_move(model, state, changed, v)
            count = follow(model, state, changed, moved, number, count)
        elif kind == 2:
            count = swap_move(model, state, changed, v)
            count = follow(model, state, changed, moved, number, count)
        elif kind == 3:
            count = ejection_chain(model, state, changed, moved, number, v)
            count = follow(model, state, changed, moved, number, count)
        else:
            count = rebuild_move(model, state, changed, moved, number, v, soft_weight)
        statistics[0, kind] += 1
        statistics[1, kind] += count
        if count:
            after = state.totals[WEIGHTED] + soft_weight * state.totals[SOFT]
            if kind > 0:
                accepted = after <= before or draw_unit(state) < np.exp((before - after) / temperature)
                if not accepted:
                    undo(model, state, changed, count)
                    after = before
            if accepted:
                degree, soft = state.totals[DEGREE], state.totals[SOFT]
                margin = 1e-9 * abs(best_totals[1])
                if degree < best_totals[0] or (degree == best_totals[0] and soft < best_totals[1] - margin):
                    best_totals[0], best_totals[1] = degree, soft
                    for u in range(best.size):
                        best[u] = state.z[u]
        statistics[2, 0] += 1
        deviation = after - statistics[2, 1]
        statistics[2, 1] += deviation / statistics[2, 0]
        statistics[2, 2] += deviation * (after - statistics[2, 1])


@njit(nogil=True, allocates=False)
def descend(model, state, soft_weight, halt):
    """Change single variables to their best values until no change lowers the total (1-opt)."""
    improved = True
    while improved and not halt[0]:
        improved = False
        for v in range(model.graph.domains.size):
            total = abs(state.totals[WEIGHTED]) + soft_weight * abs(state.totals[SOFT])
            best, least = state.z[v], -1e-9 * total
            for value in range(model.graph.domains[v]):
                if value != state.z[v]:
                    rise = cost_change(model, state, v, value, soft_weight)
                    if rise < least:
                        best, least = value, rise
            if best != state.z[v]:
                change_value(model, state, v, best)
                improved = True


@njit(nogil=True, allocates=False)
def sample_changes(model, state, samples, found):
    """Write the absolute changes of the soft cost by random single-variable moves to ``found``; undo the moves."""
    changed = found.size
    for i in range(samples):
        v = draw(state, model.graph.domains.size)
        old, before = state.z[v], state.totals[SOFT]
        change_value(model, state, v, draw(state, model.graph.domains[v]))
        found[i % changed] = abs(state.totals[SOFT] - before)
        change_value(model, state, v, old)


@njit(nogil=True, allocates=False)
def raise_weights(state, factor):
    """Multiply the weights of all violated constraints, tables and automata by a factor; update the total."""
    total = 0.0
    for i in range(np.int64(state.totals[3])):
        c = state.violated[i]
        state.weight[c] *= factor
        total += state.weight[c] * state.degree[c]
    state.totals[WEIGHTED] = total
