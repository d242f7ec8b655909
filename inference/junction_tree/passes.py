"""Carry out passes over a junction tree: small cliques together, large ones in pieces, with looks at the time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.semirings import LOG_SUM, Semiring
from dmcmc.inference.junction_tree.message_kernels import (
    ADD,
    DOWN,
    MAXIMISE,
    PROJECT,
    SEPARATOR,
    SHOW,
    clear,
    describe,
    empty,
    finish_products,
    job,
    make,
    normalise,
    nothing_to_make,
    set_logarithms,
    sweep,
)
from dmcmc.inference.junction_tree.sum_product_kernels import (
    clear_numbers,
    entries_of,
    linearise,
    sweep_products,
    take_logarithms,
    takes_products,
)
from dmcmc.inference.junction_tree.table_layout import Layout
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Array, Ints

Twins = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]

_LOOK = 1 << 23  # entries of cliques between two looks at the time: about a tenth of a second


class FarApart(Exception):
    """A product of numbers could underflow: sums have to be taken of logarithms, which the CPU does."""


class Passing(Protocol):
    """What makes messages and tables."""

    def run(self, what: int, cliques: Ints) -> None:
        """Make UP, DOWN, SHOW or SEPARATOR for some cliques, in this order."""
        ...


@dataclass(frozen=True)
class Passes:
    """What all passes need.

    Attributes
    ----------
    layout : Layout
    arena : ndarray, shape (layout.entries,)
    numbers : Arithmetic
    semiring : Semiring
    stop : Stop
        When to give up.
    """

    layout: Layout
    arena: Array
    numbers: Arithmetic
    semiring: Semiring
    stop: Stop = NO_STOP

    def run(self, what: int, cliques: Ints) -> None:
        """Make UP, DOWN, SHOW or SEPARATOR for some cliques, in this order.

        Raises
        ------
        OutOfTime
        """
        if what == SEPARATOR:
            work = np.diff(self.layout.program.at)[self.layout.up(0) + cliques]
        else:
            work = self.layout.cells[self.layout.program.parent[cliques] if what == DOWN else cliques]
        for begin, end in _groups(work.tolist()):
            self.stop.check()
            if end == begin + 1 and work[begin] > _LOOK:
                self._large(what, int(cliques[begin]))
            else:
                lowest, operation = self._lowest, self.semiring.operation
                make(self.layout.program, self.arena, self.twins, what, cliques[begin:end], lowest, operation)

    @cached_property
    def twins(self) -> Twins:
        """The tables as numbers, their largest entries, how far the least is below, what is stale; product_kernels."""
        layout, sums = self.layout, self.semiring.operation == LOG_SUM
        numbers = np.zeros(layout.entries if sums else 0, dtype=np.float64)
        peak, low = np.zeros((2, layout.program.at.size - 1))
        if sums:
            linearise(layout.program, self.arena, numbers, peak, low, np.arange(len(layout.factors)))
        return numbers, peak, low, np.zeros(peak.size, dtype=np.bool_)

    @property
    def _lowest(self) -> Any:
        return self.numbers.dtype.type(self.numbers.lowest)

    def _large(self, what: int, clique: int) -> None:
        """Do what :func:`.make` does, in pieces."""
        program, arena, lowest = self.layout.program, self.arena, self._lowest
        if nothing_to_make(program, clique, what):
            return
        tables, count, scope = job(program, clique, what)
        targets, parts = tables[count:], describe(program, scope, tables)
        numbers, peak, low, stale = self.twins
        if self.semiring.operation == LOG_SUM and takes_products(low, tables[:count]):
            clear_numbers(program, numbers, targets)
            for begin, end in self._pieces(parts):
                sweep_products(numbers, count, parts, begin, end)
            finish_products(program, arena, self.twins, what, tables[:count], targets)
            return
        if self.semiring.operation == LOG_SUM:
            take_logarithms(program, arena, self.twins, tables[:count])
        empty(program, arena, targets, lowest)
        largest = max(self._sweep((arena, arena), count, parts, MAXIMISE, lowest))
        if self.semiring.operation != LOG_SUM:
            clear(program, arena, targets, lowest)
        elif what >= SHOW:
            for t in targets.tolist():
                arena[program.at[t] : program.at[t + 1]] = 0
            if largest > lowest:
                list(self._sweep((arena, arena), count, parts, PROJECT, largest))
            normalise(program, arena, targets)
        else:
            first = program.at[targets[0]]
            out = arena[first : first + entries_of(program, targets[0])]
            top, total = out.copy(), np.zeros_like(out)
            parts[2][count] -= first
            list(self._sweep((total, top), count, parts, ADD, lowest))
            set_logarithms(out, top, total, lowest)
            linearise(program, arena, numbers, peak, low, targets)
            stale[targets] = False

    def _pieces(self, parts: Any) -> Iterator[tuple[int, int]]:
        """Yield ranges of a clique's rows, with looks at the time."""
        rows, step = prod(parts[0].tolist()), max(1, _LOOK // parts[1])
        for begin in range(0, rows, step):
            self.stop.check()
            yield begin, min(rows, begin + step)

    def _sweep(self, into: tuple[Array, Array], count: int, parts: Any, what: int, peak: Any) -> Iterator[Any]:
        """Sweep over all rows of a clique; yield the largest entry of each piece."""
        for begin, end in self._pieces(parts):
            yield sweep(self.arena, *into, count, parts, self._lowest, what, peak, begin, end)


def _groups(work: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of cliques: large ones alone, small ones up to about so much work.

    >>> list(_groups([1, 2, 1 << 24, 3]))
    [(0, 2), (2, 3), (3, 4)]
    """
    cuts, since = [0], 0
    for i, cells in enumerate(work):
        if i > cuts[-1] and since + cells > _LOOK:
            cuts.append(i)
            since = 0
        since += cells
    if work:
        yield from pairwise([*cuts, len(work)])
