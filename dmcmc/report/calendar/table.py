"""A calendar's answer for the terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.formats.calendar.plan import Calendar
from dmcmc.report.calendar.answer import Answer, answer_of
from dmcmc.report.calendar.conflict import told
from dmcmc.report.summary import headlines, overview
from dmcmc.results.result import Result


def summary(result: Result, calendar: Calendar, written: str | None = None) -> RenderableType:
    """Return what came out: how good it is proven to be, the calendar, and what is not in it, and why."""
    rows = [*headlines(result), ("time", f"{result.time:.3f} s")]
    rows += [] if result.note is None else [("note", result.note)]
    rows += [] if written is None else [("written", written)]
    parts: list[RenderableType] = [overview(rows)]
    if result.status == "infeasible":
        return Group(*parts, Text(), Text(told(calendar)))
    if result.assignment is None or result.violation:
        return Group(*parts, Text(), Text("no calendar was found that keeps all that must be"))
    answer = answer_of(calendar, result.assignment)
    parts += [Text(), table(answer)]
    if answer.missing:
        parts += [Text(), Text("not held", style="bold")]
        parts += [Text(f" {one.meeting.name}: {one.reason}") for one in answer.missing]
    return Group(*parts)


def table(answer: Answer) -> Table:
    """Return the meetings by time."""
    rooms = any(held.room for held in answer.held)
    found = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("day", "time"):
        found.add_column(name, no_wrap=True)
    found.add_column("meeting", overflow="fold")
    if rooms:
        found.add_column("room", overflow="fold")
    found.add_column("people", overflow="fold")
    last = None
    for held in answer.held:
        day = held.begin.date()
        first = f"{day:%a} {day.day} {day:%b}" if day != last else ""
        cells = [first, f"{held.begin:%H:%M}-{held.end:%H:%M}", held.meeting.name]
        cells += [held.room] if rooms else []
        found.add_row(*map(Text, [*cells, ", ".join(held.people)]))
        last = day
    return found
