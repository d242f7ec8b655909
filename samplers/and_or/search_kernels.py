# mypy: ignore-errors
"""Depth-first AND/OR branch and bound with caching (AOBB-C: Marinescu and Dechter, AIJ 173, 2009, §4 and §5).

An OR node is a variable, given the values of its ancestors; an AND node is one of its values. The values of an OR node
are taken by increasing bounds, and the subproblems of the children of an AND node are solved one after the other. A
child's cost must be less than what its parent's best solution leaves to it, which is passed down from the root: an AND
node is pruned if the partial solution tree of any ancestor cannot be improved through it. What a closed OR node has
proven is stored in its cache.

Arguments that all kernels share:

space : SearchSpace
    The constant part of the search, see ``search_space``.
state : AndOrState
    The variable part, see the same module.
values : (n + 1,) int64
    An assignment of the ancestors, of which only the context is read.
"""

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.and_or.search_space import AT, FOUND, INFINITE, LOWER, NODES, TOP


@njit(nogil=True, allocates=False)
def offset_of(space, t, values, skip):
    """Return the offset of an entry of table t, without its first ``skip`` variables."""
    offset = space.at[t]
    for k in range(space.scope_at[t] + skip, space.scope_at[t + 1]):
        offset += values[space.scope[k]] * space.stride[k]
    return offset


@njit(nogil=True, allocates=False)
def cost_at(space, offset):
    """Return the cost at an offset of the entries."""
    entry = space.entries[offset]
    return INFINITE if entry < space.forbidden_below else -entry


@njit(nogil=True, allocates=False)
def sum_of_messages(space, values, begin, end, constant):
    """Return a constant plus the costs of the messages ``space.above[begin:end]``."""
    total = constant
    for k in range(begin, end):
        if total < INFINITE:
            cost = cost_at(space, offset_of(space, space.above[k], values, 0))
            total = INFINITE if cost == INFINITE else total + cost
    return total


@njit(nogil=True, allocates=False)
def value_cost(space, values, v):
    """Return the cost of the value of v: all cost tables of which v is the last assigned variable."""
    total = 0
    for k in range(space.own_at[v], space.message_at[v]):
        if total < INFINITE:
            cost = cost_at(space, offset_of(space, space.own[k], values, 0))
            total = INFINITE if cost == INFINITE else total + cost
    return total


@njit(nogil=True, allocates=False)
def score_values(space, values, v, score, first):
    """Write lower bounds on the subproblem of v for each value, to ``score`` from ``first`` on."""
    size = space.first[v + 1] - space.first[v]
    base = sum_of_messages(space, values, space.passing_at[v], space.above_at[v + 1], space.below[v])
    for x in range(first, first + size):
        score[x] = base
    for k in range(space.own_at[v], space.own_at[v + 1]):
        t = space.own[k]
        offset, stride = offset_of(space, t, values, 1), space.stride[space.scope_at[t]]
        for x in range(size):
            cost = cost_at(space, offset + x * stride)
            if cost == INFINITE or score[first + x] == INFINITE:
                score[first + x] = INFINITE
            else:
                score[first + x] += cost
    for x in range(first, first + size):
        score[x] = max(score[x], 0)  # costs are not negative, but messages may be


@njit(nogil=True, allocates=False)
def next_value(score, first, size, x):
    """Return the value that follows x by increasing scores, on a tie by values; −1 after the last one.

    The first value follows x = −1.
    """
    best = -1
    for y in range(size):
        s = score[first + y]
        is_later = x < 0 or s > score[first + x] or (s == score[first + x] and y > x)
        if is_later and (best < 0 or s < score[first + best]):
            best = y
    return best


@njit(nogil=True, allocates=False)
def cache_entry(space, values, v):
    """Return the number of a cache entry of v within its cache."""
    entry = 0
    for k in range(space.context_at[v], space.context_at[v + 1]):
        u = space.context[k]
        entry = entry * (space.first[u + 1] - space.first[u]) + values[u]
    return entry


@njit(nogil=True, allocates=False)
def bound_child(space, state, v):
    """Set the bound on the subproblem of v from the messages and the cache, and whether it is solved."""
    values = state.values
    bound = sum_of_messages(space, values, space.above_at[v], space.above_at[v + 1], space.constant[v])
    bound, state.solved[v] = max(bound, 0), 0
    if space.cache_at[v] >= 0:
        stored = state.cache[space.cache_at[v] + cache_entry(space, values, v)]
        bound = max(bound, (stored >> 1) - 1)
        state.solved[v] = stored & 1
    state.bound[v] = bound


@njit(nogil=True, allocates=False)
def take_value(space, state, v):
    """Take the next value of v that may improve its best solution; return False if there is none."""
    first, limit, x = space.first[v], min(state.limit[v], state.best[v]), state.values[v]
    while True:
        x = next_value(state.score, first, space.first[v + 1] - first, x)
        if x < 0 or state.score[first + x] >= limit:
            if x >= 0:
                state.low[v] = min(state.low[v], state.score[first + x])
            return False
        state.values[v] = x
        total = value_cost(space, state.values, v)
        for k in range(space.child_at[v], space.child_at[v + 1]):
            bound_child(space, state, space.child[k])
            total += state.bound[space.child[k]]
            if total >= limit:
                break
        if total < limit:
            state.total[v] = total
            return True
        state.low[v] = min(state.low[v], total)


@njit(nogil=True, allocates=False)
def store_solution(space, state, v):
    """Store the solution of the value that v has taken, as its best one."""
    to = space.group_at[v]
    state.solution[to] = state.values[v]
    for k in range(space.child_at[v], space.child_at[v + 1]):
        child = space.child[k]
        if space.cache_at[child] < 0:
            for source in range(space.group_at[child], space.group_at[child + 1]):
                to += 1
                state.solution[to] = state.solution[source]


@njit(nogil=True, allocates=False)
def close_node(space, state, v):
    """Store in the cache what the OR node of v has proven."""
    state.low[v] = min(state.low[v], INFINITE)
    if space.cache_at[v] >= 0:
        number = cache_entry(space, state.values, v)
        is_solved = state.best[v] <= state.low[v] and state.best[v] < INFINITE
        at = space.cache_at[v] + number
        state.cache[at] = max(state.cache[at], 2 * (state.low[v] + 1) + is_solved)
        if is_solved:
            begin, size = space.group_at[v], space.group_at[v + 1] - space.group_at[v]
            for k in range(size):
                state.cached_values[space.cached_values_at[v] + number * size + k] = state.solution[begin + k]


@njit(nogil=True, allocates=False)
def next_node(space, state, v):
    """Return the OR node to open after one that has been opened at v, or closed below it; −1 if the root is closed."""
    needs_value = True
    while True:
        if needs_value and not take_value(space, state, v):
            close_node(space, state, v)
            parent = space.parent[v]
            if parent < 0:
                return -1
            state.total[parent] += state.low[v] - state.bound[v]
            state.bound[v], state.solved[v] = state.low[v], 1
            needs_value = state.total[parent] >= min(state.limit[parent], state.best[parent])
            if needs_value:
                state.low[parent] = min(state.low[parent], state.total[parent])
            v = parent
            continue
        open_child = -1
        for k in range(space.child_at[v], space.child_at[v + 1]):
            if open_child < 0 and not state.solved[space.child[k]]:
                open_child = space.child[k]
        if open_child >= 0:
            remaining = min(state.limit[v], state.best[v]) - state.total[v]
            state.limit[open_child] = remaining + state.bound[open_child]
            return open_child
        state.best[v] = state.total[v]
        state.low[v] = min(state.low[v], state.total[v])
        store_solution(space, state, v)
        needs_value = True


@njit(nogil=True, allocates=False)
def begin_search(space, state, top):
    """Prepare a search for assignments that cost less than ``top``."""
    root = space.parent.size - 1
    bound_child(space, state, root)
    state.head[TOP] = state.limit[root] = top
    state.head[AT] = root
    state.head[NODES] = state.head[FOUND] = state.head[LOWER] = 0


@njit(nogil=True, allocates=False)
def search(space, state, nodes, halt):
    """Search until ``nodes`` more OR nodes are opened, the root is closed, or ``halt[0]`` is nonzero.

    Parameters
    ----------
    nodes : int
        Number of OR nodes.
    halt : (1,) uint8
        Nonzero when the kernel should return.

    Returns
    -------
    bool
        Whether the search is complete: the root is closed.
    """
    v, node_limit = state.head[AT], state.head[NODES] + nodes
    while v >= 0 and state.head[NODES] < node_limit and not halt[0]:
        state.head[NODES] += 1
        score_values(space, state.values, v, state.score, space.first[v])
        state.best[v] = state.low[v] = INFINITE
        state.values[v] = -1
        v = next_node(space, state, v)
    state.head[AT] = v
    return v < 0


@njit(nogil=True, allocates=False)
def raise_bound(space, state):
    """Update the lower bound on all costs and the limits of the open nodes; return the number of open nodes.

    The bound of an open node is the least one of the values tried, of the value taken, and of the next value. The open
    nodes are written to ``state.path``, the deepest first; the node to open next comes before them.
    """
    v, depth = state.head[AT], 0
    state.path[0], bound = v, state.bound[v]
    while space.parent[v] >= 0:
        parent = space.parent[v]
        first = space.first[parent]
        following = next_value(state.score, first, space.first[parent + 1] - first, state.values[parent])
        bound = min(state.low[parent], state.total[parent] - state.bound[v] + bound)
        if following >= 0:
            bound = min(bound, state.score[first + following])
        v, depth = parent, depth + 1
        state.path[depth] = v
    state.head[LOWER] = max(state.head[LOWER], min(bound, state.head[TOP]))
    state.limit[v] = state.head[TOP]
    for k in range(depth, 0, -1):
        v, child = state.path[k], state.path[k - 1]
        state.limit[child] = min(state.limit[v], state.best[v]) - state.total[v] + state.bound[child]
    return depth


@njit(nogil=True, allocates=False)
def fix_group(space, state, v, source, begin):
    """Fix the values of the group of v in the trial assignment: ``source`` from ``begin`` on."""
    for k in range(space.group_at[v], space.group_at[v + 1]):
        u = space.group[k]
        state.trial[u] = source[begin + k - space.group_at[v]]
        state.is_fixed[u] = 1


@njit(nogil=True, allocates=False)
def fix_found(space, state, depth):
    """Fix what the search has found in the trial assignment.

    This is the best solution of the uppermost open node that has one. Above it, open nodes have the values that they
    have taken, and other children of them their solutions.
    """
    root = space.parent.size - 1
    if state.head[AT] < 0 and state.best[root] < INFINITE:
        fix_group(space, state, root, state.solution, space.group_at[root])
    for k in range(depth, 0, -1):
        v = state.path[k]
        if state.best[v] < INFINITE:
            fix_group(space, state, v, state.solution, space.group_at[v])
            break
        state.trial[v] = state.values[v]
        state.is_fixed[v] = 1
        for i in range(space.child_at[v], space.child_at[v + 1]):
            child = space.child[i]
            if state.solved[child] and space.cache_at[child] < 0:
                fix_group(space, state, child, state.solution, space.group_at[child])


@njit(nogil=True, allocates=False)
def improve_incumbent(space, state):
    """Raise the lower bound, and complete what the search has found to an assignment; keep it if it is better.

    Other variables take the solutions in the caches, or the values of least bound.
    """
    depth = raise_bound(space, state) if state.head[AT] >= 0 else 0
    for v in range(space.parent.size):
        state.is_fixed[v] = 0
    fix_found(space, state, depth)
    total = 0
    for k in range(space.top_down.size):
        v = space.top_down[k]
        if not state.is_fixed[v] and space.cache_at[v] >= 0:
            number = cache_entry(space, state.trial, v)
            if state.cache[space.cache_at[v] + number] & 1:
                size = space.group_at[v + 1] - space.group_at[v]
                fix_group(space, state, v, state.cached_values, space.cached_values_at[v] + number * size)
        if not state.is_fixed[v]:
            score_values(space, state.trial, v, state.trial_score, 0)
            state.trial[v] = next_value(state.trial_score, 0, space.first[v + 1] - space.first[v], -1)
        total = min(INFINITE, total + value_cost(space, state.trial, v))
    if total < state.head[TOP]:
        state.head[TOP] = state.limit[space.parent.size - 1] = total
        state.head[FOUND] += 1
        for v in range(state.assignment.size):
            state.assignment[v] = state.trial[v]
