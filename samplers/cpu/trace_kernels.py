# mypy: ignore-errors
"""Run one Markov chain again and record every state, for the statistics of a sampler's chains.

Random numbers are a function of the row, the run and the trial, so the chain is the one that sampling has run, on
whatever device that was.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.cpu.chain_kernels import bind, set_interface
from dmcmc.samplers.model.state_kernels import new_arrays

# Names that the loop uses; bind() replaces them by a sampler's compiled functions.
init: Callable[..., Any]
step: Callable[..., Any]


def _trace(model, shape, row, run, temperatures, first, key, utilities, states):
    """Run one chain from a random start and record it.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows are in C order.
    row, run : int
        The chain.
    temperatures : (trials,) float32
        Temperature of each trial, in chain units.
    first : int
        Number of the first trial.
    key : (2,) uint64
        Key of the agent's chains.
    utilities : (trials,) int64
        Result: the utility after each trial, in chain units.
    states : (trials, hidden) int32
        Result: the hidden values after each trial.
    """
    z, scores, scratch = new_arrays(model)
    set_interface(model, shape, row, z)
    rng = (key[0], key[1], np.uint64(row), np.uint64(run))
    utility = np.int64(init(model, z, scores, rng))
    for t in range(temperatures.size):
        utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperatures[t]))
        utilities[t] = utility
        for v in range(model.hidden):
            states[t, v] = z[v]


def compile_trace(sampler: Sampler) -> Callable[..., None]:
    """Return the loop that records a chain, compiled around a sampler's functions."""
    return bind(_trace, sampler)
