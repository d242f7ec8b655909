"""DUCT: UCT (a tree search by confidence bounds) down a pseudo-tree of the variables.

Source: Ottens, Dimitrakakis, Faltings: DUCT, AAAI 2012; ACM TIST 8(5), 2017.

A *context* of a variable is an assignment of its separator: the ancestors that share factors with its subtree. For
every context a variable stores three numbers per value d: how often it was tried, t(d); the least cost found in its
subtree, l(d); and a bound, b(d). With the variable's own cost c(d), the children's least bounds, the number of
samples T of the context and the height h of the subtree:

    b(d) = min(l(d), max(c(d) + sum of the children's bounds, l(d) - sqrt(2 * widths * h * ln(T) / t(d))))

In a leaf, b(d) = c(d). Costs are losses of utility, scaled so that those of the whole problem lie in 0..1. The
bounds are optimistic, not proven.
"""

from collections.abc import Iterator
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.layout import integer_tables
from dmcmc.algorithms.network import BYTES, AgentNetwork
from dmcmc.algorithms.tree import VariableTree
from dmcmc.inference.runtime.types import Ints

Context = tuple[int, ...]


class ContextStatistics(NamedTuple):
    """Statistics of one context of a variable; d is the size of the variable's domain.

    Attributes
    ----------
    local_cost : (d,) float64
        Cost of the factors placed at the variable, per value; inf if a hard constraint is violated.
    tried : (d,) int64
        Number of samples with each value.
    least : (d,) float64
        Least cost of the subtree found with each value.
    bound : (d,) float64
        Optimistic bound on the cost of the subtree for each value.
    """

    local_cost: NDArray[np.float64]
    tried: Ints
    least: NDArray[np.float64]
    bound: NDArray[np.float64]


class DuctSearch:
    """The statistics of all variables, and the samples that update them.

    Parameters
    ----------
    network : AgentNetwork
        The variables and their factors.
    widths : float
        Factor of the confidence widths; larger values explore more.

    Attributes
    ----------
    tree : VariableTree
        Pseudo-tree over the variables.
    parent, children, separators : sequences
        Parent (-1 for roots), children and separator of each variable in the pseudo-tree.
    violation : int
        Cost of a forbidden entry in the integer tables.
    scale : float
        Cost (0..1) per unit of the integer tables.
    factors : list of list of (scope, table)
        For each variable, the scopes and integer tables of the factors that it evaluates: those whose other variables
        are its ancestors.
    subtree_height : (n,) float64
        Number of variables on the longest path from each variable down to a leaf.
    statistics : list of dict
        For each variable its statistics by context.
    """

    def __init__(self, network: AgentNetwork, widths: float) -> None:
        self.network, self.tree, self.widths = network, VariableTree.of(network.problem), widths
        pseudotree, division = self.tree.pseudotree, self.tree.division
        self.parent, self.children = pseudotree.parent, pseudotree.children
        self.separators = pseudotree.separators
        # position of each factor (by identity) in the list of integer tables
        position = {id(f): i for i, f in enumerate(f for f in network.problem.factors if f.scope)}
        tables, self.violation, _ = integer_tables(network.problem)
        # an upper bound on the total loss of utility; forbidden entries cost inf instead
        span = sum(float(table.max() - table[table > -self.violation].min(initial=0)) for _, table in tables)
        self.scale = 1.0 / max(span, 1.0)
        self.factors: list[list[tuple[tuple[int, ...], Ints]]] = []
        for v in range(network.problem.n_variables):
            placed = [*division.locals[v].factors, *(division.crossing[i] for i in pseudotree.placed[v])]
            self.factors.append([tables[position[id(f)]] for f in placed])
        self.subtree_height = np.ones(network.problem.n_variables)  # variables on the path to the deepest descendant
        for v in pseudotree.bottom_up[: network.problem.n_variables]:
            if self.parent[v] >= 0:
                self.subtree_height[self.parent[v]] = max(
                    self.subtree_height[self.parent[v]], self.subtree_height[v] + 1
                )
        self.statistics: list[dict[Context, ContextStatistics]] = [{} for _ in range(network.problem.n_variables)]

    def statistics_of(self, v: int, values: Ints) -> ContextStatistics:
        """Return the statistics of variable v in its current context; create them on the first visit.

        Parameters
        ----------
        v : int
            Variable.
        values : (n,) int64
            Values of all variables; those of the separator of v are the context.
        """
        context = tuple(values[list(self.separators[v])].tolist())
        if context not in self.statistics[v]:
            size = int(self.network.problem.domains[v])
            local_cost = self._local_costs(v, values)
            new_statistics = ContextStatistics(
                local_cost, np.zeros(size, dtype=np.int64), np.full(size, inf), local_cost.copy()
            )
            self.statistics[v][context] = new_statistics
        return self.statistics[v][context]

    def _local_costs(self, v: int, values: Ints) -> NDArray[np.float64]:
        """Return the cost of the factors placed at a variable, for each of its values."""
        cost = np.zeros(int(self.network.problem.domains[v]))
        for scope, table in self.factors[v]:
            entries = table[tuple(slice(None) if u == v else int(values[u]) for u in scope)]
            cost += np.where(entries > -self.violation, (int(table.max()) - entries) * self.scale, inf)
        return cost

    def sample(self, values: Ints, rng: np.random.Generator) -> None:
        """Choose a value for each variable from the roots down, in place; then update costs and bounds upwards.

        The cost of a variable's subtree is its own cost plus the costs of its children's subtrees in this sample.
        """
        visited: list[ContextStatistics] = []
        for v in self.tree.top_down.tolist():
            statistics = self.statistics_of(v, values)
            visited.append(statistics)
            values[v] = self._choose_value(statistics, rng)
        costs, bounds = np.zeros(values.size), np.zeros(values.size)
        for v, statistics in zip(reversed(self.tree.top_down.tolist()), reversed(visited), strict=True):
            d, child_indices = int(values[v]), list(self.children[v])
            cost = float(statistics.local_cost[d] + costs[child_indices].sum())
            statistics.tried[d] += 1
            statistics.least[d] = min(statistics.least[d], cost)
            costs[v] = cost
            bounds[v] = self._update_bound(v, d, statistics, float(bounds[child_indices].sum()))

    def _update_bound(self, v: int, d: int, statistics: ContextStatistics, child_bound: float) -> float:
        """Update the bound of value d in a context; return the least bound of the context over all values.

        Parameters
        ----------
        v, d : int
            The variable, and the value that was sampled.
        statistics
            Statistics of v in its context.
        child_bound
            Sum of the children's least bounds.
        """
        samples = int(statistics.tried.sum())
        if not self.children[v]:
            statistics.bound[d] = statistics.local_cost[d]
        else:
            width = sqrt(
                2 * self.widths * float(self.subtree_height[v]) * log(max(samples, 2)) / int(statistics.tried[d])
            )
            lower_limit = max(float(statistics.local_cost[d]) + child_bound, float(statistics.least[d]) - width)
            statistics.bound[d] = min(lower_limit, float(statistics.least[d]))
        return float(statistics.bound.min())

    def _choose_value(self, statistics: ContextStatistics, rng: np.random.Generator) -> int:
        """Return an untried value if there is one, else a value with the least bound; ties are broken at random."""
        untried = np.flatnonzero((statistics.tried == 0) & (statistics.local_cost < inf))
        if untried.size:
            return int(untried[int(rng.random() * untried.size)])
        best_values = np.flatnonzero(statistics.bound == statistics.bound.min())
        return int(best_values[int(rng.random() * best_values.size)])


def duct(network: AgentNetwork, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Sample down the tree, each variable by its least bound, until the roots' bounds equal the least costs found.

    A cycle is one sample: a context down each tree edge, a cost and a bound up. All ranks do the same work, so there is
    no parallel speed-up.
    """
    search, problem = DuctSearch(network, float(given["widths"])), network.problem
    parents, children = search.tree.edges_across(problem.owner)
    context_sizes = np.array([len(search.separators[v]) for v in children], dtype=np.int64)
    network.parallel = 1.0
    roots = [v for v in range(problem.n_variables) if search.parent[v] < 0]
    values = network.start(rng)
    while values.size:
        search.sample(values, rng)
        network.count_messages("CONTEXT", problem.owner[parents], BYTES * context_sizes)
        network.count_messages("COST", problem.owner[children], 2 * BYTES)  # the cost and the bound
        yield values
        root_statistics = [search.statistics_of(v, values) for v in roots]
        if all(
            (statistics.tried[statistics.local_cost < inf] > 0).all()
            and statistics.bound.min() >= statistics.least.min()
            for statistics in root_statistics
        ):
            return


DUCT = Algorithm(
    "duct",
    "UCT down the pseudo-tree: samples the values with the least optimistic bound",
    duct,
    {"widths": Parameter(1e-3, 0.0, 1e6, text="factor of the confidence widths; the paper uses 1")},
    cycles=2000,
    kind="sampling",
    paper="Ottens, Dimitrakakis, Faltings: DUCT, AAAI 2012; ACM TIST 8(5), 2017",
)
