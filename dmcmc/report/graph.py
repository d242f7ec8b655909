"""Compute properties of a problem's graphs (primal graph, agents, pseudo-tree), and show and draw them.

``dmcmc graph`` calls it. The properties are induced widths and table sizes. The drawing has the
primal graph, coloured by agents, and the pseudo-tree of the agents.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import networkx as nx
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.files.write import check_writable, replace_file
from dmcmc.inference.dpop.assign_variables import primal_neighbours
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.division_cost import cost_of
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import FileError, Unavailable
from dmcmc.report.pages import literal, short


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


_MAX_AGENTS = 40  # lines of the table
_NAME_WIDTH = 18  # columns of an agent's name


def summary(facts: GraphFacts) -> RenderableType:
    """Return an overview, and one line per agent (the first 40)."""
    table = Table.grid(padding=(0, 2))
    rows = [
        ("variables", f"{facts.variables:,}"),
        ("factors", f"{facts.factors:,}, each over at most {facts.arity} variables"),
        (
            "primal graph",
            f"{facts.edges:,} edges, connected components: {facts.components:,}, largest degree {facts.degree}",
        ),
        ("elimination", f"width {facts.width}, {short(facts.cells)} table cells, largest table {short(facts.largest)}"),
        ("agents", f"{len(facts.agents)}; {facts.links} pairs of agents share factors"),
        ("pseudo-tree", f"depth {facts.depth}, largest separator {short(_largest(facts))} cells"),
        (
            "agent by agent",
            f"{short(facts.divided_cells)} table cells, largest message {short(facts.largest_message)} cells",
        ),
    ]
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    parts: list[RenderableType] = [table]
    if facts.agents:
        parts += [Text(), _agents(facts.agents[:_MAX_AGENTS])]
    if len(facts.agents) > _MAX_AGENTS:
        parts.append(Text(f"... and {len(facts.agents) - _MAX_AGENTS} more agents (all of them with --json)"))
    return Group(*parts)


def _largest(facts: GraphFacts) -> int:
    """Return the number of cells of the largest UTIL message."""
    return max((agent.message for agent in facts.agents), default=1)


def _agents(agents: tuple[AgentFacts, ...]) -> Table:
    """Return a table with one line per agent."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("agent", "parent"):
        table.add_column(name, overflow="fold", max_width=_NAME_WIDTH)
    for name in ("vars", "shared", "rows", "width", "cells", "separator", "message"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        numbers = (agent.variables, agent.interface, agent.rows, agent.width, agent.cells)
        cells = (agent.name, agent.parent or "-", *map(short, numbers))
        table.add_row(*map(Text, (*cells, short(len(agent.separator)), short(agent.message))))
    return table


PICTURES = (".png", ".svg", ".pdf")
_MAX_VARIABLES = 2000  # variables of a picture; a larger one takes minutes and shows nothing
_MAX_NAMED_NODES = 60  # graphs with more nodes have dots in place of names
_MAX_NAME_LENGTH = 18  # characters of a node's name
_TEXT_COLOUR = "#333333"


def draw(problem: Problem, facts: GraphFacts, path: str | os.PathLike[str]) -> None:
    """Draw both graphs to a file: ``.png``, ``.svg`` or ``.pdf`` with matplotlib, or ``.dot`` for Graphviz.

    Parameters
    ----------
    problem
        The problem.
    facts
        Properties of its graphs, with the pseudo-tree.
    path
        The file; its suffix decides the format.

    Raises
    ------
    FileError
        If the file has another suffix or cannot be written.
    Unavailable
        If matplotlib is not installed, or the problem is too large for a picture.
    """
    check_picture(path)
    suffix = Path(path).suffix.lower()
    if suffix == ".dot":
        replace_file(path, dot(problem, facts))
        return
    if problem.n_variables > _MAX_VARIABLES:
        count = problem.n_variables
        raise Unavailable(f"{path}: a picture shows at most {_MAX_VARIABLES} variables, not {count}; use .dot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")  # inches
    left, right = figure.subplots(1, 2)
    _draw_primal(problem, left)
    _draw_tree(problem, facts, right)
    image = BytesIO()
    figure.savefig(image, format=suffix[1:], dpi=120)
    replace_file(path, [image.getvalue()])


def check_picture(path: str | os.PathLike[str]) -> None:
    """Check that a picture can be drawn, before the problem is read.

    Raises
    ------
    FileError
        If the suffix is unknown or the file cannot be written.
    Unavailable
        If matplotlib is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix != ".dot" and suffix not in PICTURES:
        raise FileError(f"{path}: unknown kind of picture; use a name that ends in .dot, {', '.join(PICTURES)}")
    if suffix != ".dot" and find_spec("matplotlib") is None:
        raise Unavailable(f"{path}: pictures need matplotlib (pip install 'dmcmc[plot]'); a .dot file needs none")
    check_writable(path)


def _draw_primal(problem: Problem, axes: Any) -> None:
    """Draw the primal graph with variables in the colours of their agents."""
    from matplotlib import colormaps

    graph = primal_graph(problem)
    colours = colormaps["tab20"]
    # The layout takes quadratic time per iteration: large graphs get 15 instead of networkx's default of 50.
    positions = nx.spring_layout(graph, seed=0, iterations=50 if len(graph) < 500 else 15)
    # tab20 has 20 colours, which are used again for further agents.
    fill = [colours(int(agent) % 20) for agent in problem.owner]
    nx.draw_networkx_edges(graph, positions, ax=axes, edge_color="#bbbbbb")
    _draw_nodes(graph, positions, list(problem.variables), fill, axes)
    axes.set_title("variables, coloured by agent", fontsize=10, color=_TEXT_COLOUR)
    axes.axis("off")


def _draw_nodes(graph: Any, positions: Any, names: Sequence[str], fill: Sequence[Any], axes: Any) -> None:
    """Draw nodes as boxes with names, or as dots if there are many."""
    if len(graph) > _MAX_NAMED_NODES:
        nx.draw_networkx_nodes(graph, positions, ax=axes, node_size=40, node_color=fill)
        return
    for node, name, colour in zip(graph, names, fill, strict=True):
        box = {"boxstyle": "round,pad=0.25", "facecolor": colour, "edgecolor": "none"}
        axes.text(*positions[node], literal(_clipped(name)), ha="center", va="center", fontsize=7, bbox=box, zorder=3)
    for axis, limit in enumerate((axes.set_xlim, axes.set_ylim)):
        ends = [float(position[axis]) for position in positions.values()] or [0.0]
        low, high = min(ends), max(ends)
        margin = 0.12 * (high - low) or 1.0  # 12 % on each side, so that the boxes of the outermost nodes are visible
        limit(low - margin, high + margin)


def _clipped(name: str) -> str:
    """Return a name shortened to the largest length of a node's name.

    >>> _clipped("a"), _clipped("meeting of the whole department")
    ('a', 'meeting ...partment')
    """
    return (
        name
        if len(name) <= _MAX_NAME_LENGTH
        else f"{name[: _MAX_NAME_LENGTH // 2 - 1]}...{name[-(_MAX_NAME_LENGTH // 2 - 1) :]}"
    )


def back_edges(problem: Problem, facts: GraphFacts) -> list[tuple[str, str]]:
    """Return the pairs of agents that share factors without being parent and child, in the order of the problem."""
    tree = {frozenset((agent.name, agent.parent)) for agent in facts.agents if agent.parent is not None}
    owner = problem.owner.tolist()
    pairs = {tuple(sorted({owner[a], owner[b]})) for a, b in primal_graph(problem).edges if owner[a] != owner[b]}
    named = [(problem.agents[a], problem.agents[b]) for a, b in sorted(pairs)]
    return [pair for pair in named if frozenset(pair) not in tree]


def _draw_tree(problem: Problem, facts: GraphFacts, axes: Any) -> None:
    """Draw the pseudo-tree. The number at an edge is the number of variables of the UTIL message.

    Dashed lines are back edges: between agents that share factors without being parent and child.
    """
    from matplotlib import colormaps

    tree: nx.DiGraph[str] = nx.DiGraph()
    number = {agent.name: i for i, agent in enumerate(facts.agents)}
    tree.add_nodes_from(number)
    tree.add_edges_from((agent.parent, agent.name) for agent in facts.agents if agent.parent is not None)
    positions = _layered(tree)
    colours = colormaps["tab20"]
    named = len(tree) <= _MAX_NAMED_NODES
    nx.draw_networkx_edges(tree, positions, ax=axes, edge_color="#888888", arrows=False)
    nx.draw_networkx_edges(
        nx.DiGraph(back_edges(problem, facts)),
        positions,
        ax=axes,
        edge_color="#888888",
        style="dashed",
        width=0.6,
        arrows=True,
        arrowstyle="-",
        connectionstyle="arc3,rad=0.2",
    )
    _draw_nodes(tree, positions, list(tree), [colours(number[name] % 20) for name in tree], axes)
    if named:
        separators = {(a.parent, a.name): len(a.separator) for a in facts.agents if a.parent is not None}
        nx.draw_networkx_edge_labels(tree, positions, separators, ax=axes, font_size=7, rotate=False)
    axes.set_title(
        "pseudo-tree of the agents, with the number of variables per message; dashed: back edges",
        fontsize=10,
        color=_TEXT_COLOUR,
    )
    axes.axis("off")


def _layered(tree: "nx.DiGraph[str]") -> dict[str, tuple[float, float]]:
    """Return node positions (x, −depth): leaves side by side, parents above the middle of their children."""
    positions: dict[str, tuple[float, float]] = {}
    leaves = 0
    for root in (name for name in tree if tree.in_degree(name) == 0):
        depth = nx.single_source_shortest_path_length(tree, root)
        for name in nx.dfs_postorder_nodes(tree, root):
            children = [positions[c][0] for c in tree.successors(name)]
            if not children:
                leaves += 1
            positions[name] = (sum(children) / len(children) if children else float(leaves), -float(depth[name]))
    return positions


def dot(problem: Problem, facts: GraphFacts) -> Iterator[str]:
    """Yield both graphs as Graphviz text: the variables in one cluster per agent, and the pseudo-tree.

    Nodes are ``v0``, ``v1``, ... for variables and ``a0``, ``a1``, ... for agents; the label of an edge is the number
    of variables of the UTIL message. Dashed edges are back edges.
    """
    yield "graph problem {\n  compound=true;\n  node [shape=circle];\n"
    for a, agent in enumerate(problem.agents):
        yield f"  subgraph cluster_{a} {{\n    label={_quoted(agent)};\n"
        for v in (problem.owner == a).nonzero()[0].tolist():
            yield f"    v{v} [label={_quoted(problem.variables[v])}];\n"
        yield "  }\n"
    for u, v in primal_graph(problem).edges:
        yield f"  v{u} -- v{v};\n"
    yield "}\ndigraph pseudotree {\n"
    number = {agent.name: i for i, agent in enumerate(facts.agents)}
    for a, facts_of_agent in enumerate(facts.agents):
        yield f"  a{a} [label={_quoted(facts_of_agent.name)}];\n"
        if facts_of_agent.parent is not None:
            yield f'  a{number[facts_of_agent.parent]} -> a{a} [label="{len(facts_of_agent.separator)}"];\n'
    for first, second in back_edges(problem, facts):
        yield f"  a{number[first]} -> a{number[second]} [style=dashed, dir=none, constraint=false];\n"
    yield "}\n"


def _quoted(text: str) -> str:
    """Return text as a quoted string of Graphviz."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
