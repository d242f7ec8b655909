"""DUCT: UCT down a pseudo-tree (Ottens, Dimitrakakis, Faltings: DUCT, AAAI 2012; TIST 8(5), 2017).

For every context (values of the separator) a variable remembers how often it has tried each value, the least cost found
below it, and a bound: the cost less a width of confidence, and at least what its own factors and the children's bounds
add up to. Costs are scaled so that the whole problem's lie in 0..1. The bounds are optimistic, not proven.
"""

from collections.abc import Iterator
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.layout import whole_tables
from dmcmc.algorithms.network import BYTES, Network
from dmcmc.algorithms.tree import Tree
from dmcmc.inference.runtime.types import Ints

Context = tuple[int, ...]


class Memory(NamedTuple):
    """What a variable remembers of a context; one entry a value.

    Attributes
    ----------
    own : (d,) float64
        What its own factors cost; inf where a hard constraint is broken.
    tried : (d,) int64
    least, bound : (d,) float64
        The least cost found with all below, and what may still be found at best.
    """

    own: NDArray[np.float64]
    tried: Ints
    least: NDArray[np.float64]
    bound: NDArray[np.float64]


class Search:
    """The variables' memories, and samples from them."""

    def __init__(self, network: Network, widths: float) -> None:
        self.network, self.tree, self.widths = network, Tree.of(network.problem), widths
        pseudotree, division = self.tree.pseudotree, self.tree.division
        self.parent, self.children = pseudotree.parent, pseudotree.children
        self.separators = pseudotree.separators
        position = {id(f): i for i, f in enumerate(f for f in network.problem.factors if f.scope)}
        tables, self.violation, _ = whole_tables(network.problem)
        span = sum(float(table.max() - table[table > -self.violation].min(initial=0)) for _, table in tables)
        self.scale = 1.0 / max(span, 1.0)
        self.factors: list[list[tuple[tuple[int, ...], Ints]]] = []
        for v in range(network.problem.n_variables):
            placed = [*division.locals[v].factors, *(division.crossing[i] for i in pseudotree.placed[v])]
            self.factors.append([tables[position[id(f)]] for f in placed])
        self.depth = np.ones(network.problem.n_variables)  # edges to the deepest below, and one
        for v in pseudotree.bottom_up[: network.problem.n_variables]:
            if self.parent[v] >= 0:
                self.depth[self.parent[v]] = max(self.depth[self.parent[v]], self.depth[v] + 1)
        self.memories: list[dict[Context, Memory]] = [{} for _ in range(network.problem.n_variables)]

    def memory(self, v: int, values: Ints) -> Memory:
        """Return what a variable remembers of the context it is in."""
        context = tuple(values[list(self.separators[v])].tolist())
        if context not in self.memories[v]:
            size = int(self.network.problem.domains[v])
            own = self._own_costs(v, values)
            found = Memory(own, np.zeros(size, dtype=np.int64), np.full(size, inf), own.copy())
            self.memories[v][context] = found
        return self.memories[v][context]

    def _own_costs(self, v: int, values: Ints) -> NDArray[np.float64]:
        """Return what the factors that a variable adds cost, for each of its values."""
        cost = np.zeros(int(self.network.problem.domains[v]))
        for scope, table in self.factors[v]:
            entries = table[tuple(slice(None) if u == v else int(values[u]) for u in scope)]
            cost += np.where(entries > -self.violation, (int(table.max()) - entries) * self.scale, inf)
        return cost

    def sample(self, values: Ints, rng: np.random.Generator) -> None:
        """Draw an assignment down the tree, in place, and let its cost and the bounds go up."""
        picked: list[Memory] = []
        for v in self.tree.top_down.tolist():
            memory = self.memory(v, values)
            picked.append(memory)
            values[v] = self._pick(memory, rng)
        costs, bounds = np.zeros(values.size), np.zeros(values.size)
        for v, memory in zip(reversed(self.tree.top_down.tolist()), reversed(picked), strict=True):
            d, below = int(values[v]), list(self.children[v])
            cost = float(memory.own[d] + costs[below].sum())
            memory.tried[d] += 1
            memory.least[d] = min(memory.least[d], cost)
            costs[v] = cost
            bounds[v] = self._bounded(v, d, memory, float(bounds[below].sum()))

    def _bounded(self, v: int, d: int, memory: Memory, below: float) -> float:
        """Renew the bounds of a context after value d; return the least."""
        total = int(memory.tried.sum())
        if not self.children[v]:
            memory.bound[d] = memory.own[d]
        else:
            width = sqrt(2 * self.widths * float(self.depth[v]) * log(max(total, 2)) / int(memory.tried[d]))
            floor = max(float(memory.own[d]) + below, float(memory.least[d]) - width)
            memory.bound[d] = min(floor, float(memory.least[d]))
        return float(memory.bound.min())

    def _pick(self, memory: Memory, rng: np.random.Generator) -> int:
        """Return the value with the least bound, values not tried first; any at random where all are forbidden."""
        fresh = np.flatnonzero((memory.tried == 0) & (memory.own < inf))
        if fresh.size:
            return int(fresh[int(rng.random() * fresh.size)])
        least = np.flatnonzero(memory.bound == memory.bound.min())
        return int(least[int(rng.random() * least.size)])


def duct(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Sample down the tree, the value with the least bound each; ends where the roots' bounds are what was found.

    A cycle is one sample: a context down each tree edge, a cost and a bound up. All ranks do the same work.
    """
    search, problem = Search(network, float(given["widths"])), network.problem
    parents, children = search.tree.edges_across(problem.owner)
    sizes = np.array([len(search.separators[v]) for v in children], dtype=np.int64)
    down = np.bincount(problem.owner[parents], minlength=problem.n_agents).astype(np.int64)
    up = np.bincount(problem.owner[children], minlength=problem.n_agents).astype(np.int64)
    down_bytes = np.bincount(problem.owner[parents], BYTES * sizes, problem.n_agents).astype(np.int64)
    network.parallel = 1.0
    roots = [v for v in range(problem.n_variables) if search.parent[v] < 0]
    values = network.start(rng)
    while values.size:
        search.sample(values, rng)
        network.messages += down
        network.bytes += down_bytes
        network.sends(1, 2 * BYTES, up)
        yield values
        memories = [search.memory(v, values) for v in roots]
        if all((m.tried[m.own < inf] > 0).all() and m.bound.min() >= m.least.min() for m in memories):
            return


DUCT = Algorithm(
    "duct",
    "UCT down the pseudo-tree: values with the least optimistic bound",
    duct,
    {"widths": Parameter(1e-3, 0.0, 1e6, text="factor before the depth in the width of confidence; the paper's is 1")},
    cycles=2000,
)
