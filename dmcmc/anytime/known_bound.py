"""Begin a run of a session with the bound that is known from the last run."""

import math
from fractions import Fraction

from dmcmc.inference.model.arithmetic import exact_sum, round_up
from dmcmc.results.result import LAST_RUN
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.divided_problem import DividedProblem


def take_known_bound(incumbent: Incumbent, parts: DividedProblem) -> None:
    """Record the bound that is known from the last run of a session, if there is one (rank 0).

    Parameters
    ----------
    incumbent
        The best assignment and bound of the run.
    parts
        The divided problem.
    """
    known = None if parts.retained is None else parts.retained.known_bound
    constants = [factor.entry(()) for factor in parts.original.factors if not factor.scope]
    if known is None or any(entry is None for entry in constants) or incumbent.values is None:
        return
    exact = Fraction(known) - exact_sum(entry for entry in constants if entry is not None)
    bound = math.floor(exact) if parts.arithmetic.integral else exact
    incumbent.update_bound(bound if parts.arithmetic.exact and isinstance(bound, int) else round_up(bound), LAST_RUN)
