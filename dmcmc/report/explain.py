"""``--explain``: what was chosen for each agent, and why, before the work begins."""

import sys

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.inference.runtime.memory import readable
from dmcmc.run.setup import Task, largest_join

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


def print_explanation(task: Task) -> None:
    """Print the explanation to stderr."""
    console = Console(stderr=True) if sys.stderr.isatty() else Console(stderr=True, width=_WIDTH)
    with console.capture() as capture:
        console.print(explanation(task))
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    print(text, file=sys.stderr, flush=True)


def explanation(task: Task) -> RenderableType:
    """Return a line an agent (the first 100), and how their tables will be combined.

    Width, cells and memory are those of the exact elimination, chosen or not; the estimate is of what was chosen.
    """
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in _HEADS:
        words = name in ("agent", "method", "device", "reason")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "reason")
    for work, choice in list(zip(task.surveys, task.choices, strict=True))[:_MOST_AGENTS]:
        planned = work.effort > 0 or not work.hidden
        bound = "" if choice.bound == "none" else f" + {choice.bound}"
        row = (
            task.problem.agents[work.agent],
            str(work.hidden + work.interface),
            str(work.interface),
            _count(work.rows),
            str(work.width) if planned else "-",
            _count(work.cells) if planned else "-",
            readable(work.bytes) if planned else "-",
            choice.method + bound,
            choice.device,
            _seconds(choice.seconds),
            choice.reason,
        )
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    if len(task.choices) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(task.choices) - _MOST_AGENTS} more agents (all of them in the result's plan)"))
    parts.append(Text(f"combine: {combination(task)}"))
    return Group(*parts)


def combination(task: Task) -> str:
    """Return how the agents' tables are combined, or how that is decided."""
    combine = task.config.combine
    if combine.method == "exact":
        return "exact, as combine.method says"
    if combine.method == "mini-bucket":
        limit = "as large as budget.memory allows" if combine.z == "auto" else f"z = {combine.z}"
        return f"mini-buckets, as combine.method says; {limit}"
    memory, most = readable(task.config.budget.memory), largest_join(task) * task.arithmetic.dtype.itemsize
    if most <= task.config.budget.memory:
        return f"exact: joined tables take at most {readable(most)}, budget.memory allows {memory}"
    return f"exact where an agent's tables fit budget.memory ({memory}), else mini-buckets; decided when they are there"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e10 else f"{number:.1e}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.3g} s"
