"""The tables of all plain constraints of a ``.wcsp`` file, filled by compiled code in one pass."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.common.entries import claim_structures
from dmcmc.formats.wcsp import table_kernels as wcsp_kernels
from dmcmc.formats.wcsp.numbers import WcspNumbers
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array, Ints

# The limits for dense tables are those of dmcmc.inference.model.sparse_factor.
_ALWAYS_DENSE_ENTRIES = 2048  # a table of up to this many entries is dense
_MAX_ENTRIES_PER_TUPLE = 16  # a larger dense table may have this many entries per listed tuple
_MAX_DENSE_AXES = 64  # NumPy's limit for the axes of a dense table
_COPIES = 4  # arrays of a table's size that exist while its factor is built
MIN_COST = -(2**62)
"""Lower limit for a cost; leaves headroom in int64."""

FORBIDDEN = np.iinfo(np.int64).min
"""Utility of a forbidden entry."""


def dense_factors(numbers: WcspNumbers, domains: Ints, starts: Ints, entries: Ints, top: int) -> list[Factor | None]:
    """Return the factors of the plain constraints whose tables are small or full enough to be dense.

    Parameters
    ----------
    numbers : WcspNumbers
        The numbers of the file.
    domains : (variables,) int64
        Domain sizes.
    starts : (constraints,) int64
        Index in ``numbers.all`` of the first number of each plain constraint.
    entries : (constraints,) int64
        Number of entries of each plain constraint's dense table; 0 for other constraints.
    top : int
        The cost from which on an assignment is forbidden.

    Returns
    -------
    list of Factor or None
        The factors, one per constraint; None for those that are not plain or not dense.

    Raises
    ------
    FileError
        If the tables do not fit the memory, or a value or cost is invalid.
    """
    count = starts.size
    claim_structures(domains.size, count)
    n_tuples = np.zeros(count, dtype=np.int64)
    plain = entries > 0
    arity = np.where(plain, numbers.all[starts], 0) if numbers.all.size else np.zeros(count, dtype=np.int64)
    n_tuples[plain] = numbers.all[starts[plain] + 2 + arity[plain]]
    dense = (
        plain
        & (entries <= np.maximum(_ALWAYS_DENSE_ENTRIES, _MAX_ENTRIES_PER_TUPLE * n_tuples))
        & (arity <= _MAX_DENSE_AXES)
    )
    sizes = np.where(dense, entries, 0)
    total, limit = int(sizes.sum(dtype=np.float64)), memory_limit()
    if 8 * _COPIES * total > limit:
        constraint = int(np.flatnonzero(np.cumsum(sizes.astype(np.float64)) * 8 * _COPIES > limit)[0])
        what = f"constraint {constraint}: a table of {sizes[constraint]} entries"
        numbers.fail(f"{what}; tables may take {format_bytes(limit)} in all", int(starts[constraint]))
    table_begin = np.append(0, np.cumsum(sizes))
    data, max_abs_cost = np.empty(int(table_begin[-1]), dtype=np.int64), np.zeros(count, dtype=np.int64)
    max_cost = min(top, 2**63) - 1
    constraint, number, reason = wcsp_kernels.fill_tables(
        numbers.all, domains, starts, table_begin, data, max_cost, MIN_COST, max_abs_cost
    )
    if reason == wcsp_kernels.VALUE:
        numbers.fail(f"constraint {constraint}: a value outside its domain", number)
    if reason == wcsp_kernels.COST:
        numbers.fail(f"constraint {constraint}: a cost below -2^62", number)
    wide, narrow = _frozen(data, max_abs_cost)
    sizes_of, is_narrow, begins = domains.tolist(), (max_abs_cost < 2**31).tolist(), table_begin.tolist()
    factors: list[Factor | None] = []
    for c, scope in enumerate(_scopes(numbers.all, starts, arity, dense)):
        if scope is None:
            factors.append(None)
            continue
        table = (narrow if is_narrow[c] else wide)[begins[c] : begins[c + 1]]
        factors.append(Factor(scope, table.reshape([sizes_of[v] for v in scope]), f"c{c}"))
    return factors


def _frozen(data: Array, max_abs_cost: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return the dense tables as read-only int64 and int32 arrays.

    A constraint uses the int32 array if its costs fit (absolute value below 2^31), else the int64 array.

    Parameters
    ----------
    data
        (entries,) int64. Utilities of all dense tables, concatenated; the smallest int64 is forbidden.
    max_abs_cost
        (constraints,) int64. Largest absolute cost of each constraint.

    Returns
    -------
    wide, narrow
        (entries,) int64, empty if no constraint needs it; and (entries,) int32, whose entries are valid only for
        constraints with costs below 2^31.
    """
    hard = data == FORBIDDEN
    narrow = data.astype(np.int32)
    narrow[hard] = forbidden_value(narrow.dtype)
    data.flags.writeable = narrow.flags.writeable = False
    return data if (max_abs_cost >= 2**31).any() else data[:0], narrow


def _scopes(
    numbers: NDArray[np.int64], starts: NDArray[np.int64], arity: NDArray[np.int64], dense: NDArray[np.bool_]
) -> list[tuple[int, ...] | None]:
    """Return the scope of each dense constraint, None for others; constraints of equal arity are read together."""
    scopes: list[tuple[int, ...] | None] = [None] * starts.size
    for k in np.unique(arity[dense]).tolist():
        constraints = np.flatnonzero(dense & (arity == k))
        columns = [numbers[starts[constraints] + 1 + i].tolist() for i in range(k)]
        for c, scope in zip(
            constraints.tolist(), zip(*columns, strict=True) if k else [()] * constraints.size, strict=True
        ):
            scopes[c] = scope
    return scopes
