"""The AND/OR search space of a cost problem in the layout of the search kernels.

Its pseudo-tree is the bucket tree of an elimination order: the parent of a variable is the next variable of its message
in exact elimination. A node without a parent hangs from the *root*, one more variable with a single value and without
costs, so that independent components are children of one node. The *context* of a variable is the scope of its exact
message: all ancestors that its subproblem depends on.

A variable whose subproblems may recur has a *cache* with one entry per assignment of its context. A variable without a
cache belongs to the *group* of its nearest ancestor with one (or of the root). A cache entry also holds the values of
its group, so that an optimal assignment can be put together from the caches.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.and_or.messages import MiniBucketMessages

INFINITE = 1 << 60  # the cost of what is forbidden; all other costs stay far below
TOP, AT, NODES, FOUND, LOWER = range(5)  # indices of ``AndOrState.head``

Ints = NDArray[np.int64]


class SearchSpace(NamedTuple):
    """The constant part of a search; all arrays are int64 unless stated. The root is variable n.

    Attributes
    ----------
    first : (n + 2,)
        Offset of each variable's values among all values.
    parent : (n + 1,)
        Parent of each variable in the pseudo-tree; −1 for the root.
    child_at, child : (n + 2,), (n,)
        The children of v: ``child[child_at[v]:child_at[v + 1]]``, small subtrees first.
    top_down : (n + 1,)
        All variables, parents before their children.
    entries : (entries,) int32 or int64
        Negated costs and messages.
    forbidden_below : int
        Entries below this number are −∞.
    at, scope_at, scope, stride
        Table t begins at ``entries[at[t]]``. Its variables are ``scope[scope_at[t]:scope_at[t + 1]]``, and ``stride``
        has the distance between entries of neighbouring values.
    own_at, message_at, own
        Tables whose first variable is v: costs ``own[own_at[v]:message_at[v]]``, messages up to ``own_at[v + 1]``.
    above_at, passing_at, above
        Messages from the subtree of v to its ancestors: those of v from ``above_at[v]`` on, those of
        its descendants from ``passing_at[v]`` to ``above_at[v + 1]``.
    constant, below : (n + 1,)
        Cost of all messages without variables from the subtree of v; from the subtrees of its children.
    context_at, context
        The context of v: ``context[context_at[v]:context_at[v + 1]]``.
    cache_at : (n + 1,)
        Offset of each variable's cache; −1 without a cache.
    group_at, group
        The variables of the group whose top is v, or of the part of its group below and including v if v has no cache:
        ``group[group_at[v]:group_at[v + 1]]``, v first, then the groups of its children without a cache.
    cached_values_at : (n + 1,)
        Offset of the groups' values of each cache.
    """

    first: Ints
    parent: Ints
    child_at: Ints
    child: Ints
    top_down: Ints
    entries: Array
    forbidden_below: int
    at: Ints
    scope_at: Ints
    scope: Ints
    stride: Ints
    own_at: Ints
    message_at: Ints
    own: Ints
    above_at: Ints
    passing_at: Ints
    above: Ints
    constant: Ints
    below: Ints
    context_at: Ints
    context: Ints
    cache_at: Ints
    group_at: Ints
    group: Ints
    cached_values_at: Ints


class AndOrState(NamedTuple):
    """The state of a search, which can stop and continue at any node; all arrays are int64 unless stated.

    At most one OR node of each variable is open at a time, so the arrays have one entry per variable. The subproblem of
    an OR node consists of its variable and all descendants, given the values of its ancestors.

    Attributes
    ----------
    head : (5,)
        By index: TOP, the cost to beat; AT, the variable of the OR node to open next, −1 once the root is closed;
        NODES, number of opened OR nodes; FOUND, number of assignments found; LOWER, lower bound on all costs.
    values : (n + 1,)
        Value of each assigned variable.
    limit : (n + 1,)
        Only solutions of the subproblem that cost less than this are searched for.
    best, low : (n + 1,)
        Cost of the best solution found of the subproblem, and the least lower bound on all values tried.
    total : (n + 1,)
        Cost of the value taken, plus the bounds on the subproblems of all children.
    bound : (n + 1,)
        Lower bound on the subproblem of each child of an open node; its cost once it is solved.
    solved : (n + 1,) uint8
        Whether ``bound`` is the cost of the subproblem.
    score : (values,)
        Lower bound on the subproblem for each value of an open node.
    solution : (group.size,) int32
        Values of the best solution, laid out as ``SearchSpace.group``.
    cache : (cache entries,)
        0, or 2 (bound + 1), plus 1 if the bound is the cost of the subproblem.
    cached_values : int32
        The groups' values for each cache entry that is solved.
    trial, is_fixed, trial_score, path
        Workspace of ``improve_incumbent``: an assignment, which of its values are chosen, scores, open variables.
    assignment : (n,)
        The best assignment found.
    """

    head: Ints
    values: Ints
    limit: Ints
    best: Ints
    low: Ints
    total: Ints
    bound: Ints
    solved: NDArray[np.uint8]
    score: Ints
    solution: NDArray[np.int32]
    cache: Ints
    cached_values: NDArray[np.int32]
    trial: Ints
    is_fixed: NDArray[np.uint8]
    trial_score: Ints
    path: Ints
    assignment: Ints


class _Tree(NamedTuple):
    """The pseudo-tree: parents, contexts, children, and the variables with parents first; the root is variable n."""

    parent: list[int]
    context: list[tuple[int, ...]]
    children: list[list[int]]
    top_down: list[int]


def build_search(messages: MiniBucketMessages, cache_memory: int) -> tuple[SearchSpace, AndOrState]:
    """Return the search space of a cost problem and the state before the search.

    Parameters
    ----------
    messages : MiniBucketMessages
        Costs and messages.
    cache_memory : int
        Maximum of bytes of the caches. All contexts up to the largest size that fits are cached.
    """
    program, tree = messages.plan.program, _pseudo_tree(messages)
    domains = [*program.domains.tolist(), 1]
    n = len(domains) - 1
    cached = _choose_cached(tree, domains, cache_memory)
    group = _groups(tree, cached)
    contexts = [prod(domains[u] for u in tree.context[v]) if cached[v] else 0 for v in range(n + 1)]
    own, n_costs = _own_tables(messages, n)
    above, n_sent, constant = _messages_above(messages, tree)
    below = [min(INFINITE, sum(constant[c] for c in tree.children[v])) for v in range(n + 1)]
    cache_starts, value_starts = _starts(contexts), _starts([s * len(g) for s, g in zip(contexts, group, strict=True)])
    space = SearchSpace(
        first=_starts(domains),
        parent=_array(tree.parent),
        child_at=_starts(map(len, tree.children)),
        child=_flat(tree.children),
        top_down=_array(tree.top_down),
        entries=messages.entries,
        forbidden_below=int(messages.arithmetic.forbidden_below),
        at=program.at,
        scope_at=program.scope_start,
        scope=program.scope,
        stride=FlatTables(program.scope_start, program.scope, program.at, messages.entries).strides(program.domains),
        own_at=_starts(map(len, own)),
        message_at=_starts(map(len, own))[:-1] + _array(n_costs),
        own=_flat(own),
        above_at=_starts(map(len, above)),
        passing_at=_starts(map(len, above))[:-1] + _array(n_sent),
        above=_flat(above),
        constant=_array(constant),
        below=_array(below),
        context_at=_starts(map(len, tree.context)),
        context=_flat(tree.context),
        cache_at=np.where(cached, cache_starts[:-1], -1),
        group_at=_starts(map(len, group)),
        group=_flat(group),
        cached_values_at=value_starts[:-1],
    )
    return space, _initial_state(space, int(cache_starts[-1]), int(value_starts[-1]))


def _initial_state(space: SearchSpace, cache_entries: int, cached_values: int) -> AndOrState:
    """Return the state before a search."""
    n = space.parent.size - 1
    values, limit, best, low, total, bound, trial, path = np.zeros((8, n + 1), dtype=np.int64)
    return AndOrState(
        np.zeros(5, dtype=np.int64), values, limit, best, low, total, bound, np.zeros(n + 1, dtype=np.uint8),
        np.zeros(int(space.first[-1]), dtype=np.int64), np.zeros(space.group.size, dtype=np.int32),
        np.zeros(cache_entries, dtype=np.int64), np.zeros(cached_values, dtype=np.int32), trial,
        np.zeros(n + 1, dtype=np.uint8), np.zeros(int(np.diff(space.first).max()), dtype=np.int64), path,
        np.zeros(n, dtype=np.int64),
    )  # fmt: skip


def _pseudo_tree(messages: MiniBucketMessages) -> _Tree:
    """Return the bucket tree of exact elimination."""
    exact = messages.exact
    n, order = exact.program.domains.size, exact.program.variable.tolist()
    parent, children = [n] * n + [-1], [list[int]() for _ in range(n + 1)]
    context: list[tuple[int, ...]] = [()] * (n + 1)
    size = [1] * (n + 1)
    for b, v in enumerate(order):  # descendants before their ancestors
        context[v] = exact.scope(exact.output(b))
        parent[v] = context[v][0] if context[v] else n
        size[parent[v]] += size[v]
    for v in sorted(range(n), key=lambda v: size[v]):
        children[parent[v]].append(v)
    return _Tree(parent, context, children, [n, *reversed(order)])


def _choose_cached(tree: _Tree, domains: Sequence[int], memory: int) -> list[bool]:
    """Return for each variable whether it has a cache.

    A subproblem does not recur if its context consists of its parent and the parent's context, and the parent's
    subproblems do not recur or are cached. A leaf is as cheap as its cache.
    """
    sizes = [prod(domains[u] for u in context) for context in tree.context]
    may_recur = [False] * len(domains)
    for v in tree.top_down[1:]:
        all_cached = len(tree.context[v]) == len(tree.context[tree.parent[v]]) + 1
        may_recur[v] = not all_cached and tree.parent[v] != len(domains) - 1 and bool(tree.children[v])
    fitting = {size for v, size in enumerate(sizes) if may_recur[v] and (8 + 4) * size <= memory}
    for limit in sorted(fitting, reverse=True):
        cached = [may and size <= limit for may, size in zip(may_recur, sizes, strict=True)]
        group = _groups(tree, cached)
        if sum(size * (8 + 4 * len(group[v])) for v, size in enumerate(sizes) if cached[v]) <= memory:
            return cached
    return [False] * len(domains)


def _groups(tree: _Tree, cached: Sequence[bool]) -> list[list[int]]:
    """Return the groups: each variable, followed by the groups of its children without a cache."""
    group = [[v] for v in range(len(cached))]
    for v in reversed(tree.top_down):
        for child in tree.children[v]:
            if not cached[child]:
                group[v] += group[child]
    return group


def _own_tables(messages: MiniBucketMessages, n: int) -> tuple[list[list[int]], list[int]]:
    """Return the tables whose first variable is v, costs first, and the number of these costs, for each variable v."""
    plan = messages.plan
    n_inputs = plan.tables - plan.buckets
    own, n_costs = [list[int]() for _ in range(n + 1)], [0] * (n + 1)
    for t in (*range(messages.given), *range(n_inputs, plan.tables)):
        if scope := plan.scope(t):
            own[scope[0]].append(t)
            n_costs[scope[0]] += t < messages.given
    return own, n_costs


def _messages_above(messages: MiniBucketMessages, tree: _Tree) -> tuple[list[list[int]], list[int], list[int]]:
    """Return for each variable the messages from its subtree to its ancestors, its own first; their number; constants.

    The constants are the costs of all messages without variables from the subtree.
    """
    plan, n = messages.plan, len(tree.parent) - 1
    sent, passing = [list[int]() for _ in range(n + 1)], [list[int]() for _ in range(n + 1)]
    constant = [0] * (n + 1)
    for b, v in enumerate(plan.program.variable.tolist()):
        t = plan.output(b)
        scope, u = plan.scope(t), v
        if scope:
            sent[v].append(t)
            while (u := tree.parent[u]) != scope[0]:
                passing[u].append(t)
            continue
        entry = int(messages.entries[plan.program.at[t]])
        cost = INFINITE if messages.arithmetic.is_lowest(entry) else -entry
        while u >= 0:
            constant[u] = INFINITE if INFINITE in (constant[u], cost) else constant[u] + cost
            u = tree.parent[u]
    return [a + b for a, b in zip(sent, passing, strict=True)], [len(a) for a in sent], constant


def _array(numbers: Sequence[int]) -> Ints:
    """Return numbers as an array."""
    return np.array(numbers, dtype=np.int64)


def _flat(lists: Iterable[Iterable[int]]) -> Ints:
    """Return lists one after another."""
    return np.array(list(chain.from_iterable(lists)), dtype=np.int64)


def _starts(sizes: Iterable[int]) -> Ints:
    """Return the offset of each part, and the end of the last one."""
    return np.array([0, *accumulate(sizes)], dtype=np.int64)
