# mypy: ignore-errors
"""Exchange of temperatures between the runs of a row, by the GPU threads that are its chains."""

import math

import numpy as np
from numba import cuda

from dmcmc.samplers.model.rng_kernels import philox, uniform
from dmcmc.samplers.model.start_kernels import SWAP_BLOCK


@cuda.jit(device=True)
def exchange_rungs(live, mates, worths, slot, run, runs, rung, worth, temperature, ladders, at, k0, k1, row, trial):
    """Hold a chain's rung against its neighbour's; return the rung after it. All threads of a block come here.

    Both chains of a pair come to the same decision, see :func:`dmcmc.samplers.cpu.chain_kernels._exchange`.
    """
    first = slot - np.uint64(run)  # the row's chains are neighbours
    cuda.syncthreads()
    if live:
        mates[first + np.uint64(rung)] = run
        worths[slot] = worth
    cuda.syncthreads()
    if not live:
        return rung
    parity = np.uint32((trial + np.uint32(1)) & np.uint32(1))
    lower = rung if (rung & np.uint32(1)) == parity else rung - np.uint32(1)
    if (rung == 0 and parity == 1) or lower + np.uint32(1) >= runs:
        return rung
    below, above = (
        first + np.uint64(mates[first + np.uint64(lower)]),
        first + np.uint64(mates[first + np.uint64(lower) + np.uint64(1)]),
    )
    word = philox(k0, k1, row, lower, trial, SWAP_BLOCK)[0]
    cold = 1.0 / np.float64(np.float32(temperature * ladders[at + lower]))
    hot = 1.0 / np.float64(np.float32(temperature * ladders[at + lower + np.uint32(1)]))
    if math.log(uniform(word)) < (cold - hot) * (worths[above] - worths[below]):
        return lower + np.uint32(1) if rung == lower else lower
    return rung
