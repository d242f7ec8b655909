"""The metrics of agents after a change: of those that have worked, those with new local problems, and all others."""

from collections.abc import Mapping, Sequence

import msgspec

from dmcmc.inference.dpop.agent_step import SentMessages
from dmcmc.inference.dpop.division import own_utilities
from dmcmc.results.result import AgentMetrics, MessageCount, Result
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.metrics import choices_of
from dmcmc.solving.planning.setup import Setup

# Parts of a plan in the provenance of a result that have one entry for each agent
_BY_AGENT = ("pseudo_tree", "methods", "choices", "combine", "ranks", "separators", "orders")


def metrics_after(
    before: AgentMetrics, sent: Sequence[SentMessages], table: SampledTable | None = None
) -> AgentMetrics:
    """Return the metrics of an agent that has worked or sent messages.

    Parameters
    ----------
    before
        The metrics of the agent if it does nothing.
    sent
        Its messages.
    table
        Its new table; None if the table is kept.
    """
    kinds = {message.kind for message in sent if message.count}
    return msgspec.structs.replace(
        before,
        cells=0 if table is None else table.cells,
        time=0.0 if table is None else table.seconds,
        msg_count=sum(message.count for message in sent),
        msg_size=sum(message.size for message in sent),
        extra_msg_count=0,
        extra_msg_size=0,
        disclosed=min(before.own_utilities, sum(message.entries for message in sent)),
        messages={
            kind: MessageCount(
                sum(message.count for message in sent if message.kind == kind),
                sum(message.size for message in sent if message.kind == kind),
            )
            for kind in sorted(kinds)
        },
    )


def new_metrics(setup: Setup, agent: int) -> AgentMetrics:
    """Return the metrics of an agent with an exact table that does nothing."""
    local = setup.division.locals[agent]
    return AgentMetrics(
        name=setup.problem.agents[agent],
        method=setup.choices[agent].method,
        exact=True,
        variables=len(local.interface) + len(local.hidden),
        interface=len(local.interface),
        rank=setup.owner[agent],
        rows=local.rows,
        own_utilities=own_utilities(local),
        gap=0.0,
    )


def without_work(agent: AgentMetrics) -> AgentMetrics:
    """Return the metrics of an agent that has done nothing."""
    return msgspec.structs.replace(
        agent, cells=0, time=0.0, msg_count=0, msg_size=0, extra_msg_count=0, extra_msg_size=0, disclosed=0, messages={}
    )


def with_new_plan(result: Result, setup: Setup, agents: Mapping[str, AgentMetrics]) -> Result:
    """Return a result whose provenance describes the plan of the agents that are there after a change.

    Parameters
    ----------
    result
        The result before the change.
    setup
        The plan, which may have agents that have left.
    agents
        The metrics of the present agents without work, by name.
    """
    choices = choices_of(setup, tuple(agents.values()))
    for part in _BY_AGENT:
        by_name = choices[part]
        assert isinstance(by_name, dict)
        choices[part] = {name: by_name[name] for name in agents if name in by_name}
    return msgspec.structs.replace(result, provenance=dict(result.provenance) | {"plan": choices})
