"""Show one result as a web page: objective and bound over time, improvers, agents, pseudo-tree and schedule.

An *improver* is a component that improves the answer or the bound after the first answer, such as local search. Its
*gain* is the sum of its improvements of objective and bound, in units of the objective. Coloured segments of the chart,
bars and a table show what each improver contributed.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dmcmc.experiments.journal import COURSE
from dmcmc.files.write import replace_file
from dmcmc.report import pages
from dmcmc.report.experiment.charts import MEASURES, check_measures, course_of
from dmcmc.report.summary import status_text
from dmcmc.results.stored_result import read_result

# The first colours belong to these improvers, so that an improver has the same colour on all pages.
_IMPROVERS = (
    "local search",
    "bound",
    "exact elimination",
    "branch and bound",
    "sampling",
    "semidefinite",
    "toulbar2",
    "function filtering",
    "recombination",
    "cp-sat",
    "max-sat",
)
_SECONDS_NOTE = "Seconds are summed over threads and ranks, so they may add up to more than the run's time."


class ImproverGains:
    """The time and the gains of each improver in a result that was read from JSON.

    Parameters
    ----------
    result
        The data of the result.

    Attributes
    ----------
    colours : dict of str to int
        Colour number of each improver.
    work : sequence of dict
        The field ``work`` of the result, ordered by decreasing gain: ``improver``, ``seconds``, ``objective_gain`` and
        ``bound_gain`` of each. Improvers without any working time are left out.
    shares : list of float
        The share of each entry of ``work`` in the gains of all.
    _in_trace : set of str
        The improvers that points of the trace name.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        work = [entry for entry in result.get("work") or () if entry.get("seconds", 0) > 0]
        self.work: Sequence[Mapping[str, Any]] = sorted(work, key=lambda entry: -_gain(entry))
        self.shares = pages.shares_of([_gain(entry) for entry in self.work])
        in_trace = [name for point in result["trace"] for name in _improvers(point)]
        names = list(dict.fromkeys([*_IMPROVERS, *(entry["improver"] for entry in self.work), *in_trace]))
        self.colours = {name: number for number, name in enumerate(names)}
        self._in_trace = set(in_trace)

    def segments(self, trace: Sequence[Mapping[str, Any]], name: str, first: float) -> list[pages.VerticalSegment]:
        """Return the improvements of the objective or the bound as segments in the colours of their improvers.

        An improvement between two points of the trace is a vertical step of the line. It is divided into one segment
        per improver, each as long as the improver's share.

        Parameters
        ----------
        trace
            The trace of the result.
        name
            ``objective`` or ``bound``.
        first
            Start of the time axis in seconds; earlier improvements are drawn there.
        """
        segments, previous = list[pages.VerticalSegment](), None
        for point in trace:
            value = point.get(name)
            if value is not None and previous is not None and value != previous:
                lower_end = previous
                for improver, share in self._shares(point, name).items():
                    upper_end = lower_end + share * (value - previous)
                    colour = self.colours.get(improver, pages.PLAIN)
                    segments.append(
                        pages.VerticalSegment(
                            max(point["time"], first), min(lower_end, upper_end), max(lower_end, upper_end), colour
                        )
                    )
                    lower_end = upper_end
            previous = previous if value is None else value
        return segments

    def legend(self) -> list[pages.LegendEntry]:
        """Return the legend: the seconds of each improver, and its share of all gains."""
        entries = [
            pages.LegendEntry(
                f"{entry['improver']}: {entry['seconds']:.3g} s, {100 * share:.3g} %", self.colours[entry["improver"]]
            )
            for entry, share in zip(self.work, self.shares, strict=True)
        ]
        listed = {entry["improver"] for entry in self.work}
        return entries + [
            pages.LegendEntry(name, self.colours[name]) for name in self.colours if name in self._in_trace - listed
        ]

    def html(self) -> list[str]:
        """Return a bar chart of seconds, one of shares, and a table; nothing if the result has no ``work``."""
        if not self.work:
            return []
        rows = [
            [
                str(entry["improver"]),
                f"{entry['seconds']:.3f}",
                f"{entry['objective_gain']:,.6g}",
                f"{entry['bound_gain']:,.6g}",
                f"{100 * share:.3g} %",
                f"{_gain(entry) / entry['seconds']:,.4g}",
            ]
            for entry, share in zip(self.work, self.shares, strict=True)
        ]
        head = ["improver", "seconds", "objective gain", "bound gain", "share of all gains", "gain per second"]
        seconds = [(row[0], round(float(entry["seconds"]), 2)) for row, entry in zip(rows, self.work, strict=True)]
        shares = [(row[0], round(100 * share, 2)) for row, share in zip(rows, self.shares, strict=True)]
        return [
            pages.bars("Seconds per improver", seconds, "s", self.colours),
            pages.bars("Share of all gains per improver", shares, "%", self.colours),
            f'{pages.table(head, rows)}<p class="soft">{_SECONDS_NOTE}</p>',
        ]

    def _shares(self, point: Mapping[str, Any], name: str) -> dict[str, float]:
        """Return the shares of the improvers in one improvement; the empty name stands for an unknown improver.

        The shares of a bound are in the trace. For an objective, only a single improver is known to have the share 1.
        """
        known = point.get("bound_shares") or {}
        if name == "bound" and known:
            return dict(known)
        names = _improvers(point)
        return {names[0]: 1.0} if len(names) == 1 else {"": 1.0}


def _gain(work: Mapping[str, Any]) -> float:
    """Return by how much an improver improved objective and bound together."""
    return float(work.get("objective_gain") or 0) + float(work.get("bound_gain") or 0)


def _improvers(point: Mapping[str, Any]) -> list[str]:
    """Return the improvers that a point of the trace names; ``prune``, which only drops table rows, is not one."""
    return [name for name in str(point.get("found_by") or "").split(", ") if name not in ("", "prune")]


_MAX_SLOTS = 200  # limit for the columns of the schedule
_MAX_AGENTS = 60  # limit for the rows of the schedule and of the pseudo-tree
_TREE_HEAD = ("agent", "variables", "shared variables", "table rows", "messages sent", "bytes sent")
_FIRST_SECONDS = 1e-4  # seconds; start of the logarithmic time axis


def write_single(path: Path, output: Path, x: str | None = None, y: str | None = None) -> Path:
    """Write the page of a result in a JSON file of any format version; return the page's path.

    ``x`` and ``y`` are the measures of the chart of an algorithm's course: by default the objective over the cycles.

    Raises
    ------
    FileError
        If the file is not the result of a run.
    """
    check_measures(x, y)
    result = read_result(path)
    replace_file(output, [page_of(result, path.stem, _course(result, x or "cycle", y))])
    return output


def page_of(result: Mapping[str, Any], name: str, course: Sequence[pages.Chart] = ()) -> str:
    """Return the page of a result with the present field names, and the charts of an algorithm's course."""
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
        pages.table([name, {"max": "maximise", "min": "minimise"}.get(str(result.get("sense")), "")], rows),
        '<h2>Course of the run</h2><div class="charts">',
    ]
    gains = ImproverGains(result)
    parts += [pages.svg(chart) for chart in [*_over_time(result, gains), *course]]
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
            parts.append(pages.bars(title, values, unit))
    if improver_table:
        improver_table = f"<h2>Time and gains of the improvers</h2>{improver_table}"
    return pages.page(f"{name}: {status}", [*parts, "</div>", improver_table, *_tree(result), *_slots(result)])


def _number(value: Any) -> str:
    """Return an objective or a bound as text; a dash if there is none."""
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.10g}"


def _over_time(result: Mapping[str, Any], gains: ImproverGains) -> list[pages.Chart]:
    """Return the chart of objective and bound over time, with improvements in the colours of their improvers."""
    lines, segments = [], list[pages.VerticalSegment]()
    for name, colour in (("objective", pages.PLAIN), ("bound", pages.DASHED)):
        points = [(max(p["time"], _FIRST_SECONDS), p[name]) for p in result["trace"] if p.get(name) is not None]
        if points:
            points.append((max(result["time"], points[-1][0]), points[-1][1]))
            lines.append(pages.Series(name, [(t, v, v, v) for t, v in points], steps=True, colour=colour))
            segments += gains.segments(result["trace"], name, _FIRST_SECONDS)
    title = "Objective and bound over time"
    return (
        [pages.Chart(title, "seconds", "", lines, log_x=True, segments=segments, legend=gains.legend())]
        if lines
        else []
    )


def _course(result: Mapping[str, Any], x: str, y: str | None) -> list[pages.Chart]:
    """Return the chart of a measure over another one; without ``y`` of the objective now and the best one so far."""
    points = [[effort[name] for name in COURSE] for effort in result.get("course") or ()]
    lines = []
    for number, name in enumerate((y,) if y else ("now", "best")):
        pairs = course_of(points, x, name)
        lines.append(pages.Series(MEASURES[name].name, [(at, v, v, v) for at, v in pairs], steps=True, colour=number))
    title = f"{MEASURES[y or 'now'].name.capitalize()} over {MEASURES[x].name}"
    return [pages.Chart(title, MEASURES[x].name, "", lines)] if any(line.points for line in lines) else []


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
    return ["<h2>Pseudo-tree of the agents</h2>", pages.table(_TREE_HEAD, rows)]


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
