"""Choose additional triplet regions: two triangles for each chordless cycle of four variables whose tables disagree.

``DualState.tighten`` calls this where a graph has few triangles. A cycle a, b, c, d without a chord gets the pair ac,
with a zero table, and the triangles abc and acd. Its gain is the amount by which these can lower the bound if the cycle
is taken alone: the sum of its tables' maxima minus the best value of its four variables. A cycle with a positive gain
is called frustrated (Sontag, Choe and Li, "Efficiently searching for frustrated cycles in MAP inference", UAI 2012).
"""

from collections import defaultdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import MAX_MIDDLES, PREPARED_CELLS
from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW


def frustrated_cycle_triangles(
    layout: DualLayout, potentials: DualPotentials, max_triangles: int
) -> list[tuple[int, int, int]]:
    """Return the triangles of the four-cycles with the largest gains, two per cycle; empty if no cycle gains.

    Parameters
    ----------
    layout : DualLayout
    potentials : DualPotentials
        Of ``layout.whole``.
    max_triangles : int
        Stop once there are this many triangles.

    Returns
    -------
    list of (int, int, int)
        Variables a < b < c of each triangle. Cycles are examined in the order of the variables, up to
        ``PREPARED_CELLS`` sums.
    """
    whole, remaining_sums = layout.whole, PREPARED_CELLS
    pair_index = {(a, b): i for i, (a, b) in enumerate(whole.pairs.tolist())}
    neighbours = defaultdict[int, list[int]](list)
    for a, b in pair_index:
        neighbours[a].append(b)
        neighbours[b].append(a)
    middles_of = defaultdict[tuple[int, int], list[int]](list)  # common neighbours of two variables that form no pair
    for v in sorted(neighbours):
        for a, c in combinations(sorted(neighbours[v]), 2):
            if (a, c) not in pair_index:
                middles_of[a, c].append(v)
    cycles: list[tuple[int, tuple[int, int, int, int]]] = []  # gain, and the variables a, c (new pair) and b, d
    sizes = whole.domains.tolist()

    def table(u: int, v: int) -> NDArray[np.int64]:
        """Return the table of a pair, with rows over u and columns over v."""
        first, second = min(u, v), max(u, v)
        entries = potentials.pair[pair_index[first, second]][: sizes[first], : sizes[second]]
        found: NDArray[np.int64] = entries.astype(np.int64)
        return found if u == first else found.T

    for (a, c), middles in middles_of.items():
        if len(middles) < 2:
            continue
        middle_candidates = middles[:MAX_MIDDLES]
        # Sums for the product over each middle, and for the sum of each two products.
        remaining_sums -= sizes[a] * sizes[c] * (sum(sizes[v] for v in middle_candidates) + len(middle_candidates) ** 2)
        if remaining_sums < 0:
            break
        # The max-plus product of the tables of a and v and of v and c, for each middle v.
        tables = [(table(a, v)[:, :, None] + table(v, c)[None]).max(axis=1) for v in middle_candidates]
        best = max((_gain(tables[i], tables[j]), i, j) for i, j in combinations(range(len(middle_candidates)), 2))
        if best[0] > 0:
            cycles.append((best[0], (a, c, middle_candidates[best[1]], middle_candidates[best[2]])))
    cycles.sort(key=lambda cycle: (-cycle[0], cycle[1]))
    triples, closed = dict[tuple[int, int, int], None](), set[frozenset[int]]()
    for _, (a, c, b, d) in cycles:
        if frozenset((a, b, c, d)) in closed:
            continue  # the cycle was closed by its other chord
        closed.add(frozenset((a, b, c, d)))
        for v in (b, d):
            first, second, third = sorted((a, v, c))
            triples[first, second, third] = None
        if len(triples) >= max_triangles:
            break
    return list(triples)


def _gain(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    """Return the sum of two tables' maxima minus the maximum of their sum; 0 if the sum is forbidden everywhere."""
    sum_of_maxima, maximum_of_sum = int(left.max()) + int(right.max()), int((left + right).max())
    return 0 if maximum_of_sum < FORBIDDEN_BELOW else sum_of_maxima - maximum_of_sum
