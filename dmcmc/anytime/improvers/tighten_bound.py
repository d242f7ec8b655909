"""Tighten the upper bounds of an agent's table by its bound provider (usually dual ascent).

A row is one assignment of the agent's boundary variables. With the rows' cutoffs (the utility that a row has to exceed
to be part of a better solution), the provider leaves out values with which a row stays below its cutoff.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from dmcmc.anytime.improvers.protocol import Improver, RankState, Start, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.bounds.dual.rounding import rounded_assignments
from dmcmc.inference.bounds.tighten import TighteningBudget, tighten
from dmcmc.results.result import BOUND, ROUNDING, SEMIDEFINITE
from dmcmc.solving.agent.agent import Agent


class BoundImprover(Improver):
    """Tighten the bounds of the rows that can still matter."""

    name, summary = BOUND, "continue dual ascent or mini-buckets"
    # The start of a dual ascent takes long on some machines; one that has converged gains nothing more.
    properties = Properties(effect=Effect.BOUNDS, minimum_quantum=0.5, first_part=0.65, idle_part=0.02)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents whose bounds can get tighter.

        Agents that wait for the outcome of a semidefinite relaxation are left out, if the relaxation has its kernels. A
        proposal is ``awaited`` if a relaxation may follow the agent's branch and bound.
        """
        can_relax = state.is_ready(SEMIDEFINITE)
        return [
            Proposal(
                self.name, state.gain(number), number, weight=state.weight(number), awaited=agent.relaxation_may_follow
            )
            for number, agent in state.agents.items()
            if agent.may_improve
            and not (agent.upper.exhausted or agent.awaits_per_row_relaxation)
            and not (can_relax and agent.awaits_relaxation)
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Tighten the bounds of all agents; on a GPU, if that is faster, all at once."""
        quanta, backend = time_slice.quanta_of(allocations), time_slice.backend
        requests = [quantum.agent.bound_request(quantum.row_cutoffs) for quantum, _ in quanta]
        bound_seconds = [seconds for _, seconds in quanta]
        gaps_before = [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        allowance = TighteningBudget(sum(bound_seconds) * backend.threads, bound_seconds, pass_on=True)
        spent = tighten(requests, backend, allowance)
        gains = list[MeasuredGain]()
        for (quantum, _), request, seconds, gap_before in zip(quanta, requests, spent, gaps_before, strict=True):
            start = time.perf_counter()
            quantum.agent.take_tightened(quantum.row_cutoffs, request)
            gains.append(time_slice.record(self.name, quantum, gap_before, seconds + time.perf_counter() - start))
        return gains

    def starts(self, agents: Iterable[Agent], is_ready: Callable[[str], bool], seed: int) -> Iterator[Start]:
        """Yield roundings of the dual bounds of all agents without boundary variables together."""
        roundings = [
            [(agent.local.hidden, values) for values in rounded_assignments(agent.upper.dual, seed)]
            for agent in agents
            if is_ready(ROUNDING) and not agent.local.interface and not agent.table.exact and agent.upper.dual
        ]
        for of_agents in zip_longest(*roundings):
            known = [one for one in of_agents if one is not None]
            variables = [variable for hidden, _ in known for variable in hidden]
            yield Start(variables, np.concatenate([values for _, values in known]))
