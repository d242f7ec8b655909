"""Costs over variables and pairs of them, laid out for branch and bound."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.toulbar2.costs import Costs

NEVER = 1 << 60  # a cost that nothing may have; all others stay far below
LIST = 4096  # assignments that a factor over three or more variables may allow: they are values of one more variable
TOP, TRAIL, STAMP, NODES, DEPTH, FOUND, LAST, LOWER = range(8)  # words of ``State.head``
REMOVED, RAISED, RISEN, UNSURE = range(4)  # rows of ``State.mark``

Words = NDArray[np.int64]
Tables = dict[tuple[int, int], Words]


class Network(NamedTuple):
    """What does not change.

    Attributes
    ----------
    domains : (n,) int64
    first : (n + 1,) int64
        Where a variable's values begin among all values.
    near_at : (n + 1,) int64
        Where a variable's neighbours begin in ``near``.
    near : (2 m,) int64
    near_pair : (2 m,) int64
        The pair shared with each neighbour.
    ends : (m, 2) int64
        The variables of each pair, ascending.
    cell_at : (m,) int64
        Where a pair's costs begin in ``cells``, row by row.
    cells : int64
        :data:`NEVER` where forbidden.
    shift_at : (m, 2) int64
        Where in ``State.word`` it stands what has been taken from a pair's costs, by value of each end.
    kin : (d,) int64
        The first of the values that may change places with each one, in all variables at once, without changing a cost;
        empty if there are none.
    """

    domains: Words
    first: Words
    near_at: Words
    near: Words
    near_pair: Words
    ends: NDArray[np.int64]
    cell_at: Words
    cells: Words
    shift_at: NDArray[np.int64]
    kin: Words


class State(NamedTuple):
    """Where a search stands: it can end and go on at any node.

    Attributes
    ----------
    word : int64
        The lower bound, what each value costs beyond it, then what has been taken from pairs.
    stamp : int64
        In which step each word was last put on the trail.
    trail : (room, 2) int64
        Words as they were: where, and what.
    head : (8,) int64
        What is to be beaten, length of the trail, step, nodes, depth, solutions found, the variable of the last
        failure, the lower bound at the root.
    values, place : int64
        The values of each variable, those left first; where in that each value is.
    size : (n,) int64
        Values left.
    sizes : (n + 1, n) int64
        The same before each choice.
    choice : (n + 1, 3) int64
        Of each depth: length of the trail before, the variable and its value.
    weight : (m,) float64
        How often each pair has failed.
    mark : (4, n) uint8
        Variables that have lost values; whose costs rose; (one word) whether the bound rose; to be made sure of.
    best : (n,) int64
        The best assignment found.
    scratch : (3, d) int64
    """

    word: Words
    stamp: Words
    trail: NDArray[np.int64]
    head: Words
    values: Words
    place: Words
    size: Words
    sizes: NDArray[np.int64]
    choice: NDArray[np.int64]
    weight: NDArray[np.float64]
    mark: NDArray[np.uint8]
    best: Words
    scratch: NDArray[np.int64]


def bytes_needed(costs: Costs) -> int:
    """Return about what a search takes; more than there is where a factor allows too much to be listed."""
    total, values = 0, int(costs.domains.sum())
    for scope, cost in zip(costs.scopes, costs.costs, strict=True):
        sizes = costs.domains[scope]
        if scope.size == 2:
            total += 8 * cost.size + 48 * int(sizes.sum())
        elif scope.size > 2:
            listed = int((cost < costs.top).sum())
            if listed > LIST:
                return 1 << 62
            total += listed * (8 * int(sizes.sum()) + 48 * int(scope.size))
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in costs.at_most_one)
    most = int(costs.domains.max(initial=1))
    return total + 200 * values + 8 * most * most * pairs + 8 * len(costs.domains) ** 2


def lay_out(costs: Costs) -> tuple[Network, State]:
    """Return a problem of costs as a network, and the state in which a search begins.

    A factor over three or more variables becomes a variable that chooses among the assignments it allows.
    """
    unary = [np.zeros(size, dtype=np.int64) for size in costs.domains.tolist()]
    pairs = Tables()
    for scope, flat in zip(costs.scopes, costs.costs, strict=True):
        table = np.where(flat >= costs.top, NEVER, flat).reshape(costs.domains[scope])
        own = scope.tolist()
        if len(own) == 1:
            unary[own[0]] = np.minimum(unary[own[0]] + table, NEVER)
        elif len(own) == 2:
            _add(pairs, own[0], own[1], table)
        else:
            _list(unary, pairs, own, table)
    for group in costs.at_most_one:
        for (v, x), (u, y) in combinations(group, 2):
            if v != u:
                table = np.zeros((unary[v].size, unary[u].size), dtype=np.int64)
                table[x, y] = NEVER
                _add(pairs, v, u, table)
    return _network(unary, pairs, costs.top)


def _add(pairs: Tables, v: int, u: int, table: NDArray[np.int64]) -> None:
    """Add costs of two variables to those that they have."""
    table = table if v < u else table.T
    pair = (min(v, u), max(v, u))
    pairs[pair] = np.minimum(pairs[pair] + table, NEVER) if pair in pairs else table


def _list(unary: list[Words], pairs: Tables, scope: list[int], table: NDArray[np.int64]) -> None:
    """Add a variable that chooses what a factor allows; it and each variable of the scope have to agree."""
    chosen = np.argwhere(table < NEVER)
    unary.append(table[tuple(chosen.T)])
    for place, v in enumerate(scope):
        agree = chosen[:, place] == np.arange(unary[v].size)[:, None]
        _add(pairs, v, len(unary) - 1, np.where(agree, 0, NEVER))


def _network(unary: list[Words], pairs: Tables, top: int) -> tuple[Network, State]:
    domains = np.array([own.size for own in unary], dtype=np.int64)
    ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    near: list[list[tuple[int, int]]] = [[] for _ in unary]
    for p, (v, u) in enumerate(ends.tolist()):
        near[v].append((u, p))
        near[u].append((v, p))
    flat = np.array([pair for own in near for pair in own], dtype=np.int64).reshape(-1, 2)
    sizes = domains[ends]
    starts = 1 + int(domains.sum()) + _starts(sizes.reshape(-1))
    network = Network(
        domains,
        _starts(domains),
        _starts(np.array([len(own) for own in near], dtype=np.int64)),
        flat[:, 0].copy(),
        flat[:, 1].copy(),
        ends,
        _starts(sizes.prod(axis=1))[:-1].copy(),
        np.concatenate([*(pairs[v, u].reshape(-1) for v, u in ends.tolist()), np.zeros(0, dtype=np.int64)]),
        starts[:-1].reshape(-1, 2).copy(),
        _kin(unary, pairs),
    )
    words, n = int(starts[-1]), domains.size
    word = np.zeros(words, dtype=np.int64)
    word[1 : 1 + int(domains.sum())] = np.concatenate([*unary, np.zeros(0, dtype=np.int64)])
    numbers = np.concatenate([*(np.arange(size) for size in domains.tolist()), np.zeros(0, dtype=np.int64)])
    head = np.zeros(8, dtype=np.int64)
    head[[TOP, STAMP, LAST]] = top, 1, -1
    state = State(
        word,
        np.zeros(words, dtype=np.int64),
        np.zeros((4 * words, 2), dtype=np.int64),
        head,
        numbers,
        numbers.copy(),
        domains.copy(),
        np.zeros((n + 1, n), dtype=np.int64),
        np.zeros((n + 1, 3), dtype=np.int64),
        np.ones(len(ends)),
        np.zeros((4, max(1, n)), dtype=np.uint8),
        np.zeros(n, dtype=np.int64),
        np.zeros((3, int(domains.max(initial=1))), dtype=np.int64),
    )
    return network, state


def _kin(unary: list[Words], pairs: Tables) -> Words:
    """Return ``Network.kin``: colours are kin, as a rule."""
    size = unary[0].size if unary else 0
    kin, none = np.arange(size), np.zeros(0, dtype=np.int64)
    if size < 2 or any(own.size != size for own in unary):
        return none
    for x in range(1, size):
        for y in range(x):
            if kin[y] == y:
                swap = np.arange(size)
                swap[[x, y]] = y, x
                alike = all(np.array_equal(own[swap], own) for own in unary)
                if alike and all(np.array_equal(table[swap][:, swap], table) for table in pairs.values()):
                    kin[x] = y
                    break
    return none if (kin == np.arange(size)).all() else kin.astype(np.int64)


def _starts(sizes: NDArray[np.int64]) -> Words:
    """Return where each part begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
