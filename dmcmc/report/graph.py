"""What the graphs of a problem look like: variables, agents, pseudo-tree, widths and table sizes."""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import networkx as nx

from dmcmc.inference.dpop.assign_variables import primal
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import cost_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order


@dataclass(frozen=True)
class AgentFacts:
    """An agent.

    Attributes
    ----------
    variables, interface : int
        How many it owns, and how many of these it shares factors over.
    rows : int
        Assignments of the interface.
    width, cells : int
        Induced width of the elimination of its hidden variables, and the table cells that this joins.
    parent : str or None
        In the pseudo-tree.
    separator : tuple of str
        Variables of ancestors that its UTIL message ranges over.
    message : int
        Cells of that message.
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
    """A problem's graphs.

    Attributes
    ----------
    edges, components, degree : int
        Of the primal graph: edges, connected components, largest degree.
    width, largest, cells
        Of the best elimination order found for the whole problem: induced width, cells of its largest joined table and
        of all.
    divided_cells, largest_message : float
        What exact elimination joins agent by agent, and cells of the largest UTIL message: beside ``cells``, what the
        division costs.
    links : int
        Pairs of agents that share factors.
    depth : int
        Agents on the longest path of the pseudo-tree.
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
        """Return everything as plain data."""
        return asdict(self)


def primal_graph(problem: Problem) -> "nx.Graph[int]":
    """Return the graph of variables that share a factor."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(problem.n_variables))
    graph.add_edges_from((v, u) for v, around in enumerate(primal(problem)) for u in around if u > v)
    return graph


def facts_of(problem: Problem, memory: int) -> GraphFacts:
    """Return the facts of a problem; ``memory`` is what a table may take, as in ``budget.memory``."""
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
        largest_message=cost.message,
        links=sum(a < b for a, b in links),
        depth=max(depth, default=0),
        agents=tuple(agents),
    )
