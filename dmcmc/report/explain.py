"""The plan of a run: the method of each agent with the reason and the estimated cost, and how the tables are combined.

``dmcmc.plan`` returns it and ``--explain`` prints it before the work begins. :func:`plan_of` derives it from the plan
of a run (``dmcmc.solving.planning.plan``): the presolved problem and its division into agents, the planned elimination
of each agent (``surveys``), the chosen methods (``choices``), and the pseudo-tree. With a time budget it also has the
*improvers* that can follow the first combination: components that improve the answer or the bound.
"""

import io
import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dmcmc.anytime.engines.choose_engine import outlook as engine_outlook
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import relaxation_gpu_problem
from dmcmc.inference.bounds.semidefinite.relaxation import is_suitable, runs_after_branch_and_bound
from dmcmc.inference.dpop.division_cost import cost_of
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.sparse.sparse_table import forecast, max_dense_cells
from dmcmc.report.pages import short
from dmcmc.results import result
from dmcmc.solving.planning.combination_plan import largest_join, may_split_buckets, slicing_seconds

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup


# Beginnings of the names of bounds that branch and bound and per-row relaxations can follow.
_ASCENTS = ("dual", "triangles", "semidefinite")


def work_after_first_answer(setup: "Setup") -> tuple[str, ...]:
    """Return the improvers that can follow the first combination: ``name: work`` each."""
    sampled = [choice for choice in setup.choices if choice.method != "exact"]
    bounded = sum(choice.bound != "none" for choice in sampled)
    exact_seconds = [
        seconds for seconds in map(setup.exact_seconds, range(setup.divided.problem.n_agents)) if seconds is not None
    ]
    lines = [f"{result.LOCAL_SEARCH}: the whole assignment"]
    if exact_seconds:
        seconds_each = (
            f"{min(exact_seconds):.2g} s"
            if len(exact_seconds) == 1
            else f"{min(exact_seconds):.2g} to {max(exact_seconds):.2g} s each"
        )
        lines.append(
            f"{result.EXACT_ELIMINATION}: {_agents(len(exact_seconds))}"
            f" ({seconds_each}, {sum(exact_seconds):.2g} s in total)"
        )
    filtered = sum(map(setup.may_filter, range(setup.divided.problem.n_agents)))
    if filtered:
        lines.append(
            f"{result.FUNCTION_FILTERING}: {_agents(filtered)}, without entries that cannot beat the best answer"
        )
    if sampled:
        lines.append(f"{result.SAMPLING}: {_agents(len(sampled))}")
    if bounded:
        lines.append(f"{result.BOUND}: {_agents(bounded)}")
    searched = sum(choice.bound.startswith(_ASCENTS) for choice in sampled)
    if searched:
        lines.append(f"{result.BRANCH}: {_agents(searched)}, in table rows whose gap dual ascent leaves open")
    cpu_note = _cpu_relaxation_note(setup)
    relaxed = [
        local
        for choice, local in zip(setup.choices, setup.divided.division.locals, strict=True)
        if choice.method != "exact" and choice.bound.startswith(_ASCENTS)
        if is_suitable(local, _gpu_in_use(setup) and not cpu_note)
    ]
    if relaxed:
        later = ", once branch and bound makes no progress" if all(map(runs_after_branch_and_bound, relaxed)) else ""
        lines.append(
            f"{result.SEMIDEFINITE}: bounds of {_agents(len(relaxed))} by semidefinite relaxation{later}{cpu_note}"
        )
    if setup.divided.config.combine.method == "auto" and setup.divided.config.combine.z == "auto":
        lines.append(f"{result.RECOMBINATION}: with larger tables, if some are split")
    return tuple(lines)


def _gpu_in_use(setup: "Setup") -> bool:
    """Return whether the run may use a GPU and one is there."""
    return setup.backend.device != "cpu" and bool(setup.limits.gpu or is_gpu_in_use())


def _cpu_relaxation_note(setup: "Setup") -> str:
    """Return why semidefinite relaxations run on the CPU although a GPU is in use; empty otherwise."""
    if not _gpu_in_use(setup):
        return ""
    reason = relaxation_gpu_problem()
    return "" if reason is None else f" (on the CPU: {reason})"


def _agents(count: int) -> str:
    """Return a number of agents in words."""
    return f"{count} agent{'s' * (count != 1)}"


_MAX_SPARSE_AGENTS = 20  # agents whose sparse tables are described
_MAX_FACTORS = 20_000  # factors; the cost of dividing a larger problem into agents takes too long to compute


class AgentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one agent.

    Attributes
    ----------
    name : str
        The agent's name.
    variables, interface : int
        Number of its variables, and of those that share a factor with another agent's variables.
    rows : int
        Number of boundary assignments (assignments of the interface variables): rows of the agent's table.
    width : int or None
        Induced width of exact elimination, whether it is chosen or not; None if another method was asked for.
    cells : float or None
        Number of table cells of exact elimination; None if another method was asked for.
    bytes : int or None
        Memory of the tables of exact elimination in bytes; None if another method was asked for.
    method : str
        The chosen method: ``exact`` or the name of a sampler.
    bound : str
        The bound provider that gives upper bounds of the table; ``none`` if the table is exact.
    device : str
        ``cpu`` or ``cuda``.
    seconds : float
        Estimated time of the chosen method in seconds.
    reason : str
        Why this method was chosen.
    """

    name: str
    variables: int
    interface: int
    rows: int
    width: int | None
    cells: float | None
    bytes: int | None
    method: str
    bound: str
    device: str
    seconds: float
    reason: str


class TreePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pseudo-tree of the agents, by sizes that make heuristics comparable.

    Attributes
    ----------
    heuristic : str
        The setting ``combine.tree``.
    roots : tuple of str
        The agents that are roots, one per connected component.
    depth : int
        Number of agents on the longest path from a root to a leaf.
    width : int
        Induced width: largest number of variables of an agent's interface and separator together, less 1.
    separator : int
        Largest number of variables of a UTIL message.
    message_cells : float
        Cells of the largest UTIL message.
    cells : float
        Sum over agents of the cells over interface and separator: what UTIL joins at most.
    """

    heuristic: str
    roots: tuple[str, ...]
    depth: int
    width: int
    separator: int
    message_cells: float
    cells: float


class Plan(result.Output, frozen=True, kw_only=True):
    """The plan of a run, as :func:`dmcmc.plan` returns it. ``print`` shows it as a table.

    Attributes
    ----------
    agents : tuple of AgentPlan
        The plan of each agent.
    width : int or None
        Largest induced width of an agent's exact elimination; None if no agent is planned for exact elimination.
    cells : float or None
        Table cells of the exact eliminations of all agents; None as for ``width``.
    bytes : int or None
        Largest memory of an agent's exact elimination in bytes; None as for ``width``.
    arithmetic : str
        The number type of all sums: ``int32``, ``int64`` or ``float64``.
    division : str
        The cost of exact elimination agent by agent, and of the whole problem at once. Empty for one agent.
    combine : str
        How the agents' tables are combined, or how this is decided during the run.
    tree : TreePlan or None
        The pseudo-tree of the agents; None for one agent.
    later : tuple of str
        The improvers that a time budget can be spent on after the first answer, each with its work. The run always
        chooses the one with the largest expected gain per second. Empty without a time budget.
    presolve : str
        What presolve removed; empty if the problem is unchanged. The other fields describe the remaining problem.
    sparse_tables : tuple of str
        Expected sizes of sparse tables, for each agent that can be eliminated without the entries that cannot win.
    search : str
        The search engine or GPU chains that run in the background; empty if there are none.
    """

    agents: tuple[AgentPlan, ...]
    width: int | None
    cells: float | None
    bytes: int | None
    arithmetic: str
    division: str
    combine: str
    tree: TreePlan | None = None
    later: tuple[str, ...] = ()
    presolve: str = ""
    sparse_tables: tuple[str, ...] = ()
    search: str = ""

    def __str__(self) -> str:

        return text_of(self)


def plan_of(setup: "Setup") -> Plan:
    """Return the plan of a run from its setup."""
    agents = []
    for survey, choice in zip(setup.surveys, setup.choices, strict=True):
        planned = survey.effort > 0 or not survey.hidden
        agents.append(
            AgentPlan(
                name=setup.divided.problem.agents[survey.agent],
                variables=survey.hidden + survey.interface,
                interface=survey.interface,
                rows=survey.rows,
                width=survey.width if planned else None,
                cells=survey.cells if planned else None,
                bytes=survey.bytes if planned else None,
                method=choice.method,
                bound=choice.bound,
                device=choice.device,
                seconds=choice.seconds,
                reason=choice.reason,
            )
        )
    from dmcmc.anytime.improvers.assignments import outlook as gpu_outlook  # loads the interface of the scheduler

    engine = engine_outlook(
        setup.divided.config, setup.divided.given.problem, setup.divided.original, may_split_buckets(setup)
    )
    return Plan(
        agents=tuple(agents),
        width=max((a.width for a in agents if a.width is not None), default=None),
        cells=sum(counted) if (counted := [a.cells for a in agents if a.cells is not None]) else None,
        bytes=max((a.bytes for a in agents if a.bytes is not None), default=None),
        arithmetic=setup.divided.arithmetic.dtype.name,
        division=_division(setup),
        combine=_combination(setup),
        tree=_tree_plan(setup),
        later=work_after_first_answer(setup) if setup.divided.timed else (),
        presolve=_presolve(setup),
        sparse_tables=_sparse_tables(setup),
        search="; ".join(filter(None, [engine, gpu_outlook(setup.divided.config)])),
    )


def _presolve(setup: "Setup") -> str:
    """Return what presolve removed from the problem."""
    reduction, given, remaining = setup.divided.given.reduction, setup.divided.given.problem, setup.divided.original
    if reduction is None:
        return ""
    if reduction.infeasible:
        return "no assignment satisfies the hard constraints (proven by propagation)"
    removed = reduction.removed
    parts = {
        "inconsistent values": removed.inconsistent,
        "dominated values": removed.dominated,
        "fixed variables": removed.fixed,
        "eliminated variables": removed.eliminated,
        "variables without factors": removed.free,
    }
    reasons = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count) or "factors joined"
    sizes = f"{given.n_variables:,} variables and {len(given.factors):,} factors to {remaining.n_variables:,}"
    return f"{sizes} and {len(remaining.factors):,} ({reasons}; {removed.seconds:.2g} s)"


def _division(setup: "Setup") -> str:
    """Return the cost of exact elimination agent by agent, and of the whole problem at once.

    Empty for one agent, and for more than 20,000 factors, where computing it would take long.
    """
    problem = setup.divided.problem
    if problem.n_agents == 1 or len(problem.factors) > _MAX_FACTORS:
        return ""
    cost = cost_of(problem, setup.divided.division, setup.tree)
    order = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables))
    by_agent = f"{cost.cells:.2g} table cells agent by agent, largest message {cost.message_cells:.2g}"
    return f"{by_agent}; whole problem at once: {order.cells:.2g}"


def _tree_plan(setup: "Setup") -> TreePlan | None:
    """Return the pseudo-tree of several agents."""
    if setup.divided.problem.n_agents < 2:
        return None
    roots = tuple(
        name for name, parent in zip(setup.divided.problem.agents, setup.tree.parent, strict=True) if parent < 0
    )
    return TreePlan(heuristic=setup.divided.config.combine.tree, roots=roots, **setup.tree_size._asdict())


def _sparse_tables(setup: "Setup") -> tuple[str, ...]:
    """Return the expected sizes of sparse tables for agents that can be eliminated by function filtering.

    Function filtering drops the table entries that cannot beat the best answer. Sparse tables hold only the others.
    """
    divided, lines = setup.divided, []
    size, names = divided.arithmetic.dtype.itemsize, divided.problem.agents
    for agent in filter(setup.may_filter, range(len(names))):
        local = divided.division.locals[agent]
        cells = [float(prod(factor.shape)) for factor in local.factors]
        possible = [n - factor.forbidden_entries() for n, factor in zip(cells, local.factors, strict=True)]
        expected = forecast(local.plan, [p / n for p, n in zip(possible, cells, strict=True)], size)
        dense = int((local.plan.program.cells <= max_dense_cells()).sum())
        lines.append(
            f"{names[agent]}: {100 * sum(possible) / max(1.0, sum(cells)):.3g} % of the factors' entries"
            f" are allowed; {dense} messages dense, {expected.messages - dense} dense or sparse, whichever is cheaper"
            f" once the best answer rules out entries; before that {expected.sparse_messages} sparse, with"
            f" {format_bytes(expected.bytes)} instead of {format_bytes(local.plan.entries * size)}"
        )
    return tuple(lines[:_MAX_SPARSE_AGENTS])


def _combination(setup: "Setup") -> str:
    """Return how the agents' tables are combined, or how this is decided during the run.

    Tables are joined exactly, in slices (some variables fixed value by value), or in mini-buckets of at most z + 1
    variables.
    """
    combine, allowed = setup.divided.config.combine, setup.step_bytes
    if setup.slicing is not None:
        return _slices(setup)
    if combine.method == "exact":
        return "exact, as set by combine.method"
    if combine.method == "mini-bucket":
        limit = "z as large as budget.memory allows" if combine.z == "auto" else f"z = {combine.z}"
        return f"mini-buckets, as set by combine.method; {limit}"
    memory, largest_bytes = format_bytes(allowed), largest_join(setup) * setup.divided.arithmetic.dtype.itemsize
    if largest_bytes <= allowed:
        return f"exact: joined tables need at most {format_bytes(int(largest_bytes))}, the limit per agent is {memory}"
    return (
        f"exact if an agent's tables fit its part of budget.memory ({memory}), otherwise mini-buckets; decided when the"
        " tables are computed"
    )


def _slices(setup: "Setup") -> str:
    """Return how many variables are fixed value by value (the cut), and about how long this takes."""
    assert setup.slicing is not None
    slicing, size = setup.slicing, setup.divided.arithmetic.dtype.itemsize
    cut = sum(map(len, slicing.cut.values()))
    return (
        f"exact, in slices: {cut} variable{'s' * (cut != 1)} fixed value by value, {slicing.steps:.3g} steps with at"
        f" most {format_bytes(int(slicing.largest * size))} instead of"
        f" {format_bytes(int(slicing.largest_unsliced * size))},"
        f" {slicing.cells:.2g} table cells; about {slicing_seconds(setup):.2g} s"
    )


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
