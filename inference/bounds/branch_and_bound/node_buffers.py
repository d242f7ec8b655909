"""Room for the tables of nodes, a slot each, and what is told of a node's work."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.graph import Graph
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
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


class Area(NamedTuple):
    """Where a node is worked on: shares of a hidden graph, see :class:`dmcmc.inference.bounds.dual.graph.Shares`.

    Attributes
    ----------
    unary, pair, cluster, star : int32
    domains, widths : (n,) int64
        As the tables are packed now.
    names : (n, W) int16
        Which value of a variable each place of its tables stands for.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    cluster: NDArray[np.int32]
    star: NDArray[np.int32]
    domains: Ints
    widths: Ints
    names: NDArray[np.int16]


class Pool(NamedTuple):
    """Slots: what areas hold, in as little room as that takes, behind an axis of slots.

    Attributes
    ----------
    unary, pair, star : (slots, ...) int32
    cluster : (slots, t, 3, W, W) int16
        Entries divided by 2 to the slot's shift.
    domains : (slots, n) int64
    names : (slots, n, W) int16
    shifts : (slots,) int64
    constants : (slots,) int64
        What goes with the fixed interface.
    made : (slots,) int64
        Sweeps since the interface was fixed.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    cluster: NDArray[np.int16]
    star: NDArray[np.int32]
    domains: Ints
    names: NDArray[np.int16]
    shifts: Ints
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
    entries = n * width + len(hidden.pairs) * square + int(hidden.star_at[-1])
    return 4 * entries + 6 * len(hidden.triangles) * square + n * (2 * width + 8) + 24


def make_pool(hidden: Graph, width: int, slots: int) -> Pool:
    """Return room for some nodes; the system gives memory as slots are used."""
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return Pool(
        np.empty((slots, n, width), dtype=np.int32),
        np.empty((slots, m, width, width), dtype=np.int32),
        np.empty((slots, t, 3, width, width), dtype=np.int16),
        np.empty((slots, int(hidden.star_at[-1])), dtype=np.int32),
        np.empty((slots, n), dtype=np.int64),
        np.empty((slots, n, width), dtype=np.int16),
        *(np.empty(slots, dtype=np.int64) for _ in range(3)),
    )


def make_area(hidden: Graph, width: int) -> Area:
    """Return room to work on a node in."""
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return Area(
        np.empty((n, width), dtype=np.int32),
        np.empty((m, width, width), dtype=np.int32),
        np.empty((t, 3, width, width), dtype=np.int32),
        np.empty(int(hidden.star_at[-1]), dtype=np.int32),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty((n, width), dtype=np.int16),
    )
