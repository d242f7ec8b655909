"""An agent's problem with its factors replaced by the potentials of a dual ascent.

Mini-bucket bounds of these tables are much tighter than those of the factors. So an elimination that filters rows by
such bounds keeps far fewer of them.
"""

from typing import NamedTuple

from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import elimination_of, tables_of, triplets_fit
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationQuery


class Reparametrised(NamedTuple):
    """Tables whose sum equals that of an agent's factors, multiplied by 2^``shift``.

    Attributes
    ----------
    query : EliminationQuery
        Elimination of all variables, with int64 entries.
    shift : int
        Binary logarithm of the factor between utilities and table entries.
    """

    query: EliminationQuery
    shift: int

    def encode(self, utility: int) -> int:
        """Convert a utility to the scale of the tables."""
        return utility << self.shift


def reparametrised(state: BoundState | None, local: LocalProblem) -> Reparametrised | None:
    """Return the tables of a dual ascent's potentials, or None.

    A triangle (a triplet region of the dual ascent) becomes a table of three variables if there are few enough;
    otherwise its three tables are added to those of its pairs.

    The result is None if ``state`` has no dual ascent, the agent has an interface, or the utilities are not integers
    that were scaled up exactly.
    """
    dual = getattr(state, "dual", state)
    if not isinstance(dual, DualState) or local.interface or not dual.integral or dual.layout.scale.shift < 0:
        return None
    graph, names = dual.layout.whole, list(local.hidden)
    as_triplets = triplets_fit(graph)
    tables = [t for t in tables_of(graph, dual.potentials, names, as_triplets) if t.scope]
    return Reparametrised(elimination_of(tables, local.domains, local.order.variables, ()), dual.layout.scale.shift)
