"""Run passes over a junction tree on the CPU: small cliques in groups, large ones in parts.

A clique's work is its number of entries, one per assignment of its variables. The entries are processed in rows: the
trailing variables of the clique form a row, and the leading variables number the rows. The deadline is checked between
groups and between parts, which are ranges of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.semirings import LOG_SUM, Semiring
from dmcmc.inference.junction_tree.cliques import CliqueTreeLayout
from dmcmc.inference.junction_tree.message_kernels import (
    ADD,
    DOWN,
    MARGINAL,
    MAXIMISE,
    PROJECT,
    SEPARATOR_MARGINAL,
    describe_tables,
    fill_lowest,
    finish_products,
    inputs_and_targets,
    make_messages,
    normalise,
    normalise_lowest,
    nothing_to_make,
    set_logarithms,
    sweep,
)
from dmcmc.inference.junction_tree.sum_product_kernels import (
    clear_numbers,
    entries_of,
    linearise,
    products_are_safe,
    sweep_products,
    to_logarithms,
)
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Array, Ints

# linear-scale entries, peak and range per table (logarithms), and whether the logarithms of a table are out of date
LinearTables = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


class ProductUnderflow(Exception):
    """A product of linear-scale numbers could underflow; sums must be computed from logarithms, on the CPU."""


class MessagePassing(Protocol):
    """An object that computes messages and tables of a junction tree."""

    def run(self, table_kind: int, cliques: Ints) -> None:
        """Compute messages (UP, DOWN) or variables' tables (MARGINAL, SEPARATOR_MARGINAL) for cliques in this order."""
        ...


@dataclass(frozen=True)
class CliqueTreePasses:
    """The passes over a junction tree on the CPU (Shenoy-Shafer messages).

    Attributes
    ----------
    layout : CliqueTreeLayout
        The tables' layout and the factors.
    arena : (layout.entries,) ndarray
        The entries of all tables, in the dtype of the arithmetic.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    semiring : Semiring
        Max-plus for max-marginals, log-sum-exp for probabilities.
    stop : Deadline
        The deadline.
    """

    layout: CliqueTreeLayout
    arena: Array
    arithmetic: Arithmetic
    semiring: Semiring
    stop: Deadline = NO_DEADLINE

    def run(self, table_kind: int, cliques: Ints) -> None:
        """Compute messages (UP, DOWN) or variables' tables (MARGINAL, SEPARATOR_MARGINAL) for cliques in this order.

        Parameters
        ----------
        table_kind : int
            ``UP``: each clique's message to its parent. ``DOWN``: the parent's message to it. ``MARGINAL`` and
            ``SEPARATOR_MARGINAL``: the tables of the variables assigned to the clique or to the separator above it.
        cliques : (k,) int64
            The cliques.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        if table_kind == SEPARATOR_MARGINAL:
            work = np.diff(self.layout.program.at)[self.layout.up_message(0) + cliques]
        else:
            work = self.layout.cells[self.layout.program.parent[cliques] if table_kind == DOWN else cliques]
        for begin, end in _groups(work.tolist()):
            self.stop.check()
            if end == begin + 1 and work[begin] > tuning.CELLS_PER_CHECK:
                self._large(table_kind, int(cliques[begin]))
            else:
                lowest, operation = self._lowest, self.semiring.operation
                make_messages(
                    self.layout.program,
                    self.arena,
                    self.linear_tables,
                    table_kind,
                    cliques[begin:end],
                    lowest,
                    operation,
                )

    @cached_property
    def linear_tables(self) -> LinearTables:
        """The tables in linear scale and their ranges: numbers, peak, low and stale.

        See :mod:`dmcmc.inference.junction_tree.sum_product_kernels` for the four arrays. They are empty for max-plus.
        """
        layout, sums = self.layout, self.semiring.operation == LOG_SUM
        numbers = np.zeros(layout.entries if sums else 0, dtype=np.float64)
        peak, low = np.zeros((2, layout.program.at.size - 1))
        if sums:
            linearise(layout.program, self.arena, numbers, peak, low, np.arange(len(layout.factors)))
        return numbers, peak, low, np.zeros(peak.size, dtype=np.bool_)

    @property
    def _lowest(self) -> Any:
        """The −∞ of the arithmetic as a NumPy scalar."""
        return self.arithmetic.dtype.type(self.arithmetic.lowest)

    def _large(self, table_kind: int, clique: int) -> None:
        """Compute what :func:`make_messages` computes for one large clique, in parts."""
        program, arena, lowest = self.layout.program, self.arena, self._lowest
        if nothing_to_make(program, clique, table_kind):
            return
        tables, count, scope = inputs_and_targets(program, clique, table_kind)
        targets, parts = tables[count:], describe_tables(program, scope, tables)
        numbers, peak, low, stale = self.linear_tables
        if self.semiring.operation == LOG_SUM and products_are_safe(low, tables[:count]):
            clear_numbers(program, numbers, targets)
            for begin, end in self._pieces(parts):
                sweep_products(numbers, count, parts, begin, end)
            finish_products(program, arena, self.linear_tables, table_kind, tables[:count], targets)
            return
        if self.semiring.operation == LOG_SUM:
            to_logarithms(program, arena, self.linear_tables, tables[:count])
        fill_lowest(program, arena, targets, lowest)
        largest = max(self._sweep((arena, arena), count, parts, MAXIMISE, lowest))
        if self.semiring.operation != LOG_SUM:
            normalise_lowest(program, arena, targets, lowest)
        elif table_kind >= MARGINAL:
            for t in targets.tolist():
                arena[program.at[t] : program.at[t + 1]] = 0
            if largest > lowest:
                list(self._sweep((arena, arena), count, parts, PROJECT, largest))
            normalise(program, arena, targets)
        else:
            first = program.at[targets[0]]
            out = arena[first : first + entries_of(program, targets[0])]
            top, total = out.copy(), np.zeros_like(out)
            # parts[2] holds the tables' offsets; that of the target becomes relative to ``total`` and ``top``
            parts[2][count] -= first
            list(self._sweep((total, top), count, parts, ADD, lowest))
            set_logarithms(out, top, total, lowest)
            linearise(program, arena, numbers, peak, low, targets)
            stale[targets] = False

    def _pieces(self, parts: Any) -> Iterator[tuple[int, int]]:
        """Yield ranges of a clique's rows, and check the deadline before each.

        ``parts`` is the result of ``describe_tables``: its first two items are the numbers of values of the leading
        variables, and the length of a row.
        """
        rows, step = prod(parts[0].tolist()), max(1, tuning.CELLS_PER_CHECK // parts[1])
        for begin in range(0, rows, step):
            self.stop.check()
            yield begin, min(rows, begin + step)

    def _sweep(self, into: tuple[Array, Array], count: int, parts: Any, mode: int, peak: Any) -> Iterator[Any]:
        """Sweep over all rows of a clique; yield the largest entry of each part.

        ``into`` holds the output array and the array of largest terms; the other parameters are those of ``sweep``:
        ``mode`` is MAXIMISE, ADD or PROJECT, and ``peak`` is the largest entry of the clique (for PROJECT).
        """
        for begin, end in self._pieces(parts):
            yield sweep(self.arena, *into, count, parts, self._lowest, mode, peak, begin, end)


def _groups(work: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of cliques: a large clique alone, small ones together up to the limit of work.

    >>> list(_groups([1, 2, 1 << 25, 3]))
    [(0, 2), (2, 3), (3, 4)]
    """
    cuts, group_cells = [0], 0
    for i, cells in enumerate(work):
        if i > cuts[-1] and group_cells + cells > tuning.CELLS_PER_CHECK:
            cuts.append(i)
            group_cells = 0
        group_cells += cells
    if work:
        yield from pairwise([*cuts, len(work)])
