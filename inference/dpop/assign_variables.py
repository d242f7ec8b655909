"""Agents for variables that have none.

Assign a problem's variables to agents: connected parts of about equal size that share few variables.

============  =====================================================================================================
``tree``      cut the bucket tree of an elimination order where few variables are shared: parts that suit DPOP
``grow``      grow regions from variables that are far apart, the smallest region first
``blocks``    take variables in the order of the file
============  =====================================================================================================

In the bucket tree, the parent of a variable is the first of its later neighbours in the elimination order. The parts of
the first two methods are improved by moves of variables between neighbouring parts; then disconnected components join a
neighbouring part. All methods are deterministic. The numbers below were chosen by measurement.

Cut the bucket tree of an elimination order into connected parts, one per agent.

The bucket of a variable also holds variables that are eliminated later. The message from the variable's subtree to the
other part ranges over these (the shared variables), so cuts with few shared variables suit DPOP. The parts are used by
:mod:`dmcmc.inference.dpop.assign_variables`.
"""

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import log2
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import DivisionCost, cost_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.dpop.trees import connected_components
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import ConfigError, DivisionWarning
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import (
    MAX_COSTED_DEGREES,
    MAX_EXACT_CELLS,
    MAX_EXAMINED_ENTRIES,
    MAX_MOVE_PASSES,
    MAX_PART_RATIO,
    SIZE_TOLERANCE,
)

NeighbourSets = list[set[int]]


class BucketTree(NamedTuple):
    """The bucket tree of an elimination order.

    Attributes
    ----------
    order : sequence of int
        Variables, children before parents.
    parent : list of int
        The parent of each variable, −1 for a root.
    shared : list of int
        The number of later variables in each variable's bucket: those that a message from its subtree ranges
        over.
    bits : list of float
        log2 of the cells of that message.
    """

    order: Sequence[int]
    parent: list[int]
    shared: list[int]
    bits: list[float]


def bucket_tree(graph: NeighbourSets, order: Sequence[int], domains: Ints) -> BucketTree:
    """Return the bucket tree of an elimination order.

    Parameters
    ----------
    graph
        For each variable the set of its neighbours.
    order
        All variables in elimination order.
    domains : (variables,) int64
        Domain sizes.
    """
    rank = {v: i for i, v in enumerate(order)}
    later = [{u for u in neighbours if rank[u] > rank[v]} for v, neighbours in enumerate(graph)]
    parent = [-1] * len(graph)
    for v in order:
        if later[v]:
            parent[v] = min(later[v], key=rank.__getitem__)
            later[parent[v]] |= later[v] - {parent[v]}
    weight = [log2(d) for d in domains.tolist()]
    return BucketTree(order, parent, [len(a) for a in later], [sum(weight[u] for u in a) for a in later])


def bisected(tree: BucketTree, agents: int) -> list[int]:
    """Bisect the tree recursively, where few variables are shared, into one part per agent.

    Returns
    -------
    list of int
        Each variable's part, 0 to ``agents`` − 1.
    """
    owner = [0] * len(tree.parent)
    parts_to_cut = [
        (list(tree.order), agents, 0)
    ]  # a part (children before parents), its number of agents, the first agent
    while parts_to_cut:
        part, count, first = parts_to_cut.pop()
        if count == 1:
            for v in part:
                owner[v] = first
            continue
        first_agents = count // 2
        cut = _cut(part, tree.parent, tree.shared, len(part) * first_agents // count, first_agents, count)
        parts_to_cut.append(([v for v in part if v in cut], first_agents, first))
        parts_to_cut.append(([v for v in part if v not in cut], count - first_agents, first + first_agents))
    return owner


def narrowest_cuts(tree: BucketTree, agents: int, min_variables: int) -> list[int] | None:
    """Cut off subtrees whose messages have the fewest cells; ties go to those closest to an equal size.

    Sizes are compared after rounding log2 of the cells to whole bits. A subtree has at most 1.5 times an equal share.

    Parameters
    ----------
    tree
        The bucket tree.
    agents
        The number of parts.
    min_variables
        Minimum number of variables per part. The last part is the remainder, which may be far larger than the
        others.

    Returns
    -------
    list of int or None
        Each variable's part; None if there are not enough such subtrees.
    """
    n = len(tree.parent)
    order, parent = np.array(tree.order, dtype=np.int64), np.array(tree.parent, dtype=np.int64)
    size = np.ones(n, dtype=np.int64)
    for v in tree.order:
        if tree.parent[v] >= 0:
            size[parent[v]] += size[v]
    equal_share, bits, owner = n / agents, np.round(tree.bits), np.full(n, agents - 1, dtype=np.int64)
    unassigned = np.ones(n, dtype=np.bool_)
    for part in range(agents - 1):
        # ``size`` counts only unassigned variables; enough of them must remain for the other parts.
        remaining_size = int(unassigned.sum()) - size
        fits = np.flatnonzero(
            unassigned
            & (size >= min_variables)
            & (size <= MAX_PART_RATIO * equal_share)
            & (remaining_size >= min_variables * (agents - 1 - part))
        )
        if not fits.size:
            return None
        root = int(fits[np.lexsort((fits, np.abs(size[fits] - equal_share), bits[fits]))[0]])
        in_subtree = np.zeros(n, dtype=np.bool_)
        in_subtree[root] = True
        for v in order[::-1].tolist():
            in_subtree[v] |= parent[v] >= 0 and in_subtree[parent[v]]
        in_subtree &= unassigned
        owner[in_subtree], unassigned[in_subtree] = part, False
        ancestor = int(parent[root])
        while ancestor >= 0:
            size[ancestor] -= size[root]
            ancestor = int(parent[ancestor])
    return owner.tolist()


def _cut(part: list[int], parent: list[int], shared: list[int], wanted: int, least: int, n_agents: int) -> set[int]:
    """Return a set of about ``wanted`` variables of ``part``: subtrees, preferably with few shared variables.

    Parameters
    ----------
    part
        Variables of the part, children before parents.
    parent, shared
        As in :class:`BucketTree`.
    wanted
        The wanted number of variables.
    least
        Minimum number of variables in the result (its number of agents).
    n_agents
        Number of agents of the whole part; at least ``n_agents - least`` variables remain.
    """
    inside = set(part)
    children: dict[int, list[int]] = {v: [] for v in part}
    size = dict.fromkeys(part, 1)
    for v in part:
        if parent[v] in inside:
            children[parent[v]].append(v)
            size[parent[v]] += size[v]
    wanted = max(wanted, least)
    max_size = min(wanted + int(SIZE_TOLERANCE * wanted), len(part) - (n_agents - least))
    fitting = [v for v in part if abs(size[v] - wanted) <= SIZE_TOLERANCE * wanted and size[v] <= max_size]
    if fitting:
        return _below(min(fitting, key=lambda v: (shared[v], abs(size[v] - wanted), v)), children, set())
    taken: set[int] = set()
    for v in sorted(part, key=lambda v: (-size[v], shared[v], v)):
        # All ancestors of v were too large; a leaf always fits.
        if v not in taken and size[v] <= max(1, max_size - len(taken)):
            taken |= _below(v, children, taken)
        if len(taken) >= wanted:
            break
    return taken


def _below(root: int, children: dict[int, list[int]], taken: set[int]) -> set[int]:
    """Return the subtree of a variable without the variables in ``taken``."""
    subtree, queue = {root}, [root]
    while queue:
        children_of_v = [c for c in children[queue.pop()] if c not in taken]
        subtree.update(children_of_v)
        queue += children_of_v
    return subtree


def split(problem: Problem, agents: int, method: str = "tree") -> Problem:
    """Return the problem with its variables assigned to agents ``a0``, ``a1``, ...

    Parameters
    ----------
    problem
        Its own agents, if any, are replaced.
    agents
        The number of agents; each gets at least one variable.
    method
        One of :data:`METHODS`.

    Raises
    ------
    ConfigError
        If there are more agents than variables, or the method is unknown.
    """
    if method not in METHODS:
        raise ConfigError(f"split: expected one of {', '.join(METHODS)}, got {method!r}")
    if not 1 <= agents <= problem.n_variables:
        raise ConfigError(f"agents: expected 1 to {problem.n_variables} (the number of variables), got {agents}")
    return _with_owners(problem, METHODS[method](problem, agents), agents)


def primal_neighbours(problem: Problem) -> NeighbourSets:
    """Return the primal graph: for each variable the set of variables that share a factor with it."""
    graph: NeighbourSets = [set() for _ in problem.variables]
    for scope in {factor.scope for factor in problem.factors}:
        for v in scope:
            graph[v].update(scope)
    for v, neighbours in enumerate(graph):
        neighbours.discard(v)
    return graph


def by_tree(problem: Problem, agents: int) -> list[int]:
    """Cut the bucket tree of an elimination order into one part per agent, with little additional elimination cost.

    Parts of about equal size are tried first. If their messages or tables make the elimination of an eliminable problem
    much more expensive, subtrees that share few variables are cut off instead. Their smallest allowed size is halved
    until the agents' joined cells are at most the larger of ``ACCEPTED_CELLS`` and ``ACCEPTED_RATIO`` times those of
    the undivided problem. A :class:`DivisionWarning` reports that no such division was found.
    """
    graph = primal_neighbours(problem)
    order = best_order([f.scope for f in problem.factors], problem.domains, range(len(graph)))
    tree = bucket_tree(graph, order.variables, problem.domains)
    balanced = _improved(graph, bisected(tree, agents), agents)
    if agents == 1 or order.cells > MAX_EXACT_CELLS or sum(map(len, graph)) > MAX_COSTED_DEGREES:
        return balanced
    costs: list[tuple[DivisionCost, list[int]]] = []
    for owner in _divisions(problem, graph, tree, agents, balanced):
        cost = division_cost(_with_owners(problem, owner, agents))
        if cost.cells <= max(tuning.ACCEPTED_CELLS, tuning.ACCEPTED_RATIO * order.cells):
            return owner
        costs.append((cost, owner))
    cost, owner = min(costs, key=lambda pair: pair[0].cells)
    if cost.cells > MAX_EXACT_CELLS:  # no division will be eliminated exactly
        cost, owner = costs[0]
    if cost.cells > max(tuning.ACCEPTED_CELLS, tuning.ACCEPTED_RATIO * order.cells):
        warnings.warn(
            f"{agents} agents: exact elimination per agent joins {cost.cells:.2g} table cells, and the largest message"
            f" has {cost.message_cells:.2g} cells; the undivided problem needs {order.cells:.2g} cells."
            " Try fewer agents",
            DivisionWarning,
            stacklevel=2,
        )
    return owner


def _divisions(
    problem: Problem, graph: NeighbourSets, tree: BucketTree, agents: int, balanced: list[int]
) -> Iterator[list[int]]:
    """Yield divisions to try, ``balanced`` first, then those with smaller and smaller parts."""
    yield balanced
    min_size = len(graph) // agents // 2
    while min_size:
        owner = narrowest_cuts(tree, agents, min_size)
        if owner is not None:
            yield owner
        min_size //= 2
    yield by_growth(problem, agents)


def _with_owners(problem: Problem, owner: list[int], agents: int) -> Problem:
    """Return the problem with agents ``a0``, ``a1``, ..., numbered in the order of their first variables."""
    names = tuple(f"a{i}" for i in range(agents))
    return replace(problem, agents=names, owner=np.array(_renumbered(owner), dtype=np.int64))


def by_growth(problem: Problem, agents: int) -> list[int]:
    """Grow regions from variables that are far apart; the smallest one takes the variable most connected to it.

    That is the free variable with the largest share of its neighbours in the region.
    """
    graph = primal_neighbours(problem)
    owner = [-1] * len(graph)
    # Per agent: the number of neighbours in its region, for each unassigned variable.
    links_to: list[Counter[int]] = [Counter() for _ in range(agents)]
    size = [0] * agents

    def assign(agent: int, v: int) -> None:
        """Assign a variable to an agent."""
        owner[v] = agent
        size[agent] += 1
        for u in graph[v]:
            if owner[u] < 0:
                links_to[agent][u] += 1

    for agent, v in enumerate(_far_apart(graph, agents)):
        assign(agent, v)
    open_agents = set(range(agents))
    unassigned = deque(v for v in range(len(graph)) if owner[v] < 0)
    while unassigned:
        if not open_agents:  # the unassigned variables are connected to no region
            while owner[unassigned[0]] >= 0:
                unassigned.popleft()
            smallest = size.index(min(size))
            assign(smallest, unassigned[0])
            open_agents = {smallest}
        agent = min(open_agents, key=lambda a: (size[a], a))
        free = {u: links for u, links in links_to[agent].items() if owner[u] < 0}
        links_to[agent] = Counter(free)
        if free:
            assign(agent, max(free, key=lambda u: (free[u] / len(graph[u]), -u)))
        else:
            open_agents.discard(agent)
        while unassigned and owner[unassigned[0]] >= 0:
            unassigned.popleft()
    return _improved(graph, owner, agents)


def _far_apart(graph: NeighbourSets, count: int) -> Iterable[int]:
    """Yield variables, each as far as possible from those before it.

    Only variables of components with at least half of an agent's equal share are taken, if there are enough of them.
    """
    n = far = len(graph)
    eligible = [v for piece in connected_components(graph, set(range(n))) if 2 * count * len(piece) >= n for v in piece]
    free = eligible if len(eligible) >= count else list(range(n))
    distance = [far] * n
    chosen = max(free, key=lambda v: (len(graph[v]), -v))
    for _ in range(count):
        yield chosen
        distance[chosen] = 0
        queue = deque([chosen])
        while queue:
            v = queue.popleft()
            for u in graph[v]:
                if distance[u] > distance[v] + 1:
                    distance[u] = distance[v] + 1
                    queue.append(u)
        chosen = max(free, key=lambda v: (distance[v], len(graph[v]), -v))


def by_blocks(problem: Problem, agents: int) -> list[int]:
    """Assign variables in their order, about equally many per agent."""
    return [v * agents // problem.n_variables for v in range(problem.n_variables)]


def _improved(graph: NeighbourSets, owner: list[int], agents: int) -> list[int]:
    """Move variables to the part with most of their neighbours, then reconnect the parts."""
    if sum(map(len, graph)) <= MAX_EXAMINED_ENTRIES:
        _join_components(graph, owner, agents)
        _move(graph, owner, agents)
        _join_components(graph, owner, agents)
    return owner


def _move(graph: NeighbourSets, owner: list[int], agents: int) -> None:
    """Move variables while that reduces the links between agents, and parts stay connected and of about equal size.

    No move leaves a part with less than half of an equal share of the variables, or with an excess above
    ``SIZE_TOLERANCE``.
    """
    parts: list[set[int]] = [set() for _ in range(agents)]
    for v, agent in enumerate(owner):
        parts[agent].add(v)
    min_size, max_size = int(len(graph) / agents / 2), int((1 + SIZE_TOLERANCE) * len(graph) / agents) + 1
    for _ in range(MAX_MOVE_PASSES):
        moved = False
        for v, neighbours in enumerate(graph):
            current = owner[v]
            links = Counter(owner[u] for u in neighbours)
            candidates = [a for a in links if a != current and len(parts[a]) < max_size]
            if not candidates or len(parts[current]) <= max(1, min_size):
                continue
            best = max(candidates, key=lambda a: (links[a], -len(parts[a]), -a))
            better = links[best] > links[current] or (
                links[best] == links[current] and len(parts[best]) + 1 < len(parts[current])
            )
            if better and len(connected_components(graph, parts[current] - {v})) == 1:
                parts[current].discard(v)
                parts[best].add(v)
                owner[v] = best
                moved = True
        if not moved:
            return


def _join_components(graph: NeighbourSets, owner: list[int], agents: int) -> None:
    """Give all but the largest component of each agent to the agent with most links to it."""
    parts: list[set[int]] = [set() for _ in range(agents)]
    for v, agent in enumerate(owner):
        parts[agent].add(v)
    for agent in range(agents):
        for component in sorted(connected_components(graph, parts[agent]), key=lambda p: (-len(p), min(p)))[1:]:
            links = Counter(owner[u] for v in component for u in graph[v] if u not in component)
            if links:
                best = max(links, key=lambda a: (links[a], -len(parts[a]), -a))
                for v in component:
                    owner[v] = best
                parts[agent] -= component
                parts[best] |= component


def _renumbered(owner: list[int]) -> list[int]:
    """Return new numbers of the agents, in the order of their first variables."""
    number: dict[int, int] = {}
    return [number.setdefault(agent, len(number)) for agent in owner]


METHODS: dict[str, Callable[[Problem, int], list[int]]] = {"tree": by_tree, "grow": by_growth, "blocks": by_blocks}


def division_cost(problem: Problem) -> DivisionCost:
    """Return the cost of a problem's division among its agents, by short searches for orders."""
    division = divide(problem)
    return cost_of(problem, division, build_pseudotree(problem, division))
