"""Exact tables and bounds of agents that are kept from one run to the next one of a problem that changes.

The run after a change continues the messages of the last one where it can (:mod:`dmcmc.session.incremental`). Otherwise
it is a new run, which uses the exact table of each agent whose local problem is the same, and the bounds below.

The bound of an unchanged local problem continues where it stopped, with the open nodes of its branch and bound. If
factors have changed, the new bound takes over the dual variables of the others, and the rows' bounds plus what the
change can add to them (:mod:`dmcmc.inference.bounds.continued_bound`). Sampling begins with the best values that each
row had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.samplers.contract.protocol import SampledTable


@dataclass(frozen=True)
class RetainedBound:
    """The bound of an agent, and the best hidden values of its rows, after a run.

    Attributes
    ----------
    local : LocalProblem
        The agent's problem in that run.
    provider : str
        Name of the bound provider.
    state : BoundState
        The bound.
    search : BoundarySearch or None
        Its branch and bound, if that holds all open nodes.
    states : (rows, hidden) integers, or None
        The best hidden values of each row; None if not all rows were sampled.
    """

    local: LocalProblem
    provider: str
    state: BoundState
    search: BoundarySearch | None
    states: NDArray[Any] | None

    @property
    def dual(self) -> DualState | None:
        """The dual ascent that the bound comes from; None without one."""
        state = getattr(self.state, "dual", self.state)
        return state if isinstance(state, DualState) else None


@dataclass(frozen=True)
class _KeptTable:
    """An agent's exact table with the local problem and the arithmetic from which it was made."""

    local: LocalProblem
    arithmetic: Arithmetic
    table: SampledTable


class RetainedWork:
    """The exact tables and bounds of one rank's agents, by the names of the agents.

    Attributes
    ----------
    tables_reused, bounds_reused : int
        Number of agents whose tables the present run has used again, and of those whose bounds it continues.
    bounds : dict of RetainedBound
        The bounds that agents had at the end of the last run.
    known_bound : int, float or None
        Upper bound on the utility of the problem of the present run, known from the last one; None if there is none.
    finished_cycle : object or None
        The last cycle of messages, if it was exact (:class:`dmcmc.solving.combine_tables.FinishedCycle`).
    incremental : object or None
        The last run, if it can be continued with new tables
        (:class:`dmcmc.session.incremental.incremental_run.IncrementalRun`).
    result_is_shared : bool
        Whether every rank has the result of the last run.
    kept_on_all_ranks : (int, int) or None
        The numbers of tables and of UTIL steps of the last run that the present one has continued, on all ranks; None
        in a new run.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _KeptTable] = {}
        self.bounds: dict[str, RetainedBound] = {}
        self.tables_reused, self.bounds_reused = 0, 0
        self.known_bound: Number | None = None
        self.finished_cycle: object | None = None
        self.incremental: object | None = None
        self.result_is_shared = False
        self.kept_on_all_ranks: tuple[int, int] | None = None

    def counts(self, world: World) -> tuple[int, int, int]:
        """Return the numbers of tables, UTIL steps and bounds that the present run has used again on all ranks.

        Called by all ranks.
        """
        if self.kept_on_all_ranks is not None:
            return (*self.kept_on_all_ranks, 0)
        tables, bounds = map(sum, zip(*world.allgather((self.tables_reused, self.bounds_reused)), strict=True))
        return tables, 0, bounds

    def begin_run(self) -> None:
        """Set the counts of a new run to 0."""
        self.tables_reused, self.bounds_reused = 0, 0
        self.kept_on_all_ranks = None

    def forget_others(self, agents: Sequence[str]) -> None:
        """Drop the work of all agents but the given ones."""
        known = set(agents)
        self._tables = {name: kept for name, kept in self._tables.items() if name in known}
        self.bounds = {name: kept for name, kept in self.bounds.items() if name in known}

    def forget_all(self) -> None:
        """Drop all work, because the device that held it has failed."""
        self.forget_others(())
        self.finished_cycle = self.incremental = None

    def find_table(self, name: str, local: LocalProblem, arithmetic: Arithmetic) -> SampledTable | None:
        """Return an agent's exact table if its local problem is the same as before; None otherwise."""
        kept = self._tables.get(name)
        if kept is None or not same_numbers(kept.arithmetic, arithmetic) or not _same_local(kept.local, local):
            return None
        self.tables_reused += 1
        return replace(kept.table, seconds=0.0)

    def keep_table(self, name: str, local: LocalProblem, arithmetic: Arithmetic, table: SampledTable) -> None:
        """Keep an agent's exact table for the next run."""
        self._tables[name] = _KeptTable(local, arithmetic, table)


def same_numbers(one: Arithmetic, other: Arithmetic) -> bool:
    """Return whether exact tables in two arithmetics have the same entries: their limits on sums do not matter."""
    return (one.dtype, one.lowest, one.integral) == (other.dtype, other.lowest, other.integral)


def _same_local(one: LocalProblem, other: LocalProblem) -> bool:
    """Return whether two local problems have the same variables, domains and factors."""
    variables = [*one.interface, *one.hidden]
    return (
        (one.interface, one.hidden) == (other.interface, other.hidden)
        and bool((one.domains[variables] == other.domains[variables]).all())
        and one.factors == other.factors  # the same objects are equal without a look at their entries
    )
