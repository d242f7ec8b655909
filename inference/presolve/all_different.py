"""Find all-different groups of variables, and the values that some matching supports (Régin 1994)."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden

_MIN_GROUP_SIZE = 3  # variables; arc consistency of the tables suffices for smaller groups
_MAX_VALUES = 1000  # largest domain of a group's variables
_MAX_STATES = 64  # largest number of states of an automaton that is examined


def all_different_groups(problem: Problem) -> list[tuple[int, ...]]:
    """Return groups of variables of which no two may have the same value index.

    A group is recognised as a set of automata, one per value, each of which allows its value at most once. It is also
    recognised as a clique of tables over two variables.
    """
    groups = dict.fromkeys((*_groups_from_automata(problem.factors), *_groups_from_pairs(problem.factors)))
    return [group for group in groups if problem.domains[list(group)].max() <= _MAX_VALUES]


def supported_values(domains: Sequence[Sequence[int]]) -> list[list[bool]] | None:
    """Return for each value of each variable whether an assignment of different values uses it; None if none exists.

    Given one matching, value x is supported for a variable with matched value c if exchanging values along a path of
    variables is possible: x reaches an unmatched value, or x reaches c (Régin 1994). Reachability is computed by
    squaring the (values, values) matrix of arcs.

    >>> supported_values([[0, 1], [0, 1], [0, 1, 2]])
    [[True, True], [True, True], [False, False, True]]
    """
    index_of = {x: i for i, x in enumerate(sorted({x for domain in domains for x in domain}))}
    numbered = [[index_of[x] for x in domain] for domain in domains]
    matching = _matching(numbered, len(index_of))
    if matching is None:
        return None
    # An arc leads from the value of a variable to each value that the variable could take instead.
    arcs = np.zeros((len(index_of), len(index_of)), dtype=np.bool_)
    for current, domain in zip(matching, numbered, strict=True):
        arcs[current, domain] = True
    reach = arcs | np.eye(len(index_of), dtype=np.bool_)
    for _ in range(len(index_of).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    free = np.ones(len(index_of), dtype=np.bool_)
    free[matching] = False
    reaches_free = np.asarray(reach[:, free].any(axis=1))  # an alternating path leads from here to an unmatched value
    return [
        [bool(reaches_free[x] or reach[x, current]) for x in domain]
        for current, domain in zip(matching, numbered, strict=True)
    ]


def _matching(domains: Sequence[Sequence[int]], values: int) -> list[int] | None:
    """Match each variable with a value, all different, by augmenting paths; None if there is no such matching."""
    holder, value_of = [-1] * values, [-1] * len(domains)
    for start in range(len(domains)):
        reached_from: dict[int, int] = {}  # per value, the variable from which the search reached it
        stack, end = [start], -1
        while stack and end < 0:
            v = stack.pop()
            for x in domains[v]:
                if x not in reached_from:
                    reached_from[x] = v
                    if holder[x] < 0:
                        end = x
                        break
                    stack.append(holder[x])
        if end < 0:
            return None
        while end >= 0:
            v = reached_from[end]
            holder[end], value_of[v], end = v, end, value_of[v]
    return value_of


def _groups_from_automata(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return the scopes on which automata together allow each value at most once."""
    limited_values: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[tuple[int, ...], int] = {}
    for factor in factors:
        if isinstance(factor, AutomatonFactor) and max(factor.states) <= _MAX_STATES:
            limited_values.setdefault(factor.scope, set()).update(_values_allowed_once(factor))
            sizes[factor.scope] = max(factor.shape)
    return [
        scope
        for scope, values in limited_values.items()
        if len(scope) >= _MIN_GROUP_SIZE and len(values) == sizes[scope]
    ]


def _values_allowed_once(factor: AutomatonFactor) -> list[int]:
    """Return the values that an automaton allows at most once along its scope."""
    candidates = {int(x) for layer in factor.layers for x in np.nonzero(forbidden(layer.utility))[1]}
    return [value for value in sorted(candidates) if _allows_at_most_once(factor, value)]


def _allows_at_most_once(factor: AutomatonFactor, value: int) -> bool:
    """Return whether no state reached after one occurrence of a value allows it again."""
    states_without, states_with = {0}, set[int]()  # states reached without the value, and with it
    for following, utility in factor.layers:
        allowed = ~forbidden(utility)
        is_other_value = np.arange(following.shape[1]) != value
        if value < following.shape[1] and allowed[sorted(states_with), value].any():
            return False
        next_states_with = {int(s) for state in states_with for s in following[state, allowed[state] & is_other_value]}
        next_states_with |= {
            int(s) for state in states_without for s in following[state, allowed[state] & ~is_other_value]
        }
        states_without = {int(s) for state in states_without for s in following[state, allowed[state] & is_other_value]}
        states_with = next_states_with
    return True


def _groups_from_pairs(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return cliques of variables with a table over each two that forbids equal values; cliques grow greedily."""
    neighbours: dict[int, set[int]] = {}
    for factor in factors:
        if type(factor) is Factor and len(factor.scope) == 2 and forbidden(np.diagonal(factor.table)).all():
            a, b = factor.scope
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    groups, covered = [], set[tuple[int, int]]()
    for a in sorted(neighbours):
        for b in sorted(neighbours[a]):
            if b < a or (a, b) in covered:
                continue
            group, common_neighbours = [a, b], neighbours[a] & neighbours[b]
            while common_neighbours:
                group.append(min(common_neighbours))
                common_neighbours &= neighbours[group[-1]]
            group.sort()
            covered.update((u, v) for i, u in enumerate(group) for v in group[i + 1 :])
            if len(group) >= _MIN_GROUP_SIZE:
                groups.append(tuple(group))
    return groups
