"""DPOP's steps as pure functions (DMCMC paper §2 and Algorithm 2): the same in one process and over MPI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.arithmetic import Arithmetic, Table
from dmcmc.inference.elimination import Elimination, eliminate
from dmcmc.inference.orders import best_order
from dmcmc.inference.plan import check_memory, plan_elimination

_REMEDY = "give the agents fewer interface variables or smaller domains, or raise budget.memory"

UtilMessage = tuple[Table, ...]  # tables over parts of the sender's separator; their sum is UTIL_i


@dataclass(frozen=True)
class UtilStep:
    """What an agent keeps after the UTIL phase: the message it sent, and its tables for the VALUE phase."""

    message: UtilMessage
    elimination: Elimination

    @property
    def total(self) -> int | float:
        """The UTIL value of a root: the best utility of its subtree (encoded)."""
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
    threads: int = 1,
    memory: int | None = None,
    name: str = "",
) -> UtilStep:
    """Join an agent's tables with its children's messages and maximise over its interface variables.

    UTIL_i(sep_i) = max over b_i of [V_i(b_i) + Σ crossing factors + Σ UTIL_c]. The interface is eliminated variable
    by variable: B_i ∪ sep_i is never enumerated at once.

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

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    """
    joined = [*tables, *(table for message in children for table in message)]
    order = best_order([t.scope for t in joined], domains, interface, separator).variables
    plan = plan_elimination([t.scope for t in joined], domains, order, separator)
    if memory is not None:
        check_memory(plan, arithmetic, memory, f"agent {name}: its UTIL step", _REMEDY)
    done = eliminate(joined, plan, domains, arithmetic, threads)
    return UtilStep(done.remaining(), done)


def value_step(step: UtilStep, separator: Sequence[int], context: Mapping[int, int]) -> dict[int, int]:
    """Return the best values of the interface variables, given the values of the separator in ``context``."""
    values = {v: context[v] for v in separator}
    step.elimination.maximise(values)
    return values
