"""Problems that are solved repeatedly with changes, without a division into agents."""

import dataclasses

import numpy as np
from msgspec.structs import replace

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem


def undivided(problem: Problem, settings: Settings) -> Problem:
    """Return the problem with one agent, unless a baseline algorithm solves it, whose agents are part of the method.

    A constraint over all variables would make all of them part of the agents' interfaces.
    """
    if settings.algorithm_settings.name != "dmcmc":
        return problem
    owner = np.zeros(problem.n_variables, dtype=np.int64)
    return dataclasses.replace(problem, agents=("all agents",), owner=owner)


def undivided_settings(settings: Settings) -> Settings:
    """Return settings for the runs on changed problems: no files, and a search that suits the whole problem."""
    return replace(settings, checkpoint=None, output=None, search="auto")
