"""Solve a tiny problem in the way of a run, so that its kernels are compiled."""

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.run.compilation.kernel_sets import Ending
from dmcmc.run.monitoring.interrupt import RunHandle
from dmcmc.run.solve import solve


def solve_tiny(problem: Problem, config: Settings, ending: Ending) -> None:
    """Solve a tiny problem: with a deadline that does not pass, or without one."""
    solve(problem, config, ending=None if ending == "none" else RunHandle())
