"""Room for the tables of nodes, a slot each, and what is told of a node's work."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Graph
from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.runtime.types import Ints

# Words of a job: which row, the slot to inherit from (-1: the row itself), the node's own slot, threshold, sweeps; on a
# GPU also whose row it is.
JOB_ROW, JOB_SOURCE, JOB_TARGET, JOB_THRESHOLD, JOB_SWEEPS, JOB_AGENT, JOB = range(7)
# Where a variable's values are on average below the best by less than 2^-FAR of what a node has to fall, a branch has
# the best 1 / PART of them: the best one would leave the other branch as it was.
FAR, PART = 4, 6
LEAF, STUCK = -1, -2  # in place of a variable: every variable has one value; nothing more can be shifted
UNFIT = NEVER + 1  # in place of a bound: nothing is known
UNDONE = NEVER + 2  # in place of a bound: it was not this node's turn


class Pool(NamedTuple):
    """Slots: shares of a hidden graph, see :class:`dmcmc.inference.bounds.dual.graph.Shares`, behind an axis of slots.

    Attributes
    ----------
    unary, pair, cluster, star : (slots, ...) int32
    domains, widths : (slots, n) int64
        As the tables are packed now.
    names : (slots, n, W) int16
        Which value of a variable each place of its tables stands for.
    constants : (slots,) int64
        What goes with the fixed interface.
    made : (slots,) int64
        Sweeps since the interface was fixed.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    cluster: NDArray[np.int32]
    star: NDArray[np.int32]
    domains: Ints
    widths: Ints
    names: NDArray[np.int16]
    constants: Ints
    made: Ints


class Wave(NamedTuple):
    """Nodes to work on at once.

    Attributes
    ----------
    jobs : (k, JOB) int64
    groups : (g + 1,) int64
        Jobs from ``groups[i]`` to ``groups[i + 1]`` go one after the other: a slot is inherited before it is changed.
    masks : (k, n, W) bool
        Which values may be live.
    """

    jobs: Ints
    groups: Ints
    masks: NDArray[np.bool_]


class Found(NamedTuple):
    """What came of a wave, for each of its jobs.

    Attributes
    ----------
    bounds : (k,) int64
        Of the node's own shares, with the row's constant; :data:`UNFIT`, :data:`UNDONE`.
    masks : (k, n, W) bool
        Values that are live.
    variables : (k,) int64
        Where to branch; :data:`LEAF`, :data:`STUCK`.
    firsts : (k, W) bool
        The best of that variable's live values: one branch has them, the other the rest.
    """

    bounds: Ints
    masks: NDArray[np.bool_]
    variables: Ints
    firsts: NDArray[np.bool_]


def slot_bytes(hidden: Graph, width: int) -> int:
    """Return the bytes of a slot."""
    n, square = hidden.domains.size, width * width
    entries = n * width + (len(hidden.pairs) + 3 * len(hidden.triangles)) * square + int(hidden.star_at[-1])
    return 4 * entries + n * (2 * width + 16) + 16


def make_pool(hidden: Graph, width: int, slots: int) -> Pool:
    """Return room for some nodes; the system gives memory as slots are used."""
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return Pool(
        np.empty((slots, n, width), dtype=np.int32),
        np.empty((slots, m, width, width), dtype=np.int32),
        np.empty((slots, t, 3, width, width), dtype=np.int32),
        np.empty((slots, int(hidden.star_at[-1])), dtype=np.int32),
        np.empty((slots, n), dtype=np.int64),
        np.empty((slots, n), dtype=np.int64),
        np.empty((slots, n, width), dtype=np.int16),
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.int64),
    )
