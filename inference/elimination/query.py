"""What is to be eliminated: one object for all that carry it out, exactly or with mini-buckets."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class Query:
    """The maximum of the sum of ``tables`` over the variables of ``order``, a function of those in ``keep``.

    Attributes
    ----------
    tables : sequence of Table
        Encoded.
    domains : (variables,) int64
    order : sequence of int
        The variables to eliminate, first to last.
    keep : sequence of int
        Those that stay.
    arithmetic : Arithmetic
        What the tables are encoded in.
    plan : Plan or None
        Of exact elimination, where somebody has it already.
    """

    tables: Sequence[Table]
    domains: Ints
    order: Sequence[int]
    keep: Sequence[int]
    arithmetic: Arithmetic
    plan: Plan | None = None

    @property
    def scopes(self) -> list[tuple[int, ...]]:
        """The tables' scopes."""
        return [t.scope for t in self.tables]

    @property
    def exact(self) -> Plan:
        """What exact elimination will do."""
        return self.plan or plan_elimination(self.scopes, self.domains, self.order, self.keep)
