"""Start states of the chains of an agent's rows: the rounded result of a short dual ascent, given each row.

A row is an assignment of the agent's boundary variables. Dual ascent reparametrises the agent's factors such that local
decisions agree as far as possible; rounding then assigns the hidden variables one after the other.
"""

import numpy as np

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.rounding import Ints, rounding_of
from dmcmc.inference.bounds.tuning.dual import MAX_ROUNDED_VARIABLES, WHOLE_SWEEPS_PER_ROW_SWEEP
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

_SWEEPS = 3 * WHOLE_SWEEPS_PER_ROW_SWEEP  # sweeps of the dual ascent, with free boundary variables


def dual_states(local: LocalProblem, backend: Backend) -> Ints | None:
    """Return hidden values for every row of an agent's table, (rows, hidden); None if the agent is too large.

    Parameters
    ----------
    local : LocalProblem
        The agent's problem.
    backend : Backend
        Where and until when to compute.
    """
    n = len(local.hidden) + len(local.interface)
    if (
        not local.hidden
        or n > MAX_ROUNDED_VARIABLES
        or sum(factor.table.size for factor in local.factors) > MAX_EXAMINED_ENTRIES
    ):
        return None
    state = DualState(local, triangles=False, backend=backend)
    state.improve(sweeps=_SWEEPS // WHOLE_SWEEPS_PER_ROW_SWEEP, rows=())
    rounding = rounding_of(state, 0, fixed_interface=True)
    return None if rounding is None else rounding.rows(np.arange(local.rows), backend)
