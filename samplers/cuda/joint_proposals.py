"""Pack several agents' chain models for the kernel of joint proposals, and choose the block size of its launches.

The kernel proposes new values of all hidden variables at once. It reads each factor through one *column*, the utilities
for all values of one hidden variable (its *own* variable), selected by the values of the *other* variables. The *lanes*
of a chain are the threads that share its work. A *jump table* is a table from which the change of a value is drawn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.cuda.batch import agent_headers
from dmcmc.samplers.cuda.descriptors import (
    DOMAINS_AT,
    FACTORS,
    FACTORS_AT,
    HIDDEN,
    ROWS,
    RUNS,
    TABLE_AT,
    VARIABLE_STARTS_AT,
    VARIABLES,
    WIDE_AT,
)
from dmcmc.samplers.model.chain_model import ChainModel

THREADS = 128  # per block
_MAX_LANES = 32  # threads per chain: one warp
_MAX_SHARED_BYTES = 48 << 10  # shared memory that a block may have without a special request


class JointBatch(NamedTuple):
    """Models of agents whose columns have the same dtype.

    Attributes
    ----------
    data : (entries,) uint16 or int32
        The columns, one agent after another.
    ints : (any,) int32
        Per agent: domain sizes; offsets of its variables' jump tables; the records of its factors (offset, own
        variable, other variable, stride of the other variable; each for all factors); and variables and strides of the
        factors with several other variables.
    jumps : (any,) uint32
        The agents' jump tables.
    headers : (agents, HEADER_SIZE) int64
        See :mod:`dmcmc.samplers.cuda.descriptors`.
    """

    data: Array
    ints: NDArray[np.int32]
    jumps: NDArray[np.uint32]
    headers: NDArray[np.int64]


def pack_joint_models(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> JointBatch:
    """Lay out models whose columns have the same dtype."""
    headers, ints = agent_headers(models, keys, runs), list[NDArray[np.int32]]()
    size = entries_before = jumps_before = 0

    def append(values: NDArray[Any]) -> int:
        """Append values to the array of int32; return their offset."""
        nonlocal size
        ints.append(values.astype(np.int32).reshape(-1))
        size += values.size
        return size - values.size

    for header, model in zip(headers, models, strict=True):
        header[TABLE_AT], header[FACTORS] = entries_before, model.factor_column.size
        header[DOMAINS_AT], header[VARIABLE_STARTS_AT] = append(model.domains), append(model.jump_at + jumps_before)
        records, others = _records(model)
        header[FACTORS_AT], header[WIDE_AT] = append(records), append(others)
        entries_before += model.data.size
        jumps_before += model.jumps.size
    return JointBatch(
        np.concatenate([m.data for m in models]),
        np.concatenate([*ints, np.zeros(1, dtype=np.int32)]),
        np.concatenate([m.jumps for m in models]),
        headers,
    )


def _records(model: ChainModel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the factors' records (4, factors): offset, own variable, other variable, its stride; and lists of others.

    A factor with no or several other variables has −1 less their number as the third entry, and as the fourth the
    offset of their variables and strides in the lists.
    """
    column, variable = model.factor_column, model.factor_variable
    first = model.other_start[column].astype(np.int64)
    count = model.other_start[column + 1] - first
    others = np.stack([model.other_variable, model.other_stride], axis=1).astype(np.int64)
    first_other = np.minimum(first, max(0, len(others) - 1))
    single = count == 1
    other = np.where(single, others[first_other, 0] if len(others) else -1, -1 - count)
    stride = np.where(single, others[first_other, 1] if len(others) else 0, 2 * first)
    return np.stack([model.column_at[column], variable, other, stride]).astype(np.int64), others.reshape(-1)


def choose_lanes(headers: NDArray[np.int64], byte_values: bool, resident_threads: int) -> tuple[int, int] | None:
    """Return lanes per chain and threads per block; None if no block's states fit.

    A chain has as many lanes as it has work for, or fewer if there are more chains than the device holds at a time.

    Parameters
    ----------
    headers : (agents, HEADER_SIZE) int64
        The agents.
    byte_values : bool
        Whether values take one byte, otherwise two.
    resident_threads : int
        Threads that the device holds at a time.
    """
    chains = int((headers[:, ROWS] * headers[:, RUNS]).sum())
    work = int(max(headers[:, FACTORS].max(), headers[:, HIDDEN].max() // 4, 1))
    lanes = _MAX_LANES
    while lanes > 1 and (lanes >= 2 * work or (chains * lanes > resident_threads and lanes > 4)):
        lanes //= 2
    # Two states (current and proposed) per chain; 8 bytes per thread for its sum of utilities.
    threads, state = THREADS, 2 * int(headers[:, VARIABLES].max()) * (1 if byte_values else 2)
    while 8 * threads + threads // lanes * state > _MAX_SHARED_BYTES:
        if threads > 32:
            threads //= 2
        elif lanes < _MAX_LANES:
            lanes *= 2
        else:
            return None
    return lanes, threads
