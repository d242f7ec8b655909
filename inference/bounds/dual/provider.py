"""Providers ``dual`` and ``triangles``: dual ascent on the factors alone, or on the triangles of their graph too."""

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend


class DualProvider:
    """Dual ascent on pairs, or on pairs and triangles."""

    def __init__(self, name: str, summary: str, triangles: bool) -> None:
        self.name = name
        self.summary = summary
        self._triangles = triangles

    def start(self, local: LocalProblem, backend: Backend = CPU) -> DualState:
        """Return an agent's bound after one sweep with the interface free."""
        return DualState(local, self._triangles, backend)


DUAL = DualProvider("dual", "dual ascent on factors: fast, any arity", triangles=False)
TRIANGLES = DualProvider(
    "triangles", "dual ascent on factors and the triangles of their graph: tighter", triangles=True
)
