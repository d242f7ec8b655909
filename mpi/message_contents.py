"""The contents of messages between agents: tables, assignments and outside bounds, and their sizes in bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.model.arithmetic import is_allowed
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.sparse.sparse_table import AnyTable, SparseBackedTable

if TYPE_CHECKING:
    from dmcmc.inference.dpop.usable_rows import UsableRows

_INDEX_BYTES = 8  # bytes of the index of a variable or a value in a message

Values = dict[int, int]


@dataclass(frozen=True)
class SentMessages:
    """Statistics of the messages that an agent has sent.

    Attributes
    ----------
    count : int
        Number of messages.
    size : int
        Bytes of all of them.
    kind : str
        Kind of the messages, such as ``UTIL``.
    entries : int
        Table entries in UTIL messages.
    """

    count: int = 0
    size: int = 0
    kind: str = ""
    entries: int = 0


def added(sent: SentMessages, more: SentMessages) -> SentMessages:
    """Return the statistics of two groups of messages of one kind together."""
    return SentMessages(sent.count + more.count, sent.size + more.size, sent.kind, sent.entries + more.entries)


class Clock(NamedTuple):
    """An agent's simulated clock, as if every agent had a machine to itself and messages took no time.

    Attributes
    ----------
    seconds : float
        Simulated time (Sultanik et al. 2008).
    checks : int
        Non-concurrent constraint checks (Meisels et al. 2002): joined cells of eliminations, and values of a variable
        that draws have examined.
    """

    seconds: float = 0.0
    checks: int = 0

    def after(self, seconds: float, checks: int = 0) -> "Clock":
        """Return the clock after some work."""
        return Clock(self.seconds + seconds, self.checks + checks)


def latest(clocks: Iterable[Clock]) -> Clock:
    """Return the maximum of some clocks, separately of seconds and of checks."""
    seconds, checks = 0.0, 0
    for clock in clocks:
        seconds, checks = max(seconds, clock.seconds), max(checks, clock.checks)
    return Clock(seconds, checks)


class UtilTables(NamedTuple):
    """The contents of a UTIL message.

    Attributes
    ----------
    lower, upper : tuple of tables
        Tables of lower bounds, and of upper bounds or None; the same object if they do not differ.
    """

    lower: UtilMessage
    upper: UtilMessage | None


class ChosenValues(NamedTuple):
    """The contents of a VALUE message: values of variables, {variable: value}.

    Attributes
    ----------
    lower, upper : dict
        Values that maximise the lower tables, and values that maximise the upper tables or None.
    """

    lower: Values
    upper: Values | None


def util_size(message: UtilTables | None) -> int:
    """Return the bytes of a UTIL message: the entries of its tables, and one index per variable of a scope."""
    if message is None:
        return 0
    tables = [*message.lower, *(message.upper or () if message.upper is not message.lower else ())]
    return tables_size(tables)


def util_entries(message: UtilTables | None) -> int:
    """Return the number of entries of the lower tables of a UTIL message that are not −∞.

    Upper tables of the same entries are bounds on them, or the same numbers.
    """
    return 0 if message is None else sum(map(_entries_of, message.lower))


def _entries_of(table: AnyTable) -> int:
    """Return the number of entries of a table that are not −∞, all entries of a table on a GPU; 0 for a constant."""
    if not table.scope:
        return 0
    if isinstance(table, SparseBackedTable):
        return table.rows.rows
    if isinstance(table, DeviceTable):
        return prod(table.shape)
    return int(np.count_nonzero(is_allowed(table.values)))


def tables_size(tables: Sequence[AnyTable]) -> int:
    """Return the bytes of some tables in a message; a sparse table counts its stored entries only."""
    return sum(bytes_of(table) + _INDEX_BYTES * len(table.scope) for table in tables)


def bytes_of(table: AnyTable) -> int:
    """Return the bytes of a table in its present form."""
    return table.nbytes if isinstance(table, SparseBackedTable | DeviceTable) else table.values.nbytes


def usable_size(message: "Sequence[UsableRows]") -> int:
    """Return the bytes of a message with usable rows: a bit per row, and one index per variable of a scope."""
    return sum(usable.message_bytes for usable in message)


def value_size(message: ChosenValues | None) -> int:
    """Return the bytes of a VALUE message: two indices per value, and the upper values if they differ."""
    if message is None:
        return 0
    lower, upper = message
    differs = upper is not None and upper is not lower and upper != lower
    return 2 * _INDEX_BYTES * (len(message.lower) + (len(message.upper or ()) if differs else 0))
