"""Bounds tightened in further sweeps, and tables reparametrised by them.

Tighten the bounds of several agents: all at once on a GPU where that is faster, else one after the other.

A bound has one entry per row; a row is an assignment of an agent's interface (boundary) variables. Tightening with
thresholds, utilities that rows have to reach, also removes the values with which a row cannot reach its threshold.

An agent's problem with its factors replaced by the potentials of a dual ascent.

Mini-bucket bounds of these tables are much tighter than those of the factors. So an elimination that filters rows by
such bounds keeps far fewer of them.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState
from dmcmc.inference.bounds.contract.tuning import STEP_FRACTION
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import elimination_of, table_width, tables_of, triplets_fit
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.deadline import TimeShares

_GPU_PROVIDERS = ("dual", "triangles")  # providers whose bounds a GPU can tighten


class TighteningBudget(NamedTuple):
    """Time or work for tightening some bounds.

    Attributes
    ----------
    effort : float
        Estimated seconds of the whole work on one core; decides whether the GPU is worth using.
    seconds : sequence of float or None
        Time for each bound. The result then depends on the machine. None if ``sweeps`` is given.
    sweeps : int or None
        Amount of work in the provider's own unit (sweeps of a dual ascent, steps of mini-buckets), instead of
        ``seconds``.
    pass_on : bool
        Whether unused time of one bound goes to the later ones.
    """

    effort: float
    seconds: Sequence[float] | None = None
    sweeps: int | None = None
    pass_on: bool = False


def tighten(
    requests: Sequence[BoundRequest],
    backend: Backend,
    budget: TighteningBudget,
    enough: Callable[[int], bool] | None = None,
) -> list[float]:
    """Tighten the bounds of several agents; return the seconds that each one took.

    Parameters
    ----------
    requests : sequence of BoundRequest
        One per bound.
    backend : Backend
        Threads, device and deadline.
    budget : TighteningBudget
    enough : callable, optional
        ``enough(i)`` says whether the i-th request needs no more work. It is called after a fifth of the bound's time,
        if the bounds are tightened one after the other.
    """
    if not requests:
        return []
    start, seconds = time.perf_counter(), budget.seconds
    if backend.bounds_on_gpu(budget.effort) and not backend.stop.is_cancelled:
        total = None if seconds is None else sum(seconds)
        if improve_on_gpu(requests, backend, total, budget.sweeps):
            return [(time.perf_counter() - start) / len(requests)] * len(requests)
    time_shares = TimeShares(seconds or []) if budget.pass_on else None
    spent = []
    for index, request in enumerate(requests):
        start = time.perf_counter()
        own_seconds = None if seconds is None else seconds[index] if time_shares is None else time_shares.next()
        if own_seconds is None or enough is None:
            request.carry_out(own_seconds, budget.sweeps)
        else:
            request.carry_out(STEP_FRACTION * own_seconds)
            if not enough(index):
                request.carry_out((1 - STEP_FRACTION) * own_seconds)
        spent.append(time.perf_counter() - start)
    return spent


def gpu_table_widths(bounds: Sequence[tuple[str, Subproblem]], backend: Backend, effort: float) -> list[int]:
    """Return the widths of the tables that are tightened on a GPU, if that much work is worth one.

    Parameters
    ----------
    bounds : sequence of (str, Subproblem)
        Each agent's provider, by name, and its problem.
    backend : Backend
    effort : float
        Estimated seconds of the work on one core.
    """
    widths = {table_width(local) for name, local in bounds if name in _GPU_PROVIDERS}
    return sorted(widths) if widths and backend.bounds_on_gpu(effort) else []


def load_kernels_of_width(width: int) -> None:
    """Load the GPU kernels of the dual ascent and its branch and bound for tables with ``width`` columns."""
    from dmcmc.inference.bounds.branch_and_bound.cuda import dual_bounder
    from dmcmc.inference.bounds.dual.cuda import device_ascent

    device_ascent.load_kernels(width)
    dual_bounder.load_kernels(width)


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
