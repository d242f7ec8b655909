"""Messages as typed buffers: a header of 64-bit integers with a version, then the entries of tables as in memory.

===========  =============================================================================================
integer 0    a mark of this program's messages, and the version of this format
integer 1    kind of message, its index in :data:`KINDS`
integer 2    lower agent of the tree edge that the message goes along
integer 3-4  the sender's clock: seconds, as the bits of a float64; constraint checks
integer 5-6  number of integers, and of arrays, that follow
integers     depend on the kind; they include scopes of tables, and shapes of tables in a sparse form
arrays       for each: index of its dtype, number of axes, their lengths
bytes        the arrays' entries if all arrays are small; otherwise they follow in separate messages
===========  =============================================================================================

Nothing is pickled, so a message takes the size of its tables, in transit and in memory. A table is sent in sparse form
if most entries equal its smallest one: −∞ as a rule (forbidden, or unable to beat the incumbent). The sparse form has
positions and values of the other entries. If the smallest entry is −∞, the receiver gets a sparse table.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, UsableRows, UtilMessage, UtilTables, Values
from dmcmc.inference.model.arithmetic import ADDENDS, EncodedTable
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import AnyTable, Fields, SparseBackedTable, SparseTable, fields_of
from dmcmc.mpi import tuning

KINDS = ("UTIL", "VALUE", "OUTSIDE", "REQUEST", "USABLE")
VERSION = 6  # of this format; ranks with different versions cannot exchange messages
_ASSIGNMENT_KINDS = ("VALUE", "REQUEST")  # kinds whose contents are ``ChosenValues``
_MARK = 0x444D434D << 16  # "DMCM"
_HEADER_INTEGERS = 7  # integers before those that depend on the kind
# Dtypes of arrays; a message has the index, so the order is part of the format.
_DTYPES = tuple(np.dtype(name) for name in ("<i4", "<i8", "<f4", "<f8", "|u1", "|i1", "<i2"))
_MAX_CHECKS = 1 << 62  # larger counts of checks are sent as this one
_MAX_SPARSE_ENTRIES = 1 << 31  # positions in larger tables do not fit 32 bits
_DENSE, _ABOVE_SMALLEST, _SPARSE = range(3)  # form of a table: all entries, those above the smallest, sparse table
# State of a message: the sender has failed; upper contents equal the lower ones; no upper contents; both.
_FAILED, _SAME, _LOWER, _BOTH = range(4)

AgentMessage = UtilTables | ChosenValues | UtilMessage | tuple[UsableRows, ...] | None  # None: the sender has failed


class WireError(RuntimeError):
    """Bytes that are not a message of this version, because ranks run different versions of dmcmc."""


class Envelope(NamedTuple):
    """A message with its tree edge and its sender's clock.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    agent : int
        The lower agent of the tree edge.
    message : AgentMessage
        The contents.
    clock : Clock
        The sender's simulated clock.
    """

    kind: str
    agent: int
    message: AgentMessage
    clock: Clock


class MessageHeader(NamedTuple):
    """The header of a message, read: everything except the arrays that follow it.

    Attributes
    ----------
    kind : int
        Index in :data:`KINDS`.
    agent : int
        The lower agent of the tree edge.
    clock : Clock
        The sender's simulated clock.
    integers : list of int
        The integers that depend on the kind.
    arrays : list of (dtype, shape)
        The message's arrays.
    inline : bytes
        The arrays' entries, if they are part of the header.
    """

    kind: int
    agent: int
    clock: Clock
    integers: list[int]
    arrays: list[tuple[np.dtype[Any], tuple[int, ...]]]
    inline: bytes


def pack(envelope: Envelope, inline: int) -> tuple[bytes, list[Array]]:
    """Return a message's header and the arrays that follow it.

    Parameters
    ----------
    envelope : Envelope
        The message.
    inline : int
        Maximum bytes of arrays to include in the header; then no arrays follow.
    """
    integers, arrays = _integers_of(envelope.kind, envelope.message)
    arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
    seconds = int(np.float64(envelope.clock.seconds).view(np.int64))
    clock = (seconds, min(envelope.clock.checks, _MAX_CHECKS))
    header = [
        _MARK | VERSION,
        KINDS.index(envelope.kind),
        envelope.agent,
        *clock,
        len(integers),
        len(arrays),
        *integers,
    ]
    for array in arrays:
        header += [_DTYPES.index(array.dtype), array.ndim, *array.shape]
    packed = np.array(header, dtype="<i8").tobytes()
    if sum(array.nbytes for array in arrays) > inline:
        return packed, arrays
    return packed + b"".join(array.tobytes() for array in arrays), []


def read_header(received: bytes | bytearray) -> MessageHeader:
    """Return a header.

    Raises
    ------
    WireError
        If the bytes are not of this version.
    """
    all_integers = np.frombuffer(received, dtype="<i8", count=len(received) // 8)
    if all_integers.size < _HEADER_INTEGERS or int(all_integers[0]) != _MARK | VERSION:
        raise WireError("a message is of another version of dmcmc: all ranks have to run the same one")
    _, kind, agent, _, _, count, arrays = all_integers[:_HEADER_INTEGERS].tolist()
    clock = Clock(float(all_integers[3:4].view("<f8")[0]), int(all_integers[4]))
    remaining = iter(all_integers[_HEADER_INTEGERS:].tolist())
    integers = [next(remaining) for _ in range(count)]
    array_forms, used = [], _HEADER_INTEGERS + count
    for _ in range(arrays):
        dtype, axes = _DTYPES[next(remaining)], next(remaining)
        array_forms.append((dtype, tuple(next(remaining) for _ in range(axes))))
        used += 2 + axes
    return MessageHeader(kind, agent, clock, integers, array_forms, bytes(received[8 * used :]))


def inline_arrays(header: MessageHeader) -> list[Array]:
    """Return the arrays whose entries are part of the header."""
    arrays, offset = list[Array](), 0
    for dtype, shape in header.arrays:
        count = prod(shape)
        arrays.append(np.frombuffer(header.inline, dtype, count, offset).reshape(shape).astype(dtype))
        offset += count * dtype.itemsize
    return arrays


def unpack(header: MessageHeader, arrays: Sequence[Array]) -> Envelope:
    """Return the message of a header and its arrays."""
    integers, tables = iter(header.integers), iter(arrays)
    kind = KINDS[header.kind]
    message: AgentMessage
    if kind == "UTIL":
        message = _read_utils(integers, tables)
    elif kind in _ASSIGNMENT_KINDS:
        message = _read_chosen(integers)
    elif kind == "USABLE":
        message = None if next(integers) == _FAILED else _read_usable(integers, tables)
    else:
        message = None if next(integers) == _FAILED else _read_tables(integers, tables)
    return Envelope(kind, header.agent, message, header.clock)


def _integers_of(kind: str, message: Any) -> tuple[list[int], list[Array]]:
    """Return a message's integers and arrays.

    The first integer is ``_FAILED``, ``_SAME``, ``_LOWER`` or ``_BOTH``. An assignment follows as its number of
    variables, the variables, and their values.
    """
    if message is None:
        return [_FAILED], []
    if kind == "USABLE":
        words = [word for usable in message for word in (len(usable.scope), *usable.scope, *usable.rows.shape)]
        return [_LOWER, len(message), *words], [np.packbits(usable.rows) for usable in message]
    if kind == "OUTSIDE":
        integers, arrays = _tables_to_send(message)
        return [_LOWER, *integers], arrays
    lower, upper = message
    state = (
        _LOWER
        if upper is None
        else _SAME
        if upper is lower or (kind in _ASSIGNMENT_KINDS and upper == lower)
        else _BOTH
    )
    sides = [lower, upper] if state == _BOTH else [lower]
    if kind in _ASSIGNMENT_KINDS:
        return [state, *(word for side in sides for word in (len(side), *side.keys(), *side.values()))], []
    written = [_tables_to_send(side) for side in sides]
    return [state, *(word for integers, _ in written for word in integers)], [
        a for _, arrays in written for a in arrays
    ]


def _tables_to_send(tables: UtilMessage) -> tuple[list[int], list[Array]]:
    """Return the integers and arrays of some tables: their number, then number of variables, scope and form of each."""
    integers, arrays = [len(tables)], list[Array]()
    for table in tables:
        integers += [len(table.scope), *table.scope]
        if isinstance(table, SparseBackedTable):
            form, smallest, entries = _SPARSE, table.lowest, table.rows.values
            positions, shape = _shortest_keys(table.rows.keys, table.shape), table.shape
        else:
            sparse_form, shape = _sparse_form(table.values), table.values.shape
            if sparse_form is None:
                integers.append(_DENSE)
                arrays.append(table.values)
                continue
            form, smallest, positions, entries = sparse_form
        encoded = (
            int(np.asarray(smallest, dtype=np.float64).view(np.int64)) if entries.dtype.kind == "f" else int(smallest)
        )
        integers += [form, encoded, *shape]
        arrays += [positions, entries]
    return integers, arrays


def _shortest_keys(keys: Ints, shape: Sequence[int]) -> Array:
    """Return packed keys as int32 if they need fewer than 32 bits, else as they are (int64)."""
    return keys.astype(np.int32) if _key_fields(shape).bits < 32 else keys


def _key_fields(shape: Sequence[int]) -> Fields:
    """Return the bit fields of packed keys for a table of this shape.

    A packed key is the position of an entry as one integer, with one bit field per axis.
    """
    return fields_of(range(len(shape)), np.array(shape, dtype=np.int64))


def _sparse_form(values: Array) -> tuple[int, Any, Array, Array] | None:
    """Return a table's form, smallest entry, and positions and values of the others; None for the dense form.

    A sparse form is used if it takes at most 3/4 of the bytes (4 per position). It is a sparse table for the receiver
    if the smallest entry is −∞ and no other integer entry is below half of it, which would be a sum with −∞.
    """
    if not tuning.MIN_SPARSE_ENTRIES <= values.size < _MAX_SPARSE_ENTRIES:
        return None
    flat = np.ascontiguousarray(values).reshape(-1)
    smallest = flat.min()
    other = flat != smallest
    if 4 * np.count_nonzero(other) * (4 + flat.itemsize) > 3 * flat.nbytes:
        return None
    positions = np.flatnonzero(other)
    entries = flat[positions]
    lowest = smallest == -np.inf if flat.dtype.kind == "f" else smallest == np.iinfo(flat.dtype).min // ADDENDS
    if not lowest or (flat.dtype.kind == "i" and entries.min(initial=0) < smallest // 2):
        return _ABOVE_SMALLEST, smallest, positions.astype(np.int32), entries
    keys = np.zeros(positions.size, dtype=np.int64)
    for digits, shift in zip(np.unravel_index(positions, values.shape), _key_fields(values.shape).shift, strict=True):
        keys |= digits << shift
    return _SPARSE, smallest, _shortest_keys(keys, values.shape), entries


def _read_utils(integers: Iterator[int], arrays: Iterator[Array]) -> UtilTables | None:
    """Return the contents of a UTIL message; None if the sender has failed."""
    state = next(integers)
    if state == _FAILED:
        return None
    lower = _read_tables(integers, arrays)
    if state == _BOTH:
        return UtilTables(lower, _read_tables(integers, arrays))
    return UtilTables(lower, lower if state == _SAME else None)


def _read_tables(integers: Iterator[int], arrays: Iterator[Array]) -> UtilMessage:
    """Return the tables at the next position of the integers and arrays."""
    tables = list[AnyTable]()
    for _ in range(next(integers)):
        scope = tuple(next(integers) for _ in range(next(integers)))
        form = next(integers)
        if form == _DENSE:
            tables.append(EncodedTable(scope, next(arrays)))
            continue
        smallest, shape = next(integers), tuple(next(integers) for _ in scope)
        positions, entries = next(arrays), next(arrays)
        fill = float(np.int64(smallest).view(np.float64)) if entries.dtype.kind == "f" else smallest
        if form == _SPARSE:
            tables.append(SparseBackedTable(SparseTable(scope, positions.astype(np.int64), entries), shape, fill))
            continue
        values: Array = np.full(prod(shape), fill, dtype=entries.dtype)
        values[positions] = entries
        tables.append(EncodedTable(scope, values.reshape(shape)))
    return tuple(tables)


def _read_usable(integers: Iterator[int], arrays: Iterator[Array]) -> tuple[UsableRows, ...]:
    """Return the usable rows at the next position of the integers and arrays, which have a bit per row."""
    usable = list[UsableRows]()
    for _ in range(next(integers)):
        scope = tuple(next(integers) for _ in range(next(integers)))
        shape = tuple(next(integers) for _ in scope)
        rows = np.unpackbits(next(arrays), count=prod(shape)).astype(bool)
        usable.append(UsableRows(scope, rows.reshape(shape)))
    return tuple(usable)


def _read_chosen(integers: Iterator[int]) -> ChosenValues | None:
    """Return the contents of a VALUE message or a request; None if the sender has failed."""
    state = next(integers)
    if state == _FAILED:
        return None
    lower = _read_values(integers)
    if state == _BOTH:
        return ChosenValues(lower, _read_values(integers))
    return ChosenValues(lower, lower if state == _SAME else None)


def _read_values(integers: Iterator[int]) -> Values:
    """Return the assignment at the next position of the integers."""
    count = next(integers)
    variables = [next(integers) for _ in range(count)]
    return {variable: next(integers) for variable in variables}
