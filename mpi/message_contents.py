"""What agents tell each other: tables going up, values and what others add coming down, and the bytes of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.sparse.sparse_table import AnyTable, ListedTable

_WORD = 8  # bytes of a variable's or value's index in a message

Values = dict[int, int]


@dataclass(frozen=True)
class Sent:
    """What an agent sent: messages, bytes in all of them, and of which kind they are."""

    count: int = 0
    size: int = 0
    kind: str = ""


class Clock(NamedTuple):
    """An agent's own clock, as if every agent had a machine to itself and messages took no time.

    Attributes
    ----------
    seconds : float
        Simulated time (Sultanik et al. 2008).
    checks : int
        Non-concurrent constraint checks (Meisels et al. 2002): joined cells of eliminations, and values of a variable
        that draws have looked at.
    """

    seconds: float = 0.0
    checks: int = 0

    def after(self, seconds: float, checks: int = 0) -> "Clock":
        """Return the clock after some work."""
        return Clock(self.seconds + seconds, self.checks + checks)


def latest(clocks: Iterable[Clock]) -> Clock:
    """Return when the last of some has come: of seconds and of checks, each for itself."""
    seconds, checks = 0.0, 0
    for clock in clocks:
        seconds, checks = max(seconds, clock.seconds), max(checks, clock.checks)
    return Clock(seconds, checks)


class Utils(NamedTuple):
    """One UTIL message: tables from below, and from above; the same object where they do not differ."""

    lower: UtilMessage
    upper: UtilMessage | None


class Chosen(NamedTuple):
    """Interface values that the VALUE phase gave an agent: by the tables from below, and by those from above."""

    lower: Values
    upper: Values | None


def util_size(message: Utils | None) -> int:
    """Return the bytes of a UTIL message: its tables' entries, and one word for each variable of a scope."""
    if message is None:
        return 0
    tables = [*message.lower, *(message.upper or () if message.upper is not message.lower else ())]
    return tables_size(tables)


def tables_size(tables: Sequence[AnyTable]) -> int:
    """Return the bytes of some tables in a message: of an incomplete one those of its rows."""
    return sum(bytes_of(table) + _WORD * len(table.scope) for table in tables)


def bytes_of(table: AnyTable) -> int:
    """Return the bytes that a table takes as it is."""
    return table.nbytes if isinstance(table, ListedTable | DeviceTable) else table.values.nbytes


def value_size(message: Chosen | None) -> int:
    """Return the bytes of a VALUE message: two words a value, and values from above where they differ."""
    if message is None:
        return 0
    lower, upper = message
    differs = upper is not None and upper is not lower and upper != lower
    return 2 * _WORD * (len(message.lower) + (len(message.upper or ()) if differs else 0))
