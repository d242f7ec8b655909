"""Compute properties of a problem's graphs: primal graph, agents, pseudo-tree, induced widths and table sizes.

``dmcmc graph`` shows them (``graph_summary``) and draws the graphs (``drawing``).
"""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import networkx as nx

from dmcmc.inference.dpop.assign_variables import primal_neighbours
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import cost_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order


@dataclass(frozen=True)
class AgentFacts:
    """Properties of one agent.

    Attributes
    ----------
    name : str
        The agent's name.
    variables, interface : int
        Number of its variables, and of those that share a factor with another agent's variables (its interface).
    rows : int
        Number of assignments of its interface variables: rows of its table.
    width, cells : int
        Induced width of the elimination of its other variables, and the number of table cells of this elimination.
    parent : str or None
        Its parent in the pseudo-tree; None for a root.
    separator : tuple of str
        The variables of its UTIL message, the table that it sends to its parent in DPOP; empty for a root.
    message : int
        Number of cells of that message; 1 for a root.
    """

    name: str
    variables: int
    interface: int
    rows: int
    width: int
    cells: int
    parent: str | None
    separator: tuple[str, ...]
    message: int


@dataclass(frozen=True)
class GraphFacts:
    """Properties of a problem's graphs.

    Attributes
    ----------
    variables, factors, arity : int
        Number of variables and factors, and the largest number of variables of a factor.
    edges, components, degree : int
        Number of edges and of connected components of the primal graph, and its largest degree.
    width : int
        Induced width of the best elimination order that was found for the whole problem.
    largest, cells : float
        Cells of the largest table in this elimination, and of all its tables.
    divided_cells, largest_message : float
        Table cells of exact elimination agent by agent, and cells of the largest UTIL message. Comparing
        ``divided_cells`` with ``cells`` shows what the division into agents costs.
    links : int
        Number of pairs of agents that share factors.
    depth : int
        Number of agents on the longest path of the pseudo-tree.
    agents : tuple of AgentFacts
        Properties of each agent.
    """

    variables: int
    factors: int
    arity: int
    edges: int
    components: int
    degree: int
    width: int
    largest: float
    cells: float
    divided_cells: float
    largest_message: float
    links: int
    depth: int
    agents: tuple[AgentFacts, ...]

    def plain(self) -> dict[str, Any]:
        """Return all properties as plain data for JSON."""
        return asdict(self)


def primal_graph(problem: Problem) -> "nx.Graph[int]":
    """Return the primal graph: an edge connects two variables (by number) that share a factor."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(problem.n_variables))
    graph.add_edges_from((v, u) for v, neighbours in enumerate(primal_neighbours(problem)) for u in neighbours if u > v)
    return graph


def facts_of(problem: Problem, memory: int) -> GraphFacts:
    """Return the properties of a problem's graphs; ``memory`` is the memory limit of dense tables in bytes."""
    graph = primal_graph(problem)
    order = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables))
    dense = densify(problem, memory).problem
    division = divide(dense)
    tree = build_pseudotree(dense, division)
    cost = cost_of(dense, division, tree)
    depth = [0] * dense.n_agents
    for a in reversed(tree.bottom_up):
        depth[a] = 1 + (depth[tree.parent[a]] if tree.parent[a] >= 0 else 0)
    owner = problem.owner.tolist()
    links = {(owner[u], owner[v]) for u, v in graph.edges} | {(owner[v], owner[u]) for u, v in graph.edges}
    agents = []
    for local in division.locals:
        parent, separator = tree.parent[local.agent], tree.separators[local.agent]
        agents.append(
            AgentFacts(
                name=dense.agents[local.agent],
                variables=owner.count(local.agent),
                interface=len(local.interface),
                rows=local.rows,
                width=local.plan.width,
                cells=local.plan.cells,
                parent=dense.agents[parent] if parent >= 0 else None,
                separator=tuple(dense.variables[v] for v in separator),
                message=prod(int(dense.domains[v]) for v in separator),
            )
        )
    return GraphFacts(
        variables=problem.n_variables,
        factors=len(problem.factors),
        arity=max((len(f.scope) for f in problem.factors), default=0),
        edges=graph.number_of_edges(),
        components=nx.number_connected_components(graph),
        degree=max((degree for _, degree in graph.degree), default=0),
        width=order.width,
        largest=order.largest,
        cells=order.cells,
        divided_cells=cost.cells,
        largest_message=cost.message_cells,
        links=sum(a < b for a, b in links),
        depth=max(depth, default=0),
        agents=tuple(agents),
    )
