"""The facts of a problem's graphs as a table for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.report.graph import AgentFacts, GraphFacts
from dmcmc.report.numbers import short

_MOST_AGENTS = 40
_NAME = 18  # columns of an agent's name


def summary(facts: GraphFacts) -> RenderableType:
    """Return an overview, and a line an agent (the first 40)."""
    table = Table.grid(padding=(0, 2))
    rows = [
        ("variables", f"{facts.variables:,}"),
        ("factors", f"{facts.factors:,} over up to {facts.arity} variables"),
        ("primal graph", f"{facts.edges:,} edges, components {facts.components}, largest degree {facts.degree}"),
        ("elimination", f"width {facts.width}, {short(facts.cells)} cells, largest {short(facts.largest)}"),
        ("agents", f"{len(facts.agents)}, {facts.links} pairs share factors"),
        ("pseudo-tree", f"depth {facts.depth}, largest separator {short(_largest(facts))} cells"),
        (
            "division",
            f"agent by agent {short(facts.divided_cells)} cells, largest message {short(facts.largest_message)}",
        ),
    ]
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    parts: list[RenderableType] = [table]
    if facts.agents:
        parts += [Text(), _agents(facts.agents[:_MOST_AGENTS])]
    if len(facts.agents) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(facts.agents) - _MOST_AGENTS} more agents (all of them with --json)"))
    return Group(*parts)


def _largest(facts: GraphFacts) -> int:
    return max((agent.message for agent in facts.agents), default=1)


def _agents(agents: tuple[AgentFacts, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("agent", "parent"):
        table.add_column(name, overflow="fold", max_width=_NAME)
    for name in ("vars", "shared", "rows", "width", "cells", "separator", "message"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        numbers = (agent.variables, agent.interface, agent.rows, agent.width, agent.cells)
        cells = (agent.name, agent.parent or "-", *map(short, numbers))
        table.add_row(*map(Text, (*cells, short(len(agent.separator)), short(agent.message))))
    return table
