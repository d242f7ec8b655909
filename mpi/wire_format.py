"""Messages as typed buffers: a head of 64-bit words with a version, then the entries of tables as they lie in memory.

==========  ==============================================================================================
word 0      what marks our messages, and the version of this layout
word 1      kind of message, its place in :data:`KINDS`
word 2      the lower agent of the tree edge that the message goes along
word 3, 4   the sender's clock: seconds, the bits of a float64; constraint checks
word 5, 6   how many words and how many arrays follow
words       what the kind says; scopes of tables among them, and shapes of tables that are incomplete
arrays      of each: number of its dtype, number of axes, their lengths
bytes       the arrays' entries where all of them are small; else they follow in messages of their own
==========  ==============================================================================================

Nothing is pickled, so a message is as large as its tables, and no larger than that in memory. A table most of whose
entries are the least one, −∞ as a rule (what cannot be, or cannot beat the incumbent), goes as an incomplete one: the
places and values of the others. If it is −∞ the receiver has an incomplete table too.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.model.arithmetic import ADDENDS, Table
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import AnyTable, Fields, Incomplete, ListedTable, fields_of
from dmcmc.mpi.message_contents import Chosen, Clock, Utils, Values

KINDS = ("UTIL", "VALUE", "OUTSIDE", "REQUEST")
VERSION = 5
_OF_VALUES = ("VALUE", "REQUEST")
_MARK = 0x444D434D << 16  # "DMCM"
_HEAD = 7  # words
_DTYPES = tuple(np.dtype(name) for name in ("<i4", "<i8", "<f4", "<f8", "|u1", "|i1", "<i2"))
_MOST_CHECKS = 1 << 62
_SMALL = 64  # entries of a table that goes as it is
_LISTED_MOST = 1 << 31  # entries of a table whose places fit 32 bits
_WHOLE, _BESIDE_LEAST, _ROWS = range(3)  # how a table goes: all entries, all but the least, what is not −∞
_FAILED, _SAME, _LOWER, _BOTH = range(4)  # states of a message that has two sides

Message = Utils | Chosen | UtilMessage | None  # None: the sender has failed


class WireError(RuntimeError):
    """Bytes that are no message of this version: ranks that run different versions."""


class Letter(NamedTuple):
    """A message with the edge that it goes along, and its sender's clock."""

    kind: str
    agent: int
    message: Message
    clock: Clock


class Head(NamedTuple):
    """A head that was read: all but the arrays' entries.

    Attributes
    ----------
    words : list of int
        What the kind says.
    arrays : list of (dtype, shape)
    inline : bytes
        The arrays' entries, where they came along.
    """

    kind: int
    agent: int
    clock: Clock
    words: list[int]
    arrays: list[tuple[np.dtype[Any], tuple[int, ...]]]
    inline: bytes


def pack(letter: Letter, inline: int) -> tuple[bytes, list[Array]]:
    """Return a message's head and the arrays that follow it.

    Parameters
    ----------
    inline
        Bytes of arrays up to which they are part of the head; none follow then.
    """
    words, arrays = _words_of(letter.kind, letter.message)
    arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
    seconds = int(np.float64(letter.clock.seconds).view(np.int64))
    clock = (seconds, min(letter.clock.checks, _MOST_CHECKS))
    head = [_MARK | VERSION, KINDS.index(letter.kind), letter.agent, *clock, len(words), len(arrays), *words]
    for array in arrays:
        head += [_DTYPES.index(array.dtype), array.ndim, *array.shape]
    packed = np.array(head, dtype="<i8").tobytes()
    if sum(array.nbytes for array in arrays) > inline:
        return packed, arrays
    return packed + b"".join(array.tobytes() for array in arrays), []


def read_head(given: bytes | bytearray) -> Head:
    """Return a head, or refuse what is none.

    Raises
    ------
    WireError
        If these bytes are not of this version.
    """
    whole = np.frombuffer(given, dtype="<i8", count=len(given) // 8)
    if whole.size < _HEAD or int(whole[0]) != _MARK | VERSION:
        raise WireError("a message is of another version of dmcmc: all ranks have to run the same one")
    _, kind, agent, _, _, count, arrays = whole[:_HEAD].tolist()
    clock = Clock(float(whole[3:4].view("<f8")[0]), int(whole[4]))
    rest = iter(whole[_HEAD:].tolist())
    words = [next(rest) for _ in range(count)]
    shapes, used = [], _HEAD + count
    for _ in range(arrays):
        dtype, axes = _DTYPES[next(rest)], next(rest)
        shapes.append((dtype, tuple(next(rest) for _ in range(axes))))
        used += 2 + axes
    return Head(kind, agent, clock, words, shapes, bytes(given[8 * used :]))


def inline_arrays(head: Head) -> list[Array]:
    """Return the arrays whose entries came with the head."""
    found, at = list[Array](), 0
    for dtype, shape in head.arrays:
        count = prod(shape)
        found.append(np.frombuffer(head.inline, dtype, count, at).reshape(shape).astype(dtype))
        at += count * dtype.itemsize
    return found


def open_letter(head: Head, arrays: Sequence[Array]) -> Letter:
    """Return the message whose arrays have come."""
    words, tables = iter(head.words), iter(arrays)
    kind = KINDS[head.kind]
    message: Message
    if kind == "UTIL":
        message = _utils(words, tables)
    elif kind in _OF_VALUES:
        message = _chosen(words)
    else:
        message = None if next(words) == _FAILED else _tables(words, tables)
    return Letter(kind, head.agent, message, head.clock)


def slices(array: Array, limit: int) -> Iterator[NDArray[np.uint8]]:
    """Yield an array's bytes in pieces of at most so many."""
    flat = array.reshape(-1).view(np.uint8)
    for begin in range(0, flat.size, limit):
        yield flat[begin : begin + limit]


def _words_of(kind: str, message: Any) -> tuple[list[int], list[Array]]:
    """Return a message's words, and the arrays that go with them."""
    if message is None:
        return [_FAILED], []
    if kind == "OUTSIDE":
        words, arrays = _written(message)
        return [_LOWER, *words], arrays
    lower, upper = message
    state = _LOWER if upper is None else _SAME if upper is lower or (kind in _OF_VALUES and upper == lower) else _BOTH
    sides = [lower, upper] if state == _BOTH else [lower]
    if kind in _OF_VALUES:
        return [state, *(word for side in sides for word in (len(side), *side.keys(), *side.values()))], []
    written = [_written(side) for side in sides]
    return [state, *(word for words, _ in written for word in words)], [a for _, arrays in written for a in arrays]


def _written(tables: UtilMessage) -> tuple[list[int], list[Array]]:
    """Return the number of tables, and of each how many variables it has, which, and how it goes; and their arrays."""
    words, arrays = [len(tables)], list[Array]()
    for table in tables:
        words += [len(table.scope), *table.scope]
        if isinstance(table, ListedTable):
            how, least, entries = _ROWS, table.lowest, table.rows.values
            places, shape = _short(table.rows.keys, table.shape), table.shape
        else:
            listed, shape = _listed(table.values), table.values.shape
            if listed is None:
                words.append(_WHOLE)
                arrays.append(table.values)
                continue
            how, least, places, entries = listed
        word = int(np.asarray(least, dtype=np.float64).view(np.int64)) if entries.dtype.kind == "f" else int(least)
        words += [how, word, *shape]
        arrays += [places, entries]
    return words, arrays


def _short(keys: Ints, shape: Sequence[int]) -> Array:
    """Return packed keys in as few bytes as they need."""
    return keys.astype(np.int32) if _fields(shape).bits < 32 else keys


def _fields(shape: Sequence[int]) -> Fields:
    return fields_of(range(len(shape)), np.array(shape, dtype=np.int64))


def _listed(values: Array) -> tuple[int, Any, Array, Array] | None:
    """Return how a table goes, its least entry, places and values of the others; None where all is not much more."""
    if not _SMALL <= values.size < _LISTED_MOST:
        return None
    flat = np.ascontiguousarray(values).reshape(-1)
    least = flat.min()
    other = flat != least
    if 4 * np.count_nonzero(other) * (4 + flat.itemsize) > 3 * flat.nbytes:
        return None
    places = np.flatnonzero(other)
    entries = flat[places]
    lowest = least == -np.inf if flat.dtype.kind == "f" else least == np.iinfo(flat.dtype).min // ADDENDS
    if not lowest or (flat.dtype.kind == "i" and entries.min(initial=0) < least // 2):
        return _BESIDE_LEAST, least, places.astype(np.int32), entries
    keys = np.zeros(places.size, dtype=np.int64)
    for digits, shift in zip(np.unravel_index(places, values.shape), _fields(values.shape).shift, strict=True):
        keys |= digits << shift
    return _ROWS, least, _short(keys, values.shape), entries


def _utils(words: Iterator[int], arrays: Iterator[Array]) -> Utils | None:
    state = next(words)
    if state == _FAILED:
        return None
    lower = _tables(words, arrays)
    if state == _BOTH:
        return Utils(lower, _tables(words, arrays))
    return Utils(lower, lower if state == _SAME else None)


def _tables(words: Iterator[int], arrays: Iterator[Array]) -> UtilMessage:
    tables = list[AnyTable]()
    for _ in range(next(words)):
        scope = tuple(next(words) for _ in range(next(words)))
        how = next(words)
        if how == _WHOLE:
            tables.append(Table(scope, next(arrays)))
            continue
        least, shape = next(words), tuple(next(words) for _ in scope)
        places, entries = next(arrays), next(arrays)
        fill = float(np.int64(least).view(np.float64)) if entries.dtype.kind == "f" else least
        if how == _ROWS:
            tables.append(ListedTable(Incomplete(scope, places.astype(np.int64), entries), shape, fill))
            continue
        values: Array = np.full(prod(shape), fill, dtype=entries.dtype)
        values[places] = entries
        tables.append(Table(scope, values.reshape(shape)))
    return tuple(tables)


def _chosen(words: Iterator[int]) -> Chosen | None:
    state = next(words)
    if state == _FAILED:
        return None
    lower = _values(words)
    if state == _BOTH:
        return Chosen(lower, _values(words))
    return Chosen(lower, lower if state == _SAME else None)


def _values(words: Iterator[int]) -> Values:
    count = next(words)
    variables = [next(words) for _ in range(count)]
    return {variable: next(words) for variable in variables}
