"""Distributed constraint optimisation with multi-variable agents."""

from dmcmc.inference.model.problem import Evaluation, Factor, Problem
from dmcmc.results.version import __version__

__all__ = ["Evaluation", "Factor", "Problem", "__version__"]
