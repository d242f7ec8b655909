"""Show a solved calendar in the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.pages.answer import CalendarAnswer, answer_of
from dmcmc.calendars.pages.reasons import lines_of_conflict, moved_meetings, reason_without_answer
from dmcmc.report.alternatives import table_of_changes
from dmcmc.report.summary import headlines, overview
from dmcmc.results.alternatives import Alternative
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult


def summary(result: CalendarResult, calendar: Calendar, written: str | None = None) -> RenderableType:
    """Return the status, the calendar, what moves, and the meetings that do not take place with their reasons."""
    rows = [*headlines(result), ("solved in", f"{result.time:.3f} s")]
    rows += [] if result.note is None else [("note", result.note)]
    rows += [] if written is None else [("written to", written)]
    parts: list[RenderableType] = [overview(rows)]
    if result.conflict is not None:
        return Group(*parts, Text(), *(Text(line) for line in lines_of_conflict(result.conflict)))
    if reason := reason_without_answer(result):
        return Group(*parts, Text(), Text(reason))
    assert result.assignment is not None
    answer = answer_of(calendar, result.assignment)
    parts += [Text(), table(answer)]
    for title, rows_of_section in answer.sections().items():
        if rows_of_section:
            lines = [f" {name}: {'; '.join(words)}" for name, *words in rows_of_section]
            parts += [Text(), Text(title, style="bold"), *map(Text, lines)]
    if len(result.alternatives) > 1:
        parts += [Text(), table_of_alternatives(calendar, result.alternatives)]
    return Group(*parts)


def summary_of_conflict(conflict: CalendarConflict, written: str | None = None) -> RenderableType:
    """Return the status and the time of the search for a conflict, and the conflict in words."""
    rows = [("status", conflict.status), ("time", f"{conflict.time:.3f} s")]
    rows += [] if written is None else [("written to", written)]
    return Group(overview(rows), Text(), *(Text(line) for line in lines_of_conflict(conflict)))


def table(answer: CalendarAnswer) -> Table:
    """Return the meetings as a table, ordered by time."""
    rooms = any(item.room for item in answer.scheduled)
    grid = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("day", "time"):
        grid.add_column(name, no_wrap=True)
    grid.add_column("meeting", overflow="fold")
    if rooms:
        grid.add_column("room", overflow="fold")
    grid.add_column("people", overflow="fold")
    last = None
    for item in answer.scheduled:
        day = item.begin.date()
        day_text = f"{day:%a} {day.day} {day:%b}" if day != last else ""
        cells = [day_text, item.times, item.meeting.name]
        cells += [item.room] if rooms else []
        grid.add_row(*map(Text, [*cells, ", ".join(item.people)]))
        last = day
    return grid


def table_of_alternatives(calendar: Calendar, alternatives: Sequence[Alternative]) -> Table:
    """Return the alternatives as a table for the terminal."""
    return table_of_changes(alternatives, moved_meetings(calendar, alternatives))
