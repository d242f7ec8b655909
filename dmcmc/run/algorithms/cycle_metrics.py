"""The metrics of agents that work in message cycles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmcmc.algorithms.network import AgentNetwork
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints
from dmcmc.results.result import AgentMetrics, MessageCount
from dmcmc.solving.metrics import levels_of, messages_of


def agent_metrics(
    problem: Problem, network: AgentNetwork, method: str, cycles: int, interfaces: Sequence[int]
) -> tuple[AgentMetrics, ...]:
    """Return the metrics of all agents after some cycles of an algorithm.

    Parameters
    ----------
    problem, network
        The problem, and the agents with the messages that they have sent.
    method
        Name of the algorithm.
    cycles
        Cycles so far.
    interfaces
        Number of interface variables of each agent, see :func:`interface_sizes`.
    """
    owned = np.bincount(problem.owner, minlength=problem.n_agents).tolist()
    sent = network.sent_by_kind()
    messages = [
        {kind: MessageCount(int(one.messages[a]), int(one.bytes[a])) for kind, one in sent.items() if one.messages[a]}
        for a in range(problem.n_agents)
    ]
    return tuple(
        AgentMetrics(
            name=name,
            method=method,
            exact=False,
            variables=owned[a],
            interface=interfaces[a],
            rank=network.place[a],
            updates=owned[a] * cycles,
            msg_count=sum(one.count for one in messages[a].values()),
            msg_size=sum(one.size for one in messages[a].values()),
            messages=messages[a],
        )
        for a, name in enumerate(problem.agents)
    )


def interface_sizes(problem: Problem) -> list[int]:
    """Return the number of each agent's variables that share a factor with another agent's."""
    return [len(local.interface) for local in divide(problem).locals]


def derived_fields(problem: Problem, values: Ints | None, agents: Sequence[AgentMetrics]) -> dict[str, Any]:
    """Return the fields of a result that follow from its assignment and its agents: levels, and counts of messages."""
    return {
        "levels": levels_of(problem, values, None),
        "messages": messages_of(agents),
        "msg_count": sum(agent.msg_count for agent in agents),
        "msg_size": sum(agent.msg_size for agent in agents),
    }
