"""From what the ranks have at the end to a Result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.device import opened
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.message_contents import Chosen, Clock, Sent, latest
from dmcmc.results.provenance import provenance
from dmcmc.results.result import (
    AgentMetrics,
    GuaranteeReport,
    KeptEntries,
    MessageCount,
    Result,
    Solution,
    WorkDone,
    guarantee_report,
)
from dmcmc.run.agent.uncombined_bound import largest_sum
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.setup import Setup, temperature_of
from dmcmc.run.presolve.presolve_problem import report_of
from dmcmc.samplers.auto.choose import Choice
from dmcmc.samplers.contract.protocol import SampledTable

_CLAIMED = {"gibbs", "metropolis-hastings", "metropolis-hastings-single"}  # by Property 1, at a constant temperature


class Share(NamedTuple):
    """What one rank reports at the end; ``loose`` bounds what each of its agents can be worth.

    ``control`` is what it has told other ranks beside agents' messages (:meth:`.World.counted`).
    """

    metrics: dict[int, AgentMetrics]
    clock: Clock
    used_gpu: bool
    loose: Mapping[int, Number | None]
    control: Mapping[str, tuple[int, int]] = {}


class Work(NamedTuple):
    """What an agent has done: its table, the limit of its mini-buckets, and what was chosen in the last cycle.

    None where it did not come to that, or nothing was split.
    """

    table: SampledTable | None
    z: int | None
    chosen: Chosen | None


def metrics_of(
    setup: Setup, agent: int, work: Work, rank: int, sent: Sequence[Sent], extra: Sequence[Sent]
) -> AgentMetrics:
    """Return what one agent did."""
    table, told = work.table, [setup.told[agent]] if agent in setup.told else []
    common: dict[str, Any] = {
        "name": setup.problem.agents[agent],
        "variables": setup.owned[0][agent],
        "interface": setup.owned[1][agent],
        "rank": rank,
        "rows": setup.division.locals[agent].rows,
        "msg_count": sum([s.count for s in sent]),
        "msg_size": sum([s.size for s in sent]),
        "extra_msg_count": sum([s.count for s in extra]),
        "extra_msg_size": sum([s.size for s in extra]),
        "messages": _by_kind([*sent, *extra, *told]),
    }
    if table is None:
        return AgentMetrics(method=setup.methods[agent], exact=False, **common)
    return AgentMetrics(
        method=table.method,
        exact=table.exact,
        cells=table.cells,
        updates=table.updates,
        samples=0 if setup.listed[agent] else table.drawn,
        time=table.seconds,
        z=work.z,
        gap=None if work.chosen is None else gap_at(table, work.chosen, setup.arithmetic),
        kept=None if table.kept is None else KeptEntries(*table.kept),
        **common,
    )


def _by_kind(sent: Sequence[Sent]) -> dict[str, MessageCount]:
    """Return messages and bytes of each kind."""
    kinds: dict[str, tuple[int, int]] = {one.kind: (0, 0) for one in sent if one.count}
    for one in sent:
        if one.kind in kinds:
            count, size = kinds[one.kind]
            kinds[one.kind] = count + one.count, size + one.size
    return {kind: MessageCount(count, size) for kind, (count, size) in kinds.items()}


def messages_of(agents: Sequence[AgentMetrics]) -> dict[str, MessageCount]:
    """Return all agents' messages and bytes of each kind."""
    return _by_kind([Sent(n.count, n.size, kind) for agent in agents for kind, n in agent.messages.items()])


def control_of(counted: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, MessageCount]:
    """Return what all ranks have told each other beside agents' messages."""
    return _by_kind([Sent(count, size, what) for one in counted for what, (count, size) in one.items()])


def checks_of(setup: Setup, agent: int, table: SampledTable) -> int:
    """Return what an agent's own table has taken: joined cells, and values that draws have looked at."""
    return table.cells + (int(table.updates * setup.surveys[agent].values) if table.updates else 0)


def gap_at(table: SampledTable, chosen: Chosen, arithmetic: Arithmetic) -> float | None:
    """Return how far an agent's table from above is over that from below, where the bound is attained.

    These gaps of all agents, and what better interface values would bring, are the gap of the whole.
    """
    if table.upper is None or chosen.upper is None:
        return None
    if table.exact:
        return 0.0
    scopes = {v for t in table.lower for v in t.scope}
    if not scopes <= chosen.upper.keys():  # sampled for a list of rows: no number there for the bound's row
        return None
    upper, lower = (sum(_entry(t, chosen.upper) for t in side) for side in (table.upper, table.lower))
    if arithmetic.is_lowest(upper):  # nothing is better than the best known
        return 0.0
    return None if arithmetic.is_lowest(lower) else float(upper - lower)


def _entry(table: Table, values: Mapping[int, int]) -> float:
    return float(table.values[tuple(values[v] for v in table.scope)])


def solution_of(parts: Divided, incumbent: Incumbent) -> Solution:
    """Return the best assignment so far, which breaks nothing, as callers have it."""
    assert incumbent.answer is not None
    values, outcome = parts.asked.answer(incumbent.answer, incumbent.proof)
    last = incumbent.trace[-1]
    assert outcome.objective is not None
    return Solution(last.time, outcome.objective, parts.asked.problem.assignment(values), last.by)


def early_result(
    parts: Divided,
    incumbent: Incumbent,
    ranks: int,
    cycles: int,
    polish: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
) -> Result:
    """Return what would be the result if nothing else came, from any thread of rank 0; ``polish`` as there."""
    assert incumbent.answer is not None
    if not incumbent.bounded and parts.config.local.bound != "none":
        factors = [factor for factor in parts.problem.factors if factor.scope]
        incumbent.update_bound(largest_sum(factors, parts.arithmetic))
    incumbent.timed_out = incumbent.answer[1].status not in ("optimal", "infeasible")
    share = Share({}, Clock(), opened(), {})
    return result_of(parts, incumbent, [share], ranks, incumbent.elapsed, cycles, polish)


def result_of(
    parts: Divided,
    incumbent: Incumbent,
    shares: Sequence[Share],
    ranks: int,
    seconds: float,
    cycles: int,
    polish: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
) -> Result:
    """Put the ranks' parts together; agents of which nothing is reported are left out.

    Parameters
    ----------
    parts
        The setup, where all has been planned.
    polish
        As for :meth:`dmcmc.run.presolve.restore_result.Asked.answer`.
    """
    assert incumbent.answer is not None
    problem = parts.asked.problem
    values, outcome = parts.asked.answer(incumbent.answer, incumbent.proof, polish)
    metrics: dict[int, AgentMetrics] = {}
    for share in shares:
        metrics |= share.metrics
    agents = tuple(_of_what_was_asked(parts, a, metrics[a]) for a in sorted(metrics))
    guarantee, why_not = guarantee_of(parts, agents)
    clock = latest(share.clock for share in shares)
    status = "timeout" if incumbent.timed_out and not incumbent.reached else outcome.status
    return Result(
        status=status,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.gap,
        violation=outcome.violation,
        assignment=None if outcome.status == "infeasible" else problem.assignment(values),
        sense="max" if problem.sense == "max" else "min",
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
        reductions=report_of(parts.asked.reduction),
        work=work_of(incumbent),
        agents=agents,
        trace=tuple(incumbent.trace),
        guarantee=guarantee,
        provenance=provenance(
            parts.config,
            ranks,
            parts.backend.threads if isinstance(parts, Setup) else cores(),
            choices_of(parts, agents) if isinstance(parts, Setup) else {},
            "cuda" if any(share.used_gpu for share in shares) else "cpu",
        ),
    )


def _of_what_was_asked(parts: Divided, agent: int, metrics: AgentMetrics) -> AgentMetrics:
    """Return an agent's metrics with its variables counted, where its rank does not know what was asked (rank 0)."""
    if not parts.dealt:
        return metrics
    return msgspec.structs.replace(metrics, variables=parts.owned[0][agent], interface=parts.owned[1][agent])


def work_of(incumbent: Incumbent) -> tuple[WorkDone, ...]:
    """Return what each kind of work took and brought, as plain data."""
    accounts = {} if incumbent.controller is None else incumbent.controller.ledger.accounts
    return tuple(WorkDone(kind, one.seconds, one.objective, one.bound) for kind, one in accounts.items())


def guarantee_of(parts: Divided, agents: Sequence[AgentMetrics]) -> tuple[GuaranteeReport | None, str | None]:
    """Return what Theorem 1 claims of what was done, or why it claims nothing; neither if that was not asked for.

    It is about samples of one Markov chain that is irreducible and aperiodic, drawn for every row, of which DPOP finds
    the best combination. A chain that is cooled is another one in every step.
    """
    options = parts.config.local
    asked, temperature = options.guarantee, temperature_of(options.temperature)
    if asked is None:
        return None, None
    sampled = [agent for agent in agents if not agent.exact]
    others = sorted({agent.method for agent in sampled} - _CLAIMED)
    drawn = min((agent.samples for agent in sampled), default=0)
    if len(agents) < parts.asked.problem.n_agents:
        why = "the run ended before all agents had reported"
    elif others:
        why = f"{others[0]} is none of {', '.join(sorted(_CLAIMED))}"
    elif sampled and (temperature.start is None or temperature.start != temperature.end):
        why = "the temperature is not constant"
    elif sampled and drawn < asked.samples:
        why = f"some interface assignments have had {drawn:,} of {asked.samples:,} samples"
    elif any(agent.z is not None for agent in agents):
        why = "mini-buckets do not find the best combination"
    else:
        return guarantee_report(asked.alpha, asked.epsilon, drawn, len(sampled)), None
    return None, f"no guarantee: {why}"


def choices_of(setup: Setup, agents: Sequence[AgentMetrics]) -> dict[str, object]:
    """Return what was chosen, as plain data."""
    names = setup.problem.agents
    different = {id(choice): choice for choice in setup.choices}  # many agents have the same one
    words = {number: _choice(choice) for number, choice in different.items()}
    helpers = {"helpers": dict(zip(names, map(list, setup.helpers), strict=True))} if any(setup.helpers) else {}
    return {
        "arithmetic": setup.arithmetic.name,
        "pseudo_tree": {names[a]: names[p] if p >= 0 else None for a, p in enumerate(setup.tree.parent)},
        "separators": {
            names[a]: [setup.problem.variables[v] for v in sep] for a, sep in enumerate(setup.tree.separators) if sep
        },
        "methods": dict(zip(names, setup.methods, strict=True)),
        "choices": {name: words[id(choice)] for name, choice in zip(names, setup.choices, strict=True)},
        "orders": {
            names[local.agent]: [setup.problem.variables[v] for v in local.order.variables]
            for local in setup.division.locals
            if setup.methods[local.agent] == "exact" and "order" in local.__dict__ and local.hidden
        },
        "combine": {a.name: "exact" if a.z is None else f"mini-bucket, z = {a.z}" for a in agents},
        "ranks": dict(zip(names, setup.owner, strict=True)),
        **helpers,
    }


def _choice(choice: Choice) -> dict[str, object]:
    """Return what an agent did, why, and what the estimates were (seconds), as plain data."""
    return {
        "bound": choice.bound,
        "device": choice.device,
        "seconds": float(f"{choice.seconds:.3g}"),
        "bytes": choice.bytes,
        "reason": choice.reason,
        "others": {other.method: float(f"{other.seconds:.3g}") for other in choice.others},
    }
