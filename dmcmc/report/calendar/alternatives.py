"""Show the alternatives of a solved calendar: which meetings move, and where."""

from collections.abc import Sequence
from html import escape

from rich.table import Table

from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.report.alternatives import changed_values, listed, proof_text, table_of_changes
from dmcmc.results.alternatives import Alternative


def moved_meetings(calendar: Calendar, alternatives: Sequence[Alternative]) -> list[list[str]]:
    """Return for each alternative the meetings that differ from the first one, each with the label of its value."""
    names = {
        f"{calendar.people[meeting.people[0]].name}: {meeting.name}": meeting.name for meeting in calendar.meetings
    }
    first = alternatives[0].assignment
    return [
        [f"{names[name]}: {value}" for name, value in changed_values(first, x.assignment) if name in names]
        for x in alternatives
    ]


def table_of_alternatives(calendar: Calendar, alternatives: Sequence[Alternative]) -> Table:
    """Return the alternatives as a table for the terminal."""
    return table_of_changes(alternatives, moved_meetings(calendar, alternatives))


def html_of_alternatives(calendar: Calendar, alternatives: Sequence[Alternative]) -> str:
    """Return the alternatives as a section of the web page; empty if there is only one."""
    if len(alternatives) < 2:
        return ""
    rows = [
        f"<tr><td>{i}<td>{x.objective}<td>{escape(proof_text(x))}<td>{escape(listed(words))}"
        for i, (x, words) in enumerate(zip(alternatives, moved_meetings(calendar, alternatives), strict=True), 1)
    ]
    heads = "".join(f"<th>{head}" for head in ("", "score", "proven", "what differs from this calendar"))
    return f"<h2>Alternatives</h2><table><tr>{heads}{''.join(rows)}</table>"
