"""``--explain``: what was chosen for each agent, and why, before the work begins."""

import sys

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.inference.runtime.memory import readable
from dmcmc.report.plan import Plan

_MOST_AGENTS = 100
_WIDTH = 160
_HEADS = (
    "agent",
    "variables",
    "interface",
    "rows",
    "width",
    "cells",
    "memory",
    "method",
    "device",
    "estimate",
    "reason",
)


def print_explanation(plan: Plan) -> None:
    """Print the explanation to stderr."""
    print(text_of(plan, Console(stderr=True) if sys.stderr.isatty() else None), file=sys.stderr, flush=True)


def text_of(plan: Plan, console: Console | None = None) -> str:
    """Return the explanation as lines of text, as wide as a console."""
    console = console or Console(width=_WIDTH)
    with console.capture() as capture:
        console.print(explanation(plan))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def explanation(plan: Plan) -> RenderableType:
    """Return a line an agent (the first 100), and how their tables will be combined.

    Width, cells and memory are those of the exact elimination, chosen or not; the estimate is of what was chosen.
    """
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in _HEADS:
        words = name in ("agent", "method", "device", "reason")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "reason")
    for agent in plan.agents[:_MOST_AGENTS]:
        row = (
            agent.name,
            str(agent.variables),
            str(agent.interface),
            _count(agent.rows),
            "-" if agent.width is None else str(agent.width),
            "-" if agent.cells is None else _count(agent.cells),
            "-" if agent.bytes is None else readable(agent.bytes),
            agent.method + ("" if agent.bound == "none" else f" + {agent.bound}"),
            agent.device,
            _seconds(agent.seconds),
            agent.reason,
        )
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    if len(plan.agents) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(plan.agents) - _MOST_AGENTS} more agents (all of them in the result's plan)"))
    if plan.reduced:
        parts.append(Text(f"reduced: {plan.reduced}"))
    if plan.division:
        parts.append(Text(f"division: {plan.division}"))
    parts.append(Text(f"combine: {plan.combine}"))
    if plan.later:
        parts.append(Text(f"then, by what gains most a second: {'; '.join(plan.later)}"))
    if plan.search:
        parts.append(Text(f"search: {plan.search}"))
    return Group(*parts)


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e10 else f"{number:.1e}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.3g} s"
