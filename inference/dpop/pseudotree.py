"""Pseudo-trees over agents: any two agents that share a factor are ancestor and descendant (DMCMC paper §2).

Candidates are depth-first trees from many roots and the trees of elimination orders; the one whose UTIL tables need
the fewest cells is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dmcmc.inference.dpop.division import Division, agent_scopes
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import RULES, best_order, primal_graph, rule_order
from dmcmc.inference.orders.subsets import FEW
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import LARGEST, Memo, digest

_ROOTS = 32  # depth-first trees tried a component
_TREES = Memo["PseudoTree"](64)  # by what crosses between agents
_LARGEST = 1e300  # cells of one agent's interface count at most so much


@dataclass(frozen=True)
class PseudoTree:
    """A forest over agents, with what DPOP needs at each.

    Attributes
    ----------
    parent : tuple of int
        Parent of each agent, −1 for a root.
    children : tuple of tuple of int
        Ascending.
    bottom_up : tuple of int
        All agents, children before parents.
    separators : tuple of tuple of int
        Variables of ancestors that each agent's UTIL message may range over, ascending.
    placed : tuple of tuple of int
        Indices of the crossing factors that each agent, the deepest in their scope, adds.
    """

    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    bottom_up: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    placed: tuple[tuple[int, ...], ...]

    @property
    def edges(self) -> int:
        """Tree edges: the number of agents less the number of connected components."""
        return sum(p >= 0 for p in self.parent)


def build_pseudotree(problem: Problem, division: Division, stop: Stop = NO_STOP) -> PseudoTree:
    """Return the cheapest pseudo-tree of a portfolio; ties go to the first candidate.

    Parameters
    ----------
    stop
        When to end with the best so far, which then depends on the clock.
    """
    crossing = [factor.scope for factor in division.crossing]
    if problem.n_variables + len(crossing) > LARGEST:
        return _cheapest(problem, division, stop)
    lengths = np.array([len(scope) for scope in crossing], dtype=np.int64)
    flat = np.array([v for scope in crossing for v in scope], dtype=np.int64)
    key = digest(problem.domains, problem.owner, np.array(problem.n_agents), lengths, flat)
    found = _TREES.find(key)
    if found is None:
        found = _cheapest(problem, division, stop)
        if not stop.over:
            _TREES.put(key, found)
    return found


def _cheapest(problem: Problem, division: Division, stop: Stop) -> PseudoTree:
    """Return the cheapest pseudo-tree of the portfolio."""
    scopes, neighbours = agent_scopes(division.crossing, problem.owner), neighbours_of(problem, division)
    weight = np.array([float(np.log2(problem.domains[list(p.interface)]).sum()) for p in division.locals])
    bits, log = weight.tolist(), np.log2(problem.domains).tolist()
    best, best_cost = None, float("inf")
    seen = set[tuple[int, ...]]()
    for parent in _candidates(neighbours, scopes, weight):
        if parent in seen:
            continue
        seen.add(parent)
        tree = completed(problem, division, parent)
        cost = _cells(tree, bits, log)
        if best is None or cost < best_cost * (1 - 1e-12):
            best, best_cost = tree, cost
        if stop.over:
            break
    assert best is not None  # the first depth-first forest always exists
    return best


def neighbours_of(problem: Problem, division: Division) -> list[set[int]]:
    """Return the agents that each agent shares factors with."""
    neighbours: list[set[int]] = [set() for _ in problem.agents]
    for scope in agent_scopes(division.crossing, problem.owner):
        for a in scope:
            neighbours[a].update(scope)
            neighbours[a].discard(a)
    return neighbours


def _candidates(
    neighbours: Sequence[set[int]], scopes: Sequence[Sequence[int]], weight: np.ndarray
) -> Iterator[tuple[int, ...]]:
    """Yield parent vectors."""
    n = len(neighbours)
    ranked = sorted(range(n), key=lambda a: (-len(neighbours[a]), a))
    yield depth_first(neighbours, ranked)
    if not scopes:
        return
    for root in ranked[1 : min(_ROOTS, max(2, 20_000 // n))]:
        yield depth_first(neighbours, [root, *ranked])
    if n <= 2000:
        sizes = np.minimum(np.exp2(np.minimum(weight, 1000)), _LARGEST)
        yield _from_order(best_order(scopes, sizes, range(n)).variables, neighbours)
    if FEW < n <= 2000:  # fewer have the best order of all
        adjacent = primal_graph(scopes, {a: a for a in range(n)})
        everyone = np.ones(n, dtype=np.bool_)
        for rule in RULES:
            yield _from_order(rule_order(adjacent, sizes, everyone, rule).variables, neighbours)


def depth_first(neighbours: Sequence[set[int]], roots: Sequence[int]) -> tuple[int, ...]:
    """Return the depth-first forest from the given roots; neighbours of high degree first, then by index."""
    parent = [-2] * len(neighbours)
    for root in roots:
        if parent[root] != -2:
            continue
        parent[root] = -1
        stack = [(root, iter(sorted(neighbours[root], key=lambda a: (-len(neighbours[a]), a))))]
        while stack:
            agent, waiting = stack[-1]
            child = next((c for c in waiting if parent[c] == -2), None)
            if child is None:
                stack.pop()
                continue
            parent[child] = agent
            stack.append((child, iter(sorted(neighbours[child], key=lambda a: (-len(neighbours[a]), a)))))
    return tuple(parent)


def _from_order(order: Sequence[int], neighbours: Sequence[set[int]]) -> tuple[int, ...]:
    """Return the tree of an elimination order: the parent is the first agent eliminated after one among its fill."""
    rank = {a: i for i, a in enumerate(order)}
    above = [{b for b in neighbours[a] if rank[b] > rank[a]} for a in range(len(neighbours))]
    parent = [-1] * len(neighbours)
    for a in order:
        if above[a]:
            parent[a] = min(above[a], key=rank.__getitem__)
            above[parent[a]] |= above[a] - {parent[a]}
    return tuple(parent)


def completed(problem: Problem, division: Division, parent: Sequence[int]) -> PseudoTree:
    """Add children, a bottom-up order, separators and factor placement to a parent vector."""
    n = len(parent)
    children: list[list[int]] = [[] for _ in range(n)]
    for a, p in enumerate(parent):
        if p >= 0:
            children[p].append(a)
    top_down = [a for a in range(n) if parent[a] < 0]
    depth = [0] * n
    for a in top_down:  # grows while it is walked
        for c in children[a]:
            depth[c] = depth[a] + 1
            top_down.append(c)
    placed: list[list[int]] = [[] for _ in range(n)]
    reach: list[set[int]] = [set() for _ in range(n)]
    owner = problem.owner.tolist()
    for i, factor in enumerate(division.crossing):
        home = max({owner[v] for v in factor.scope}, key=depth.__getitem__)
        placed[home].append(i)
        reach[home].update(factor.scope)
    for a in reversed(top_down):
        reach[a].difference_update(division.locals[a].interface)
        if parent[a] >= 0:
            reach[parent[a]] |= reach[a]
    return PseudoTree(
        parent=tuple(parent),
        children=tuple(tuple(c) for c in children),
        bottom_up=tuple(reversed(top_down)),
        separators=tuple(tuple(sorted(r)) for r in reach),
        placed=tuple(tuple(p) for p in placed),
    )


def _cells(tree: PseudoTree, interface: Sequence[float], variable: Sequence[float]) -> float:
    """Return Σ over agents of the cells over B_i ∪ sep_i, an upper limit to what UTIL joins.

    ``interface`` and ``variable`` are log2 of the cells over each B_i and of the domain sizes.
    """
    bits = [own + sum(variable[v] for v in sep) for own, sep in zip(interface, tree.separators, strict=True)]
    return float(sum(2.0 ** min(b, 1000.0) for b in bits))
