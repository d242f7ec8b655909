"""Show the result of ``dmcmc run`` and ``dmcmc solve`` as text, for each kind of result.

A run has status, objective, bound, gap, improvers, agents and the assignment. Alternatives are a table of objectives,
what is proven, and what changes. The events of a scenario are a table, and a page with objective, gap, reaction time
and what moved.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.types import Number
from dmcmc.report.pages import DASHED, PLAIN, Chart, Series, page, shares_of, short, svg, table
from dmcmc.results import questions
from dmcmc.results.result import (
    AgentMetrics,
    Alternative,
    LevelReport,
    Output,
    PresolveReport,
    Result,
    RetainedEntries,
    WorkDone,
)

_MAX_CHANGES = 6  # changed values that a line names


def alternatives_table(alternatives: Sequence[Alternative]) -> Table:
    """Return the alternatives as a table, one a line, with the values that differ from those of the first."""
    first = alternatives[0].assignment
    changes = [[f"{name} = {value}" for name, value in changed_values(first, x.assignment)] for x in alternatives]
    return table_of_changes(alternatives, changes)


def changed_values(first: Mapping[str, Label], other: Mapping[str, Label]) -> list[tuple[str, Label]]:
    """Return the variables whose value differs from that in the first assignment, each with its value."""
    return [(name, value) for name, value in other.items() if value != first[name]]


def table_of_changes(alternatives: Sequence[Alternative], changes: Sequence[Sequence[str]]) -> Table:
    """Return a table of alternatives, each with the texts of its changes."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("alternative", justify="right")
    table.add_column("objective", justify="right")
    table.add_column("proven", overflow="fold")
    table.add_column("what differs from the first", overflow="fold")
    for i, (alternative, words) in enumerate(zip(alternatives, changes, strict=True), 1):
        cells = [str(i), str(alternative.objective), proof_text(alternative), listed(words)]
        table.add_row(*map(Text, cells))
    return table


def proof_text(alternative: Alternative) -> str:
    """Return what is proven of an alternative, in words.

    >>> proof_text(Alternative(objective=3, bound=5, proven=False, changed=0, assignment={}))
    'at most 5'
    """
    if alternative.proven:
        return "best"
    return "-" if alternative.bound is None else f"at most {alternative.bound}"


def listed(words: Sequence[str]) -> str:
    """Return the first changes of an alternative as text, and how many more there are."""
    more = len(words) - _MAX_CHANGES
    return ", ".join(words[:_MAX_CHANGES]) + (f" and {more} more" if more > 0 else "")


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


def result_summary(
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
    if any(agent.chains is not None for agent in result.agents):
        rows.append(("tables alone", _number(result.tables_objective)))
        rows.append(("chains", _mixing(result)))
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


def _mixing(result: Result) -> str:
    """Return how well the chains of the agent mix that has the fewest effective samples."""
    known = [agent.chains for agent in result.agents if agent.chains is not None]
    worst = min(known, key=lambda chains: chains.effective_samples)
    states = f"{worst.distinct_states:.3g} distinct states in {worst.samples:,} samples"
    effective = f"{worst.effective_samples:.3g} effective samples of a row"
    return f"{states}, {effective}, {worst.frozen:.0%} frozen (the agent that mixes worst)"


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


_HEAD = ("event", "clock", "status", "objective", "bound", "gap", "reaction", "time", "moved", "messages")
_MAX_EVENTS = 60  # lines of the table on a terminal


def events_table(events: Sequence[questions.EventResult], written: str | None = None) -> Table:
    """Return the results of a scenario as a table for a terminal: the last events if there are many."""
    shown = Table(box=None, header_style="bold", padding=(0, 1), caption=written and f"written to {written}")
    for name in _HEAD:
        shown.add_column(name, overflow="fold", justify="left" if name in ("event", "status") else "right")
    for event in events[-_MAX_EVENTS:]:
        shown.add_row(*map(Text, _cells(event)))
    return shown


def _cells(event: questions.EventResult) -> list[str]:
    """Return the cells of one event."""
    return [
        event.event,
        f"{event.clock:g} s",
        event.status,
        _number(event.objective),
        _number(event.bound),
        "-" if event.gap is None else f"{100 * event.gap:.4g} %",
        "-" if event.reaction is None else f"{event.reaction:.3f} s",
        f"{event.time:.3f} s",
        f"{event.moved:,}",
        f"{event.msg_count:,}",
    ]


def write_page(path: Path, output: Path) -> Path:
    """Write the page of a scenario's results; return the page's path.

    Parameters
    ----------
    path
        The file with one line of JSON per event.
    output
        The page to write.

    Raises
    ------
    FileError
        If the file is not the result of a scenario.
    """
    replace_file(output, [page_of_events(questions.read_events(path), path.stem)])
    return output


def page_of_events(events: Sequence[questions.EventResult], name: str) -> str:
    """Return the page of a scenario's results."""
    objective = _line("objective", events, lambda event: event.objective, PLAIN)
    bound = _line("bound", events, lambda event: event.bound, DASHED)
    gap = _line("gap", events, lambda event: None if event.gap is None else 100 * event.gap)
    first = _line("first answer", events, lambda event: event.reaction)
    last = _line("last answer", events, lambda event: event.time, 1)
    moved = _line("moved", events, lambda event: event.moved)
    charts = [
        Chart("Objective and bound", "event", "", [*objective, *bound]),
        Chart("Gap", "event", "%", gap),
        Chart("Time to the first and to the last answer", "event", "s", [*first, *last]),
        Chart("Variables that moved", "event", "variables", moved),
    ]
    rows = [[str(number), *_cells(event), listed(event.actions)] for number, event in enumerate(events)]
    drawn = [svg(chart) for chart in charts if chart.series]
    goal = {"max": "maximise", "min": "minimise"}.get(events[0].sense, "")
    count = f"{len(events) - 1} event{'' if len(events) == 2 else 's'} ({goal})"
    parts = [f'<p>{count}</p><div class="charts">', *drawn, "</div>", "<h2>Events</h2>"]
    return page(f"{name}: scenario", [*parts, table(["", *_HEAD, "changes"], rows)])


def _line(
    name: str,
    events: Sequence[questions.EventResult],
    value: Callable[[questions.EventResult], Number | None],
    colour: int = 0,
) -> list[Series]:
    """Return a line over the events that have a value; no line if none has one."""
    points = [(float(i), float(y)) for i, event in enumerate(events) if (y := value(event)) is not None]
    return [Series(name, [(x, y, y, y) for x, y in points], colour=colour)] if points else []


V = TypeVar("V")

_MAX_VARIABLES = 20  # variables whose marginals are shown
_MAX_LABELS = 4  # values per variable
_MAX_DIGITS = 60  # digits of a count; larger ones are written with an exponent


def summary(output: Output, problem: Problem | None = None, written: str | None = None) -> RenderableType:
    """Return the summary of any kind of result.

    Parameters
    ----------
    output
        The result.
    problem
        The solved problem; if it is given, the first values of the assignment are shown.
    written
        The file that the result was written to.
    """
    if isinstance(output, questions.Sums):
        return overview([*_sums(output), *_file(written)])
    if isinstance(output, questions.ConstraintConflict):
        return overview([*_conflict(output), *_file(written)])
    if isinstance(output, questions.Marginals):
        return overview([*_marginals(output), *_file(written)])
    if isinstance(output, questions.ScenarioResult):
        return events_table(output.events, written)
    assert isinstance(output, Result)
    details = []
    if isinstance(output, questions.Explanation) and output.objective is not None:
        details.append(("product", f"{_power(output.objective)} (of the file's numbers; the objective is its ln)"))
    return result_summary(output, details, problem, written)


def _file(written: str | None) -> list[tuple[str, str]]:
    """Return the line that names the file of the result."""
    return [] if written is None else [("written to", written)]


def _sums(sums: questions.Sums) -> list[tuple[str, str]]:
    """Return the lines of a partition function or a count."""
    name = {"pr": "Z", "count": "solutions"}[sums.task]
    meaning = {
        "exact": "exact",
        "bound": f"upper bound (mini-buckets, z = {sums.z})",
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    }
    rows = [("status", meaning[sums.status])]
    if sums.ln is None:
        rows.append((name, "0"))
    elif isinstance(sums.value, int) and sums.ln < _MAX_DIGITS * math.log(10):
        rows.append((name, str(sums.value)))
    else:
        rows.append((name, _power(sums.ln)))
    if sums.ln is not None:
        rows += [(f"ln {name}", f"{sums.ln:.10g}"), (f"log10 {name}", f"{sums.log10:.10g}")]
    rows += [("time", f"{sums.time:.3f} s"), ("elimination", f"width {sums.width}, {sums.cells:,} table cells")]
    return rows


def _conflict(conflict: questions.ConstraintConflict) -> list[tuple[str, str]]:
    """Return the lines of a conflict: its constraints, and the objective if one of them is relaxed."""
    meaning = {
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
        "feasible": "feasible: the hard constraints can hold together",
        "unknown": "unknown: neither an assignment nor a proof was found in time",
    }
    rows = [("status", meaning[conflict.status]), ("time", f"{conflict.time:.3f} s")]
    if conflict.status == "infeasible":
        minimal = "no smaller set of them" if conflict.minimal else "perhaps fewer of them, too"
        rows.append(("conflict", f"{len(conflict.constraints)} constraints cannot hold together ({minimal})"))
    for relaxation in conflict.relaxations:
        repaired = f"objective {relaxation.objective} without it" if relaxation.objective is not None else None
        rows.append(("", f"{relaxation.constraint}: {repaired or f'without it: {relaxation.status}'}"))
    return rows


def _marginals(result: questions.Marginals) -> list[tuple[str, str]]:
    """Return the lines of marginals: the first variables, each with its best values."""
    meaning = {
        "exact": "exact",
        "bounded": "bounds for each value, within the time limit",
        "infeasible": "infeasible (proven: no assignment satisfies the hard constraints)",
    }
    rows = [("status", meaning[result.status])]
    if result.ln is not None:
        rows.append(("ln Z", f"{result.ln:.10g}"))
    if result.objective is not None:
        rows.append(("objective", f"{result.objective:.12g}"))
    if result.status == "bounded":
        return [*rows, ("time", f"{result.time:.3f} s"), *_shown(result.intervals, _interval_texts)]
    rows.append(("time", f"{result.time:.3f} s ({result.planning:.3f} s of it for building the junction tree)"))
    size = f"{result.cells:,} {'entries of sparse tables' if result.tables == 'sparse' else 'table cells'}"
    rows.append(("junction tree", f"{result.cliques} cliques, width {result.width}, {size}"))
    return [*rows, *_shown(result.marginals, lambda values: _values(values, result.task))]


def _shown(by_variable: Mapping[str, V], text: Callable[[V], str]) -> list[tuple[str, str]]:
    """Return the lines of the first variables."""
    rows = [(name, text(values)) for name, values in islice(by_variable.items(), _MAX_VARIABLES)]
    more = len(by_variable) - _MAX_VARIABLES
    return [*rows, ("...", f"and {more} more (all of them with --json)")] if more > 0 else rows


def _interval_texts(values: Mapping[Label, questions.ValueInterval]) -> str:
    """Return the bounds of the values of a variable: the proven possible ones first."""
    possible = {label: x for label, x in values.items() if x.objective is not None or not x.proven}
    listed = sorted(possible.items(), key=lambda pair: (not pair[1].proven, pair[1].objective is None))
    shown = ", ".join(f"{label}: {_interval_text(x)}" for label, x in listed[:_MAX_LABELS])
    more, impossible = len(listed) - _MAX_LABELS, len(values) - len(listed)
    rest = [f"{more} more"] * (more > 0) + [f"{impossible} impossible"] * (impossible > 0)
    return ", ".join([shown, *rest] if shown else rest)


def _interval_text(interval: questions.ValueInterval) -> str:
    """Return the bounds of one value: a number if it is proven, otherwise the best found and the bound."""
    if interval.proven:
        return f"{interval.objective:.10g}"
    lower, upper = ("?" if x is None else f"{x:.10g}" for x in (interval.objective, interval.bound))
    return f"{lower} to {upper}"


def _values(values: Mapping[Label, Number | None], task: str) -> str:
    """Return the values of a variable: by descending probability, or for max-marginals in the order of the domain."""
    listed = [(label, value) for label, value in values.items() if value is not None]
    if task == "mar":
        listed.sort(key=lambda pair: -pair[1])
    digits = 6 if task == "mar" else 10
    first = ", ".join(f"{label}: {value:.{digits}g}" for label, value in listed[:_MAX_LABELS])
    more = len(values) - min(len(listed), _MAX_LABELS)
    return f"{first}, ... {more} more" if more and len(listed) > _MAX_LABELS else first


def _power(ln: float) -> str:
    """Return e^ln as text with ten digits; also for numbers beyond the range of floats.

    >>> _power(0.0), _power(2302.585092994046)
    ('1', '1.0000000000e+1000')
    """
    if abs(ln) < 700:  # e^±700 are float64 numbers
        return f"{math.exp(ln):.10g}"
    exponent = math.floor(ln / math.log(10))
    return f"{math.exp(ln - exponent * math.log(10)):.10f}e{exponent:+d}"
