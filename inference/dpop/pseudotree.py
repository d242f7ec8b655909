"""The pseudo-tree of the agents.

Build pseudo-trees over agents: agents that share a factor are ancestor and descendant (DMCMC paper §2).

A *crossing* factor has variables of several agents; an agent's *interface* are its variables in such factors. Its
*separator* are the variables of ancestors that its UTIL message to its parent may range over. By default, candidates
are depth-first trees from many roots and the trees of elimination orders, and the candidate whose UTIL tables need the
fewest cells wins. :mod:`dmcmc.inference.dpop.trees` has other heuristics.

Contract a pseudo-tree: adjacent agents with the same owner become one node, whose agents are eliminated jointly.

An *owner* is any integer label of agents, such as the number of a process. In a pseudo-tree, ``separators`` are the
variables of ancestors that an agent's message ranges over, and ``placed`` the factors between agents that it adds.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.trees import (
    AUTO,
    AgentGraph,
    checked_parents,
    depth_first_forests,
    elimination_tree,
    get,
    rule_tree,
)
from dmcmc.inference.model.compact_sequences import IndexGroups, flatten_groups
from dmcmc.inference.model.names import list_shortly
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import RULES, best_order
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ConfigError, OutOfTime
from dmcmc.inference.runtime.memo import Memo, digest, is_short_key
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES, MAX_ROOTS, MAX_RULE_AGENTS, MAX_TREE_NODES

_TREES = Memo["PseudoTree"].for_shapes()  # by domain sizes, owners and crossing scopes
_MAX_INTERFACE_CELLS = 1e300  # cells over one agent's interface are cut off here, to avoid overflow


@dataclass(frozen=True)
class PseudoTree:
    """A forest over agents with the data that DPOP needs per agent; compact, because every rank holds it.

    Attributes
    ----------
    parent : sequence of int
        Parent of each agent, −1 for a root.
    children : sequence of sequence of int
        Children of each agent, ascending.
    bottom_up : sequence of int
        All agents, children before parents.
    separators : sequence of tuple of int
        Variables of ancestors that each agent's UTIL message may range over, ascending.
    placed : sequence of sequence of int
        Indices of the crossing factors that each agent adds: those in whose scope it is the deepest agent.
    """

    parent: Sequence[int]
    children: Sequence[Sequence[int]]
    bottom_up: Sequence[int]
    separators: Sequence[tuple[int, ...]]
    placed: Sequence[Sequence[int]]

    @property
    def edges(self) -> int:
        """The number of tree edges: agents minus connected components."""
        return sum(p >= 0 for p in self.parent)

    def compact(self) -> "PseudoTree":
        """Return the tree with compact arrays, for the memory of many agents."""
        groups = map(IndexGroups.of, (self.children, self.separators, self.placed))
        children, separators, placed = groups
        return PseudoTree(array("i", self.parent), children, array("i", self.bottom_up), separators, placed)

    def as_tuples(self) -> "PseudoTree":
        """Return the tree with tuples in place of compact arrays, for faster access."""
        children, placed = (tuple(map(tuple, groups)) for groups in (self.children, self.placed))
        return PseudoTree(tuple(self.parent), children, tuple(self.bottom_up), tuple(self.separators), placed)


class TreeSize(NamedTuple):
    """Sizes of a pseudo-tree, by which heuristics can be compared.

    Attributes
    ----------
    depth : int
        Number of agents on the longest path from a root to a leaf.
    width : int
        Induced width: largest number of variables of an agent's interface and separator together, less 1. With one
        variable per agent it is the size of the largest separator.
    separator : int
        Largest number of variables of a separator.
    message_cells : float
        Cells of the largest UTIL message; at most 1e300.
    cells : float
        Sum over agents of the cells over interface and separator, an upper bound on the cells that UTIL joins.
        At most 1e300 per agent.
    """

    depth: int
    width: int
    separator: int
    message_cells: float
    cells: float


def tree_size(problem: Problem, division: Division, tree: PseudoTree) -> TreeSize:
    """Return the depth, the induced width and the table sizes of a pseudo-tree."""
    depth, sizes = [0] * len(tree.parent), problem.domains.astype(np.float64)
    for agent in reversed(tree.bottom_up):
        depth[agent] = 1 + (depth[tree.parent[agent]] if tree.parent[agent] >= 0 else 0)
    separator, message_cells = _group_cells(tree.separators, sizes)
    interface, rows = _group_cells([local.interface for local in division.locals], sizes)
    return TreeSize(
        depth=max(depth, default=0),
        width=max(0, int((separator + interface).max(initial=0)) - 1),
        separator=int(separator.max(initial=0)),
        message_cells=float(message_cells.max(initial=1.0)),
        cells=float(_limited_product(message_cells, rows).sum()),
    )


def _group_cells(groups: Sequence[tuple[int, ...]], sizes: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float64]]:
    """Return the number of variables and of cells of each group of variables, by their domain sizes."""
    start, flat = flatten_groups(groups)
    length = np.diff(start)
    cells = np.ones(length.size)
    if flat.size:
        with np.errstate(over="ignore"):
            cells[length > 0] = np.multiply.reduceat(sizes[flat], start[:-1][length > 0])
    return length, np.minimum(cells, _MAX_INTERFACE_CELLS)


def _limited_product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the product of two numbers of cells, cut off to avoid overflow."""
    with np.errstate(over="ignore"):
        return np.minimum(left * right, _MAX_INTERFACE_CELLS)


def root_agent(problem: Problem, name: str | None) -> int | None:
    """Return the agent that ``combine.root`` names; None if it names none.

    Raises
    ------
    ConfigError
        If no agent has this name.
    """
    if name is None:
        return None
    for agent, agent_name in enumerate(problem.agents):
        if agent_name == name:
            return agent
    raise ConfigError(f"combine.root: no agent is named {name!r} (agents: {list_shortly(problem.agents)})")


def build_pseudotree(
    problem: Problem,
    division: Division,
    stop: Deadline = NO_DEADLINE,
    heuristic: str = AUTO,
    root: str | None = None,
) -> PseudoTree:
    """Return the pseudo-tree of a heuristic.

    With ``auto`` it is the cheapest of a portfolio; ties go to the first candidate.

    Parameters
    ----------
    problem, division
        The problem and its division among agents.
    stop
        Deadline; the best tree of the portfolio so far, which then depends on the clock, is returned.
    heuristic
        ``auto``, or a name of :mod:`dmcmc.inference.dpop.trees`.
    root
        Name of the agent that is the root of its component; None for any.

    Raises
    ------
    ConfigError
        If the heuristic or the root is unknown, or the heuristic gives no pseudo-tree.
    OutOfTime
        If the deadline passes before the first tree is complete.
    """

    def build() -> PseudoTree:
        """Build the tree, without the cache."""
        graph, root_index = agent_graph(problem, division), root_agent(problem, root)
        if heuristic == AUTO:
            return _cheapest(problem, division, _candidates(graph, root_index), stop)
        parents = checked_parents(get(heuristic), graph, root_index)
        return complete_tree(problem, division, parents, stop)

    if not is_short_key(problem.n_variables + len(division.crossing)):
        return build()
    start, flat = flatten_groups(division.scopes)
    shape = digest(problem.domains, problem.owner, np.array(problem.n_agents), np.diff(start), flat)
    key = (shape, heuristic, root, *tree_names(problem, heuristic, root))
    tree = _TREES.find(key)
    if tree is None:
        tree = build()
        if not stop.over:
            _TREES.put(key, tree)
    return tree


def tree_names(problem: Problem, heuristic: str, root: str | None) -> tuple[str, ...]:
    """Return the agents' names if the tree may depend on them; ``auto`` without a root depends on the graph only."""
    return () if heuristic == AUTO and root is None else tuple(problem.agents)


def agent_graph(problem: Problem, division: Division) -> AgentGraph:
    """Return the agents and the factors between them."""
    owner = problem.owner.tolist()
    return AgentGraph(
        agents=problem.agents,
        neighbours=neighbours_of(problem, division),
        scopes=IndexGroups.of(sorted({owner[v] for v in scope}) for scope in division.scopes),
        rows=np.minimum(np.exp2(np.minimum(_interface_bits(problem, division), 1000)), _MAX_INTERFACE_CELLS),
    )


def _interface_bits(problem: Problem, division: Division) -> NDArray[np.float64]:
    """Return log2 of the cells over each agent's interface, (agents,) float64."""
    bits = np.log2(problem.domains).tolist()
    return np.array([sum([bits[v] for v in local.interface]) for local in division.locals], dtype=np.float64)


def _cheapest(problem: Problem, division: Division, candidates: Iterator["array[int]"], stop: Deadline) -> PseudoTree:
    """Return the cheapest pseudo-tree of some parent vectors; costs within a relative 1e-12 (rounding) are equal.

    After the deadline it is the cheapest so far; ``OutOfTime`` is raised if there is none.
    """
    crossing, best, best_cost = _crossing_factors(problem, division), None, float("inf")
    cells_of = _CellCounts(_interface_bits(problem, division).tolist(), np.log2(problem.domains).tolist())
    seen = set[bytes]()
    for parent in candidates:
        if parent.tobytes() in seen:
            continue
        seen.add(parent.tobytes())
        try:
            tree, cost = _arranged(crossing, parent, stop, cells_of, best_cost)
        except OutOfTime:
            if best is None:
                raise
            break
        if best is None or (tree is not None and cost < best_cost * (1 - 1e-12)):
            best, best_cost = tree, cost
        if stop.over:
            break
    assert best is not None  # the first depth-first forest always exists
    return best.compact()


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


def _candidates(graph: AgentGraph, root: int | None) -> Iterator["array[int]"]:
    """Yield parent vectors of candidate trees: depth-first trees, then the trees of elimination orders.

    The number of roots is limited so that all trees together have about ``MAX_TREE_NODES`` nodes. Above
    ``MAX_RULE_AGENTS`` agents, elimination orders are not tried, because their graph as a matrix grows with the
    square. If ``root`` is given, it is the root of all candidates.
    """
    neighbours, n, ranked = graph.neighbours, len(graph.neighbours), graph.by_degree(root)
    crosses = len(graph.scopes) > 0
    others = ranked[1 : min(MAX_ROOTS, max(2, MAX_TREE_NODES // n))] if root is None and crosses else []
    yield from depth_first_forests(neighbours, chain([ranked], ([other, *ranked] for other in others)))
    if n > MAX_RULE_AGENTS or not crosses:
        return
    last = () if root is None else (root,)
    eliminated = [agent for agent in range(n) if agent != root]
    yield elimination_tree([*best_order(graph.scopes, graph.rows, eliminated, last).variables, *last], neighbours)
    if n > MAX_EXACT_VARIABLES:  # fewer agents have an exact order already
        for rule in RULES:
            yield rule_tree(graph, rule, root)


class _CrossingFactors(NamedTuple):
    """The factors between agents as plain sequences, which are faster to read than those of a division.

    Attributes
    ----------
    scopes, agents : list of tuple of int
        The variables of each crossing factor, and the agents that own them, each once.
    interfaces : list of tuple of int
        The interface of each agent.
    """

    scopes: list[tuple[int, ...]]
    agents: list[tuple[int, ...]]
    interfaces: list[tuple[int, ...]]


def _crossing_factors(problem: Problem, division: Division) -> _CrossingFactors:
    """Return the factors between a problem's agents as plain sequences."""
    owner, scopes = problem.owner.tolist(), list(division.scopes)
    agents = [tuple({owner[v] for v in scope}) for scope in scopes]
    return _CrossingFactors(scopes, agents, [local.interface for local in division.locals])


def complete_tree(
    problem: Problem, division: Division, parent: Sequence[int], stop: Deadline = NO_DEADLINE
) -> PseudoTree:
    """Complete a parent vector to a pseudo-tree: children, bottom-up order, separators and placed crossing factors.

    Raises
    ------
    OutOfTime
        If the deadline passes; separators may have many variables.
    """
    tree, _ = _arranged(_crossing_factors(problem, division), parent, stop)
    assert tree is not None
    return tree.compact()


class _CellCounts(NamedTuple):
    """Sizes from which the cells that UTIL joins are counted.

    Attributes
    ----------
    interface : list of float
        log2 of the cells over each agent's interface.
    variable : list of float
        log2 of each variable's domain size.
    """

    interface: list[float]
    variable: list[float]

    def joined_by(self, agent: int, separator: set[int]) -> float:
        """Return the cells over an agent's interface and separator, cut off at 2^1000 so that sums stay finite."""
        variable = self.variable
        bits = self.interface[agent] + sum([variable[v] for v in separator])
        return math.exp2(min(bits, 1000.0))


def _arranged(
    crossing: _CrossingFactors,
    parent: Sequence[int],
    stop: Deadline,
    cells_of: _CellCounts | None = None,
    limit: float = float("inf"),
) -> tuple[PseudoTree | None, float]:
    """Return the pseudo-tree of a parent vector in lists, and its cells; see :func:`complete_tree`.

    The cells are the sum over agents of the cells over B_i ∪ sep_i, an upper bound on the cells that UTIL joins; 0
    without ``cells_of``. There is no tree as soon as they are more than ``limit``.
    """
    n = len(parent)
    children, placed = [list[int]() for _ in range(n)], [list[int]() for _ in range(n)]
    top_down, depth = list[int](), [0] * n
    for a, above in enumerate(parent):
        (top_down if above < 0 else children[above]).append(a)
    for a in top_down:  # the list grows during the loop
        for c in children[a]:
            depth[c] = depth[a] + 1
        top_down += children[a]
    for i, agents in enumerate(crossing.agents):
        placed[max(agents, key=depth.__getitem__)].append(i)
    reach: dict[int, set[int]] = {}  # separators of visited subtrees, until their parent is visited
    separators: list[tuple[int, ...]] = [()] * n
    cells = 0.0
    for a in reversed(top_down):
        stop.check()
        variables = reach.pop(a, set())
        for i in placed[a]:
            variables.update(crossing.scopes[i])
        variables.difference_update(crossing.interfaces[a])
        if cells_of is not None:
            cells += cells_of.joined_by(a, variables)
            if cells > limit:
                return None, cells
        if variables:
            separators[a] = tuple(sorted(variables))
        if parent[a] >= 0:
            reach.setdefault(parent[a], set()).update(variables)
    return PseudoTree(parent, children, top_down[::-1], separators, placed), cells


class Contraction(NamedTuple):
    """A pseudo-tree whose nodes are pieces: connected sets of agents that have the same owner.

    All roots of one owner belong to one piece, although no tree edge connects them.

    Attributes
    ----------
    pieces : tuple of tuple of int
        The agents of each piece, children before parents.
    tree : PseudoTree
        The pseudo-tree over pieces; its ``placed`` tuples are empty, since they refer to single agents.
    owner : tuple of int
        The owner of each piece.
    """

    pieces: tuple[tuple[int, ...], ...]
    tree: PseudoTree
    owner: tuple[int, ...]


def contracted(tree: PseudoTree, owner: Sequence[int]) -> Contraction:
    """Return a pseudo-tree with adjacent agents of the same owner contracted, and likewise all roots of one owner.

    A piece is numbered before its children, and its separator is that of its topmost agent.

    Examples
    --------
    >>> tree = PseudoTree((-1, 0, 1, 0), ((1, 3), (2,), (), ()), (2, 3, 1, 0), ((), (5,), (6,), (5,)), ((),) * 4)
    >>> found = contracted(tree, owner=[0, 0, 1, 0])
    >>> found.pieces, found.tree.parent, found.tree.separators
    (((3, 1, 0), (2,)), (-1, 0), ((), (6,)))
    """
    piece_of = dict[int, int]()
    pieces = list[list[int]]()
    top_agents = list[int]()
    piece_of_root_owner = dict[int, int]()
    parent_of_piece = list[int]()
    for agent in reversed(tree.bottom_up):
        parent = tree.parent[agent]
        number = len(pieces)
        if parent < 0:
            number = piece_of_root_owner.setdefault(owner[agent], number)
        elif owner[parent] == owner[agent]:
            number = piece_of[parent]
        if number == len(pieces):
            pieces.append([])
            top_agents.append(agent)
            parent_of_piece.append(-1 if parent < 0 else piece_of[parent])
        piece_of[agent] = number
        pieces[number].append(agent)
    children: list[list[int]] = [[] for _ in pieces]
    for number, parent in enumerate(parent_of_piece):
        if parent >= 0:
            children[parent].append(number)
    return Contraction(
        tuple(tuple(reversed(piece)) for piece in pieces),
        PseudoTree(
            parent=tuple(parent_of_piece),
            children=tuple(map(tuple, children)),
            bottom_up=tuple(reversed(range(len(pieces)))),
            separators=tuple(tree.separators[top] for top in top_agents),
            placed=((),) * len(pieces),
        ),
        tuple(owner[top] for top in top_agents),
    )
