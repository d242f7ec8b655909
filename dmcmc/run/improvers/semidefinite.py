"""Tighten the bounds of an agent's rows by a semidefinite relaxation, which suits dense agents with many variables.

A row is one assignment of the agent's boundary variables. A relaxation is on *trial* until it has shown whether it
lowers the bounds.
"""

import math
import time
from collections.abc import Sequence

from dmcmc.inference.bounds.semidefinite_rows import improve_relaxations, runs_on_gpu
from dmcmc.inference.execution.backend import Backend
from dmcmc.run.agent.agent import Agent
from dmcmc.run.improvers.protocol import RankState, TimeSlice
from dmcmc.run.scheduler.proposal import SEMIDEFINITE, Allocation, Proposal

_MAX_TRIAL_PART = 0.6  # part of the remaining time until a relaxation has to show whether it helps, at most
# Part of the remaining time: if that is too short for one step, no later quantum will be long enough
_MIN_CONCLUSIVE_PART = 0.2
_GPU_TRIAL_SECONDS = 1.0  # seconds of the start and the first steps of about ten agents on a GPU


def agents_with_relaxation_in_time(agents: Sequence[Agent], backend: Backend) -> list[Agent]:
    """Return the agents whose relaxation has time to show whether it helps; their dual ascent waits for it."""
    waiting = [agent for agent in agents if agent.awaits_relaxation]
    seconds_per_agent = _trial_seconds(backend, len(waiting))
    return [agent for agent in waiting if agent.upper.has_time_for_relaxation(seconds_per_agent)]


def _trial_seconds(backend: Backend, agents: int) -> float:
    """Return the core seconds that each agent's relaxation has to show whether it helps; on a GPU that is no limit."""
    if runs_on_gpu(backend, backend.stop.left):
        return math.inf if _MAX_TRIAL_PART * backend.stop.left > _GPU_TRIAL_SECONDS else 0.0
    return _MAX_TRIAL_PART * backend.stop.left * backend.threads / max(1, agents)


class SemidefiniteImprover:
    """Tighten the bounds of the rows that can still matter by a semidefinite relaxation."""

    name = SEMIDEFINITE

    def proposals(self, state: RankState) -> list[Proposal]:
        """Propose agents for which the relaxation may help."""
        return [
            Proposal(self.name, state.gain(number), number, weight=agent.weight, resumable=agent.relaxation_resumable)
            for number, agent in state.agents.items()
            if agent.may_improve and agent.may_relax
        ]

    def carry_out(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> None:
        """Relax several agents at once: on a GPU if there is one, otherwise each on a thread."""
        backend = time_slice.backend
        seconds_per_agent = _trial_seconds(backend, len(time_slice.quanta))
        quanta = [
            (quantum, s)
            for quantum, s in time_slice.quanta_of(allocations)
            if quantum.agent.upper.has_time_for_relaxation(seconds_per_agent)
        ]
        if not quanta:
            return
        start, gaps_before = time.perf_counter(), [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        requests = [quantum.agent.relaxation_request(quantum.row_cutoffs) for quantum, _ in quanta]
        steps_before = sum(request.relaxation.work_done for request in requests)
        improve_relaxations(requests, [seconds for _, seconds in quanta], backend)
        if steps_before == sum(
            request.relaxation.work_done for request in requests
        ):  # too little time for one step shows nothing
            if sum(seconds for _, seconds in quanta) >= _MIN_CONCLUSIVE_PART * backend.stop.left:
                for quantum, _ in quanta:
                    quantum.agent.upper.no_relaxation = True  # no later quantum is longer
            return
        elapsed_part = (time.perf_counter() - start) / sum(seconds for _, seconds in quanta)
        for (quantum, seconds), gap_before in zip(quanta, gaps_before, strict=True):
            quantum.agent.take_relaxation(quantum.row_cutoffs)
            gap_after = time_slice.gap_of(quantum.agent)
            gained = gap_before is not None and gap_after is not None and gap_after < gap_before
            charged_seconds = quantum.agent.upper.charge(elapsed_part * seconds, gained)
            if charged_seconds > 0:
                time_slice.record(self.name, quantum, gap_before, charged_seconds)
