"""DPOP's steps as pure functions (DMCMC paper §2 and Algorithm 2): the same in one process and over MPI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.step_plan_cache import planned
from dmcmc.inference.elimination.eliminate import Elimination, absorb
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import (
    EXACT,
    UNLIMITED,
    Relaxation,
    Relaxed,
    Resources,
    eliminate_first_fitting,
    eliminate_within,
)
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.cuda.device_table import alone
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.sparse.sparse_elimination import ListedElimination, ListedQuery, listed_elimination
from dmcmc.inference.sparse.sparse_table import AnyTable, as_dense

# Tables over parts of the sender's separator; their sum is UTIL_i, or with mini-buckets (ADPOP) not below it. What is
# mostly −∞ may be incomplete.
UtilMessage = tuple[AnyTable, ...]


@dataclass(frozen=True)
class UtilStep:
    """What an agent keeps after the UTIL phase: the message it sent, and its tables for the VALUE phase.

    Attributes
    ----------
    message : tuple of Table
    elimination : Elimination or ListedElimination
    z : int or None
        Limit of the mini-buckets; None if the interface was eliminated exactly.
    """

    message: UtilMessage
    elimination: Elimination | ListedElimination
    z: int | None = None

    def finished(self) -> "UtilStep":
        """Return the step without its tables, which nobody asks for once VALUE has been by."""
        done = self.elimination
        empty = Elimination(done.plan, np.zeros(0, dtype=done.arithmetic.dtype), done.arithmetic)
        return UtilStep(self.message, empty, self.z)

    @property
    def total(self) -> int | float:
        """The UTIL value of a root: the best utility of its subtree, or a bound on it (encoded)."""
        assert not any(table.scope for table in self.message), "only a root has no separator"
        lowest = self.elimination.arithmetic.lowest
        value: int | float = 0
        for table in self.message:
            value = max(value + table.values.item(), lowest)
        return value


@dataclass(frozen=True)
class Node:
    """An agent in the pseudo-tree, with what has come from below.

    Attributes
    ----------
    own : sequence of Table
        The agent's table over its interface, encoded.
    crossing : sequence of Table
        The crossing factors placed at it, encoded.
    children : sequence of tuple of Table
        UTIL messages, in the order of the children.
    interface, separator : sequence of int
        B_i and sep_i.
    domains : (variables,) int64
    arithmetic : Arithmetic
    order : tuple of int or None
        In which its interface is eliminated; None: one is searched for.
    """

    own: Sequence[AnyTable]
    crossing: Sequence[AnyTable]
    children: Sequence[UtilMessage]
    interface: Sequence[int]
    separator: Sequence[int]
    domains: NDArray[np.int64]
    arithmetic: Arithmetic
    order: Sequence[int] | None = None


def util_step(
    node: Node,
    attempts: Sequence[tuple[Relaxation, int | None]] = ((EXACT, None),),
    resources: Resources = UNLIMITED,
) -> UtilStep:
    """Join an agent's tables with its children's messages and maximise over its interface variables.

    UTIL_i(sep_i) = max over b_i of [V_i(b_i) + Σ crossing factors + Σ UTIL_c]. The interface is eliminated variable
    by variable: B_i ∪ sep_i is never enumerated at once. With mini-buckets the step is ADPOP's (GpuBE journal
    paper, §4.2): still one message, of more and smaller tables.

    Parameters
    ----------
    attempts
        Ways, each with its bytes of tables, the first of which that fits is taken: exact, or with which mini-buckets.
    resources
        Their memory is not looked at, their user is the agent's name. Room is what moment matching may make of its
        entries (:mod:`dmcmc.inference.minibuckets.moment_matching`).

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them; :class:`.OutOfTime` as the backend says.
    """
    arithmetic = node.arithmetic
    joined = [*node.own, *node.crossing, *(table for message in node.children for table in message)]
    scopes, stop = [t.scope for t in joined], resources.backend.stop
    found = planned(scopes, node.domains, node.interface, node.separator, node.order, stop)
    (order, exact, layout), (relaxation, memory) = found, attempts[0]
    if relaxation.method != "mini-bucket" and relaxation.z is None and relaxation.allows(exact):
        listed = listed_elimination(ListedQuery(joined, node.domains, arithmetic), exact, memory, stop)
        if listed is not None:
            return UtilStep(listed.remaining(), listed)
    if layout is not None and relaxation.takes_exactly(exact, arithmetic, memory):
        done = _small(joined, layout, exact, arithmetic, resources.backend)
        if done is not None:
            return UtilStep(tuple(map(alone, done.remaining())), done)
    query = Query([as_dense(table) for table in joined], node.domains, order, node.separator, arithmetic, exact)
    named = replace(resources, user=f"agent {resources.user}: its UTIL step")
    relaxed = eliminate_first_fitting(query, attempts, named)
    return UtilStep(_remaining(relaxed), relaxed.elimination, relaxed.z)


def _small(
    joined: Sequence[AnyTable], layout: FlatTables, plan: Plan, arithmetic: Arithmetic, backend: Backend
) -> Elimination | None:
    """Carry out what is small, as it is known beforehand; None where a table is no array of the host's."""
    if any(type(table) is not Table for table in joined):
        return None
    backend.stop.check()
    entries = [table.values.reshape(-1) for table in joined]
    data = np.concatenate(entries) if entries else np.zeros(0, dtype=arithmetic.dtype)
    return backend.eliminate(FlatTables(*layout[:3], data), plan, arithmetic)


def outside_steps(
    node: Node,
    outside: UtilMessage,
    child_separators: Sequence[Sequence[int]],
    relaxation: Relaxation = EXACT,
    resources: Resources = UNLIMITED,
) -> tuple[UtilMessage, list[UtilMessage]]:
    """Say what the outside of an agent adds to its rows, and to each child's separator: UTIL's way down.

    With ``node.own`` + what is returned, the agent has the best (or, with upper tables, a bound on the best) utility of
    the whole component for each of its rows. Its own table is in nobody's outside but its children's.

    Parameters
    ----------
    outside
        What the others add over the agent's separator; empty for a root.

    Returns
    -------
    above : tuple of Table
        Over parts of the interface.
    below : list of tuple of Table
        Over parts of each child's separator.
    """
    domains, arithmetic = node.domains, node.arithmetic
    resources = replace(resources, room=None, user="the outside of an agent")

    def eliminate(given: Sequence[AnyTable], keep: Sequence[int]) -> UtilMessage:
        tables = [as_dense(table) for table in given]
        away = [v for v in (*node.interface, *node.separator) if v not in set(keep)]
        order = best_order([t.scope for t in tables], domains, away, keep, stop=resources.backend.stop).variables
        try:
            relaxed = eliminate_within(Query(tables, domains, order, keep, arithmetic), relaxation, resources)
        except ResourceError:  # an answer is there already: a loose bound will do
            return (Table((), np.array(_sum_of_maxima(tables, arithmetic), dtype=arithmetic.dtype)),)
        return _remaining(relaxed)

    all_messages = [t for message in node.children for t in message]
    above = eliminate([*node.crossing, *all_messages, *outside], node.interface)
    below = []
    for number, keep in enumerate(child_separators):
        others = [t for other, message in enumerate(node.children) if other != number for t in message]
        below.append(eliminate([*node.own, *node.crossing, *others, *outside], keep))
    return above, below


def _remaining(relaxed: Relaxed) -> UtilMessage:
    """Return the remaining tables; their sum is not below the exact one, whatever was rounded."""
    elimination = relaxed.elimination
    # Copies: as long as there is a view of one table, all that were made on the way stay.
    tables = tuple(map(alone, elimination.remaining()))
    if relaxed.margin > 0:
        margin = np.array(relaxed.margin, dtype=elimination.arithmetic.dtype)
        tables = absorb([*tables, Table((), margin)], elimination.arithmetic)
    return tables


def _sum_of_maxima(tables: Sequence[Table], arithmetic: Arithmetic) -> int | float:
    """Return a bound on the sum of tables."""
    total: int | float = 0
    for table in tables:
        total = max(total + table.values.max().item(), arithmetic.lowest)
    return arithmetic.outward(total, len(tables))


def value_step(step: UtilStep, separator: Sequence[int], context: Mapping[int, int]) -> dict[int, int]:
    """Return the best values of the interface variables, given the values of the separator in ``context``."""
    values = {v: context[v] for v in separator}
    step.elimination.maximise(values)
    return values
