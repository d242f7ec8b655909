"""Search in an agent's rows: on the CPU, or on a GPU where that is worth it."""

from collections.abc import Sequence

from dmcmc.inference.bounds.branch_and_bound.engine import CpuEngine
from dmcmc.inference.bounds.branch_and_bound.row_search import RowSearch
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device


def row_search(state: DualState, room: int, seconds: float = 0.0) -> RowSearch:
    """Return a search in the rows of a state, on a GPU where it takes so long that this is worth it.

    Parameters
    ----------
    room
        Bytes for the tables of nodes, in memory.
    seconds
        That it may take, with those of other agents that it shares waves with.
    """
    if state.backend.bounds_on_gpu(seconds * state.backend.threads):
        from dmcmc.inference.bounds.branch_and_bound.cuda.engine import GpuEngine
        from dmcmc.inference.bounds.dual.cuda.device_ascent import takes

        if takes(state):
            try:
                return RowSearch(state, GpuEngine(state))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                state.return_here()
                shared_device().release()
    return RowSearch(state, CpuEngine(state, room))


def bring_together(states: Sequence[DualState], seconds: float) -> None:
    """Have states on the GPU in one place, where searches of so many seconds are done there: they share waves."""
    if states and states[0].backend.bounds_on_gpu(seconds * states[0].backend.threads):
        from dmcmc.inference.bounds.dual.cuda.device_ascent import places, takes

        try:
            places([state for state in states if takes(state)], states[0].backend.sharers)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            shared_device().release()
