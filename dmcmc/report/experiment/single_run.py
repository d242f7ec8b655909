"""Show one result as a web page: objective and bound over time, improvers, agents, pseudo-tree and schedule."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from dmcmc.files.write import replace_file
from dmcmc.report.experiment.improver_gains import ImproverGains
from dmcmc.report.pages.chart import DASHED, PLAIN, Chart, Series, VerticalSegment, bars, svg
from dmcmc.report.pages.page_template import page, table
from dmcmc.report.summary import status_text
from dmcmc.results.stored_result import read_result

_MAX_SLOTS = 200  # limit for the columns of the schedule
_MAX_AGENTS = 60  # limit for the rows of the schedule and of the pseudo-tree
_TREE_HEAD = ("agent", "variables", "shared variables", "table rows", "messages sent", "bytes sent")
_FIRST_SECONDS = 1e-4  # seconds; start of the logarithmic time axis


def write_single(path: Path, output: Path) -> Path:
    """Write the page of a result in a JSON file of any format version; return the page's path.

    Raises
    ------
    FileError
        If the file is not the result of a run.
    """
    replace_file(output, [page_of(read_result(path), path.stem)])
    return output


def page_of(result: Mapping[str, Any], name: str) -> str:
    """Return the page of a result with the present field names."""
    status = status_text(str(result["status"]), result.get("note"))
    rows = [["status", status], ["objective", _number(result["objective"])]]
    rows += [["bound", _number(result.get("bound"))]]
    gap = result.get("gap")
    rows += [["gap", "–" if gap is None else f"{100 * gap:.4g} %"], ["time", f"{result['time']:.3f} s"]]
    if result.get("simulated_time") is not None:
        rows.append(["simulated time", f"{result['simulated_time']:.3f} s"])
    rows.append(["messages", f"{result.get('msg_count', 0):,} ({result.get('msg_size', 0):,} bytes)"])
    if result.get("note"):
        rows.append(["note", str(result["note"])])
    parts = [
        table([name, {"max": "maximise", "min": "minimise"}.get(str(result.get("sense")), "")], rows),
        '<h2>Course of the run</h2><div class="charts">',
    ]
    gains = ImproverGains(result)
    parts += [svg(chart) for chart in _over_time(result, gains)]
    *bar_charts, improver_table = gains.html() or [""]
    parts += bar_charts
    agents = result["agents"]
    for title, key, unit in (
        ("Gap by agent", "gap", ""),
        ("Time by agent", "time", "s"),
        ("Bytes sent by agent", "msg_size", ""),
    ):
        values = [(str(agent["name"]), float(agent.get(key) or 0)) for agent in agents]
        if len(values) > 1 and any(value > 0 for _, value in values):
            parts.append(bars(title, values, unit))
    if improver_table:
        improver_table = f"<h2>Time and gains of the improvers</h2>{improver_table}"
    return page(f"{name}: {status}", [*parts, "</div>", improver_table, *_tree(result), *_slots(result)])


def _number(value: Any) -> str:
    """Return an objective or a bound as text; a dash if there is none."""
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.10g}"


def _over_time(result: Mapping[str, Any], gains: ImproverGains) -> list[Chart]:
    """Return the chart of objective and bound over time, with improvements in the colours of their improvers."""
    lines, segments = [], list[VerticalSegment]()
    for name, colour in (("objective", PLAIN), ("bound", DASHED)):
        points = [(max(p["time"], _FIRST_SECONDS), p[name]) for p in result["trace"] if p.get(name) is not None]
        if points:
            points.append((max(result["time"], points[-1][0]), points[-1][1]))
            lines.append(Series(name, [(t, v, v, v) for t, v in points], steps=True, colour=colour))
            segments += gains.segments(result["trace"], name, _FIRST_SECONDS)
    title = "Objective and bound over time"
    return [Chart(title, "seconds", "", lines, log_x=True, segments=segments, legend=gains.legend())] if lines else []


def _tree(result: Mapping[str, Any]) -> list[str]:
    """Return the pseudo-tree of the agents as a table, parents before children, with the messages of each.

    Empty if the result has no pseudo-tree, or one of more than 60 agents.
    """
    parents = (result["provenance"].get("plan") or {}).get("pseudo_tree")
    if not isinstance(parents, dict) or len(parents) > _MAX_AGENTS:
        return []
    agents = {agent["name"]: agent for agent in result["agents"]}
    rows: list[list[str]] = []
    stack = [(name, 0) for name in reversed(list(parents)) if parents[name] is None]
    while stack:
        name, depth = stack.pop()
        metrics = agents.get(name, {})
        numbers = [f"{metrics.get(key, 0):,}" for key in ("variables", "interface", "rows", "msg_count", "msg_size")]
        rows.append(["\N{NO-BREAK SPACE}" * 4 * depth + name, *numbers])
        stack += [(child, depth + 1) for child in reversed(list(parents)) if parents[child] == name]
    return ["<h2>Pseudo-tree of the agents</h2>", table(_TREE_HEAD, rows)]


def _slots(result: Mapping[str, Any]) -> list[str]:
    """Return the schedule of a generated meeting-scheduling problem: one row per agent, one column per time slot.

    Empty for all other problems. A variable is named by agent and event (``a3.e7``), and its value is the number of a
    slot.
    """
    problem = (result["provenance"].get("config") or {}).get("problem") or {}
    values, size = result.get("assignment") or {}, problem.get("domain_size", 1)
    numbers = [*values.values(), size]
    if problem.get("generator") != "meeting-scheduling" or not all(isinstance(number, int) for number in numbers):
        return []
    slots = range(min(_MAX_SLOTS, max([*values.values(), size - 1]) + 1))
    schedule: dict[str, dict[int, list[str]]] = {}
    for variable, slot in values.items():
        agent, _, event = variable.rpartition(".")
        schedule.setdefault(agent, {}).setdefault(slot, []).append(event)
    lines = ['<h2>Schedule</h2><div class="wide"><table class="slots">']
    lines.append("<tr><th>agent</th>" + "".join(f"<th>{slot}</th>" for slot in slots) + "</tr>")
    for agent, events in list(schedule.items())[:_MAX_AGENTS]:
        cells = "".join(
            f'<td class="held">{escape(" ".join(events[slot]))}</td>' if slot in events else "<td></td>"
            for slot in slots
        )
        lines.append(f"<tr><td>{escape(agent)}</td>{cells}</tr>")
    return [*lines, "</table></div>"]
