"""``auto``: exact elimination where it fits a budget of table cells, Gibbs sampling elsewhere."""

from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.arithmetic import Arithmetic


def choose_method(local: LocalProblem, cells: int, memory: int, arithmetic: Arithmetic) -> str:
    """Return ``exact`` or ``gibbs`` for an agent.

    Parameters
    ----------
    cells
        Joined table cells that its elimination may have.
    memory
        Bytes that its tables may take.
    """
    if local.order.cells <= cells and local.plan.entries * arithmetic.dtype.itemsize <= memory:
        return "exact"
    return "gibbs"
