# mypy: ignore-errors
"""The state of a constraint search, and what a change of one variable does to it.

Shared arguments:

model : SearchModel
    See :mod:`dmcmc.samplers.constraint_search.search_model`.
state : WalkState
    See below. A variable with value −1 is unassigned: its items occupy no cells, and its tables cost nothing.
"""

from typing import NamedTuple

import numpy as np

from dmcmc.inference.runtime.compile import njit

# Indices into ``state.totals``
WEIGHTED = 0  # Σ weight · degree over hard constraints and forbidden entries
SOFT = 1  # soft cost
DEGREE = 2  # Σ degree over hard constraints and forbidden entries


class WalkState(NamedTuple):
    """An assignment with everything that depends on it.

    Attributes
    ----------
    z : (n,) int64
        The assignment; −1 for an unassigned variable.
    load : (cells,) int64
        The load of each cell.
    runs : (constraints,) int64
        The number of runs of occupied cells of each constraint that counts them.
    degree : (constraints + factors,) int64
        The degree of each constraint, then 1 for each table or automaton with a forbidden entry and 0 for the others.
    offset : (factors,) int64
        Offset of the present entry of each dense table, by the assigned variables of its scope.
    missing : (factors,) int64
        Number of unassigned variables of each table or automaton.
    value : (factors,) float64
        Present soft cost of each table and automaton.
    weight : (constraints + factors,) float64
        Weight of a violation of each constraint, table and automaton.
    violated, place : (constraints + factors,) int64
        The hard constraints, tables and automata that are violated, and the index of each in ``violated``, or −1.
    totals : (4,) float64
        Weighted degree, soft cost, degree; the last entry is the number of entries of ``violated``.
    random : (1,) uint64
        State of the random number generator.
    """

    z: np.ndarray
    load: np.ndarray
    runs: np.ndarray
    degree: np.ndarray
    offset: np.ndarray
    missing: np.ndarray
    value: np.ndarray
    weight: np.ndarray
    violated: np.ndarray
    place: np.ndarray
    totals: np.ndarray
    random: np.ndarray


@njit(nogil=True, allocates=False)
def draw(state, bound):
    """Return a random integer in 0, ..., bound − 1 (SplitMix64: Steele, Lea and Flood, OOPSLA 2014)."""
    state.random[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state.random[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return np.int64(((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(nogil=True, allocates=False)
def draw_unit(state):
    """Return a random float64 strictly inside (0, 1)."""
    return (draw(state, 1 << 31) + 0.5) * 2.0**-31


@njit(nogil=True, allocates=False)
def set_degree(state, c, degree, hard):
    """Set the degree of a constraint, table or automaton; update the totals and the set of violated ones."""
    before = state.degree[c]
    state.degree[c] = degree
    if not hard or before == degree:
        return
    state.totals[WEIGHTED] += state.weight[c] * (degree - before)
    state.totals[DEGREE] += degree - before
    if before == 0:
        end = np.int64(state.totals[3])
        state.violated[end], state.place[c] = c, end
        state.totals[3] += 1
    elif degree == 0:
        state.totals[3] -= 1
        end, at = np.int64(state.totals[3]), state.place[c]
        last = state.violated[end]
        state.violated[at], state.place[last] = last, at
        state.place[c] = -1


@njit(nogil=True, allocates=False)
def cells_of(model, state, item):
    """Return the first cell that an item occupies, and the cell after the last one; 0 and 0 if it occupies none."""
    a, b = model.item_variable[item, 0], model.item_variable[item, 1]
    index = state.z[a]
    if index < 0:
        return np.int64(0), np.int64(0)
    if b >= 0:
        if state.z[b] < 0:
            return np.int64(0), np.int64(0)
        index = index * model.graph.domains[b] + state.z[b]
    index += model.item_first[item]
    return model.first[index], model.end[index]


@njit(nogil=True, allocates=False)
def add_load(model, state, c, begin, end, weight):
    """Add a weight to the loads of cells; return the change of the degree if it is a sum over cells.

    For constraints that count runs, update the number of runs and return 0.
    """
    penalty, change = model.penalty_start[c], 0
    if not model.counts_runs[c]:
        for cell in range(begin, end):
            load = state.load[cell]
            state.load[cell] = load + weight
            rise = model.penalty[penalty + load + weight] - model.penalty[penalty + load]
            change += model.cell_width[cell] * rise
        return change
    first, last = model.cell_start[c], model.cell_start[c + 1] - 1
    for cell in range(begin, end):
        load = state.load[cell]
        state.load[cell] = load + weight
        if (load > 0) != (load + weight > 0):
            neighbours = 0
            if cell > first and state.load[cell - 1] > 0:
                neighbours += 1
            if cell < last and state.load[cell + 1] > 0:
                neighbours += 1
            state.runs[c] += 1 - neighbours if load == 0 else neighbours - 1
    return 0


@njit(nogil=True, allocates=False)
def move_item(model, state, item, old, new):
    """Move an item from old to new cells, each a first cell and an end; update the degree of its constraint."""
    c, weight = model.item_constraint[item], model.item_weight[item]
    # Cells in both ranges keep their loads.
    change = add_load(model, state, c, old[0], min(old[1], new[0]), -weight)
    change += add_load(model, state, c, max(old[0], new[1]), old[1], -weight)
    change += add_load(model, state, c, new[0], min(new[1], old[0]), weight)
    change += add_load(model, state, c, max(new[0], old[1]), new[1], weight)
    degree = state.degree[c] + change
    if model.counts_runs[c]:
        degree = model.penalty[model.penalty_start[c] + state.runs[c]]
    if not model.hard[c]:
        state.totals[SOFT] += model.unit_cost[c] * (degree - state.degree[c])
    set_degree(state, c, degree, model.hard[c])


@njit(nogil=True, allocates=False)
def run_automaton(model, state, f):
    """Return the cost of an automaton's word; inf if it is forbidden."""
    graph = model.graph
    automaton_state, total = 0, 0.0
    for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
        v = graph.scope[s]
        transition = graph.stride[s] + automaton_state * graph.domains[v] + state.z[v]
        total += graph.data[graph.first_step + transition]
        automaton_state = graph.following[transition]
    return total


@njit(nogil=True, allocates=False)
def change_value(model, state, v, new):
    """Give a variable a new value (−1: none), and update all that depends on it."""
    graph = model.graph
    old = state.z[v]
    if old == new:
        return
    for i in range(model.items_start[v], model.items_start[v + 1]):
        item = model.items[i]
        before = cells_of(model, state, item)
        state.z[v] = new
        after = cells_of(model, state, item)
        if before != after:
            move_item(model, state, item, before, after)
        state.z[v] = old
    state.z[v] = new
    constraints = model.hard.size
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        if old < 0:
            state.missing[f] -= 1
        elif new < 0:
            state.missing[f] += 1
        cost = 0.0
        if f < graph.dense:
            state.offset[f] += (max(new, 0) - max(old, 0)) * graph.stride[graph.position[i]]
            if state.missing[f] == 0:
                cost = graph.data[graph.table_start[f] + state.offset[f]]
        elif state.missing[f] == 0:
            cost = run_automaton(model, state, f)
        forbidden = cost == np.inf
        if forbidden:
            cost = 0.0
        state.totals[SOFT] += cost - state.value[f]
        state.value[f] = cost
        set_degree(state, constraints + f, 1 if forbidden else 0, True)


@njit(nogil=True, allocates=False)
def degree_change(model, state, item, old, new):
    """Return the change of the degree of an item's constraint if the item moved from old to new cells."""
    c, weight = model.item_constraint[item], model.item_weight[item]
    penalty = model.penalty_start[c]
    if model.counts_runs[c]:
        before = state.runs[c]
        add_load(model, state, c, old[0], old[1], -weight)
        add_load(model, state, c, new[0], new[1], weight)
        degree = model.penalty[penalty + state.runs[c]]
        add_load(model, state, c, new[0], new[1], -weight)
        add_load(model, state, c, old[0], old[1], weight)
        return degree - model.penalty[penalty + before]
    change = 0  # cells in both ranges keep their loads
    for cell in range(old[0], old[1]):
        if cell < new[0] or cell >= new[1]:
            load = state.load[cell]
            fall = model.penalty[penalty + load - weight] - model.penalty[penalty + load]
            change += model.cell_width[cell] * fall
    for cell in range(new[0], new[1]):
        if cell < old[0] or cell >= old[1]:
            load = state.load[cell]
            rise = model.penalty[penalty + load + weight] - model.penalty[penalty + load]
            change += model.cell_width[cell] * rise
    return change


@njit(nogil=True, allocates=False)
def cost_change(model, state, v, new, soft_weight):
    """Return the change of weighted degree + ``soft_weight`` · soft cost if a variable got another value."""
    graph = model.graph
    old, total, constraints = state.z[v], 0.0, model.hard.size
    unassigned = 1 if old < 0 else 0
    for i in range(model.items_start[v], model.items_start[v + 1]):
        item = model.items[i]
        before = cells_of(model, state, item)
        state.z[v] = new
        after = cells_of(model, state, item)
        state.z[v] = old
        if before != after:
            c, change = model.item_constraint[item], degree_change(model, state, item, before, after)
            total += change * (state.weight[c] if model.hard[c] else soft_weight * model.unit_cost[c])
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        if state.missing[f] != unassigned:
            continue
        if f < graph.dense:
            offset = state.offset[f] + (new - max(old, 0)) * graph.stride[graph.position[i]]
            cost = graph.data[graph.table_start[f] + offset]
        else:
            state.z[v] = new
            cost = run_automaton(model, state, f)
            state.z[v] = old
        c = constraints + f
        if cost == np.inf:
            total += state.weight[c] * (1 - state.degree[c]) - soft_weight * state.value[f]
        else:
            total += soft_weight * (cost - state.value[f]) - state.weight[c] * state.degree[c]
    return total


@njit(nogil=True, allocates=False)
def reset(model, state):
    """Set the state to that without assigned variables."""
    state.z[:] = -1
    state.load[:] = 0
    state.runs[:] = 0
    state.offset[:] = 0
    state.value[:] = 0.0
    state.totals[:] = 0.0
    state.place[:] = -1
    state.degree[:] = 0
    for f in range(model.graph.scope_start.size - 1):
        state.missing[f] = model.graph.scope_start[f + 1] - model.graph.scope_start[f]
    for c in range(model.hard.size):  # a degree can be positive without any load
        degree = 0
        if model.counts_runs[c]:
            degree = model.penalty[model.penalty_start[c]]
        else:
            for cell in range(model.cell_start[c], model.cell_start[c + 1]):
                degree += model.cell_width[cell] * model.penalty[model.penalty_start[c]]
        if not model.hard[c]:
            state.totals[SOFT] += model.unit_cost[c] * degree
        set_degree(state, c, degree, model.hard[c])


@njit(nogil=True, allocates=False)
def load_assignment(model, state, values):
    """Set the state to an assignment, exactly: rounding errors of the totals end here."""
    reset(model, state)
    for v in range(values.size):
        change_value(model, state, v, values[v])
