"""Show the plan of a run (``--explain``): the method of each agent with the reason, before the work begins."""

import io
import sys
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.report.numbers import short
from dmcmc.report.plan import AgentPlan, Plan, TreePlan

_MAX_AGENTS = 100  # lines of the table
_MAX_NAMES = 5  # agents that are named for one reason
_FILE_WIDTH = 160  # columns if stderr is not a terminal
_MIN_WIDTH_WITH_REASONS = 120  # columns; in a narrower terminal the reasons follow the table
_SHORT_HEADINGS = {"variables": "vars", "table rows": "rows", "estimated time": "time"}  # for narrow terminals
_NOTE = "shared: variables that share a factor with another agent; width, cells, memory: those of exact elimination"
_HEADINGS = (
    "agent",
    "variables",
    "shared",
    "table rows",
    "width",
    "cells",
    "memory",
    "method",
    "device",
    "estimated time",
    "reason",
)


def print_explanation(plan: Plan) -> None:
    """Print the explanation to stderr."""
    print(text_of(plan, Console(stderr=True) if sys.stderr.isatty() else None), file=sys.stderr, flush=True)


def text_of(plan: Plan, console: Console | None = None) -> str:
    """Return the explanation as text, in the width of a console."""
    console = console or Console(file=io.StringIO(), width=_FILE_WIDTH)
    with console.capture() as capture:
        console.print(explanation(plan))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def explanation(plan: Plan) -> RenderableType:
    """Return a table with one line per agent (the first 100), and lines about the rest of the run.

    Width, cells and memory are those of exact elimination, whether it is chosen or not. The estimated time is that of
    the chosen method.
    """
    parts: list[RenderableType] = [_Agents(plan.agents[:_MAX_AGENTS]), Text(_NOTE, style="dim")]
    if len(plan.agents) > _MAX_AGENTS:
        more = len(plan.agents) - _MAX_AGENTS
        parts.append(Text(f"... and {more} more agents (dmcmc.plan in Python returns all of them)"))
    if plan.presolve:
        parts.append(Text(f"presolve: {plan.presolve}"))
    if plan.division:
        parts.append(Text(f"division into agents: {plan.division}"))
    if plan.tree is not None:
        parts.append(Text(f"pseudo-tree: {_tree(plan.tree)}"))
    parts.append(Text(f"combination of the agents' tables: {plan.combine}"))
    if plan.later:
        parts.append(Text(f"after the first answer, whichever gains most per second: {'; '.join(plan.later)}"))
    parts += [Text(f"sparse tables: {line}") for line in plan.sparse_tables]
    if plan.search:
        parts.append(Text(f"background search: {plan.search}"))
    return Group(*parts)


class _Agents:
    """Renders one line per agent; in a narrow terminal the reasons follow the table."""

    def __init__(self, agents: Sequence[AgentPlan]) -> None:
        self.agents = agents

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _MIN_WIDTH_WITH_REASONS
        table = Table(box=None, header_style="bold", padding=(0, 1))
        for name in _HEADINGS[: None if wide else -1]:
            is_text = name in ("agent", "method", "device", "reason")
            heading = name if wide else _SHORT_HEADINGS.get(name, name)
            folds = name in ("reason", "method", "agent")
            table.add_column(heading, justify="left" if is_text else "right", no_wrap=not folds, overflow="fold")
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
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            yield Text(f"{', '.join(names[:_MAX_NAMES])}{more}: {reason}")


def _cells(agent: AgentPlan) -> tuple[str, ...]:
    """Return the cells of an agent's line, without the reason."""
    return (
        agent.name,
        str(agent.variables),
        str(agent.interface),
        short(agent.rows),
        "-" if agent.width is None else str(agent.width),
        "-" if agent.cells is None else short(agent.cells),
        "-" if agent.bytes is None else format_bytes(agent.bytes),
        agent.method + ("" if agent.bound == "none" else f" + {agent.bound}"),
        agent.device,
        _seconds(agent.seconds),
    )


def _tree(tree: TreePlan) -> str:
    """Return the pseudo-tree's heuristic, root and sizes."""
    root = f"root {tree.roots[0]}" if len(tree.roots) == 1 else f"{len(tree.roots):,} roots"
    return (
        f"{tree.heuristic}, {root}, depth {tree.depth}, induced width {tree.width}; largest separator"
        f" {tree.separator} variable{'s' * (tree.separator != 1)}, {short(tree.message_cells)} cells"
    )


def _seconds(seconds: float) -> str:
    """Return an estimated time as text."""
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.3g} s"
