"""The time in which a semidefinite relaxation of an agent's rows has to show whether it helps.

A row is one assignment of the agent's boundary variables (its interface). A *core second* is one second of one CPU
core.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmcmc.inference.bounds.semidefinite_rows import runs_on_gpu
from dmcmc.inference.execution.backend import Backend
from dmcmc.solving.tuning import GPU_TRIAL_SECONDS, MAX_TRIAL_PART

if TYPE_CHECKING:
    from dmcmc.solving.agent.agent import Agent


def agents_with_relaxation_in_time(agents: "Sequence[Agent]", backend: Backend) -> "list[Agent]":
    """Return the agents whose relaxation has time to show whether it helps; their dual ascent waits for it.

    An agent without that time is excluded from relaxations for the rest of the run.
    """
    waiting = [agent for agent in agents if agent.awaits_relaxation]
    seconds_per_agent = trial_seconds(backend, len(waiting))
    return [agent for agent in waiting if agent.upper.has_time_for_relaxation(seconds_per_agent)]


def trial_seconds(backend: Backend, agents: int) -> float:
    """Return the core seconds in which each agent's relaxation has to show whether it helps.

    On the CPU this is the agent's share of the remaining core seconds. On a GPU all agents are relaxed together, so the
    result is inf (time enough for all), or 0 if too little time is left for any.

    Parameters
    ----------
    backend
        Its deadline gives the remaining seconds.
    agents
        Number of agents that share the CPU cores.
    """
    if runs_on_gpu(backend, backend.stop.left):
        return math.inf if MAX_TRIAL_PART * backend.stop.left > GPU_TRIAL_SECONDS else 0.0
    return MAX_TRIAL_PART * backend.stop.left * backend.threads / max(1, agents)
