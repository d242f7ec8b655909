"""Distributed constraint optimisation with multi-variable agents: :func:`load` or :func:`generate`, then :func:`solve`.

Public names are imported at their first use, so that the command line can handle signals before slow imports.
"""

import importlib as _importlib

TYPE_CHECKING = False  # not from ``typing``, which ``python -m dmcmc`` would look for in the working directory
if TYPE_CHECKING:
    from typing import Any

    from dmcmc.api import plan, solve, solve_on
    from dmcmc.config.settings import Budget, Combine, Cooling, Guarantee, Local, Settings
    from dmcmc.inference.marginals.expected_utilities import expected
    from dmcmc.inference.marginals.junction_tree import JunctionTree
    from dmcmc.inference.model.builder import Builder
    from dmcmc.inference.model.problem import Evaluation, Factor, Problem
    from dmcmc.inference.runtime.errors import DmcmcError
    from dmcmc.problems import generate, load
    from dmcmc.questions import alternatives, conflict, max_marginals
    from dmcmc.report.explain import AgentPlan, Plan
    from dmcmc.results.result import Alternative, Result, Solution, TracePoint
    from dmcmc.results.version import __version__
    from dmcmc.session.private_session import PrivateSession
    from dmcmc.session.session import Session

__all__ = [
    "AgentPlan",
    "Alternative",
    "Budget",
    "Builder",
    "Combine",
    "Cooling",
    "DmcmcError",
    "Evaluation",
    "Factor",
    "Guarantee",
    "JunctionTree",
    "Local",
    "Plan",
    "PrivateSession",
    "Problem",
    "Result",
    "Session",
    "Settings",
    "Solution",
    "TracePoint",
    "__version__",
    "alternatives",
    "conflict",
    "expected",
    "generate",
    "load",
    "max_marginals",
    "plan",
    "solve",
    "solve_on",
]

del TYPE_CHECKING

_PUBLIC_NAMES = {
    "dmcmc.api": ("plan", "solve", "solve_on"),
    "dmcmc.config.settings": ("Budget", "Combine", "Cooling", "Guarantee", "Local", "Settings"),
    "dmcmc.inference.marginals.junction_tree": ("JunctionTree",),
    "dmcmc.inference.model.builder": ("Builder",),
    "dmcmc.inference.marginals.expected_utilities": ("expected",),
    "dmcmc.inference.model.problem": ("Evaluation", "Factor", "Problem"),
    "dmcmc.inference.runtime.errors": ("DmcmcError",),
    "dmcmc.problems": ("generate", "load"),
    "dmcmc.questions": ("alternatives", "conflict", "max_marginals"),
    "dmcmc.report.explain": ("AgentPlan", "Plan"),
    "dmcmc.results.result": ("Alternative", "Result", "Solution", "TracePoint"),
    "dmcmc.results.version": ("__version__",),
    "dmcmc.session.private_session": ("PrivateSession",),
    "dmcmc.session.session": ("Session",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}


def __getattr__(name: str) -> "Any":
    """Import a public name at its first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return list(__all__)
