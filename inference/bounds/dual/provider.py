"""Bound providers ``dual`` and ``triangles``: dual ascent on the factors, or also on the triangles of their graph.

A triangle is a triplet region: three variables each two of which share a factor. Triangles make the bound tighter.
"""

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.subproblem import Subproblem


class DualProvider:
    """Provide bounds by dual ascent on the factors, or on the triangles of the factor graph as well.

    Parameters
    ----------
    name, summary : str
        The attributes.
    triangles : bool
        Whether the dual ascent uses triangles.

    Attributes
    ----------
    name : str
        Name in the configuration.
    summary : str
        One line of help.
    """

    def __init__(self, name: str, summary: str, triangles: bool) -> None:
        self.name = name
        self.summary = summary
        self._triangles = triangles

    def start(self, local: Subproblem, backend: Backend = CPU) -> DualState:
        """Return the agent's bound after one sweep on its whole graph."""
        return DualState(local, self._triangles, backend)


DUAL = DualProvider("dual", "dual ascent on factors: fast, any arity", triangles=False)
TRIANGLES = DualProvider(
    "triangles", "dual ascent on factors and the triangles of their graph: tighter", triangles=True
)
