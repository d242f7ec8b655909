"""What block kernels read, and where they work."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_selection_kernels import WIDEST

ARENA = 1 << 22  # entries of all tables of a block's elimination, at most
_SHARE = 1 / 64  # of the budget for them
_MOST = 1 << 14  # variables of a grown block
_SCOPES = 64  # separators' variables, for each variable of a graph

Ints = NDArray[np.int64]


class Priced(NamedTuple):
    """Factors whose violations have a price; dense tables first, automata after them.

    Attributes
    ----------
    domains : (n,) int64
    dense : int
        Number of dense factors.
    scope_start : (factors + 1,) int64
    scope : (scope variables,) int64
    stride : (scope variables,) int64
        Of a variable in its dense table; in an automaton, where its layer lies.
    at : (factors,) int64
        Where a dense table begins in ``data``.
    data : (entries,) float64
        Tables, then what the layers of automata pay.
    following : (steps,) int32
        The states after the steps of all layers.
    first_step : int
        Where the layers begin in ``data``.
    never : float
        What a forbidden entry is worth: less than all other entries together.
    start : (n + 1,) int64
    factor : (scope variables,) int64
        The factors of variable v are ``factor[start[v]:start[v + 1]]``.
    best : (factors,) float64
        The largest entry of each.
    free : int
        Variables from this one on never move.
    """

    domains: Ints
    dense: int
    scope_start: Ints
    scope: Ints
    stride: Ints
    at: Ints
    data: NDArray[np.float64]
    following: NDArray[np.int32]
    first_step: int
    never: float
    start: Ints
    factor: Ints
    best: NDArray[np.float64]
    free: int

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes as tuples."""
        cuts, flat = self.scope_start.tolist(), self.scope.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(cuts)]


class Room(NamedTuple):
    """Arrays that block kernels write before they read, all but ``arena`` of int64 or bool.

    Attributes
    ----------
    block : (n + 1,)
        The variables of a block, in the order of their elimination.
    place : (n + 1,)
        Where a variable stands in a block, −1 elsewhere; while a block is cut, the first message of its bucket.
    seen, met, waiting, worth : (n + 1,)
        Marks and queues of variables; ``waiting`` chains messages while a block is cut, ``worth`` says what is fixed
        last.
    near, one, other : (several,)
        Places in a block.
    above, width, size, cells : (variables of a grown block, ...)
        Its buckets: places of the separator, how many, the variable's domain, cells.
    scopes, begin, end
        Separators while a block is cut: that of v is ``scopes[begin[v]:end[v]]``.
    factors, seen_factor : (factors,)
        What touches a block.
    arena : (entries,) float64
        The tables of its elimination.
    """

    block: Ints
    place: Ints
    seen: Ints
    met: NDArray[np.bool_]
    waiting: Ints
    worth: NDArray[np.float64]
    near: Ints
    one: Ints
    other: Ints
    above: Ints
    width: Ints
    size: Ints
    cells: Ints
    scopes: Ints
    begin: Ints
    end: Ints
    factors: Ints
    seen_factor: NDArray[np.bool_]
    arena: Array


def new_room(graph: Priced, cut: bool) -> Room:
    """Return room for blocks of a graph; ``cut`` says whether some are cut from all of it."""
    n, factors = graph.domains.size, graph.scope_start.size - 1
    grown, near = min(n, _MOST), WIDEST + 2
    several = [np.zeros(n + 1, dtype=np.int64) for _ in range(6)]
    buckets = [np.zeros(grown, dtype=np.int64) for _ in range(3)]
    block, place, seen, waiting, begin, end = several
    width, size, cells = buckets
    return Room(
        block=block,
        place=place,
        seen=seen,
        met=np.zeros(n + 1, dtype=np.bool_),
        waiting=waiting,
        worth=np.zeros(n),
        near=np.zeros(near, dtype=np.int64),
        one=np.zeros(2 * near, dtype=np.int64),
        other=np.zeros(2 * near, dtype=np.int64),
        above=np.zeros((grown, near), dtype=np.int64),
        width=width,
        size=size,
        cells=cells,
        scopes=np.zeros(_SCOPES * n if cut else 1, dtype=np.int64),
        begin=begin,
        end=end,
        factors=np.zeros(factors, dtype=np.int64),
        seen_factor=np.zeros(factors, dtype=np.bool_),
        arena=np.zeros(int(ACCOUNT.part(_SHARE / 8, ARENA))),
    )
