"""Draw the packages: `python docs/packages.py` writes `packages.svg` and `packages.md`.

The picture has one band per top-level folder; a band imports only from the bands below it. A box is a folder directly
below a top-level folder, with its purpose; folders inside it are not drawn. Within a band, boxes that are imported by
others stand further down. The output is deterministic.
"""

import ast
import re
from html import escape
from pathlib import Path
from textwrap import shorten, wrap

import networkx as nx
from imports import TOP_FOLDERS, File, files, package_graph

HERE = Path(__file__).resolve().parent
COLOURS = {"dmcmc": "#dbe9fb", "mpi": "#fbe3d0", "samplers": "#dff1dc", "inference": "#f4e8f7"}
EDGES = {"dmcmc": "#3f74b5", "mpi": "#c2702b", "samplers": "#3f8a4b", "inference": "#84569a"}
COLUMNS, WIDTH, HEIGHT, GAP = 5, 176, 52, 6  # boxes per row; pixels: size of a box, and space between boxes
LETTERS, LINES = 30, 2  # letters per line of a purpose, lines of a purpose


def stems(code: list[File], package: str) -> list[str]:
    """Return the names of a package's files, without suffixes."""
    names = [file.name.removesuffix(".py") for file in code if file.package == package]
    return sorted(name for name in names if name != "__init__")


def layers(graph: nx.DiGraph) -> dict[str, int]:
    """Return the layer of every package: one above the highest package that it imports."""
    rings = [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1]
    if rings:
        raise SystemExit(f"packages import each other in a cycle: {rings}")
    at: dict[str, int] = {}
    for package in reversed(list(nx.lexicographical_topological_sort(graph))):
        at[package] = 1 + max((at[below] for below in graph[package]), default=-1)
    return at


def purposes(code: list[File]) -> dict[str, str]:
    """Return the first paragraph of each package's docstring as Markdown."""
    heads = {file.package: ast.get_docstring(file.tree) or "" for file in code if file.name == "__init__.py"}
    return {package: plain(" ".join(head.split("\n\n")[0].split())) for package, head in heads.items()}


def picture(at: dict[str, int], about: dict[str, str]) -> str:
    """Return the drawing as SVG text; a folder stands where its highest package does."""
    highest: dict[str, int] = {}
    for package, layer in at.items():
        box = "/".join(package.split("/")[:2])
        highest[box] = max(layer, highest.get(box, 0))
    parts, y = [], 0
    for folder in reversed(TOP_FOLDERS):
        boxes = sorted((b for b in highest if b.split("/")[0] == folder), key=lambda b: (-highest[b], b))
        rows = [boxes[i : i + COLUMNS] for i in range(0, len(boxes), COLUMNS)]
        height = 24 + len(rows) * (HEIGHT + GAP)
        parts.append(
            f'<rect x="0" y="{y}" width="{COLUMNS * (WIDTH + GAP) + GAP}" height="{height}" rx="6" fill="#f6f6f6"/>'
            f'<text x="{GAP}" y="{y + 17}" font-size="14" font-weight="bold" fill="{EDGES[folder]}">{folder}/</text>'
        )
        for number, row in enumerate(rows):
            for column, box in enumerate(row):
                x = GAP + column * (WIDTH + GAP)
                parts.append(_box(box, about.get(box, ""), x, y + 24 + number * (HEIGHT + GAP)))
        y += height + 2 * GAP
    width = COLUMNS * (WIDTH + GAP) + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
        'font-family="DejaVu Sans, Verdana, sans-serif">'
    )
    title = "<title>The packages of dmcmc; a band imports only from the bands below it</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _box(package: str, purpose: str, x: int, y: int) -> str:
    """Return the box of a folder: its name and its purpose."""
    folder, _, name = package.partition("/")
    lines = wrap(shorten(purpose.replace("`", ""), LETTERS * LINES - 4, placeholder=" ..."), LETTERS)[:LINES]
    texts = [
        f'<text x="{x + 8}" y="{y + 31 + 13 * i}" font-size="10" fill="#444">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{COLOURS[folder]}" '
        f'stroke="{EDGES[folder]}"/>'
        f'<text x="{x + 8}" y="{y + 16}" font-size="12" font-weight="bold">{escape(name or folder)}</text>'
        + "".join(texts)
    )


def text(graph: nx.DiGraph, at: dict[str, int], code: list[File]) -> str:
    """Return the import graph as a Markdown table: layer, package, purpose, files and imports."""
    about = purposes(code)
    lines = [
        "# Packages",
        "",
        "Generated from the import statements by `python docs/packages.py`; a test checks that it is up to date. A",
        "package stands one layer above the highest package that it imports. Modules loaded by name at run time",
        "(format readers, plug-ins) do not count as imports.",
        "",
        "[![The packages of dmcmc](packages.svg)](packages.svg)",
        "",
        "| layer | package | purpose | files | imports |",
        "|---|---|---|---|---|",
    ]
    folder = {package: TOP_FOLDERS.index(package.split("/")[0]) for package in graph}
    for package in sorted(graph, key=lambda package: (-at[package], -folder[package], package)):
        names = ", ".join(f"`{stem}`" for stem in stems(code, package)) or "–"
        below = ", ".join(f"`{other}`" for other in sorted(graph[package])) or "–"
        lines.append(f"| {at[package]} | `{package}` | {about[package]} | {names} | {below} |")
    return "\n".join([*lines, ""])


def plain(docstring: str) -> str:
    """Return a docstring's text as Markdown: roles and double backticks become code."""
    return re.sub(r"(?::\w+:)?``?~?([^`]+)``?", r"`\1`", docstring)


def draw() -> dict[str, str]:
    """Return the contents of the files that this script writes, by file name."""
    code = files(*TOP_FOLDERS)
    graph = package_graph(code)
    about = purposes(code)
    graph.remove_nodes_from([package for package in list(graph) if not stems(code, package)])  # only an __init__.py
    at = layers(graph)
    return {"packages.svg": picture(at, about), "packages.md": text(graph, at, code)}


if __name__ == "__main__":
    for name, content in draw().items():
        (HERE / name).write_text(content, encoding="utf-8")
