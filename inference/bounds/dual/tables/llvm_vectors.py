"""Tables of numbers of four bytes as vectors of LLVM, for kernels to which Numba's loops do too little at a time.

LLVM makes of vectors what a processor has; rows need not begin where its own vectors would.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

_SIZE = 4  # bytes of an entry
_BYTES = ir.IntType(8).as_pointer()
LANES = 8  # entries that are worked on at once; domains are padded to a multiple
INTEGER, FLOAT = ir.IntType(32), ir.FloatType()


class Table:
    """A table (rows, columns), or a row (columns,), that a kernel was given, as code that is being made sees it.

    Parameters
    ----------
    context, builder
        Of the code.
    kind
        Numba's type of the array.
    value
        The array.
    """

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self._builder, self._data = builder, builder.bitcast(array.data, _BYTES)
        self._strides = cgutils.unpack_tuple(builder, array.strides)
        if kind.layout in "CF":  # known, entries lie side by side
            self._strides[-1 if kind.layout == "C" else 0] = ir.Constant(self._strides[0].type, _SIZE)

    def place(self, i: Any, j: Any) -> Any:
        """Return where entry (i, j) is; of a table with one axis, where j is."""
        builder, (*rows, column) = self._builder, self._strides
        there = builder.mul(column, j)
        return builder.gep(self._data, [builder.add(builder.mul(rows[0], i), there) if rows else there])

    def load(self, i: Any, j: Any, kind: Any) -> Any:
        """Return what is at (i, j) as a number, or a row's entries from there on as a vector."""
        return self._builder.load(self._as(kind, i, j), align=_SIZE)

    def store(self, i: Any, j: Any, value: Any) -> None:
        """Write a number to (i, j), or a vector to a row's entries from there on."""
        self._builder.store(value, self._as(value.type, i, j), align=_SIZE)

    def row_maxima(self, i: Any, columns: Any, least: Any) -> Any:
        """Return the larger of ``least``, a vector, and each whole vector of a row's first ``columns`` entries."""
        builder = self._builder

        def turn(k: Any, tops: Sequence[Any]) -> list[Any]:
            return [larger(builder, self.load(i, times(builder, k, LANES), least.type), *tops)]

        return repeated(builder, blocks(builder, columns), [least], turn)[0]

    def _as(self, kind: Any, i: Any, j: Any) -> Any:
        return self._builder.bitcast(self.place(i, j), kind.as_pointer())


def splat(builder: Any, number: Any, lanes: int) -> Any:
    """Return a vector of one number."""
    nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    alone = builder.insert_element(nothing, number, ir.Constant(INTEGER, 0))
    return builder.shuffle_vector(alone, nothing, ir.Constant(ir.VectorType(INTEGER, lanes), [0] * lanes))


def constant(kind: Any, lanes: int, number: float) -> Any:
    """Return a vector of a number that is known."""
    return ir.Constant(ir.VectorType(kind, lanes), [number] * lanes)


def times(builder: Any, number: Any, factor: int) -> Any:
    """Return an integer so many times."""
    return builder.mul(number, ir.Constant(number.type, factor))


def blocks(builder: Any, columns: Any) -> Any:
    """Return how many vectors so many columns are."""
    return builder.sdiv(columns, ir.Constant(columns.type, LANES))


def repeated(
    builder: Any, count: Any, first: Sequence[Any], body: Callable[[Any, Sequence[Any]], list[Any]]
) -> list[Any]:
    """Emit a loop and return what its values have become.

    Parameters
    ----------
    count
        How often, 1 at least.
    first
        What the values are before it.
    body
        ``body(k, values)`` emits one turn and returns the values after it.
    """
    before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, values = builder.phi(count.type), [builder.phi(value.type) for value in first]
    changed = body(k, values)
    following = builder.add(k, ir.Constant(k.type, 1))
    k.add_incoming(ir.Constant(k.type, 0), before)
    k.add_incoming(following, loop)
    for value, start, end in zip(values, first, changed, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(end, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    return changed


def larger(builder: Any, one: Any, other: Any) -> Any:
    """Return the larger of two integers, or of each two."""
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def largest(builder: Any, vector: Any) -> Any:
    """Return the largest integer of a vector."""
    step = vector.type.count
    places = ir.VectorType(INTEGER, step)
    while step > 1:
        step //= 2
        order = [place ^ step for place in range(vector.type.count)]
        vector = larger(builder, vector, builder.shuffle_vector(vector, vector, ir.Constant(places, order)))
    return builder.extract_element(vector, ir.Constant(INTEGER, 0))
