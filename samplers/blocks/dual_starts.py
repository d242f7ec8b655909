"""Where the chains of rows begin: at what the shares of a short dual ascent are rounded to, given each row."""

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import SHIFTS, DualState
from dmcmc.inference.bounds.dual.rounding import ENTRIES, MOST, Ints, Rounding, rounding_of
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device

_SWEEPS = 3 * SHIFTS  # with the interface free


def dual_states(local: LocalProblem, backend: Backend) -> Ints | None:
    """Return hidden values for every row, (rows, hidden); None where there are too many variables or entries."""
    n = len(local.hidden) + len(local.interface)
    if not local.hidden or n > MOST or sum(factor.table.size for factor in local.factors) > ENTRIES:
        return None
    state = DualState(local, triangles=False, backend=backend)
    state.improve(sweeps=_SWEEPS // SHIFTS, rows=())
    rounding = rounding_of(state, 0, given=True)
    return None if rounding is None else _rounded(rounding, np.arange(local.rows), backend)


def _rounded(rounding: Rounding, rows: Ints, backend: Backend) -> Ints:
    """Round rows, on a GPU where that is worth the way there."""
    if backend.samples_on_gpu(rows.size * rounding.work):
        from dmcmc.inference.bounds.dual.cuda.rounding import round_on_device

        try:
            return round_on_device(rounding, rows, backend.stop)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        shared_device().release()
    return rounding.rows(rows, backend)
