"""Draw charts next to each other as one SVG picture that follows the reader's light or dark colour scheme."""

from collections.abc import Sequence
from html import escape

from dmcmc.report.pages.chart import DASHES, HEIGHT, WIDTH, Chart, drawing
from dmcmc.report.pages.page_template import COLOURS, PALETTE

_COLUMNS = 2  # charts per row
# pixels: height of a chart's title, of the picture's title, of a line of notes; width of a legend entry
_TITLE = 26
_HEAD = 46
_ROW = 18
_LEGEND = 150
_FONT = 'font-family="system-ui, sans-serif"'


def picture(title: str, notes: Sequence[str], charts: Sequence[Chart]) -> str:
    """Return the SVG text of charts below a title and notes, with one legend for all charts."""
    names = {series.name: series.colour for chart in charts for series in chart.series}
    top = _HEAD + _ROW * len(notes)
    columns = min(_COLUMNS, max(1, len(charts)))
    rows = -(-len(charts) // columns)
    width, height = columns * WIDTH, top + rows * (HEIGHT + _TITLE) + 2 * _TITLE
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} {_FONT}>',
        f'<style>{PALETTE}</style><rect {size} fill="var(--paper)"/>',
        f'<text x="16" y="26" font-size="17" font-weight="600" fill="var(--ink)">{escape(title)}</text>',
    ]
    for number, note in enumerate(notes):
        at = _HEAD + _ROW * number
        parts.append(f'<text x="16" y="{at}" font-size="12" fill="var(--soft)">{escape(note)}</text>')
    for number, chart in enumerate(charts):
        x, y = number % columns * WIDTH, top + number // columns * (HEIGHT + _TITLE)
        parts.append(
            f'<text x="{x + 62}" y="{y + 16}" font-size="13" font-weight="600" fill="var(--ink)">'
            f"{escape(chart.title)}</text>"
        )
        parts.append(drawing(chart, f' x="{x}" y="{y + _TITLE}" width="{WIDTH}" height="{HEIGHT}"'))
    for number, (name, colour) in enumerate(names.items()):
        parts.append(_entry(62 + _LEGEND * number, height - 18, name, colour))
    return "\n".join([*parts, "</svg>", ""])


def _entry(x: float, y: float, name: str, number: int) -> str:
    """Return a legend entry: a line in the style of its series, and the name."""
    dash, space = DASHES[number // COLOURS % len(DASHES)]
    dashes = f' stroke-dasharray="{dash} {space}"' if space else ""
    line = (
        f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="var(--c{number % COLOURS})" stroke-width="3"'
    )
    return f'{line}{dashes}/><text x="{x + 28}" y="{y}" font-size="12" fill="var(--ink)">{escape(name)}</text>'
