"""The elimination query: one record shared by the exact solvers and the mini-bucket solvers."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class EliminationQuery:
    """Maximise the sum of ``tables`` over the variables of ``order``, as a function of the variables in ``keep``.

    Attributes
    ----------
    tables : sequence of EncodedTable
        Encoded tables.
    domains : (variables,) int64
        Domain sizes of all variables of the problem.
    order : sequence of int
        The variables to eliminate, first to last.
    keep : sequence of int
        The variables that are not eliminated.
    arithmetic : Arithmetic
        The arithmetic in which the tables are encoded.
    plan : EliminationPlan or None
        The plan of exact elimination if the caller already has it.
    """

    tables: Sequence[EncodedTable]
    domains: Ints
    order: Sequence[int]
    keep: Sequence[int]
    arithmetic: Arithmetic
    plan: EliminationPlan | None = None

    @property
    def scopes(self) -> list[tuple[int, ...]]:
        """Scopes of the tables."""
        return [t.scope for t in self.tables]

    @property
    def exact(self) -> EliminationPlan:
        """The plan of exact elimination; computed if none was given."""
        return self.plan or plan_elimination(self.scopes, self.domains, self.order, self.keep)
