"""Distributed constraint optimisation with multi-variable agents: :func:`load` or :func:`generate`, :func:`solve`."""

from dmcmc.api import generate, load, plan, solve, solve_on
from dmcmc.config.settings import Budget, Combine, Cooling, Guarantee, Local, Settings
from dmcmc.inference.model.problem import Evaluation, Factor, Problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.report.plan import AgentPlan, Plan
from dmcmc.results.result import Result, TracePoint
from dmcmc.results.version import __version__

__all__ = [
    "AgentPlan",
    "Budget",
    "Combine",
    "Cooling",
    "DmcmcError",
    "Evaluation",
    "Factor",
    "Guarantee",
    "Local",
    "Plan",
    "Problem",
    "Result",
    "Settings",
    "TracePoint",
    "__version__",
    "generate",
    "load",
    "plan",
    "solve",
    "solve_on",
]
