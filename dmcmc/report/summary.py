"""A result as a table for people."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.inference.runtime.memory import readable
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import AgentMetrics, Reductions, Result, WorkDone

_MOST_AGENTS = 20

_MEANING = {
    "optimal": "optimal (proven)",
    "feasible": "feasible (no hard constraint broken)",
    "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    "timeout": "stopped by the budget",
    "unsatisfied": "unsatisfied (hard constraints broken; infeasibility not proven)",
}


def summary(result: Result, details: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """Return what matters of a result: status, objective, bound, gap, cost, a line a kind of work, and one an agent.

    ``details`` are more lines after the gap, a name and a value each.
    """
    parts: list[RenderableType] = [_overview(result, details)]
    if result.work:
        parts += [Text(), _work(result.work)]
    if result.agents:
        parts += [Text(), _agents(result.agents[:_MOST_AGENTS])]
    if len(result.agents) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(result.agents) - _MOST_AGENTS} more agents (all of them with --json)"))
    return Group(*parts)


def _overview(result: Result, details: Sequence[tuple[str, str]]) -> Table:
    goal = {"max": "maximise", "min": "minimise"}[result.sense]
    rows = [
        ("status", _MEANING[result.status]),
        ("objective", f"{_number(result.objective)} ({goal})"),
        ("bound", _number(result.bound)),
        ("gap", "-" if result.gap is None else f"{100 * result.gap:.4g} %"),
        *details,
    ]
    if result.violation:
        rows.append(("violations", str(result.violation)))
    if result.reductions is not None:
        rows.append(("reduced", _removed(result.reductions)))
    if result.note is not None:
        rows.append(("note", result.note))
    rows.append(("time", f"{result.time:.3f} s"))
    rows.append(("messages", f"{result.msg_count} ({readable(result.msg_size)})"))
    if result.guarantee is not None:
        g = result.guarantee
        rows.append(("guarantee", f"top {100 * g.alpha:g} % with probability {g.probability:.4f} ({g.note})"))
    return overview(rows)


def _removed(removed: Reductions) -> str:
    """Return what was taken out beforehand."""
    variables = removed.fixed + removed.eliminated + removed.free
    return f"by {variables:,} variables, {removed.inconsistent + removed.dominated:,} values in {removed.seconds:.3f} s"


def overview(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _work(work: Sequence[WorkDone]) -> Table:
    """Return what each kind of work took and brought."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("work", no_wrap=True)
    for name in ("time", "objective", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    for done in work:
        table.add_row(done.kind, f"{done.seconds:.3f} s", _better(done.objective), _better(done.bound))
    return table


def _better(gain: float) -> str:
    """Return how much better something became; nothing for nothing."""
    return f"{gain:.6g} better" if gain > 0 else "-"


def _agents(agents: tuple[AgentMetrics, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("agent", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("variables", "interface", "rows", "work", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        work = f"{agent.updates:,} updates" if agent.updates and not agent.exact else f"{agent.cells:,} cells"
        numbers = (agent.variables, agent.interface, agent.rows)
        cells = (agent.name, agent.method, *map(str, numbers), work, f"{agent.time:.3f} s")
        table.add_row(*map(Text, cells))
    return table


def _number(value: Number | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.10g}"
