"""A problem with one file per agent: the inputs of one rank, the plan that the ranks make, and their agreement.

All ranks know the index: the agents, and the scopes of the factors between them. It determines the agents' pseudo-tree
and the placement of agents on ranks. Arithmetic and choices are agreed by sums and by counts of work, and utilities by
exact sums. Each rank keeps its agents' values.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.formats.agent_files import AgentIndex, read_agent
from dmcmc.inference.dpop.agent_step import Clock
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.mpi.compute_node import helpers_of, place
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.results.result import Result, TracePoint
from dmcmc.samplers.local_search.local_search import Ascent
from dmcmc.solving.agent_steps import Sides
from dmcmc.solving.combine_tables import Cycle
from dmcmc.solving.coordinator import Coordinator
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.metrics import Answer, RankOutcome, result_of
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.planning.plan import AgreedPlacement, Setup, agree_on_tree, plan
from dmcmc.solving.planning.presolve import OriginalProblem, Presolved
from dmcmc.solving.planning.rank_view import RankView, rank_view_of
from dmcmc.solving.private import agreement
from dmcmc.solving.rank_tables import RankTables
from dmcmc.solving.warm_start.retained_work import RetainedWork

# Values by variable: those of this rank's agents, and of the variables that they share factors with
KnownValues = dict[int, int]


class PrivateAnswer(NamedTuple):
    """The answer of a private run as one rank knows it.

    Attributes
    ----------
    result : Result or None
        The result on rank 0, None on the others.
    known : dict of int to int
        The best assignment: values of this rank's agents and of the variables that they share factors with.
    assignment : dict of str to label
        The values of this rank's agents, by the names of their variables.
    factors : int
        Number of factors of the whole problem.
    """

    result: Result | None
    known: Mapping[int, int]
    assignment: Mapping[str, Label]
    factors: int


@dataclass
class PrivateIncumbent(Incumbent):
    """The utility of the best assignment, of which rank 0 knows only its own agents' part.

    Attributes
    ----------
    factors : int
        Number of factors of the whole problem.
    """

    factors: int = 0

    @property
    def n_addends(self) -> int:
        """Number of factors whose utilities are summed."""
        return self.factors

    def take(self, quality: AssignmentQuality) -> bool:
        """Record the utility of an assignment if it is better than the best so far; return whether it is.

        ``values`` becomes an empty array, because the assignment itself is not known here.
        """
        with self._lock:
            better = quality.is_better_than(self.quality)
            if better:
                self.values, self.quality = np.zeros(0, dtype=np.int64), quality
                self._add_trace_point(None)
        return better


class PrivateInputs(Coordinator):
    """The ranks of a run of which none knows more than its own agents' parts; see :class:`Coordinator`.

    Parameters
    ----------
    world
        The ranks.
    incumbent
        The utility of the best assignment; it is recorded on rank 0.
    index
        Public data of all agents.
    view
        The problem as this rank knows it.
    placement
        The rank of each agent and factor.
    storage
        Storage of the values of this rank's agents.
    start
        The assignment that this rank's agents start from, and their costs of moving.
    share_assignment
        Whether rank 0 gathers the assignment. Otherwise each rank writes its agents' values into files.

    Attributes
    ----------
    known : dict of int to int
        The best assignment: values of this rank's agents and of the variables that they share factors with.
    factors : int
        Number of factors of the whole problem.
    """

    private = True

    def __init__(
        self,
        world: World,
        incumbent: PrivateIncumbent,
        index: AgentIndex,
        view: RankView,
        placement: AgreedPlacement,
        storage: agreement.RankAssignment,
        start: agreement.AgentsStart,
        share_assignment: bool,
    ) -> None:
        super().__init__(world, incumbent)
        self._incumbent, self.factors = incumbent, incumbent.factors
        self.index, self.view, self.storage, self.share_assignment = index, view, storage, share_assignment
        self._start = start
        self.mine = _agents_of(placement.owner, world.rank)
        self._counted = view.counted(self.mine, placement.tree.placed)
        self.known = KnownValues()

    @property
    def best(self) -> NDArray[np.int64] | None:
        """Values of the best assignment as far as this rank knows them; None in first tables, which start at random."""
        return None

    def search_before_tables(self, tables: RankTables) -> None:
        """Do nothing: a local search would need the whole problem."""

    def take(self, known: KnownValues) -> None:
        """Keep an assignment if it is better than the best so far; called by all ranks, each with its part."""
        parts = self.world.gather(self.world.on_all_ranks(lambda: agreement.partial_utility(self._counted, known)))

        def is_better() -> bool:
            quality = agreement.total_quality(parts or [], self.view.problem, self.view.division.constants)
            return self._incumbent.take(quality)

        if self.world.on_first_rank(is_better):
            self.known = dict(known)
            self.storage.keep(self.known)

    def take_initial(self, ascent: Ascent) -> None:
        """Take a greedy assignment of all agents, then the given start, and that of an earlier run if one was saved.

        Parameters
        ----------
        ascent
            Hill climbing on the factors that this rank knows.
        """
        saved, initial = self.world.on_all_ranks(self.storage.load), self._initial_values(ascent)
        self.take(self._with_shared_values(initial))  # this also saves it
        for known in (self._start.values(self.mine), saved):
            if any(self.world.allgather(bool(known))):
                self.take(self._with_shared_values(initial | known))

    def with_moves(self, result: Result | None) -> Result | None:
        """Return the result with the costs of moving, of which ranks share sums only; called by all ranks."""
        return self._start.report(result, self.mine, self.known, self.share_assignment, self.world)

    def save_partial(self) -> None:
        """Write this rank's part of the best assignment, unless the final one is written; callable from any thread."""
        self.storage.leave(self.known)

    def record(self, cycle: Cycle, sides: Sides) -> None:
        """Record this rank's part of the combination's assignment, with the boundary values of its neighbours."""
        known = dict(cycle.values)
        for context in cycle.contexts.values():
            known |= sides.lower.expand(context)
        self.take(known)

    def gap_is_met(self, tables: RankTables) -> bool:
        """Return False: the bounds of other ranks' agents are private."""
        return False

    def known_values(self, best: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return this rank's part of the best assignment, and 0 for all other variables; None if it breaks constraints.

        Parameters
        ----------
        best
            None if the best assignment breaks hard constraints; rank 0 does not know its values.
        """
        if best is None or not self.known:
            return None
        values = np.zeros(self.view.problem.n_variables, dtype=np.int64)
        values[list(self.known)] = list(self.known.values())
        return values

    def best_so_far(self, tables: RankTables) -> Result | None:
        """Return the result if the run ended now, without an assignment, which rank 0 does not know."""
        if self.world.rank > 0:
            return None
        self.incumbent.timed_out = True
        return self._early_result(Answer(self.incumbent.outcome, None, private=True), tables.combinations)

    def result_without_plan(self) -> Result | None:
        """Return the result of a run without tables, since they cannot be planned in time; called by all ranks."""
        self.incumbent.timed_out, answer = True, self.answer()
        return None if answer is None else self._early_result(answer, 0)

    def _early_result(self, answer: Answer, combinations: int) -> Result:
        """Return the result with an answer and without the metrics of agents (rank 0)."""
        assert self.incumbent.parts is not None, "the incumbent has been made with them"
        share = RankOutcome({}, Clock(), is_gpu_in_use(), {})
        return result_of(self.incumbent.parts, self.incumbent, answer, [share], self.world.size, combinations)

    def answer(self) -> Answer | None:
        """Deliver this rank's part of the assignment; return the answer on rank 0."""
        self.storage.end()
        assignment = None
        if self.share_assignment:
            assignment = self._gather_assignment()
        else:
            self.world.on_all_ranks(partial(self.storage.write, self.known))
        if self.world.rank > 0:
            return None
        outcome = self.incumbent.outcome
        return Answer(outcome, None if outcome.status == "infeasible" else assignment, private=True)

    def _initial_values(self, ascent: Ascent) -> KnownValues:
        """Return a greedy assignment of this rank's agents, 1-optimal with respect to the factors that it knows."""
        values = self.world.on_all_ranks(lambda: ascent.climb(ascent.greedy()))
        return {v: int(values[v]) for agent in self.mine for v in self.index.variables_by_agent[agent]}

    def _with_shared_values(self, values: Mapping[int, int]) -> KnownValues:
        """Return the values of this rank's agents, and those of all shared variables."""
        return {**values, **self.world.union({v: x for v, x in values.items() if self.index.is_shared[v]})}

    def _gather_assignment(self) -> dict[str, Label] | None:
        """Gather the assignment on rank 0, by variable name in the order of the variables."""
        named, numbers = self.storage.by_name(self.known), self.index.variables_by_agent
        parts = self.world.gather(
            {v: pair for a, values in named.items() for v, pair in zip(numbers[a], values.items(), strict=True)}
        )
        if parts is None:
            return None
        label_by_variable = {v: pair for part in parts for v, pair in part.items()}
        return dict(label_by_variable[v] for v in sorted(label_by_variable))


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
    start: agreement.AgentsStart

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
        start = world.on_all_ranks(lambda: agreement.AgentsStart(index, parts, config))
        parts = start.with_costs(parts)
        mine = _agents_of(owner, world.rank)
        view = agreement.agree_on_view(index, parts, mine, tree.placed, config.combine, world)
        shares = agreement.divide_memory(view.counted(mine, tree.placed), config.budget.bytes, world)
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
        view = agreement.agree_on_view(self.index, parts, mine, placed, config.combine, world)
        shares = agreement.divide_memory(view.counted(mine, placed), config.budget.bytes, world)
        placement = self.placement._replace(shares=shares)
        return RankInputs(self.index, config, placement, parts, view, self.start)

    @property
    def is_as_given(self) -> bool:
        """Whether the tables of ``view`` are those of ``parts``, not centred around 0."""
        return len(self.view.division.constants) == len(self.index.constant_factors())

    def divided(self, world: World, retained: RetainedWork | None = None) -> tuple[DividedProblem, int]:
        """Agree on the arithmetic; return the divided problem and the number of factors of the whole problem.

        Parameters
        ----------
        world
            The ranks.
        retained
            Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.
        """
        view, tree, mine = self.view, self.placement.tree, _agents_of(self.placement.owner, world.rank)
        counted = view.counted(mine, tree.placed)
        arithmetic, factors = agreement.agree_on_arithmetic(
            counted, view.division.constants, self.config.combine, world
        )
        agreement.share_magnitudes(view.division, mine, tree.placed, world)
        presolved = Presolved(OriginalProblem(view.problem), view.problem, view.problem, arithmetic)
        parts = DividedProblem(presolved, self.config, view.division)
        return parts if retained is None else replace(parts, retained=retained), factors

    def plan(self, divided: DividedProblem, world: World, stop: Deadline) -> Setup:
        """Return the plan, which has to be made before a deadline; called by all ranks."""
        return plan(divided, world, stop=stop, placed=self.placement)

    def coordinator(
        self,
        world: World,
        divided: DividedProblem,
        factors: int,
        start: float,
        deadline: float | None,
        report: Callable[[TracePoint], object],
        share_assignment: bool,
    ) -> PrivateInputs:
        """Return how the ranks agree on the answer.

        Parameters
        ----------
        world
            The ranks.
        divided, factors
            The divided problem, and the number of factors of the whole problem.
        start, deadline
            Times at which the run's clock started and ends (``time.perf_counter``); None without a time budget.
        report
            Receives each point of the trace, on rank 0.
        share_assignment
            Whether rank 0 gathers the assignment. Otherwise each rank writes its agents' values into files.
        """
        problem, mine = self.view.problem, _agents_of(self.placement.owner, world.rank)
        incumbent = PrivateIncumbent(problem, self.config, start, deadline, report, divided, factors=factors)
        storage = agreement.RankAssignment(self.index, mine, problem, self.parts, self.config)
        return PrivateInputs(
            world, incumbent, self.index, self.view, self.placement, storage, self.start, share_assignment
        )


def _agents_of(owner: Sequence[int], rank: int) -> list[int]:
    """Return the agents of a rank."""
    return [agent for agent, its_rank in enumerate(owner) if its_rank == rank]
