"""Distributed constraint optimisation with multi-variable agents: :func:`load` or :func:`generate`, :func:`solve`."""

from dmcmc.api import generate, load, solve, solve_on
from dmcmc.config.settings import Budget, Combine, Cooling, Guarantee, Local, Settings
from dmcmc.inference.model.problem import Evaluation, Factor, Problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.results.result import Result, TracePoint
from dmcmc.results.version import __version__

__all__ = [
    "Budget",
    "Combine",
    "Cooling",
    "DmcmcError",
    "Evaluation",
    "Factor",
    "Guarantee",
    "Local",
    "Problem",
    "Result",
    "Settings",
    "TracePoint",
    "__version__",
    "generate",
    "load",
    "solve",
    "solve_on",
]
