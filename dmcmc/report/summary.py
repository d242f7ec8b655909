"""A result as a table for people."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.memory import readable
from dmcmc.inference.runtime.types import Number
from dmcmc.report.numbers import parts_of, short
from dmcmc.results.result import AgentMetrics, KeptEntries, Reductions, Result, WorkDone

_MOST_AGENTS = 20
_MOST_BROKEN = 5
_MOST_LINES = 4  # of agents' assignments
_NAME = 24  # columns of an agent's name
_LITTLE = 1e-6  # a gap that four digits of per cent do not show

_MEANING = {
    "optimal": "optimal (proven)",
    "feasible": "feasible (no hard constraint broken)",
    "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    "timeout": "stopped by the budget",
    "unsatisfied": "unsatisfied (hard constraints broken; infeasibility not proven)",
}


def summary(
    result: Result,
    details: Sequence[tuple[str, str]] = (),
    problem: Problem | None = None,
    written: str | None = None,
) -> RenderableType:
    """Return what matters of a result: status, objective, bound, gap, cost, a line a kind of work, and one an agent.

    Parameters
    ----------
    result
        What came out.
    details
        More lines after the gap, a name and a value each.
    problem
        What was solved: the assignment is shown by agent then, and the constraints that it breaks by name.
    written
        The file that the result has been written to.
    """
    parts: list[RenderableType] = [overview(_lines(result, details, problem, written))]
    if result.work:
        parts += [Text(), _work(result.work)]
    if result.agents:
        parts += [Text(), _agents(result.agents[:_MOST_AGENTS])]
    if len(result.agents) > _MOST_AGENTS:
        parts.append(Text(f"... and {len(result.agents) - _MOST_AGENTS} more agents (all of them with --json)"))
    if problem is not None and result.assignment:
        parts += [Text(), _Assignment(problem, result.assignment)]
    return Group(*parts)


def headlines(result: Result) -> list[tuple[str, str]]:
    """Return what a result is worth, and what is proven of it."""
    goal = {"max": "maximise", "min": "minimise"}[result.sense]
    return [
        ("status", _MEANING[result.status]),
        ("objective", f"{_number(result.objective)} ({goal})"),
        ("bound", _number(result.bound)),
        ("gap", _gap(result)),
    ]


def _gap(result: Result) -> str:
    """Return the gap; 0 only where the answer is proven."""
    if result.status == "optimal" and result.gap is not None:
        return "0 %"
    if result.gap is None:
        return "-"
    return f"{100 * result.gap:.4g} %" if result.gap >= _LITTLE else "less than 0.0001 %"


def _lines(
    result: Result, details: Sequence[tuple[str, str]], problem: Problem | None, written: str | None
) -> list[tuple[str, str]]:
    rows = [*headlines(result), *details]
    if result.violation:
        rows.append(("violations", str(result.violation)))
        if problem is not None and result.assignment:
            rows.append(("broken", _broken(problem, result.assignment)))
    if result.reductions is not None:
        rows.append(("reduced", _removed(result.reductions)))
    kept = [agent for agent in result.agents if agent.kept is not None]
    rows += [("kept", _kept(agent.kept, agent.name if len(result.agents) > 1 else "")) for agent in kept[:_MOST_BROKEN]]
    if result.note is not None:
        rows.append(("note", result.note))
    rows.append(("time", f"{result.time:.3f} s"))
    rows.append(("messages", f"{result.msg_count} ({readable(result.msg_size)})"))
    if result.guarantee is not None:
        g = result.guarantee
        rows.append(("guarantee", f"top {100 * g.alpha:g} % with probability {g.probability:.4f} ({g.note})"))
    if written is not None:
        rows.append(("written", written))
    return rows


def _broken(problem: Problem, assignment: Mapping[str, Label]) -> str:
    """Return the names of the hard constraints that an assignment breaks, the first of them."""
    values = problem.values_of(assignment).tolist()
    names = []
    for i, factor in enumerate(problem.factors):
        if factor.entry([values[v] for v in factor.scope]) is None:
            scope = ", ".join(f"{problem.variables[v]} = {problem.label(v, values[v])}" for v in factor.scope)
            names.append(f"{factor.name or f'factor {i}'} ({scope})")
    more = len(names) - _MOST_BROKEN
    return "; ".join(names[:_MOST_BROKEN]) + (f"; and {more} more" if more > 0 else "")


class _Assignment:
    """The first agents, each with the values of as many of its variables as fit the line."""

    def __init__(self, problem: Problem, values: Mapping[str, Label]) -> None:
        own: dict[int, list[str]] = {}
        for name, agent in zip(problem.variables, problem.owner.tolist(), strict=True):
            own.setdefault(agent, []).append(f"{name} = {values[name]}")
        listed = sorted(own.items())
        self.agents = [(problem.agents[agent], words) for agent, words in listed[:_MOST_LINES]]
        self.more = len(listed) - len(self.agents)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, header_style="bold", padding=(0, 1))
        width = max(len("agent"), *(min(len(name), _NAME) for name, _ in self.agents))
        table.add_column("agent", overflow="fold", width=width)
        table.add_column("assignment (all of it with --json)", overflow="fold")
        for name, words in self.agents:
            table.add_row(Text(name), Text(_fitting(words, options.max_width - width - 4)))
        if self.more > 0:
            table.add_row(Text("..."), Text(f"{self.more} more agents"))
        yield table


def _fitting(words: Sequence[str], width: int) -> str:
    """Return as many words as fit, at least one.

    >>> _fitting(["x = 1", "y = 2", "z = 3"], 17)
    'x = 1, y = 2, ...'
    """
    for count in range(len(words), 1, -1):
        text = ", ".join([*words[:count], *(["..."] if count < len(words) else [])])
        if len(text) <= width:
            return text
    return words[0] + (", ..." if len(words) > 1 else "")


def _kept(kept: KeptEntries | None, agent: str) -> str:
    """Return what was kept of an elimination's messages."""
    assert kept is not None
    part = f"{short(int(kept.rows))} of {short(int(kept.entries))} entries, {readable(kept.bytes)}"
    return f"{part}; {kept.incomplete} of {kept.messages} messages incomplete{f' ({agent})' if agent else ''}"


def _removed(removed: Reductions) -> str:
    """Return what was taken out beforehand."""
    variables = removed.fixed + removed.merged + removed.eliminated + removed.free
    return f"by {variables:,} variables, {removed.inconsistent + removed.dominated:,} values in {removed.seconds:.3f} s"


def overview(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _work(work: Sequence[WorkDone]) -> Table:
    """Return what each kind of work took and brought: its part of all that was brought, and what it earned a second."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("work", no_wrap=True)
    for name in ("time", "objective", "bound", "of all", "a second"):
        table.add_column(name, justify="right", no_wrap=True)
    gains = [done.objective + done.bound for done in work]
    for done, gain, part in zip(work, gains, parts_of(gains), strict=True):
        cells = (f"{done.seconds:.3f} s", _better(done.objective), _better(done.bound))
        pace = f"{gain / done.seconds:.4g}" if gain > 0 and done.seconds > 0 else "-"
        table.add_row(done.kind, *cells, f"{100 * part:.3g} %" if gain > 0 else "-", pace)
    return table


def _better(gain: float) -> str:
    """Return how much better something became; nothing for nothing."""
    return f"{gain:.6g} better" if gain > 0 else "-"


def _agents(agents: tuple[AgentMetrics, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("agent", overflow="fold", max_width=_NAME)
    table.add_column("method", overflow="fold")
    for name in ("variables", "interface", "rows", "work", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        sampled = agent.updates and not agent.exact
        work = f"{short(agent.updates)} updates" if sampled else f"{short(agent.cells)} cells"
        numbers = (agent.variables, agent.interface, agent.rows)
        cells = (agent.name, agent.method, *map(short, numbers), work, f"{agent.time:.3f} s")
        table.add_row(*map(Text, cells))
    return table


def _number(value: Number | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.10g}"
