"""Start a search engine: its process or thread, and the costs that it gets."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.engines.given_problem import given_to_engine
from dmcmc.inference.model.problem import Problem
from dmcmc.results.result import CP_SAT, MAX_SAT, TOULBAR2
from dmcmc.samplers.cp_sat.native_problem import MAX_TOTAL_COST as cp_sat_total
from dmcmc.samplers.cp_sat.process import CpSatProcess
from dmcmc.samplers.max_sat.process import MaxSatProcess
from dmcmc.samplers.own_engines import engine_thread
from dmcmc.samplers.toulbar2.background_search import CostSearchEngine
from dmcmc.samplers.toulbar2.costs import MAX_TOTAL_COST, CostProblem
from dmcmc.samplers.toulbar2.process import Toulbar2Process
from dmcmc.samplers.toulbar2.whole_problem import costs_of_compact


class EngineStart(NamedTuple):
    """How an engine is started.

    Attributes
    ----------
    start : callable
        Starts the engine, given its memory in bytes.
    is_process : bool
        Whether the engine is a process; otherwise it is a thread, which needs compiled kernels.
    """

    start: Callable[[int], CostSearchEngine]
    is_process: bool


def start_of(engine: str | None, device: str, known: Callable[[], NDArray[np.int64] | None]) -> EngineStart:
    """Return how an engine is started.

    Parameters
    ----------
    engine : str or None
        Name of the engine.
    device : str
        The device of the run: auto, cpu or cuda.
    known : callable
        Returns the best known assignment, (n,) int64; None before there is one.
    """
    processes: dict[str, Callable[[int], CostSearchEngine]] = {
        TOULBAR2: partial(Toulbar2Process, known=known),
        CP_SAT: partial(CpSatProcess, known=known),
        MAX_SAT: MaxSatProcess,
    }
    process = processes.get(engine or "")
    return EngineStart(engine_thread(engine, device), False) if process is None else EngineStart(process, True)


def problem_costs(memory: int, problem: Problem, engine: str, check: Callable[[], None]) -> CostProblem:
    """Return a problem as costs for an engine, without factors that have no variables.

    Parameters
    ----------
    memory : int
        Memory for tables in bytes.
    problem : Problem
        The problem.
    engine : str
        Name of the engine.
    check : callable
        Called often; it may raise an error to end the conversion.
    """
    max_total = cp_sat_total if engine == CP_SAT else MAX_TOTAL_COST
    return costs_of_compact(given_to_engine(engine, problem, memory), constants=False, check=check, max_total=max_total)
