# mypy: ignore-errors
"""Which variables move together: blocks whose elimination stays under a limit of cells.

Two ways. A block is *grown* from one variable over its neighbours: each newcomer is eliminated before all that are
there already, so what it adds to their buckets is found by walking down the elimination tree, and it is left out where
some bucket would grow too large. Or a block is *cut* from the whole graph: variables are eliminated in a given order,
and where a bucket is too large some of its variables are held fixed (w-cutset, Bidyuk & Dechter 2007).
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.orders.greedy_kernels import random_unit, random_word
from dmcmc.inference.runtime.compile import njit

WIDEST = 62  # variables of a bucket


@njit(inline="always")
def below(state, n):
    """Return a random number from 0 to n - 1."""
    return np.int64(random_word(state) >> np.uint64(33)) % n


@njit(nogil=True)
def start_near_loss(graph, z, state, tries):
    """Return a variable of a factor that loses much: drawn by what factors lose against their best, of some of them."""
    factors = graph.scope_start.size - 1
    total, found = 0.0, below(state, graph.free)
    if factors == 0:
        return found
    for _ in range(tries):
        f = below(state, factors)
        loss = graph.best[f] - entry_of(graph, z, f)
        total += loss
        if loss > 0 and random_unit(state) * total < loss:
            first, last = graph.scope_start[f], graph.scope_start[f + 1]
            found = graph.scope[first + below(state, last - first)]
    return found if found < graph.free else below(state, graph.free)


@njit(nogil=True)
def entry_of(graph, z, f):
    """Return what a factor is worth, a violation its price."""
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    if f < graph.dense:
        at = graph.at[f]
        for s in range(first, last):
            at += z[graph.scope[s]] * graph.stride[s]
        return graph.data[at]
    return walk(graph, z, f)


@njit(nogil=True)
def walk(graph, z, f):
    """Return what an automaton is worth, a violation its price."""
    state, paid = 0, 0.0
    for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
        step = graph.stride[s] + state * graph.domains[graph.scope[s]] + z[graph.scope[s]]
        entry = graph.data[graph.first_step + step]
        if entry == graph.never:
            return graph.never
        paid += entry
        state = graph.following[step]
    return paid


@njit(nogil=True)
def merge(a, na, b, nb, out):
    """Write the union of two ascending lists to ``out``, which is long enough; return its length."""
    i, j, n = 0, 0, 0
    while i < na or j < nb:
        if j >= nb or (i < na and a[i] < b[j]):
            out[n] = a[i]
            i += 1
        elif i >= na or b[j] < a[i]:
            out[n] = b[j]
            j += 1
        else:
            out[n] = a[i]
            i += 1
            j += 1
        n += 1
    return n


@njit(nogil=True)
def room_for(room, size, near, count, limit, commit):
    """Return the cells that a newcomer with these neighbours adds, −1 if a bucket would exceed the limit.

    Parameters
    ----------
    size : int
        Domain of the newcomer.
    near : (WIDEST + 2,) int64
        Places of its neighbours in the block, ascending.
    commit : bool
        Whether to enlarge the buckets; only where the same call without it has returned no −1.
    """
    one, other = room.one, room.other
    cells = size
    for i in range(count):
        cells *= room.size[near[i]]
        one[i] = near[i]
        if cells > limit:
            return -1
    added = cells
    while count > 0:
        count -= 1
        p = one[count]  # the first of them to be eliminated takes on the others
        n = merge(room.above[p], room.width[p], one, count, other)
        if n == room.width[p]:
            break
        if n > WIDEST:
            return -1
        cells = room.size[p]
        for i in range(n):
            cells *= room.size[other[i]]
            if cells > limit:
                return -1
        added += cells - room.cells[p]
        if commit:
            room.cells[p] = cells
            room.width[p] = n
            copy_entries(other[:n], room.above[p])
        for i in range(n):
            one[i] = other[i]
        count = n
    return added


@njit(nogil=True)
def places_near(graph, room, v, mark):
    """Write the places of v's neighbours in the block to ``room.near``, ascending; return how many, −1 if too many."""
    near, count = room.near, 0
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            p = room.place[graph.scope[s]]
            if p >= 0 and room.seen[p] != mark:
                room.seen[p] = mark
                if count == WIDEST:
                    return -1
                j = count
                while j > 0 and near[j - 1] > p:
                    near[j] = near[j - 1]
                    j -= 1
                near[j] = p
                count += 1
    return count


@njit(nogil=True)
def grow(graph, room, first, limit, most, wide, state):
    """Grow a block from a variable; leave its variables in ``room.block``, those eliminated first first.

    Parameters
    ----------
    limit : int
        Cells of a bucket, at most.
    most : int
        Cells of all buckets, at most.
    wide : bool
        Whether neighbours are taken in the order in which they were met, rather than at random.

    Returns
    -------
    int
        Number of variables.
    """
    met, waiting = room.met, room.waiting
    met[:] = False
    room.place[:] = -1
    room.seen[:] = -1
    head, tail, size, total = 0, 1, 0, 0
    waiting[0] = first
    met[first] = True
    while head < tail and size < room.above.shape[0]:
        if not wide:
            i = head + below(state, tail - head)
            waiting[head], waiting[i] = waiting[i], waiting[head]
        v = waiting[head]
        head += 1
        domain = graph.domains[v]
        if domain < 2 or v >= graph.free:
            continue
        count = places_near(graph, room, v, tail * 2 + head)
        added = -1 if count < 0 else room_for(room, domain, room.near, count, limit, False)
        if added < 0 or total + added > most:
            continue
        room_for(room, domain, room.near, count, limit, True)
        total += added
        room.size[size], room.width[size], room.cells[size] = domain, count, domain
        for i in range(count):
            room.above[size, i] = room.near[i]
            room.cells[size] *= room.size[room.near[i]]
        room.block[size] = v
        room.place[v] = size
        size += 1
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                u = graph.scope[s]
                if not met[u]:
                    met[u] = True
                    waiting[tail] = u
                    tail += 1
    for i in range(size // 2):
        room.block[i], room.block[size - 1 - i] = room.block[size - 1 - i], room.block[i]
    return size


@njit(nogil=True)
def cut(graph, room, order, rank, worth, limit, most):
    """Eliminate variables in an order, fixing those worth least where a bucket is too large; leave the others in
    ``room.block``, in that order, and return their number; 0 if all buckets together have too many cells.

    Parameters
    ----------
    order, rank : (n,) int64
        Each variable's place in the order.
    worth : (n,) float64
    limit, most : int
        Cells of a bucket and of all, at most.
    """
    n = order.size
    fixed, follower, head = room.met, room.waiting, room.place
    fixed[:] = False
    fixed[graph.free :] = True
    head[:] = -1
    room.seen[:] = -1
    size, total = 0, 0
    start = 0
    scopes = room.scopes
    begin, end = room.begin, room.end
    for r in range(n):
        v = order[r]
        if fixed[v]:
            pass_on(room, v, rank)
            continue
        if graph.domains[v] < 2:
            continue
        room.seen[v] = r
        last = start
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                u = graph.scope[s]
                if rank[u] > r and room.seen[u] != r and not fixed[u] and graph.domains[u] > 1:
                    room.seen[u] = r
                    scopes[last] = u
                    last += 1
        child = head[v]
        while child >= 0:
            for s in range(begin[child], end[child]):
                u = scopes[s]
                if u != v and room.seen[u] != r and not fixed[u]:
                    room.seen[u] = r
                    scopes[last] = u
                    last += 1
            child = follower[child]
        cells = 1.0 * graph.domains[v]
        for s in range(start, last):
            cells *= graph.domains[scopes[s]]
        while cells > limit or last - start > WIDEST:
            least = start
            for s in range(start + 1, last):
                if worth[scopes[s]] < worth[scopes[least]]:
                    least = s
            u = scopes[least]
            fixed[u] = True
            cells /= graph.domains[u]
            last -= 1
            scopes[least] = scopes[last]
        total += np.int64(cells)
        if total > most or last + n > scopes.size:
            return 0
        begin[v], end[v] = start, last
        hand_over(room, v, rank)
        start = last
        room.block[size] = v
        size += 1
    return size


@njit(nogil=True)
def hand_over(room, v, rank):
    """Give v's message to the bucket of the first variable in it that is not fixed, if there is one."""
    parent = -1
    for s in range(room.begin[v], room.end[v]):
        u = room.scopes[s]
        if not room.met[u] and (parent < 0 or rank[u] < rank[parent]):
            parent = u
    if parent >= 0:
        room.waiting[v] = room.place[parent]
        room.place[parent] = v


@njit(nogil=True)
def pass_on(room, v, rank):
    """Give the messages of a fixed variable's bucket to other buckets."""
    child = room.place[v]
    while child >= 0:
        following = room.waiting[child]
        hand_over(room, child, rank)
        child = following
