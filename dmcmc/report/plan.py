"""What a run would do: each agent's method with what it takes, and how their tables are combined."""

from math import prod
from typing import TYPE_CHECKING

import msgspec

from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.memory import readable
from dmcmc.results.result import Output

if TYPE_CHECKING:
    from dmcmc.run.planning.setup import Setup

_MOST_INCOMPLETE = 20  # agents
_ASCENTS = ("dual", "triangles", "semidefinite")  # bounds that rows may be searched in by, and lifted
_MOST_FACTORS = 20_000  # of a problem whose division is looked at


class AgentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent would do.

    Attributes
    ----------
    name : str
    variables, interface : int
        How many the agent owns, and how many of them share a factor with another agent's.
    rows : int
        Interface assignments.
    width, cells, bytes
        Of the exact elimination, whether it is chosen or not: induced width, joined table cells, bytes of its tables.
        None where another method is asked for.
    method, bound : str
        The local solver, and what bounds its table from above (``none`` where the table is exact).
    device : str
        ``cpu`` or ``cuda``.
    seconds : float
        Estimate of the method's time.
    reason : str
        Why this method.
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


class Plan(Output, frozen=True, kw_only=True):
    """What a run would do. ``print`` shows it as a table.

    Attributes
    ----------
    agents : tuple of AgentPlan
    width, cells, bytes
        The largest width, all cells, and the most bytes of an agent; None where no agent's elimination is counted.
    arithmetic : str
        The numbers of all sums: ``int32``, ``int64`` or ``float64``.
    division : str
        What exact elimination takes agent by agent, and in one piece.
    combine : str
        How the agents' tables are combined, or how that is decided.
    later : tuple of str
        What time can be spent on after that, of which what gains most a second is done; empty without a time budget.
    reduced : str
        What was taken out of the problem beforehand; empty where it is solved as it is. All else is about what is left.
    incomplete : tuple of str
        What elimination with incomplete tables would hold, agent by agent where that is offered.
    search : str
        Of what searches beside the run, a search engine or a GPU; empty where none is wanted.
    """

    agents: tuple[AgentPlan, ...]
    width: int | None
    cells: float | None
    bytes: int | None
    arithmetic: str
    division: str
    combine: str
    later: tuple[str, ...] = ()
    reduced: str = ""
    incomplete: tuple[str, ...] = ()
    search: str = ""

    def __str__(self) -> str:
        from dmcmc.report.explain import text_of

        return text_of(self)


def plan_of(setup: "Setup") -> Plan:
    """Return what a run would do, from what was chosen for it."""
    from dmcmc.run.improvers import background_search, gpu_chains

    agents = []
    for work, choice in zip(setup.surveys, setup.choices, strict=True):
        planned = work.effort > 0 or not work.hidden
        agents.append(
            AgentPlan(
                name=setup.problem.agents[work.agent],
                variables=work.hidden + work.interface,
                interface=work.interface,
                rows=work.rows,
                width=work.width if planned else None,
                cells=work.cells if planned else None,
                bytes=work.bytes if planned else None,
                method=choice.method,
                bound=choice.bound,
                device=choice.device,
                seconds=choice.seconds,
                reason=choice.reason,
            )
        )
    return Plan(
        agents=tuple(agents),
        width=max((a.width for a in agents if a.width is not None), default=None),
        cells=sum(counted) if (counted := [a.cells for a in agents if a.cells is not None]) else None,
        bytes=max((a.bytes for a in agents if a.bytes is not None), default=None),
        arithmetic=setup.arithmetic.dtype.name,
        division=_division(setup),
        combine=_combination(setup),
        later=_later(setup) if setup.timed else (),
        reduced=_reduced(setup),
        incomplete=_incomplete(setup),
        search="; ".join(filter(None, [background_search.outlook(setup), gpu_chains.outlook(setup.config)])),
    )


def _reduced(setup: "Setup") -> str:
    """Return what was taken out of the problem beforehand."""
    reduction, asked, left = setup.asked.reduction, setup.asked.problem, setup.original
    if reduction is None:
        return ""
    if reduction.infeasible:
        return "no assignment satisfies the hard constraints: propagation proves it"
    removed = reduction.removed
    parts = {
        "values inconsistent": removed.inconsistent,
        "dominated": removed.dominated,
        "variables fixed": removed.fixed,
        "eliminated in place": removed.eliminated,
        "free": removed.free,
    }
    what = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count) or "factors joined"
    sizes = f"{asked.n_variables:,} variables and {len(asked.factors):,} factors to {left.n_variables:,}"
    return f"{sizes} and {len(left.factors):,} ({what}; {removed.seconds:.2g} s)"


def _division(setup: "Setup") -> str:
    """Return what the agents make of the problem's cells; nothing for one agent, and where it takes long to say."""
    from dmcmc.inference.dpop.division_cost import cost_of
    from dmcmc.inference.orders.best_order import best_order

    problem = setup.problem
    if problem.n_agents == 1 or len(problem.factors) > _MOST_FACTORS:
        return ""
    cost = cost_of(problem, setup.division, setup.tree)
    order = best_order([f.scope for f in problem.factors], problem.domains, range(problem.n_variables))
    return f"{cost.cells:.2g} cells agent by agent, largest message {cost.message:.2g}; in one piece {order.cells:.2g}"


def _later(setup: "Setup") -> tuple[str, ...]:
    """Return what time can be spent on after the first combination."""
    sampled = [choice for choice in setup.choices if choice.method != "exact"]
    bounded = sum(choice.bound != "none" for choice in sampled)
    prices = [price for price in map(setup.exact_price, range(setup.problem.n_agents)) if price is not None]
    from dmcmc.inference.bounds.semidefinite.relaxation import follows_search, suits

    offers = ["search the whole"]
    if prices:
        each = f"{min(prices):.2g} s" if len(prices) == 1 else f"{min(prices):.2g} to {max(prices):.2g} s"
        offers.append(f"eliminate {_agents(len(prices))} ({each}, {sum(prices):.2g} s in all)")
    filtered = sum(map(setup.filters, range(setup.problem.n_agents)))
    if filtered:
        offers.append(f"eliminate {_agents(filtered)} without what cannot beat the incumbent (filter)")
    if sampled:
        offers.append(f"sample {_agents(len(sampled))}")
    if bounded:
        offers.append(f"bound {_agents(bounded)}")
    searched = sum(choice.bound.startswith(_ASCENTS) for choice in sampled)
    if searched:
        offers.append(f"branch in rows of {_agents(searched)} that ascent does not close")
    where = _where_lifted(setup)
    lifted = [
        local
        for choice, local in zip(setup.choices, setup.division.locals, strict=True)
        if choice.method != "exact" and choice.bound.startswith(_ASCENTS)
        if suits(local, _gpu_in_use(setup) and not where)
    ]
    if lifted:
        later = ", once searches in rows stall" if all(map(follows_search, lifted)) else ""
        offers.append(f"semidefinite lifts of {_agents(len(lifted))}{later}{where}")
    if setup.config.combine.method == "auto" and setup.config.combine.z == "auto":
        offers.append("combine with larger tables, if some are split")
    return tuple(offers)


def _gpu_in_use(setup: "Setup") -> bool:
    return setup.backend.device != "cpu" and bool(setup.limits.gpu or opened())


def _where_lifted(setup: "Setup") -> str:
    """Return why lifts stay on the CPU where there is a GPU in use; nothing else."""
    if not _gpu_in_use(setup):
        return ""
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import lift_problem

    why = lift_problem()
    return "" if why is None else f" (on the CPU: {why})"


def _incomplete(setup: "Setup") -> tuple[str, ...]:
    """Return what is dense and what is incomplete where an agent would be eliminated without what cannot win."""
    from dmcmc.inference.sparse.size_statistics import DENSE, forecast

    found, size = [], setup.arithmetic.dtype.itemsize
    for agent in filter(setup.filters, range(setup.problem.n_agents)):
        local = setup.division.locals[agent]
        cells = [float(prod(factor.shape)) for factor in local.factors]
        possible = [n - factor.forbidden_entries() for n, factor in zip(cells, local.factors, strict=True)]
        expected = forecast(local.plan, [p / n for p, n in zip(possible, cells, strict=True)], size)
        small = int((local.plan.program.cells <= DENSE).sum())
        found.append(
            f"{setup.problem.agents[agent]}: {100 * sum(possible) / max(1.0, sum(cells)):.3g} % of the factors' entries"
            f" are possible; messages: {small} dense, {expected.messages - small} dense or incomplete, whichever costs"
            f" less with what the incumbent leaves; with what the factors leave, {expected.incomplete} incomplete,"
            f" {readable(expected.bytes)} in place of {readable(local.plan.entries * size)}"
        )
    return tuple(found[:_MOST_INCOMPLETE])


def _agents(count: int) -> str:
    return f"{count} agent{'s' * (count != 1)}"


def _combination(setup: "Setup") -> str:
    """Return how the agents' tables are combined, or how that is decided."""
    from dmcmc.run.planning.combination_plan import largest_join

    combine, allowed = setup.config.combine, setup.room
    if setup.slicing is not None:
        return _slices(setup)
    if combine.method == "exact":
        return "exact, as combine.method says"
    if combine.method == "mini-bucket":
        limit = "as large as budget.memory allows" if combine.z == "auto" else f"z = {combine.z}"
        return f"mini-buckets, as combine.method says; {limit}"
    memory, most = readable(allowed), largest_join(setup) * setup.arithmetic.dtype.itemsize
    if most <= allowed:
        return f"exact: joined tables take at most {readable(int(most))}, budget.memory leaves an agent {memory}"
    return (
        f"exact where an agent's tables fit its part of budget.memory ({memory}), else mini-buckets; decided when they"
        " are there"
    )


def _slices(setup: "Setup") -> str:
    """Return what is worked off value by value, and about how long that takes."""
    from dmcmc.run.planning.combination_plan import slicing_seconds

    assert setup.slicing is not None
    slicing, size = setup.slicing, setup.arithmetic.dtype.itemsize
    cut = sum(map(len, slicing.cut.values()))
    return (
        f"exact, in slices: {cut} variable{'s' * (cut != 1)} value by value, {slicing.steps:.3g} steps of at most"
        f" {readable(int(slicing.largest * size))} in place of {readable(int(slicing.whole * size))},"
        f" {slicing.cells:.2g} cells; about {slicing_seconds(setup):.2g} s"
    )
