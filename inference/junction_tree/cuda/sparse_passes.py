"""Passes over listed cliques on an NVIDIA GPU: rows and messages stay there, what is asked for comes back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.junction_tree.cuda.passes import NoRoom
from dmcmc.inference.junction_tree.cuda.sparse_message_kernels import HEADER, THREADS, put_chunks, put_rows
from dmcmc.inference.junction_tree.message_kernels import DOWN, SEPARATOR, SHOW, UP
from dmcmc.inference.junction_tree.sparse_passes import RowPasses, values_of
from dmcmc.inference.runtime.device import Device
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import fields_of

_CHUNK = 32  # rows, or chunks, that a thread puts together
_INT32 = np.dtype(np.int32)


class Source(NamedTuple):
    """Rows that a message is made of: of a clique, or of the separator above it."""

    scope: tuple[int, ...]
    keys: int
    values: int


class Groups(NamedTuple):
    """Rows in the order of the entries that they go to, and chunks of them: places in the device's ``ints``.

    ``levels`` are (place, chunks): first of the rows, then of the chunks of the level before, the last one an entry.
    """

    order: int
    levels: Sequence[tuple[int, int]]


class Message(NamedTuple):
    """A message, or a table that is shown: its rows, what is added to them, and where it is among the messages."""

    source: Source
    added: Sequence[tuple[int, int]]
    groups: Groups
    to: int


class CudaRowPasses:
    """Passes on a device.

    Parameters
    ----------
    host
        The same passes on the CPU; what is read there is brought back to it.
    device
        Where.
    limit
        Bytes of it.

    Raises
    ------
    NoRoom
        Before anything is taken.
    """

    def __init__(self, host: RowPasses, device: Device, limit: int) -> None:
        self.host, self.device = host, device
        self._ints: list[Array] = []
        self._taken = 0
        self._begin = np.cumsum([0, *(keys.size for keys in host.separators)])  # of separators among messages
        rows = [table.keys for table in host.cliques]
        at = np.cumsum([0, *(keys.size for keys in (*rows, *host.separators))]).tolist()
        cliques = [Source(table.scope, at[c], at[c]) for c, table in enumerate(host.cliques)]
        above = [Source(scope, at[len(rows) + c], -1) for c, scope in enumerate(host.tree.separators)]
        self._above = [self._keep(place) for place in host.above]
        self._below = [self._keep(place) for place in host.below]
        self._shown: dict[int, int] = {}
        self._made = self._messages(cliques, above)
        ints = np.concatenate([np.zeros(0, dtype=np.int32), *self._ints])
        self._ints.clear()
        entries = 2 * int(self._begin[-1]) + int(host.domains.sum())
        chunks = max((m.groups.levels[0][1] for made in self._made.values() for m in made), default=0)
        item = host.arithmetic.dtype.itemsize
        if 4 * ints.size + (8 + item) * at[-1] + item * entries + 32 * chunks > limit or self._taken >= 1 << 31:
            raise NoRoom
        self._keys = self._there(np.concatenate([np.zeros(0, dtype=np.int64), *rows, *host.separators]))
        values = [np.zeros(0, dtype=host.arithmetic.dtype), *(table.values for table in host.cliques)]
        self._values, self._places = self._there(np.concatenate(values)), self._there(ints)
        self._state = device.lease(max(1, entries), host.arithmetic.dtype, self)

    def run(self, what: int, cliques: Ints) -> None:
        """Make UP, DOWN, SHOW or SEPARATOR for some cliques, in this order.

        Raises
        ------
        OutOfTime
        """
        for wave in self._waves(what, cliques.tolist()):
            self.host.stop.check()
            self._put([message for clique in wave for message in self._made.get((what, clique), ())])
        self._fetch(what, cliques.tolist())

    def _messages(self, cliques: Sequence[Source], above: Sequence[Source]) -> dict[tuple[int, int], list[Message]]:
        """Describe all messages by what and for which clique they are made."""
        host, made = self.host, dict[tuple[int, int], list[Message]]()
        tree, separators = host.tree, int(self._begin[-1])
        to = 2 * separators
        for c, (parent, size) in enumerate(zip(tree.parent, map(len, host.separators), strict=True)):
            children = [(self._below[child], int(self._begin[child])) for child in tree.children[c]]
            made[UP, c] = [Message(cliques[c], children, self._groups(host.above[c], size), int(self._begin[c]))]
            own = [(self._above[c], separators + int(self._begin[c]))] if parent >= 0 else []
            if parent >= 0:
                others = [(self._below[d], int(self._begin[d])) for d in tree.children[parent] if d != c]
                if tree.parent[parent] >= 0:
                    others.append((self._above[parent], separators + int(self._begin[parent])))
                groups = self._groups(host.below[c], size)
                made[DOWN, c] = [Message(cliques[parent], others, groups, separators + int(self._begin[c]))]
            both = [(-1, int(self._begin[c])), (-1, separators + int(self._begin[c]))]
            for what, source, added in ((SHOW, cliques[c], [*children, *own]), (SEPARATOR, above[c], both)):
                keys = host.cliques[c].keys if what == SHOW else host.separators[c]
                for v in host.made[c + (len(cliques) if what == SEPARATOR else 0)]:
                    place, size_of_v = values_of(v, source.scope, keys, host.domains), int(host.domains[v])
                    message = Message(source, added, self._groups(place, size_of_v), to)
                    made.setdefault((what, c), []).append(message)
                    self._shown[v] = to
                    to += size_of_v
        return made

    def _groups(self, place: Ints, size: int) -> Groups:
        """Put rows in the order of their places, and cut them into chunks."""
        counts = np.bincount(place, minlength=size)
        order, levels = self._keep(np.argsort(place, kind="stable")), list[tuple[int, int]]()
        while True:
            chunks = np.maximum(1, -(-counts // _CHUNK))
            first = np.repeat(np.cumsum(counts) - counts, chunks)
            inside = np.arange(first.size) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            levels.append((self._keep(np.append(first + _CHUNK * inside, counts.sum())), first.size))
            if first.size == size:
                return Groups(order, levels)
            counts = chunks

    def _keep(self, numbers: Ints) -> int:
        """Keep numbers for the device; return where they will be in ``ints``."""
        self._ints.append(numbers.astype(np.int32))
        self._taken += numbers.size
        return self._taken - numbers.size

    def _there(self, data: Array) -> Any:
        """Copy an array to the device."""
        held = self.device.lease(max(1, data.size), data.dtype, self)
        if data.size:
            held[: data.size].copy_to_device(data)
        return held

    def _waves(self, what: int, cliques: Sequence[int]) -> list[list[int]]:
        """Return cliques whose messages need nothing of each other, and what they need in waves before theirs."""
        if what not in (UP, DOWN):
            return [list(cliques)]
        waves, wave_of, tree = list[list[int]](), dict[int, int](), self.host.tree
        for c in cliques:
            needs = tree.children[c] if what == UP else (tree.parent[c],)
            wave_of[c] = 1 + max((wave_of.get(other, -1) for other in needs), default=-1)
            if wave_of[c] == len(waves):
                waves.append([])
            waves[wave_of[c]].append(c)
        return waves

    def _put(self, messages: Sequence[Message]) -> None:
        """Make messages that need nothing of each other."""
        if not messages:
            return
        device, numbers = self.device, self.host.arithmetic
        sums, lowest = not self.host.maximise, numbers.dtype.type(numbers.lowest)
        half = numbers.dtype.type(numbers.lowest // 2) if numbers.exact else lowest
        levels, before, begin = max(len(m.groups.levels) for m in messages), 0, list[int]()
        room = sum(chunks for m in messages for _, chunks in m.groups.levels)
        tops = device.buffer("junction/tops", room, numbers.dtype)
        totals = device.buffer("junction/totals", room if sums else 1, np.dtype(np.float64))
        for level in range(levels):
            now = [m for m in messages if level < len(m.groups.levels)]
            final = [level + 1 == len(m.groups.levels) for m in now]
            counts = [m.groups.levels[level][1] for m in now]
            to = before + np.cumsum([0, *counts])
            start = [m.groups.order for m in now] if level == 0 else begin
            records = []
            for m, last, place, source in zip(now, final, to.tolist(), start, strict=False):
                header = [m.groups.levels[level][0], m.to if last else place, int(last), source]
                records.append([*header, *(self._row_words(m) if level == 0 else ())])
            words = device.upload("junction/words", _launch(counts, records))
            blocks, common = -(-sum(counts) // THREADS), (sums, lowest, half, tops, totals)
            if level == 0 and blocks:
                put_rows[blocks, THREADS](words, self._keys, self._values, self._places, self._state, *common)
            elif blocks:
                put_chunks[blocks, THREADS](words, self._places, self._state, *common)
            begin = [place for place, last in zip(to.tolist(), final, strict=False) if not last]
            before = int(to[-1])

    def _row_words(self, message: Message) -> list[int]:
        """Return the words of a description that are about rows."""
        source, observed = message.source, self.host.observed
        fields, seen = fields_of(source.scope, self.host.domains), list[int]()
        for i, v in enumerate(source.scope):
            if observed[v] >= 0:
                seen += [int(fields.shift[i]), int(fields.mask[i]), int(observed[v])]
        added = [number for one in message.added for number in one]
        words = [source.keys, source.values, len(message.added), len(seen) // 3, *added, *seen]
        assert len(words) == HEADER - 4 + len(added) + len(seen)
        return words

    def _fetch(self, what: int, cliques: Sequence[int]) -> None:
        """Bring back what is read on the host: totals, and what is shown."""
        host = self.host
        if what == UP:
            for c in cliques:
                if host.tree.parent[c] < 0 and host.up[c].size:
                    begin = int(self._begin[c])
                    self._state[begin : begin + 1].copy_to_host(host.up[c])
        if what not in (SHOW, SEPARATOR):
            return
        offset = len(host.cliques) if what == SEPARATOR else 0
        variables = [v for c in cliques for v in host.made[c + offset]]
        if variables:
            first = 2 * int(self._begin[-1])
            shown = self._state[first : first + int(host.domains.sum())].copy_to_host()
            for v in variables:
                at = self._shown[v] - first
                host.show(v, shown[at : at + int(host.domains[v])].copy())


def _launch(counts: Sequence[int], records: Sequence[Sequence[int]]) -> Ints:
    """Return the words of a launch: see :mod:`.row_kernels`."""
    head = 2 + 2 * len(counts)
    places = head + np.cumsum([0, *map(len, records)])[:-1]
    flat = [number for record in records for number in record]
    return np.array([len(counts), *np.cumsum([0, *counts]).tolist(), *places.tolist(), *flat], dtype=np.int64)
