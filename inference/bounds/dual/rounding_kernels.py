# mypy: ignore-errors
"""Sequential rounding of tables to an assignment, guided by max-marginals.

The score of a value is the sum of the max-marginals of all tables at that value, plus noise. The margin of a variable
is the score of its best value minus that of its second-best. The free variable with the largest margin is fixed to its
best value, the scores of the variables that share a table with it are updated, and so on until no variable is free.

``rounding`` runs these kernels on threads. All numbers are integers, so the order of additions does not matter.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.types import Ints

_LOWEST = -(1 << 62)  # below every sum of entries: initial value of a maximum
_INFINITE_MARGIN = 1 << 62  # margin of a variable with a single value


class RoundingWorkspace(NamedTuple):
    """Workspace to round one row; all arrays are int64.

    Attributes
    ----------
    marginal_start : (positions,)
        Where the max-marginal of each position of the graph's scopes starts in ``marginals``; never changed.
    values : (n,)
        The assignment; -1 where a variable is still free.
    scores : (n, largest domain size)
        Sum of the noise and of all tables' max-marginals for each value.
    marginals : (sum of domain sizes over all scopes,)
        Max-marginal of each table for each of its free variables.
    margins : (n,)
        Score of each variable's best value minus that of its second-best.
    best_values : (n,)
        The best value of each variable.
    counter : (largest arity,)
        Mixed-radix counter over the values of a table's free variables.
    """

    marginal_start: Ints
    values: NDArray[np.int64]
    scores: NDArray[np.int64]
    marginals: NDArray[np.int64]
    margins: NDArray[np.int64]
    best_values: NDArray[np.int64]
    counter: NDArray[np.int64]


@njit(nogil=True, allocates=False)
def add_max_marginals(graph, t, workspace):
    """Compute table t's max-marginals over its free variables, given the fixed ones, and add them to the scores.

    A variable v is free if ``workspace.values[v]`` is -1. The entries that agree with the fixed variables are visited
    by a mixed-radix counter over the free variables of the table.
    """
    begin, end = graph.scope_start[t], graph.scope_start[t + 1]
    offset = graph.table_start[t]
    last_free = begin - 1
    for i in range(begin, end):
        v = graph.scope[i]
        workspace.counter[i - begin] = 0
        if workspace.values[v] >= 0:
            offset += workspace.values[v] * graph.stride[i]
            continue
        last_free = i
        for x in range(graph.domains[v]):
            workspace.marginals[workspace.marginal_start[i] + x] = _LOWEST
    while last_free >= begin:  # once per entry; not at all if every variable is fixed
        entry = graph.data[offset]
        for i in range(begin, last_free + 1):
            if workspace.values[graph.scope[i]] < 0:
                position = workspace.marginal_start[i] + workspace.counter[i - begin]
                workspace.marginals[position] = max(workspace.marginals[position], entry)
        i = last_free
        while i >= begin:
            v = graph.scope[i]
            if workspace.values[v] < 0:
                workspace.counter[i - begin] += 1
                offset += graph.stride[i]
                if workspace.counter[i - begin] < graph.domains[v]:
                    break
                offset -= workspace.counter[i - begin] * graph.stride[i]
                workspace.counter[i - begin] = 0
            i -= 1
        if i < begin:
            break
    for i in range(begin, last_free + 1):
        v = graph.scope[i]
        if workspace.values[v] < 0:
            for x in range(graph.domains[v]):
                workspace.scores[v, x] += workspace.marginals[workspace.marginal_start[i] + x]


@njit(nogil=True, allocates=False)
def update_margin(graph, v, workspace):
    """Update the margin and the best value of variable v; ties go to the lowest value."""
    best_score, second_score, best_value = np.int64(_LOWEST), np.int64(_LOWEST), np.int64(0)
    for x in range(graph.domains[v]):
        score = workspace.scores[v, x]
        if x == 0 or score > best_score:
            best_score, second_score, best_value = score, best_score, np.int64(x)
        elif score > second_score:
            second_score = score
    workspace.margins[v] = best_score - second_score if graph.domains[v] > 1 else np.int64(_INFINITE_MARGIN)
    workspace.best_values[v] = best_value


@njit(nogil=True, allocates=False)
def assign_value(graph, v, value, workspace):
    """Assign a value to variable v, and update the scores of all variables that share a table with it."""
    workspace.values[v] = value
    for j in range(graph.start[v], graph.start[v + 1]):
        t = graph.factor[j]
        for i in range(graph.scope_start[t], graph.scope_start[t + 1]):
            u = graph.scope[i]
            if workspace.values[u] < 0:
                for x in range(graph.domains[u]):
                    workspace.scores[u, x] -= workspace.marginals[workspace.marginal_start[i] + x]
        add_max_marginals(graph, t, workspace)
    for j in range(graph.start[v], graph.start[v + 1]):
        t = graph.factor[j]
        for i in range(graph.scope_start[t], graph.scope_start[t + 1]):
            if workspace.values[graph.scope[i]] < 0:
                update_margin(graph, graph.scope[i], workspace)


@njit(nogil=True, allocates=False)
def round_row(graph, row, noise, workspace):
    """Round the tables given a row: repeatedly assign the best value of the free variable with the largest margin.

    Parameters
    ----------
    graph : FactorGraph
        Dense int64 tables; a row fixes the variables that are not free.
    row : int
        Row number, in C order over the values of the fixed variables.
    noise : (k, n, largest domain size) int64
        Row r adds ``noise[r % k]`` to the scores.
    workspace : RoundingWorkspace
        ``values`` receives the assignment.
    """
    n = graph.domains.size
    noise_row = row % noise.shape[0]
    for v in range(n - 1, -1, -1):
        workspace.values[v] = -1
        if v >= graph.free:
            workspace.values[v] = row % graph.domains[v]
            row //= graph.domains[v]
        for x in range(graph.domains[v]):
            workspace.scores[v, x] = noise[noise_row, v, x]
    for t in range(graph.dense):
        add_max_marginals(graph, t, workspace)
    for v in range(graph.free):
        update_margin(graph, v, workspace)
    for _ in range(graph.free):
        chosen = -1
        for v in range(graph.free):
            if workspace.values[v] < 0 and (chosen < 0 or workspace.margins[v] > workspace.margins[chosen]):
                chosen = v
        assign_value(graph, chosen, workspace.best_values[chosen], workspace)


@njit(nogil=True, allocates=False)
def round_rows(graph, rows, noise, workspace, assignments, halt):
    """Round rows one after another; ``assignments`` is unchanged for rows not reached before ``halt`` becomes 1.

    Parameters
    ----------
    graph : FactorGraph
        Dense int64 tables; a row fixes the variables that are not free.
    rows : (k,) int64
    noise : (k, n, largest domain size) int64
    workspace : RoundingWorkspace
    assignments : (k, graph.free) int64
        Receives the values of the free variables.
    halt : (1,) uint8
        Another thread sets it to 1 to end the call.
    """
    for i in range(rows.size):
        if halt[0] != 0:
            return
        round_row(graph, rows[i], noise, workspace)
        for v in range(graph.free):
            assignments[i, v] = workspace.values[v]
