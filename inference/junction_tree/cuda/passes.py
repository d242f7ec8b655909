"""Passes over a junction tree on an NVIDIA GPU: the tables stay there, what is asked for comes back."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import ALONE, WIDE, WIDTHS, describe_messages, transposed
from dmcmc.inference.junction_tree.cuda.matrix_kernels import LEAST, SIDE, matrix_kernel
from dmcmc.inference.junction_tree.cuda.message_kernels import (
    FAR,
    MOST_AXES,
    SHIFT,
    THREADS,
    alone_kernel,
    finish_kernel,
    forget,
    wide_kernel,
)
from dmcmc.inference.junction_tree.message_kernels import SHOW, UP
from dmcmc.inference.junction_tree.passes import FarApart, Passes
from dmcmc.inference.junction_tree.sum_product_kernels import linearise, normalise_numbers
from dmcmc.inference.runtime.device import Device
from dmcmc.inference.runtime.types import Ints

_LOOK = 64  # launches between two looks at the time


class NoRoom(Exception):
    """A tree that the device has no room for, or that joins more tables than a kernel takes."""


class CudaPasses:
    """Passes on a device.

    Parameters
    ----------
    host
        What the same passes are on the CPU: its arena has the factors, and gets what is shown.
    tree
        Whose passes they are.
    device
        Where.
    limit
        Bytes of it.

    Raises
    ------
    NoRoom
        Before anything is taken.
    """

    def __init__(self, host: Passes, tree: CliqueTree, device: Device, limit: int) -> None:
        self.host, self.device = host, device
        self.sums = host.semiring.operation == LOG_SUM
        program, entries = host.layout.program, host.layout.entries
        inputs = np.diff(program.factor_start) + np.diff(program.child_start) + 1
        axes = max(map(len, tree.scopes), default=0)
        if entries * 9 > limit or inputs.max(initial=0) > WIDTHS[-1] or axes > MOST_AXES:
            raise NoRoom
        self._turned = transposed(program, tree.position)
        tables, self._one_at = program.at.size - 1, entries
        self._arena = device.lease(entries + 1, host.arena.dtype, self)
        given = int(program.at[len(host.layout.factors)])
        state = np.array([[1.0], [1.0], [0.0], [0.0]]).repeat(tables + 1, axis=1)
        peak, low, shift = state[:3]
        first = host.arena[:given]
        if self.sums:
            numbers, factors = np.empty(given), np.arange(len(host.layout.factors))
            top, below = np.zeros((2, tables))
            linearise(program, host.arena, numbers, top, below, factors)
            low[factors] = np.exp(-below[factors])
            shift[factors] = top[factors]
            peak[factors] = np.where(np.isfinite(top[factors]), 1.0, 0.0)
            first = numbers
        if given:
            self._arena[:given].copy_to_device(np.ascontiguousarray(first))
        one = np.array([1.0 if self.sums else 0], dtype=host.arena.dtype)
        self._arena[entries : entries + 1].copy_to_device(one)
        held = device.lease(state.size, state.dtype, self)
        self._state = held[: state.size].reshape(state.shape)
        self._state.copy_to_device(state)

    def run(self, what: int, cliques: Ints) -> None:
        """Make UP, DOWN, SHOW or SEPARATOR for some cliques, in this order.

        Raises
        ------
        OutOfTime
        FarApart
            If products could underflow; nothing that was made is right then.
        """
        program, stop = self.host.layout.program, self.host.stop
        tables = program.at.size - 1
        words, launches, parts, targets = describe_messages(
            program, self._turned, what, cliques, tables, self._one_at, (THREADS, SIDE, LEAST)
        )
        if not targets.size:
            return
        device, operation = self.device, self.host.semiring.operation
        number: Any = self.host.arena.dtype
        there = device.upload("messages/words", words)
        room = device.buffer("messages/parts", max(1, parts), number)
        made = device.upload("messages/targets", targets)
        forget[-(-targets.size // THREADS), THREADS](made, targets.size, self._state)
        lowest = number.type(self.host.numbers.lowest)
        half = number.type(lowest // 2) if number.kind == "i" else lowest
        common = self._arena, there, 0, self._state, lowest, half

        @cache
        def launcher(kind: int, width: int) -> Callable[[int, int, int], None]:
            if kind == ALONE:
                return device.repeated(alone_kernel(number.type, width, operation), (*common, room), 2)
            wide = kind == WIDE
            kernel = wide_kernel(number.type, width, operation) if wide else matrix_kernel(number.type, operation)
            return device.repeated(kernel, common, 2)

        for i, (width, kind, place, blocks) in enumerate(launches.tolist()):
            if i % _LOOK == _LOOK - 1:
                stop.check()
            launcher(kind, width)(place, blocks, THREADS)
            if kind == ALONE:
                whole = (*common[:2], place, *common[3:], room, WIDTHS[width])
                finish_kernel(number.type, operation)[int(words[place]), THREADS](*whole)
        self._fetch(what, cliques, targets)

    def _fetch(self, what: int, cliques: Ints, targets: Ints) -> None:
        """Bring back what is read on the host: totals, and what is shown."""
        program, layout = self.host.layout.program, self.host.layout
        if what == UP:
            wanted = [layout.up(c) for c in cliques.tolist() if program.parent[c] < 0]
        else:
            wanted = sorted(targets.tolist()) if what >= SHOW else []
        if not wanted:
            return
        for first, last in _runs(wanted):
            begin, end = int(program.at[first]), int(program.at[last + 1])
            self._arena[begin:end].copy_to_host(self.host.arena[begin:end])
        if what >= SHOW:
            self._clear_unseen(wanted)
        if not self.sums:
            return
        state = self._state.copy_to_host()
        if state[FAR, 0]:
            raise FarApart
        if what == UP:
            for t in wanted:
                at = int(program.at[t])
                with np.errstate(divide="ignore"):
                    self.host.arena[at] = np.log(self.host.arena[at]) + state[SHIFT, t]
        else:
            normalise_numbers(program, self.host.arena, self.host.arena, np.array(wanted))

    def _clear_unseen(self, wanted: list[int]) -> None:
        """Let values that observed variables do not have be worth nothing: the device leaves them as they were."""
        program = self.host.layout.program
        nothing = 0.0 if self.sums else self.host.numbers.lowest
        for t in wanted:
            v = int(program.scope[program.scope_start[t]])
            seen = int(program.observed[v])
            if seen >= 0:
                own = self.host.arena[program.at[t] : program.at[t + 1]]
                value = own[seen]
                own[:] = nothing
                own[seen] = value


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return first and last of runs of neighbours.

    >>> _runs([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    cuts = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    return [(numbers[a], numbers[b - 1]) for a, b in pairwise([0, *cuts, len(numbers)])]
