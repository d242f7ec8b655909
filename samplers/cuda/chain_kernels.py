# mypy: ignore-errors
"""Any sampler's chains on an NVIDIA GPU: its ``init`` and ``step`` compiled once more, a thread a chain.

Threads of a warp are neighbouring chains. Their states, scores and scratch lie side by side in device memory, one entry
of 32 chains after another, so that what a warp reads at one time is contiguous::

    z[variable, slot]   scores[variable, lane, slot]   scratch[lane, slot]      slot = block · threads + thread
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, njit
from numpy.typing import NDArray

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.cuda.descriptors import (
    AGENT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER,
    HIDDEN,
    INTERFACE_BEFORE,
    KEY_0,
    KEY_1,
    PART,
    PART_ROWS,
    ROWS,
    RUNS,
    STATES_BEFORE,
    VARIABLES,
)
from dmcmc.samplers.cuda.exchange_kernels import exchange_rungs
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.start_kernels import start_row
from dmcmc.samplers.model.state_kernels import eased, evaluate, fill_scores, greedy_sweep

_ARRAYS = tuple(
    f for f in ChainModel._fields if f not in ("hidden", "lanes", "violation", "penalty", "spread", "scale")
)


class Models(NamedTuple):
    """Models of several agents, each field one after another.

    Attributes
    ----------
    offsets : (agents, len(_ARRAYS) + 1) int64
        Where an agent's part of each field begins; the next agent's row says where it ends.
    numbers : (agents, 6) float64
        hidden, lanes, violation, penalty, spread, scale.
    """

    offsets: NDArray[np.int64]
    numbers: NDArray[np.float64]
    fields: tuple[NDArray[Any], ...]


def join_models(models: Sequence[ChainModel]) -> Models:
    """Lay out models whose data have one dtype."""
    fields = tuple(np.concatenate([getattr(m, name) for m in models]) for name in _ARRAYS)
    sizes = [[getattr(m, name).size for name in _ARRAYS] for m in models]
    offsets = np.cumsum([[0] * len(_ARRAYS), *sizes], axis=0)
    numbers = [(m.hidden, m.lanes, m.violation, m.penalty, m.spread, m.scale) for m in models]
    return Models(offsets.astype(np.int64), np.array(numbers, dtype=np.float64), fields)


@lru_cache
def chains_kernel(sampler: Sampler) -> Any:
    """Return the kernel for a sampler, compiled when it is first launched."""
    init, step, exchange = njit(sampler.init), njit(sampler.step), sampler.exchange

    @cuda.jit
    def chains(
        offsets, numbers, fields, heads, shapes, entries, where, temperatures, ladders, trials, first,
        descent, warm, all_z, all_scores, all_scratch, row_states, best_states, best_utility, mates, worths,
    ):  # fmt: skip
        e = where[cuda.blockIdx.x]
        agent, threads = entries[PART * e + AGENT], cuda.blockDim.x
        h = agent * HEADER
        runs, hidden, n = heads[h + RUNS], heads[h + HIDDEN], heads[h + VARIABLES]
        used = threads - threads % (runs if exchange else 1)  # exchange: whole rows
        index = (cuda.blockIdx.x - entries[PART * e + FIRST_BLOCK]) * used + cuda.threadIdx.x
        live = cuda.threadIdx.x < used and index < entries[PART * e + PART_ROWS] * runs
        if not exchange and not live:
            return
        if not live:
            index = 0  # repeats a chain; never written
        row, run = entries[PART * e + FIRST_ROW] + index // runs, index % runs
        slot = cuda.blockIdx.x * threads + cuda.threadIdx.x
        slots = cuda.gridDim.x * threads
        z, scores, scratch = all_z[:, slot], all_scores[:, :, slot], all_scratch[:, slot]
        at, to = offsets[agent], offsets[agent + 1]
        number = numbers[agent]
        model = ChainModel(
            fields[0][at[0] : to[0]], int(number[0]), int(number[1]), fields[1][at[1] : to[1]],
            fields[2][at[2] : to[2]], int(number[2]), number[3], number[4], number[5],
            fields[3][at[3] : to[3]], fields[4][at[4] : to[4]], fields[5][at[5] : to[5]], fields[6][at[6] : to[6]],
            fields[7][at[7] : to[7]], fields[8][at[8] : to[8]], fields[9][at[9] : to[9]], fields[10][at[10] : to[10]],
            fields[11][at[11] : to[11]], fields[12][at[12] : to[12]], fields[13][at[13] : to[13]],
            fields[14][at[14] : to[14]], fields[15][at[15] : to[15]], fields[16][at[16] : to[16]],
        )  # fmt: skip
        shape = shapes[heads[h + INTERFACE_BEFORE] : heads[h + INTERFACE_BEFORE] + n - hidden]
        rest = row
        for b in range(n - hidden - 1, -1, -1):
            z[hidden + b] = rest % shape[b]
            rest //= shape[b]
        rng = (np.uint64(heads[h + KEY_0]), np.uint64(heads[h + KEY_1]), np.uint64(row), np.uint64(run))
        if warm:
            source = start_row(shape, row, run, (rng[0], rng[1]), first)
            for v in range(hidden):
                z[v] = row_states[heads[h + STATES_BEFORE] + v * heads[h + ROWS] + source]
            fill_scores(model, z, scores)
            utility = np.int64(evaluate(model, z))
        else:
            utility = np.int64(init(model, z, scores, rng))
        top = utility
        for v in range(hidden):
            best_states[v * slots + slot] = z[v]
        rung = np.uint32(run)
        for t in range(trials):
            temperature = temperatures[agent * trials + t]
            if exchange:
                temperature = np.float32(temperature * ladders[agent * runs + rung])
            utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperature))
            if utility > top:
                top = utility
                for v in range(hidden):
                    best_states[v * slots + slot] = z[v]
            if exchange:
                rung = exchange_rungs(
                    live, mates, worths, np.uint64(slot), np.uint32(run), np.uint32(runs), rung, eased(model, utility),
                    temperatures[agent * trials + t], ladders, np.uint32(agent * runs), rng[0], rng[1],
                    np.uint32(row), np.uint32(first + t),
                )  # fmt: skip
        if descent > 0:
            for v in range(hidden):
                z[v] = best_states[v * slots + slot]
            fill_scores(model, z, scores)
            for _ in range(descent):
                utility = greedy_sweep(model, z, scores, top)
                if utility == top:
                    break
                top = utility
            for v in range(hidden):
                best_states[v * slots + slot] = z[v]
        best_utility[slot] = top

    return chains
