"""Large-neighbourhood search by elimination: block moves from an assignment to better ones."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.samplers.blocks.room import Priced, new_room
from dmcmc.samplers.blocks.search_kernels import improve

_ORDERED = 1 << 12  # variables of graphs that get an elimination order
_WORDS = 2_000_000  # of search for it
_GROWN, _CUT = (0, 1), (2, 3)  # kinds of blocks, as kernels number them
_LIMITS = (1 << 8, 1 << 12, 1 << 15, 1 << 18)  # cells of a bucket
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
        self.room, self.arms = new_room(graph, False), _arms(_GROWN)

    @property
    def cuts(self) -> bool:
        """Whether blocks are cut from the whole graph, too."""
        return len(self.arms) > len(_GROWN) * len(_LIMITS)

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
        if z.size == 0:
            return 0.0
        gained, following = improve(
            self.graph, z, self.room, self.order, self.rank, self.arms, temperature, self.key, self.chain,
            self.moves + 1, work, halt,
        )  # fmt: skip
        self.moves = following - 1
        return float(gained)


def order_for_cuts(graph: Priced, stop: Stop) -> NDArray[np.int64] | None:
    """Return an elimination order of the whole graph; None where it is too large."""
    n = graph.domains.size
    if n > _ORDERED:
        return None
    order = best_order(graph.scopes(), graph.domains, range(n), budget=_WORDS, stop=stop, stake=0)
    return np.array(order.variables, dtype=np.int64)


def _arms(kinds: tuple[int, ...]) -> NDArray[np.float64]:
    """Return arms that have not been used: each kind with each limit."""
    return np.array([[kind, limit, *[0.0] * (_COLUMNS - 2)] for kind in kinds for limit in _LIMITS])
