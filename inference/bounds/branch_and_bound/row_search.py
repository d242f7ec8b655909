"""Best-first search in agents' rows, as long as there is time, with the dual bound at the nodes.

Nodes of several agents share a wave. All limits are what the whole has to exceed, so that a node's slack means the same
in every agent: what it keeps the bound of the whole up by. An agent's part of a wave is as large as what its highest
slack has lately fallen by for a node.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.engine import CpuEngine, Engine, run_waves
from dmcmc.inference.bounds.branch_and_bound.frontier import Tree
from dmcmc.inference.bounds.branch_and_bound.node_buffers import Found, Wave
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.types import Ints

ROOT_SWEEPS, SWEEPS = 24, 8
_BACK_SWEEPS = 12  # of a node whose tables are gone, before it branches
LEAST_SLOTS = 3  # a node and its two branches
_FADE = 0.9  # of what was earned before a wave counts after it
_LEAST = 0.25  # of what agents earn on average is what each is thought to earn at least


class RowSearch:
    """Search in an agent's rows.

    Attributes
    ----------
    earning : float or None
        What the highest slack has lately fallen by for a node, utility; None before there is any.
    nodes : int
        That have been worked on.
    """

    def __init__(self, state: DualState, engine: Engine) -> None:
        self.state, self.engine = state, engine
        state.fixed = True
        hidden = state.shares.unary[: state.layout.n_hidden]
        self._tree = Tree(hidden >= THRESHOLD, state.bounds, state.layout.scale, engine.slots)
        self._gained, self._worked = 0.0, 0.0

    @property
    def earning(self) -> float | None:
        """What the highest slack has lately fallen by for a node."""
        return self._gained / self._worked if self._worked else None

    @property
    def nodes(self) -> int:
        """How many nodes have been worked on."""
        return self._tree.nodes

    @property
    def exhausted(self) -> bool:
        """Whether nothing is to be searched: nothing is open, or there is no room."""
        return not self._tree.size or self.engine.slots < LEAST_SLOTS

    def begin(self, thresholds: NDArray[Any], limits: NDArray[Any], rows: Rows | None) -> None:
        """Open the rows that matter."""
        chosen, scale = self.state.rows(rows), self.state.layout.scale
        encoded = [scale.encode_all(np.asarray(each)[chosen]) for each in (thresholds, limits)]
        self._tree.begin(self.state.bounds, chosen, *encoded)

    def wave(self, most: int) -> tuple[Ints, Wave]:
        """Return the best open nodes, and the work that branches at them."""
        return self._tree.wave(most, ROOT_SWEEPS, _BACK_SWEEPS, SWEEPS)

    def take(self, chosen: Ints, wave: Wave, found: Found) -> None:
        """Take in what came of a wave."""
        before, nodes = self._tree.slack, self.nodes
        self._tree.take(chosen, wave, found)
        self._gained = _FADE * self._gained + max(0.0, before - self._tree.slack)
        self._worked = _FADE * self._worked + self.nodes - nodes

    def leaves(self) -> tuple[Ints, Ints] | None:
        """Return rows, (k,), and hidden values of theirs, (k, n), that it has come to since this was last asked."""
        return self._tree.leaves.taken()

    def end(self) -> None:
        """Lower the state's bounds."""
        rows, bounds = self._tree.bounds()
        self.state.bounds[rows] = np.minimum(self.state.bounds[rows], bounds)


class Request(NamedTuple):
    """What is wanted of one agent's search.

    Attributes
    ----------
    search : RowSearch
    thresholds, rows
        As in :meth:`dmcmc.inference.bounds.contract.protocol.PruningState.prune`.
    limits : (rows of the interface,)
        Utilities: what a row has to exceed to be in anything better. The row that is furthest beyond is the first.
    """

    search: RowSearch
    thresholds: NDArray[Any]
    limits: NDArray[Any]
    rows: Rows | None = None


def search_rows(requests: Sequence[Request], seconds: float | None = None, waves: int | None = None) -> None:
    """Lower the bounds of rows that reach their thresholds, of several agents at once.

    Parameters
    ----------
    waves
        In place of seconds: how much work. The result is then the same on any number of threads.
    """
    for request in requests:
        request.search.begin(request.thresholds, request.limits, request.rows)
    searches, left = [request.search for request in requests], -1 if waves is None else waves
    if not searches:
        return
    stop = searches[0].state.backend.stop
    if seconds is not None:
        stop = stop.by(time.perf_counter() + seconds)
    while left != 0 and not (seconds is not None and stop.over):
        still = [search for search in searches if not search.exhausted]
        if not still:
            break
        waves_of = [search.wave(most) for search, most in zip(still, _division(still), strict=True)]
        parts = [(search.engine, wave) for search, (_, wave) in zip(still, waves_of, strict=True)]
        for search, (chosen, wave), found in zip(still, waves_of, run_waves(parts, stop), strict=True):
            search.take(chosen, wave, found)
        left -= 1
    for search in searches:
        search.end()


def _division(searches: Sequence[RowSearch]) -> list[int]:
    """Return at how many nodes of each search a wave branches: by what they earn, at one at least."""
    width, known = max(search.engine.width for search in searches), [search.earning for search in searches]
    numbers = [earning for earning in known if earning is not None]
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    weights = [max(_LEAST * mean, mean if earning is None else earning) or 1.0 for earning in known]
    return [max(1, int(width * weight / sum(weights))) for weight in weights]


def compile_branching() -> None:
    """Compile what a search uses."""
    local = LocalProblem(0, (), (0, 1), (Factor.of((0, 1), [[0, 1], [1, 0]]),), np.full(2, 2))
    state = DualState(local, triangles=True)
    nothing = np.array([-np.inf])
    search_rows([Request(RowSearch(state, CpuEngine(state, 1 << 20)), nothing, nothing)], waves=1)
