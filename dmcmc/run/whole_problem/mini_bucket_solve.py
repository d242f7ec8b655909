"""Mini-bucket elimination of a whole problem: an assignment and a proven bound, whoever owns the variables."""

import time
from functools import partial

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.run.compilation.search_components import SearchComponents
from dmcmc.run.whole_problem.eliminate_and_decode import eliminate_and_decode, proof_of
from dmcmc.run.whole_problem.whole_result import result_of
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import NoProgress
from dmcmc.solving.planning.divided_problem import divide_problem
from dmcmc.solving.rank_search import begin, take_start


def solve_single_agent(problem: Problem, config: Settings, ending: RunHandle | None = None) -> Result:
    """Eliminate all variables by ``combine`` and ``budget.memory``; the assignment is decoded and made 1-optimal.

    With a time budget the local search continues as long as it is worthwhile.

    Parameters
    ----------
    problem
        A problem with one agent.
    config
        Settings of the run. ``problem`` and ``local`` are not used, except ``local.bound: none``.
    ending
        Handle by which a caller that handles signals ends the run early.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is too small for them.
    """
    world, no_progress, ending = World(), NoProgress(), ending or RunHandle()
    start = time.perf_counter()
    parts = divide_problem(problem, config, world)
    with KernelSupply(world, config, no_progress) as kernels:
        start += kernels.request(*SearchComponents.of(parts))
        until = float("inf") if config.budget.time is None else start + config.budget.time
        kernels.stop = stop = Deadline(until, cancellation=ending.cancellation)
        search = begin(parts, world, stop, start, no_progress, partial(IncumbentSearch, kernels=kernels))
        search.first()
        take_start(search)
        ending.best = search.best_so_far
        with ending.deliver_if_late(stop):
            elimination = eliminate_and_decode(parts, search, stop)
            proof = proof_of(elimination, parts)
    late = elimination is None or stop.over
    return result_of(problem, parts, search, elimination, proof, start, late)
