"""Build the ``Result`` of a run from the reports of all ranks: metrics of agents, outcome, guarantee and provenance."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.building.levels import level_values
from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, SentMessages, latest
from dmcmc.inference.dpop.division import own_utilities
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Number
from dmcmc.results import result
from dmcmc.results.outcome import SolveOutcome
from dmcmc.results.stored_result import provenance
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.agent.bounds import largest_total
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.divided_problem import DividedProblem, temperature_of
from dmcmc.solving.planning.presolve import presolve_report

if TYPE_CHECKING:
    from dmcmc.samplers.auto.choose import AgentChoice
    from dmcmc.solving.planning.plan import Setup

_METHODS_WITH_GUARANTEE = {
    "gibbs",
    "metropolis-hastings",
    "metropolis-hastings-single",
}  # at a constant temperature (Property 1)


class RankOutcome(NamedTuple):
    """The report of one rank at the end of a run.

    Attributes
    ----------
    metrics : dict of AgentMetrics
        By agent of this rank.
    clock : Clock
        Simulated seconds and constraint checks.
    used_gpu : bool
        Whether this rank has used a GPU.
    upper_bounds : dict of Number or None
        Encoded upper bound on the utility of each agent's factors, by agent.
    control : dict of (int, int)
        Number and bytes of messages between ranks other than agents' messages, by kind (:meth:`.World.message_counts`).
    """

    metrics: dict[int, result.AgentMetrics]
    clock: Clock
    used_gpu: bool
    upper_bounds: Mapping[int, Number | None]
    control: Mapping[str, tuple[int, int]] = {}


class AgentWork(NamedTuple):
    """The work of one agent.

    Attributes
    ----------
    table : SampledTable or None
        Its table; None if the run ended before its first table.
    z : int or None
        Limit of its mini-buckets; None if no bucket was split.
    chosen : ChosenValues or None
        Its boundary values in the last cycle; None without a completed cycle.
    """

    table: SampledTable | None
    z: int | None
    chosen: ChosenValues | None


def metrics_of(
    setup: "Setup", agent: int, work: AgentWork, rank: int, sent: Sequence[SentMessages], extra: Sequence[SentMessages]
) -> result.AgentMetrics:
    """Return the metrics of one agent.

    Parameters
    ----------
    work
        The agent's work.
    rank
        The agent's rank.
    sent, extra
        Its messages in the first combination, and later.
    """
    own = own_utilities(setup.divided.division.locals[agent])
    table, tree_messages = work.table, [setup.tree_messages[agent]] if agent in setup.tree_messages else []
    common: dict[str, Any] = {
        "name": setup.divided.problem.agents[agent],
        "variables": setup.divided.owned[0][agent],
        "interface": setup.divided.owned[1][agent],
        "rank": rank,
        "rows": setup.divided.division.locals[agent].rows,
        "msg_count": sum([s.count for s in sent]),
        "msg_size": sum([s.size for s in sent]),
        "extra_msg_count": sum([s.count for s in extra]),
        "extra_msg_size": sum([s.size for s in extra]),
        "messages": _totals_by_kind([*sent, *extra, *tree_messages]),
        "own_utilities": own,
        "disclosed": min(own, sum([s.entries for s in (*sent, *extra)])),
    }
    if table is None:
        return result.AgentMetrics(method=setup.methods[agent], exact=False, **common)
    return result.AgentMetrics(
        method=table.method,
        exact=table.exact,
        cells=table.cells,
        updates=table.updates,
        samples=0 if setup.listed_rows[agent] else table.drawn,
        chains=None if table.chains is None else result.ChainReport(*table.chains),
        time=table.seconds,
        z=work.z,
        gap=None if work.chosen is None else gap_at(table, work.chosen, setup.divided.arithmetic),
        retained=None if table.sparse_sizes is None else result.RetainedEntries(*table.sparse_sizes),
        **common,
    )


def _totals_by_kind(sent: Sequence[SentMessages]) -> dict[str, result.MessageCount]:
    """Return the number and bytes of messages by kind."""
    kinds: dict[str, tuple[int, int]] = {message.kind: (0, 0) for message in sent if message.count}
    for message in sent:
        if message.kind in kinds:
            count, size = kinds[message.kind]
            kinds[message.kind] = count + message.count, size + message.size
    return {kind: result.MessageCount(count, size) for kind, (count, size) in kinds.items()}


def messages_of(agents: Sequence[result.AgentMetrics]) -> dict[str, result.MessageCount]:
    """Return the number and bytes of all agents' messages by kind."""
    return _totals_by_kind(
        [SentMessages(n.count, n.size, kind) for agent in agents for kind, n in agent.messages.items()]
    )


def control_of(counted: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, result.MessageCount]:
    """Return the number and bytes of messages between ranks other than agents' messages, by kind."""
    return _totals_by_kind(
        [SentMessages(count, size, kind) for rank_counts in counted for kind, (count, size) in rank_counts.items()]
    )


def checks_of(setup: "Setup", agent: int, table: SampledTable) -> int:
    """Return the constraint checks of an agent's table: joined cells, and values evaluated by Markov chain draws.

    The latter are estimated as draws times the mean domain size of the drawn variables.
    """
    return table.cells + (int(table.updates * setup.surveys[agent].values) if table.updates else 0)


def gap_at(table: SampledTable, chosen: ChosenValues, arithmetic: Arithmetic) -> float | None:
    """Return an agent's part of the optimality gap; None if it is not known.

    That is the difference of its upper and its lower table at one row: the boundary values at which the cycle's upper
    bound is attained. The optimality gap of the whole problem is the sum of these gaps over all agents, plus what
    better boundary values would gain. The row may be missing from a table that was sampled for a list of rows.
    """
    if table.upper is None or chosen.upper is None:
        return None
    if table.exact:
        return 0.0
    scopes = {v for t in table.lower for v in t.scope}
    if not scopes <= chosen.upper.keys():  # sampled for a list of rows without the row of the bound
        return None
    upper, lower = (sum(_table_entry(t, chosen.upper) for t in side) for side in (table.upper, table.lower))
    if arithmetic.is_lowest(upper):  # no assignment is better than the incumbent
        return 0.0
    return None if arithmetic.is_lowest(lower) else float(upper - lower)


def _table_entry(table: EncodedTable, values: Mapping[int, int]) -> float:
    """Return the entry of a table at some values by variable."""
    return float(table.values[tuple(values[v] for v in table.scope)])


def solution_of(parts: DividedProblem, incumbent: Incumbent) -> result.Solution:
    """Return the incumbent, which violates no hard constraint, in terms of the original problem."""
    assert incumbent.snapshot is not None
    values, outcome = parts.given.restore(incumbent.snapshot, incumbent.proof)
    last = incumbent.trace[-1]
    assert outcome.objective is not None
    return result.Solution(last.time, outcome.objective, parts.given.problem.assignment(values), last.found_by)


class Answer(NamedTuple):
    """The answer of a run, as far as rank 0 may know it.

    Attributes
    ----------
    outcome : SolveOutcome
        Status, objective, bound and gap.
    assignment : dict or None
        Values by variable name; None if there is none, or no rank may know all of them.
    private : bool
        Whether the result names only variables that agents share.
    levels : tuple of LevelReport
        Objective and bound of each level of the problem's objective; empty without levels.
    """

    outcome: SolveOutcome
    assignment: dict[str, Label] | None
    private: bool = False
    levels: tuple[result.LevelReport, ...] = ()


def answer_of(
    parts: DividedProblem,
    incumbent: Incumbent,
    make_1_optimal: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
) -> Answer:
    """Return the incumbent and its bound in terms of the problem as given.

    Parameters
    ----------
    make_1_optimal
        Local search on the original problem, as for ``OriginalProblem.restore``.
    """
    assert incumbent.snapshot is not None
    values, outcome = parts.given.restore(incumbent.snapshot, incumbent.proof, make_1_optimal)
    known, problem = None if outcome.status == "infeasible" else values, parts.given.problem
    assignment = None if known is None else problem.assignment(known)
    return Answer(outcome, assignment, levels=levels_of(problem, known, outcome.bound))


def early_result(
    parts: DividedProblem,
    incumbent: Incumbent,
    ranks: int,
    cycles: int,
    make_1_optimal: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
) -> result.Result:
    """Return the result if the run ended now; may be called from any thread of rank 0.

    Parameters
    ----------
    parts
        The problem divided among its agents.
    incumbent
        The best assignment and bound.
    ranks
        Number of ranks.
    cycles
        Number of combinations.
    make_1_optimal
        As for :func:`answer_of`.
    """
    assert incumbent.snapshot is not None
    if incumbent.bound is None and parts.config.local.bound != "none":
        incumbent.update_bound(largest_total(parts.problem, parts.arithmetic))
    incumbent.timed_out = incumbent.snapshot[1].status not in ("optimal", "infeasible")
    rank_outcome = RankOutcome({}, Clock(), is_gpu_in_use(), {})
    answer = answer_of(parts, incumbent, make_1_optimal)
    return result_of(parts, incumbent, answer, [rank_outcome], ranks, cycles)


def result_of(
    parts: DividedProblem,
    incumbent: Incumbent,
    answer: Answer,
    shares: Sequence[RankOutcome],
    ranks: int,
    cycles: int,
) -> result.Result:
    """Merge the ranks' reports into a result; agents without report are left out.

    Parameters
    ----------
    parts
        The problem divided among its agents.
    incumbent
        The best assignment and bound, with the trace and the time of the run.
    answer
        The answer to the problem as given.
    shares
        Reports of all ranks.
    ranks
        Number of ranks.
    cycles
        Number of combinations.
    """
    outcome, seconds, setup = answer.outcome, time.perf_counter() - incumbent.start, incumbent.setup
    metrics: dict[int, result.AgentMetrics] = {}
    for share in shares:
        metrics |= share.metrics
    agents = tuple(_with_original_counts(parts, a, metrics[a]) for a in sorted(metrics))
    guarantee, why_not = guarantee_of(parts, agents)
    clock = latest(share.clock for share in shares)
    status = "timeout" if incumbent.timed_out and not incumbent.reached else outcome.status
    return result.Result(
        status=status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=answer.assignment,
        sense="max" if parts.given.problem.sense == "max" else "min",
        time=seconds,
        simulated_time=clock.seconds,
        ncccs=clock.checks,
        messages=messages_of(agents),
        control=control_of(share.control for share in shares),
        msg_count=sum(m.msg_count for m in agents),
        msg_size=sum(m.msg_size for m in agents),
        extra_msg_count=sum(m.extra_msg_count for m in agents),
        extra_msg_size=sum(m.extra_msg_size for m in agents),
        cycle=cycles,
        note=incumbent.note or why_not,
        presolve=presolve_report(parts.given.reduction),
        work=work_of(incumbent),
        levels=answer.levels,
        agents=agents,
        trace=tuple(incumbent.trace),
        tables_objective=incumbent.tables_objective,
        guarantee=guarantee,
        provenance=provenance(
            parts.config,
            ranks,
            cores() if setup is None else setup.backend.threads,
            {} if setup is None else choices_of(setup, agents, answer.private),
            "cuda" if any(share.used_gpu for share in shares) else "cpu",
        ),
    )


def _with_original_counts(parts: DividedProblem, agent: int, metrics: result.AgentMetrics) -> result.AgentMetrics:
    """Return an agent's metrics with the variable counts of the original problem, which only rank 0 may know."""
    if not parts.scattered:
        return metrics
    return msgspec.structs.replace(metrics, variables=parts.owned[0][agent], interface=parts.owned[1][agent])


def levels_of(
    problem: Problem, values: NDArray[np.int64] | None, bound: Number | None
) -> tuple[result.LevelReport, ...]:
    """Return the objective and the bound of each level of a problem's objective; empty without levels.

    Parameters
    ----------
    problem : Problem
        The problem as given.
    values : (n,) int64 or None
        Value index of each variable; None without an assignment.
    bound : int, float or None
        Proven bound on the weighted objective.
    """
    return tuple(result.LevelReport(*value) for value in level_values(problem, values, bound)) if problem.levels else ()


def work_of(incumbent: Incumbent) -> tuple[result.WorkDone, ...]:
    """Return the seconds and gains of each improver as plain data."""
    return tuple(
        result.WorkDone(improver, record.seconds, record.objective, record.bound)
        for improver, record in incumbent.improver_records.items()
    )


def guarantee_of(
    parts: DividedProblem, agents: Sequence[result.AgentMetrics]
) -> tuple[result.GuaranteeReport | None, str | None]:
    """Return the guarantee of Theorem 1, or the reason why there is none; (None, None) if it was not asked for.

    The theorem holds for samples of one irreducible and aperiodic Markov chain that are drawn for every row, if DPOP
    finds the best combination. An annealed chain is a different chain at every step.
    """
    options = parts.config.local
    requested, temperature = options.guarantee, temperature_of(options.temperature)
    if requested is None:
        return None, None
    sampled = [agent for agent in agents if not agent.exact]
    others = sorted({agent.method for agent in sampled} - _METHODS_WITH_GUARANTEE)
    drawn = min((agent.samples for agent in sampled), default=0)
    if len(agents) < parts.given.problem.n_agents:
        reason = "the run ended before all agents had reported"
    elif others:
        reason = f"{others[0]} is none of {', '.join(sorted(_METHODS_WITH_GUARANTEE))}"
    elif sampled and (temperature.start is None or temperature.start != temperature.end):
        reason = "the temperature is not constant"
    elif sampled and drawn < requested.samples:
        reason = f"some interface assignments have had {drawn:,} of {requested.samples:,} samples"
    elif any(agent.z is not None for agent in agents):
        reason = "mini-buckets do not find the best combination"
    else:
        chains = [agent.chains for agent in sampled]
        return result.guarantee_report(requested.alpha, requested.epsilon, drawn, len(sampled), chains), None
    return None, f"no guarantee: {reason}"


def choices_of(setup: "Setup", agents: Sequence[result.AgentMetrics], private: bool = False) -> dict[str, object]:
    """Return the planned choices as plain data, for the result's provenance; in a private run without variables."""
    names = setup.divided.problem.agents
    distinct = {id(choice): choice for choice in setup.choices}  # many agents have the same one
    choice_data = {number: _choice_data(choice) for number, choice in distinct.items()}
    helpers = {"helpers": dict(zip(names, map(list, setup.helpers), strict=True))} if any(setup.helpers) else {}
    variables: dict[str, object] = {}
    if not private:
        named = setup.divided.problem.variables
        variables = {
            "separators": {names[a]: [named[v] for v in sep] for a, sep in enumerate(setup.tree.separators) if sep},
            "orders": {
                names[local.agent]: [named[v] for v in local.order.variables]
                for local in setup.divided.division.locals
                if setup.methods[local.agent] == "exact" and "order" in local.__dict__ and local.hidden
            },
        }
    return {
        "arithmetic": setup.divided.arithmetic.name,
        "tree": {"heuristic": setup.divided.config.combine.tree, **setup.tree_size._asdict()},
        "pseudo_tree": {names[a]: names[p] if p >= 0 else None for a, p in enumerate(setup.tree.parent)},
        "methods": dict(zip(names, setup.methods, strict=True)),
        "choices": {name: choice_data[id(choice)] for name, choice in zip(names, setup.choices, strict=True)},
        "combine": {a.name: "exact" if a.z is None else f"mini-bucket, z = {a.z}" for a in agents},
        "ranks": dict(zip(names, setup.owner, strict=True)),
        **variables,
        **helpers,
    }


def _choice_data(choice: "AgentChoice") -> dict[str, object]:
    """Return an agent's method, the reason for it, and the estimated seconds, as plain data."""
    return {
        "bound": choice.bound,
        "device": choice.device,
        "seconds": float(f"{choice.seconds:.3g}"),
        "bytes": choice.bytes,
        "reason": choice.reason,
        "others": {other.method: float(f"{other.seconds:.3g}") for other in choice.others},
    }
