"""Show a result as text: status, objective, bound, gap, improvers, agents and the assignment."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.types import Number
from dmcmc.report.alternatives import alternatives_table, listed
from dmcmc.report.numbers import shares_of, short
from dmcmc.results.result import AgentMetrics, LevelReport, PresolveReport, Result, RetainedEntries, WorkDone

_MAX_AGENTS = 20  # lines of the table of agents
_MAX_LISTED = 5  # broken constraints, and agents with sparse messages
_MAX_ASSIGNMENTS = 4  # agents whose assignment is shown
_NAME_WIDTH = 24  # columns of an agent's name
_MIN_SHOWN_GAP = 1e-6  # smaller gaps would be shown as 0 %

_MEANING = {
    "optimal": "optimal (proven)",
    "feasible": "feasible (no hard constraint broken)",
    "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    "timeout": "time limit reached",
    "unsatisfied": "unsatisfied (hard constraints broken; infeasibility not proven)",
}
_INTERRUPTIONS = ("interrupted", "terminated")  # notes of runs that a signal ended; their status is timeout, too
_WORK_NOTE = "Seconds are summed over threads and ranks, so they may add up to more than the run's time."


def summary(
    result: Result,
    details: Sequence[tuple[str, str]] = (),
    problem: Problem | None = None,
    written: str | None = None,
) -> RenderableType:
    """Return the summary of a result: an overview, a table of improvers, and a table of agents.

    Parameters
    ----------
    result
        The result.
    details
        Further lines after the gap, each a name and a value.
    problem
        The solved problem; if it is given, the assignment is shown by agent, and broken constraints by name.
    written
        The file that the result was written to.
    """
    parts: list[RenderableType] = [overview(_lines(result, details, problem, written))]
    if result.work:
        parts += [Text(), _work(result.work), Text(_WORK_NOTE, style="dim")]
    if result.agents:
        parts += [Text(), _agents(result.agents[:_MAX_AGENTS])]
    if len(result.agents) > _MAX_AGENTS:
        parts.append(Text(f"... and {len(result.agents) - _MAX_AGENTS} more agents (all of them with --json)"))
    if len(result.alternatives) > 1:
        parts += [Text(), alternatives_table(result.alternatives)]
    if problem is not None and result.assignment:
        parts += [Text(), _Assignment(problem, result.assignment)]
    return Group(*parts)


def status_text(status: str, note: str | None = None) -> str:
    """Return a status in words for people; ``note`` distinguishes an interruption from a time limit.

    >>> status_text("timeout"), status_text("timeout", "interrupted")
    ('time limit reached', 'interrupted')
    """
    return note if status == "timeout" and note in _INTERRUPTIONS else _MEANING.get(status, status)


def headlines(result: Result) -> list[tuple[str, str]]:
    """Return the lines with status, objective, bound and gap."""
    goal = {"max": "maximise", "min": "minimise"}[result.sense]
    return [
        ("status", status_text(result.status, result.note)),
        ("objective", f"{_number(result.objective)} ({goal})"),
        ("bound", _number(result.bound)),
        ("gap", _gap(result)),
        *((f"level {level.name}", _level(level)) for level in result.levels),
    ]


def _level(level: LevelReport) -> str:
    """Return the objective and the bound of a level, and what is broken in it."""
    broken = f", {level.violation} broken" if level.violation else ""
    return f"{_number(level.objective)} (bound {_number(level.bound)}){broken}"


def _gap(result: Result) -> str:
    """Return the gap in per cent; 0 only if the answer is proven optimal."""
    if result.status == "optimal" and result.gap is not None:
        return "0 %"
    if result.gap is None:
        return "-"
    return f"{100 * result.gap:.4g} %" if result.gap >= _MIN_SHOWN_GAP else "less than 0.0001 %"


def _lines(
    result: Result, details: Sequence[tuple[str, str]], problem: Problem | None, written: str | None
) -> list[tuple[str, str]]:
    """Return the overview: names and values."""
    rows = [*headlines(result), *details]
    if result.moves is not None:
        moves = result.moves
        names = f" ({listed(list(moves.moved))})" if moves.moved else ""
        rows.append(("moved", f"{moves.count:,} variable{'' if moves.count == 1 else 's'}{names}"))
        rows.append(("cost of moving", _number(moves.cost)))
        rows.append(("without it", f"objective {_number(moves.objective)}"))
    if result.violation:
        rows.append(("violations", str(result.violation)))
        if problem is not None and result.assignment:
            rows.append(("broken", _broken(problem, result.assignment)))
    if result.presolve is not None:
        rows.append(("presolve", _removed(result.presolve)))
    several = len(result.agents) > 1
    sizes = [(agent.retained, agent.name) for agent in result.agents if agent.retained is not None]
    rows += [("sparse tables", _retained(retained, name if several else "")) for retained, name in sizes[:_MAX_LISTED]]
    if result.note is not None and result.note not in _INTERRUPTIONS:
        rows.append(("note", result.note))
    rows.append(("time", f"{result.time:.3f} s"))
    rows.append(("messages", f"{result.msg_count:,} ({format_bytes(result.msg_size)})"))
    if result.guarantee is not None:
        guarantee = result.guarantee
        rows.append(
            (
                "guarantee",
                f"top {100 * guarantee.alpha:g} % with probability {guarantee.probability:.4f} ({guarantee.note})",
            )
        )
    if written is not None:
        rows.append(("written to", written))
    return rows


def _broken(problem: Problem, assignment: Mapping[str, Label]) -> str:
    """Return the names of the first hard constraints that an assignment breaks."""
    values = problem.values_of(assignment).tolist()
    names = []
    for i, factor in enumerate(problem.factors):
        if factor.entry([values[v] for v in factor.scope]) is None:
            scope = ", ".join(f"{problem.variables[v]} = {problem.label(v, values[v])}" for v in factor.scope)
            names.append(f"{factor.name or f'factor {i}'} ({scope})")
    more = len(names) - _MAX_LISTED
    return "; ".join(names[:_MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")


class _Assignment:
    """Renders the assignment: one line for each of the first agents, with as many variables as fit."""

    def __init__(self, problem: Problem, values: Mapping[str, Label]) -> None:
        assigned: dict[int, list[str]] = {}
        for name, agent in zip(problem.variables, problem.owner.tolist(), strict=True):
            assigned.setdefault(agent, []).append(f"{name} = {values[name]}")
        listed = sorted(assigned.items())
        self.agents = [(problem.agents[agent], words) for agent, words in listed[:_MAX_ASSIGNMENTS]]
        self.more = len(listed) - len(self.agents)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, header_style="bold", padding=(0, 1))
        width = max(len("agent"), *(min(len(name), _NAME_WIDTH) for name, _ in self.agents))
        table.add_column("agent", overflow="fold", width=width)
        table.add_column("assignment (complete with --json)", overflow="fold")
        for name, words in self.agents:
            table.add_row(Text(name), Text(_fitting(words, options.max_width - width - 4)))
        if self.more > 0:
            table.add_row(Text("..."), Text(f"{self.more} more agents"))
        yield table


def _fitting(words: Sequence[str], width: int) -> str:
    """Return the first words that fit a width in characters, at least one.

    >>> _fitting(["x = 1", "y = 2", "z = 3"], 17)
    'x = 1, y = 2, ...'
    """
    for count in range(len(words), 1, -1):
        text = ", ".join([*words[:count], *(["..."] if count < len(words) else [])])
        if len(text) <= width:
            return text
    return words[0] + (", ..." if len(words) > 1 else "")


def _retained(sizes: RetainedEntries, agent: str) -> str:
    """Return the sizes of the messages of an elimination that drops entries."""
    retained, dense = short(int(sizes.retained_entries)), short(int(sizes.dense_entries))
    text = f"{retained} of {dense} entries retained, {format_bytes(sizes.bytes)}"
    return f"{text}; {sizes.sparse_messages} of {sizes.messages} messages are sparse{f' ({agent})' if agent else ''}"


def _removed(removed: PresolveReport) -> str:
    """Return what presolve removed."""
    variables = removed.fixed + removed.merged + removed.eliminated + removed.free
    values = removed.inconsistent + removed.dominated
    return f"removed {variables:,} variables and {values:,} values in {removed.seconds:.3f} s"


def overview(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of two columns: names and values."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _work(work: Sequence[WorkDone]) -> Table:
    """Return a table with one line per improver: its time, its gains, their share of all gains, and gain per second."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("improver", no_wrap=True)
    for name in ("seconds", "objective gain", "bound gain", "share of gains", "gain per second"):
        table.add_column(name, justify="right")
    gains = [done.objective_gain + done.bound_gain for done in work]
    for done, gain, share in zip(work, gains, shares_of(gains), strict=True):
        cells = (f"{done.seconds:.3f}", _gain(done.objective_gain), _gain(done.bound_gain))
        rate = f"{gain / done.seconds:.4g}" if gain > 0 and done.seconds > 0 else "-"
        table.add_row(Text(done.improver), *cells, f"{100 * share:.3g} %" if gain > 0 else "-", rate)
    return table


def _gain(gain: float) -> str:
    """Return a gain as text; a dash for none."""
    return f"{gain:.6g}" if gain > 0 else "-"


def _agents(agents: tuple[AgentMetrics, ...]) -> Table:
    """Return a table with one line per agent."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("agent", overflow="fold", max_width=_NAME_WIDTH)
    table.add_column("method", overflow="fold")
    for name in ("variables", "shared", "table rows", "work", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        numbers = (agent.variables, agent.interface, agent.rows)
        cells = (agent.name, agent.method, *map(short, numbers), _work_of(agent), f"{agent.time:.3f} s")
        table.add_row(*map(Text, cells))
    return table


def _work_of(agent: AgentMetrics) -> str:
    """Return an agent's updates or cells.

    An agent that shares all its variables has nothing to eliminate or to sample: its table is the sum of its factors.
    """
    if agent.updates and not agent.exact:
        return f"{short(agent.updates)} updates"
    if agent.variables == agent.interface and not agent.cells:
        return "nothing hidden"
    return f"{short(agent.cells)} cells" if agent.cells or agent.exact else "0 updates"


def _number(value: Number | None) -> str:
    """Return an objective or a bound as text; a dash if there is none."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.10g}"
