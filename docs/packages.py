"""Draw the import graph of packages: `python docs/packages.py` writes `packages.svg` and `packages.md`.

A package stands one layer above the highest package that it imports, so every arrow points down. Arrows that follow
from others are left out (transitive reduction). The layout follows Sugiyama, Tagawa and Toda (1981): an
arrow across several layers gets a placeholder on each, packages are ordered by the mean position of their neighbours
to reduce crossings, and coordinates are as close to those means as the widths allow. The output is deterministic.
"""

import ast
import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import wrap

import networkx as nx
from imports import TOP_FOLDERS, File, files, package_graph

HERE = Path(__file__).resolve().parent
COLOURS = {"dmcmc": "#dbe9fb", "mpi": "#fbe3d0", "samplers": "#dff1dc", "inference": "#f4e8f7"}
EDGES = {"dmcmc": "#3f74b5", "mpi": "#c2702b", "samplers": "#3f8a4b", "inference": "#84569a"}
CHARACTER, LINE, HEAD, PAD = 6.3, 14, 17, 9  # pixels: letter width, line height, title height, padding
COLUMNS = 33  # letters per line of file names
BETWEEN, ABOVE = 26, 40  # pixels between packages, and between layers
LANE = 12  # pixels that an arrow takes on a layer it crosses
MARGIN = 56
SWEEPS = 40
FURTHER = 1.8  # over-relaxation factor of the step towards the mean


@dataclass
class LayerItem:
    """A package on its layer, or the placeholder where an arrow crosses a layer."""

    package: str = ""
    lines: list[str] = field(default_factory=list)
    x: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels."""
        if not self.package:
            return LANE
        return 2 * PAD + CHARACTER * max(len(self.package) * 1.3, *(len(line) for line in self.lines))

    @property
    def height(self) -> float:
        """Height in pixels; 0 for a placeholder."""
        return HEAD + LINE * len(self.lines) + 2 * PAD if self.package else 0


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


class Picture:
    """The layered drawing; layers are listed from the lowest, and ``links`` lead from a layer to the one below."""

    def __init__(self, graph: nx.DiGraph, at: dict[str, int], code: list[File]) -> None:
        names = {package: ", ".join(stems(code, package)) for package in graph}
        lines = {package: wrap(names[package], COLUMNS, break_on_hyphens=False) or [" "] for package in graph}
        items = {package: LayerItem(package, lines[package]) for package in graph}
        folder = {package: TOP_FOLDERS.index(package.split("/")[0]) for package in graph}
        self.layers: list[list[LayerItem]] = [[] for _ in range(1 + max(at.values()))]
        for package in sorted(graph, key=lambda package: (-folder[package], package)):
            self.layers[at[package]].append(items[package])
        # Per layer: the id of an item -> the items linked below it.
        self.links: list[dict[int, list[LayerItem]]] = [{} for _ in self.layers]
        self.paths: list[list[LayerItem]] = []
        for above, below in sorted(nx.transitive_reduction(graph).edges):
            lanes = [LayerItem() for _ in range(at[above] - at[below] - 1)]
            path = [items[above], *lanes, items[below]]
            for layer, lane in zip(range(at[above] - 1, at[below], -1), lanes, strict=True):
                self.layers[layer].append(lane)
            for layer, (a, b) in zip(range(at[above], at[below], -1), pairwise(path), strict=True):
                self.links[layer].setdefault(id(a), []).append(b)
            self.paths.append(path)

    def neighbours(self, layer: int) -> dict[int, list[LayerItem]]:
        """Return the linked items below and above, per item of a layer."""
        found = {id(item): list(self.links[layer].get(id(item), ())) for item in self.layers[layer]}
        if layer + 1 < len(self.layers):
            for item in self.layers[layer + 1]:
                for below in self.links[layer + 1].get(id(item), ()):
                    found[id(below)].append(item)
        return found

    def crossings(self) -> int:
        """Count the pairs of links that cross."""
        count = 0
        for layer in range(1, len(self.layers)):
            rank = {id(item): i for i, item in enumerate(self.layers[layer - 1])}
            ends = [rank[id(b)] for a in self.layers[layer] for b in self.links[layer].get(id(a), ())]
            starts = [i for i, a in enumerate(self.layers[layer]) for _ in self.links[layer].get(id(a), ())]
            pairs = list(zip(starts, ends, strict=True))
            count += sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(pairs) for c, d in pairs[:i])
        return count

    def order(self) -> None:
        """Order every layer by the mean rank of its neighbours; keep the order with the fewest crossings."""
        best, least = [list(layer) for layer in self.layers], self.crossings()
        for sweep in range(SWEEPS):
            down = range(len(self.layers) - 1, -1, -1)
            for layer in down if sweep % 2 else reversed(down):
                neighbour = layer + 1 if sweep % 2 else layer - 1
                if not 0 <= neighbour < len(self.layers):
                    continue
                rank = {id(item): i for i, item in enumerate(self.layers[neighbour])}
                linked = self.neighbours(layer)
                size = len(self.layers[layer])
                place = {}
                for i, item in enumerate(self.layers[layer]):
                    ranks = [rank[id(other)] for other in linked[id(item)] if id(other) in rank]
                    place[id(item)] = sum(ranks) / len(ranks) / len(rank) if ranks else i / size
                self.layers[layer].sort(key=lambda item, place=place: place[id(item)])
            if (now := self.crossings()) < least:
                best, least = [list(layer) for layer in self.layers], now
        self.layers = best

    def arrange(self) -> None:
        """Set the x coordinates: close to the mean of the neighbours, without overlaps."""
        for layer in self.layers:
            spread(layer, [0.0] * len(layer))
        for sweep in range(12 * SWEEPS):
            up = range(len(self.layers))
            for number in up if sweep % 2 else reversed(up):
                linked = self.neighbours(number)
                layer = self.layers[number]
                spread(layer, [pull(item, linked[id(item)]) for item in layer])
        left = min(item.x - item.width / 2 for layer in self.layers for item in layer)
        for layer in self.layers:
            for item in layer:
                item.x = round(item.x - left + MARGIN, 1)

    def svg(self) -> str:
        """Return the drawing as SVG text."""
        heights = [max(item.height for item in layer) for layer in self.layers]
        top = [0.0] * len(heights)
        y = MARGIN
        for number in reversed(range(len(heights))):
            top[number] = y
            y += heights[number] + ABOVE
        width = max(item.x + item.width / 2 for layer in self.layers for item in layer) + PAD + MARGIN / 2
        level = {id(item): number for number, layer in enumerate(self.layers) for item in layer}
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" '
            f'viewBox="0 0 {width:.0f} {y:.0f}" font-family="DejaVu Sans, Verdana, sans-serif">',
            "<title>The packages of dmcmc and their imports</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
            '<rect width="100%" height="100%" fill="white"/>',
        ]
        for number, height in enumerate(heights):
            parts.append(
                f'<rect x="{MARGIN / 2}" y="{top[number] - 6:.1f}" width="{width - MARGIN / 2 - PAD:.1f}" '
                f'height="{height + 12:.1f}" rx="6" fill="#f6f6f6"/>'
                f'<text x="{MARGIN / 4 + 2}" y="{top[number] + height / 2 + 4:.1f}" font-size="12" fill="#888" '
                f'text-anchor="middle">{number}</text>'
            )
        parts += [self._key(width)]
        for path in self.paths:
            parts.append(_arrow(path, [(top[n], heights[n]) for n in (level[id(item)] for item in path)]))
        for number, layer in enumerate(self.layers):
            parts += [_box(item, top[number] + (heights[number] - item.height) / 2) for item in layer if item.package]
        return "\n".join([*parts, "</svg>", ""])

    @staticmethod
    def _key(width: float) -> str:
        """Return the legend of colours and arrows."""
        parts, x = [], MARGIN / 2
        for folder in reversed(TOP_FOLDERS):
            parts.append(
                f'<rect x="{x}" y="16" width="16" height="16" rx="3" fill="{COLOURS[folder]}" '
                f'stroke="{EDGES[folder]}"/>'
                f'<text x="{x + 22}" y="29" font-size="13">{folder}/</text>'
            )
            x += 110
        note = "arrow: imports; omitted where it follows from other arrows"
        return "".join(parts) + f'<text x="{x}" y="29" font-size="12" fill="#555">{note}</text>'


def pull(item: LayerItem, linked: list[LayerItem]) -> float:
    """Return the weighted mean position of the neighbours; long arrows have large weights to stay straight."""
    if not linked:
        return item.x
    weights = [1 if item.package and other.package else 2 if item.package or other.package else 8 for other in linked]
    mean = sum(w * other.x for w, other in zip(weights, linked, strict=True)) / sum(weights)
    return item.x + FURTHER * (mean - item.x)


def spread(layer: list[LayerItem], targets: list[float]) -> None:
    """Place items in their order, at the least squared distance from their targets (pool adjacent violators)."""
    offsets = [0.0]
    for a, b in pairwise(layer):
        gap = BETWEEN if a.package and b.package else LANE
        offsets.append(offsets[-1] + (a.width + b.width) / 2 + gap)
    pools: list[tuple[float, int]] = []  # mean, number of members
    for target, offset in zip(targets, offsets, strict=True):
        pools.append((target - offset, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m)]
    places = [mean for mean, members in pools for _ in range(members)]
    for item, place, offset in zip(layer, places, offsets, strict=True):
        item.x = place + offset


def _box(item: LayerItem, y: float) -> str:
    """Return the box of a package: its name and the names of its files."""
    folder = item.package.split("/")[0]
    x = item.x - item.width / 2
    lines = [
        f'<text x="{item.x}" y="{y + PAD + HEAD + LINE * i + 10:.1f}" font-size="11" fill="#444" '
        f'text-anchor="middle">{escape(line)}</text>'
        for i, line in enumerate(item.lines)
    ]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{item.width:.1f}" height="{item.height}" rx="5" '
        f'fill="{COLOURS[folder]}" stroke="{EDGES[folder]}"/>'
        f'<text x="{item.x}" y="{y + PAD + 9:.1f}" font-size="12" font-weight="bold" '
        f'text-anchor="middle">{escape(item.package)}</text>' + "".join(lines)
    )


def _arrow(path: list[LayerItem], bands: list[tuple[float, float]]) -> str:
    """Return an arrow between two packages through its placeholders: straight within a layer, curved between layers."""
    folder = path[0].package.split("/")[0]
    (item, (top, height)), *others = zip(path, bands, strict=True)
    x, y = item.x, top + height
    steps = [f"M{x},{top + (height + item.height) / 2:.1f} V{y:.1f}"]
    for item, (top, height) in others:
        bend = (y + top) / 2
        steps.append(f"C{x},{bend:.1f} {item.x},{bend:.1f} {item.x},{top:.1f}")
        x, y = item.x, top + height
        steps.append(f"V{top + (height - item.height) / 2 if item.package else y:.1f}")
    return (
        f'<path d="{" ".join(steps)}" fill="none" stroke="{EDGES[folder]}" stroke-width="1.3" '
        f'opacity="0.85" marker-end="url(#tip)"/>'
    )


def text(graph: nx.DiGraph, at: dict[str, int], code: list[File]) -> str:
    """Return the import graph as a Markdown table: layer, package, purpose, files and imports."""
    about = {file.package: ast.get_docstring(file.tree) or "" for file in code if file.name == "__init__.py"}
    lines = [
        "# Packages",
        "",
        "Generated from the import statements by `python docs/packages.py`; a test checks that it is up to date. A",
        "package stands one layer above the highest package that it imports. Modules loaded by name at run time",
        "(format readers, plug-ins) do not count as imports.",
        "",
        "[![The packages of dmcmc and their imports](packages.svg)](packages.svg)",
        "",
        "| layer | package | purpose | files | imports |",
        "|---|---|---|---|---|",
    ]
    folder = {package: TOP_FOLDERS.index(package.split("/")[0]) for package in graph}
    for package in sorted(graph, key=lambda package: (-at[package], -folder[package], package)):
        first = plain(" ".join(about[package].split("\n\n")[0].split()))
        names = ", ".join(f"`{stem}`" for stem in stems(code, package)) or "–"
        below = ", ".join(f"`{other}`" for other in sorted(graph[package])) or "–"
        lines.append(f"| {at[package]} | `{package}` | {first} | {names} | {below} |")
    return "\n".join([*lines, ""])


def plain(docstring: str) -> str:
    """Return a docstring's text as Markdown: roles and double backticks become code."""
    return re.sub(r"(?::\w+:)?``?~?([^`]+)``?", r"`\1`", docstring)


def draw() -> dict[str, str]:
    """Return the contents of the files that this script writes, by file name."""
    code = files(*TOP_FOLDERS)
    graph = package_graph(code)
    graph.remove_nodes_from([package for package in list(graph) if not stems(code, package)])  # only an __init__.py
    at = layers(graph)
    picture = Picture(graph, at, code)
    picture.order()
    picture.arrange()
    return {"packages.svg": picture.svg(), "packages.md": text(graph, at, code)}


if __name__ == "__main__":
    for name, content in draw().items():
        (HERE / name).write_text(content, encoding="utf-8")
