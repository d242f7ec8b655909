"""Show the alternatives of a result as a table: their objectives, what is proven, and what changes."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from dmcmc.inference.model.problem import Label
from dmcmc.results.alternatives import Alternative

_MAX_CHANGES = 6  # changed values that a line names


def alternatives_table(alternatives: Sequence[Alternative]) -> Table:
    """Return the alternatives as a table, one a line, with the values that differ from those of the first."""
    first = alternatives[0].assignment
    changes = [[f"{name} = {value}" for name, value in changed_values(first, x.assignment)] for x in alternatives]
    return table_of_changes(alternatives, changes)


def changed_values(first: Mapping[str, Label], other: Mapping[str, Label]) -> list[tuple[str, Label]]:
    """Return the variables whose value differs from that in the first assignment, each with its value."""
    return [(name, value) for name, value in other.items() if value != first[name]]


def table_of_changes(alternatives: Sequence[Alternative], changes: Sequence[Sequence[str]]) -> Table:
    """Return a table of alternatives, each with the texts of its changes."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("alternative", justify="right")
    table.add_column("objective", justify="right")
    table.add_column("proven", overflow="fold")
    table.add_column("what differs from the first", overflow="fold")
    for i, (alternative, words) in enumerate(zip(alternatives, changes, strict=True), 1):
        cells = [str(i), str(alternative.objective), proof_text(alternative), listed(words)]
        table.add_row(*map(Text, cells))
    return table


def proof_text(alternative: Alternative) -> str:
    """Return what is proven of an alternative, in words.

    >>> proof_text(Alternative(objective=3, bound=5, proven=False, changed=0, assignment={}))
    'at most 5'
    """
    if alternative.proven:
        return "best"
    return "-" if alternative.bound is None else f"at most {alternative.bound}"


def listed(words: Sequence[str]) -> str:
    """Return the first changes of an alternative as text, and how many more there are."""
    more = len(words) - _MAX_CHANGES
    return ", ".join(words[:_MAX_CHANGES]) + (f" and {more} more" if more > 0 else "")
