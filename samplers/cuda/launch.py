"""Run chains of many agents on the GPU: every row, every run, in as few launches as the memory allows."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.cuda.batch import alike, choose_launch, fit_bytes, heads_of, pack
from dmcmc.samplers.cuda.best_state_kernels import keep_best
from dmcmc.samplers.cuda.chain_kernels import chains_kernel, join_models
from dmcmc.samplers.cuda.descriptors import HIDDEN, ROWS, RUNS, STATES_BEFORE, VARIABLES, VIOLATION
from dmcmc.samplers.cuda.gibbs_kernels import STAGES, Shape, gibbs_kernel
from dmcmc.samplers.cuda.joint_proposal_kernels import joint_kernel
from dmcmc.samplers.cuda.joint_proposals import choose_lanes, join
from dmcmc.samplers.methods import gibbs, metropolis
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.rounds import Round

_REGISTERS = 80  # of a thread of the Gibbs kernel: what hides latency best
_JOINT_REGISTERS = 40  # of a thread of the kernel of joint proposals, about
_THREADS, _MOST_THREADS = 64, 512  # a block of chains without shared memory
_LAUNCHED: set[Shape] = set()  # what the Gibbs kernels are for that this process has launched

Key = tuple[int, int]
States = NDArray[Any]
Begun = tuple[NDArray[np.int64], States]  # (rows,), (rows, hidden)


def sample_rows(
    sampler: Sampler,
    models: Sequence[ChainModel],
    keys: Sequence[Key],
    rounds: Sequence[Sequence[Round]],
    runs: int,
    limit: int | None = None,
    begun: Sequence[Begun] | None = None,
    at_hand: bool = False,
) -> list[States | None]:
    """Run a sampler's rounds on all rows of some agents.

    Parameters
    ----------
    rounds
        Of each agent; agents' rounds differ in temperatures only.
    limit
        Bytes of device memory that the states of a launch may take; None takes a quarter of the device's limit.
    begun
        For each agent what its rows are worth and their states, which a first round that is warm begins at.
    at_hand
        Rather a kernel that has been launched before than the best one, which may have to be compiled.

    Returns
    -------
    list of ndarray, (rows, hidden) uint8 or uint16
        Best hidden values found for each row; None for an agent whose state no block can hold.
    """
    states: list[States | None] = [None] * len(models)
    order = sorted(range(len(models)), key=lambda i: (*alike(models[i]), i))
    for _, group in groupby(order, key=lambda i: alike(models[i])):
        members = list(group)
        mine, my_keys = [models[i] for i in members], [keys[i] for i in members]
        launcher = _launcher(sampler, mine, my_keys, runs, [this for i in members for this in rounds[i]], at_hand)
        if launcher is None:
            continue
        found = launcher.run([rounds[i] for i in members], limit, begun and [begun[i] for i in members])
        for i, rows in zip(members, found, strict=True):
            states[i] = rows
    return states


class _Turn(NamedTuple):
    """What one launch of chains is told; arrays are on the device.

    Attributes
    ----------
    blocks : int
    heads : (agents · HEADER,) int64
    schedule : (entries, where, temperatures, ladders)
        The rows of the launch, and the temperatures of the round.
    trials, first : int
        Of the round, and the number of its first one.
    this : Round
    state : (row_states, best_states, best_utility, mates, worths)
        What chains start from, what they find, and where they exchange temperatures.
    """

    blocks: int
    heads: Any
    schedule: tuple[Any, ...]
    trials: int
    first: int
    this: Round
    state: tuple[Any, ...]


class _Launcher:
    """One batch of agents on the device.

    Parameters
    ----------
    group : int
        Chains that must be in one block: the runs of a row if they exchange, else 1.
    slot : int
        Bytes of device memory that a chain takes.
    start : callable
        Launches the chains' kernel.
    """

    def __init__(
        self, heads: NDArray[np.int64], small: bool, threads: int, group: int, slot: int, start: Callable[[_Turn], None]
    ) -> None:
        self.heads, self.threads, self.group, self.start = heads, threads, group, start
        self.value = np.dtype(np.uint8 if small else np.uint16)
        self.hidden = int(heads[:, HIDDEN].max(initial=1))
        self.slot = slot + self.hidden * self.value.itemsize + 20
        self.device = shared_device()

    def run(
        self, rounds: Sequence[Sequence[Round]], limit: int | None, begun: Sequence[Begun] | None = None
    ) -> list[States]:
        """Run all rounds; return each agent's states."""
        device, heads = self.device, self.heads
        total = int((heads[:, ROWS] * heads[:, HIDDEN]).sum())
        on_device = device.upload("chains heads", heads.reshape(-1))
        rows = int(heads[:, ROWS].sum())
        before, after = (
            (device.buffer(f"chains kept {i}", total, self.value), device.buffer(f"rows {i}", rows, np.dtype(np.int64)))
            for i in range(2)
        )
        if begun is not None:
            after[0][:total].copy_to_device(
                np.concatenate([states.T.reshape(-1).astype(self.value) for _, states in begun])
            )
            after[1][:rows].copy_to_device(np.concatenate([utility for utility, _ in begun]))
        slots = max(self.threads, (device.limit // 4 if limit is None else limit) // self.slot)
        first = 1
        for number, of_agents in enumerate(zip(*rounds, strict=True)):
            trials = len(of_agents[0].temperatures)
            if of_agents[0].repair and self._all_feasible(after[1], rows):
                first += trials
                continue
            before, after = after, before
            temperatures = np.concatenate([np.asarray(r.temperatures, dtype=np.float32) for r in of_agents])
            ladders = np.concatenate([r.rungs(int(heads[0, RUNS])) for r in of_agents])
            schedule = device.upload("chains heat", temperatures), device.upload("chains ladders", ladders)
            for entries, where in _chunks(heads, self.threads - self.threads % self.group, slots // self.threads):
                blocks = where.size
                states = device.buffer("chains states", self.hidden * blocks * self.threads, self.value)
                utility = device.buffer("chains best", blocks * self.threads, np.dtype(np.int64))
                parts = device.upload("chains entries", entries), device.upload("chains where", where)
                mates = device.buffer("chains mates", blocks * self.threads, np.dtype(np.int32))
                worths = device.buffer("chains worths", blocks * self.threads, np.dtype(np.float64))
                state = before[0], states, utility, mates, worths
                self.start(_Turn(blocks, on_device, (*parts, *schedule), trials, first, of_agents[0], state))
                keep_best[blocks, self.threads](
                    *parts,
                    on_device,
                    self.group,
                    number == 0 and begun is None,
                    of_agents[0].repair,
                    states,
                    utility,
                    *before,
                    *after,
                )
            first += trials
        host = device.pinned("chains states", total, self.value)
        if total:
            after[0][:total].copy_to_host(host)
        return [
            host[h[STATES_BEFORE] : h[STATES_BEFORE] + h[HIDDEN] * h[ROWS]].reshape(h[HIDDEN], h[ROWS]).T.copy()
            for h in heads
        ]

    def _all_feasible(self, utility: Any, rows: int) -> bool:
        """Return whether no row's best state violates anything."""
        host = self.device.pinned("chains rows", rows, np.dtype(np.int64))
        utility[:rows].copy_to_host(host)
        violation = np.repeat(self.heads[:, VIOLATION], self.heads[:, ROWS])
        return bool(((violation == 0) | (host > -(1 << np.maximum(violation, 1) - 1))).all())


def _launcher(
    sampler: Sampler,
    models: Sequence[ChainModel],
    keys: Sequence[Key],
    runs: int,
    rounds: Sequence[Round],
    at_hand: bool = False,
) -> _Launcher | None:
    """Prepare the kernel that is made for a sampler, if there is one, or the one around its functions."""
    functions = sampler.init, sampler.step
    if functions == (gibbs.init, gibbs.step):
        return _gibbs(sampler, models, keys, runs, at_hand)
    plain = not sampler.exchange and not any(this.warm or this.repair or this.descent for this in rounds)
    if plain and functions == (metropolis.init, metropolis.step):
        return _joint(models, keys, runs) or _chains(sampler, models, keys, runs)
    return _chains(sampler, models, keys, runs)


def _joint(models: Sequence[ChainModel], keys: Sequence[Key], runs: int) -> _Launcher | None:
    """Prepare the kernel of joint proposals."""
    device, batch, small = shared_device(), join(models, keys, runs), fit_bytes(models)
    _, processors, resident = gpu_limits(_JOINT_REGISTERS)
    chosen = choose_lanes(batch.heads, small, processors * resident)
    if chosen is None:
        return None
    lanes, threads = chosen
    chains = threads // lanes
    shared = 8 * threads + chains * 2 * int(batch.heads[:, VARIABLES].max()) * (1 if small else 2)
    data, ints = device.upload("chains data", batch.data), device.upload("chains ints", batch.ints)
    jumps = device.upload("chains jumps", batch.jumps)
    penalties = device.upload("chains penalties", np.array([m.penalty for m in models]))
    kernel = joint_kernel(small)

    def start(turn: _Turn) -> None:
        entries, where, temperatures, _ = turn.schedule
        _, states, utility, _, _ = turn.state
        kernel[turn.blocks, threads, 0, shared](
            data, ints, jumps, penalties, turn.heads, entries, where, temperatures, turn.trials, turn.first, lanes,
            states, utility,
        )  # fmt: skip

    return _Launcher(batch.heads, small, chains, 1, 0, start)


def _gibbs(
    sampler: Sampler, models: Sequence[ChainModel], keys: Sequence[Key], runs: int, at_hand: bool
) -> _Launcher | None:
    """Prepare the Gibbs kernel."""
    device, batch = shared_device(), pack(models, keys, runs)
    group = runs if sampler.exchange else 1
    shape = batch.shape._replace(exchange=sampler.exchange)
    ready = [stage for stage in STAGES if at_hand and shape._replace(stage=stage) in _LAUNCHED]
    launch = choose_launch(batch, runs, group, *gpu_limits(_REGISTERS), stages=ready)
    if launch is None:
        return None
    shape = shape._replace(stage=launch.shape.stage)
    table = device.upload("chains table", batch.table)
    ints = device.upload("chains ints", batch.ints)
    scales = device.upload("chains scales", batch.scales)
    penalties = device.upload("chains penalties", np.array([m.penalty for m in models]))
    kernel = gibbs_kernel(shape, _REGISTERS)

    def start(turn: _Turn) -> None:
        arguments = (
            table, ints, turn.heads, scales, penalties, *turn.schedule, turn.trials, turn.first, turn.this.descent,
            turn.this.warm, launch.buffer, *turn.state,
        )  # fmt: skip
        device.allow_shared(kernel, arguments, launch.shared)
        kernel[turn.blocks, launch.threads, 0, launch.shared](*arguments)
        _LAUNCHED.add(shape)

    return _Launcher(batch.heads, batch.shape.small, launch.threads, group, 0, start)


def _chains(sampler: Sampler, models: Sequence[ChainModel], keys: Sequence[Key], runs: int) -> _Launcher | None:
    """Prepare the kernel around a sampler's functions."""
    group = runs if sampler.exchange else 1
    threads = max(_THREADS, -(-group // 32) * 32)
    if threads > _MOST_THREADS:
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
    data = joined.fields[2].dtype

    def start(turn: _Turn) -> None:
        slots = turn.blocks * threads
        cells = hidden * lanes * slots
        kernel[turn.blocks, threads](
            offsets, numbers, fields, turn.heads, on_device, *turn.schedule, turn.trials, turn.first,
            turn.this.descent, turn.this.warm,
            device.buffer("chains z", n * slots, np.dtype(np.int32))[: n * slots].reshape(n, slots),
            device.buffer("chains scores", cells, data)[:cells].reshape(hidden, lanes, slots),
            device.buffer("chains scratch", scratch * slots, np.dtype(np.int32))[: scratch * slots].reshape(
                scratch, slots
            ),
            *turn.state,
        )  # fmt: skip

    slot = 4 * n + hidden * lanes * data.itemsize + 4 * scratch
    return _Launcher(heads_of(models, keys, runs), fit_bytes(models), threads, group, slot, start)


def _chunks(
    heads: NDArray[np.int64], threads: int, most_blocks: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Divide the rows into launches: (agent, first row, rows, first block) for each part, and a part a block."""
    launches: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
    parts: list[tuple[int, int, int, int]] = []
    where: list[int] = []

    def finish() -> None:
        launches.append((np.array(parts, dtype=np.int64).reshape(-1), np.array(where, dtype=np.int32)))
        parts.clear()
        where.clear()

    for agent, (rows, runs) in enumerate(heads[:, [ROWS, RUNS]].tolist()):
        row = 0
        while row < rows:
            fit = (most_blocks - len(where)) * threads // runs
            if fit <= 0 and where:
                finish()
                continue
            take = min(rows - row, max(1, fit))
            parts.append((agent, row, take, len(where)))
            where += [len(parts) - 1] * -(-take * runs // threads)
            row += take
    if where:
        finish()
    return launches
