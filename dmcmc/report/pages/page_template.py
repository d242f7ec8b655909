"""The template of the web pages of experiments and results: style sheet, page and table."""

from collections.abc import Iterable, Sequence
from html import escape

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
