"""Chains that make the same block moves on the GPU, cooled together: several for each row of an agent."""

import time
from collections.abc import Iterator
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import Program
from dmcmc.inference.orders.greedy_kernels import random_unit
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.samplers.blocks.block_workspace import Priced, new_room
from dmcmc.samplers.blocks.cuda.block_gibbs_kernels import THREADS, WIDEST, redraw_chains
from dmcmc.samplers.blocks.cuda.descriptor_kernels import encode_move
from dmcmc.samplers.blocks.cuda.mini_bucket_starts_kernels import draw_chains
from dmcmc.samplers.blocks.mini_bucket_starts import LOWEST, Starts
from dmcmc.samplers.blocks.neighbourhood_search import DESCENT, LIMITS, cooling
from dmcmc.samplers.blocks.neighbourhood_search_kernels import SWEEP, choose_block
from dmcmc.samplers.blocks.sweep_kernels import typical_spread
from dmcmc.samplers.model.rng_kernels import philox

_SALT = 5  # of what chooses blocks
_CHAINS, _MOST_COPIES = 1024, 64  # fewer leave much of a GPU idle; chains of a row, at most
_REGISTERS = 64  # of a thread, about
_MOVES = 32  # of a launch, at most
_PASS = 0.2  # seconds of a launch, about: nothing can stop it
_READS = 1 << 17  # of a chain in a launch that draws starts, about: a tenth of a second where each waits for the last
_MOST = 1 << 31  # cells of a move, in all chains
_OVERHEAD = 3000  # cells that a variable of a block counts for, as on the CPU
_ROUNDING = 1e-13  # of what a violation costs: less than that is no gain

States = NDArray[np.int32]
Move = tuple[NDArray[np.int64], int, int]  # words, entries of the arena, cells


def fits(graph: Priced) -> bool:
    """Return whether the GPU's kernel can move a graph's variables: no automata, and no very large domain."""
    dense = graph.dense == graph.scope_start.size - 1
    return dense and graph.free > 0 and int(graph.domains[: graph.free].max()) <= WIDEST


class DeviceBlocks:
    """Chains on the GPU.

    Parameters
    ----------
    graph : Priced
        For which :func:`fits` holds.
    key : (2,) uint64
        Of random numbers.
    states : (rows, n) int32
        What each row starts with; values from ``graph.free`` on never change.
    order : (free,) int64
        An elimination order, for blocks that are cut from the whole graph.
    """

    def __init__(self, graph: Priced, key: NDArray[np.uint64], states: States, order: NDArray[np.int64]) -> None:
        self.graph, self.key, self._device = graph, key, shared_device()
        self.rows, self.n = states.shape
        self.copies = min(_MOST_COPIES, -(-_CHAINS // self.rows))
        self.chains, self._chosen, self._made = self.rows * self.copies, 0, 0
        self._order = np.append(order, np.arange(graph.free, self.n))
        self._rank, self._room = np.argsort(self._order), new_room(graph, True)
        self._example, self._sweep = states[0].astype(np.int64), list[Move]()
        every = np.repeat(states, self.copies, axis=0).reshape(-1)
        up = self._device.upload
        self._zs = up("blocks z", every)
        self._bests = up("blocks best", every)
        self._tops = up("blocks tops", np.full(self.chains, -np.inf))
        self._factors = tuple(
            self._device.upload_shaped(f"blocks {name}", getattr(graph, name))
            for name in ("scope_start", "scope", "stride", "at", "data")
        )
        _, processors, threads = gpu_limits(_REGISTERS)
        self._resident = min(self.chains, processors * max(1, threads // THREADS))
        self._entries = max(1 << 12, self._device.limit // 4 // 8 // self._resident)

    def start(self, starts: Starts, stop: Stop = NO_STOP) -> None:
        """Draw a start for every chain; those that were given stay the best states where they are better."""
        program, device = starts.done.plan.program, self._device
        numbers = np.arange(self.chains) % self.copies
        names = ("domains", "scope_start", "scope", "at", "variable", "input_start", "inputs")
        arrays = [device.upload_shaped(f"starts {name}", getattr(program, name)) for name in names]
        arena = device.upload_shaped("starts arena", starts.done.arena)
        self._run([self._idle()], [0.0], restart=True)  # what the given states are worth
        heat = device.upload_shaped("starts heat", starts.temperatures(numbers))
        own = device.upload_shaped("starts numbers", numbers), self.chains, self.n, *self._words, self._zs
        for begin, end in pieces_of(program, _READS):
            if stop.over:  # what is drawn so far is an assignment, too
                break
            draw_chains[-(-self.chains // THREADS), THREADS](*arrays, arena, LOWEST, heat, *own, begin, end)
            if stop.until < float("inf"):
                device.synchronize()
        self._run([self._idle()], [0.0], restart=False)

    def anneal(self, work: int, stop: Stop) -> None:
        """Make block moves worth so many cells in every chain, or until it is time to end: down, then cooled."""
        timed = stop.until < float("inf")
        launched = 1 if timed else _MOVES
        for temperatures, restart, moves in self._launches(work):
            first = 0
            while first < len(moves):
                if stop.over:
                    return
                begun, part = time.perf_counter(), slice(first, first + launched)
                self._run(moves[part], temperatures[part], restart and first == 0)
                first += launched
                if timed:
                    self._device.synchronize()
                    taken = time.perf_counter() - begun
                    launched = max(1, min(_MOVES, 2 * launched, int(_PASS * launched / max(taken, 1e-4))))

    def best(self) -> States:
        """Return the best state of each row."""
        tops = self._tops.copy_to_host()[: self.chains].reshape(self.rows, self.copies)
        states = self._bests.copy_to_host()[: self.chains * self.n].reshape(self.rows, self.copies, self.n)
        found: States = states[np.arange(self.rows), tops.argmax(axis=1)]
        return found

    def _launches(self, work: int) -> Iterator[tuple[list[float], bool, list[Move]]]:
        """Yield moves with their temperatures, and whether chains begin with their best states, until work is done."""
        descent = int(DESCENT * work)
        steps = self._steps(work)
        left, temperature, restart = descent, 0.0, False
        while work > 0:
            moves, spent = list[Move](), 0
            while len(moves) < _MOVES and spent < min(left, work):
                chosen = self._choose()
                moves += chosen
                spent += sum(cells + _OVERHEAD * int(code[0]) for code, _, cells in chosen)
            yield [temperature] * len(moves), restart, moves
            work, left, restart = work - spent, left - spent, False
            if left <= 0:
                left, temperature, restart = next(steps)
                chain = self._chosen % self.chains
                self._example = self._zs[chain * self.n : (chain + 1) * self.n].copy_to_host().astype(np.int64)

    def _steps(self, work: int) -> Iterator[tuple[int, float, bool]]:
        """Yield cells, temperature, and whether a cycle begins."""
        spread = float(typical_spread(self.graph, self._example)) or 1.0
        for cycle in count():
            cells, temperatures = cooling(cycle, spread)
            for i, temperature in enumerate(temperatures):
                yield cells * self.graph.free, temperature, i == 0

    def _choose(self) -> list[Move]:
        """Return the next moves, the same in all chains: mostly one block, now and then all single variables."""
        state = np.empty(1, dtype=np.uint64)
        self._chosen += 1
        found = philox(int(self.key[0]), int(self.key[1]), 0, _SALT, self._chosen, 0)
        state[0] = int(found[0]) << 32 | int(found[1]) | 1
        weights = np.cumsum([limit**-0.5 for limit in LIMITS])
        limit = LIMITS[int(np.searchsorted(weights, float(random_unit(state)) * weights[-1]))]
        kind = int(4.5 * float(random_unit(state)))
        if kind == SWEEP:
            return self._singles()
        most = _MOST // self.chains // 16
        while True:
            at_most = min(limit, most)
            size = int(
                choose_block(self.graph, self._example, self._room, self._order, self._rank, kind, at_most, state)
            )
            if size:
                move: Move = encode_move(self.graph, self._room, size)
                if move[1] <= self._entries and move[2] * self.chains <= _MOST:
                    return [move]
            if limit <= 2:
                return self._singles()
            limit //= 2

    def _singles(self) -> list[Move]:
        """Return a move for each single variable."""
        if not self._sweep:
            for v in range(self.graph.free):
                self._room.block[0] = v
                self._sweep.append(encode_move(self.graph, self._room, 1))
        return self._sweep

    def _idle(self) -> Move:
        """Return a move of no variables."""
        return np.zeros(2, dtype=np.int64), 0, 0

    @property
    def _words(self) -> tuple[int, int]:
        return int(self.key[0]), int(self.key[1])

    def _run(self, moves: list[Move], temperatures: list[float], restart: bool) -> None:
        """Launch moves."""
        device = self._device
        codes, begin = [code for code, _, _ in moves], np.cumsum([0, *(code.size for code, _, _ in moves)])
        room = max(1, *(entries for _, entries, _ in moves))
        blocks = min(self._resident, max(1, self._entries * self._resident // room))
        arenas = device.buffer("blocks arenas", blocks * room, np.dtype(np.float64))
        redraw_chains[blocks, THREADS](
            device.upload("blocks code", np.concatenate(codes)), device.upload("blocks begin", begin),
            device.upload("blocks heat", np.array(temperatures)), len(moves), self._made, *self._factors, self.chains,
            self.n, restart, _ROUNDING * -self.graph.never, self._zs, self._bests, self._tops, arenas, room,
            *self._words,
        )  # fmt: skip
        self._made += len(moves)


def pieces_of(program: Program, reads: int) -> list[tuple[int, int]]:
    """Return ranges of buckets, last first, that a chain draws in about so many reads, each of whole variables."""
    arity = np.diff(program.scope_start)
    of_bucket = np.add.reduceat(np.append(arity[program.inputs], 0), program.input_start[:-1])
    of_bucket[np.diff(program.input_start) == 0] = 0
    before = np.cumsum((1 + of_bucket) * program.domains[program.variable])
    whole = np.flatnonzero(np.diff(program.variable, prepend=-1))  # where a variable's buckets begin
    cuts = whole[np.flatnonzero(np.diff(before[whole] // reads, prepend=-1))]
    edges = [0, *cuts[cuts > 0].tolist(), program.variable.size]
    return list(pairwise(edges))[::-1]
