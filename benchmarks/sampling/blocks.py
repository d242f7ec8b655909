"""Compare block moves with single-site Gibbs at equal processor time, and their rate with that of bucket elimination.

    python -m benchmarks.sampling.blocks [--networks 20] [--seconds 2] [--moves 200] [--output FILE]

The networks have 150 variables of three values and 165 random factors over three of them. Utilities are logarithms of
uniform numbers; 60 % of all entries are forbidden, but a hidden assignment is allowed everywhere. Both searches anneal
from the same greedy start by the same schedule, on one thread: ``single`` draws one variable at a time, ``blocks`` adds
block moves. The rates are those of draws at temperature 0, for blocks of one kind and size, on the first network.
The rate of elimination is that of one large bucket.
"""

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Report, options
from dmcmc import Factor, Problem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.samplers.blocks.block_gibbs_kernels import redraw
from dmcmc.samplers.blocks.block_workspace import new_workspace, penalised_graph
from dmcmc.samplers.blocks.neighbourhood_search import BlockSearch, order_for_cuts
from dmcmc.samplers.blocks.neighbourhood_search_kernels import choose_block
from dmcmc.samplers.local_search.local_search import Ascent

VARIABLES = 150
FACTORS = 165
VALUES = 3
FORBIDDEN = 0.6  # share of the entries
KINDS = ("grown", "grown, wide", "cut", "cut, near")
LIMITS = (1 << 8, 1 << 12, 1 << 15, 1 << 18)
CELLS_PER_CHECK = 1 << 22  # cells between two readings of the clock


def network(seed: int) -> Problem:
    """Return a random deterministic network that has a feasible assignment."""
    rng = np.random.default_rng(seed)
    hidden, factors = rng.integers(0, VALUES, VARIABLES), []
    for _ in range(FACTORS):
        scope = rng.choice(VARIABLES, 3, replace=False)
        table = np.log(rng.random((VALUES,) * 3))
        forbidden = rng.random(table.shape) < FORBIDDEN
        forbidden[tuple(hidden[scope])] = False
        factors.append(Factor.of(tuple(scope.tolist()), np.where(forbidden, -np.inf, table)))
    names, owner = tuple(f"x{v}" for v in range(VARIABLES)), np.zeros(VARIABLES, dtype=np.int64)
    return Problem(names, np.full(VARIABLES, VALUES), ("all",), owner, tuple(factors))


def anneal(graph: FactorGraph, start: NDArray[np.int64], search: BlockSearch, seconds: float) -> NDArray[np.int64]:
    """Return the best assignment that a search finds in some seconds of processor time."""
    best, halt, begun = start.copy(), np.zeros(1, dtype=np.uint8), time.process_time()
    while time.process_time() - begun < seconds:
        best = search.anneal(best, CELLS_PER_CHECK, halt)
    return best


def quality(problem: Problem, values: NDArray[np.int64]) -> tuple[int, float]:
    """Return an assignment's violations, negated, and its utility."""
    return -problem.evaluate(values).violation, float(problem.utility_inside(values))


def compare(report: Report, networks: int, seconds: float) -> None:
    """Let both searches anneal on every network."""
    wins = ties = 0
    report(f"{'network':>7} {'greedy':>16} {'single':>16} {'blocks':>16}   violations, utility")
    for seed in range(networks):
        problem, key = network(seed), np.array([seed, 1], dtype=np.uint64)
        ascent = Ascent(problem, 1, NO_DEADLINE)
        start, graph = ascent.climb(ascent.greedy()), penalised_graph(ascent.graph)
        blocks, single = BlockSearch(graph, key), BlockSearch(graph, key)
        single.arms = single.arms[:1].copy()
        order = order_for_cuts(graph, NO_DEADLINE)
        assert order is not None
        blocks.cut(order)
        found = [quality(problem, anneal(graph, start, search, seconds)) for search in (single, blocks)]
        wins, ties = wins + (found[1] > found[0]), ties + (found[1] == found[0])
        shown = " ".join(f"{-hard:5d} {utility:10.3f}" for hard, utility in [quality(problem, start), *found])
        report(f"{seed:7d} {shown}")
    report(f"blocks are better on {wins} of {networks}, equal on {ties}")


def elimination_rate() -> float:
    """Return the cells per second that the elimination of one large bucket joins."""
    domains, rng = np.full(14, 3), np.random.default_rng(0)
    scopes = [(0, *range(1, 8)), (0, *range(7, 14))]
    tables = [EncodedTable(scope, rng.random((3,) * len(scope))) for scope in scopes]
    plan = plan_elimination(scopes, domains, [0], list(range(1, 14)))
    arithmetic = choose_arithmetic([Factor(t.scope, t.values) for t in tables])
    eliminate(tables, plan, arithmetic)
    begun, times = time.process_time(), 10
    for _ in range(times):
        eliminate(tables, plan, arithmetic)
    return plan.cells * times / (time.process_time() - begun)


def rates(report: Report, moves: int) -> None:
    """Measure the draws of each kind and size of block."""
    problem = network(0)
    ascent = Ascent(problem, 1, NO_DEADLINE)
    graph, start = penalised_graph(ascent.graph), ascent.climb(ascent.greedy())
    order, reference = order_for_cuts(graph, NO_DEADLINE), elimination_rate()
    assert order is not None
    report(f"elimination joins {reference:.3g} cells/s in one large bucket of floats")
    report(f"{'blocks':12} {'cells':>8} {'blocks/s':>9} {'variables':>9} {'draws/s':>9} {'cells/s':>9} {'relative':>8}")
    state, workspace = np.ones(1, dtype=np.uint64), new_workspace(graph, True)
    for kind, name in enumerate(KINDS):
        for limit in LIMITS:
            z, drawn, joined, begun = start.copy(), 0, 0, time.process_time()
            for _ in range(moves):
                size = choose_block(graph, z, workspace, order, np.argsort(order), kind, limit, state)
                if size and (cells := redraw(graph, z, workspace, size, 0.0, state)[1]) > 0:
                    drawn, joined = drawn + size, joined + cells
            seconds = time.process_time() - begun
            report(
                f"{name:12} {limit:8d} {moves / seconds:9.0f} {drawn / moves:9.0f} {drawn / seconds:9.3g}"
                f" {joined / seconds:9.3g} {joined / seconds / reference:8.0%}"
            )


def main() -> None:
    """Print both tables."""
    parser = options(__file__, str(__doc__))
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="processor time of each search")
    parser.add_argument("--moves", type=int, default=200, help="moves of each kind and size, to measure their rate")
    given = parser.parse_args()
    report = Report(__file__, given)
    compare(report, given.networks, given.seconds)
    report()
    rates(report, given.moves)
    report.keep()


if __name__ == "__main__":
    main()
