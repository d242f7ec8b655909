"""Web pages in one HTML file each, with tables and charts drawn as SVG, and numbers as people read them.

A *colour number* n ≥ 0 stands for colour n modulo the number of colours of the page; numbers beyond these get dashed,
then dotted lines. ``PLAIN`` and ``DASHED`` are grey. Positions are in SVG units, with y growing downwards.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, isfinite, log10

PALETTE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5c6577; --line: #d9dde6; --paper: #fff; --shade: #f3f5f9;
  --c0: #2563c9; --c1: #d1570f; --c2: #17825a; --c3: #a92d83; --c4: #8a6a00; --c5: #0b7f95; --c6: #c02d2d; --c7:
  #6d5bd0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --soft: #9aa4b8; --line: #3a4152; --paper: #171b24;
  --shade: #1f2531; --c0: #7aa7ff; --c1: #ff9a5a; --c2: #5fd3a2; --c3: #f088cc; --c4: #e0bd4a; --c5: #5ccfe6;
  --c6: #ff7f7f; --c7: #b3a6ff; } }
"""
_STYLE = """
* { box-sizing: border-box; }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .4rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { max-width: 52rem; } .soft { color: var(--soft); font-size: .88rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
td, th { padding: .22rem .65rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; background: var(--shade); } td:first-child, th:first-child, .by2 td:nth-child(2),
.by2 th:nth-child(2) { text-align: left; }
tr.first td { border-top: 2px solid var(--line); } .best { font-weight: 700; } .bad { color: var(--c6); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(24rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; break-inside: avoid; } svg { width: 100%; height: auto; display: block; } figcaption { font-weight:
600;
  font-size: .92rem; margin-bottom: .2rem; } .legend { font-size: .8rem; color: var(--soft); } .legend b { margin-right:
  .9rem; font-weight: 500; white-space: nowrap; } .legend i { display: inline-block; width: .9rem; height: .25rem;
  margin-right: .3rem; vertical-align: middle; } .bar { fill: var(--c0); } .slots td { min-width: 1.6rem; padding:
  .15rem .25rem; border-left: 1px solid var(--line); font-size: .72rem; text-align: center; } .held { background:
  var(--shade); }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --shade: #f2f2f2; --c0: #1f55b0;
  --c1: #b84a0a; --c2: #126b4a; --c3: #8f2570; --c4: #6f5500; --c5: #08697c; --c6: #a02020; --c7: #5647b0; }
  body { margin: 0; max-width: none; font-size: 11px; } .charts { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; } table { font-size: 8px; } td, th { padding: .15rem .3rem; white-space: normal; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } .legend i, th { print-color-adjust: exact; } }
"""
COLOURS = 8  # colours c0 to c7 of the palette


def page(title: str, parts: Iterable[str]) -> str:
    """Return a web page with a title and parts that are HTML."""
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{PALETTE}{_STYLE}</style></head><body>'
    )
    return "\n".join([head, f"<h1>{escape(title)}</h1>", *parts, "</body></html>", ""])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], groups: frozenset[int] = frozenset()) -> str:
    """Return an HTML table.

    Parameters
    ----------
    head
        Headings of the columns. A second column with the heading ``method`` is aligned as text.
    rows
        The cells of each row. A cell that begins with ``!`` is marked as a problem.
    groups
        Numbers of the rows with a line above them.
    """
    kind = ' class="by2"' if list(head[1:2]) == ["method"] else ""
    lines = [f'<div class="wide"><table{kind}><tr>' + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    for number, row in enumerate(rows):
        cells = "".join(_cell(text) for text in row)
        first = ' class="first"' if number in groups else ""
        lines.append(f"<tr{first}>{cells}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _cell(text: str) -> str:
    """Return one cell; ``!`` in front marks a problem."""
    return f'<td class="bad">{escape(text[1:])}</td>' if text.startswith("!") else f"<td>{escape(text)}</td>"


# Size of a chart in SVG units.
WIDTH = 460
HEIGHT = 270
# Margins of the drawing area.
_LEFT = 62
_RIGHT = 12
_TOP = 10
_BOTTOM = 40
_MAX_BARS = 40  # bars of a bar chart; also the most points of a line that are marked
# Limits for values that decide the range of an axis: the range of an axis and its tick marks stay finite and distinct.
_MAX_VALUE = 1e300
_MIN_LOG_VALUE = 1e-300
DASHES = ((1, 0), (6, 4), (2, 3))  # solid, dashed, dotted: drawn and empty length, when a colour is used again


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes
    ----------
    name : str
        Its name in the legend.
    points : sequence of (x, y, low, high)
        ``low`` and ``high`` are the ends of an interval around ``y``, which is drawn as a band; equal to ``y`` without
        one.
    steps : bool
        Whether the line is a step function; otherwise it joins the points directly.
    colour : int
        Colour number.
    """

    name: str
    points: Sequence[tuple[float, float, float, float]]
    steps: bool = False
    colour: int = 0


# Colour numbers of grey lines: solid and dashed.
PLAIN = -1
DASHED = -2


@dataclass(frozen=True)
class VerticalSegment:
    """A vertical segment of a step function with a separate colour: its position, its ends and its colour."""

    x: float
    low: float
    high: float
    colour: int


@dataclass(frozen=True)
class LegendEntry:
    """An entry of the legend for vertical segments: the meaning of a colour."""

    name: str
    colour: int


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    title, x, y : str
        Headline, and names of the axes.
    series : sequence of Series
        The lines.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    segments : sequence of VerticalSegment
        Coloured vertical segments on top of the lines.
    legend : sequence of LegendEntry
        The meaning of the colours of ``segments``.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series] = field(default_factory=list)
    log_x: bool = False
    log_y: bool = False
    segments: Sequence[VerticalSegment] = ()
    legend: Sequence[LegendEntry] = ()


class _Axis:
    """Maps values to positions along one side of a chart.

    Attributes
    ----------
    log : bool
        Whether the axis is logarithmic; ``low`` and ``high`` are then decimal logarithms.
    start, end : float
        Positions of ``low`` and ``high`` in SVG units.
    low, high : float
        Ends of the range of values, with a margin of 4 % on both sides. A range of (nearly) a single value is widened.
    """

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float) -> None:
        self.log, self.start, self.end = log, start, end
        usable = [v for v in values if abs(v) <= _MAX_VALUE and (v >= _MIN_LOG_VALUE or not log)]
        low, high = (min(usable), max(usable)) if usable else (1.0, 2.0)
        if log:
            low, high = log10(low), log10(high)
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = (
                low - (0.5 if log else max(1.0, abs(low)) * 0.05),
                high + (0.5 if log else abs(high) * 0.05 or 1.0),
            )
        margin = 0.04 * (high - low)
        self.low, self.high = low - margin, high + margin

    def place(self, value: float) -> float:
        """Return the position of a value; values without a logarithm are at the low end."""
        coordinate = (log10(value) if value >= _MIN_LOG_VALUE else self.low) if self.log else value
        share = (min(max(coordinate, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values of the tick marks with their labels.

        A logarithmic axis over more than 1.5 powers of ten has marks at powers of ten. All others have at most about
        six marks, at multiples of 1, 2, 2.5, 5 or 10 times a power of ten.
        """
        if self.log and self.high - self.low > 1.5:
            step = max(1, ceil((self.high - self.low) / 6))
            return [(10.0**p, _power(p)) for p in range(ceil(self.low), floor(self.high) + 1, step)]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        size = 10 ** floor(log10((high - low) / 4))
        step_size = next((k * size for k in (1, 2, 2.5, 5, 10) if (high - low) / (k * size) <= 6), 10 * size)
        first = ceil(low / step_size)
        return [(i * step_size, f"{i * step_size:.6g}") for i in range(first, floor(high / step_size) + 1)]


def _power(exponent: int) -> str:
    """Return a power of ten as text."""
    return f"{10.0**exponent:g}" if -4 <= exponent <= 5 else f"1e{exponent}"


def svg(chart: Chart) -> str:
    """Return a chart as an HTML figure with headline and legend."""
    entries: list[Series | LegendEntry] = [*chart.series, *chart.legend]
    legend = "".join(f'<b><i style="background:{_swatch(e.colour)}"></i>{escape(e.name)}</b>' for e in entries)
    caption = f"<figcaption>{escape(chart.title)}</figcaption>"
    return f'<figure>{caption}{drawing(chart)}<div class="legend">{legend}</div></figure>'


def drawing(chart: Chart, attributes: str = "") -> str:
    """Return the SVG of a chart without headline and legend; ``attributes`` are added to the element."""
    xs = [p[0] for s in chart.series for p in s.points]
    ys = [v for s in chart.series for p in s.points for v in p[1:]]
    ys += [v for step in chart.segments for v in (step.low, step.high)]
    across = _Axis(xs, chart.log_x, _LEFT, WIDTH - _RIGHT)
    up = _Axis(ys, chart.log_y, HEIGHT - _BOTTOM, _TOP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}"{attributes}>']
    for value, name in across.ticks():
        x = across.place(value)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="var(--line)"/>')
        parts.append(_text(x, HEIGHT - _BOTTOM + 14, name, "middle"))
    for value, name in up.ticks():
        y = up.place(value)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        parts.append(_text(_LEFT - 6, y + 4, name, "end"))
    parts.append(_text((_LEFT + WIDTH) / 2, HEIGHT - 6, chart.x, "middle"))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(f'<g transform="rotate(-90 12 {middle:.0f})">{_text(12, middle, chart.y, "middle")}</g>')
    for series in chart.series:
        parts.append(_line(series, colour_of(series.colour), across, up))
    for step in chart.segments:
        x, low, high = across.place(step.x), up.place(step.low), up.place(step.high)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high:.1f}" y2="{low:.1f}" stroke="{colour_of(step.colour)}" '
            f'stroke-width="5"{_dashes(step.colour)}/>'
        )
    return "".join([*parts, "</svg>"])


def colour_of(number: int) -> str:
    """Return the CSS value of a colour number."""
    return f"var(--c{number % COLOURS})" if number >= 0 else "var(--soft)"


def _dashed(number: int) -> tuple[int, int]:
    """Return the drawn and the empty length of the dashes of a colour number.

    When the colours are used again, the next line style is taken; ``PLAIN`` is solid, ``DASHED`` dashed.
    """
    return DASHES[number // COLOURS % len(DASHES) if number >= 0 else PLAIN - number]


def _dashes(number: int) -> str:
    """Return the dashes as an SVG attribute; empty for a solid line."""
    on, off = _dashed(number)
    return f' stroke-dasharray="{on} {off}"' if off else ""


def _swatch(number: int) -> str:
    """Return the CSS background of a legend entry: solid, dashed or dotted."""
    colour, (on, off) = colour_of(number), _dashed(number)
    return f"repeating-linear-gradient(90deg,{colour} 0 {on}px,transparent {on}px {on + off}px)" if off else colour


def _text(x: float, y: float, text: str, anchor: str) -> str:
    """Return an SVG text element."""
    style = f'font-size="11" fill="var(--soft)" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _line(series: Series, colour: str, across: _Axis, up: _Axis) -> str:
    """Return the SVG of one line: its intervals as a band and, if there are few points, these as dots.

    Points with infinite or missing numbers are left out; empty if none is left.
    """
    points = [p for p in series.points if all(map(isfinite, p))]
    if not points:
        return ""
    positions: list[tuple[float, float]] = []
    for x, y, _, _ in points:
        position = (across.place(x), up.place(y))
        if series.steps and positions:
            positions.append((position[0], positions[-1][1]))
        positions.append(position)
    drawn = []
    if any(low < high for _, _, low, high in points):
        band = [(across.place(x), up.place(high)) for x, _, _, high in points]
        band += [(across.place(x), up.place(low)) for x, _, low, _ in reversed(points)]
        drawn.append(f'<polygon points="{_points(band)}" fill="{colour}" opacity=".15"/>')
    dashes = _dashes(series.colour)
    drawn.append(f'<polyline points="{_points(positions)}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    if not series.steps and len(points) <= _MAX_BARS:
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in positions]
    return "".join(drawn)


def _points(places: Sequence[tuple[float, float]]) -> str:
    """Return positions as the value of an SVG ``points`` attribute."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def bars(title: str, values: Sequence[tuple[str, float]], unit: str, colours: Mapping[str, int] | None = None) -> str:
    """Return a horizontal bar chart of the 40 largest values; ``colours`` are colour numbers by name."""
    largest = sorted(values, key=lambda pair: -pair[1])[:_MAX_BARS]
    max_value = max((value for _, value in largest), default=0.0) or 1.0
    height = 18 * len(largest) + 4
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for i, (name, value) in enumerate(largest):
        width = max(1.0, 280 * value / max_value)
        parts.append(_text(84, 18 * i + 13, name, "end"))
        fill = f' style="fill:{colour_of(colours[name])}"' if colours else ""
        parts.append(f'<rect class="bar" x="90" y="{18 * i + 3}" width="{width:.1f}" height="12" rx="2"{fill}/>')
        parts.append(_text(96 + width, 18 * i + 13, f"{value:,.6g} {unit}".strip(), "start"))
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}</svg></figure>"


_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_FIRST_ABBREVIATED = 10**7  # smaller counts are written out, with at most nine characters
_FIRST_EXPONENTIAL = 10**15  # larger counts are written with an exponent


def short(number: float) -> str:
    """Return a count as text of at most nine characters.

    >>> short(1234567), short(208_369_728), short(3e27)
    ('1,234,567', '208 M', '3.0e27')
    """
    if number < _FIRST_ABBREVIATED:
        return f"{number:,.0f}"
    if number >= _FIRST_EXPONENTIAL:
        return "> 1e300" if number > 10**300 else f"{float(number):.1e}".replace("e+", "e")
    size, unit = next((size, unit) for size, unit in _UNITS if number >= size)
    return f"{number / size:.3g} {unit}"


def literal(text: str) -> str:
    r"""Return text for matplotlib, which would read the part between two dollar signs as a formula.

    >>> print(literal("cost in $"))
    cost in \$
    """
    return text.replace("$", r"\$")


def shares_of(gains: Sequence[float]) -> list[float]:
    """Return each number as a share of the sum of all; 0 if the sum is not positive.

    >>> shares_of([3.0, 1.0, 0.0]), shares_of([0.0])
    ([0.75, 0.25, 0.0], [0.0])
    """
    total = sum(gains)
    return [gain / total if total > 0 else 0.0 for gain in gains]
