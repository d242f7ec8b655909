"""DPOP's steps as pure functions (DMCMC paper §2 and Algorithm 2): the same in one process and over MPI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination, absorb
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.relaxation import EXACT, Relaxation, Room, eliminate_within
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.errors import ResourceError

# Tables over parts of the sender's separator; their sum is UTIL_i, or with mini-buckets (ADPOP) not below it.
UtilMessage = tuple[Table, ...]


@dataclass(frozen=True)
class UtilStep:
    """What an agent keeps after the UTIL phase: the message it sent, and its tables for the VALUE phase.

    Attributes
    ----------
    message : tuple of Table
    elimination : Elimination
    z : int or None
        Limit of the mini-buckets; None if the interface was eliminated exactly.
    """

    message: UtilMessage
    elimination: Elimination
    z: int | None = None

    @property
    def total(self) -> int | float:
        """The UTIL value of a root: the best utility of its subtree, or a bound on it (encoded)."""
        assert not any(scope for scope, _ in self.message), "only a root has no separator"
        lowest = self.elimination.arithmetic.lowest
        value: int | float = 0
        for _, table in self.message:
            value = max(value + table.item(), lowest)
        return value


def util_step(
    tables: Sequence[Table],
    children: Sequence[UtilMessage],
    interface: Sequence[int],
    separator: Sequence[int],
    domains: NDArray[np.int64],
    arithmetic: Arithmetic,
    backend: Backend = CPU,
    memory: int | None = None,
    name: str = "",
    relaxation: Relaxation = EXACT,
    room: Room | None = None,
) -> UtilStep:
    """Join an agent's tables with its children's messages and maximise over its interface variables.

    UTIL_i(sep_i) = max over b_i of [V_i(b_i) + Σ crossing factors + Σ UTIL_c]. The interface is eliminated variable
    by variable: B_i ∪ sep_i is never enumerated at once. With mini-buckets the step is ADPOP's (GpuBE journal
    paper, §4.2): still one message, of more and smaller tables.

    Parameters
    ----------
    tables
        The agent's tables over its interface and the crossing factors placed at it, encoded.
    children
        UTIL messages, in the order of the children.
    interface, separator
        B_i and sep_i.
    memory
        Bytes that the tables may take.
    name
        The agent's, for errors.
    relaxation
        Whether mini-buckets may be used, and which.
    room
        What moment matching may make of this agent's entries (:mod:`dmcmc.inference.minibuckets.matching`).

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    """
    joined = [*tables, *(table for message in children for table in message)]
    order = best_order([t.scope for t in joined], domains, interface, separator).variables
    what = f"agent {name}: its UTIL step"
    found = eliminate_within(joined, domains, order, separator, arithmetic, relaxation, memory, backend, room, what)
    message = found.elimination.remaining()
    if found.margin > 0:
        margin = np.array(found.margin, dtype=arithmetic.dtype)
        message = absorb([*message, Table((), margin)], arithmetic)
    return UtilStep(message, found.elimination, found.z)


def outside_steps(
    own: Sequence[Table],
    crossing: Sequence[Table],
    children: Sequence[UtilMessage],
    outside: UtilMessage,
    interface: Sequence[int],
    separator: Sequence[int],
    child_separators: Sequence[Sequence[int]],
    domains: NDArray[np.int64],
    arithmetic: Arithmetic,
    relaxation: Relaxation = EXACT,
    memory: int | None = None,
    backend: Backend = CPU,
) -> tuple[UtilMessage, list[UtilMessage]]:
    """Say what the rest of the problem adds to an agent's rows, and to each child's separator: UTIL's way down.

    With ``own`` + what is returned, the agent has the best (or, with upper tables, a bound on the best) utility of the
    whole component for each of its rows.

    Parameters
    ----------
    own
        The agent's table, encoded; in nobody's outside but its children's.
    crossing, children
        As for :func:`util_step`.
    outside
        What the rest of the problem adds over the agent's separator; empty for a root.

    Returns
    -------
    rest : tuple of Table
        Over parts of the interface.
    downs : list of tuple of Table
        Over parts of each child's separator.
    """
    all_messages = [t for message in children for t in message]

    def eliminate(tables: Sequence[Table], keep: Sequence[int]) -> UtilMessage:
        away = [v for v in (*interface, *separator) if v not in set(keep)]
        order = best_order([t.scope for t in tables], domains, away, keep).variables
        what = "the outside of an agent"
        try:
            found = eliminate_within(tables, domains, order, keep, arithmetic, relaxation, memory, backend, None, what)
        except ResourceError:  # an answer is there already: a loose bound will do
            return (Table((), np.array(_sum_of_maxima(tables, arithmetic), dtype=arithmetic.dtype)),)
        left = found.elimination.remaining()
        if found.margin > 0:
            left = absorb([*left, Table((), np.array(found.margin, dtype=arithmetic.dtype))], arithmetic)
        return left

    rest = eliminate([*crossing, *all_messages, *outside], interface)
    downs = []
    for number, keep in enumerate(child_separators):
        others = [t for other, message in enumerate(children) if other != number for t in message]
        downs.append(eliminate([*own, *crossing, *others, *outside], keep))
    return rest, downs


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
