"""Cost functions given by tables, sums or automata, in a weighted formula.

A hard table over two variables becomes the supports of each value; other tables become clauses over their tuples, with
a literal per level of cost. Automata have a literal per state.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import Arrays, AutomatonLayer
from dmcmc.samplers.max_sat.encoded_variables import EncodedVariables

_Ints = NDArray[np.int64]


def add_cost_functions(encoded: EncodedVariables, arrays: Arrays) -> None:
    """Add all cost functions of a problem but its global constraints.

    Parameters
    ----------
    encoded : EncodedVariables
        The variables, in a formula without cost functions.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    for scope, cost in problem_arrays.tables(arrays):
        _add_table(encoded, scope, cost)
    for scope, tuples, cost in problem_arrays.listed(arrays):
        _add_listed(encoded, scope, tuples, cost)
    for terms, minimum in problem_arrays.linear(arrays):
        _add_linear(encoded, terms, minimum)
    for scope, layers in problem_arrays.automata(arrays):
        _add_automaton(encoded, scope, layers)


def _add_table(encoded: EncodedVariables, scope: list[int], cost: _Ints) -> None:
    """Add a cost function given by all its costs."""
    allowed = cost < encoded.top
    if not allowed.any():
        encoded.formula.add()
        return
    least = int(cost[allowed].min())
    encoded.formula.constant += least
    if len(scope) == 1:
        for literal, extra in zip(encoded.literals[scope[0]], (cost - least).tolist(), strict=True):
            if literal != encoded.formula.false:
                encoded.formula.charge(literal, extra)
        return
    shape = tuple(len(encoded.literals[v]) for v in scope)
    if len(scope) == 2 and (cost[allowed] == least).all():
        _add_supports(encoded, scope, allowed.reshape(shape))
        return
    dearer = cost > least
    tuples = np.stack(np.unravel_index(np.flatnonzero(dearer), shape), axis=1)
    _add_levels(encoded, scope, tuples, np.where(allowed, cost - least, encoded.top)[dearer])


def _add_supports(encoded: EncodedVariables, scope: list[int], allowed: NDArray[np.bool_]) -> None:
    """Add for each value of two variables that the other variable has a value that is allowed with it."""
    first, second = (encoded.literals[v] for v in scope)
    for own, others, rows in ((first, second, allowed), (second, first, allowed.T)):
        for literal, row in zip(own, rows, strict=True):
            if literal != encoded.formula.false and not row.all():
                encoded.formula.add(-literal, *(others[b] for b in np.flatnonzero(row).tolist()))


def _add_listed(encoded: EncodedVariables, scope: list[int], tuples: _Ints, cost: _Ints) -> None:
    """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
    default, listed = int(cost[-1]), cost[:-1]
    allowed = listed < encoded.top
    if default >= encoded.top:
        selected = [_tuple(encoded, scope, values) for values in tuples[allowed].tolist()]
        encoded.formula.add(*selected)
        for literal, own in zip(selected, listed[allowed].tolist(), strict=True):
            encoded.formula.charge(literal, own)
        return
    encoded.formula.constant += default
    higher = listed > default
    _add_levels(encoded, scope, tuples[higher], np.where(allowed, listed - default, encoded.top)[higher])
    lower = listed < default
    for values, saved in zip(tuples[lower].tolist(), (listed - default)[lower].tolist(), strict=True):
        encoded.formula.charge(_tuple(encoded, scope, values), saved)


def _tuple(encoded: EncodedVariables, scope: list[int], values: list[int]) -> int:
    """Return a literal that is true if and only if some variables have the given values."""
    return encoded.formula.all_of([encoded.literals[v][a] for v, a in zip(scope, values, strict=True)])


def _add_levels(encoded: EncodedVariables, scope: list[int], tuples: _Ints, extra: _Ints) -> None:
    """Add extra costs of some tuples: one literal per level of cost, implied by each tuple of the level."""
    literals = [encoded.literals[v] for v in scope]
    clauses = [[-literals[i][a] for i, a in enumerate(values)] for values in tuples.tolist()]
    _add_costs(encoded, clauses, extra.tolist())


def _add_costs(encoded: EncodedVariables, clauses: list[list[int]], extra: list[int]) -> None:
    """Add clauses of which at most one is violated, for the cost of its violation."""
    levels: dict[int, int] = {}
    for clause, cost in zip(clauses, extra, strict=True):
        if cost < encoded.top:
            if cost not in levels:
                levels[cost] = encoded.formula.new()
            clause = [*clause, levels[cost]]
        encoded.formula.add(*clause)
    for cost, literal in levels.items():
        encoded.formula.charge(literal, cost)


def _add_linear(encoded: EncodedVariables, terms: _Ints, minimum: int) -> None:
    """Add the constraint that the sum of equal weights of selected values is at least a minimum."""
    weight = int(terms[0, 2])
    selected = [encoded.literals[v][a] for v, a, _ in terms.tolist()]
    if weight > 0:
        encoded.formula.at_least(selected, -(-minimum // weight))
    else:
        encoded.formula.at_most(selected, -minimum // -weight)


def _add_automaton(encoded: EncodedVariables, scope: list[int], layers: list[AutomatonLayer]) -> None:
    """Add an automaton: a literal per state before each variable, and a clause per transition."""
    formula, states = encoded.formula, [encoded.formula.true]
    for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
        last = position == len(layers) - 1
        following_states = [] if last else [formula.new() for _ in range(len(layers[position + 1].cost))]
        reached: list[list[int]] = [[] for _ in following_states]
        clauses, extra = [], []
        for s, a in np.ndindex(*cost.shape):
            if encoded.literals[v][a] == formula.false:
                continue
            transition, own = [-states[s], -encoded.literals[v][a]], int(cost[s, a])
            if own:
                clauses.append(transition)
                extra.append(own)
            if own < encoded.top and not last:
                formula.add(*transition, following_states[int(following[s, a])])
                reached[int(following[s, a])].append(states[s])
        _add_costs(encoded, clauses, extra)
        for state, before in zip(following_states, reached, strict=True):
            formula.add(-state, *sorted(set(before)))
        if following_states:
            formula.exactly_one(following_states)
        states = following_states
