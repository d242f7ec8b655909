# mypy: ignore-errors
"""Chains on a GPU, their best states, and exchanges of temperatures.

Any sampler's chains on an NVIDIA GPU: its ``init`` and ``step`` compiled for the device, one thread per chain.

Threads of a warp are neighbouring chains. Their states, scores and scratch are interleaved in device memory, with the
thread as last axis, so that the accesses of a warp are contiguous::

    z[variable, thread]   scores[variable, lane, thread]   scratch[lane, thread]

where ``thread`` counts the threads of the whole launch and ``lane`` the values of a variable. A *row* is an assignment
of an agent's boundary variables (its interface); its chains are its runs. *Chain units* are the integer units of
scores, utilities times a power of two.

Select the best state of each row after a launch of chains of any sampler.

A row is an assignment of the agent's boundary variables; several chains, its runs, sample its hidden variables. The
utility of a state in chain units is its scaled utility minus 2^k per violation; k is the agent's ``VIOLATION_SHIFT``.
So more than half of −2^k means that there is no violation. Headers and launch parts are indexed by the constants of
``dmcmc.samplers.cuda.layout_kernels``.

Parallel tempering on the GPU: the runs of a row exchange their temperatures.

A row is an assignment of an agent's boundary variables; its chains are its runs. The *rungs* of a row's ladder are its
temperatures, the coldest first; each run is on one rung. States stay in their threads, and rungs move. The *eased
utility* of a state has a finite penalty per violation.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import cuda, njit
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda.layout_kernels import (
    AGENT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER_SIZE,
    HIDDEN,
    INTERFACE_BEFORE,
    KEY_0,
    KEY_1,
    PART_ROWS,
    PART_SIZE,
    ROWS,
    ROWS_BEFORE,
    RUNS,
    STATES_BEFORE,
    VARIABLES,
    VIOLATION_SHIFT,
)
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.state_kernels import (
    eased,
    exchanges,
    fill_scores,
    set_hidden,
    set_interface,
    start_row,
    sweep_greedily,
)

if TYPE_CHECKING:
    from dmcmc.samplers.contract.protocol import Sampler


@cuda.jit(device=True, inline="always")
def chain_of_thread(parts, part_of_block, headers, chains_per_block, chain):
    """Return the agent of a thread's chain, the offset of its header, the row, the run, and whether the chain exists.

    The chains of a part are in consecutive blocks. A thread without a chain has row and run of the part's first chain.

    Parameters
    ----------
    parts : (parts · PART_SIZE,) int64
        The parts of the launch: rows of one agent in consecutive blocks, see ``dmcmc.samplers.cuda.layout_kernels``.
    part_of_block : (blocks,) int32
        The part that each block works on.
    headers : (agents · HEADER_SIZE,) int64
        The agents' headers, see ``dmcmc.samplers.cuda.layout_kernels``.
    chains_per_block, chain : uint32
        Chains of a block, and the number of this thread's chain in its block.
    """
    part = np.int64(part_of_block[cuda.blockIdx.x]) * PART_SIZE
    agent = np.int64(parts[part + AGENT])
    h = agent * HEADER_SIZE
    runs = np.uint32(headers[h + RUNS])
    index = (np.uint32(cuda.blockIdx.x) - np.uint32(parts[part + FIRST_BLOCK])) * chains_per_block + chain
    active = chain < chains_per_block and index < np.uint32(parts[part + PART_ROWS]) * runs
    if not active:
        index = np.uint32(0)
    return agent, h, np.uint32(parts[part + FIRST_ROW]) + index // runs, index % runs, active


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


_ARRAY_FIELDS = tuple(
    f for f in ChainModel._fields if f not in ("hidden", "lanes", "violation", "penalty", "spread", "scale")
)


class JoinedModels(NamedTuple):
    """Models of several agents, each array field concatenated over agents.

    Attributes
    ----------
    offsets : (agents + 1, len(_ARRAY_FIELDS)) int64
        Where each agent's part of each array field begins; the next row says where it ends.
    numbers : (agents, 6) float64
        hidden, lanes, violation, penalty, spread, scale.
    fields : tuple of ndarray
        The concatenated array fields, in the order of ``_ARRAY_FIELDS``.
    """

    offsets: NDArray[np.int64]
    numbers: NDArray[np.float64]
    fields: tuple[NDArray[Any], ...]


def join_models(models: Sequence[ChainModel]) -> JoinedModels:
    """Concatenate models whose columns have the same dtype."""
    fields = tuple(np.concatenate([getattr(model, name) for model in models]) for name in _ARRAY_FIELDS)
    sizes = [[getattr(model, name).size for name in _ARRAY_FIELDS] for model in models]
    offsets = np.cumsum([[0] * len(_ARRAY_FIELDS), *sizes], axis=0)
    numbers = [
        (model.hidden, model.lanes, model.violation, model.penalty, model.spread, model.scale) for model in models
    ]
    return JoinedModels(offsets.astype(np.int64), np.array(numbers, dtype=np.float64), fields)


@lru_cache
def chains_kernel(sampler: "Sampler") -> Any:
    """Return the kernel that runs a sampler's chains; it is compiled when it is first launched."""
    init, step, exchange = njit(sampler.init), njit(sampler.step), sampler.exchange

    @cuda.jit
    def chains(
        offsets, numbers, fields, headers, shapes, parts, part_of_block, temperatures, ladders, trials, first, descent,
        warm, all_z, all_scores, all_scratch, row_states, best_states, best_utility, run_on_rung, eased_utilities,
    ):  # fmt: skip
        """Run one round; one thread runs one chain.

        Parameters
        ----------
        offsets, numbers, fields
            See :class:`JoinedModels`.
        headers : (agents · HEADER_SIZE,) int64
            Sizes, offsets and random key of each agent; the imported constants name the columns.
        shapes : (interface variables of all agents,) int64
            Their domain sizes.
        parts : (parts · PART_SIZE,) int64
            Parts of the launch, consecutive rows of one agent each: agent, first row, number of rows, first block.
        part_of_block : (blocks,) int32
            The part that each block works on.
        temperatures : (agents · trials,) float32
            In chain units.
        ladders : (agents · runs,) float32
            Factors of the temperatures of the rungs, for exchange (parallel tempering): run r starts on rung r.
        trials, first : int
            Number of trials, and number of the first one.
        descent : int
            Maximum number of greedy sweeps at the end, from each chain's best state.
        warm : bool
            Whether chains start from ``row_states``: run 0 from its own row, the others from a row that differs in one
            interface variable. If not, from ``init``.
        all_z, all_scores, all_scratch
            State, scores and scratch of all threads, see above; int32, dtype of the columns, int32.
        row_states : (values,) uint8 or uint16
            States of rows, per agent (hidden, rows).
        best_states : (hidden · all threads,) uint8 or uint16
            Written: best state of each chain; variables first, then threads.
        best_utility : (all threads,) int64
            Written: its utility in chain units.
        run_on_rung, eased_utilities : (all threads,) int32 and float64
            Workspace of exchanges.
        """
        tid, threads, runs = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x), np.uint32(headers[RUNS])
        used = threads - threads % (runs if exchange else np.uint32(1))  # with exchange, a block holds whole rows
        agent, h, row, run, active = chain_of_thread(parts, part_of_block, headers, used, tid)
        if not exchange and not active:
            return  # otherwise an idle thread repeats chain 0 without writing
        row, run, hidden, n = np.int64(row), np.int64(run), headers[h + HIDDEN], headers[h + VARIABLES]
        thread = np.int64(cuda.blockIdx.x) * np.int64(threads) + np.int64(tid)
        all_threads = np.int64(cuda.gridDim.x) * np.int64(threads)
        z, scores, scratch = all_z[:, thread], all_scores[:, :, thread], all_scratch[:, thread]
        begin, end = offsets[agent], offsets[agent + 1]
        number = numbers[agent]
        model = ChainModel(
            fields[0][begin[0] : end[0]], int(number[0]), int(number[1]), fields[1][begin[1] : end[1]],
            fields[2][begin[2] : end[2]], int(number[2]), number[3], number[4], number[5], fields[3][begin[3] : end[3]],
            fields[4][begin[4] : end[4]], fields[5][begin[5] : end[5]], fields[6][begin[6] : end[6]],
            fields[7][begin[7] : end[7]], fields[8][begin[8] : end[8]], fields[9][begin[9] : end[9]],
            fields[10][begin[10] : end[10]], fields[11][begin[11] : end[11]], fields[12][begin[12] : end[12]],
            fields[13][begin[13] : end[13]], fields[14][begin[14] : end[14]], fields[15][begin[15] : end[15]],
            fields[16][begin[16] : end[16]],
        )  # fmt: skip
        shape = shapes[headers[h + INTERFACE_BEFORE] : headers[h + INTERFACE_BEFORE] + n - hidden]
        set_interface(model, shape, row, z)
        rng = (np.uint64(headers[h + KEY_0]), np.uint64(headers[h + KEY_1]), np.uint64(row), np.uint64(run))
        if warm:
            source = start_row(shape, row, run, (rng[0], rng[1]), first)
            utility = set_hidden(model, row_states[headers[h + STATES_BEFORE] + source :: headers[h + ROWS]], z, scores)
        else:
            utility = np.int64(init(model, z, scores, rng))
        best = utility
        for v in range(hidden):
            best_states[v * all_threads + thread] = z[v]
        rung = np.uint32(run)
        for t in range(trials):
            temperature = temperatures[agent * trials + t]
            if exchange:
                temperature = np.float32(temperature * ladders[agent * runs + rung])
            utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperature))
            if utility > best:
                best = utility
                for v in range(hidden):
                    best_states[v * all_threads + thread] = z[v]
            if exchange:
                rung = exchange_rungs(
                    active, run_on_rung, eased_utilities, np.uint64(thread), np.uint32(run), np.uint32(runs), rung,
                    eased(model, utility), temperatures[agent * trials + t], ladders, np.uint32(agent * runs), rng[0],
                    rng[1], np.uint32(row), np.uint32(first + t),
                )  # fmt: skip
        if descent > 0:
            for v in range(hidden):
                z[v] = best_states[v * all_threads + thread]
            fill_scores(model, z, scores)
            best = sweep_greedily(model, z, scores, best, descent)
            for v in range(hidden):
                best_states[v * all_threads + thread] = z[v]
        best_utility[thread] = best

    return chains


@cuda_jit()
def select_best_states(
    parts,
    part_of_block,
    headers,
    group,
    first,
    repair,
    best_states,
    best_utility,
    states_before,
    utility_before,
    states_after,
    utility_after,
):
    """Select the best state of each row among its runs in this launch and the earlier rounds; ties go to the earliest.

    The launch has the grid of the chains' kernel: one thread per chain, a row's runs in consecutive threads. The thread
    of the row's run 0 compares the runs; the others end at once. If ``group`` does not divide the threads of a block,
    the last threads of the block have no chain.

    Parameters
    ----------
    parts : (parts · PART_SIZE,) int64
        The parts of the launch: rows of one agent in consecutive blocks, see ``dmcmc.samplers.cuda.layout_kernels``.
    part_of_block : (blocks,) int32
        The part that each block works on.
    headers : (agents · HEADER_SIZE,) int64
        The agents' headers, see ``dmcmc.samplers.cuda.layout_kernels``.
    group : int
        Number of chains that must be in one block: the runs of a row if they exchange states, otherwise 1.
    first : bool
        Whether this is the first round, so that rows have no state yet.
    repair : bool
        Whether this round samples only rows whose state has a violation; the other rows keep their state.
    best_states : (hidden · all threads,) uint8 or uint16
        Best state of each chain; variables first, then threads.
    best_utility : (all threads,) int64
        Utility of each chain's best state, in chain units.
    states_before, states_after : (values,) uint8 or uint16
        States of the rows before and after this round: for each agent (hidden, rows). ``states_after`` is written.
    utility_before, utility_after : (rows of all agents,) int64
        Utilities of these states in chain units. ``utility_after`` is written.
    """
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    chain_threads = np.uint32(threads - threads % np.uint32(group))
    _, h, row, first_run, active = chain_of_thread(parts, part_of_block, headers, chain_threads, tid)
    if not active or first_run != 0:
        return
    row, runs, hidden = np.int64(row), np.uint32(headers[h + RUNS]), np.uint32(headers[h + HIDDEN])
    all_threads = np.uint64(cuda.gridDim.x) * np.uint64(threads)
    thread = np.uint64(cuda.blockIdx.x) * np.uint64(threads) + np.uint64(tid)
    row_at = np.uint64(headers[h + ROWS_BEFORE] + row)
    winner, best, improved = thread, utility_before[row_at], False
    violation = headers[h + VIOLATION_SHIFT]
    half_violation = np.int64(1) << np.int64(violation - 1) if violation > 0 else np.int64(0)
    # Repair rounds skip rows without violations, whose utility is above −2^k / 2.
    skipped = repair and (violation == 0 or best > -half_violation)
    for run in range(runs if not skipped else 0):
        utility = best_utility[thread + np.uint64(run)]
        if utility > best or (first and run == 0):
            winner, best, improved = thread + np.uint64(run), utility, True
    utility_after[row_at] = best
    for v in range(hidden):
        at = np.uint64(headers[h + STATES_BEFORE]) + np.uint64(v) * np.uint64(headers[h + ROWS]) + np.uint64(row)
        states_after[at] = best_states[np.uint64(v) * all_threads + winner] if improved else states_before[at]
