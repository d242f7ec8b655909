"""Large-neighbourhood search by elimination: block moves from an assignment to better ones.

A *block move* redraws a set of variables, given all others, by bucket elimination; its work is counted in *cells*, the
entries of the tables that the buckets join. Blocks are *grown* from one variable, or *cut* from the whole graph along
an elimination order. An *arm* of the bandit that selects moves is a type of move with a limit of cells per bucket.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.blocks.block_workspace import new_workspace
from dmcmc.samplers.blocks.neighbourhood_search_kernels import SWEEP, improve
from dmcmc.samplers.blocks.sweep_kernels import typical_spread, utility_of_assignment
from dmcmc.samplers.tuning import blocks as tuning

_GROWN_TYPES = (0, 1)  # types of moves, as the kernels number them
_CUT_TYPES = (2, 3)  # likewise
_ARM_COLUMNS = 6  # columns per arm, see the kernel ``improve``


class BlockSearch:
    """Block moves by one worker.

    Parameters
    ----------
    graph : FactorGraph
        The graph.
    key : (2,) uint64
        Key of the random numbers.
    chain : int
        Number of the worker.

    Attributes
    ----------
    moves : int
        Number of moves made.
    arms : (arms, 6) float64
        Per arm: type of move, limit of cells, discounted number of successes, discounted work, uses, sum of block
        sizes.
    """

    def __init__(self, graph: FactorGraph, key: NDArray[np.uint64], chain: int = 0) -> None:
        self.graph, self.key, self.chain, self.moves = graph, key, chain, 0
        self.order = self.rank = np.arange(graph.domains.size)
        self.workspace = new_workspace(graph, False)
        self.arms = np.concatenate([_arms((SWEEP,))[:1], _arms(_GROWN_TYPES)])
        self._current, self._temperatures, self._cycles, self._cells = np.zeros(0, dtype=np.int64), list[float](), 0, 0

    @property
    def cuts(self) -> bool:
        """Whether blocks are also cut from the whole graph."""
        return len(self.arms) > 1 + len(_GROWN_TYPES) * len(tuning.BUCKET_CELLS)

    def cut(self, order: NDArray[np.int64]) -> None:
        """Also cut blocks from the whole graph, along an elimination order, (n,) int64."""
        self.order, self.rank = order, np.argsort(order)
        self.workspace = new_workspace(self.graph, True, self.workspace.best)
        self.arms = np.concatenate([self.arms, _arms(_CUT_TYPES)])

    def improve(self, z: NDArray[np.int64], work: int, halt: NDArray[np.uint8], temperature: float = 0.0) -> float:
        """Make block moves in place until about ``work`` cells are joined or ``halt[0]`` is nonzero.

        Parameters
        ----------
        z : (n,) int64
            The assignment.
        work : int
            Cells to join.
        halt : (1,) uint8
            Nonzero when the search should return.
        temperature : float
            At 0 the assignment never gets worse; else each block is drawn given the rest by exp(utility / temperature).

        Returns
        -------
        float
            Gain of utility, each violation counted as a finite loss.
        """
        if self.graph.free == 0:
            return 0.0
        gained, next_move = improve(
            self.graph, z, self.workspace, self.order, self.rank, self.arms, temperature, self.key, self.chain,
            self.moves + 1, work, halt,
        )  # fmt: skip
        self.moves = next_move - 1
        return float(gained)

    def anneal(self, best: NDArray[np.int64], work: int, halt: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Anneal block moves from the best assignment, cycle after cycle.

        An interrupted cycle continues in the next call.

        Parameters
        ----------
        best : (n,) int64
            The best known assignment.
        work : int
            Cells to join.
        halt : (1,) uint8
            Nonzero when the search should return.

        Returns
        -------
        (n,) int64
            The best assignment after any step at temperature 0, or the one given if none is better.
        """
        while work > 0 and not halt[0] and self.graph.free:
            if not self._temperatures:
                self._current = best.copy()
                spread = float(typical_spread(self.graph, best)) or 1.0
                self._cells, self._temperatures = cooling(self._cycles, spread)
                self._cycles += 1
            step, temperature = min(work, self._cells * self.graph.free), self._temperatures.pop(0)
            self.improve(self._current, step, halt, temperature)
            work -= step
            if temperature == 0 and self.utility_of(self._current) > self.utility_of(best):
                best = self._current.copy()
        return best

    def restart_cycle(self) -> None:
        """Begin a new cycle in the next call, at the assignment given then."""
        self._temperatures = []

    def utility_of(self, z: NDArray[np.int64]) -> float:
        """Return the utility of an assignment, each violation counted as a finite loss."""
        return float(utility_of_assignment(self.graph, z))


def cooling(cycle: int, spread: float) -> tuple[int, list[float]]:
    """Return the cells of a step, per variable, and the temperatures of a cycle's steps.

    A cycle cools geometrically from a first temperature f · ``spread`` to 1/30 of it, then stays at 0. The factors f
    take turns from cycle to cycle; the cells double each time all have been used.
    """
    number = len(tuning.FIRST_TEMPERATURES)
    hot, doubled = tuning.FIRST_TEMPERATURES[cycle % number] * spread, min(tuning.MAX_DOUBLINGS, cycle // number)
    return tuning.STEP_CELLS << doubled, [
        *np.geomspace(hot, hot * tuning.COOLING_RATIO, tuning.ANNEALED_STEPS).tolist(),
        *[0.0] * tuning.COLD_STEPS,
    ]


def order_for_cuts(graph: FactorGraph, stop: Deadline) -> NDArray[np.int64] | None:
    """Return an elimination order of the free variables; None if there are too many."""
    if graph.free > tuning.MAX_BLOCK_VARIABLES:
        return None
    free, n = graph.free, graph.domains.size
    order = best_order(graph.scopes(), graph.domains, range(free), range(free, n), tuning.ORDER_WORK, stop, 0)
    return np.array(order.variables, dtype=np.int64)


def _arms(types: tuple[int, ...]) -> NDArray[np.float64]:
    """Return unused arms: each type of move with each limit."""
    return np.array(
        [[move_type, limit, *[0.0] * (_ARM_COLUMNS - 2)] for move_type in types for limit in tuning.BUCKET_CELLS]
    )
