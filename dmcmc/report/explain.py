"""``--explain``: what was chosen for each agent, and why, before the work begins."""

import sys
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.inference.runtime.memory import readable
from dmcmc.report.numbers import short
from dmcmc.report.plan import AgentPlan, Plan

_MOST_AGENTS = 100
_MOST_NAMES = 5  # agents of one reason
_WIDTH = 160
_WIDE = 120  # columns that a reason beside the numbers needs
_NARROW = {"variables": "vars", "interface": "shared"}  # words for narrow columns
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
    parts: list[RenderableType] = [_Agents(plan.agents[:_MOST_AGENTS])]
    if len(plan.agents) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(plan.agents) - _MOST_AGENTS} more agents (all of them in the result's plan)"))
    if plan.reduced:
        parts.append(Text(f"reduced: {plan.reduced}"))
    if plan.division:
        parts.append(Text(f"division: {plan.division}"))
    parts.append(Text(f"combine: {plan.combine}"))
    if plan.later:
        parts.append(Text(f"then, by what gains most a second: {'; '.join(plan.later)}"))
    parts += [Text(f"incomplete: {line}") for line in plan.incomplete]
    if plan.search:
        parts.append(Text(f"search: {plan.search}"))
    return Group(*parts)


class _Agents:
    """A line an agent; where the terminal is narrow, its reason stands below it."""

    def __init__(self, agents: Sequence[AgentPlan]) -> None:
        self.agents = agents

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WIDE
        table = Table(box=None, header_style="bold", padding=(0, 1))
        for name in _HEADS[: None if wide else -1]:
            words = name in ("agent", "method", "device", "reason")
            heading = name if wide else _NARROW.get(name, name)
            folds = name in ("reason", "method", "agent")
            table.add_column(heading, justify="left" if words else "right", no_wrap=not folds, overflow="fold")
        if wide:
            for agent in self.agents:
                table.add_row(*map(Text, (*_cells(agent), agent.reason)))
            yield table
            return
        for agent in self.agents:
            table.add_row(*map(Text, _cells(agent)))
        yield table
        reasons: dict[str, list[str]] = {}
        for agent in self.agents:
            reasons.setdefault(agent.reason, []).append(agent.name)
        for reason, names in reasons.items():
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            yield Text(f"{', '.join(names[:_MOST_NAMES])}{more}: {reason}")


def _cells(agent: AgentPlan) -> tuple[str, ...]:
    """Return an agent's words and numbers but for the reason."""
    return (
        agent.name,
        str(agent.variables),
        str(agent.interface),
        short(agent.rows),
        "-" if agent.width is None else str(agent.width),
        "-" if agent.cells is None else short(agent.cells),
        "-" if agent.bytes is None else readable(agent.bytes),
        agent.method + ("" if agent.bound == "none" else f" + {agent.bound}"),
        agent.device,
        _seconds(agent.seconds),
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.3g} s"
