"""The union of all agents in a run: one more agent without boundary variables, for the improvers of agents.

Its upper bound holds for the whole problem, and its only row is pruned when no better assignment than the incumbent
exists. The assignments that branch and bound reaches become incumbents. Its lower table is the incumbent, since the
local search samples the whole problem. ``RankRun`` of rank 0 has it, if a plan wants it
(:mod:`dmcmc.run.planning.union_plan`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.tighten import TighteningBudget, tighten
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Number
from dmcmc.run.agent.agent import Agent, AgentContext
from dmcmc.run.agent.lower_table import LowerTable
from dmcmc.run.improvers.protocol import TimeQuantum, TimeSlice
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.initial_tables import initial_seconds
from dmcmc.run.planning.setup import Setup
from dmcmc.run.planning.union_plan import union_of
from dmcmc.run.scheduler.proposal import BOUND, UNION
from dmcmc.samplers.auto.choose import FIRST_SHARE
from dmcmc.samplers.contract.protocol import SampledTable


class UnionAgent:
    """The union of all agents, bounded by a provider. Its first bound takes as long as the agents' first bounds may.

    Parameters
    ----------
    setup : Setup
        The plan.
    provider : str
        Name of the bound provider.
    incumbent : Incumbent
        Receives bounds.
    suggest : callable
        Receives complete assignments, (n,) int64.

    Attributes
    ----------
    agent : Agent
        The union as an agent.
    """

    def __init__(
        self, setup: Setup, provider: str, incumbent: Incumbent, suggest: Callable[[NDArray[np.int64]], None]
    ) -> None:
        self._incumbent, self._suggest, self._arithmetic = incumbent, suggest, setup.arithmetic
        local, self._leaves = union_of(setup), _Leaves(setup.arithmetic)
        context = AgentContext(setup.sampling_settings(), setup.config.budget.gap)
        self.agent = Agent(context, local, self._leaves.table(), LowerTable(local, self._leaves))
        self.agent.start_bound(provider)
        seconds = FIRST_SHARE * initial_seconds(setup)
        budget = TighteningBudget(seconds * setup.backend.threads, [seconds])
        (tightened,) = tighten([self.agent.bound_request(None)], setup.backend, budget)
        self.agent.update_bound(tightened.seconds)
        self.deliver(BOUND)

    @property
    def gap(self) -> float | None:
        """The union's bound less the incumbent's utility; 0 if no better assignment exists, None without incumbent."""
        utility, bound = self._incumbent.utility, self._bound()
        if self._arithmetic.is_lowest(bound):
            return 0.0
        return None if utility is None else max(0.0, float(bound - utility))

    def added_to(self, time_slice: TimeSlice) -> TimeSlice:
        """Return a time slice in which the union also has a quantum.

        The union's cutoff is the incumbent's utility, less the rounding error of the sums involved.
        """
        cutoff = self._incumbent.utility
        if cutoff is not None:
            cutoff -= 4 * self._arithmetic.rounding(self._incumbent.n_addends)
        self._leaves.utility = cutoff
        self.agent.table = replace(self.agent.table, lower=self._leaves.lower())
        quantum = TimeQuantum(self.agent, np.zeros(1, dtype=self._arithmetic.dtype), cutoff)

        def gap_of(agent: Agent) -> float | None:
            return self.gap if agent is self.agent else time_slice.gap_of(agent)

        return replace(time_slice, quanta={**time_slice.quanta, UNION: quantum}, gap_of=gap_of)

    def deliver(self, by: str) -> None:
        """Give the union's bound, and the assignments that its search has reached, to the run.

        Parameters
        ----------
        by
            The improvers that have worked on the union, as the trace names them.
        """
        for values in self._leaves.pop_all():
            self._suggest(values)
        self._incumbent.update_bound(self._bound(), by)

    def _bound(self) -> Number:
        """Return the encoded upper bound of the whole problem's utility; −∞ if no better assignment exists."""
        upper = self.agent.exported().upper
        assert upper is not None, "the bound has been started"
        bound: Number = self.agent.rows(upper).max().item()
        return bound


class _Leaves:
    """Takes the assignments that a search reaches, in place of an agent's chains; a ``Resumable`` without sampling.

    Attributes
    ----------
    utility : int, float or None
        Encoded utility of the incumbent: the lower table.
    """

    exhausted = True

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self.utility: Number | None = None
        self._found: list[NDArray[np.int64]] = []

    @property
    def states(self) -> NDArray[Any]:
        """No states are kept."""
        return np.zeros((1, 0), dtype=np.int64)

    def lower(self) -> tuple[EncodedTable, ...]:
        """Return the lower table."""
        lowest = self._arithmetic.lowest
        return (EncodedTable((), np.array(lowest if self.utility is None else self.utility, self._arithmetic.dtype)),)

    def table(self) -> SampledTable:
        """Return a table without a bound."""
        return SampledTable(self.lower(), None, lambda values: {}, "union", 0.0)

    def improve(self, rows: NDArray[np.int64], seconds: float, threads: int) -> None:
        """Do nothing: the local search samples the whole problem."""

    def take_better(self, rows: NDArray[np.int64], states: NDArray[Any]) -> bool:
        """Keep assignments for :meth:`pop_all`; return False, since the table stays as it is."""
        self._found += list(np.asarray(states, dtype=np.int64))
        return False

    def pop_all(self) -> list[NDArray[np.int64]]:
        """Return and remove the assignments."""
        found, self._found = self._found, []
        return found
