# mypy: ignore-errors
"""Select blocks: sets of variables whose elimination stays within a limit of table cells.

A block is a set of variables that ``block_gibbs_kernels`` redraws exactly, given all other variables, by bucket
elimination. Its cost is the number of cells of the tables that the buckets join. There are two methods of selection:

* ``grow``: a block is grown from one variable over its neighbours. Each new variable is eliminated before those already
  present, so the buckets that it enlarges lie on a path in the elimination tree. The variable is left out if one of
  these buckets would become too large.
* ``cut``: a block is cut from the whole graph. Variables are eliminated in a given order, and where a bucket is too
  large some of its variables are fixed (w-cutset, Bidyuk & Dechter 2007).

The *place* of a variable is its index in a growing block. Variables are eliminated from the last place to the first, so
the variable of the highest place in a separator is eliminated next. ``workspace.place[v]`` is −1 for variables outside
the block.

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.samplers.blocks.neighbourhood_search.penalised_graph``. The scope of factor f is
    ``graph.scope[graph.scope_start[f]:graph.scope_start[f + 1]]``; the factors of variable v are
    ``graph.factor[graph.start[v]:graph.start[v + 1]]``. Factors below ``graph.dense`` are dense tables, the others are
    automata. A forbidden entry has the finite utility ``graph.forbidden_entry``. Variables from ``graph.free`` on are
    fixed.
workspace : BlockWorkspace
    Arrays to be overwritten, see the same module; the resulting block is in ``workspace.block``. Per bucket (place) of
    a growing block: ``separator`` (places, ascending) of length ``width``, ``domain`` (domain size of the bucket's
    variable) and ``cells`` (entries of its joined table). ``list_a``, ``list_b`` and ``near`` are lists of places.
z : (n,) int64
    The assignment.
state : (1,) uint64
    State of the random number generator.
"""

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.orders.bitset_kernels import random_unit, random_word
from dmcmc.inference.runtime.compile import njit

MAX_WIDTH = 62  # maximum number of variables of a bucket's separator


@njit(allocates=False)
def random_below(state, n):
    """Return a random integer from 0 to n - 1, from the 31 upper bits of a random word."""
    return np.int64(random_word(state) >> np.uint64(33)) % n


@njit(nogil=True, allocates=False)
def start_near_loss(graph, z, best, state, tries):
    """Draw a free variable, preferably one of a factor whose entry is far below its largest.

    The loss of a factor is the difference between its largest and its current entry. Out of ``tries`` uniformly drawn
    factors, one is selected with a probability proportional to its loss (weighted reservoir sampling), then one of its
    variables uniformly. If no factor has a loss, or the variable is fixed, a free variable is drawn uniformly.
    """
    factors = graph.scope_start.size - 1
    total, variable = 0.0, random_below(state, graph.free)
    if factors == 0:
        return variable
    for _ in range(tries):
        f = random_below(state, factors)
        loss = best[f] - entry_of(graph, z, f)
        total += loss
        if loss > 0 and random_unit(state) * total < loss:
            first, last = graph.scope_start[f], graph.scope_start[f + 1]
            variable = graph.scope[first + random_below(state, last - first)]
    return variable if variable < graph.free else random_below(state, graph.free)


@njit(nogil=True, allocates=False)
def entry_of(graph, z, f):
    """Return the utility of factor f at the assignment; a violation has the utility ``graph.forbidden_entry``."""
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    if f < graph.dense:
        offset = graph.table_start[f]
        for s in range(first, last):
            offset += z[graph.scope[s]] * graph.stride[s]
        return graph.data[offset]
    return automaton_utility(graph, z, f)


@njit(nogil=True, allocates=False)
def automaton_utility(graph, z, f):
    """Return the utility of automaton f at the assignment; a violation has the utility ``graph.forbidden_entry``.

    The automaton has one layer of transitions per variable of its scope, and reads the values of these variables in
    turn. A transition is numbered by (layer, state, value): it adds a utility and leads to a state of the next layer.
    The initial state is 0.
    """
    state, utility = 0, 0.0
    for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
        transition = graph.stride[s] + state * graph.domains[graph.scope[s]] + z[graph.scope[s]]
        entry = graph.data[graph.first_step + transition]
        if entry == graph.forbidden_entry:
            return graph.forbidden_entry
        utility += entry
        state = graph.following[transition]
    return utility


@njit(nogil=True, allocates=False)
def merge(a, na, b, nb, out):
    """Write the union of the ascending lists ``a[:na]`` and ``b[:nb]`` to ``out``; return the length of the union.

    ``out`` must have at least ``na + nb`` entries and must be a different array.
    """
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


@njit(nogil=True, allocates=False)
def added_cells(workspace, size, near, count, limit, commit):
    """Return the cells that a new variable adds to the block's buckets, or −1 if a bucket would exceed the limit.

    The new variable is eliminated first, and its bucket's separator is its neighbours. Its message goes to the bucket
    of the neighbour of the highest place, whose separator receives the other neighbours; and so on from there, until a
    separator does not grow. A bucket's cells are the product of the domain sizes of its variable and its separator.

    Parameters
    ----------
    size : int
        Domain size of the new variable.
    near : (MAX_WIDTH + 2,) int64
        Places of its neighbours in the block, ascending.
    count : int
        Number of neighbours.
    limit : int
        Maximum number of cells per bucket.
    commit : bool
        Whether to enlarge the buckets; allowed only after the same call without ``commit`` has not returned −1.
    """
    message_scope, merged_separator = workspace.list_a, workspace.list_b
    cells = size
    for i in range(count):
        cells *= workspace.domain[near[i]]
        message_scope[i] = near[i]
        if cells > limit:
            return -1
    added = cells
    while count > 0:
        count -= 1
        p = message_scope[count]  # of the message's variables, p is eliminated next: its bucket receives the message
        n = merge(workspace.separator[p], workspace.width[p], message_scope, count, merged_separator)
        if n == workspace.width[p]:
            break
        if n > MAX_WIDTH:
            return -1
        cells = workspace.domain[p]
        for i in range(n):
            cells *= workspace.domain[merged_separator[i]]
            if cells > limit:
                return -1
        added += cells - workspace.cells[p]
        if commit:
            workspace.cells[p] = cells
            workspace.width[p] = n
            copy_entries(merged_separator[:n], workspace.separator[p])
        for i in range(n):
            message_scope[i] = merged_separator[i]
        count = n
    return added


@njit(nogil=True, allocates=False)
def places_near(graph, workspace, v, mark):
    """Write the ascending places of v's neighbours in the block to ``workspace.near``; return their number.

    Two variables are neighbours if they share a factor. The result is −1 if there are more than ``MAX_WIDTH``
    neighbours. ``mark`` is an integer that no earlier call has used for this block: ``workspace.seen[p] == mark`` says
    that place p is already in the list.
    """
    near, n_near = workspace.near, 0
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            p = workspace.place[graph.scope[s]]
            if p >= 0 and workspace.seen[p] != mark:
                workspace.seen[p] = mark
                if n_near == MAX_WIDTH:
                    return -1
                j = n_near
                while j > 0 and near[j - 1] > p:
                    near[j] = near[j - 1]
                    j -= 1
                near[j] = p
                n_near += 1
    return n_near


@njit(nogil=True)
def grow(graph, workspace, first, limit, total_limit, breadth_first, state):
    """Grow a block from a variable; at the end ``workspace.block`` has the block's variables in elimination order.

    While the block grows, ``workspace.block`` is in the order of places; it is reversed at the end.

    Parameters
    ----------
    first : int
        The variable to begin with.
    limit : int
        Maximum number of cells per bucket.
    total_limit : int
        Maximum number of cells of all buckets together.
    breadth_first : bool
        Whether neighbours are tried in the order in which they were found, rather than at random.

    Returns
    -------
    int
        Number of variables.
    """
    in_queue, queue = workspace.marked, workspace.queue
    in_queue[:] = False
    workspace.place[:] = -1
    workspace.seen[:] = -1
    head, tail, size, total = 0, 1, 0, 0
    queue[0] = first
    in_queue[first] = True
    while head < tail and size < workspace.separator.shape[0]:
        if not breadth_first:
            i = head + random_below(state, tail - head)
            queue[head], queue[i] = queue[i], queue[head]
        v = queue[head]
        head += 1
        domain = graph.domains[v]
        if domain < 2 or v >= graph.free:  # it has one value, or is fixed
            continue
        # The mark is new: ``head`` grows from call to call, and ``tail`` never falls.
        count = places_near(graph, workspace, v, tail * 2 + head)
        added = -1 if count < 0 else added_cells(workspace, domain, workspace.near, count, limit, False)
        if added < 0 or total + added > total_limit:
            continue
        added_cells(workspace, domain, workspace.near, count, limit, True)
        total += added
        workspace.domain[size], workspace.width[size], workspace.cells[size] = domain, count, domain
        for i in range(count):
            workspace.separator[size, i] = workspace.near[i]
            workspace.cells[size] *= workspace.domain[workspace.near[i]]
        workspace.block[size] = v
        workspace.place[v] = size
        size += 1
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                u = graph.scope[s]
                if not in_queue[u]:
                    in_queue[u] = True
                    queue[tail] = u
                    tail += 1
    for i in range(size // 2):
        workspace.block[i], workspace.block[size - 1 - i] = workspace.block[size - 1 - i], workspace.block[i]
    return size


@njit(nogil=True)
def cut(graph, workspace, order, rank, priority, limit, total_limit):
    """Eliminate variables in a given order; fix those of lowest priority where a bucket is too large.

    The variables that are not fixed are the block. Each eliminated variable sends a message over its separator to the
    bucket of the separator's earliest variable in the order. A message is named by the variable that sent it, and the
    messages in a bucket are a linked list: ``workspace.place[v]`` is the first message in the bucket of v, and
    ``workspace.queue[m]`` is the message after m in the same bucket; −1 ends the list. The separator of v is
    ``workspace.scopes[workspace.begin[v]:workspace.end[v]]``.

    Parameters
    ----------
    order, rank : (n,) int64
        The elimination order, and each variable's index in it.
    priority : (n,) float64
        Of a bucket that is too large, the variables of lowest priority are fixed.
    limit : int
        Maximum number of cells per bucket.
    total_limit : int
        Maximum number of cells of all buckets together.

    Returns
    -------
    int
        Number of variables of the block; 0 if all buckets together have too many cells, or the separators too many
        entries for the workspace.
    """
    n = order.size
    fixed, next_message, first_message = workspace.marked, workspace.queue, workspace.place
    fixed[:] = False
    fixed[graph.free :] = True
    first_message[:] = -1
    workspace.seen[:] = -1
    size, total = 0, 0
    separator_start = 0
    scopes = workspace.scopes
    begin, end = workspace.begin, workspace.end
    for r in range(n):
        v = order[r]
        if fixed[v]:
            redirect_messages(workspace, v, rank)
            continue
        if graph.domains[v] < 2:
            continue
        workspace.seen[v] = r
        separator_end = separator_start
        for i in range(graph.start[v], graph.start[v + 1]):
            f = graph.factor[i]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                u = graph.scope[s]
                if rank[u] > r and workspace.seen[u] != r and not fixed[u] and graph.domains[u] > 1:
                    workspace.seen[u] = r
                    scopes[separator_end] = u
                    separator_end += 1
        child = first_message[v]
        while child >= 0:
            for s in range(begin[child], end[child]):
                u = scopes[s]
                if u != v and workspace.seen[u] != r and not fixed[u]:
                    workspace.seen[u] = r
                    scopes[separator_end] = u
                    separator_end += 1
            child = next_message[child]
        cells = 1.0 * graph.domains[v]
        for s in range(separator_start, separator_end):
            cells *= graph.domains[scopes[s]]
        while cells > limit or separator_end - separator_start > MAX_WIDTH:
            position_of_lowest = separator_start
            for s in range(separator_start + 1, separator_end):
                if priority[scopes[s]] < priority[scopes[position_of_lowest]]:
                    position_of_lowest = s
            u = scopes[position_of_lowest]
            fixed[u] = True
            cells /= graph.domains[u]
            separator_end -= 1
            scopes[position_of_lowest] = scopes[separator_end]
        total += np.int64(cells)
        if total > total_limit or separator_end + n > scopes.size:
            return 0
        begin[v], end[v] = separator_start, separator_end
        send_message(workspace, v, rank)
        separator_start = separator_end
        workspace.block[size] = v
        size += 1
    return size


@njit(nogil=True, allocates=False)
def send_message(workspace, v, rank):
    """Add v's message to the bucket of the first variable, by ``rank``, of its separator that is not fixed, if any.

    The arrays of the linked lists are described in ``cut``; ``workspace.marked`` says which variables are fixed.
    """
    parent = -1
    for s in range(workspace.begin[v], workspace.end[v]):
        u = workspace.scopes[s]
        if not workspace.marked[u] and (parent < 0 or rank[u] < rank[parent]):
            parent = u
    if parent >= 0:
        workspace.queue[v] = workspace.place[parent]
        workspace.place[parent] = v


@njit(nogil=True, allocates=False)
def redirect_messages(workspace, v, rank):
    """Move the messages in the bucket of the newly fixed variable v to the next variables in their separators."""
    child = workspace.place[v]
    while child >= 0:
        next_child = workspace.queue[child]
        send_message(workspace, child, rank)
        child = next_child
