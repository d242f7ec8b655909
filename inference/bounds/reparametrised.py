"""An agent's problem with utilities shifted between its tables by a dual ascent, for other work than its bound.

Mini-buckets of such tables bound far more tightly than those of the factors, so an elimination that filters by them
keeps far fewer rows.
"""

from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import LANES
from dmcmc.inference.bounds.dual.reparametrised_tables import tables_of
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic
from dmcmc.inference.runtime.memory import ACCOUNT

_LOWEST = int(np.iinfo(np.int64).min) // ADDENDS
_CUBES, _MOST = 1 << 28, 10_000  # bytes of triangles as tables over three variables, and how many


class Reparametrised(NamedTuple):
    """Tables that add up to an agent's factors, each unit of which is so many powers of two.

    Attributes
    ----------
    query : Query
        Of all variables, in int64.
    shift : int
    """

    query: Query
    shift: int

    def encode(self, worth: int) -> int:
        """Return what an assignment is worth in these tables."""
        return worth << self.shift


def reparametrised(state: BoundState | None, local: LocalProblem) -> Reparametrised | None:
    """Return the tables of a dual ascent's shares; None where there is none, or they do not add up exactly."""
    dual = getattr(state, "dual", state)
    if not isinstance(dual, DualState) or local.interface or not dual.whole or dual.layout.scale.shift < 0:
        return None
    whole, names = dual.layout.whole, list(local.hidden)
    count, widest = whole.triangles.shape[0], -(-int(whole.domains.max(initial=1)) // LANES) * LANES
    clusters = count <= _MOST and 8 * count * widest**3 <= ACCOUNT.part(1 / 16, _CUBES)
    tables = [t for t in tables_of(whole, dual.shares, names, _LOWEST, clusters) if t.scope]
    total = sum(int(np.where(t.values == _LOWEST, 0, np.abs(t.values)).max(initial=0)) for t in tables)
    numbers = Arithmetic(np.dtype(np.int64), _LOWEST, total)
    return Reparametrised(Query(tables, local.domains, local.order.variables, (), numbers), dual.layout.scale.shift)
