"""Chains of all rows on a GPU, and their Gibbs kernels.

Run the chains of many agents on the GPU: every row, every run, in as few launches as the memory allows.

A *row* is an assignment of an agent's boundary variables (its interface); several chains, the *runs*, sample its hidden
variables. A *round* is a number of trials that all rows complete before any row continues. A *part* of a launch is a
range of rows of one agent. In parallel tempering, the runs of a row are on the *rungs* (temperatures) of a ladder.

Which Gibbs kernels some agents need, and how to load one of them without those agents.

A Gibbs kernel depends on a few properties of the agents (:class:`.gibbs_kernels.GibbsKernelShape`), so many problems
share it. A tiny agent with these properties compiles it, or loads it from disk.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.device import allow_shared, gpu_limits, shared_device
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.cuda.batch import (
    GibbsLaunch,
    ModelBatch,
    agent_headers,
    batch_key,
    choose_lanes,
    choose_launch,
    pack_joint_models,
    pack_models,
    values_fit_bytes,
)
from dmcmc.samplers.cuda.chain_kernels import chains_kernel, join_models, select_best_states
from dmcmc.samplers.cuda.gibbs_kernels import STAGES, GibbsKernelShape, gibbs_kernel
from dmcmc.samplers.cuda.joint_proposal_kernels import joint_kernel
from dmcmc.samplers.cuda.layout_kernels import HIDDEN, ROWS, RUNS, STATES_BEFORE, VARIABLES, VIOLATION_SHIFT
from dmcmc.samplers.methods import gibbs, metropolis
from dmcmc.samplers.model.chain_model import MAX_COMPACT_SCORE, ChainModel, build_model
from dmcmc.samplers.model.schedule import Round

_GIBBS_REGISTERS = 80  # per thread of the Gibbs kernel: the number that hides latency best
_JOINT_REGISTERS = 40  # per thread of the kernel of joint proposals, approximately
_MIN_BLOCK_THREADS = 64  # per block of the general kernel, which needs no shared memory
_MAX_BLOCK_THREADS = 512  # per block of the general kernel, to hold all runs of a row
LAUNCHED_SHAPES: set[GibbsKernelShape] = set()  # Gibbs kernels that this process has launched

Key = tuple[int, int]
States = NDArray[Any]
InitialRows = tuple[NDArray[np.int64], States]  # utility (rows,) and state (rows, hidden) of each row


def sample_rows(
    sampler: Sampler,
    models: Sequence[ChainModel],
    keys: Sequence[Key],
    rounds: Sequence[Sequence[Round]],
    runs: int,
    limit: int | None = None,
    initial: Sequence[InitialRows] | None = None,
    prefer_loaded: bool = False,
) -> list[States | None]:
    """Run a sampler's rounds on all rows of some agents.

    Parameters
    ----------
    sampler : Sampler
        The sampler.
    models : sequence of ChainModel
        The agents' columns.
    keys : sequence of (int, int)
        Keys of the agents' chains.
    rounds : sequence of sequences of Round
        The rounds of each agent; those of different agents may differ in temperatures only.
    runs : int
        Chains per row.
    limit : int, optional
        Bytes of device memory for the states of a launch; a quarter of the device's limit by default.
    initial : sequence of ((rows,) int64, (rows, hidden) integers), optional
        For each agent the utilities and states of its rows, from which a warm first round starts.
    prefer_loaded : bool
        Whether to prefer a kernel that has been launched before to the best one, which may have to be compiled.

    Returns
    -------
    list of ndarray, (rows, hidden) uint8 or uint16
        Best hidden values found for each row; None for an agent whose state no block can hold.
    """
    states: list[States | None] = [None] * len(models)
    order = sorted(range(len(models)), key=lambda i: (*batch_key(models[i]), i))
    for _, members_of_batch in groupby(order, key=lambda i: batch_key(models[i])):
        members = list(members_of_batch)
        batch_models, batch_keys = [models[i] for i in members], [keys[i] for i in members]
        launcher = _choose_launcher(
            sampler, batch_models, batch_keys, runs, [round_ for i in members for round_ in rounds[i]], prefer_loaded
        )
        if launcher is None:
            continue
        batch_states = launcher.run([rounds[i] for i in members], limit, initial and [initial[i] for i in members])
        for i, rows in zip(members, batch_states, strict=True):
            states[i] = rows
    return states


class _LaunchArguments(NamedTuple):
    """Arguments of one launch of chains; arrays are on the device.

    Attributes
    ----------
    blocks : int
        Number of blocks.
    headers : (agents · HEADER_SIZE,) int64
        Sizes, offsets and random key of each agent, see :mod:`dmcmc.samplers.cuda.layout_kernels`.
    schedule : (parts, part of each block, temperatures, ladders)
        The rows of the launch, (parts · PART_SIZE,) int64 and (blocks,) int32; the temperatures of the round, (agents ·
        trials,) float32, and their factors per run, (agents · runs,) float32.
    trials, first : int
        Number of trials of the round, and number of the first one.
    round_ : Round
        The round.
    state : (row states, best states, best utilities, runs on rungs, eased utilities)
        Where chains start, what they find, and workspace of exchanges.
    """

    blocks: int
    headers: Any
    schedule: tuple[Any, ...]
    trials: int
    first: int
    round_: Round
    state: tuple[Any, ...]


class ChainLauncher:
    """Runs the rounds of one batch of agents on the device.

    Parameters
    ----------
    headers : (agents, HEADER_SIZE) int64
        The agents.
    byte_values : bool
        Whether values take one byte, otherwise two.
    threads : int
        Threads, or chains for joint proposals, per block.
    group : int
        Number of chains that must be in one block: the runs of a row if they exchange, else 1.
    bytes_per_chain : int
        Bytes of device memory per chain, without its best state and counters.
    launch : callable
        Launches the kernel of the chains.
    """

    def __init__(
        self,
        headers: NDArray[np.int64],
        byte_values: bool,
        threads: int,
        group: int,
        bytes_per_chain: int,
        launch: Callable[[_LaunchArguments], None],
    ) -> None:
        self.headers, self.threads, self.group, self.launch = headers, threads, group, launch
        self.value = np.dtype(np.uint8 if byte_values else np.uint16)
        self.hidden = int(headers[:, HIDDEN].max(initial=1))
        # 20 bytes: best utility (8), run on its rung (4), eased utility (8).
        self.bytes_per_chain = bytes_per_chain + self.hidden * self.value.itemsize + 20
        self.device = shared_device()

    def run(  # long: one step of a launch after the other
        self, rounds: Sequence[Sequence[Round]], limit: int | None, initial: Sequence[InitialRows] | None = None
    ) -> list[States]:
        """Run all rounds; return each agent's states, (rows, hidden); ``limit`` and ``initial`` as in ``sample_rows``.

        The rows have two buffers of states and utilities, before and after a round, which are swapped for each round.
        """
        device, headers = self.device, self.headers
        total_values = int((headers[:, ROWS] * headers[:, HIDDEN]).sum())
        on_device = device.upload("chains heads", headers.reshape(-1))
        rows = int(headers[:, ROWS].sum())
        before, after = (
            (
                device.buffer(f"chains stored {i}", total_values, self.value),
                device.buffer(f"rows {i}", rows, np.dtype(np.int64)),
            )
            for i in range(2)
        )
        if initial is not None:
            after[0][:total_values].copy_to_device(
                np.concatenate([states.T.reshape(-1).astype(self.value) for _, states in initial])
            )
            after[1][:rows].copy_to_device(np.concatenate([utility for utility, _ in initial]))
        max_threads = max(self.threads, (device.limit // 4 if limit is None else limit) // self.bytes_per_chain)
        first_trial = 1
        for number, agent_rounds in enumerate(zip(*rounds, strict=True)):
            trials = len(agent_rounds[0].temperatures)
            if agent_rounds[0].repair and self._all_feasible(after[1], rows):
                first_trial += trials
                continue
            before, after = after, before
            temperatures = np.concatenate(
                [np.asarray(round_.temperatures, dtype=np.float32) for round_ in agent_rounds]
            )
            ladders = np.concatenate([round_.ladder_factors(int(headers[0, RUNS])) for round_ in agent_rounds])
            schedule = device.upload("chains temperatures", temperatures), device.upload("chains ladders", ladders)
            for parts, part_of_block in divide_into_launches(
                headers, self.threads - self.threads % self.group, max_threads // self.threads
            ):
                blocks = part_of_block.size
                states = device.buffer("chains states", self.hidden * blocks * self.threads, self.value)
                utility = device.buffer("chains best", blocks * self.threads, np.dtype(np.int64))
                uploaded_parts = device.upload("chains entries", parts), device.upload("chains where", part_of_block)
                run_on_rung = device.buffer("chains runs by rung", blocks * self.threads, np.dtype(np.int32))
                eased_utilities = device.buffer("chains eased utilities", blocks * self.threads, np.dtype(np.float64))
                state = before[0], states, utility, run_on_rung, eased_utilities
                self.launch(
                    _LaunchArguments(
                        blocks, on_device, (*uploaded_parts, *schedule), trials, first_trial, agent_rounds[0], state
                    )
                )
                select_best_states[blocks, self.threads](
                    *uploaded_parts, on_device, self.group, number == 0 and initial is None, agent_rounds[0].repair,
                    states, utility, *before, *after,
                )  # fmt: skip
            first_trial += trials
        host = device.pinned("chains states", total_values, self.value)
        if total_values:
            after[0][:total_values].copy_to_host(host)
        return [
            host[header[STATES_BEFORE] : header[STATES_BEFORE] + header[HIDDEN] * header[ROWS]]
            .reshape(header[HIDDEN], header[ROWS])
            .T.copy()
            for header in headers
        ]

    def _all_feasible(self, utility: Any, rows: int) -> bool:
        """Return whether every row's best state violates no hard constraint."""
        host = self.device.pinned("chains rows", rows, np.dtype(np.int64))
        utility[:rows].copy_to_host(host)
        violation = np.repeat(self.headers[:, VIOLATION_SHIFT], self.headers[:, ROWS])
        return bool(((violation == 0) | (host > -(1 << np.maximum(violation, 1) - 1))).all())


def _choose_launcher(
    sampler: Sampler,
    models: Sequence[ChainModel],
    keys: Sequence[Key],
    runs: int,
    rounds: Sequence[Round],
    prefer_loaded: bool = False,
) -> ChainLauncher | None:
    """Prepare the sampler's special kernel if there is one, or the general kernel around its functions."""
    if gibbs.uses_gibbs_kernel(sampler):
        batch = pack_models(models, keys, runs)
        shape = batch.shape._replace(exchange=sampler.exchange)
        loaded = [stage for stage in STAGES if prefer_loaded and shape._replace(stage=stage) in LAUNCHED_SHAPES]
        return gibbs_launcher(sampler, batch, runs, loaded)
    without_extras = not sampler.exchange and not any(
        round_.warm or round_.repair or round_.descent for round_ in rounds
    )
    if without_extras and (sampler.init, sampler.step) == (metropolis.init, metropolis.step):
        return _joint_launcher(models, keys, runs) or _chains_launcher(sampler, models, keys, runs)
    return _chains_launcher(sampler, models, keys, runs)


def _joint_launcher(models: Sequence[ChainModel], keys: Sequence[Key], runs: int) -> ChainLauncher | None:
    """Prepare the kernel of joint proposals; return None if no block can hold the states."""
    device, batch, byte_values = shared_device(), pack_joint_models(models, keys, runs), values_fit_bytes(models)
    _, processors, resident = gpu_limits(_JOINT_REGISTERS)
    chosen = choose_lanes(batch.headers, byte_values, processors * resident)
    if chosen is None:
        return None
    lanes, threads = chosen
    chains = threads // lanes
    shared = 8 * threads + chains * 2 * int(batch.headers[:, VARIABLES].max()) * (1 if byte_values else 2)
    data, ints = device.upload("chains data", batch.data), device.upload("chains ints", batch.ints)
    jumps = device.upload("chains jumps", batch.jumps)
    penalties = device.upload("chains penalties", np.array([m.penalty for m in models]))
    kernel = joint_kernel(byte_values)

    def launch(arguments: _LaunchArguments) -> None:
        """Launch the kernel of joint proposals."""
        parts, part_of_block, temperatures, _ = arguments.schedule
        _, states, utility, _, _ = arguments.state
        kernel[arguments.blocks, threads, 0, shared](
            data, ints, jumps, penalties, arguments.headers, parts, part_of_block, temperatures, arguments.trials,
            arguments.first, lanes, states, utility,
        )  # fmt: skip

    return ChainLauncher(batch.headers, byte_values, chains, 1, 0, launch)


def best_launch(batch: ModelBatch, runs: int, exchange: bool, stages: Collection[int]) -> GibbsLaunch | None:
    """Return the launch of the Gibbs kernel that this GPU executes best; None if no block can hold the states.

    Parameters
    ----------
    batch : ModelBatch
        The agents.
    runs : int
        Chains per row.
    exchange : bool
        Whether the runs of a row exchange temperatures.
    stages : collection of int
        Preferred stagings of columns.
    """
    launch = choose_launch(batch, runs, runs if exchange else 1, *gpu_limits(_GIBBS_REGISTERS), stages=stages)
    return launch and launch._replace(shape=launch.shape._replace(exchange=exchange))


def gibbs_launcher(sampler: Sampler, batch: ModelBatch, runs: int, stages: Collection[int]) -> ChainLauncher | None:
    """Prepare the Gibbs kernel; return None if no block can hold the states. Parameters as in :func:`best_launch`."""
    device, parameters = shared_device(), best_launch(batch, runs, sampler.exchange, stages)
    if parameters is None:
        return None
    shape = parameters.shape
    table = device.upload("chains table", batch.table)
    ints = device.upload("chains ints", batch.ints)
    scales = device.upload("chains scales", batch.scales)
    penalties = device.upload("chains penalties", batch.scales[::2].astype(np.float64))
    kernel = gibbs_kernel(shape, _GIBBS_REGISTERS)

    def launch(arguments: _LaunchArguments) -> None:
        """Launch the Gibbs kernel."""
        kernel_arguments = (
            table, ints, arguments.headers, scales, penalties, *arguments.schedule, arguments.trials, arguments.first,
            arguments.round_.descent, arguments.round_.warm, parameters.buffer, *arguments.state,
        )  # fmt: skip
        allow_shared(kernel, kernel_arguments, parameters.shared)
        kernel[arguments.blocks, parameters.threads, 0, parameters.shared](*kernel_arguments)
        LAUNCHED_SHAPES.add(shape)

    group = runs if sampler.exchange else 1
    return ChainLauncher(batch.headers, shape.byte_values, parameters.threads, group, 0, launch)


def _chains_launcher(
    sampler: Sampler, models: Sequence[ChainModel], keys: Sequence[Key], runs: int
) -> ChainLauncher | None:
    """Prepare the general kernel around a sampler's functions; return None if the runs of a row do not fit a block."""
    group = runs if sampler.exchange else 1
    threads = max(_MIN_BLOCK_THREADS, -(-group // 32) * 32)
    if threads > _MAX_BLOCK_THREADS:
        return None
    device, joined = shared_device(), join_models(models)
    offsets = device.upload_shaped("chains offsets", joined.offsets)
    numbers = device.upload_shaped("chains numbers", joined.numbers)
    fields = tuple(device.upload(f"chains field {i}", field) for i, field in enumerate(joined.fields))
    shapes = np.concatenate([m.domains[m.hidden :] for m in models]).astype(np.int64)
    on_device = device.upload("chains shapes", shapes)
    kernel = chains_kernel(sampler)
    n, hidden = max(m.domains.size for m in models), max(m.hidden for m in models)
    lanes = max(m.lanes for m in models)
    scratch = max(lanes, hidden)
    dtype = joined.fields[2].dtype

    def launch(arguments: _LaunchArguments) -> None:
        """Launch the general kernel."""
        all_threads = arguments.blocks * threads
        score_entries = hidden * lanes * all_threads
        kernel[arguments.blocks, threads](
            offsets, numbers, fields, arguments.headers, on_device, *arguments.schedule, arguments.trials,
            arguments.first, arguments.round_.descent, arguments.round_.warm,
            device.buffer("chains z", n * all_threads, np.dtype(np.int32))[: n * all_threads].reshape(n, all_threads),
            device.buffer("chains scores", score_entries, dtype)[:score_entries].reshape(hidden, lanes, all_threads),
            device.buffer("chains scratch", scratch * all_threads, np.dtype(np.int32))[: scratch * all_threads].reshape(
                scratch, all_threads
            ),
            *arguments.state,
        )  # fmt: skip

    bytes_per_chain = 4 * n + hidden * lanes * dtype.itemsize + 4 * scratch
    return ChainLauncher(
        agent_headers(models, keys, runs), values_fit_bytes(models), threads, group, bytes_per_chain, launch
    )


def divide_into_launches(
    headers: NDArray[np.int64], threads: int, max_blocks: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Divide the rows into launches of at most ``max_blocks`` blocks, with ``threads`` chains per block.

    A launch has at least one row, even if that needs more blocks.

    Returns
    -------
    list of (parts, part_of_block)
        For each launch, (agent, first row, rows, first block) of each part, flat int64, and the part of each block,
        int32.
    """
    launches: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
    parts: list[tuple[int, int, int, int]] = []
    part_of_block: list[int] = []

    def finish() -> None:
        """Append the collected parts as a launch."""
        launches.append((np.array(parts, dtype=np.int64).reshape(-1), np.array(part_of_block, dtype=np.int32)))
        parts.clear()
        part_of_block.clear()

    for agent, (rows, runs) in enumerate(headers[:, [ROWS, RUNS]].tolist()):
        row = 0
        while row < rows:
            rows_that_fit = (max_blocks - len(part_of_block)) * threads // runs
            if rows_that_fit <= 0 and part_of_block:
                finish()
                continue
            count = min(rows - row, max(1, rows_that_fit))
            parts.append((agent, row, count, len(part_of_block)))
            part_of_block += [len(parts) - 1] * -(-count * runs // threads)
            row += count
    if part_of_block:
        finish()
    return launches


_TINY_SAMPLES = 2  # trials of a pass that only loads a kernel
_ANY_KEY = 0, 0  # key of random bits
_ROWS = 256  # rows of a tiny agent: enough for blocks that copy columns, and the most values that fit a byte


def needed_shapes(sampler: Sampler, models: Sequence[ChainModel], runs: Iterable[int]) -> list[GibbsKernelShape]:
    """Return the Gibbs kernels that sample some agents.

    Parameters
    ----------
    sampler : Sampler
        A sampler that uses the Gibbs kernel.
    models : sequence of ChainModel
        The agents' columns.
    runs : iterable of int
        Chains per row, in several passes: threads may share columns differently.
    """
    shapes = set()
    for key in {batch_key(model) for model in models}:
        members = [model for model in models if batch_key(model) == key]
        for count in runs:
            batch = pack_models(members, [_ANY_KEY] * len(members), count)
            launch = best_launch(batch, count, sampler.exchange, ())
            if launch is not None:
                shapes.add(launch.shape)
    return sorted(shapes)


def shapes_of_domain(size: int) -> list[GibbsKernelShape]:
    """Return the Gibbs kernels for domains with ``size`` values, small utilities and no hard constraints, by stage."""
    shape = pack_models([_tiny_model((size, _ROWS), True, False)], [_ANY_KEY], 1).shape
    return [shape._replace(stage=stage) for stage in STAGES]


def load_gibbs(shape: GibbsKernelShape) -> None:
    """Compile a Gibbs kernel, or load it from disk, by sampling a tiny agent."""
    sampler, runs = gibbs.SAMPLER._replace(exchange=shape.exchange), 2 if shape.exchange else 1
    launcher = gibbs_launcher(sampler, pack_models([tiny_model_of(shape)], [_ANY_KEY], runs), runs, [shape.stage])
    if launcher is not None:
        launcher.run([[Round(np.ones(_TINY_SAMPLES, dtype=np.float32))]], None)


def tiny_model_of(shape: GibbsKernelShape) -> ChainModel:
    """Return the columns of an agent that needs the Gibbs kernel with this shape, for one of its stages."""
    hidden = shape.max_words * (4 if shape.compact else 2) - (0 if shape.no_padding else 1)
    domains = hidden, _ROWS if shape.byte_values else _ROWS + 1
    return _tiny_model(domains, shape.compact, shape.counts_violations)


def _tiny_model(domains: tuple[int, int], compact: bool, forbids: bool) -> ChainModel:
    """Return the columns of an agent with one hidden variable, and with a boundary variable in no factor.

    Parameters
    ----------
    domains
        Sizes of the variables' domains.
    compact
        Whether 16-bit columns hold the utilities.
    forbids
        Whether there is a hard constraint.
    """
    utilities = np.zeros(domains[0], dtype=np.int32)
    utilities[0] = 1 if compact else MAX_COMPACT_SCORE + 1
    if forbids:
        utilities[-1] = forbidden_value(utilities.dtype)
    return build_model(LocalProblem(0, (1,), (0,), (Factor((0,), utilities),), np.array(domains)))
