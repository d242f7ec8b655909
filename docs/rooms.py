"""Draw the rooms and what imports what: `python docs/rooms.py` writes `rooms.svg` and `rooms.md` beside it.

A room stands one floor above the highest that it imports, so every arrow leads down. An arrow is left out where others
lead the same way, by rooms between. Rooms are ordered within their floors so that few arrows cross (the method of
Sugiyama, Tagawa and Toda, 1981): an arrow over several floors gets a place on each, orders follow the means of
neighbours, and places are as near to those means as widths allow. The same imports give the same picture, to the byte.
"""

import ast
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import wrap

import networkx as nx
from imports import HOUSES, File, files, room_graph

HERE = Path(__file__).resolve().parent
COLOURS = {"dmcmc": "#dbe9fb", "mpi": "#fbe3d0", "samplers": "#dff1dc", "inference": "#f4e8f7"}
EDGES = {"dmcmc": "#3f74b5", "mpi": "#c2702b", "samplers": "#3f8a4b", "inference": "#84569a"}
CHARACTER, LINE, HEAD, PAD = 6.3, 14, 17, 9  # pixels: a letter, a line of files, a line of a title, a margin
COLUMNS = 33  # letters in a line of files
BETWEEN, ABOVE = 26, 40  # pixels between rooms, and between floors
LANE = 12  # pixels that a passing arrow takes
MARGIN = 56
SWEEPS = 40
FURTHER = 1.8  # over-relaxation: how far beyond the way to the mean


@dataclass
class Spot:
    """A room on its floor, or the place where an arrow passes one."""

    room: str = ""
    lines: list[str] = field(default_factory=list)
    x: float = 0.0

    @property
    def width(self) -> float:
        if not self.room:
            return LANE
        return 2 * PAD + CHARACTER * max(len(self.room) * 1.3, *(len(line) for line in self.lines))

    @property
    def height(self) -> float:
        return HEAD + LINE * len(self.lines) + 2 * PAD if self.room else 0


def stems(code: list[File], room: str) -> list[str]:
    """Return the names of a room's files, without endings."""
    names = [file.name.removesuffix(".py") for file in code if file.room == room]
    return sorted(name for name in names if name != "__init__")


def floors(graph: nx.DiGraph) -> dict[str, int]:
    """Return the floor of every room: one above the highest that it imports."""
    rings = [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1]
    if rings:
        raise SystemExit(f"rooms import each other: {rings}")
    at: dict[str, int] = {}
    for room in reversed(list(nx.lexicographical_topological_sort(graph))):
        at[room] = 1 + max((at[below] for below in graph[room]), default=-1)
    return at


class Picture:
    """Rooms and passing arrows, floor by floor, lowest first; ``links`` lead from a floor to the one below."""

    def __init__(self, graph: nx.DiGraph, at: dict[str, int], code: list[File]) -> None:
        names = {room: ", ".join(stems(code, room)) for room in graph}
        spots = {room: Spot(room, wrap(names[room], COLUMNS, break_on_hyphens=False) or [" "]) for room in graph}
        house = {room: HOUSES.index(room.split("/")[0]) for room in graph}
        self.floors: list[list[Spot]] = [[] for _ in range(1 + max(at.values()))]
        for room in sorted(graph, key=lambda room: (-house[room], room)):
            self.floors[at[room]].append(spots[room])
        self.links: list[dict[int, list[Spot]]] = [{} for _ in self.floors]  # by floor: id of a spot -> spots below
        self.paths: list[list[Spot]] = []
        for above, below in sorted(nx.transitive_reduction(graph).edges):
            lanes = [Spot() for _ in range(at[above] - at[below] - 1)]
            path = [spots[above], *lanes, spots[below]]
            for floor, lane in zip(range(at[above] - 1, at[below], -1), lanes, strict=True):
                self.floors[floor].append(lane)
            for floor, (a, b) in zip(range(at[above], at[below], -1), pairwise(path), strict=True):
                self.links[floor].setdefault(id(a), []).append(b)
            self.paths.append(path)

    def neighbours(self, floor: int) -> dict[int, list[Spot]]:
        """Return what each spot of a floor is linked with, below and above."""
        found = {id(spot): list(self.links[floor].get(id(spot), ())) for spot in self.floors[floor]}
        if floor + 1 < len(self.floors):
            for spot in self.floors[floor + 1]:
                for below in self.links[floor + 1].get(id(spot), ()):
                    found[id(below)].append(spot)
        return found

    def crossings(self) -> int:
        """Count the pairs of links that cross."""
        count = 0
        for floor in range(1, len(self.floors)):
            rank = {id(spot): i for i, spot in enumerate(self.floors[floor - 1])}
            ends = [rank[id(b)] for a in self.floors[floor] for b in self.links[floor].get(id(a), ())]
            starts = [i for i, a in enumerate(self.floors[floor]) for _ in self.links[floor].get(id(a), ())]
            pairs = list(zip(starts, ends, strict=True))
            count += sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(pairs) for c, d in pairs[:i])
        return count

    def order(self) -> None:
        """Order every floor by the mean ranks of neighbours, down and up again; keep the orders that cross least."""
        best, least = [list(floor) for floor in self.floors], self.crossings()
        for sweep in range(SWEEPS):
            down = range(len(self.floors) - 1, -1, -1)
            for floor in down if sweep % 2 else reversed(down):
                beside = floor + 1 if sweep % 2 else floor - 1
                if not 0 <= beside < len(self.floors):
                    continue
                rank = {id(spot): i for i, spot in enumerate(self.floors[beside])}
                linked = self.neighbours(floor)
                size = len(self.floors[floor])
                place = {}
                for i, spot in enumerate(self.floors[floor]):
                    ranks = [rank[id(other)] for other in linked[id(spot)] if id(other) in rank]
                    place[id(spot)] = sum(ranks) / len(ranks) / len(rank) if ranks else i / size
                self.floors[floor].sort(key=lambda spot, place=place: place[id(spot)])
            if (now := self.crossings()) < least:
                best, least = [list(floor) for floor in self.floors], now
        self.floors = best

    def arrange(self) -> None:
        """Give every spot its x: near the mean of its neighbours, no two too near to each other."""
        for floor in self.floors:
            spread(floor, [0.0] * len(floor))
        for sweep in range(12 * SWEEPS):
            up = range(len(self.floors))
            for number in up if sweep % 2 else reversed(up):
                linked = self.neighbours(number)
                floor = self.floors[number]
                spread(floor, [pull(spot, linked[id(spot)]) for spot in floor])
        left = min(spot.x - spot.width / 2 for floor in self.floors for spot in floor)
        for floor in self.floors:
            for spot in floor:
                spot.x = round(spot.x - left + MARGIN, 1)

    def svg(self) -> str:
        """Return the picture."""
        heights = [max(spot.height for spot in floor) for floor in self.floors]
        top = [0.0] * len(heights)
        y = MARGIN
        for number in reversed(range(len(heights))):
            top[number] = y
            y += heights[number] + ABOVE
        width = max(spot.x + spot.width / 2 for floor in self.floors for spot in floor) + PAD + MARGIN / 2
        level = {id(spot): number for number, floor in enumerate(self.floors) for spot in floor}
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" '
            f'viewBox="0 0 {width:.0f} {y:.0f}" font-family="DejaVu Sans, Verdana, sans-serif">',
            "<title>The rooms of dmcmc, and what imports what</title>",
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
            parts.append(_arrow(path, [(top[n], heights[n]) for n in (level[id(spot)] for spot in path)]))
        for number, floor in enumerate(self.floors):
            parts += [_box(spot, top[number] + (heights[number] - spot.height) / 2) for spot in floor if spot.room]
        return "\n".join([*parts, "</svg>", ""])

    @staticmethod
    def _key(width: float) -> str:
        """Return the line that says what colours and arrows mean."""
        parts, x = [], MARGIN / 2
        for house in reversed(HOUSES):
            parts.append(
                f'<rect x="{x}" y="16" width="16" height="16" rx="3" fill="{COLOURS[house]}" stroke="{EDGES[house]}"/>'
                f'<text x="{x + 22}" y="29" font-size="13">{house}/</text>'
            )
            x += 110
        note = "an arrow: imports; left out where others lead the same way"
        return "".join(parts) + f'<text x="{x}" y="29" font-size="12" fill="#555">{note}</text>'


def pull(spot: Spot, linked: list[Spot]) -> float:
    """Return the mean of neighbours' places; arrows that pass floors are kept straight before all else."""
    if not linked:
        return spot.x
    weights = [1 if spot.room and other.room else 2 if spot.room or other.room else 8 for other in linked]
    mean = sum(w * other.x for w, other in zip(weights, linked, strict=True)) / sum(weights)
    return spot.x + FURTHER * (mean - spot.x)


def spread(floor: list[Spot], wishes: list[float]) -> None:
    """Place spots in their order, in all as near as can be to what they wish (squares; pools of neighbours)."""
    offsets = [0.0]
    for a, b in pairwise(floor):
        gap = BETWEEN if a.room and b.room else LANE
        offsets.append(offsets[-1] + (a.width + b.width) / 2 + gap)
    pools: list[tuple[float, int]] = []  # mean, members
    for wish, offset in zip(wishes, offsets, strict=True):
        pools.append((wish - offset, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m)]
    places = [mean for mean, members in pools for _ in range(members)]
    for spot, place, offset in zip(floor, places, offsets, strict=True):
        spot.x = place + offset


def _box(spot: Spot, y: float) -> str:
    """Return a room: its name, and the names of its files."""
    house = spot.room.split("/")[0]
    x = spot.x - spot.width / 2
    lines = [
        f'<text x="{spot.x}" y="{y + PAD + HEAD + LINE * i + 10:.1f}" font-size="11" fill="#444" '
        f'text-anchor="middle">{escape(line)}</text>'
        for i, line in enumerate(spot.lines)
    ]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{spot.width:.1f}" height="{spot.height}" rx="5" '
        f'fill="{COLOURS[house]}" stroke="{EDGES[house]}"/>'
        f'<text x="{spot.x}" y="{y + PAD + 9:.1f}" font-size="12" font-weight="bold" '
        f'text-anchor="middle">{escape(spot.room)}</text>' + "".join(lines)
    )


def _arrow(path: list[Spot], bands: list[tuple[float, float]]) -> str:
    """Return an arrow from a room over its lanes to another: straight on a floor, bent between two."""
    house = path[0].room.split("/")[0]
    (spot, (top, height)), *others = zip(path, bands, strict=True)
    x, y = spot.x, top + height
    steps = [f"M{x},{top + (height + spot.height) / 2:.1f} V{y:.1f}"]
    for spot, (top, height) in others:
        bend = (y + top) / 2
        steps.append(f"C{x},{bend:.1f} {spot.x},{bend:.1f} {spot.x},{top:.1f}")
        x, y = spot.x, top + height
        steps.append(f"V{top + (height - spot.height) / 2 if spot.room else y:.1f}")
    return (
        f'<path d="{" ".join(steps)}" fill="none" stroke="{EDGES[house]}" stroke-width="1.3" '
        f'opacity="0.85" marker-end="url(#tip)"/>'
    )


def text(graph: nx.DiGraph, at: dict[str, int], code: list[File]) -> str:
    """Return the same in words: floor by floor, what every room is for, its files, and all that it imports."""
    about = {file.room: ast.get_docstring(file.tree) or "" for file in code if file.name == "__init__.py"}
    lines = [
        "# The rooms",
        "",
        "Made by `python docs/rooms.py` from the imports; a test holds it to them. A room is a folder; it stands one",
        "floor above the highest that it imports. What is found by name when it is needed (readers of formats,",
        "plug-ins) is not an import.",
        "",
        "![The rooms of dmcmc, and what imports what](rooms.svg)",
        "",
        "| floor | room | what lives there | files | imports |",
        "|---|---|---|---|---|",
    ]
    for room in sorted(graph, key=lambda room: (-at[room], -HOUSES.index(room.split("/")[0]), room)):
        first = " ".join(about[room].split("\n\n")[0].split())
        names = ", ".join(f"`{stem}`" for stem in stems(code, room)) or "–"
        below = ", ".join(f"`{other}`" for other in sorted(graph[room])) or "–"
        lines.append(f"| {at[room]} | `{room}` | {first} | {names} | {below} |")
    return "\n".join([*lines, ""])


def draw() -> dict[str, str]:
    """Return the files that this script writes, by name."""
    code = files(*HOUSES)
    graph = room_graph(code)
    graph.remove_nodes_from([room for room in list(graph) if not stems(code, room)])  # nothing but an __init__.py
    at = floors(graph)
    picture = Picture(graph, at, code)
    picture.order()
    picture.arrange()
    return {"rooms.svg": picture.svg(), "rooms.md": text(graph, at, code)}


if __name__ == "__main__":
    for name, content in draw().items():
        (HERE / name).write_text(content, encoding="utf-8")
