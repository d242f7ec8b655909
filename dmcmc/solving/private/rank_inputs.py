"""The inputs of one rank of a problem with one file per agent, and the plan that the ranks make of them.

All ranks know the index: the agents, and the scopes of the factors between them. It determines the agents' pseudo-tree
and the placement of agents on ranks. Arithmetic and choices are agreed by sums and by counts of work.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import AgentIndex, read_agent
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.placement import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.results.result import TracePoint
from dmcmc.solving.distribution.rank_view import RankView, rank_view_of
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.planning.plan import agree_on_tree, plan
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.planning.work_counts import AgreedPlacement
from dmcmc.solving.presolve.presolve_problem import OriginalProblem
from dmcmc.solving.private.agents_start import AgentsStart
from dmcmc.solving.private.agree_on_problem import agree_on_arithmetic, agree_on_view, divide_memory, share_magnitudes
from dmcmc.solving.private.private_inputs import PrivateIncumbent, PrivateInputs
from dmcmc.solving.private.rank_assignment import RankAssignment
from dmcmc.solving.warm_start.retained_work import RetainedWork


@dataclass(frozen=True)
class RankInputs:
    """The part of a problem with private inputs that one rank knows.

    Attributes
    ----------
    index : AgentIndex
        Public data of all agents.
    config : Settings
        Settings of the run.
    placement : AgreedPlacement
        The agents' pseudo-tree, and the rank of each agent. Its memory shares are those of the public data.
    parts : dict of Problem
        The parts that this rank reads: those of its agents, or that of the agent that it helps.
    view : RankView
        The problem as this rank knows it.
    start : AgentsStart
        The assignment that this rank's agents start from, and their costs of moving.
    """

    index: AgentIndex
    config: Settings
    placement: AgreedPlacement
    parts: Mapping[int, Problem]
    view: RankView
    start: AgentsStart

    @classmethod
    def read(cls, folder: str | os.PathLike[str], index: AgentIndex, config: Settings, world: World) -> "RankInputs":
        """Read this rank's files; called by all ranks."""
        public = rank_view_of(index, {})
        tree, tree_messages = agree_on_tree(public.problem, public.division, config.combine, world)
        work = list(map(float, index.table_entries))
        owner = place(work, tree.parent, world.size)
        helpers = helpers_of(work, owner, world.size)
        known = _agents_of(owner, world.rank) or [a for a, ranks in enumerate(helpers) if world.rank in ranks]
        parts = world.on_all_ranks(lambda: {agent: read_agent(folder, index, agent) for agent in known})
        start = world.on_all_ranks(lambda: AgentsStart(index, parts, config))
        parts = start.with_costs(parts)
        mine = _agents_of(owner, world.rank)
        view = agree_on_view(index, parts, mine, tree.placed, config.combine, world)
        shares = divide_memory(view.counted(mine, tree.placed), config.budget.bytes, world)
        placement = AgreedPlacement(tree, owner, shares, tree_messages, helpers)
        return cls(index, config, placement, parts, view, start)

    def with_parts(self, parts: Mapping[int, Problem], config: Settings, world: World) -> "RankInputs":
        """Return the inputs with other tables of this rank's agents; called by all ranks.

        Parameters
        ----------
        parts
            The problems of this rank's agents; their variables and scopes are the same as before.
        config
            Settings of the next run.
        world
            The ranks.
        """
        mine, placed = _agents_of(self.placement.owner, world.rank), self.placement.tree.placed
        view = agree_on_view(self.index, parts, mine, placed, config.combine, world)
        shares = divide_memory(view.counted(mine, placed), config.budget.bytes, world)
        placement = self.placement._replace(shares=shares)
        return RankInputs(self.index, config, placement, parts, view, self.start)

    @property
    def is_as_given(self) -> bool:
        """Whether the tables of ``view`` are those of ``parts``, not centred around 0."""
        return len(self.view.division.constants) == len(self.index.constant_factors())

    def plan(self, world: World, stop: Deadline, retained: RetainedWork | None = None) -> tuple[Setup, int]:
        """Agree on the arithmetic, and plan; return the plan and the number of factors of the whole problem.

        Parameters
        ----------
        world
            The ranks.
        stop
            Deadline of the plan.
        retained
            Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.
        """
        view, tree, mine = self.view, self.placement.tree, _agents_of(self.placement.owner, world.rank)
        counted = view.counted(mine, tree.placed)
        arithmetic, factors = agree_on_arithmetic(counted, view.division.constants, self.config.combine, world)
        share_magnitudes(view.division, mine, tree.placed, world)
        given = OriginalProblem(view.problem)
        parts = DividedProblem(given, view.problem, view.problem, self.config, view.division, arithmetic)
        parts = parts if retained is None else replace(parts, retained=retained)
        return plan(parts, world, stop=stop, placed=self.placement), factors

    def coordinator(
        self,
        world: World,
        setup: Setup,
        factors: int,
        start: float,
        report: Callable[[TracePoint], object],
        share_assignment: bool,
    ) -> PrivateInputs:
        """Return how the ranks agree on the answer.

        Parameters
        ----------
        world
            The ranks.
        setup
            The plan.
        factors
            Number of factors of the whole problem.
        start
            Time at which the run's clock started (``time.perf_counter``).
        report
            Receives each point of the trace, on rank 0.
        share_assignment
            Whether rank 0 gathers the assignment. Otherwise each rank writes its agents' values into files.
        """
        problem, mine = self.view.problem, setup.agents_of_rank(world.rank)
        deadline = setup.backend.stop.until if setup.timed else None
        incumbent = PrivateIncumbent(problem, self.config, start, deadline, report, setup, factors=factors)
        storage = RankAssignment(self.index, mine, problem, self.parts, self.config)
        return PrivateInputs(world, incumbent, self.index, self.view, setup, storage, self.start, share_assignment)


def _agents_of(owner: Sequence[int], rank: int) -> list[int]:
    """Return the agents of a rank."""
    return [agent for agent, its_rank in enumerate(owner) if its_rank == rank]
