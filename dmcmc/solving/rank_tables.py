"""One rank's agents with their tables, and what the agents have sent to each other.

:class:`RankTables` makes the first tables, and combines them by UTIL and VALUE messages. Runs with a fixed amount of
work and runs with a time budget use it. All ranks call its methods at the same time, because they exchange messages
inside.

A *combination* sends UTIL messages up the agents' pseudo-tree and VALUE messages down. A *row* is one assignment of an
agent's boundary variables (its interface).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import Clock, SentMessages, UtilMessage
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.world import MpiTeam, World
from dmcmc.results.result import AgentMetrics
from dmcmc.samplers.contract.protocol import Resumable, SampledTable
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent.bounds import check_bounds, check_incumbent, uncombined_bounds
from dmcmc.solving.agent_steps import MessageInputs, RowFilter, Sides, exported_table, gather_sides, values_of
from dmcmc.solving.combine_tables import Cycle, finished_cycle, message_scheme, run_outside
from dmcmc.solving.local_tables import ExactTables, first_tables
from dmcmc.solving.metrics import AgentWork, checks_of, metrics_of
from dmcmc.solving.planning.combination_plan import slicing_seconds

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup


class FinishedCombination(NamedTuple):
    """A finished combination: the agents' tables that it used, and its outcome.

    Attributes
    ----------
    tables : dict of SampledTable
        By agent of this rank.
    cycle : Cycle
        Messages, chosen values and bounds.
    """

    tables: Mapping[int, SampledTable]
    cycle: Cycle


class RankTables:
    """The agents of one rank, their tables, messages and clocks.

    Parameters
    ----------
    setup
        The plan, which all ranks share; its backend has the deadline.
    world
        The ranks.
    team
        The ranks that work on the rows of one agent, from ``team_of``; this rank alone if None.

    Attributes
    ----------
    setup : Setup
        The plan. Its choices change if the elimination of an agent is given up.
    mine : list of int
        This rank's agents.
    agents : dict of int to Agent
        The same agents with their tables, once they are made.
    sides : Sides
        How the agents' lower and upper tables are indexed.
    helped : Resumable or None
        Chains of another rank's agent, with whose rows this rank helps.
    mailbox : Mailbox
        Sends and receives messages between agents.
    clocks : dict of int to Clock
        Per agent of this rank: its ready time if every agent had its own machine (simulated time).
    last : FinishedCombination or None
        The last combination that was completed.
    combinations : int
        Number of combinations begun.
    made : bool
        Whether the first tables are made.
    """

    sides: Sides

    def __init__(self, setup: "Setup", world: World, team: MpiTeam | None = None) -> None:
        self.setup, self.world, self.team = setup, world, team or MpiTeam(world, None, True)
        self.mine = setup.agents_of_rank(world.rank)
        self.mailbox = Mailbox(world, setup.owner)
        self.agents: dict[int, Agent] = {}
        self.helped: Resumable | None = None
        self.clocks = dict.fromkeys(self.mine, Clock())
        self.last: FinishedCombination | None = None
        self.combinations, self.made = 0, False
        self._checks: dict[int, int] = {}
        self._first_messages: list[Mapping[int, SentMessages]] = []
        self._later_messages: list[Mapping[int, SentMessages]] = []

    def make(
        self,
        exact: ExactTables,
        best: NDArray[np.int64] | None,
        advance: Callable[[int], None],
        gap_is_met: Callable[[Mapping[int, Number]], bool] = lambda bounds: False,
    ) -> None:
        """Make each agent's first table; see :func:`dmcmc.solving.local_tables.first_tables` for the parameters."""
        made = first_tables(exact, self.team, self.world, best, advance, gap_is_met)
        self.setup, self.agents, self.sides, self.helped = made
        self.made = True
        with self.world.together():
            self.check_bounds(best)
        self._checks = {number: checks_of(self.setup, number, agent.table) for number, agent in self.agents.items()}
        self.clocks = {a: Clock(agent.table.seconds, self._checks[a]) for a, agent in self.agents.items()}

    @property
    def improvers(self) -> list[str]:
        """Names of the improvers that have made the first tables of this rank's agents, with repetitions."""
        return [gain.improver for agent in self.agents.values() for gain in agent.gains]

    @property
    def combining_title(self) -> str:
        """The title of a combination in the progress, with the estimated seconds if it is made in slices."""
        slices = "" if self.setup.slicing is None else f", in slices: about {slicing_seconds(self.setup):.2g} s"
        return f"combining{slices}"

    def combine(
        self, stop: Deadline = NO_DEADLINE, size_factor: float = 1.0, row_filter: RowFilter | None = None
    ) -> Cycle:
        """Send UTIL messages up and VALUE messages down; called by all ranks.

        Parameters
        ----------
        stop
            Deadline of the combination.
        size_factor
            Factor on the table size (exact tables or mini-buckets) that the time budget allows per agent; the memory
            limit still holds.
        row_filter
            Which rows whole messages leave out; None to send all rows.

        Raises
        ------
        ResourceError
            If the deadline is over or an agent's tables do not fit; raised on all ranks.
        """
        self.combinations += 1
        setup, world, sides = self.setup, self.world, self.sides
        with world.together():
            self.check_bounds(None)
            tables = {number: exported_table(agent) for number, agent in self.agents.items()}
        inputs = MessageInputs(tables, sides, replace(setup.backend, stop=stop), size_factor, row_filter=row_filter)
        send_messages = message_scheme(setup, self.mailbox, self.clocks, inputs)
        combined = send_messages()
        with world.together():
            values = values_of(combined.chosen, sides, tables)
        if setup.divided.retained is not None:
            setup.divided.retained.finished_cycle = finished_cycle(setup, inputs, combined, values)
        cycle = combined.cycle(tables, values)
        (self._first_messages if self.last is None else self._later_messages).extend(cycle.sent)
        self.last = FinishedCombination(tables, cycle)
        return cycle

    def check_bounds(self, best: NDArray[np.int64] | None) -> None:
        """Raise BoundError if an upper bound of this rank's agents is below what their rows, or ``best``, attain."""
        bounded = {a: one for a, one in self.agents.items() if one.table.upper is not None and not one.table.exact}
        for number, agent in bounded.items():
            given = agent, self.setup.divided.problem, self.setup.choices[number].bound
            check_bounds(*given, self.sides.lower.rows.get(number))
            if best is not None:
                check_incumbent(*given, best)

    def outside_bounds(self) -> dict[int, UtilMessage]:
        """Return upper bounds on what all other agents can add to each agent's rows, after the last combination.

        Empty if the last combination did not have one UTIL step per agent.
        """
        assert self.last is not None, "there has been no combination yet"
        tables, cycle = self.last
        if not cycle.per_agent:
            return {}
        outsides, sent = run_outside(self.setup, self.mailbox, cycle, tables, self.sides.upper)
        self._later_messages.append(sent)
        return outsides

    def index_again(self) -> None:
        """Exchange between all ranks how the tables are indexed now, and advance the clocks of this rank's agents."""
        self.sides = gather_sides(self.setup, self.world, *self.world.on_all_ranks(self._listed_rows))
        for number, agent in self.agents.items():
            before, self._checks[number] = self._checks[number], checks_of(self.setup, number, agent.table)
            self.clocks[number] = self.clocks[number].after(agent.last_seconds, max(0, self._checks[number] - before))

    def _listed_rows(self) -> tuple[dict[int, NDArray[np.int64]], dict[int, NDArray[np.int64]]]:
        """Return the sampled rows, and the unpruned ones, of this rank's agents whose tables have only these rows."""
        lower, upper = self.sides.lower.rows, self.sides.upper.rows
        sampled = {
            number: lower[number]
            for number, agent in self.agents.items()
            if number in lower and number not in upper and agent.lower.local is not agent.local
        }
        unpruned = {
            number: agent.pruning.listed_values(agent.local)
            for number, agent in self.agents.items()
            if agent.pruning.listing is not None
        }
        return sampled, unpruned

    def uncombined_bounds(self) -> dict[int, Number]:
        """Return upper bounds on the utilities of this rank's agents (encoded), from their own tables."""
        return uncombined_bounds(self.setup.divided.division, self.setup.divided.arithmetic, self.mine, self.agents)

    def metrics(self) -> dict[int, AgentMetrics]:
        """Return the metrics of this rank's agents; called by all ranks."""
        with self.world.together():
            metrics = {number: self._metrics_of(number) for number in self.mine}
        return metrics

    def _metrics_of(self, number: int) -> AgentMetrics:
        """Return the metrics of an agent."""
        work, last = AgentWork(None, None, None), self.last
        if last is not None:
            work = AgentWork(last.tables[number], last.cycle.z[number][0], last.cycle.chosen[number])
        elif number in self.agents:
            work = AgentWork(self.agents[number].table, None, None)
        first, later = (self._sent_by(number, phases) for phases in (self._first_messages, self._later_messages))
        return metrics_of(self.setup, number, work, self.world.rank, first, later)

    @staticmethod
    def _sent_by(agent: int, phases: Sequence[Mapping[int, SentMessages]]) -> list[SentMessages]:
        """Return the messages that an agent has sent in some phases."""
        return [phase[agent] for phase in phases if agent in phase]
