"""Carry out passes over a junction tree: small cliques together, large ones in pieces, with looks at the time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM, Semiring
from dmcmc.inference.junction.layout import Layout
from dmcmc.inference.junction.message_kernels import (
    ADD,
    DOWN,
    MAXIMISE,
    PROJECT,
    SHOW,
    clear,
    describe,
    empty,
    job,
    make,
    normalise,
    set_logarithms,
    sweep,
)
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Array, Ints

_LOOK = 1 << 23  # entries of cliques between two looks at the time: about a tenth of a second


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
        """Make UP, DOWN or SHOW for some cliques, in this order.

        Raises
        ------
        OutOfTime
        """
        work = self.layout.cells[self.layout.program.parent[cliques] if what == DOWN else cliques]
        for begin, end in _groups(work.tolist()):
            self.stop.check()
            if end == begin + 1 and work[begin] > _LOOK:
                self._large(what, int(cliques[begin]))
            else:
                lowest, operation = self._lowest, self.semiring.operation
                make(self.layout.program, self.arena, what, cliques[begin:end], lowest, operation)

    @property
    def _lowest(self) -> Any:
        return self.numbers.dtype.type(self.numbers.lowest)

    def _large(self, what: int, clique: int) -> None:
        """Do what :func:`.make` does, in pieces."""
        program, arena, lowest = self.layout.program, self.arena, self._lowest
        if what == DOWN and program.parent[clique] < 0:
            return
        tables, count, sender = job(program, clique, what)
        targets, parts = tables[count:], describe(program, sender, tables)
        empty(program, arena, targets, lowest)
        peak = max(self._sweep((arena, arena), count, parts, MAXIMISE, lowest))
        if self.semiring.operation != LOG_SUM:
            clear(program, arena, targets, lowest)
        elif what == SHOW:
            for t in targets.tolist():
                arena[program.at[t] : program.at[t + 1]] = 0
            if peak > lowest:
                list(self._sweep((arena, arena), count, parts, PROJECT, peak))
            normalise(program, arena, targets)
        else:
            out = arena[program.at[targets[0]] : program.at[targets[0] + 1]]
            top, total = out.copy(), np.zeros_like(out)
            parts[2][count] -= program.at[targets[0]]
            list(self._sweep((total, top), count, parts, ADD, lowest))
            set_logarithms(out, top, total, lowest)

    def _sweep(self, into: tuple[Array, Array], count: int, parts: Any, what: int, peak: Any) -> Iterator[Any]:
        """Sweep over all rows of a clique; yield the largest entry of each piece."""
        rows, step = prod(parts[0].tolist()), max(1, _LOOK // parts[1])
        for begin in range(0, rows, step):
            self.stop.check()
            end = min(rows, begin + step)
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
