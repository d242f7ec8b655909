"""Show the properties of a problem's graphs as a table (``dmcmc graph``)."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.report.graph import AgentFacts, GraphFacts
from dmcmc.report.numbers import short

_MAX_AGENTS = 40  # lines of the table
_NAME_WIDTH = 18  # columns of an agent's name


def summary(facts: GraphFacts) -> RenderableType:
    """Return an overview, and one line per agent (the first 40)."""
    table = Table.grid(padding=(0, 2))
    rows = [
        ("variables", f"{facts.variables:,}"),
        ("factors", f"{facts.factors:,}, each over at most {facts.arity} variables"),
        (
            "primal graph",
            f"{facts.edges:,} edges, connected components: {facts.components:,}, largest degree {facts.degree}",
        ),
        ("elimination", f"width {facts.width}, {short(facts.cells)} table cells, largest table {short(facts.largest)}"),
        ("agents", f"{len(facts.agents)}; {facts.links} pairs of agents share factors"),
        ("pseudo-tree", f"depth {facts.depth}, largest separator {short(_largest(facts))} cells"),
        (
            "agent by agent",
            f"{short(facts.divided_cells)} table cells, largest message {short(facts.largest_message)} cells",
        ),
    ]
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    parts: list[RenderableType] = [table]
    if facts.agents:
        parts += [Text(), _agents(facts.agents[:_MAX_AGENTS])]
    if len(facts.agents) > _MAX_AGENTS:
        parts.append(Text(f"... and {len(facts.agents) - _MAX_AGENTS} more agents (all of them with --json)"))
    return Group(*parts)


def _largest(facts: GraphFacts) -> int:
    """Return the number of cells of the largest UTIL message."""
    return max((agent.message for agent in facts.agents), default=1)


def _agents(agents: tuple[AgentFacts, ...]) -> Table:
    """Return a table with one line per agent."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("agent", "parent"):
        table.add_column(name, overflow="fold", max_width=_NAME_WIDTH)
    for name in ("vars", "shared", "rows", "width", "cells", "separator", "message"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        numbers = (agent.variables, agent.interface, agent.rows, agent.width, agent.cells)
        cells = (agent.name, agent.parent or "-", *map(short, numbers))
        table.add_row(*map(Text, (*cells, short(len(agent.separator)), short(agent.message))))
    return table
