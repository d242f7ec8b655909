"""Give a problem's variables to agents: connected parts of about one size that share few variables.

============  =====================================================================================================
``tree``      cuts the tree of an elimination order where few variables are shared: what DPOP likes
``grow``      lets regions grow from variables far apart, the smallest first
``blocks``    takes variables in the order of the file
============  =====================================================================================================

The first two are improved by moving variables between neighbours, then joined up again. Deterministic.
"""

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from dmcmc.inference.dpop.division_cost import DivisionCost, division_cost
from dmcmc.inference.dpop.tree_cuts import BucketTree, Graph, bucket_tree, halved, narrowest
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import ConfigError, DivisionWarning

_SLACK = 0.15  # by how much a part may exceed its share of the variables
_PASSES = 8
_MOST_LINKS = 4_000_000  # of a graph that is improved
_MOST_WEIGHED = 200_000  # of one whose divisions are weighed
_EASY, _HOPELESS = 1e9, 1e12  # cells that any division may take; from which on nobody eliminates exactly
_MORE, _MUCH_MORE = 4.0, 16.0  # times the cells of the problem in one piece: may be taken, and is warned of


def split(problem: Problem, agents: int, method: str = "tree") -> Problem:
    """Return the problem with its variables owned by ``a0``, ``a1``, ...

    Parameters
    ----------
    problem
        Its own agents, if any, are forgotten.
    agents
        How many; each gets a variable at least.
    method
        One of :data:`METHODS`.

    Raises
    ------
    ConfigError
        For more agents than variables, and for an unknown method.
    """
    if method not in METHODS:
        raise ConfigError(f"split: expected one of {', '.join(METHODS)}, got {method!r}")
    if not 1 <= agents <= problem.n_variables:
        raise ConfigError(f"agents: expected 1 to {problem.n_variables} (the number of variables), got {agents}")
    return _owned(problem, METHODS[method](problem, agents), agents)


def primal(problem: Problem) -> Graph:
    """Return each variable's neighbours: those that share a factor with it."""
    graph: Graph = [set() for _ in problem.variables]
    for scope in {factor.scope for factor in problem.factors}:
        for v in scope:
            graph[v].update(scope)
    for v, around in enumerate(graph):
        around.discard(v)
    return graph


def by_tree(problem: Problem, agents: int) -> list[int]:
    """Cut the bucket tree of an elimination order into a part for every agent, so that little is added to its cells.

    Parts of about one size come first. Where their messages or tables would make a problem that can be eliminated
    much larger, subtrees that share little are cut off, smaller ones each time, until what is added is little; a
    :class:`DivisionWarning` says so where no division is of that kind.
    """
    graph = primal(problem)
    order = best_order([f.scope for f in problem.factors], problem.domains, range(len(graph)))
    tree = bucket_tree(graph, order.variables, problem.domains)
    first = _improved(graph, halved(tree, agents), agents)
    if agents == 1 or order.cells > _HOPELESS or sum(map(len, graph)) > _MOST_WEIGHED:
        return first
    costs: list[tuple[DivisionCost, list[int]]] = []
    for owner in _divisions(problem, graph, tree, agents, first):
        cost = division_cost(_owned(problem, owner, agents))
        if cost.cells <= max(_EASY, _MORE * order.cells):
            return owner
        costs.append((cost, owner))
    cost, owner = min(costs, key=lambda pair: pair[0].cells)
    if cost.cells > max(_EASY, _MUCH_MORE * order.cells):
        warnings.warn(
            f"{agents} agents: exact elimination, agent by agent, joins {cost.cells:.2g} table cells, the largest"
            f" message has {cost.message:.2g}; in one piece the problem takes {order.cells:.2g}. Fewer agents may fit"
            " better",
            DivisionWarning,
            stacklevel=2,
        )
    return owner if cost.cells <= _HOPELESS else first


def _divisions(problem: Problem, graph: Graph, tree: BucketTree, agents: int, first: list[int]) -> Iterator[list[int]]:
    """Yield divisions, the one of most equal parts first."""
    yield first
    least = len(graph) // agents // 2
    while least:
        owner = narrowest(tree, agents, least)
        if owner is not None:
            yield owner
        least //= 2
    yield by_growth(problem, agents)


def _owned(problem: Problem, owner: list[int], agents: int) -> Problem:
    """Return the problem with agents ``a0``, ``a1``, ..., numbered by their first variables."""
    names = tuple(f"a{i}" for i in range(agents))
    return replace(problem, agents=names, owner=np.array(_in_order(owner), dtype=np.int64))


def by_growth(problem: Problem, agents: int) -> list[int]:
    """Let regions grow from variables that are far apart; the smallest one takes the variable it has most links to."""
    graph = primal(problem)
    owner = [-1] * len(graph)
    edge: list[Counter[int]] = [Counter() for _ in range(agents)]
    size = [0] * agents

    def take(agent: int, v: int) -> None:
        owner[v] = agent
        size[agent] += 1
        for u in graph[v]:
            if owner[u] < 0:
                edge[agent][u] += 1

    for agent, v in enumerate(_far_apart(graph, agents)):
        take(agent, v)
    open_agents = set(range(agents))
    left = deque(v for v in range(len(graph)) if owner[v] < 0)
    while left:
        if not open_agents:  # what is left is connected to no region
            while owner[left[0]] >= 0:
                left.popleft()
            smallest = size.index(min(size))
            take(smallest, left[0])
            open_agents = {smallest}
        agent = min(open_agents, key=lambda a: (size[a], a))
        free = {u: links for u, links in edge[agent].items() if owner[u] < 0}
        edge[agent] = Counter(free)
        if free:
            take(agent, max(free, key=lambda u: (free[u] / len(graph[u]), -u)))
        else:
            open_agents.discard(agent)
        while left and owner[left[0]] >= 0:
            left.popleft()
    return _improved(graph, owner, agents)


def _far_apart(graph: Graph, count: int) -> Iterable[int]:
    """Yield variables, each as far as can be from those before it; components that are worth an agent first."""
    n = far = len(graph)
    worth = [v for piece in _pieces(graph, set(range(n))) if 2 * count * len(piece) >= n for v in piece]
    free = worth if len(worth) >= count else list(range(n))
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
    """Take variables in their order, as many for each agent."""
    return [v * agents // problem.n_variables for v in range(problem.n_variables)]


def _improved(graph: Graph, owner: list[int], agents: int) -> list[int]:
    """Move variables to where most of their neighbours are, then join up parts that fell to pieces."""
    if sum(map(len, graph)) <= _MOST_LINKS:
        _join_up(graph, owner, agents)
        _move(graph, owner, agents)
        _join_up(graph, owner, agents)
    return owner


def _move(graph: Graph, owner: list[int], agents: int) -> None:
    """Move variables while that leaves fewer links between agents, none too large, too small or in pieces."""
    parts: list[set[int]] = [set() for _ in range(agents)]
    for v, agent in enumerate(owner):
        parts[agent].add(v)
    least, most = int(len(graph) / agents / 2), int((1 + _SLACK) * len(graph) / agents) + 1
    for _ in range(_PASSES):
        moved = False
        for v, around in enumerate(graph):
            home = owner[v]
            links = Counter(owner[u] for u in around)
            away = [a for a in links if a != home and len(parts[a]) < most]
            if not away or len(parts[home]) <= max(1, least):
                continue
            best = max(away, key=lambda a: (links[a], -len(parts[a]), -a))
            better = links[best] > links[home] or (
                links[best] == links[home] and len(parts[best]) + 1 < len(parts[home])
            )
            if better and len(_pieces(graph, parts[home] - {v})) == 1:
                parts[home].discard(v)
                parts[best].add(v)
                owner[v] = best
                moved = True
        if not moved:
            return


def _join_up(graph: Graph, owner: list[int], agents: int) -> None:
    """Give all but the largest piece of every agent to the neighbours that it has most links to."""
    parts: list[set[int]] = [set() for _ in range(agents)]
    for v, agent in enumerate(owner):
        parts[agent].add(v)
    for agent in range(agents):
        for piece in sorted(_pieces(graph, parts[agent]), key=lambda p: (-len(p), min(p)))[1:]:
            links = Counter(owner[u] for v in piece for u in graph[v] if u not in piece)
            if links:
                best = max(links, key=lambda a: (links[a], -len(parts[a]), -a))
                for v in piece:
                    owner[v] = best
                parts[agent] -= piece
                parts[best] |= piece


def _pieces(graph: Graph, part: set[int]) -> list[set[int]]:
    """Return the connected pieces of a part."""
    left, found = set(part), []
    while left:
        piece = {left.pop()}
        queue = list(piece)
        while queue:
            new = graph[queue.pop()] & left
            left -= new
            piece |= new
            queue += new
        found.append(piece)
    return found


def _in_order(owner: list[int]) -> list[int]:
    """Number the agents by their first variables."""
    number: dict[int, int] = {}
    return [number.setdefault(agent, len(number)) for agent in owner]


METHODS: dict[str, Callable[[Problem, int], list[int]]] = {"tree": by_tree, "grow": by_growth, "blocks": by_blocks}
