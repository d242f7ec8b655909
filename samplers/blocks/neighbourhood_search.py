"""Large-neighbourhood search by elimination: block moves from an assignment to better ones."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.samplers.blocks.block_workspace import Priced, new_room
from dmcmc.samplers.blocks.neighbourhood_search_kernels import SWEEP, improve
from dmcmc.samplers.blocks.sweep_kernels import total, typical_spread

_ORDERED = 1 << 12  # variables of graphs that get an elimination order
_WORDS = 2_000_000  # of search for it
_GROWN, _CUT = (0, 1), (2, 3)  # kinds of blocks, as kernels number them
HOT = (0.1, 0.02, 0.4, 0.1)  # first temperatures of cycles, in typical spreads of a conditional
DESCENT = 0.25  # of the work on a row goes into moves at temperature 0, before annealing
_COOLED, _STEPS, _COLD = 1 / 30, 10, 4  # last temperature over the first, steps on the way, steps at 0 after them
_STEP, _LONGEST = 1 << 14, 8  # cells of a step for each variable; how often it is doubled, after all cycles
LIMITS = (1 << 8, 1 << 12, 1 << 15, 1 << 18)  # cells of a bucket
_COLUMNS = 6  # what kernels keep of an arm


class BlockSearch:
    """Block moves by one worker.

    Parameters
    ----------
    graph : Priced
    key : (2,) uint64
        Of random numbers.
    chain : int
        Which worker this is.

    Attributes
    ----------
    moves : int
        Made so far.
    """

    def __init__(self, graph: Priced, key: NDArray[np.uint64], chain: int = 0) -> None:
        self.graph, self.key, self.chain, self.moves = graph, key, chain, 0
        self.order = self.rank = np.arange(graph.domains.size)
        self.room = new_room(graph, False)
        self.arms = np.concatenate([_arms((SWEEP,))[:1], _arms(_GROWN)])
        self._lineage, self._left, self._cycles, self._cells = np.zeros(0, dtype=np.int64), list[float](), 0, 0

    @property
    def cuts(self) -> bool:
        """Whether blocks are cut from the whole graph, too."""
        return len(self.arms) > 1 + len(_GROWN) * len(LIMITS)

    def cut(self, order: NDArray[np.int64]) -> None:
        """Have blocks cut from the whole graph, too, along an elimination order."""
        self.order, self.rank = order, np.argsort(order)
        self.room, self.arms = new_room(self.graph, True), np.concatenate([self.arms, _arms(_CUT)])

    def improve(self, z: NDArray[np.int64], work: int, halt: NDArray[np.uint8], temperature: float = 0.0) -> float:
        """Make block moves in place, until about so many cells are joined or it is time to halt.

        Parameters
        ----------
        z : (n,) int64
        temperature : float
            At 0 the assignment never gets worse; else each block is drawn given the rest by exp(utility / temperature).

        Returns
        -------
        float
            What that gained, a violation at its price.
        """
        if self.graph.free == 0:
            return 0.0
        gained, following = improve(
            self.graph, z, self.room, self.order, self.rank, self.arms, temperature, self.key, self.chain,
            self.moves + 1, work, halt,
        )  # fmt: skip
        self.moves = following - 1
        return float(gained)

    def anneal(self, best: NDArray[np.int64], work: int, halt: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Cool block moves, cycle after cycle, from the best assignment; what is cut short goes on the next time.

        Returns
        -------
        (n,) int64
            The best assignment at the end of a step at temperature 0; the one given if none is better.
        """
        while work > 0 and not halt[0] and self.graph.free:
            if not self._left:
                self._lineage = best.copy()
                spread = float(typical_spread(self.graph, best)) or 1.0
                self._cells, self._left = cooling(self._cycles, spread)
                self._cycles += 1
            step, temperature = min(work, self._cells * self.graph.free), self._left.pop(0)
            self.improve(self._lineage, step, halt, temperature)
            work -= step
            if temperature == 0 and self.worth(self._lineage) > self.worth(best):
                best = self._lineage.copy()
        return best

    def forget(self) -> None:
        """Begin a new cycle the next time, at what is given then."""
        self._left = []

    def worth(self, z: NDArray[np.int64]) -> float:
        """Return what an assignment is worth, a violation at its price."""
        return float(total(self.graph, z))


def cooling(cycle: int, spread: float) -> tuple[int, list[float]]:
    """Return the cells of a step, for each variable, and the temperatures of a cycle's steps."""
    hot, doubled = HOT[cycle % len(HOT)] * spread, min(_LONGEST, cycle // len(HOT))
    return _STEP << doubled, [*np.geomspace(hot, hot * _COOLED, _STEPS).tolist(), *[0.0] * _COLD]


def order_for_cuts(graph: Priced, stop: Stop) -> NDArray[np.int64] | None:
    """Return an elimination order of all variables that move; None where they are too many."""
    if graph.free > _ORDERED:
        return None
    free, n = graph.free, graph.domains.size
    order = best_order(graph.scopes(), graph.domains, range(free), range(free, n), _WORDS, stop, 0)
    return np.array(order.variables, dtype=np.int64)


def _arms(kinds: tuple[int, ...]) -> NDArray[np.float64]:
    """Return arms that have not been used: each kind with each limit."""
    return np.array([[kind, limit, *[0.0] * (_COLUMNS - 2)] for kind in kinds for limit in LIMITS])
