"""Tables, UTIL steps and bounds of agents that are kept from one run to the next one of a problem that changes.

A table is used again if the agent's local problem is the same, and a UTIL step if all its inputs are the same: the
agent's tables, the factors between agents that are placed there, and its children's messages. So after a change only
the agents on the paths from the changed agents to the roots work, as in S-DPOP (Petcu and Faltings, AAAI 2005). Inputs
are compared, not digested, so what is used again is what the run would have computed.

The bound of an unchanged local problem continues where it stopped, with the open nodes of its branch and bound. If
factors have changed, the new bound takes over the dual variables of the others, and the rows' bounds plus what the
change can add to them (:mod:`dmcmc.inference.bounds.continued_bound`). Sampling begins with the best values that each
row had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.agent_step import UtilNode, UtilStep
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.sparse_table import AnyTable
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


Attempts = Sequence[tuple[Relaxation, int | None]]


@dataclass(frozen=True)
class _KeptTable:
    """An agent's exact table with the local problem and the arithmetic from which it was made."""

    local: LocalProblem
    arithmetic: Arithmetic
    table: SampledTable


@dataclass(frozen=True)
class _KeptStep:
    """An agent's UTIL step with its inputs."""

    node: UtilNode
    attempts: tuple[tuple[Relaxation, int | None], ...]
    step: UtilStep


class RetainedWork:
    """The exact tables, UTIL steps and bounds of one rank's agents, by the names of the agents.

    Attributes
    ----------
    tables_reused, steps_reused : int
        Number of tables and of UTIL steps that the present run has used again.
    bounds_reused : int
        Number of agents whose bounds continue those of the last run.
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
        The numbers of tables and of UTIL steps that the present run has used again on all ranks, where every rank knows
        them; None otherwise.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _KeptTable] = {}
        self._steps: dict[tuple[str, bool], _KeptStep] = {}
        self._bounds: dict[str, RetainedBound] = {}
        self.tables_reused, self.steps_reused, self.bounds_reused = 0, 0, 0
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
        counts = world.allgather((self.tables_reused, self.steps_reused, self.bounds_reused))
        tables, steps, bounds = map(sum, zip(*counts, strict=True))
        return tables, steps, bounds

    def begin_run(self) -> None:
        """Set the counts of a new run to 0."""
        self.tables_reused, self.steps_reused, self.bounds_reused = 0, 0, 0
        self.kept_on_all_ranks = None

    def forget_others(self, agents: Sequence[str]) -> None:
        """Drop the work of all agents but the given ones."""
        known = set(agents)
        self._tables = {name: kept for name, kept in self._tables.items() if name in known}
        self._steps = {key: kept for key, kept in self._steps.items() if key[0] in known}
        self._bounds = {name: kept for name, kept in self._bounds.items() if name in known}

    def forget_all(self) -> None:
        """Drop all work, because the device that held it has failed."""
        self.forget_others(())
        self.finished_cycle = self.incremental = None

    def find_bound(self, name: str) -> RetainedBound | None:
        """Return the bound that an agent had at the end of the last run; None if it had none."""
        return self._bounds.get(name)

    def keep_bound(self, name: str, bound: RetainedBound) -> None:
        """Keep an agent's bound for the next run."""
        self._bounds[name] = bound

    def find_table(self, name: str, local: LocalProblem, arithmetic: Arithmetic) -> SampledTable | None:
        """Return an agent's exact table if its local problem is the same as before; None otherwise."""
        kept = self._tables.get(name)
        if kept is None or not _same_numbers(kept.arithmetic, arithmetic) or not _same_local(kept.local, local):
            return None
        self.tables_reused += 1
        return replace(kept.table, seconds=0.0)

    def keep_table(self, name: str, local: LocalProblem, arithmetic: Arithmetic, table: SampledTable) -> None:
        """Keep an agent's exact table for the next run."""
        self._tables[name] = _KeptTable(local, arithmetic, table)

    def find_step(self, name: str, is_lower: bool, node: UtilNode, attempts: Attempts) -> UtilStep | None:
        """Return an agent's UTIL step of one side if all its inputs are the same as before; None otherwise."""
        kept = self._steps.get((name, is_lower))
        if kept is None or kept.attempts != tuple(attempts) or not _same_node(kept.node, node):
            return None
        self.steps_reused += 1
        return kept.step

    def keep_step(self, name: str, is_lower: bool, node: UtilNode, attempts: Attempts, step: UtilStep) -> None:
        """Keep an exact UTIL step for the next run; a step with mini-buckets also depends on other agents' tables."""
        if step.z is None:
            self._steps[name, is_lower] = _KeptStep(node, tuple(attempts), step)


def _same_numbers(one: Arithmetic, other: Arithmetic) -> bool:
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


def _same_node(one: UtilNode, other: UtilNode) -> bool:
    """Return whether two UTIL steps have the same inputs."""
    variables = [*one.interface, *one.separator]
    return (
        (tuple(one.interface), tuple(one.separator)) == (tuple(other.interface), tuple(other.separator))
        and one.order == other.order
        and _same_numbers(one.arithmetic, other.arithmetic)
        and bool((one.domains[variables] == other.domains[variables]).all())
        and _same_tables(one.local_tables, other.local_tables)
        and _same_tables(one.crossing, other.crossing)
        and len(one.child_messages) == len(other.child_messages)
        and all(map(_same_tables, one.child_messages, other.child_messages))
    )


def _same_tables(one: Sequence[AnyTable], other: Sequence[AnyTable]) -> bool:
    """Return whether tables are pairwise the same; tables that are no dense arrays must be the same objects."""
    return len(one) == len(other) and all(map(_same_table, one, other))


def _same_table(one: AnyTable, other: AnyTable) -> bool:
    """Return whether two tables have the same scope and entries; entries on a GPU are not fetched to compare them."""
    if one is other:
        return True
    if type(one) is not EncodedTable or type(other) is not EncodedTable or one.scope != other.scope:
        return False
    return one.values is other.values or np.array_equal(one.values, other.values)
