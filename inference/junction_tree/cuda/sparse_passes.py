"""Passes over sparse cliques on an NVIDIA GPU: rows and messages stay there, requested results are copied back.

A sparse clique lists its allowed rows (the incomplete tables of the CUBE paper). A wave is a set of cliques whose
messages depend only on earlier waves. All messages and marginals are described once; a run launches the kernels of
:mod:`dmcmc.inference.junction_tree.cuda.sparse_message_kernels` wave by wave. A chunk is a range of rows, or of results
of chunks, that one thread reduces to one number.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.cuda.passes import TreeExceedsDevice
from dmcmc.inference.junction_tree.cuda.sparse_message_kernels import HEADER, THREADS, reduce_chunks, reduce_rows
from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, SEPARATOR_MARGINAL, UP
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses, values_of
from dmcmc.inference.runtime.device import Device
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import fields_of


class RowSource(NamedTuple):
    """The rows from which a message is computed: those of a clique, or of the separator above it.

    Attributes
    ----------
    scope : tuple of int
        The variables of the keys.
    keys, values : int
        Offset of the rows' keys and values on the device; −1 for no values.
    """

    scope: tuple[int, ...]
    keys: int
    values: int


class RowGroups(NamedTuple):
    """The rows grouped by target entry and cut into chunks; positions are in ``ints``, the device's int32 array.

    Attributes
    ----------
    order : int
        Position of the list of rows, ordered by group.
    levels : sequence of (int, int)
        Position of the list of chunk starts, and number of chunks, per level: first chunks of rows, then chunks
        of the previous level's results; the last level has one chunk per entry of the target.
    """

    order: int
    levels: Sequence[tuple[int, int]]


class SparseMessage(NamedTuple):
    """A message or a marginal.

    Attributes
    ----------
    source : RowSource
        The rows.
    added : sequence of (int, int)
        Messages that are added: position of the rows' indices in ``ints`` (−1: the row itself), offset of the message.
    groups : RowGroups
        The groups of rows.
    to : int
        Offset of the result among the messages.
    """

    source: RowSource
    added: Sequence[tuple[int, int]]
    groups: RowGroups
    to: int


class CudaSparsePasses:
    """The passes over sparse cliques on a device.

    The messages lie in one device array: the messages to the parents, the messages from the parents, then the tables of
    the variables. Each separator has its message at the same offset in the first two parts. A second device array,
    ``ints`` (int32), holds the orders of rows, the starts of chunks, and the index of each row in the separators. Both
    are laid out once, by the constructor; a run only changes the first one.

    Parameters
    ----------
    host
        The passes on the CPU; they receive the results.
    device
        The device.
    limit
        Device memory that may be used, in bytes.

    Raises
    ------
    TreeExceedsDevice
        If the rows do not fit; nothing is allocated then.
    """

    def __init__(self, host: SparsePasses, device: Device, limit: int) -> None:
        self.host, self.device = host, device
        self._ints: list[Array] = []
        self._n_ints = 0
        self._message_at = np.cumsum(
            [0, *(keys.size for keys in host.separators)]
        )  # offset of each separator's message
        rows = [table.keys for table in host.cliques]
        offsets = np.cumsum([0, *(keys.size for keys in (*rows, *host.separators))]).tolist()
        cliques = [RowSource(table.scope, offsets[c], offsets[c]) for c, table in enumerate(host.cliques)]
        separator_rows = [RowSource(scope, offsets[len(rows) + c], -1) for c, scope in enumerate(host.tree.separators)]
        self._above_at = [self._store(place) for place in host.clique_to_separator]
        self._below_at = [self._store(place) for place in host.parent_to_separator]
        self._marginal_at: dict[int, int] = {}
        self._messages_of = self._messages(cliques, separator_rows)
        ints = np.concatenate([np.zeros(0, dtype=np.int32), *self._ints])
        self._ints.clear()
        entries = 2 * int(self._message_at[-1]) + int(host.domains.sum())
        chunks = max((m.groups.levels[0][1] for messages in self._messages_of.values() for m in messages), default=0)
        item = host.arithmetic.dtype.itemsize
        # estimated bytes: 4 per int, a key (8) and a value per row, an entry per message entry, and an allowance of
        # 32 per chunk for its partial results (``tops`` and ``totals``) on all levels
        if 4 * ints.size + (8 + item) * offsets[-1] + item * entries + 32 * chunks > limit or self._n_ints >= 1 << 31:
            raise TreeExceedsDevice
        self._keys = self.device.hold(np.concatenate([np.zeros(0, dtype=np.int64), *rows, *host.separators]), self)
        values = [np.zeros(0, dtype=host.arithmetic.dtype), *(table.values for table in host.cliques)]
        self._values, self._device_ints = self.device.hold(np.concatenate(values), self), self.device.hold(ints, self)
        self._state = device.lease(max(1, entries), host.arithmetic.dtype, self)

    def run(self, table_kind: int, cliques: Ints) -> None:
        """Compute messages (UP, DOWN) or variables' tables (MARGINAL, SEPARATOR_MARGINAL) for cliques in this order.

        UP is a clique's message to its parent, DOWN the parent's message to the clique. The tables of variables are
        computed from the clique's rows, or from the rows of the separator above it.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        for wave in _waves(self.host.tree, table_kind, cliques.tolist()):
            self.host.stop.check()
            self._compute([message for clique in wave for message in self._messages_of.get((table_kind, clique), ())])
        self._fetch(table_kind, cliques.tolist())

    def _messages(
        self, cliques: Sequence[RowSource], separator_rows: Sequence[RowSource]
    ) -> dict[tuple[int, int], list[SparseMessage]]:
        """Describe all messages and marginals; the key of a list is (kind of table, clique)."""
        host, messages = self.host, dict[tuple[int, int], list[SparseMessage]]()
        tree, separators = host.tree, int(self._message_at[-1])
        offset = 2 * separators
        for c, (parent, size) in enumerate(zip(tree.parent, map(len, host.separators), strict=True)):
            children = [(self._below_at[child], int(self._message_at[child])) for child in tree.children[c]]
            messages[UP, c] = [
                SparseMessage(
                    cliques[c], children, self._groups(host.clique_to_separator[c], size), int(self._message_at[c])
                )
            ]
            from_parent = [(self._above_at[c], separators + int(self._message_at[c]))] if parent >= 0 else []
            if parent >= 0:
                to_parent = [(self._below_at[d], int(self._message_at[d])) for d in tree.children[parent] if d != c]
                if tree.parent[parent] >= 0:
                    to_parent.append((self._above_at[parent], separators + int(self._message_at[parent])))
                groups = self._groups(host.parent_to_separator[c], size)
                messages[DOWN, c] = [
                    SparseMessage(cliques[parent], to_parent, groups, separators + int(self._message_at[c]))
                ]
            both_messages = [(-1, int(self._message_at[c])), (-1, separators + int(self._message_at[c]))]
            for table_kind, source, added in (
                (MARGINAL, cliques[c], [*children, *from_parent]),
                (SEPARATOR_MARGINAL, separator_rows[c], both_messages),
            ):
                keys = host.cliques[c].keys if table_kind == MARGINAL else host.separators[c]
                for v in host.variables_from[c + (len(cliques) if table_kind == SEPARATOR_MARGINAL else 0)]:
                    indices, size_of_v = values_of(v, source.scope, keys, host.domains), int(host.domains[v])
                    message = SparseMessage(source, added, self._groups(indices, size_of_v), offset)
                    messages.setdefault((table_kind, c), []).append(message)
                    self._marginal_at[v] = offset
                    offset += size_of_v
        return messages

    def _groups(self, entry: Ints, size: int) -> RowGroups:
        """Group rows by their target entry and cut the groups into chunks.

        ``entry`` (rows,) is the index of the entry to which each row projects, below ``size``. Each level reduces the
        chunks of the level before, until one number per entry is left.
        """
        counts = np.bincount(entry, minlength=size)
        order, levels = self._store(np.argsort(entry, kind="stable")), list[tuple[int, int]]()
        while True:
            chunks = np.maximum(1, -(-counts // tuning.CHUNK_SIZE))
            first_row = np.repeat(np.cumsum(counts) - counts, chunks)
            chunk_in_group = np.arange(first_row.size) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            levels.append(
                (self._store(np.append(first_row + tuning.CHUNK_SIZE * chunk_in_group, counts.sum())), first_row.size)
            )
            if first_row.size == size:
                return RowGroups(order, levels)
            counts = chunks

    def _store(self, numbers: Ints) -> int:
        """Store numbers for ``ints``; return their position there."""
        self._ints.append(numbers.astype(np.int32))
        self._n_ints += numbers.size
        return self._n_ints - numbers.size

    def _compute(self, messages: Sequence[SparseMessage]) -> None:
        """Compute messages that do not depend on each other."""
        if not messages:
            return
        device, numbers = self.device, self.host.arithmetic
        sums, lowest = not self.host.maximise, numbers.dtype.type(numbers.lowest)
        half = numbers.dtype.type(numbers.lowest // 2) if numbers.exact else lowest
        levels, results_so_far, first_results = max(len(m.groups.levels) for m in messages), 0, list[int]()
        capacity = sum(chunks for m in messages for _, chunks in m.groups.levels)
        tops = device.buffer("junction/tops", capacity, numbers.dtype)
        totals = device.buffer("junction/totals", capacity if sums else 1, np.dtype(np.float64))
        for level in range(levels):
            active = [m for m in messages if level < len(m.groups.levels)]
            final = [level + 1 == len(m.groups.levels) for m in active]
            counts = [m.groups.levels[level][1] for m in active]
            positions = results_so_far + np.cumsum([0, *counts])
            start = [m.groups.order for m in active] if level == 0 else first_results
            records = []
            for m, is_final, position, source in zip(active, final, positions.tolist(), start, strict=False):
                # the fields CHUNKS, TO, FINAL and FROM of a record
                header = [m.groups.levels[level][0], m.to if is_final else position, int(is_final), source]
                records.append([*header, *(_row_record(m, self.host) if level == 0 else ())])
            descriptor = device.upload("junction/words", _launch_descriptor(counts, records))
            blocks, common = -(-sum(counts) // THREADS), (sums, lowest, half, tops, totals)
            if level == 0 and blocks:
                reduce_rows[blocks, THREADS](
                    descriptor, self._keys, self._values, self._device_ints, self._state, *common
                )
            elif blocks:
                reduce_chunks[blocks, THREADS](descriptor, self._device_ints, self._state, *common)
            first_results = [
                position for position, is_final in zip(positions.tolist(), final, strict=False) if not is_final
            ]
            results_so_far = int(positions[-1])

    def _fetch(self, table_kind: int, cliques: Sequence[int]) -> None:
        """Copy totals and marginals to the host."""
        host = self.host
        if table_kind == UP:
            for c in cliques:
                if host.tree.parent[c] < 0 and host.up[c].size:
                    begin = int(self._message_at[c])
                    self._state[begin : begin + 1].copy_to_host(host.up[c])
        if table_kind not in (MARGINAL, SEPARATOR_MARGINAL):
            return
        offset = len(host.cliques) if table_kind == SEPARATOR_MARGINAL else 0
        variables = [v for c in cliques for v in host.variables_from[c + offset]]
        if variables:
            first = 2 * int(self._message_at[-1])
            marginals = self._state[first : first + int(host.domains.sum())].copy_to_host()
            for v in variables:
                at = self._marginal_at[v] - first
                host.store_marginal(v, marginals[at : at + int(host.domains[v])].copy())


def _launch_descriptor(counts: Sequence[int], records: Sequence[Sequence[int]]) -> Ints:
    """Return the descriptor of a launch: number of messages, first chunk of each and the end, positions, records.

    ``counts`` is the number of chunks of each message, ``records`` the record of each message.
    """
    header_length = 2 + 2 * len(counts)
    positions = header_length + np.cumsum([0, *map(len, records)])[:-1]
    flat = [number for record in records for number in record]
    return np.array([len(counts), *np.cumsum([0, *counts]).tolist(), *positions.tolist(), *flat], dtype=np.int64)


def _waves(tree: CliqueTree, table_kind: int, cliques: Sequence[int]) -> list[list[int]]:
    """Return waves of cliques: the messages of one wave depend only on earlier waves."""
    if table_kind not in (UP, DOWN):
        return [list(cliques)]
    waves, wave_of = list[list[int]](), dict[int, int]()
    for c in cliques:
        dependencies = tree.children[c] if table_kind == UP else (tree.parent[c],)
        wave_of[c] = 1 + max((wave_of.get(other, -1) for other in dependencies), default=-1)
        if wave_of[c] == len(waves):
            waves.append([])
        waves[wave_of[c]].append(c)
    return waves


def _row_record(message: SparseMessage, host: SparsePasses) -> list[int]:
    """Return the part of a message's record about its rows, in the order of ``sparse_message_kernels``.

    These are the offsets of keys and values, the numbers of added messages and of observed variables, then two
    numbers per added message and three (shift, mask, value) per observed variable. ``shift`` and ``mask`` extract a
    variable's value from a packed key.
    """
    source, observed = message.source, host.observed
    fields, evidence = fields_of(source.scope, host.domains), list[int]()
    for i, v in enumerate(source.scope):
        if observed[v] >= 0:
            evidence += [int(fields.shift[i]), int(fields.mask[i]), int(observed[v])]
    added = [number for message_added in message.added for number in message_added]
    record = [source.keys, source.values, len(message.added), len(evidence) // 3, *added, *evidence]
    assert len(record) == HEADER - 4 + len(added) + len(evidence)
    return record
