"""Run some chains of an agent again and record all their states, for statistics of how well they mix."""

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from dmcmc.samplers.contract.chain_statistics import ChainStatistics, statistics_of
from dmcmc.samplers.cpu.trace_kernels import compile_trace

if TYPE_CHECKING:
    from dmcmc.samplers.cpu.launch import Chains

_RECORDED_ROWS = 4  # rows of an agent whose chains are run again for statistics, evenly spaced
_RECORDED_RUNS = 2  # chains of each of these rows
_RECORDED_TRIALS = 10_000  # trials of each of these chains


def mixing_statistics(chains: "Chains") -> ChainStatistics | None:
    """Run some chains of the current pass again, and return how well they mix.

    The result is None unless ``Sampling.diagnose`` is set, and for chains whose temperature is not constant, which are
    no Markov chains of one distribution.
    """
    current = chains.current
    first = current.rounds[0] if len(current.rounds) == 1 else None
    if not chains.sampling.diagnose or not chains.model.hidden or first is None or first.warm:
        return None
    temperatures = first.temperatures[:_RECORDED_TRIALS]
    if chains.sampler.exchange or not temperatures.size or np.any(temperatures != temperatures[0]):
        return None
    trace, utilities, states = compile_trace(chains.sampler), list[Any](), list[Any]()
    rows = np.unique(np.linspace(0, chains.local.rows - 1, _RECORDED_ROWS).astype(np.int64))
    for row, run in product(rows.tolist(), range(min(current.runs, _RECORDED_RUNS))):
        utilities.append(np.zeros(temperatures.size, dtype=np.int64))
        states.append(np.zeros((temperatures.size, chains.model.hidden), dtype=np.int32))
        chain = row, run, temperatures, current.first_trials[0], current.key
        trace(chains.model, chains.shape, *chain, utilities[-1], states[-1])
    return statistics_of(utilities, states, current.runs)
