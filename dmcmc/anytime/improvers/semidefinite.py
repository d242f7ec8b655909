"""Tighten the bounds of an agent's rows by a semidefinite relaxation, which suits dense agents with many variables.

A row is one assignment of the agent's boundary variables (its interface). One relaxation serves all rows of an agent.
On a GPU, *per-row* relaxations follow it: a search tree per row, whose nodes are bounded one by one.

States of an agent's relaxation, in this order:

1. Not started (``UpperTable.relaxation`` is None). Where branch and bound over the rows goes first, the relaxation
   starts once that has stalled or cannot be used.
2. On *trial* (``untested``): too few descent steps were made to judge it. The agent's dual ascent waits.
3. Tested. On a GPU, branch and bound and dual ascent still wait while the per-row relaxations are ``undecided``.
4. Ended: ``exhausted`` (no bound can get lower), or excluded (``UpperTable.no_relaxation``), because it does not suit
   the agent or too little time is left. A relaxation may be excluded in any state.

A *quantum* is an improver's share of a time slice for one agent. A *core second* is one second of one CPU core.
"""

import time
from collections.abc import Sequence

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.bounds.semidefinite_rows import improve_relaxations
from dmcmc.results.result import BOUND, BRANCH, SEMIDEFINITE
from dmcmc.samplers.tuning import common
from dmcmc.solving.agent.relaxation_time import trial_seconds


class SemidefiniteImprover(Improver):
    """Tighten the bounds of the rows that can still matter by a semidefinite relaxation."""

    name, summary = SEMIDEFINITE, "continue the relaxation of an agent's rows"
    properties = Properties(effect=Effect.BOUNDS, first_part=0.65, idle_part=0.02)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents for which the relaxation may help.

        The gain is the agent's part of the optimality gap. A proposal is resumable if per-row relaxations can continue
        without repeating work. Branch and bound lowers the bounds of the same rows and does not use this progress;
        with per-row relaxations that also holds for dual ascent.
        """
        return [
            Proposal(
                self.name,
                state.gain(number),
                number,
                weight=state.weight(number),
                resumable=agent.relaxation_resumable,
                excludes=(BRANCH, BOUND) if agent.relaxation_resumable else (BRANCH,),
            )
            for number, agent in state.agents.items()
            if agent.may_improve and agent.may_relax
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Relax several agents at once: on a GPU if there is one, otherwise each on a thread.

        Each agent is charged its share of the elapsed time: elapsed seconds times its allocated seconds, divided by the
        sum of all allocated seconds. If no step was made, nothing is recorded.
        """
        backend = time_slice.backend
        seconds_per_agent = trial_seconds(backend, len(time_slice.quanta))
        quanta = [
            (quantum, s)
            for quantum, s in time_slice.quanta_of(allocations)
            if quantum.agent.upper.has_time_for_relaxation(seconds_per_agent)
        ]
        if not quanta:
            return []
        start, gaps_before = time.perf_counter(), [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        requests = [quantum.agent.relaxation_request(quantum.row_cutoffs) for quantum, _ in quanta]
        steps_before = sum(request.relaxation.work_done for request in requests)
        improve_relaxations(requests, [seconds for _, seconds in quanta], backend)
        if steps_before == sum(
            request.relaxation.work_done for request in requests
        ):  # too little time for one step: that shows nothing about the relaxation
            if sum(seconds for _, seconds in quanta) >= 2 * common.UNTRIED_SHARE * backend.stop.left:
                for quantum, _ in quanta:
                    quantum.agent.upper.no_relaxation = True  # exclude it: no later quantum is longer
            return []
        gains = list[MeasuredGain]()
        elapsed_part = (time.perf_counter() - start) / sum(seconds for _, seconds in quanta)
        for (quantum, seconds), gap_before in zip(quanta, gaps_before, strict=True):
            quantum.agent.take_relaxation(quantum.row_cutoffs)
            gap_after = time_slice.gap_of(quantum.agent)
            gained = gap_before is not None and gap_after is not None and gap_after < gap_before
            charged_seconds = quantum.agent.upper.charge(elapsed_part * seconds, gained)
            if charged_seconds > 0:
                gains.append(time_slice.record(self.name, quantum, gap_before, charged_seconds))
        return gains
