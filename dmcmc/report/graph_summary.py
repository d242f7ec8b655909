"""The facts of a problem's graphs as a table for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.report.graph import AgentFacts, GraphFacts

_MOST_AGENTS = 40


def summary(facts: GraphFacts) -> RenderableType:
    """Return an overview, and a line an agent (the first 40)."""
    table = Table.grid(padding=(0, 2))
    rows = [
        ("variables", f"{facts.variables:,}"),
        ("factors", f"{facts.factors:,} over up to {facts.arity} variables"),
        ("primal graph", f"{facts.edges:,} edges, components {facts.components}, largest degree {facts.degree}"),
        ("elimination", f"width {facts.width}, {_number(facts.cells)} cells, largest {_number(facts.largest)}"),
        ("agents", f"{len(facts.agents)}, {facts.links} pairs share factors"),
        ("pseudo-tree", f"depth {facts.depth}, largest separator {_number(_largest(facts))} cells"),
        (
            "division",
            f"agent by agent {_number(facts.divided_cells)} cells, largest message {_number(facts.largest_message)}",
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
        table.add_column(name, no_wrap=True)
    for name in ("variables", "interface", "rows", "width", "cells", "separator", "message"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        numbers = (agent.variables, agent.interface, agent.rows, agent.width, agent.cells)
        cells = (agent.name, agent.parent or "-", *map(_number, numbers))
        table.add_row(*map(Text, (*cells, _number(len(agent.separator)), _number(agent.message))))
    return table


def _number(value: int | float) -> str:
    """Return a count; large ones as a power of ten."""
    if value < 10**9:
        return f"{int(value):,}"
    return f"{value:.2e}" if value < 1e300 else "> 1e300"
