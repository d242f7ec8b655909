"""Pictures of a problem's graphs: the primal graph coloured by agents, and the agents' pseudo-tree."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx

from dmcmc.files.write import check_writable, replace_file
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError, Unavailable
from dmcmc.report.graph import GraphFacts, primal_graph

PICTURES = (".png", ".svg", ".pdf")
_MOST_VARIABLES = 2000  # that a picture shows
_NAMED = 60  # nodes that are named
_INK = "#333333"


def draw(problem: Problem, facts: GraphFacts, path: str | os.PathLike[str]) -> None:
    """Draw to a file: ``.png``, ``.svg`` or ``.pdf`` with matplotlib, or ``.dot`` for Graphviz.

    Raises
    ------
    FileError
        For other names, and where the file cannot be written.
    Unavailable
        Without matplotlib, and for problems too large for a picture.
    """
    check_picture(path)
    suffix = Path(path).suffix.lower()
    if suffix == ".dot":
        replace_file(path, dot(problem, facts))
        return
    if problem.n_variables > _MOST_VARIABLES:
        count = problem.n_variables
        raise Unavailable(f"{path}: a picture shows at most {_MOST_VARIABLES} variables, not {count}; use .dot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_primal(problem, left)
    _draw_tree(facts, right)
    drawn = BytesIO()
    figure.savefig(drawn, format=suffix[1:], dpi=120)
    replace_file(path, [drawn.getvalue()])


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise what is wrong with a picture's name, or that there is nothing to draw it with, before there is a problem.

    Raises
    ------
    FileError
        For an unknown suffix, and where the file cannot be written.
    Unavailable
        Without matplotlib.
    """
    suffix = Path(path).suffix.lower()
    if suffix != ".dot" and suffix not in PICTURES:
        raise FileError(f"{path}: a picture's name ends with .dot, {', '.join(PICTURES)}")
    if suffix != ".dot" and find_spec("matplotlib") is None:
        raise Unavailable(f"{path}: pictures need matplotlib (pip install 'dmcmc[plot]'); .dot needs nothing")
    check_writable(path)


def _draw_primal(problem: Problem, axes: Any) -> None:
    from matplotlib import colormaps

    graph = primal_graph(problem)
    colours = colormaps["tab20"]
    nx.draw_networkx(
        graph,
        nx.spring_layout(graph, seed=0, iterations=50 if len(graph) < 500 else 15),
        ax=axes,
        with_labels=len(graph) <= _NAMED,
        labels=dict(enumerate(problem.variables)),
        node_size=220 if len(graph) <= _NAMED else 40,
        node_color=[colours(int(agent) % 20) for agent in problem.owner],
        edge_color="#bbbbbb",
        font_size=7,
    )
    axes.set_title("variables, coloured by agent", fontsize=10, color=_INK)
    axes.axis("off")


def _draw_tree(facts: GraphFacts, axes: Any) -> None:
    """Draw the pseudo-tree; a number at an edge is how many variables the UTIL message ranges over."""
    from matplotlib import colormaps

    tree: nx.DiGraph[str] = nx.DiGraph()
    number = {agent.name: i for i, agent in enumerate(facts.agents)}
    tree.add_nodes_from(number)
    tree.add_edges_from((agent.parent, agent.name) for agent in facts.agents if agent.parent is not None)
    place = _layered(tree)
    colours = colormaps["tab20"]
    named = len(tree) <= _NAMED
    nx.draw_networkx(
        tree,
        place,
        ax=axes,
        with_labels=named,
        node_size=420 if named else 40,
        node_color=[colours(number[name] % 20) for name in tree],
        edge_color="#888888",
        arrows=False,
        font_size=7,
    )
    if named:
        separators = {(a.parent, a.name): len(a.separator) for a in facts.agents if a.parent is not None}
        nx.draw_networkx_edge_labels(tree, place, separators, ax=axes, font_size=7)
    axes.set_title("pseudo-tree of the agents, and variables in each message", fontsize=10, color=_INK)
    axes.axis("off")


def _layered(tree: "nx.DiGraph[str]") -> dict[str, tuple[float, float]]:
    """Return places: leaves next to each other, parents above the middle of their children."""
    place: dict[str, tuple[float, float]] = {}
    leaves = 0
    for root in (name for name in tree if tree.in_degree(name) == 0):
        depth = nx.single_source_shortest_path_length(tree, root)
        for name in nx.dfs_postorder_nodes(tree, root):
            children = [place[c][0] for c in tree.successors(name)]
            if not children:
                leaves += 1
            place[name] = (sum(children) / len(children) if children else float(leaves), -float(depth[name]))
    return place


def dot(problem: Problem, facts: GraphFacts) -> Iterator[str]:
    """Yield both graphs in Graphviz's language: agents as clusters of variables, the pseudo-tree between them."""
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
    for a, about in enumerate(facts.agents):
        yield f"  a{a} [label={_quoted(about.name)}];\n"
        if about.parent is not None:
            yield f'  a{number[about.parent]} -> a{a} [label="{len(about.separator)}"];\n'
    yield "}\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
