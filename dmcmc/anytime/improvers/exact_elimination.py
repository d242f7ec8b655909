"""Eliminate an agent's hidden variables exactly, which makes its table final.

Hidden variables are those that share no factor with other agents. The improver does this between two *cycles*
(combinations of all agents' tables).
"""

from collections.abc import Sequence
from dataclasses import replace

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, MeasuredGain, Properties, Proposal
from dmcmc.results.result import EXACT_ELIMINATION
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.samplers.tuning import common


class EliminationImprover(Improver):
    """Eliminate agents that are only sampled so far."""

    name, summary = EXACT_ELIMINATION, "eliminate an agent exactly"
    properties = Properties(first_part=1.0, gains_at_end=True)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the agents without exact table, at the cost that the cost model estimates.

        After a failure the cost is at least 1.25 times the seconds after which the elimination was given up.
        """
        return [
            Proposal(
                self.name,
                state.gain(number),
                number,
                max(agent.elimination_seconds, agent.failed_elimination_seconds / common.PLANNED_SHARE),
                state.weight(number),
            )
            for number, agent in state.agents.items()
            if agent.may_improve and agent.elimination_seconds is not None
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Eliminate one agent after the other; an elimination that takes much longer than estimated is given up."""
        quanta = time_slice.quanta_of(allocations)
        if not quanta:
            return []
        gains = list[MeasuredGain]()
        gaps_before = [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        sampling = replace(quanta[0][0].agent.context.sampling, backend=time_slice.backend)
        eliminated = eliminate_in_turn(
            [(quantum.agent.local, seconds) for quantum, seconds in quanta], sampling, timed=True
        )
        for (quantum, estimated_seconds), gap_before in zip(quanta, gaps_before, strict=True):
            agent, number = quantum.agent, quantum.agent.local.agent
            if number in eliminated.tables:
                agent.take_exact(eliminated.tables[number])
            else:
                agent.give_up(eliminated.given_up[number])
            seconds = (
                eliminated.given_up[number] if number in eliminated.given_up else eliminated.tables[number].seconds
            )
            gains.append(time_slice.record(self.name, quantum, gap_before, seconds, estimated_seconds))
        return gains
