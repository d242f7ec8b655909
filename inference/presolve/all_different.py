"""Groups of variables that must all be different: where they are, and which values matching leaves (Régin 1994)."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden

_LEAST = 3  # variables of a group: less is a table's affair
_MOST = 1000  # values of a group
_STATES = 64  # of an automaton that is looked at


def groups_of(problem: Problem) -> list[tuple[int, ...]]:
    """Return groups of variables of which no two may have the same value index.

    They are written as automata, one a value, each of which allows it once; or as tables over two variables each.
    """
    found = dict.fromkeys((*_by_automata(problem.factors), *_by_pairs(problem.factors)))
    return [group for group in found if problem.domains[list(group)].max() <= _MOST]


def supported(domains: Sequence[Sequence[int]]) -> list[list[bool]] | None:
    """Return for each variable's values whether all variables can be different with it; None if they never can.

    >>> supported([[0, 1], [0, 1], [0, 1, 2]])
    [[True, True], [True, True], [False, False, True]]
    """
    numbers = {x: i for i, x in enumerate(sorted({x for domain in domains for x in domain}))}
    own = [[numbers[x] for x in domain] for domain in domains]
    taken = _matching(own, len(numbers))
    if taken is None:
        return None
    # An arc from a variable's value to each other one that it could take instead.
    arcs = np.zeros((len(numbers), len(numbers)), dtype=np.bool_)
    for at, domain in zip(taken, own, strict=True):
        arcs[at, domain] = True
    reach = arcs | np.eye(len(numbers), dtype=np.bool_)
    for _ in range(len(numbers).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    free = np.ones(len(numbers), dtype=np.bool_)
    free[taken] = False
    ends = np.asarray(reach[:, free].any(axis=1))  # from here, what is taken can move on to a free value
    return [[bool(ends[x] or reach[x, at]) for x in domain] for at, domain in zip(taken, own, strict=True)]


def _matching(domains: Sequence[Sequence[int]], values: int) -> list[int] | None:
    """Return a value of each variable's own, all different; None if there are none (augmenting paths)."""
    holder, taken = [-1] * values, [-1] * len(domains)
    for start in range(len(domains)):
        came: dict[int, int] = {}  # the variable that a value was reached from
        waiting, end = [start], -1
        while waiting and end < 0:
            v = waiting.pop()
            for x in domains[v]:
                if x not in came:
                    came[x] = v
                    if holder[x] < 0:
                        end = x
                        break
                    waiting.append(holder[x])
        if end < 0:
            return None
        while end >= 0:
            v = came[end]
            holder[end], taken[v], end = v, end, taken[v]
    return taken


def _by_automata(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return scopes on which automata together allow every value once."""
    once: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[tuple[int, ...], int] = {}
    for factor in factors:
        if isinstance(factor, AutomatonFactor) and max(factor.states) <= _STATES:
            once.setdefault(factor.scope, set()).update(_once(factor))
            sizes[factor.scope] = max(factor.shape)
    return [scope for scope, values in once.items() if len(scope) >= _LEAST and len(values) == sizes[scope]]


def _once(factor: AutomatonFactor) -> list[int]:
    """Return the values that an automaton allows at most once along its scope."""
    candidates = {int(x) for layer in factor.layers for x in np.nonzero(forbidden(layer.utility))[1]}
    return [value for value in sorted(candidates) if _at_most_once(factor, value)]


def _at_most_once(factor: AutomatonFactor, value: int) -> bool:
    """Return whether no state that is reached with a value once allows it again."""
    never, already = {0}, set[int]()  # states that are reached without it, and with it
    for following, utility in factor.layers:
        free = ~forbidden(utility)
        others = np.arange(following.shape[1]) != value
        if value < following.shape[1] and free[sorted(already), value].any():
            return False
        after = {int(s) for state in already for s in following[state, free[state] & others]}
        after |= {int(s) for state in never for s in following[state, free[state] & ~others]}
        never = {int(s) for state in never for s in following[state, free[state] & others]}
        already = after
    return True


def _by_pairs(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return cliques of variables of which each two have a table that forbids equal values."""
    near: dict[int, set[int]] = {}
    for factor in factors:
        if type(factor) is Factor and len(factor.scope) == 2 and forbidden(np.diagonal(factor.table)).all():
            a, b = factor.scope
            near.setdefault(a, set()).add(b)
            near.setdefault(b, set()).add(a)
    found, covered = [], set[tuple[int, int]]()
    for a in sorted(near):
        for b in sorted(near[a]):
            if b < a or (a, b) in covered:
                continue
            group, others = [a, b], near[a] & near[b]
            while others:
                group.append(min(others))
                others &= near[group[-1]]
            group.sort()
            covered.update((u, v) for i, u in enumerate(group) for v in group[i + 1 :])
            if len(group) >= _LEAST:
                found.append(tuple(group))
    return found
