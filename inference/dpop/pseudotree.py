"""Build pseudo-trees over agents: agents that share a factor are ancestor and descendant (DMCMC paper §2).

A *crossing* factor has variables of several agents; an agent's *interface* are its variables in such factors. Its
*separator* are the variables of ancestors that its UTIL message to its parent may range over. Candidates are
depth-first trees from many roots and the trees of elimination orders. The candidate whose UTIL tables need the fewest
cells wins.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division, agent_scopes
from dmcmc.inference.model.compact_sequences import IndexGroups, flatten_groups
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import RULES, best_order, primal_graph, rule_order
from dmcmc.inference.orders.exact_order import MAX_EXACT_VARIABLES
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import MAX_KEY_SIZE, Memo, digest
from dmcmc.inference.runtime.types import Ints

_MAX_ROOTS = 32  # depth-first trees tried per component
_TREES = Memo["PseudoTree"](64)  # by domain sizes, owners and crossing scopes
_MAX_INTERFACE_CELLS = 1e300  # cells over one agent's interface are cut off here, to avoid overflow


@dataclass(frozen=True)
class PseudoTree:
    """A forest over agents with the data that DPOP needs per agent; compact, because every rank holds it.

    Attributes
    ----------
    parent : sequence of int
        Parent of each agent, −1 for a root.
    children : sequence of tuple of int
        Children of each agent, ascending.
    bottom_up : sequence of int
        All agents, children before parents.
    separators : sequence of tuple of int
        Variables of ancestors that each agent's UTIL message may range over, ascending.
    placed : sequence of tuple of int
        Indices of the crossing factors that each agent adds: those in whose scope it is the deepest agent.
    """

    parent: Sequence[int]
    children: Sequence[tuple[int, ...]]
    bottom_up: Sequence[int]
    separators: Sequence[tuple[int, ...]]
    placed: Sequence[tuple[int, ...]]

    @property
    def edges(self) -> int:
        """The number of tree edges: agents minus connected components."""
        return sum(p >= 0 for p in self.parent)

    def as_tuples(self) -> "PseudoTree":
        """Return the tree with tuples in place of compact arrays, for faster access."""
        groups = (tuple(groups) for groups in (self.children, self.separators, self.placed))
        children, separators, placed = groups
        return PseudoTree(tuple(self.parent), children, tuple(self.bottom_up), separators, placed)


def build_pseudotree(problem: Problem, division: Division, stop: Deadline = NO_DEADLINE) -> PseudoTree:
    """Return the cheapest pseudo-tree of a portfolio; ties go to the first candidate.

    Parameters
    ----------
    problem, division
        The problem and its division among agents.
    stop
        Deadline; the best tree so far, which then depends on the clock, is returned.
    """
    if problem.n_variables + len(division.crossing) > MAX_KEY_SIZE:
        return _cheapest(problem, division, stop)
    start, flat = flatten_groups(division.scopes)
    key = digest(problem.domains, problem.owner, np.array(problem.n_agents), np.diff(start), flat)
    tree = _TREES.find(key)
    if tree is None:
        tree = _cheapest(problem, division, stop)
        if not stop.over:
            _TREES.put(key, tree)
    return tree


def _cheapest(problem: Problem, division: Division, stop: Deadline) -> PseudoTree:
    """Compute the cheapest pseudo-tree of the portfolio; costs within a relative 1e-12 (rounding) count as equal."""
    neighbours = neighbours_of(problem, division)
    interface_bits = np.array([float(np.log2(problem.domains[list(p.interface)]).sum()) for p in division.locals])
    log_sizes = np.log2(problem.domains)
    best, best_cost = None, float("inf")
    seen = set[bytes]()
    for parent in _candidates(neighbours, problem, division, interface_bits):
        if parent.tobytes() in seen:
            continue
        seen.add(parent.tobytes())
        tree = complete_tree(problem, division, parent)
        cost = _cells(tree, interface_bits, log_sizes)
        if best is None or cost < best_cost * (1 - 1e-12):
            best, best_cost = tree, cost
        if stop.over:
            break
    assert best is not None  # the first depth-first forest always exists
    return best


def neighbours_of(problem: Problem, division: Division) -> IndexGroups:
    """Return for each agent the agents that share factors with it, ascending."""
    start, flat = flatten_groups(division.scopes)
    owners, lengths, n = problem.owner[flat], np.diff(start), problem.n_agents
    codes = [np.zeros(0, dtype=np.int64)]
    for length in np.unique(lengths).tolist():
        scope_owners = owners[start[:-1][lengths == length][:, np.newaxis] + np.arange(length)]
        codes += [scope_owners[:, i] * n + scope_owners[:, j] for i in range(length) for j in range(length) if i != j]
    pairs = np.unique(np.concatenate(codes))
    agent, other = pairs // max(1, n), pairs % max(1, n)
    return IndexGroups.by_group(agent[agent != other], n, other[agent != other])


def _candidates(
    neighbours: IndexGroups, problem: Problem, division: Division, interface_bits: NDArray[np.float64]
) -> Iterator["array[int]"]:
    """Yield parent vectors of candidate trees: depth-first trees, then the trees of elimination orders.

    The number of roots is limited so that all trees together have about 20,000 nodes. Above 2000 agents, elimination
    orders are not tried, because their graph as a matrix grows with the square. ``interface_bits`` (agents,) float64
    are log2 of the cells over each interface.
    """
    n, degree = len(neighbours), neighbours.lengths.tolist()
    ranked = sorted(range(n), key=lambda a: (-degree[a], a))
    yield depth_first(neighbours, ranked)
    if not len(division.crossing):
        return
    for root in ranked[1 : min(_MAX_ROOTS, max(2, 20_000 // n))]:
        yield depth_first(neighbours, [root, *ranked])
    if n > 2000:
        return
    scopes, neighbour_sets = agent_scopes(division.crossing, problem.owner), [set(group) for group in neighbours]
    sizes = np.minimum(np.exp2(np.minimum(interface_bits, 1000)), _MAX_INTERFACE_CELLS)
    yield _from_order(best_order(scopes, sizes, range(n)).variables, neighbour_sets)
    if n > MAX_EXACT_VARIABLES:  # fewer agents have an exact order already
        adjacent = primal_graph(scopes, {a: a for a in range(n)})
        everyone = np.ones(n, dtype=np.bool_)
        for rule in RULES:
            yield _from_order(rule_order(adjacent, sizes, everyone, rule).variables, neighbour_sets)


def depth_first(neighbours: IndexGroups, roots: Sequence[int]) -> "array[int]":
    """Return the parents in the depth-first forest from ``roots``; neighbours of high degree first, then by index."""
    degree = neighbours.lengths
    agent = np.repeat(np.arange(len(neighbours)), degree)
    flat = array("i", neighbours.flat[np.lexsort((neighbours.flat, -degree[neighbours.flat], agent))].tolist())
    at, end = array("i", neighbours.start[:-1].tolist()), array("i", neighbours.start[1:].tolist())
    parent = array("i", [-2]) * len(neighbours)  # −2: not visited
    for root in roots:
        if parent[root] != -2:
            continue
        parent[root], current = -1, root
        while current >= 0:  # the walk back from a root leads to -1
            if at[current] == end[current]:
                current = parent[current]
                continue
            child = flat[at[current]]
            at[current] += 1
            if parent[child] == -2:
                parent[child], current = current, child
    return parent


def _from_order(order: Sequence[int], neighbours: Sequence[set[int]]) -> "array[int]":
    """Return the parent vector of an elimination order: an agent's parent is the first later agent in its bucket."""
    rank = {a: i for i, a in enumerate(order)}
    later_neighbours = [{b for b in neighbours[a] if rank[b] > rank[a]} for a in range(len(neighbours))]
    parent = array("i", [-1]) * len(neighbours)
    for a in order:
        if later_neighbours[a]:
            parent[a] = min(later_neighbours[a], key=rank.__getitem__)
            later_neighbours[parent[a]] |= later_neighbours[a] - {parent[a]}
    return parent


def complete_tree(problem: Problem, division: Division, parent: Sequence[int]) -> PseudoTree:
    """Complete a parent vector to a pseudo-tree: children, bottom-up order, separators and placed crossing factors."""
    parents, n = np.array(parent, dtype=np.int64), len(parent)
    children = IndexGroups.by_group(parents[parents >= 0], n, np.flatnonzero(parents >= 0))
    top_down, depth = array("i", np.flatnonzero(parents < 0).tolist()), array("i", [0]) * n
    for a in top_down:  # the list grows during the loop
        for c in children[a]:
            depth[c] = depth[a] + 1
            top_down.append(c)
    placed = IndexGroups.by_group(_deepest_agents(problem, division, np.array(depth, dtype=np.int64)), n)
    reach: dict[int, set[int]] = {}  # separators of visited subtrees, until their parent is visited
    separators: list[tuple[int, ...]] = [()] * n
    for a in reversed(top_down):
        variables = reach.pop(a, set())
        variables.update(v for i in placed[a] for v in division.scopes[i])
        variables.difference_update(division.locals[a].interface)
        if variables:
            separators[a] = tuple(sorted(variables))
        if parent[a] >= 0:
            reach.setdefault(parent[a], set()).update(variables)
    return PseudoTree(
        parent=array("i", parent),
        children=children,
        bottom_up=array("i", reversed(top_down)),
        separators=IndexGroups.of(separators),
        placed=placed,
    )


def _deepest_agents(problem: Problem, division: Division, depth: Ints) -> Ints:
    """Return the deepest agent of each crossing factor; ties go to the first in the iteration order of a set."""
    owner, deepest = problem.owner, np.zeros(len(division.crossing), dtype=np.int64)
    for i, scope in enumerate(division.scopes):
        deepest[i] = max({int(owner[v]) for v in scope}, key=depth.__getitem__)
    return deepest


def _cells(tree: PseudoTree, interface: NDArray[np.float64], variable: NDArray[np.float64]) -> float:
    """Return Σ over agents of the cells over B_i ∪ sep_i, an upper bound on the cells that UTIL joins.

    The cells of one agent are cut off at 2^1000, so that the sum stays finite.

    Parameters
    ----------
    interface
        log2 of the cells over each agent's interface.
    variable
        log2 of each variable's domain size.
    """
    pairs = zip(interface.tolist(), tree.separators, strict=True)
    bits = (interface_bits + sum(variable[list(sep)].tolist()) for interface_bits, sep in pairs)
    return float(sum(2.0 ** min(total_bits, 1000.0) for total_bits in bits))
