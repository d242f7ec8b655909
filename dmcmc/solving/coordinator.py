"""How the ranks of a run agree on its answer: a strategy for problems of one file, and one for private inputs.

A run makes and combines tables in the same way whoever knows the problem (:mod:`.solve`,
:mod:`dmcmc.anytime.rank_run`). What differs is who may see an assignment and a bound. There are two implementations:

* :class:`OneFile`: rank 0 knows the whole problem, gathers assignments, and makes them 1-optimal;
* :class:`.private.private_inputs.PrivateInputs`: no rank knows more than its own agents' parts. The ranks agree on
  utilities by exact sums, and each keeps its part of the assignment.

Rank 0 decides from what all ranks have reported, and sends its decision to all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.agent_step import latest
from dmcmc.inference.runtime.device import is_gpu_in_use
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.sparse_table import SizeStatistics, total_statistics
from dmcmc.mpi.world import World
from dmcmc.results.result import BOUND, EXACT_ELIMINATION, SAMPLING, Result
from dmcmc.solving.agent.bounds import Effect, GapCheck, problem_bound
from dmcmc.solving.agent_steps import RowFilter, Sides
from dmcmc.solving.incumbent import Incumbent, component_cutoffs, rounding_slack, total_of
from dmcmc.solving.metrics import Answer, RankOutcome, answer_of, early_result, result_of
from dmcmc.solving.planning.combination_plan import relaxation_of
from dmcmc.solving.pruning import Cutoffs

if TYPE_CHECKING:
    from dmcmc.solving.combine_tables import Cycle
    from dmcmc.solving.rank_search import RankSearch
    from dmcmc.solving.rank_tables import RankTables


class CycleReport(NamedTuple):
    """The report of one rank after a combination.

    Attributes
    ----------
    roots : dict
        Encoded upper bounds of this rank's root agents, by agent; None if a table in the agent's tree has no bound.
    relaxed : bool
        Whether the combination split upper tables into mini-buckets.
    pruned : bool
        Whether rows have been removed since the last report, or that has not been tried yet.
    stop_requested : bool
        Whether the user has asked the run to end.
    filtered_sizes : tuple of SizeStatistics
        Sizes of the filtered messages of this rank's agents (function filtering).
    """

    roots: Mapping[int, Number | None]
    relaxed: bool
    pruned: bool
    stop_requested: bool
    filtered_sizes: tuple[SizeStatistics, ...]

    @classmethod
    def of(cls, tables: "RankTables", cycle: "Cycle", pruned: bool) -> "CycleReport":
        """Return the report on a combination of this rank's tables."""
        filtered = (agent.filtered.sizes for agent in tables.agents.values() if agent.filtered is not None)
        return cls(
            cycle.roots,
            any(z_of_upper is not None for _, z_of_upper in cycle.z.values()),
            pruned,
            tables.setup.backend.stop.is_cancelled,
            tuple(sizes for sizes in filtered if sizes),
        )


class Coordinator(ABC):
    """How the ranks agree on the answer of a run; all ranks call these methods at the same time.

    Parameters
    ----------
    world
        The ranks.
    incumbent
        The best assignment and bound; they are recorded on rank 0.

    Attributes
    ----------
    private : bool
        Whether no rank may know more than its own agents' parts of the problem.
    effects : dict of Effect
        The numbers that the work of each improver changes, by its name; at first those of the first tables.
    """

    private = False

    def __init__(self, world: World, incumbent: Incumbent) -> None:
        self.world, self.incumbent = world, incumbent
        self.effects: Mapping[str, Effect] = {
            SAMPLING: Effect.LOWER_TABLES,
            BOUND: Effect.BOUNDS,
            EXACT_ELIMINATION: Effect.LOWER_TABLES | Effect.BOUNDS,
        }

    def take_plan(self, tables: "RankTables") -> None:
        """Take the plan of the run, and note in the result how it deviates from the settings."""
        self.incumbent.setup, self.incumbent.note = tables.setup, tables.setup.deviation

    def name_sources(self, improvers: Sequence[str]) -> None:
        """Set the improvers that the trace names as the sources of the next assignment and of the next bound."""
        names = list(dict.fromkeys(improvers))
        raising = [name for name in names if Effect.LOWER_TABLES in self.effects.get(name, Effect.ASSIGNMENTS)]
        bounding = [name for name in names if Effect.BOUNDS in self.effects.get(name, Effect.ASSIGNMENTS)]
        self.incumbent.assignment_source = ", ".join(raising or names) or "prune"
        self.incumbent.bound_source = ", ".join(bounding or names) or "prune"

    @property
    @abstractmethod
    def best(self) -> NDArray[np.int64] | None:
        """Values of the best assignment as far as this rank knows them; None before the first one."""

    @abstractmethod
    def search_before_tables(self, tables: "RankTables") -> None:
        """Search for a better incumbent before there are tables."""

    @abstractmethod
    def record(self, cycle: "Cycle", sides: Sides) -> None:
        """Record the assignment that a combination has chosen.

        Parameters
        ----------
        cycle
            The combination.
        sides
            How its tables were indexed.
        """

    @abstractmethod
    def gap_is_met(self, tables: "RankTables") -> bool:
        """Return whether the tables' bounds alone show that the gap is as small as requested."""

    @abstractmethod
    def answer(self) -> Answer | None:
        """Return the answer on rank 0, and None on other ranks; each rank delivers its part if parts are private."""

    def bounds_to_share(self, tables: "RankTables") -> dict[int, Number]:
        """Return the bounds of this rank's agents from which rank 0 bounds the problem if there was no combination."""
        return {}

    def known_values(self, best: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the best assignment that rank 0 has sent to all ranks, as far as this rank knows it.

        Parameters
        ----------
        best : (n,) int64 or None
            Values of all variables; None if the best assignment breaks hard constraints.
        """
        return best

    def first_gap_check(self, tables: "RankTables") -> Callable[[Mapping[int, Number]], bool]:
        """Return a function that says whether bounds of some agents meet the requested gap while tables are made.

        First tables do not stop early in runs without a time budget, whose work is the same on any number of ranks.
        """
        return lambda bounds: False

    @abstractmethod
    def best_so_far(self, tables: "RankTables") -> Result | None:
        """Return the result if the run ended now; callable from any thread of rank 0, without other ranks."""

    def conclude(self, tables: "RankTables", report: CycleReport) -> Cutoffs | None:
        """Record the bound of a combination, and return the cutoffs by which rows are removed before the next one.

        Returns
        -------
        Cutoffs or None
            None if another combination would change nothing: the goal is reached, no bucket was split, or the last
            attempt has removed no row.
        """
        reports, cutoffs, incumbent = self.world.gather(report), None, self.incumbent
        with self.world.together():
            if reports is not None:  # rank 0 records what all ranks have proven
                roots = roots_of(report.roots for report in reports)
                if filtered_sizes := [sizes for report in reports for sizes in report.filtered_sizes]:
                    incumbent.filtered = total_statistics(filtered_sizes)
                incumbent.update_bound(total_of(roots, tables.setup.divided.arithmetic))
                if not incumbent.reached:
                    may_prune = tables.setup.divided.config.combine.method == "auto"
                    cutoffs = _cutoffs(incumbent, may_prune, reports, roots)
        cutoffs = self.world.decided(cutoffs)
        return None if cutoffs is None else cutoffs._replace(best=self.known_values(cutoffs.best))

    def give_up(self, error: ResourceError, tables: "RankTables") -> None:
        """End the run with the incumbent, because its memory was not enough or it was asked to end.

        Raises
        ------
        ResourceError
            The error itself, if other ranks have not raised it (they would wait for this rank), if there is no
            incumbent, or if a fixed z was asked for.
        """
        z_is_free = tables.made and relaxation_of(tables.setup.divided.config.combine).chooses_z
        if not (self.world.is_agreed(error) and (isinstance(error, OutOfTime | OutOfMemory) or z_is_free)):
            raise error
        if not self.world.on_first_rank(lambda: self.incumbent.quality is not None):
            raise error
        self.incumbent.give_up(error)

    def result(self, tables: "RankTables") -> Result | None:
        """Return the result, put together from all ranks' parts; None except on rank 0."""
        metrics, bounds = tables.metrics(), self.bounds_to_share(tables)
        clock, counts = latest(tables.clocks.values()), self.world.counts.take()
        shares = self.world.gather(RankOutcome(metrics, clock, is_gpu_in_use(), bounds, counts))
        setup, incumbent = tables.setup, self.incumbent
        if shares is not None and incumbent.bound is None:
            parts = [share.upper_bounds for share in shares]
            incumbent.update_bound(problem_bound(setup.divided.division, setup.divided.arithmetic, parts))
        answer = self.answer()
        if shares is None or answer is None:
            return None
        return result_of(setup.divided, incumbent, answer, shares, self.world.size, tables.combinations)


def row_filter(coordinator: Coordinator, tables: "RankTables") -> RowFilter | None:
    """Return which rows the UTIL messages of the next combination leave out; None to send all rows."""
    rows, incumbent = tables.setup.divided.config.combine.rows, coordinator.incumbent
    if rows == "all" or (rows == "auto" and not coordinator.private):
        return None

    def least() -> Number | None:
        utility = incumbent.utility
        return None if utility is None else utility - rounding_slack(incumbent, tables.setup.divided.arithmetic)

    return RowFilter(coordinator.world.on_first_rank(least))


def roots_of(parts: Iterable[Mapping[int, Number | None]]) -> dict[int, Number | None]:
    """Return the bounds of all root agents, in the order of the agents, from those of each rank."""
    bounds: dict[int, Number | None] = {}
    for part in parts:
        bounds |= part
    return {agent: bounds[agent] for agent in sorted(bounds)}


def _cutoffs(
    incumbent: Incumbent, may_prune: bool, reports: Sequence[CycleReport], roots: Mapping[int, Number | None]
) -> Cutoffs | None:
    """Return the cutoffs by which rows are removed, if that may help; None otherwise (rank 0)."""
    if any(report.stop_requested for report in reports):
        incumbent.timed_out = True
        return None
    may_help = any(report.relaxed for report in reports) and any(report.pruned for report in reports)
    if not (may_help and incumbent.feasible and may_prune):
        return None
    return Cutoffs(component_cutoffs(incumbent, roots), incumbent.values, incumbent.bound is not None)


class OneFile(Coordinator):
    """The ranks of a run whose problem rank 0 knows as a whole; see :class:`Coordinator`.

    Parameters
    ----------
    search : RankSearch
        This rank's part of the local search over the whole assignment, with an incumbent.
    """

    def __init__(self, search: "RankSearch") -> None:
        super().__init__(search.world, search.incumbent)
        self.search = search

    @property
    def best(self) -> NDArray[np.int64]:
        """Values of the best assignment, the same on all ranks."""
        return self.search.best

    def search_before_tables(self, tables: "RankTables") -> None:
        """Search for a better incumbent, unless the tables will prove the optimum."""
        setup = tables.setup
        self.search.before_tables(setup.will_prove, setup.proves_on_gpu, setup.table_seconds)

    def first_gap_check(self, tables: "RankTables") -> Callable[[Mapping[int, Number]], bool]:
        """Return the check of the requested gap in a run with a time budget."""
        parts = tables.setup.divided
        if not (parts.timed and parts.config.budget.gap > 0):
            return super().first_gap_check(tables)
        return GapCheck(parts, self.world, self.search.quality).is_met

    def record(self, cycle: "Cycle", sides: Sides) -> None:
        """Gather the values that the combination has chosen for all variables, and record their local optimum."""
        pairs = np.array([[*cycle.values], [*cycle.values.values()]], dtype=np.int64).T
        parts = self.world.gather(pairs, "values")
        values: NDArray[np.int64] | None = None
        if parts is not None:
            values = np.zeros(self.search.parts.problem.n_variables, dtype=np.int64)
            for variables, chosen in (part.T for part in parts):
                values[variables] = chosen
        if values is not None:
            self.incumbent.record_tables(values)
        self.search.make_1_optimal(values)

    def gap_is_met(self, tables: "RankTables") -> bool:
        """Return whether the sum of the tables' bounds shows that the gap is as small as requested."""
        setup = tables.setup
        if setup.divided.config.budget.gap <= 0:
            return False
        parts = self.world.gather(self.world.on_all_ranks(tables.uncombined_bounds))

        def reached() -> bool:
            if setup.divided.config.local.bound != "none":
                self.incumbent.update_bound(
                    problem_bound(setup.divided.division, setup.divided.arithmetic, parts or [])
                )
            return self.incumbent.reached

        return self.world.on_first_rank(reached)

    def bounds_to_share(self, tables: "RankTables") -> dict[int, Number]:
        """Return the bounds of this rank's agents, from which rank 0 bounds the problem if nothing else has."""
        is_known = self.world.size == 1 and self.incumbent.bound is not None
        if is_known or tables.setup.divided.config.local.bound == "none":
            return {}
        return self.world.on_all_ranks(tables.uncombined_bounds)

    def answer(self) -> Answer | None:
        """Return the answer on rank 0, restored to the problem as given; None on other ranks."""
        if self.world.rank > 0:
            return None
        return answer_of(self.search.parts, self.incumbent, self.search.make_original_1_optimal)

    def best_so_far(self, tables: "RankTables") -> Result:
        """Return the result if the run ended now."""
        improve = self.search.make_original_1_optimal
        return early_result(tables.setup.divided, self.incumbent, self.world.size, tables.combinations, improve)
