"""Create branch-and-bound searches over the rows of an agent, on the CPU or on a GPU where that is faster.

A row is one assignment of an agent's interface (boundary) variables; the search branches on the hidden variables. A
node is a subproblem with a part of their values. Nodes are bounded in batches, on a GPU those of several agents
together.
"""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.bounds.bounders import other_bounders
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import CpuDualBounder
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    SearchedPart,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.tuning.search import MIN_SECONDS_FOR_TRIAL, TRIAL_SECONDS
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.device import leave_to_cpu


def create_boundary_search(
    state: DualState, memory_limit: int, seconds: float = 0.0, part: SearchedPart = SearchedPart.ALL
) -> BoundarySearch:
    """Return a branch-and-bound search over the rows of a bound, on a GPU if that is faster.

    A GPU that has too little memory is not used. On the CPU and with time, an agent without boundary variables tries
    each bounder that suits it.

    Parameters
    ----------
    state : DualState
        Its bounds are lowered by the search.
    memory_limit : int
        Memory limit for the nodes' tables on the CPU, in bytes.
    seconds : float
        Estimated time of this search and of those of other agents in the same batches.
    part : SearchedPart
        Which of the rows' nodes it holds.
    """
    if state.backend.bounds_on_gpu(seconds * state.backend.threads):
        from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import GpuDualBounder
        from dmcmc.inference.bounds.dual.cuda.device_ascent import fits_gpu

        if fits_gpu(state):
            try:
                return BoundarySearch(state, GpuDualBounder(state), part)
            except Exception as error:
                if not leave_to_cpu(error):
                    raise
                state.fetch_potentials()
    search = BoundarySearch(state, CpuDualBounder(state, memory_limit), part)
    left = state.backend.stop.left
    if state.local.interface or part != SearchedPart.ALL or not MIN_SECONDS_FOR_TRIAL <= left < float("inf"):
        return search
    others = [BoundarySearch(state, bounder, part) for bounder in other_bounders(state, memory_limit)]
    return fastest_search(state, [search, *others], TRIAL_SECONDS) if others else search


def fastest_search(state: DualState, searches: Sequence[BoundarySearch], seconds: float) -> BoundarySearch:
    """Return the search that lowers the largest bound of the rows most within a time; all bounds found are kept.

    Every search starts from the bounds that ``state`` has now, without cutoffs.

    Parameters
    ----------
    state : DualState
        Its bounds are lowered.
    searches : sequence of BoundarySearch
        Searches of the rows of ``state``; of equal ones, the first is returned.
    seconds : float
        Time of each search.
    """
    before, no_cutoffs, found = state.bounds.copy(), np.full(state.bounds.size, -np.inf), []
    for search in searches:
        state.bounds[:] = before
        run_boundary_searches([BoundarySearchRequest(search, no_cutoffs, no_cutoffs)], seconds)
        found.append(state.bounds.copy())
    state.bounds[:] = np.min(found, axis=0)
    return searches[int(np.argmin([bounds.max() for bounds in found]))]


def place_together(states: Sequence[DualState], seconds: float) -> None:
    """Place several bounds in the same group on the GPU, so that their searches share node batches.

    Parameters
    ----------
    states : sequence of DualState
    seconds : float
        Estimated time of the searches.
    """
    if states and states[0].backend.bounds_on_gpu(seconds * states[0].backend.threads):
        from dmcmc.inference.bounds.dual.cuda.device_ascent import fits_gpu, place_on_device

        try:
            place_on_device([state for state in states if fits_gpu(state)], states[0].backend.processes_per_gpu)
        except Exception as error:
            if not leave_to_cpu(error):
                raise


def compile_boundary_search() -> None:
    """Compile the CPU kernels of the search."""
    local = Subproblem(0, (), (0, 1), (Factor.of((0, 1), [[0, 1], [1, 0]]),), np.full(2, 2))
    state = DualState(local, triangles=True)
    no_cutoff = np.array([-np.inf])
    # 1 MiB for the nodes' tables is more than enough for two variables of two values.
    search = BoundarySearch(state, CpuDualBounder(state, 1 << 20))
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff, no_cutoff)], batches=1)


BOUNDARY_SEARCH = KernelSet("branch and bound", compile_boundary_search)
