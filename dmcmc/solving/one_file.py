"""Agreement of ranks on a problem that one file holds: rank 0 knows all of it, and gathers assignments and bounds."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Result
from dmcmc.solving.agent.gap_check import GapCheck
from dmcmc.solving.agent.uncombined_bound import problem_bound
from dmcmc.solving.agent_steps import Sides
from dmcmc.solving.coordinator import Coordinator
from dmcmc.solving.metrics import Answer, answer_of, early_result
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.rank_search import RankSearch
from dmcmc.solving.rank_tables import RankTables
from dmcmc.solving.util_value_cycle import Cycle


class OneFile(Coordinator):
    """The ranks of a run whose problem rank 0 knows as a whole; see :class:`Coordinator`.

    Parameters
    ----------
    search : RankSearch
        This rank's part of the local search over the whole assignment, with an incumbent.
    """

    def __init__(self, search: RankSearch) -> None:
        super().__init__(search.world, search.incumbent)
        self.search = search

    @property
    def best(self) -> NDArray[np.int64]:
        """Values of the best assignment, the same on all ranks."""
        return self.search.best

    def search_before_tables(self, setup: Setup) -> None:
        """Search for a better incumbent, unless the tables will prove the optimum."""
        self.search.before_tables(setup)

    def first_gap_check(self, setup: Setup) -> Callable[[Mapping[int, Number]], bool]:
        """Return the check of the requested gap in a run with a time budget."""
        if not (setup.timed and setup.config.budget.gap > 0):
            return super().first_gap_check(setup)
        return GapCheck(setup, self.world, self.search.quality).is_met

    def record(self, cycle: Cycle, sides: Sides) -> None:
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

    def gap_is_met(self, tables: RankTables) -> bool:
        """Return whether the sum of the tables' bounds shows that the gap is as small as requested."""
        setup = tables.setup
        if setup.config.budget.gap <= 0:
            return False
        parts = self.world.gather(self.world.on_all_ranks(tables.uncombined_bounds))

        def reached() -> bool:
            if setup.config.local.bound != "none":
                self.incumbent.update_bound(problem_bound(setup.division, setup.arithmetic, parts or []))
            return self.incumbent.reached

        return self.world.on_first_rank(reached)

    def bounds_to_share(self, tables: RankTables) -> dict[int, Number]:
        """Return the bounds of this rank's agents, from which rank 0 bounds the problem if nothing else has."""
        is_known = self.world.size == 1 and self.incumbent.bound is not None
        if is_known or tables.setup.config.local.bound == "none":
            return {}
        return self.world.on_all_ranks(tables.uncombined_bounds)

    def answer(self) -> Answer | None:
        """Return the answer on rank 0, restored to the problem as given; None on other ranks."""
        if self.world.rank > 0:
            return None
        return answer_of(self.search.parts, self.incumbent, self.search.make_original_1_optimal)

    def best_so_far(self, tables: RankTables) -> Result:
        """Return the result if the run ended now."""
        improve = self.search.make_original_1_optimal
        return early_result(tables.setup, self.incumbent, self.world.size, tables.combinations, improve)
