"""The tables of a step of a message on the GPU, which the kernels of ``row_kernels`` read, and their sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmcmc.inference.runtime.device import Device
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.cuda import descriptors as w
from dmcmc.inference.sparse.join_steps import JoinStep


@dataclass(frozen=True)
class DeviceStepTables:
    """The tables of a step on the device.

    Attributes
    ----------
    descriptor : int64
        The step, see :mod:`dmcmc.inference.sparse.cuda.descriptors`.
    data
        The entries of the dense tables.
    new_values, start, xs, values
        The joined table (or the first one) as vectors over the bucket's variable: packed values of the new variables,
        start of each vector's entries, and for each entry its value x and its utility.
    shared, group_start
        Packed values of the variables that the joined table shares with the rows, and first vector for each of them.
    groups : int
        Number of entries of ``shared``.
    """

    descriptor: Any
    data: Any
    new_values: Any
    start: Any
    xs: Any
    values: Any
    shared: Any
    group_start: Any
    groups: int


def first_tables(device: Device, step: JoinStep, x_size: int, begin: int, end: int) -> DeviceStepTables:
    """Return vectors ``begin`` to ``end`` − 1 of the first table, with keys in place of ``new_values``.

    Parameters
    ----------
    device
        The device.
    step
        The first step of the message.
    x_size
        Number of values of the bucket's variable.
    begin, end
        The range of vectors.
    """
    table = step.table
    assert table is not None
    rows = slice(int(table.start[begin]), int(table.start[end]))
    start = table.start[begin : end + 1] - rows.start
    return _copy_step(device, "first", step, x_size, (table.keys[begin:end], start, table.x[rows], table.values[rows]))


def later_tables(device: Device, j: int, step: JoinStep, x_size: int, dtype: np.dtype[Any]) -> DeviceStepTables:
    """Return the tables of step ``j``, which is not the first one, on the device.

    The other parameters are those of :func:`first_tables`; ``dtype`` is that of the utilities.
    """
    partner = step.partner
    if partner is None:
        none = np.zeros(0, dtype=np.int64)
        return _copy_step(device, str(j), step, x_size, (none, none, none, np.zeros(0, dtype=dtype)))
    lists = partner.new_values, partner.start, partner.x, partner.values
    tables = _copy_step(device, str(j), step, x_size, lists)
    shared, group = _copy(device, f"shared{j}", partner.shared), _copy(device, f"group{j}", partner.group_start)
    return replace(tables, shared=shared, group_start=group, groups=partner.shared.size)


def _copy_step(
    device: Device, name: str, step: JoinStep, x_size: int, lists: tuple[Ints, Ints, Ints, Array]
) -> DeviceStepTables:
    """Copy the descriptor, the dense tables and the given lists of a step to the device."""
    descriptor = _copy(device, "words" + name, _step_descriptor(step, x_size))
    data = _copy(device, "data" + name, step.lookups.data)
    new_values, start = _copy(device, "new_values" + name, lists[0]), _copy(device, "start" + name, lists[1])
    xs, values = _copy(device, "xs" + name, lists[2].astype(np.int32)), _copy(device, "values" + name, lists[3])
    return DeviceStepTables(
        descriptor, data, new_values, start, xs, values, shared=new_values, group_start=start, groups=0
    )


def _copy(device: Device, name: str, data: Array) -> Any:
    """Copy an array to a named buffer on the device."""
    return device.upload("rows/" + name, np.ascontiguousarray(data))


def step_bytes(step: JoinStep) -> int:
    """Return the device memory of a step's tables in bytes."""
    memory = step.lookups.data.nbytes + (1 << 12)  # 4 KiB for the descriptor
    if step.partner is not None:
        partner = step.partner
        memory += sum(
            a.nbytes for a in (partner.shared, partner.group_start, partner.new_values, partner.start, partner.values)
        )
        memory += partner.x.size * 4
    return memory + memory // 8  # buffers are allocated a little larger


def _step_descriptor(step: JoinStep, x_size: int) -> Ints:
    """Return the int64 descriptor of a step: the header, then the lists that its entries point to.

    ``w`` is the module with the layout: the names of the header's entries. The header entry of each list receives the
    list's position in the descriptor.
    """
    lookups, partner = step.lookups, step.partner
    lists: Sequence[Ints] = (
        lookups.offset,
        lookups.x_stride,
        lookups.y_stride,
        lookups.field_start,
        lookups.shift,
        lookups.mask,
        lookups.stride,
    )
    header = np.zeros(w.HEADER, dtype=np.int64)
    header[w.KIND] = w.FIRST if step.table is not None else w.EXTEND if partner is None else w.JOIN
    header[w.X_SIZE], header[w.SIZE] = x_size, step.size
    header[w.BITS] = step.bits if partner is None else partner.bits
    header[w.EXACT], header[w.TABLES] = lookups.exact, lookups.offset.size
    if partner is not None:
        header[w.SHARED] = partner.shift.size
        lists = (*lists, partner.shift, partner.mask, partner.target_shift)
    header_entries = (
        w.OFFSET,
        w.X_STRIDE,
        w.Y_STRIDE,
        w.FIELD_START,
        w.SHIFT,
        w.MASK,
        w.STRIDE,
        w.SHARED_SHIFT,
        w.SHARED_MASK,
        w.SHARED_TO,
    )
    at = w.HEADER
    for entry, values in zip(header_entries, lists, strict=False):
        header[entry] = at
        at += values.size
    return np.concatenate([header, *lists])
