"""Improvers of an agent's lower table: sample it further, filter it, or eliminate exactly.

A *row* is one assignment of the agent's boundary variables (its interface). Hidden variables share no factor with other
agents. Function filtering removes tuples that cannot beat the incumbent from the messages of an elimination, which
continues over several time slices (``FilteredTable``). An exact elimination is done between two *cycles* (combinations
of all agents' tables). Both make the table final.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.runtime.deadline import TimeShares
from dmcmc.results.result import EXACT_ELIMINATION, FUNCTION_FILTERING, SAMPLING
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.agent.filtered_table import deadline_after


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


class FilteringImprover(Improver):
    """Continue an elimination with function filtering; it can use any number of seconds."""

    name, summary = FUNCTION_FILTERING, "eliminate an agent with sparse tables"
    properties = Properties(first_part=1.0, gains_at_end=True)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents without boundary variables or exact table while there is a tighter bound to filter by."""
        return [
            Proposal(self.name, state.gain(number), number, weight=state.weight(number))
            for number, agent in state.agents.items()
            if not agent.table.exact and agent.filtered is not None and not agent.filtered.exhausted
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Continue the elimination of each agent for its seconds; agents that have become exact are left out."""
        gains = list[MeasuredGain]()
        for quantum, seconds in time_slice.quanta_of(allocations):
            agent, start, gap_before = quantum.agent, time.perf_counter(), time_slice.gap_of(quantum.agent)
            if agent.table.exact:
                continue
            backend = replace(time_slice.backend, stop=deadline_after(time_slice.backend.stop, seconds))
            agent.filter(time_slice.best, backend, time_slice.backend.stop.left)
            gains.append(time_slice.record(self.name, quantum, gap_before, time.perf_counter() - start))
        return gains


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
                max(agent.elimination_seconds, agent.failed_elimination_seconds / tuning.PLANNED_SHARE),
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
