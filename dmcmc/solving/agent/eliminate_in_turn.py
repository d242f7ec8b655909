"""Eliminate the hidden variables of several agents exactly, one agent or group of agents after the other.

Hidden variables are those that share no factor with other agents. The exact initial tables are made in this way, and
with a time budget also those of agents that were only sampled at first.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.methods.exact import elimination_batches

# Seconds that an elimination gets at least: the first ones are sometimes disturbed by other processes
_MIN_SECONDS = 0.25
# Factor of its proportional part of the time that one agent may take: most estimates are wrong by the same factor
_MAX_OVERRUN = 3.0


class EliminatedTables(NamedTuple):
    """The outcome of several agents' eliminations.

    Attributes
    ----------
    tables : dict of SampledTable
        Exact tables by agent.
    given_up : dict of float
        Seconds spent on eliminations that were given up, by agent.
    """

    tables: dict[int, SampledTable]
    given_up: dict[int, float]


def eliminate_in_turn(
    agents: Sequence[tuple[LocalProblem, float]],
    sampling: Sampling,
    timed: bool,
    use_all_time: bool = False,
    on_finished: Callable[[LocalProblem, SampledTable], None] | None = None,
) -> EliminatedTables:
    """Eliminate some agents, those with small estimated costs first.

    With a time budget, an agent's proportional part of the remaining time is p = left * estimate / (sum of the
    estimates not yet done). Its elimination is given up after min(3 p, max(p, left / 2)) seconds, but not before 0.25
    seconds; so one that takes much longer leaves at least half of the time to the others. Agents that are better
    eliminated together share one such limit. Without a time budget, there is no limit.

    Parameters
    ----------
    agents
        The agents' problems, each with the estimated seconds of its elimination.
    sampling
        Settings with a backend whose deadline is that of all eliminations.
    timed
        Whether there is a time budget.
    use_all_time
        Whether each elimination may take all of the remaining time.
    on_finished
        Called with each table as soon as it is finished; the agents are then eliminated one by one.
    """
    backend, seconds = sampling.backend, {local.agent: estimated for local, estimated in agents}
    problems = sorted((local for local, _ in agents), key=lambda local: (seconds[local.agent], local.agent))
    tables: dict[int, SampledTable] = {}
    given_up: dict[int, float] = {}
    remaining_estimate = sum(seconds.values())
    for positions in elimination_batches(problems, backend if timed or on_finished is not None else None):
        group, start = [problems[i] for i in positions], time.perf_counter()
        estimated, stop = sum(seconds[local.agent] for local in group), NO_DEADLINE
        if timed:
            left = max(0.0, backend.stop.until - start)
            time_part = left * estimated / remaining_estimate
            allowed = left if use_all_time else min(_MAX_OVERRUN * time_part, max(time_part, 0.5 * left))
            stop = backend.stop.by(start + max(_MIN_SECONDS, allowed))
        limited_sampling = replace(sampling, backend=replace(backend, stop=stop))
        try:
            made_tables = registry.get("exact").solve(group, limited_sampling)
            if sampling.team.rank == 0:
                tables |= {local.agent: table for local, table in zip(group, made_tables, strict=True)}
            if on_finished is not None:
                for local in group:
                    on_finished(local, tables[local.agent])
        except (OutOfTime, OutOfMemory):
            given_up |= {local.agent: time.perf_counter() - start for local in group}
        remaining_estimate -= estimated
    return EliminatedTables(tables, given_up)
