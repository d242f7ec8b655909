"""Pseudo-trees over agents: any two agents that share a factor are ancestor and descendant (DMCMC paper §2).

Candidates are depth-first trees from many roots and the trees of elimination orders; the one whose UTIL tables need
the fewest cells is taken.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division, agent_scopes
from dmcmc.inference.model.compact_sequences import Groups, flat_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import RULES, best_order, primal_graph, rule_order
from dmcmc.inference.orders.exact_order import FEW
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import LARGEST, Memo, digest
from dmcmc.inference.runtime.types import Ints

_ROOTS = 32  # depth-first trees tried a component
_TREES = Memo["PseudoTree"](64)  # by what crosses between agents
_LARGEST = 1e300  # cells of one agent's interface count at most so much


@dataclass(frozen=True)
class PseudoTree:
    """A forest over agents, with what DPOP needs at each: on every rank, so in a few bytes an agent.

    Attributes
    ----------
    parent : sequence of int
        Parent of each agent, −1 for a root.
    children : sequence of tuple of int
        Ascending.
    bottom_up : sequence of int
        All agents, children before parents.
    separators : sequence of tuple of int
        Variables of ancestors that each agent's UTIL message may range over, ascending.
    placed : sequence of tuple of int
        Indices of the crossing factors that each agent, the deepest in their scope, adds.
    """

    parent: Sequence[int]
    children: Sequence[tuple[int, ...]]
    bottom_up: Sequence[int]
    separators: Sequence[tuple[int, ...]]
    placed: Sequence[tuple[int, ...]]

    @property
    def edges(self) -> int:
        """Tree edges: the number of agents less the number of connected components."""
        return sum(p >= 0 for p in self.parent)

    def quick(self) -> "PseudoTree":
        """Return the same in tuples, which are looked at sooner."""
        groups = (tuple(groups) for groups in (self.children, self.separators, self.placed))
        children, separators, placed = groups
        return PseudoTree(tuple(self.parent), children, tuple(self.bottom_up), separators, placed)


def build_pseudotree(problem: Problem, division: Division, stop: Stop = NO_STOP) -> PseudoTree:
    """Return the cheapest pseudo-tree of a portfolio; ties go to the first candidate.

    Parameters
    ----------
    stop
        When to end with the best so far, which then depends on the clock.
    """
    if problem.n_variables + len(division.crossing) > LARGEST:
        return _cheapest(problem, division, stop)
    start, flat = flat_of(division.scopes)
    key = digest(problem.domains, problem.owner, np.array(problem.n_agents), np.diff(start), flat)
    found = _TREES.find(key)
    if found is None:
        found = _cheapest(problem, division, stop)
        if not stop.over:
            _TREES.put(key, found)
    return found


def _cheapest(problem: Problem, division: Division, stop: Stop) -> PseudoTree:
    """Return the cheapest pseudo-tree of the portfolio."""
    neighbours = neighbours_of(problem, division)
    weight = np.array([float(np.log2(problem.domains[list(p.interface)]).sum()) for p in division.locals])
    log = np.log2(problem.domains)
    best, best_cost = None, float("inf")
    seen = set[bytes]()
    for parent in _candidates(neighbours, problem, division, weight):
        if parent.tobytes() in seen:
            continue
        seen.add(parent.tobytes())
        tree = completed(problem, division, parent)
        cost = _cells(tree, weight, log)
        if best is None or cost < best_cost * (1 - 1e-12):
            best, best_cost = tree, cost
        if stop.over:
            break
    assert best is not None  # the first depth-first forest always exists
    return best


def neighbours_of(problem: Problem, division: Division) -> Groups:
    """Return the agents that each agent shares factors with, ascending."""
    start, flat = flat_of(division.scopes)
    owners, lengths, n = problem.owner[flat], np.diff(start), problem.n_agents
    codes = [np.zeros(0, dtype=np.int64)]
    for length in np.unique(lengths).tolist():
        those = owners[start[:-1][lengths == length][:, np.newaxis] + np.arange(length)]
        codes += [those[:, i] * n + those[:, j] for i in range(length) for j in range(length) if i != j]
    pairs = np.unique(np.concatenate(codes))
    agent, other = pairs // max(1, n), pairs % max(1, n)
    return Groups.by(agent[agent != other], n, other[agent != other])


def _candidates(
    neighbours: Groups, problem: Problem, division: Division, weight: NDArray[np.float64]
) -> Iterator["array[int]"]:
    """Yield parent vectors."""
    n, degree = len(neighbours), neighbours.lengths.tolist()
    ranked = sorted(range(n), key=lambda a: (-degree[a], a))
    yield depth_first(neighbours, ranked)
    if not len(division.crossing):
        return
    for root in ranked[1 : min(_ROOTS, max(2, 20_000 // n))]:
        yield depth_first(neighbours, [root, *ranked])
    if n > 2000:
        return
    scopes, around = agent_scopes(division.crossing, problem.owner), [set(group) for group in neighbours]
    sizes = np.minimum(np.exp2(np.minimum(weight, 1000)), _LARGEST)
    yield _from_order(best_order(scopes, sizes, range(n)).variables, around)
    if n > FEW:  # fewer have the best order of all
        adjacent = primal_graph(scopes, {a: a for a in range(n)})
        everyone = np.ones(n, dtype=np.bool_)
        for rule in RULES:
            yield _from_order(rule_order(adjacent, sizes, everyone, rule).variables, around)


def depth_first(neighbours: Groups, roots: Sequence[int]) -> "array[int]":
    """Return the depth-first forest from the given roots; neighbours of high degree first, then by index."""
    degree = neighbours.lengths
    agent = np.repeat(np.arange(len(neighbours)), degree)
    flat = array("i", neighbours.flat[np.lexsort((neighbours.flat, -degree[neighbours.flat], agent))].tolist())
    at, end = array("i", neighbours.start[:-1].tolist()), array("i", neighbours.start[1:].tolist())
    parent = array("i", [-2]) * len(neighbours)
    for root in roots:
        if parent[root] != -2:
            continue
        parent[root], top = -1, root
        while top >= 0:  # at the root's end the way back leads to -1
            if at[top] == end[top]:
                top = parent[top]
                continue
            child = flat[at[top]]
            at[top] += 1
            if parent[child] == -2:
                parent[child], top = top, child
    return parent


def _from_order(order: Sequence[int], neighbours: Sequence[set[int]]) -> "array[int]":
    """Return the tree of an elimination order: the parent is the first agent eliminated after one among its fill."""
    rank = {a: i for i, a in enumerate(order)}
    above = [{b for b in neighbours[a] if rank[b] > rank[a]} for a in range(len(neighbours))]
    parent = array("i", [-1]) * len(neighbours)
    for a in order:
        if above[a]:
            parent[a] = min(above[a], key=rank.__getitem__)
            above[parent[a]] |= above[a] - {parent[a]}
    return parent


def completed(problem: Problem, division: Division, parent: Sequence[int]) -> PseudoTree:
    """Add children, a bottom-up order, separators and factor placement to a parent vector."""
    parents, n = np.array(parent, dtype=np.int64), len(parent)
    children = Groups.by(parents[parents >= 0], n, np.flatnonzero(parents >= 0))
    top_down, depth = array("i", np.flatnonzero(parents < 0).tolist()), array("i", [0]) * n
    for a in top_down:  # grows while it is walked
        for c in children[a]:
            depth[c] = depth[a] + 1
            top_down.append(c)
    placed = Groups.by(_homes(problem, division, np.array(depth, dtype=np.int64)), n)
    reach: dict[int, set[int]] = {}  # of agents whose children have been by
    separators: list[tuple[int, ...]] = [()] * n
    for a in reversed(top_down):
        mine = reach.pop(a, set())
        mine.update(v for i in placed[a] for v in division.scopes[i])
        mine.difference_update(division.locals[a].interface)
        if mine:
            separators[a] = tuple(sorted(mine))
        if parent[a] >= 0:
            reach.setdefault(parent[a], set()).update(mine)
    return PseudoTree(
        parent=array("i", parent),
        children=children,
        bottom_up=array("i", reversed(top_down)),
        separators=Groups.of(separators),
        placed=placed,
    )


def _homes(problem: Problem, division: Division, depth: Ints) -> Ints:
    """Return the deepest agent of each crossing factor; of several the first in its scope as a set has them."""
    owner, found = problem.owner, np.zeros(len(division.crossing), dtype=np.int64)
    for i, scope in enumerate(division.scopes):
        found[i] = max({int(owner[v]) for v in scope}, key=depth.__getitem__)
    return found


def _cells(tree: PseudoTree, interface: NDArray[np.float64], variable: NDArray[np.float64]) -> float:
    """Return Σ over agents of the cells over B_i ∪ sep_i, an upper limit to what UTIL joins.

    ``interface`` and ``variable`` are log2 of the cells over each B_i and of the domain sizes.
    """
    pairs = zip(interface.tolist(), tree.separators, strict=True)
    bits = (own + sum(variable[list(sep)].tolist()) for own, sep in pairs)
    return float(sum(2.0 ** min(b, 1000.0) for b in bits))
