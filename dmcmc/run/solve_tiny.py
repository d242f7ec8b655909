"""Solve a tiny problem in the way of a run, so that its kernels are compiled."""

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.solving.monitoring.interrupt import RunHandle


def solve_tiny(problem: Problem, config: Settings, ending: str) -> None:
    """Solve a tiny problem without a time budget.

    Parameters
    ----------
    problem, config
        The problem and its settings.
    ending : {"none", "deadline"}
        How the run ends. Work with a deadline has other kernels than work without one.
    """
    from dmcmc.run.solve import solve  # which requests kernels itself

    solve(problem, config, ending=None if ending == "none" else RunHandle())
