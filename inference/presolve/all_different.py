"""Find all-different groups of variables, and the values that some matching supports (Régin 1994)."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.tuning import MAX_GROUP_STATES, MAX_GROUP_VALUES

_MIN_GROUP_SIZE = 3  # variables; arc consistency of the tables suffices for smaller groups


def all_different_groups(problem: Problem) -> list[tuple[int, ...]]:
    """Return groups of variables of which no two may have the same value index.

    A group is recognised as a set of automata, one per value, each of which allows its value at most once. It is also
    recognised as a clique of tables over two variables.
    """
    groups = dict.fromkeys((*_groups_from_automata(problem.factors), *_groups_from_pairs(problem.factors)))
    return [group for group in groups if problem.domains[list(group)].max() <= MAX_GROUP_VALUES]


def _groups_from_automata(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return the scopes on which automata together allow each value at most once."""
    limited_values: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[tuple[int, ...], int] = {}
    for factor in factors:
        if isinstance(factor, AutomatonFactor) and max(factor.states) <= MAX_GROUP_STATES:
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
