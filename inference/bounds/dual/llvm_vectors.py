"""Emit LLVM vector code for tables of four-byte numbers, where Numba's own loops process too few entries at a time.

The kernels of this package use it. The functions run while Numba compiles an intrinsic and add instructions to the LLVM
``builder``. The arguments that are typed ``Any`` are LLVM values unless stated otherwise. A vector has ``LANES``
entries; LLVM splits or joins vectors to suit the processor. A table row need not start at an aligned address.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.runtime.interpreted import intrinsic

_ENTRY_BYTES = 4  # bytes per entry
_BYTE_POINTER = ir.IntType(8).as_pointer()
LANES = 8  # entries per vector; domains are padded to a multiple of it
INTEGER = ir.IntType(32)
FLOAT = ir.FloatType()
INTEGER_LANES, FLOAT_LANES = ir.VectorType(INTEGER, LANES), ir.VectorType(FLOAT, LANES)


class VectorTable:
    """Array argument of a kernel as seen by the code generator: a table (rows, columns) or a single row (columns,).

    Parameters
    ----------
    context : BaseContext
        Numba's code generation context.
    builder : IRBuilder
        LLVM builder that receives the instructions.
    kind : types.Array
        Numba's type of the array; its entries have four bytes.
    value : LLVM value
        The array.
    """

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self._builder, self._data = builder, builder.bitcast(array.data, _BYTE_POINTER)
        self._strides = cgutils.unpack_tuple(builder, array.strides)
        if kind.layout in "CF":  # contiguous entries: the stride is a compile-time constant
            self._strides[-1 if kind.layout == "C" else 0] = ir.Constant(self._strides[0].type, _ENTRY_BYTES)

    def address(self, i: Any, j: Any) -> Any:
        """Return the address of entry (i, j); for an array with one axis ``i`` is ignored."""
        builder, (*rows, column) = self._builder, self._strides
        offset = builder.mul(column, j)
        return builder.gep(self._data, [builder.add(builder.mul(rows[0], i), offset) if rows else offset])

    def load(self, i: Any, j: Any, kind: Any) -> Any:
        """Load from address (i, j): one number, or a vector of consecutive entries if ``kind`` is a vector type."""
        return self._builder.load(self._typed_address(kind, i, j), align=_ENTRY_BYTES)

    def store(self, i: Any, j: Any, value: Any) -> None:
        """Store a number at (i, j), or a vector to the consecutive entries that start there."""
        self._builder.store(value, self._typed_address(value.type, i, j), align=_ENTRY_BYTES)

    def row_maximum(self, i: Any, columns: Any) -> Any:
        """Return the largest of the first ``columns`` entries of row i, at least ``FORBIDDEN``."""
        builder = self._builder

        def update(k: Any, maxima: Sequence[Any]) -> list[Any]:
            """Raise the maxima to the k-th vector of the row."""
            return [elementwise_maximum(builder, self.load(i, multiply_by(builder, k, LANES), INTEGER_LANES), *maxima)]

        return reduce_maximum(builder, *emit_loop(builder, vector_count(builder, columns), [FORBIDDEN_LANES], update))

    def column_maxima(self, j: Any, rows: Any) -> Any:
        """Return the maxima of eight columns, from j on, over the first ``rows`` rows, at least ``FORBIDDEN``."""

        def update(k: Any, maxima: Sequence[Any]) -> list[Any]:
            """Raise the maxima to the entries of row k."""
            return [elementwise_maximum(self._builder, self.load(k, j, INTEGER_LANES), *maxima)]

        return emit_loop(self._builder, rows, [FORBIDDEN_LANES], update)[0]

    def _typed_address(self, kind: Any, i: Any, j: Any) -> Any:
        """Return the address of entry (i, j) as a pointer to ``kind``."""
        return self._builder.bitcast(self.address(i, j), kind.as_pointer())


def vector_intrinsic(twin: Callable[..., Any], result: Any = types.void) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes an intrinsic of ``emit(builder, *arguments)``; arrays become ``VectorTable``.

    Parameters
    ----------
    twin : callable
        Computes the same in NumPy, from the same arguments; interpreted kernels call it.
    result : Numba type
        Type of what ``emit`` returns; the intrinsic returns nothing if it is ``types.void``.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Emit the intrinsic's code and return its result, if it has one."""
            values = [
                VectorTable(context, builder, kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            found = emit(builder, *values)
            return context.get_dummy_value() if found is None else found

        @wraps(emit)  # the first parameter, which Numba fills with its typing context, is the builder here
        def definition(context: Any, *kinds: Any) -> Any:
            return result(*map(types.unliteral, kinds)), generate

        return intrinsic(twin)(definition)

    return decorate


def splat(builder: Any, number: Any, lanes: int) -> Any:
    """Return a vector with ``number`` in every lane."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    single = builder.insert_element(undefined, number, ir.Constant(INTEGER, 0))
    return builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(INTEGER, lanes), [0] * lanes))


def constant(kind: Any, lanes: int, number: float) -> Any:
    """Return a vector constant with ``number`` in every lane."""
    return ir.Constant(ir.VectorType(kind, lanes), [number] * lanes)


FORBIDDEN_LANES = constant(INTEGER, LANES, FORBIDDEN)


def is_forbidden(builder: Any, entries: Any) -> Any:
    """Return a mask of the forbidden ones of eight entries."""
    return builder.icmp_signed("<", entries, constant(INTEGER, LANES, FORBIDDEN_BELOW))


def is_out_of_range(builder: Any, entries: Any) -> Any:
    """Return a mask of the ones of eight entries outside ±``MAX_MAGNITUDE``, with one unsigned comparison."""
    moved = builder.add(entries, constant(INTEGER, LANES, MAX_MAGNITUDE))
    return builder.icmp_unsigned(">", moved, constant(INTEGER, LANES, 2 * MAX_MAGNITUDE))


def mask_as_integer(builder: Any, mask: Any) -> Any:
    """Return a mask of eight lanes as an integer, 0 if no lane is set."""
    return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), ir.IntType(64))


def multiply_by(builder: Any, number: Any, factor: int) -> Any:
    """Return an integer value multiplied by the Python integer ``factor``."""
    return builder.mul(number, ir.Constant(number.type, factor))


def vector_count(builder: Any, columns: Any) -> Any:
    """Return the number of vectors that ``columns`` entries fill."""
    return builder.sdiv(columns, ir.Constant(columns.type, LANES))


def emit_loop(
    builder: Any, count: Any, first: Sequence[Any], body: Callable[[Any, Sequence[Any]], list[Any]]
) -> list[Any]:
    """Emit a counted loop and return its loop-carried values after the last iteration.

    Parameters
    ----------
    count : LLVM integer
        Number of iterations, at least 1.
    first : sequence of LLVM values
        Loop-carried values before the first iteration.
    body : callable
        ``body(k, values)`` emits iteration k and returns the loop-carried values after it.
    """
    before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, values = builder.phi(count.type), [builder.phi(value.type) for value in first]
    next_values = body(k, values)
    next_k = builder.add(k, ir.Constant(k.type, 1))
    k.add_incoming(ir.Constant(k.type, 0), before)
    k.add_incoming(next_k, loop)
    for value, start, end in zip(values, first, next_values, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(end, loop)
    builder.cbranch(builder.icmp_signed("<", next_k, count), loop, after)
    builder.position_at_end(after)
    return next_values


def elementwise_maximum(builder: Any, left: Any, right: Any) -> Any:
    """Return the larger of two integers, or the elementwise maximum of two integer vectors."""
    return builder.select(builder.icmp_signed(">", left, right), left, right)


def reduce_maximum(builder: Any, vector: Any) -> Any:
    """Return the largest lane of an integer vector."""
    step = vector.type.count
    shuffle_type = ir.VectorType(INTEGER, step)
    while step > 1:
        step //= 2
        permutation = [lane ^ step for lane in range(vector.type.count)]
        vector = elementwise_maximum(
            builder, vector, builder.shuffle_vector(vector, vector, ir.Constant(shuffle_type, permutation))
        )
    return builder.extract_element(vector, ir.Constant(INTEGER, 0))
