"""Agreement of ranks on a problem that no rank knows as a whole: by exact sums; each keeps its agents' values."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.agent_files import AgentIndex
from dmcmc.inference.dpop.agent_step import Clock
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.results.result import Result
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.solving.agent_steps import Sides
from dmcmc.solving.coordinator import Coordinator
from dmcmc.solving.distribution.rank_view import RankView
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.metrics import Answer, RankOutcome, result_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.private.agents_start import AgentsStart
from dmcmc.solving.private.agree_on_problem import partial_utility, total_quality
from dmcmc.solving.private.rank_assignment import RankAssignment
from dmcmc.solving.rank_tables import RankTables
from dmcmc.solving.util_value_cycle import Cycle

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
    setup
        The plan.
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
        setup: Setup,
        storage: RankAssignment,
        start: AgentsStart,
        share_assignment: bool,
    ) -> None:
        super().__init__(world, incumbent)
        self._incumbent, self.factors = incumbent, incumbent.factors
        self.index, self.view, self.storage, self.share_assignment = index, view, storage, share_assignment
        self._start = start
        self.mine = setup.agents_of_rank(world.rank)
        self._counted = view.counted(self.mine, setup.tree.placed)
        self.known = KnownValues()

    @property
    def best(self) -> NDArray[np.int64] | None:
        """Values of the best assignment as far as this rank knows them; None in first tables, which start at random."""
        return None

    def search_before_tables(self, setup: Setup) -> None:
        """Do nothing: a local search would need the whole problem."""

    def take(self, known: KnownValues) -> None:
        """Keep an assignment if it is better than the best so far; called by all ranks, each with its part."""
        parts = self.world.gather(self.world.on_all_ranks(lambda: partial_utility(self._counted, known)))

        def is_better() -> bool:
            quality = total_quality(parts or [], self.view.problem, self.view.division.constants)
            return self._incumbent.take(quality)

        if self.world.on_first_rank(is_better):
            self.known = dict(known)
            self.storage.keep(self.known)

    def take_initial(self, setup: Setup) -> None:
        """Take a greedy assignment of all agents, then the given start, and that of an earlier run if one was saved."""
        saved, initial = self.world.on_all_ranks(self.storage.load), self._initial_values(setup)
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
        incumbent = self.incumbent
        incumbent.timed_out = True
        answer = Answer(incumbent.outcome, None, private=True)
        share = RankOutcome({}, Clock(), is_gpu_in_use(), {})
        return result_of(tables.setup, incumbent, answer, [share], self.world.size, tables.combinations)

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

    def _initial_values(self, setup: Setup) -> KnownValues:
        """Return a greedy assignment of this rank's agents, 1-optimal with respect to the factors that it knows."""
        backend, problem = setup.backend, self.view.problem
        search = LocalSearch(problem, problem, setup.config.seed, backend.threads, backend.stop)
        values = self.world.on_all_ranks(search.first)
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
