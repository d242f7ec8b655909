"""Assign a problem's variables to agents: connected parts of about equal size that share few variables.

============  =====================================================================================================
``tree``      cut the bucket tree of an elimination order where few variables are shared: parts that suit DPOP
``grow``      grow regions from variables that are far apart, the smallest region first
``blocks``    take variables in the order of the file
============  =====================================================================================================

In the bucket tree, the parent of a variable is the first of its later neighbours in the elimination order. The parts
of the first two methods are improved by moves of variables between neighbouring parts; then disconnected components
join a neighbouring part. All methods are deterministic. The numbers below were chosen by measurement.
"""

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from dmcmc.inference.dpop import tuning
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import DivisionCost, cost_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.dpop.tree_cuts import BucketTree, NeighbourSets, bisected, bucket_tree, narrowest_cuts
from dmcmc.inference.dpop.tuning import MAX_COSTED_DEGREES, MAX_MOVE_PASSES, SIZE_TOLERANCE
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import MAX_EXACT_CELLS
from dmcmc.inference.runtime.errors import ConfigError, DivisionWarning
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES


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
    eligible = [v for piece in _components(graph, set(range(n))) if 2 * count * len(piece) >= n for v in piece]
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
            if better and len(_components(graph, parts[current] - {v})) == 1:
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
        for component in sorted(_components(graph, parts[agent]), key=lambda p: (-len(p), min(p)))[1:]:
            links = Counter(owner[u] for v in component for u in graph[v] if u not in component)
            if links:
                best = max(links, key=lambda a: (links[a], -len(parts[a]), -a))
                for v in component:
                    owner[v] = best
                parts[agent] -= component
                parts[best] |= component


def _components(graph: NeighbourSets, part: set[int]) -> list[set[int]]:
    """Return the connected components of a part."""
    unvisited, components = set(part), []
    while unvisited:
        component = {unvisited.pop()}
        queue = list(component)
        while queue:
            new = graph[queue.pop()] & unvisited
            unvisited -= new
            component |= new
            queue += new
        components.append(component)
    return components


def _renumbered(owner: list[int]) -> list[int]:
    """Return new numbers of the agents, in the order of their first variables."""
    number: dict[int, int] = {}
    return [number.setdefault(agent, len(number)) for agent in owner]


METHODS: dict[str, Callable[[Problem, int], list[int]]] = {"tree": by_tree, "grow": by_growth, "blocks": by_blocks}


def division_cost(problem: Problem) -> DivisionCost:
    """Return the cost of a problem's division among its agents, by short searches for orders."""
    division = divide(problem)
    return cost_of(problem, division, build_pseudotree(problem, division))
