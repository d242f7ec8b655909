"""Binary cost function networks (weighted CSPs) in the layout of the branch-and-bound kernels.

Utilities are converted to nonnegative costs before (``CostProblem``): the search minimises. Costs of one variable are
*unary*; a *pair* is the cost table of two variables, and a *triple* that of three variables, which path consistency
leaves.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import factors_of_variables
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.samplers.toulbar2.linear_constraints import Pairs

FORBIDDEN = 1 << 60  # the cost of a forbidden value or pair; all other costs stay far below
# Maximum of allowed tuples of a factor over three or more variables: they become the values of an extra variable.
MAX_LISTED_TUPLES = 4096
TOP, TRAIL, STAMP, NODES, DEPTH, FOUND, LAST, LOWER = range(8)  # indices of ``SearchState.head``
REMOVED, RAISED, RISEN, UNSURE = range(4)  # rows of ``SearchState.mark``

Ints = NDArray[np.int64]
Tables = dict[tuple[int, int], Ints]


class CostTables(NamedTuple):
    """The costs of a network by variables.

    Attributes
    ----------
    unary : list of (values,) int64
        Cost of each value of each variable; :data:`FORBIDDEN` where a value is forbidden.
    pairs : dict of (values, values) int64
        Cost tables of two variables v < u, by (v, u).
    top : int
        The cost to beat.
    interchangeable : (d,) int64
        See :class:`CostNetwork`.
    triples : dict of (values, values, values) int64
        Cost tables of three variables, ascending; none is forbidden.
    bound : int
        A lower bound, which is added to all other costs.
    """

    unary: list[Ints]
    pairs: Tables
    top: int
    interchangeable: Ints
    triples: dict[tuple[int, int, int], Ints]
    bound: int

    @property
    def domains(self) -> Ints:
        """Domain size of each variable."""
        return np.array([costs.size for costs in self.unary], dtype=np.int64)


class CostNetwork(NamedTuple):
    """The constant part of a weighted CSP of pairs and triples; all arrays are int64.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    first : (n + 1,) int64
        Offset of each variable's values among all values.
    near_at : (n + 1,) int64
        Offset of each variable's neighbours in ``near``.
    near : (2 m,) int64
        Neighbours of all variables; m is the number of pairs.
    near_pair : (2 m,) int64
        The pair shared with each neighbour.
    ends : (m, 2) int64
        The two variables of each pair, ascending.
    cell_at : (m,) int64
        Offset of each pair's cost table in ``cells``, in C order.
    cells : (cells,) int64
        Cost tables; :data:`FORBIDDEN` where a pair of values is forbidden.
    shift_at : (m, 2) int64
        Offset in ``SearchState.cost`` of the costs moved out of a pair, per value of each end.
    interchangeable : (d,) int64
        For each value the smallest value that can be swapped with it in all variables at once without a change of cost;
        empty if there is none.
    triples, sides : (t, 3) int64
        The variables a < b < c of each triple, and its pairs ab, ac and bc.
    entry_at : (t,) int64
        Offset of each triple's cost table in ``entries``.
    entries : (entries,) int64
        Cost tables of the triples, in C order.
    triple_shift_at : (t, 3) int64
        Offset in ``SearchState.cost`` of the costs moved out of a triple, per value of each variable.
    joined_at : int
        Offset in ``SearchState.cost`` of one word per triple: 0, or 1 plus the place in ``sides`` of the pair that the
        triple's costs are part of since its third variable has one value.
    near_triple_at : (n + 1,) int64
        Offset of each variable's triples in ``near_triple``.
    near_triple : (3 t,) int64
        The triples of all variables.
    over_at : (m + 1,) int64
        Offset of each pair's triples in ``over``.
    over : (3 t,) int64
        The triples that contain each pair, as 3 t + the place of the pair in ``sides``.
    """

    domains: Ints
    first: Ints
    near_at: Ints
    near: Ints
    near_pair: Ints
    ends: NDArray[np.int64]
    cell_at: Ints
    cells: Ints
    shift_at: NDArray[np.int64]
    interchangeable: Ints
    triples: NDArray[np.int64]
    sides: NDArray[np.int64]
    entry_at: Ints
    entries: Ints
    triple_shift_at: NDArray[np.int64]
    joined_at: int
    near_triple_at: Ints
    near_triple: Ints
    over_at: Ints
    over: Ints


class SearchState(NamedTuple):
    """The state of a search, which can stop and continue at any node.

    Attributes
    ----------
    cost : (words,) int64
        The lower bound; the unary cost of each value beyond the bound; the costs moved out of pairs (``shift_at``) and
        of triples (``triple_shift_at``); the pairs that triples are part of (``joined_at``).
    stamp : (words,) int64
        The step in which each word of ``cost`` was last saved on the trail. Each decision and each undoing begins a
        step.
    trail : (capacity, 2) int64
        Saved words of ``cost``: index and old value. The first ``head[TRAIL]`` entries are in use; undoing a decision
        restores those after ``choice[depth, 0]``.
    head : (8,) int64
        By index: TOP, the cost to beat; TRAIL, length of the trail; STAMP, number of the step; NODES, number of nodes;
        DEPTH; FOUND, number of solutions; LAST, variable of the last failure or −1; LOWER, lower bound at the root.
    values, place : (values,) int64
        The values of each variable, remaining ones first; the index of each value in this order.
    size : (n,) int64
        Number of remaining values.
    sizes : (n + 1, n) int64
        ``size`` before each decision.
    choice : (n + 1, 3) int64
        Per depth: length of the trail before the decision, the variable, and its value.
    weight : (m,) float64
        1 plus the number of failures of each pair.
    mark : (4, n) uint8
        By row: REMOVED, variables that lost values; RAISED, variables whose unary costs rose; RISEN (first entry only),
        whether the bound rose; UNSURE, variables whose existential support must be checked.
    best : (n,) int64
        The best assignment found.
    scratch : (3, d) int64
        Workspace; d is the largest domain size.
    joined : (triples of a pair, 3) int64
        Workspace: of the triples that are part of a pair, the offset in ``CostNetwork.entries`` for the first values of
        the pair's ends, and the distances between two values of each end.
    """

    cost: Ints
    stamp: Ints
    trail: NDArray[np.int64]
    head: Ints
    values: Ints
    place: Ints
    size: Ints
    sizes: NDArray[np.int64]
    choice: NDArray[np.int64]
    weight: NDArray[np.float64]
    mark: NDArray[np.uint8]
    best: Ints
    scratch: NDArray[np.int64]
    joined: NDArray[np.int64]


def bytes_needed(costs: CostProblem) -> int:
    """Return an estimate of the memory of a search in bytes.

    The estimate is 2^62 if a factor allows more than ``MAX_LISTED_TUPLES`` tuples.
    """
    # 8 bytes per cost; rough numbers of bytes for the state and the trail: 48 per value of a pair's end, 200 per value.
    total, values = 0, int(costs.domains.sum())
    for scope, cost in zip(costs.scopes, costs.costs, strict=True):
        sizes = costs.domains[scope]
        if scope.size == 2:
            total += 8 * cost.size + 48 * int(sizes.sum())
        elif scope.size > 2:
            listed = int((cost < costs.top).sum())
            if listed > MAX_LISTED_TUPLES:
                return 1 << 62
            total += listed * (8 * int(sizes.sum()) + 48 * int(scope.size))
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in at_most_one_groups(costs))
    largest = int(costs.domains.max(initial=1))
    return total + 200 * values + 8 * largest * largest * pairs + 8 * len(costs.domains) ** 2


def cost_tables(costs: CostProblem) -> CostTables:
    """Return the unary and pair costs of a problem.

    A factor over three or more variables becomes an extra variable whose values are the allowed tuples.
    """
    unary = [np.zeros(size, dtype=np.int64) for size in costs.domains.tolist()]
    pairs = Tables()
    for scope, flat in zip(costs.scopes, costs.costs, strict=True):
        table = np.where(flat >= costs.top, FORBIDDEN, flat).reshape(costs.domains[scope])
        variables = scope.tolist()
        if len(variables) == 1:
            unary[variables[0]] = np.minimum(unary[variables[0]] + table, FORBIDDEN)
        elif len(variables) == 2:
            _add_costs(pairs, variables[0], variables[1], table)
        else:
            _add_tuple_variable(unary, pairs, variables, table)
    for group in at_most_one_groups(costs):
        for (v, x), (u, y) in combinations(group, 2):
            if v != u:
                table = np.zeros((unary[v].size, unary[u].size), dtype=np.int64)
                table[x, y] = FORBIDDEN
                _add_costs(pairs, v, u, table)
    return CostTables(unary, pairs, costs.top, _interchangeable(unary, pairs), {}, 0)


def at_most_one_groups(costs: CostProblem) -> list[Pairs]:
    """Return the groups of (variable, value) pairs of which an assignment selects at most one.

    Raises ``ValueError`` for a cost problem that is not of the form for this engine (``costs_of_problem`` with
    ``dense_only``).
    """
    groups = [group for constraint in costs.linear if (group := constraint.group()) is not None]
    if costs.listed or len(groups) < len(costs.linear):
        raise ValueError("this engine needs tables and constraints of type at most one")
    return groups


def _add_costs(pairs: Tables, v: int, u: int, table: NDArray[np.int64]) -> None:
    """Add a cost table of two variables to the existing one."""
    table = table if v < u else table.T
    pair = (min(v, u), max(v, u))
    pairs[pair] = np.minimum(pairs[pair] + table, FORBIDDEN) if pair in pairs else table


def _add_tuple_variable(unary: list[Ints], pairs: Tables, scope: list[int], table: NDArray[np.int64]) -> None:
    """Add a variable whose values are the allowed tuples of a factor, and constraints that link it to the scope."""
    allowed_tuples = np.argwhere(table < FORBIDDEN)
    unary.append(table[tuple(allowed_tuples.T)])
    for place, v in enumerate(scope):
        is_consistent = allowed_tuples[:, place] == np.arange(unary[v].size)[:, None]
        _add_costs(pairs, v, len(unary) - 1, np.where(is_consistent, 0, FORBIDDEN))


def network_of(costs: CostTables) -> tuple[CostNetwork, SearchState]:
    """Return a network of costs, and the start state of the search."""
    unary, pairs, domains = costs.unary, costs.pairs, costs.domains
    ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    near_at, near_pair, position = factors_of_variables(np.arange(0, ends.size + 1, 2), ends.reshape(-1), len(unary))
    sizes = domains[ends]
    starts = 1 + int(domains.sum()) + offsets_of(sizes.reshape(-1))
    triples = np.array(sorted(costs.triples), dtype=np.int64).reshape(-1, 3)
    triple_sizes = domains[triples]
    triple_starts = int(starts[-1]) + offsets_of(triple_sizes.reshape(-1))
    near_triple_at, near_triple, _ = factors_of_variables(
        np.arange(0, triples.size + 1, 3), triples.reshape(-1), len(unary)
    )
    number = {pair: p for p, pair in enumerate(sorted(pairs))}
    sides = np.array(
        [[number[pair] for pair in combinations(triple, 2)] for triple in sorted(costs.triples)], dtype=np.int64
    ).reshape(-1, 3)
    over_at, _, over = factors_of_variables(np.arange(0, sides.size + 1, 3), sides.reshape(-1), len(pairs))
    none = np.zeros(0, dtype=np.int64)
    network = CostNetwork(
        domains,
        offsets_of(domains),
        near_at,
        ends.reshape(-1)[position ^ 1],  # the other end of the pair
        near_pair,
        ends,
        offsets_of(sizes.prod(axis=1))[:-1].copy(),
        np.concatenate([*(pairs[v, u].reshape(-1) for v, u in ends.tolist()), none]),
        starts[:-1].reshape(-1, 2).copy(),
        costs.interchangeable,
        triples,
        sides,
        offsets_of(triple_sizes.prod(axis=1))[:-1].copy(),
        np.concatenate([*(costs.triples[triple].reshape(-1) for triple in sorted(costs.triples)), none]),
        triple_starts[:-1].reshape(-1, 3).copy(),
        int(triple_starts[-1]),
        near_triple_at,
        near_triple,
        over_at,
        over,
    )
    return network, _start_state(costs, int(triple_starts[-1]) + len(triples), over_at)


def _start_state(costs: CostTables, words: int, over_at: Ints) -> SearchState:
    """Return the start state of a search with a number of words of costs; ``over_at`` is that of the network."""
    domains, none = costs.domains, np.zeros(0, dtype=np.int64)
    n = domains.size
    cost = np.zeros(words, dtype=np.int64)
    cost[0], cost[1 : 1 + int(domains.sum())] = costs.bound, np.concatenate([*costs.unary, none])
    value_order = np.concatenate([*(np.arange(size) for size in domains.tolist()), none])
    head = np.zeros(8, dtype=np.int64)
    head[[TOP, STAMP, LAST]] = costs.top, 1, -1
    return SearchState(
        cost,
        np.zeros(words, dtype=np.int64),
        np.zeros((4 * words, 2), dtype=np.int64),
        head,
        value_order,
        value_order.copy(),
        domains.copy(),
        np.zeros((n + 1, n), dtype=np.int64),
        np.zeros((n + 1, 3), dtype=np.int64),
        np.ones(len(costs.pairs)),
        np.zeros((4, max(1, n)), dtype=np.uint8),
        np.zeros(n, dtype=np.int64),
        np.zeros((3, int(domains.max(initial=1))), dtype=np.int64),
        np.zeros((int((over_at[1:] - over_at[:-1]).max(initial=0)), 3), dtype=np.int64),
    )


def _interchangeable(unary: list[Ints], pairs: Tables) -> Ints:
    """Return ``CostNetwork.interchangeable``; typically the colours of a graph colouring.

    A value x takes the smallest y < x such that swapping x and y leaves all unary and pair costs unchanged. The result
    is empty if there is none, or if domains differ in size.
    """
    size = unary[0].size if unary else 0
    smallest, none = np.arange(size), np.zeros(0, dtype=np.int64)
    if size < 2 or any(costs.size != size for costs in unary):
        return none
    for x in range(1, size):
        for y in range(x):
            if smallest[y] == y:
                swap = np.arange(size)
                swap[[x, y]] = y, x
                unchanged = all(np.array_equal(costs[swap], costs) for costs in unary)
                if unchanged and all(np.array_equal(table[swap][:, swap], table) for table in pairs.values()):
                    smallest[x] = y
                    break
    return none if (smallest == np.arange(size)).all() else smallest.astype(np.int64)


def offsets_of(sizes: NDArray[np.int64]) -> Ints:
    """Return the offset of each part, and the end of the last one."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
