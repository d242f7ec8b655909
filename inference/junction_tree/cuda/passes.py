"""Passes over a junction tree on an NVIDIA GPU: the tables stay on the device, requested results are copied back.

The messages are those of Shenoy and Shafer. A pass has one kind: UP (messages to the parents), DOWN (messages from
the parents), MARGINAL or SEPARATOR_MARGINAL (tables of single variables, computed from a clique or from the separator
above it). "Sums" means log-sum-exp elimination, whose tables are kept in linear scale on the device; otherwise
elimination takes the maximum of sums of utilities.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import (
    PER_BLOCK,
    PER_THREAD,
    TABLE_COUNTS,
    describe_messages,
    transposed,
)
from dmcmc.inference.junction_tree.cuda.matrix_kernels import MIN_SIDE, SIDE, matrix_kernel
from dmcmc.inference.junction_tree.cuda.message_kernels import (
    MAX_AXES,
    SHIFT,
    THREADS,
    UNDERFLOW,
    finish_kernel,
    per_block_kernel,
    per_thread_kernel,
    reset_extremes,
)
from dmcmc.inference.junction_tree.message_kernels import MARGINAL, UP
from dmcmc.inference.junction_tree.passes import CliqueTreePasses, ProductUnderflow
from dmcmc.inference.junction_tree.sum_product_kernels import linearise, normalise_numbers
from dmcmc.inference.runtime.device import Device, prepare_launch
from dmcmc.inference.runtime.types import Ints


class TreeExceedsDevice(Exception):
    """The tree exceeds the device's memory, or joins more tables than a kernel takes."""


class CudaPasses:
    """The passes over a junction tree on a device.

    On the device, ``arena`` holds the entries of all tables and one more entry, the neutral element (1 for sums, 0 for
    maxima), which counts as one more table. ``state`` (4, tables + 1) float64 has a column for each table, the neutral
    one last. Its rows are the largest entry (peak), the least entry that is not zero (low), the logarithm of the factor
    by which the table must be multiplied (shift), and the underflow flag, stored in the first column only.

    Parameters
    ----------
    host
        The passes on the CPU: their arena holds the factors and receives the results.
    tree
        The clique tree.
    device
        The device.
    limit
        Device memory that may be used, in bytes.

    Raises
    ------
    TreeExceedsDevice
        If the tree does not fit; nothing is allocated then.
    """

    def __init__(self, host: CliqueTreePasses, tree: CliqueTree, device: Device, limit: int) -> None:
        self.host, self.device = host, device
        self.sums = host.semiring.operation == LOG_SUM
        program, entries = host.layout.program, host.layout.entries
        inputs = np.diff(program.factor_start) + np.diff(program.child_start) + 1
        axes = max(map(len, tree.scopes), default=0)
        # an estimate of 9 bytes per entry: at most 8 for the number, the rest as a margin
        if entries * 9 > limit or inputs.max(initial=0) > TABLE_COUNTS[-1] or axes > MAX_AXES:
            raise TreeExceedsDevice
        self._reverse = transposed(program, tree.position)
        tables, self._neutral_at = program.at.size - 1, entries
        self._arena = device.lease(entries + 1, host.arena.dtype, self)
        factor_entries = int(program.at[len(host.layout.factors)])
        state = np.array([[1.0], [1.0], [0.0], [0.0]]).repeat(tables + 1, axis=1)
        peak, low, shift = state[:3]
        factor_values = host.arena[:factor_entries]
        if self.sums:
            # the factors in linear scale, relative to their largest entry; the rows of ``state`` follow from it
            numbers, factors = np.empty(factor_entries), np.arange(len(host.layout.factors))
            peak_log, range_below = np.zeros((2, tables))
            linearise(program, host.arena, numbers, peak_log, range_below, factors)
            low[factors] = np.exp(-range_below[factors])
            shift[factors] = peak_log[factors]
            peak[factors] = np.where(np.isfinite(peak_log[factors]), 1.0, 0.0)
            factor_values = numbers
        if factor_entries:
            self._arena[:factor_entries].copy_to_device(np.ascontiguousarray(factor_values))
        neutral = np.array([1.0 if self.sums else 0], dtype=host.arena.dtype)
        self._arena[entries : entries + 1].copy_to_device(neutral)
        self._state = device.hold(state, self).reshape(state.shape)

    def run(self, table_kind: int, cliques: Ints) -> None:
        """Compute messages (UP, DOWN) or variables' tables (MARGINAL, SEPARATOR_MARGINAL) for cliques in this order.

        Totals of roots and variables' tables are written to the host's arena; other messages stay on the device.

        Parameters
        ----------
        table_kind : int
            UP, DOWN, MARGINAL or SEPARATOR_MARGINAL, see the module.
        cliques : (k,) int64
            The cliques. A clique comes after those whose messages it needs.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        ProductUnderflow
            If products could underflow; all results are invalid then.
        """
        program, stop = self.host.layout.program, self.host.stop
        tables = program.at.size - 1
        descriptor, launches, parts, targets = describe_messages(
            program, self._reverse, table_kind, cliques, tables, self._neutral_at, (THREADS, SIDE, MIN_SIDE)
        )
        if not targets.size:
            return
        device, operation = self.device, self.host.semiring.operation
        number: Any = self.host.arena.dtype
        device_descriptor = device.upload("messages/words", descriptor)
        parts_buffer = device.buffer("messages/parts", max(1, parts), number)
        device_targets = device.upload("messages/targets", targets)
        reset_extremes[-(-targets.size // THREADS), THREADS](device_targets, targets.size, self._state)
        # for maxima: sums below ``half`` mean −∞; integers cannot represent −∞, so half of the sentinel separates them
        lowest = number.type(self.host.arithmetic.lowest)
        half = number.type(lowest // 2) if number.kind == "i" else lowest
        common = self._arena, device_descriptor, 0, self._state, lowest, half

        @cache
        def launcher(kind: int, width: int) -> Callable[[int, int, int], None]:
            """Return a function that launches one kernel: its arguments are launch table position, blocks, threads.

            ``kind`` is PER_THREAD, PER_BLOCK or MATRIX; ``width`` is an index in ``TABLE_COUNTS``, the numbers of
            joined tables for which the first two kinds are compiled.
            """
            if kind == PER_BLOCK:
                return prepare_launch(per_block_kernel(number.type, width, operation), (*common, parts_buffer), 2)
            wide = kind == PER_THREAD
            kernel = per_thread_kernel(number.type, width, operation) if wide else matrix_kernel(number.type, operation)
            # 2: each launch sets argument 2 of the kernel, the position of its table in the descriptor
            return prepare_launch(kernel, common, 2)

        for width, kind, table, blocks in launches.tolist():
            stop.check()
            launcher(kind, width)(table, blocks, THREADS)
            if kind == PER_BLOCK:
                arguments = (*common[:2], table, *common[3:], parts_buffer, TABLE_COUNTS[width])
                # one block per message; the first number of a launch table is its number of messages
                finish_kernel(number.type, operation)[int(descriptor[table]), THREADS](*arguments)
        self._fetch(table_kind, cliques, targets)

    def _fetch(self, table_kind: int, cliques: Ints, targets: Ints) -> None:
        """Copy the totals of roots (UP) or the variables' tables (marginals) to the host; nothing for DOWN.

        A total becomes a logarithm again, with its table's shift added. Marginals of sums are normalised, so that
        their shifts cancel.

        Parameters
        ----------
        table_kind, cliques
            As for ``run``.
        targets : int64
            Numbers of the tables that were written.
        """
        program, layout = self.host.layout.program, self.host.layout
        if table_kind == UP:
            wanted = [layout.up_message(c) for c in cliques.tolist() if program.parent[c] < 0]
        else:
            wanted = sorted(targets.tolist()) if table_kind >= MARGINAL else []
        if not wanted:
            return
        for first, last in _consecutive(wanted):
            begin, end = int(program.at[first]), int(program.at[last + 1])
            self._arena[begin:end].copy_to_host(self.host.arena[begin:end])
        if table_kind >= MARGINAL:
            self._clear_unobserved(wanted)
        if not self.sums:
            return
        state = self._state.copy_to_host()
        if state[UNDERFLOW, 0]:
            raise ProductUnderflow
        if table_kind == UP:
            for t in wanted:
                at = int(program.at[t])
                with np.errstate(divide="ignore"):
                    self.host.arena[at] = np.log(self.host.arena[at]) + state[SHIFT, t]
        else:
            normalise_numbers(program, self.host.arena, self.host.arena, np.array(wanted))

    def _clear_unobserved(self, wanted: list[int]) -> None:
        """Clear the entries of observed variables for other values, which the device does not write.

        ``wanted`` holds the numbers of the tables, each over one variable.
        """
        program = self.host.layout.program
        nothing = 0.0 if self.sums else self.host.arithmetic.lowest
        for t in wanted:
            v = int(program.scope[program.scope_start[t]])
            observed = int(program.observed[v])
            if observed >= 0:
                entries = self.host.arena[program.at[t] : program.at[t + 1]]
                value = entries[observed]
                entries[:] = nothing
                entries[observed] = value


def _consecutive(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of consecutive numbers.

    >>> _consecutive([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    cuts = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    return [(numbers[a], numbers[b - 1]) for a, b in pairwise([0, *cuts, len(numbers)])]
