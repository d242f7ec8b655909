"""Convert the potentials of a dual ascent to tables, as input of mini-bucket elimination or of rounding.

The potentials are padded int32 arrays: unary tables, pairwise tables, triangles (triplet regions) of three pairwise
tables ab, ac, bc each, and higher-order tables over three or more variables. Entries below ``FORBIDDEN_BELOW`` stand
for minus infinity.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, EncodedTable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

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
