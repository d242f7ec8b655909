"""Chains that make the same block moves on the GPU and are annealed together: several per row of an agent's table.

A *row* is an assignment of the agent's boundary variables, which do not move. A *block move* redraws a set of hidden
variables exactly, given all others, by bucket elimination; its *cells* are the entries of the tables that are joined.
All chains make the same moves with different random numbers, so that a move is planned once on the CPU.
"""

import time
from collections.abc import Iterator
from functools import partial
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import BucketProgram
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.orders.bitset_kernels import random_unit
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_limits, shared_device
from dmcmc.samplers.blocks.block_gibbs_kernels import typical_spread
from dmcmc.samplers.blocks.cuda.block_gibbs_kernels import MAX_DOMAIN, THREADS, draw_chains, redraw_chains
from dmcmc.samplers.blocks.cuda.descriptor_kernels import encode_move
from dmcmc.samplers.blocks.neighbourhood_search import cooling, new_workspace
from dmcmc.samplers.blocks.neighbourhood_search_kernels import SWEEP, choose_block
from dmcmc.samplers.blocks.starts import LOWEST, MiniBucketStarts
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.model.state_kernels import philox

_SALT = 5  # second counter word of the random numbers that choose blocks: no other draw with this key uses it
_REGISTERS = 64  # per thread, estimated
_CELLS_PER_VARIABLE = 3000  # cells that a block's variable is counted as, as on the CPU
_ROUNDING = 1e-13  # relative to the loss of a violation: a smaller gain is rounding

States = NDArray[np.int32]
Move = tuple[NDArray[np.int64], int, int]  # descriptor, entries of the arena, cells


def fits(graph: FactorGraph) -> bool:
    """Return whether the GPU kernel can move a graph's variables: no automata, and no very large domain."""
    dense = graph.dense == graph.scope_start.size - 1
    return dense and graph.free > 0 and int(graph.domains[: graph.free].max()) <= MAX_DOMAIN


class DeviceBlockChains:
    """Chains of block moves on the GPU.

    Parameters
    ----------
    graph : FactorGraph
        A graph for which :func:`fits` returns True.
    key : (2,) uint64
        Key of the random numbers.
    states : (rows, n) int32
        Start state of each row; values of variables from ``graph.free`` on never change.
    order : (free,) int64
        Elimination order for blocks that are cut from the whole graph.

    Attributes
    ----------
    rows, copies, chains : int
        Number of rows, of chains per row, and of chains; the chains of a row are consecutive.
    """

    def __init__(self, graph: FactorGraph, key: NDArray[np.uint64], states: States, order: NDArray[np.int64]) -> None:
        self.graph, self.key, self._device = graph, key, shared_device()
        self.rows, self.n = states.shape
        self.copies = min(tuning.MAX_COPIES, -(-tuning.GPU_CHAINS // self.rows))
        self.chains, self._choices_made, self._moves_made = self.rows * self.copies, 0, 0
        self._order = np.append(order, np.arange(graph.free, self.n))
        self._rank, self._workspace = np.argsort(self._order), new_workspace(graph, True)
        self._example, self._sweep = states[0].astype(np.int64), list[Move]()
        start_states = np.repeat(states, self.copies, axis=0).reshape(-1)
        hold = partial(self._device.hold, owner=self)
        self._states, self._best_states = hold(start_states), hold(start_states)
        self._best_utilities = hold(np.full(self.chains, -np.inf))
        self._factors = tuple(
            hold(getattr(graph, name)).reshape(getattr(graph, name).shape)
            for name in ("scope_start", "scope", "stride", "table_start", "data")
        )
        _, processors, threads = gpu_limits(_REGISTERS)
        self._resident_blocks = min(self.chains, processors * max(1, threads // THREADS))
        # Entries of 8 bytes per thread block, in a quarter of the device memory; at least 4096.
        self._arena_capacity = max(1 << 12, self._device.limit // 4 // 8 // self._resident_blocks)

    def start(self, starts: MiniBucketStarts, stop: Deadline = NO_DEADLINE) -> None:
        """Draw a start for every chain; the states given to the constructor stay the best states if they are better.

        Parameters
        ----------
        starts : MiniBucketStarts
            Draws starts from the tables of a mini-bucket elimination.
        stop : Deadline
            Ends the draws early; variables that have not been drawn keep their values.
        """
        program, device = starts.done.plan.program, self._device
        numbers = np.arange(self.chains) % self.copies
        names = ("domains", "scope_start", "scope", "at", "variable", "input_start", "inputs")
        arrays = [device.upload_shaped(f"starts {name}", getattr(program, name)) for name in names]
        arena = device.upload_shaped("starts arena", starts.done.arena)
        self._run([self._empty_move()], [0.0], restart=True)  # scores the given states
        temperatures = device.upload_shaped("starts temperatures", starts.temperatures(numbers))
        chain_arguments = (
            device.upload_shaped("starts numbers", numbers),
            self.chains,
            self.n,
            *self._key_words,
            self._states,
        )
        for begin, end in pieces_of(program, tuning.READS_PER_LAUNCH):
            if stop.over:  # the states are complete assignments at any time
                break
            draw_chains[-(-self.chains // THREADS), THREADS](
                *arrays, arena, LOWEST, temperatures, *chain_arguments, begin, end
            )
            if stop.until < float("inf"):
                device.synchronize()
        self._run([self._empty_move()], [0.0], restart=False)

    def anneal(self, work: int, stop: Deadline) -> None:
        """Make block moves until ``work`` cells are joined in every chain or the deadline passes.

        The moves of the first quarter are made at temperature 0, the others are annealed.
        """
        timed = stop.until < float("inf")
        launched = 1 if timed else tuning.MAX_MOVES
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
                    fits = int(tuning.CHECK_SECONDS * launched / max(time.perf_counter() - begun, 1e-4))
                    launched = max(1, min(tuning.MAX_MOVES, 2 * launched, fits))

    def best(self) -> States:
        """Return the best state of each row, (rows, n) int32."""
        utilities = self._best_utilities.copy_to_host()[: self.chains].reshape(self.rows, self.copies)
        states = self._best_states.copy_to_host()[: self.chains * self.n].reshape(self.rows, self.copies, self.n)
        best: States = states[np.arange(self.rows), utilities.argmax(axis=1)]
        return best

    def _launches(self, work: int) -> Iterator[tuple[list[float], bool, list[Move]]]:
        """Yield for each launch the moves' temperatures, whether chains begin with their best states, and the moves.

        Blocks are chosen with the state of one chain as an example of all chains. The next step takes another chain's
        state.
        """
        descent = int(tuning.FIRST_SHARE * work)
        steps = self._steps(work)
        step_work, temperature, restart = descent, 0.0, False
        while work > 0:
            moves, spent = list[Move](), 0
            while len(moves) < tuning.MAX_MOVES and spent < min(step_work, work):
                chosen = self._choose()
                moves += chosen
                spent += sum(cells + _CELLS_PER_VARIABLE * int(descriptor[0]) for descriptor, _, cells in chosen)
            yield [temperature] * len(moves), restart, moves
            work, step_work, restart = work - spent, step_work - spent, False
            if step_work <= 0:
                step_work, temperature, restart = next(steps)
                chain = self._choices_made % self.chains
                self._example = self._states[chain * self.n : (chain + 1) * self.n].copy_to_host().astype(np.int64)

    def _steps(self, work: int) -> Iterator[tuple[int, float, bool]]:
        """Yield the cells and the temperature of each step, and whether a cycle begins; without end.

        A cycle is a sequence of steps of falling temperature from the best states.
        """
        spread = float(typical_spread(self.graph, self._example)) or 1.0
        for cycle in count():
            cells, temperatures = cooling(cycle, spread)
            for i, temperature in enumerate(temperatures):
                yield cells * self.graph.free, temperature, i == 0

    def _choose(self) -> list[Move]:
        """Return the next moves, the same in all chains: mostly one block, sometimes every single variable."""
        state = np.empty(1, dtype=np.uint64)
        self._choices_made += 1
        words = philox(int(self.key[0]), int(self.key[1]), 0, _SALT, self._choices_made, 0)
        state[0] = int(words[0]) << 32 | int(words[1]) | 1
        # A limit of cells per bucket has weight 1 / sqrt(limit): large blocks are rarer.
        weights = np.cumsum([limit**-0.5 for limit in tuning.BUCKET_CELLS])
        limit = tuning.BUCKET_CELLS[int(np.searchsorted(weights, float(random_unit(state)) * weights[-1]))]
        # Types 0 to 3 of ``choose_block`` are equally likely; 4 (``SWEEP``, every variable) is half as likely.
        move_type = int(4.5 * float(random_unit(state)))
        if move_type == SWEEP:
            return self._single_moves()
        # A grown block has up to 16 times the cells of its largest bucket.
        cell_limit = tuning.MAX_MOVE_CELLS // self.chains // 16
        while True:
            limit_now = min(limit, cell_limit)
            size = int(
                choose_block(
                    self.graph, self._example, self._workspace, self._order, self._rank, move_type, limit_now, state
                )
            )
            if size:
                move: Move = encode_move(self.graph, self._workspace, size)
                if move[1] <= self._arena_capacity and move[2] * self.chains <= tuning.MAX_MOVE_CELLS:
                    return [move]
            if limit <= 2:
                return self._single_moves()
            limit //= 2

    def _single_moves(self) -> list[Move]:
        """Return one move per single variable."""
        if not self._sweep:
            for v in range(self.graph.free):
                self._workspace.block[0] = v
                self._sweep.append(encode_move(self.graph, self._workspace, 1))
        return self._sweep

    def _empty_move(self) -> Move:
        """Return a move without variables: its launch computes only the utilities of the states."""
        return np.zeros(2, dtype=np.int64), 0, 0

    @property
    def _key_words(self) -> tuple[int, int]:
        """The key of the random numbers as two integers."""
        return int(self.key[0]), int(self.key[1])

    def _run(self, moves: list[Move], temperatures: list[float], restart: bool) -> None:
        """Launch the kernel for some moves, one temperature per move; ``restart`` begins with the best states."""
        device = self._device
        descriptors, begin = (
            [descriptor for descriptor, _, _ in moves],
            np.cumsum([0, *(descriptor.size for descriptor, _, _ in moves)]),
        )
        arena_size = max(1, *(entries for _, entries, _ in moves))
        blocks = min(self._resident_blocks, max(1, self._arena_capacity * self._resident_blocks // arena_size))
        arenas = device.buffer("blocks arenas", blocks * arena_size, np.dtype(np.float64))
        redraw_chains[blocks, THREADS](
            device.upload("blocks code", np.concatenate(descriptors)), device.upload("blocks begin", begin),
            device.upload("blocks temperatures", np.array(temperatures)), len(moves), self._moves_made, *self._factors,
            self.chains, self.n, restart, _ROUNDING * -self.graph.forbidden_entry, self._states, self._best_states,
            self._best_utilities, arenas, arena_size, *self._key_words,
        )  # fmt: skip
        self._moves_made += len(moves)


def pieces_of(program: BucketProgram, reads: int) -> list[tuple[int, int]]:
    """Return ranges of buckets, last first, of about ``reads`` reads each; a variable's buckets stay together."""
    arity = np.diff(program.scope_start)
    of_bucket = np.add.reduceat(np.append(arity[program.inputs], 0), program.input_start[:-1])
    of_bucket[np.diff(program.input_start) == 0] = 0
    before = np.cumsum((1 + of_bucket) * program.domains[program.variable])
    variable_start = np.flatnonzero(np.diff(program.variable, prepend=-1))  # first bucket of each variable
    cuts = variable_start[np.flatnonzero(np.diff(before[variable_start] // reads, prepend=-1))]
    edges = [0, *cuts[cuts > 0].tolist(), program.variable.size]
    return list(pairwise(edges))[::-1]
