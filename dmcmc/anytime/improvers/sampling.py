"""Continue to sample an agent's rows by its Markov chains, which improves its lower table.

A row is one assignment of the agent's boundary variables (its interface).
"""

import time
from collections.abc import Sequence

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.runtime.time_shares import TimeShares
from dmcmc.results.result import SAMPLING


class SamplingImprover(Improver):
    """Continue the chains of the rows that can still matter."""

    name, summary = SAMPLING, "continue an agent's chains or block moves"
    # The shortest pass of the chains takes long on some machines.
    properties = Properties(effect=Effect.LOWER_TABLES, minimum_quantum=0.5, first_part=0.25)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose sampled agents that can improve; an agent without boundary variables is left to the local search."""
        return [
            Proposal(self.name, state.gain(number), number, weight=state.weight(number))
            for number, agent in state.agents.items()
            if agent.may_improve and not agent.lower.exhausted and agent.local.interface
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Sample each agent for its seconds; unused time is carried to the next agent.

        The gain is recorded as unknown (None): sampling raises the lower table, and its gain shows in the next
        combination.
        """
        quanta = time_slice.quanta_of(allocations)
        budget, gains = TimeShares([seconds for _, seconds in quanta]), list[MeasuredGain]()
        for quantum, _ in quanta:
            start = time.perf_counter()
            quantum.agent.sample(quantum.outside, budget.next())
            gains.append(time_slice.record(self.name, quantum, None, time.perf_counter() - start))
        return gains
