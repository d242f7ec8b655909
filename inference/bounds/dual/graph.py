"""The factor graph of the dual bound, and its reparametrised tables.

An agent's factors as a graph of variables, pairs, triangles and higher-order factors, which dual ascent works on.

Hidden variables are numbered before the interface variables. Pairs and triangles among hidden variables come first too.
So the part of each array that remains after conditioning on the interface is a prefix, except for the higher-order
factors.

A pair is a pairwise table; a triangle is a triplet region a < b < c whose potential is the sum of three tables over ab,
ac and bc; a higher-order factor has three or more variables and its own table.

Convert the potentials of a dual ascent to tables, as input of mini-bucket elimination or of rounding.

The potentials are padded int32 arrays: unary tables, pairwise tables, triangles (triplet regions) of three pairwise
tables ab, ac, bc each, and higher-order tables over three or more variables. Entries below ``FORBIDDEN_BELOW`` stand
for minus infinity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, Scale, quantise
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, EncodedTable
from dmcmc.inference.model.factor_graph import factors_of_variables
from dmcmc.inference.model.flat_tables import flatten_scopes
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Ints

if TYPE_CHECKING:
    from dmcmc.inference.model.subproblem import Subproblem


LANES = 8  # domains are padded with forbidden values to a multiple of this, the vector width of the CPU kernels


class DualGraph(NamedTuple):
    """Structure of the graph; all arrays are int64.

    Attributes
    ----------
    domains, widths : (n,)
        Domain sizes, and domain sizes rounded up to a multiple of ``LANES``.
    pairs : (m, 2)
        Variables a < b of each pair.
    incident_start : (n + 1,)
    incident : (2m,)
        The pairs of variable v have the numbers ``incident[incident_start[v]:incident_start[v + 1]]``.
    triangles : (t, 3)
        Numbers of the pairs ab, ac, bc of each triangle a < b < c.
    corners : (t, 3)
        The variables a, b, c of each triangle.
    scope_start : (s + 1,)
    scope_variables : (sum of arities,)
        Factor f of three or more variables has the scope ``scope_variables[scope_start[f]:scope_start[f + 1]]``.
    entry_start : (s + 1,)
        The entries of factor f are ``entry_start[f]`` to ``entry_start[f + 1]`` - 1 of ``DualPotentials.higher_order``.
    """

    domains: Ints
    widths: Ints
    pairs: Ints
    incident_start: Ints
    incident: Ints
    triangles: Ints
    corners: Ints
    scope_start: Ints
    scope_variables: Ints
    entry_start: Ints


class DualPotentials(NamedTuple):
    """Reparametrised potentials: the sum of the entries that an assignment selects never changes. All arrays are int32.

    Forbidden and padding entries are ``FORBIDDEN``.

    Attributes
    ----------
    unary : (n, W)
        One table per variable; W is the largest padded domain size.
    pair : (m, W, W)
        One table per pair a, b: rows are values of a, columns values of b.
    triangle : (t, 3, W, W)
        The potential of a triangle is the sum of three tables, over ab, ac and bc.
    higher_order : (entries,)
        Tables of the factors of three or more variables, one after the other, in C order and not padded.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    triangle: NDArray[np.int32]
    higher_order: NDArray[np.int32]


class RowGraphs(NamedTuple):
    """Graphs of an agent and shape of its interface, from which the tables of a row are made.

    Attributes
    ----------
    whole, hidden : DualGraph
        The graph over all variables, and its subgraph over the hidden ones.
    sliced_factors : (higher-order factors of the hidden graph,) int64
        The higher-order factor of ``whole`` that each one is a slice of.
    shape : (interface,) int64
        Domain sizes of the interface variables; rows are numbered in C order over them.
    """

    whole: DualGraph
    hidden: DualGraph
    sliced_factors: Ints
    shape: Ints


@dataclass(frozen=True)
class DualLayout:
    """An agent's graph, its subgraph of hidden variables, and its initial potentials.

    Attributes
    ----------
    whole : DualGraph
        The graph over hidden and interface variables.
    hidden : DualGraph
        The subgraph over the hidden variables: the graph that remains once the interface is fixed.
    potentials : DualPotentials
        Of ``whole``, before any message.
    n_hidden : int
        Number of hidden variables.
    scale : Scale
        How utilities are scaled to integers.
    sliced_factors : (higher-order factors of the hidden graph,) int64
        The higher-order factor of ``whole`` that each one is a slice of.
    """

    whole: DualGraph
    hidden: DualGraph
    potentials: DualPotentials
    n_hidden: int
    scale: Scale
    sliced_factors: Ints

    @property
    def row_graphs(self) -> RowGraphs:
        """The graphs of all variables and of the hidden ones, with the shape of the interface."""
        return RowGraphs(self.whole, self.hidden, self.sliced_factors, self.whole.domains[self.n_hidden :])


def table_width(local: "Subproblem") -> int:
    """Return the number of columns of an agent's tables: the largest domain size, padded to a multiple of ``LANES``."""
    largest = max((int(local.domains[v]) for v in (*local.hidden, *local.interface)), default=1)
    return max(LANES, -(-largest // LANES) * LANES)


def lay_out(local: "Subproblem", triangles: bool) -> DualLayout:
    """Build the graph and the initial potentials of an agent.

    Factors of one or two variables over the same variables are added up to one table; every factor of three or more
    variables has its own table.

    Parameters
    ----------
    local : Subproblem
    triangles : bool
        Whether to add the triangles of the factor graph, as many as fit one workspace (``MAX_WORKSPACE_BYTES``).
    """
    order = (*local.hidden, *local.interface)
    position = {v: i for i, v in enumerate(order)}
    n, n_hidden = len(order), len(local.hidden)
    domains = local.domains[list(order)] if n else np.zeros(0, dtype=np.int64)
    scale, tables = quantise(local.factors)
    width = table_width(local)
    unary = np.full((n, width), FORBIDDEN, dtype=np.int32)
    for v, d in enumerate(domains.tolist()):
        unary[v, :d] = 0
    matrices: dict[tuple[int, int], NDArray[np.int32]] = {}
    large_factors: list[tuple[tuple[int, ...], NDArray[np.int32]]] = []
    for factor, table in zip(local.factors, tables, strict=True):
        scope = tuple(position[v] for v in factor.scope)
        if len(scope) == 1:
            block = unary[scope[0], : table.size]
            block[:] = _add_tables(block, table)
        elif len(scope) == 2:
            a, b = sorted(scope)
            if (a, b) not in matrices:
                matrices[a, b] = np.full((width, width), FORBIDDEN, dtype=np.int32)
                matrices[a, b][: domains[a], : domains[b]] = 0
            block = matrices[a, b][: domains[a], : domains[b]]
            block[:] = _add_tables(block, table if scope[0] == a else table.T)
        else:
            large_factors.append((scope, table))
    pairs = sorted(matrices, key=lambda p: (p[1] >= n_hidden, p))
    triples = _find_triangles(pairs, n, n_hidden) if triangles else []
    # A triangle takes 12 * width * width bytes: three tables of four-byte entries.
    triples = triples[: MEMORY_ACCOUNT.workspace_bytes() // (12 * width * width)]
    hidden_scopes = [
        (i, tuple(v for v in scope if v < n_hidden))
        for i, (scope, _) in enumerate(large_factors)
        if any(v < n_hidden for v in scope)
    ]
    potentials = DualPotentials(
        unary,
        np.array([matrices[p] for p in pairs], dtype=np.int32).reshape(-1, width, width),
        _zero_triangle_tables(triples, domains, width),
        np.concatenate([np.zeros(0, dtype=np.int32), *(table.ravel() for _, table in large_factors)]),
    )
    whole = _graph(domains, pairs, triples, [scope for scope, _ in large_factors])
    hidden = _hidden_graph(whole, n_hidden, [scope for _, scope in hidden_scopes])
    sliced_factors = np.array([i for i, _ in hidden_scopes], dtype=np.int64)
    return DualLayout(whole, hidden, potentials, n_hidden, scale, sliced_factors)


def empty_potentials(graph: DualGraph, width: int) -> DualPotentials:
    """Allocate the tables of a graph, ``width`` columns wide; the entries are not set."""
    n, pairs, triangles = graph.domains.size, len(graph.pairs), len(graph.triangles)
    shapes = (n, width), (pairs, width, width), (triangles, 3, width, width), int(graph.entry_start[-1])
    return DualPotentials(*(np.empty(shape, dtype=np.int32) for shape in shapes))


def mean_standard_deviation(potentials: DualPotentials) -> float:
    """Return the root mean square, over all pairs, of the standard deviations of their tables' allowed entries."""
    allowed = potentials.pair >= FORBIDDEN_BELOW
    count = allowed.sum(axis=(1, 2))
    if not count.any():
        return 0.0
    entries = np.where(allowed, potentials.pair, 0).astype(np.float64)
    sums, square_sums = entries.sum(axis=(1, 2)), np.square(entries).sum(axis=(1, 2))
    count = np.maximum(1, count)
    return float(np.sqrt(np.maximum(0, square_sums / count - np.square(sums / count)).mean()))


def add_triangles(
    layout: DualLayout, potentials: DualPotentials, triples: Sequence[tuple[int, int, int]]
) -> tuple[DualLayout, DualPotentials]:
    """Return a layout and potentials with additional triangles a < b < c; new triangles and pairs have zero tables.

    ``potentials`` are those of ``layout.whole``, with their present messages. The result's potentials have the same
    sum, and are the initial potentials of the new layout.
    """
    whole, n_hidden = layout.whole, layout.n_hidden
    width, domains = potentials.unary.shape[1], whole.domains
    old_pairs = {(a, b): i for i, (a, b) in enumerate(whole.pairs.tolist())}
    old_triples = {(a, b, c): i for i, (a, b, c) in enumerate(whole.corners.tolist())}
    wanted = {pair for triple in triples for pair in combinations(triple, 2)}
    pairs = sorted(wanted | old_pairs.keys(), key=lambda p: (p[1] >= n_hidden, p))
    all_triples = sorted(set(triples) | old_triples.keys(), key=lambda t: (t[2] >= n_hidden, t))
    pair = np.full((len(pairs), width, width), FORBIDDEN, dtype=np.int32)
    for i, (a, b) in enumerate(pairs):
        if (a, b) in old_pairs:
            pair[i] = potentials.pair[old_pairs[a, b]]
        else:
            pair[i, : domains[a], : domains[b]] = 0
    triangle_tables = _zero_triangle_tables(all_triples, domains, width)
    for i, triple in enumerate(all_triples):
        if triple in old_triples:
            triangle_tables[i] = potentials.triangle[old_triples[triple]]
    scopes = [tuple(whole.scope_variables[i:j].tolist()) for i, j in pairwise(whole.scope_start.tolist())]
    hidden_scopes = [tuple(v for v in scopes[i] if v < n_hidden) for i in layout.sliced_factors.tolist()]
    extended = DualPotentials(potentials.unary, pair, triangle_tables, potentials.higher_order)
    new_whole = _graph(domains, pairs, all_triples, scopes)
    new_hidden = _hidden_graph(new_whole, n_hidden, hidden_scopes)
    return replace(layout, whole=new_whole, hidden=new_hidden, potentials=extended), extended


def _add_tables(left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the entrywise sum of two tables; it is forbidden where one of them is."""
    total = left + right
    return np.where(total < FORBIDDEN_BELOW, np.int32(FORBIDDEN), total)


def _find_triangles(pairs: Sequence[tuple[int, int]], n: int, n_hidden: int) -> list[tuple[int, int, int]]:
    """Return the triangles a < b < c of a graph, those among the first ``n_hidden`` variables first."""
    later_neighbours: list[set[int]] = [set() for _ in range(n)]
    for a, b in pairs:
        later_neighbours[a].add(b)
    triangles = [(a, b, c) for a, b in pairs for c in sorted(later_neighbours[a] & later_neighbours[b])]
    return sorted(triangles, key=lambda t: (t[2] >= n_hidden, t))


def _zero_triangle_tables(triples: Sequence[tuple[int, int, int]], domains: Ints, width: int) -> NDArray[np.int32]:
    """Return zero tables for triangles, with forbidden padding."""
    tables = np.zeros((len(triples), 3, width, width), dtype=np.int32)
    if (domains < width).any():
        is_padding, corners = np.arange(width) >= domains[:, None], _array(triples, 3)
        for k, (u, v) in enumerate(combinations(range(3), 2)):
            padded_rows, padded_columns = is_padding[corners[:, u]], is_padding[corners[:, v]]
            tables[:, k][padded_rows[:, :, None] | padded_columns[:, None, :]] = FORBIDDEN
    return tables


def _graph(
    domains: Ints,
    pairs: Sequence[tuple[int, int]] | Ints,
    triples: Sequence[tuple[int, int, int]] | Ints,
    scopes: Sequence[tuple[int, ...]],
) -> DualGraph:
    """Build the index arrays of a graph; ``scopes`` are those of the higher-order factors."""
    pair_array, corners = _array(pairs, 2), _array(triples, 3)
    keys = pair_array @ np.array([len(domains), 1])  # a distinct number for each pair
    by_key = np.argsort(keys)
    wanted = corners[:, [0, 0, 1]] * len(domains) + corners[:, [1, 2, 2]]  # the pairs ab, ac and bc
    incident_start, incident, _ = factors_of_variables(
        np.arange(0, 2 * len(pairs) + 1, 2), pair_array.reshape(-1), len(domains)
    )
    scope_start, scope_variables = flatten_scopes(scopes)
    sizes = [int(np.prod(domains[list(scope)])) for scope in scopes]
    return DualGraph(
        domains=domains,
        widths=-(-domains // LANES) * LANES,
        pairs=pair_array,
        incident_start=incident_start,
        incident=incident,
        triangles=by_key[np.searchsorted(keys, wanted, sorter=by_key)],
        corners=corners,
        scope_start=scope_start,
        scope_variables=scope_variables,
        entry_start=np.cumsum([0, *sizes], dtype=np.int64),
    )


def _hidden_graph(whole: DualGraph, n_hidden: int, scopes: Sequence[tuple[int, ...]]) -> DualGraph:
    """Build the subgraph of the hidden variables; ``scopes`` are those of the higher-order factors in it."""
    pairs, triples = whole.pairs[whole.pairs[:, 1] < n_hidden], whole.corners[whole.corners[:, 2] < n_hidden]
    return _graph(whole.domains[:n_hidden], pairs, triples, scopes)


def _array(tuples: Sequence[tuple[int, ...]] | Ints, length: int) -> Ints:
    """Return tuples of one length as the rows of an array."""
    return np.array(tuples, dtype=np.int64).reshape(-1, length)


LOWEST = int(np.iinfo(np.int64).min) // ADDENDS  # minus infinity; a sum of ADDENDS of them does not overflow


def elimination_of(
    tables: Sequence[EncodedTable], domains: NDArray[np.int64], order: Sequence[int], keep: Sequence[int]
) -> EliminationQuery:
    """Return the elimination of ``order`` from int64 tables with ``LOWEST`` for minus infinity; ``keep`` stays."""
    total = sum(int(np.where(t.values == LOWEST, 0, np.abs(t.values)).max(initial=0)) for t in tables)
    return EliminationQuery(tables, domains, order, keep, Arithmetic(np.dtype(np.int64), LOWEST, total))


def triplets_fit(graph: DualGraph) -> bool:
    """Return whether the triangles fit a workspace as tables of three variables."""
    triangles, width = len(graph.triangles), int(graph.widths.max(initial=1))
    return 8 * triangles * width**3 <= MEMORY_ACCOUNT.workspace_bytes()


def tables_of(
    graph: DualGraph, potentials: DualPotentials, names: Sequence[int], as_triplets: bool = False, lowest: int = LOWEST
) -> list[EncodedTable]:
    """Return tables whose sum equals the sum of the agent's factors, in the integer scale.

    Parameters
    ----------
    graph : DualGraph
    potentials : DualPotentials
        Of ``graph``.
    names : sequence of int
        The problem's variable for each variable of the graph.
    as_triplets : bool
        Whether a triangle becomes a table of three variables; otherwise its three tables are added to those of its
        pairs.
    lowest : int
        The entry that stands for minus infinity.

    Returns
    -------
    list of EncodedTable
        With int64 entries.
    """
    domains = graph.domains.tolist()

    def to_int64(values: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return entries as int64, with ``lowest`` for forbidden ones."""
        return np.where(values < FORBIDDEN_BELOW, lowest, values.astype(np.int64))

    def add(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an entrywise sum that keeps ``lowest``."""
        return np.where((left == lowest) | (right == lowest), lowest, left + right)

    pairs = to_int64(potentials.pair) if as_triplets else _pairs_with_triangles(graph, potentials, lowest)
    tables = [EncodedTable((names[v],), to_int64(potentials.unary[v, :d])) for v, d in enumerate(domains)]
    for e, (a, b) in enumerate(graph.pairs.tolist()):
        tables.append(EncodedTable((names[a], names[b]), pairs[e, : domains[a], : domains[b]]))
    for t, (a, b, c) in enumerate(graph.corners.tolist() if as_triplets else ()):
        ab, ac, bc = to_int64(potentials.triangle[t])
        ab, ac, bc = ab[: domains[a], : domains[b]], ac[: domains[a], : domains[c]], bc[: domains[b], : domains[c]]
        triplet_table = add(add(ab[:, :, None], ac[:, None, :]), bc[None])
        tables.append(EncodedTable((names[a], names[b], names[c]), triplet_table))
    for s in range(graph.entry_start.size - 1):
        scope = graph.scope_variables[graph.scope_start[s] : graph.scope_start[s + 1]].tolist()
        entries = potentials.higher_order[graph.entry_start[s] : graph.entry_start[s + 1]]
        values = to_int64(entries).reshape([domains[v] for v in scope])
        tables.append(EncodedTable(tuple(names[v] for v in scope), values))
    return tables


def _pairs_with_triangles(graph: DualGraph, potentials: DualPotentials, lowest: int) -> NDArray[np.int64]:
    """Return the pairwise tables with the tables of the triangles added to them."""
    pairs, is_forbidden = potentials.pair.astype(np.int64), potentials.pair < FORBIDDEN_BELOW
    for k in range(3):
        np.add.at(pairs, graph.triangles[:, k], potentials.triangle[:, k])
        np.logical_or.at(is_forbidden, graph.triangles[:, k], potentials.triangle[:, k] < FORBIDDEN_BELOW)
    pairs[is_forbidden] = lowest
    return pairs
