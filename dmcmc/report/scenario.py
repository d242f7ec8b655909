"""Show the results of a scenario: a table of events, and a page with objective, gap, reaction time and what moved."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.types import Number
from dmcmc.report.alternatives import listed
from dmcmc.report.pages.chart import DASHED, PLAIN, Chart, Series, svg
from dmcmc.report.pages.page_template import page, table
from dmcmc.results.scenario import EventResult, read_events

_HEAD = ("event", "clock", "status", "objective", "bound", "gap", "reaction", "time", "moved", "messages")
_MAX_EVENTS = 60  # lines of the table on a terminal


def events_table(events: Sequence[EventResult], written: str | None = None) -> Table:
    """Return the results of a scenario as a table for a terminal: the last events if there are many."""
    shown = Table(box=None, header_style="bold", padding=(0, 1), caption=written and f"written to {written}")
    for name in _HEAD:
        shown.add_column(name, overflow="fold", justify="left" if name in ("event", "status") else "right")
    for event in events[-_MAX_EVENTS:]:
        shown.add_row(*map(Text, _cells(event)))
    return shown


def _cells(event: EventResult) -> list[str]:
    """Return the cells of one event."""
    return [
        event.event,
        f"{event.clock:g} s",
        event.status,
        _number(event.objective),
        _number(event.bound),
        "-" if event.gap is None else f"{100 * event.gap:.4g} %",
        "-" if event.reaction is None else f"{event.reaction:.3f} s",
        f"{event.time:.3f} s",
        f"{event.moved:,}",
        f"{event.msg_count:,}",
    ]


def _number(value: Number | None) -> str:
    """Return a number as text; a dash for None."""
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.10g}"


def write_page(path: Path, output: Path) -> Path:
    """Write the page of a scenario's results; return the page's path.

    Parameters
    ----------
    path
        The file with one line of JSON per event.
    output
        The page to write.

    Raises
    ------
    FileError
        If the file is not the result of a scenario.
    """
    replace_file(output, [page_of_events(read_events(path), path.stem)])
    return output


def page_of_events(events: Sequence[EventResult], name: str) -> str:
    """Return the page of a scenario's results."""
    objective = _line("objective", events, lambda event: event.objective, PLAIN)
    bound = _line("bound", events, lambda event: event.bound, DASHED)
    gap = _line("gap", events, lambda event: None if event.gap is None else 100 * event.gap)
    first = _line("first answer", events, lambda event: event.reaction)
    last = _line("last answer", events, lambda event: event.time, 1)
    moved = _line("moved", events, lambda event: event.moved)
    charts = [
        Chart("Objective and bound", "event", "", [*objective, *bound]),
        Chart("Gap", "event", "%", gap),
        Chart("Time to the first and to the last answer", "event", "s", [*first, *last]),
        Chart("Variables that moved", "event", "variables", moved),
    ]
    rows = [[str(number), *_cells(event), listed(event.actions)] for number, event in enumerate(events)]
    drawn = [svg(chart) for chart in charts if chart.series]
    goal = {"max": "maximise", "min": "minimise"}.get(events[0].sense, "")
    count = f"{len(events) - 1} event{'' if len(events) == 2 else 's'} ({goal})"
    parts = [f'<p>{count}</p><div class="charts">', *drawn, "</div>", "<h2>Events</h2>"]
    return page(f"{name}: scenario", [*parts, table(["", *_HEAD, "changes"], rows)])


def _line(
    name: str, events: Sequence[EventResult], value: Callable[[EventResult], Number | None], colour: int = 0
) -> list[Series]:
    """Return a line over the events that have a value; no line if none has one."""
    points = [(float(i), float(y)) for i, event in enumerate(events) if (y := value(event)) is not None]
    return [Series(name, [(x, y, y, y) for x, y in points], colour=colour)] if points else []
