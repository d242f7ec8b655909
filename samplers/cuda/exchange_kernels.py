# mypy: ignore-errors
"""Parallel tempering on the GPU: the runs of a row exchange their temperatures.

A row is an assignment of an agent's boundary variables; its chains are its runs. The *rungs* of a row's ladder are its
temperatures, the coldest first; each run is on one rung. States stay in their threads, and rungs move. The *eased
utility* of a state has a finite penalty per violation.
"""

import numpy as np
from numba import cuda

from dmcmc.samplers.model.state_kernels import exchanges


@cuda.jit(device=True)
def exchange_rungs(
    active,
    run_on_rung,
    eased_utilities,
    thread,
    run,
    runs,
    rung,
    eased_utility,
    temperature,
    ladders,
    ladder_at,
    k0,
    k1,
    row,
    trial,
):
    """Try to exchange the rung of a thread's chain with a neighbouring rung; return the rung after it.

    All threads of a block call this together. After an odd trial the pairs are rungs (0, 1), (2, 3), ..., after an even
    one (1, 2), (3, 4), ...; a rung without a partner stays. Both chains of a pair come to the same decision, see
    :func:`dmcmc.samplers.cpu.chain_kernels._exchange`.

    Parameters
    ----------
    active : bool
        Whether the thread has a chain.
    run_on_rung : (all threads,) int32
        Workspace: the run on each rung of each row, at the offset of the row's first thread.
    eased_utilities : (all threads,) float64
        Workspace: eased utility of each chain.
    thread : uint64
        Number of the thread in the launch.
    run, runs, rung : uint32
        This chain's run, the runs per row, and the chain's rung.
    eased_utility : float64
        Eased utility of the chain's state.
    temperature : float32
        Temperature of rung 0, in chain units.
    ladders : (any,) float32
        Factors of the rungs' temperatures, from offset ``ladder_at``.
    k0, k1 : uint64
        Key of the agent's chains.
    row, trial : uint32
        Counter of the random bits.
    """
    first = thread - np.uint64(run)  # the chains of a row are in neighbouring threads
    cuda.syncthreads()
    if active:
        run_on_rung[first + np.uint64(rung)] = run
        eased_utilities[thread] = eased_utility
    cuda.syncthreads()
    if not active:
        return rung
    parity = np.uint32((trial + np.uint32(1)) & np.uint32(1))
    lower = rung if (rung & np.uint32(1)) == parity else rung - np.uint32(1)
    if (rung == 0 and parity == 1) or lower + np.uint32(1) >= runs:
        return rung
    cold_thread, hot_thread = (
        first + np.uint64(run_on_rung[first + np.uint64(lower)]),
        first + np.uint64(run_on_rung[first + np.uint64(lower) + np.uint64(1)]),
    )
    cold_temperature = np.float32(temperature * ladders[ladder_at + lower])
    hot_temperature = np.float32(temperature * ladders[ladder_at + lower + np.uint32(1)])
    rise = eased_utilities[hot_thread] - eased_utilities[cold_thread]
    if exchanges(cold_temperature, hot_temperature, rise, k0, k1, row, lower, trial):
        return lower + np.uint32(1) if rung == lower else lower
    return rung
