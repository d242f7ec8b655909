"""Pack several agents' chain models for the kernel of joint proposals, and choose the block size of its launches.

The kernel proposes new values of all hidden variables at once. It reads each factor through one *column*, the utilities
for all values of one hidden variable (its *own* variable), selected by the values of the *other* variables. The *lanes*
of a chain are the threads that share its work. A *jump table* is a table from which the change of a value is drawn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.compact_sequences import start_offsets
from dmcmc.inference.runtime.types import Array, Ints
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
    for header, model, records, others in zip(headers, models, *_records(models), strict=True):
        parts = model.domains, model.jump_at + np.int32(jumps_before), records, others
        for field, part in zip((DOMAINS_AT, VARIABLE_STARTS_AT, FACTORS_AT, WIDE_AT), parts, strict=True):
            header[field] = size
            size += part.size
        ints += parts
        header[TABLE_AT], header[FACTORS] = entries_before, model.factor_column.size
        entries_before += model.data.size
        jumps_before += model.jumps.size
    return JointBatch(
        np.concatenate([m.data for m in models]),
        np.concatenate([*ints, np.zeros(1, dtype=np.int32)]),
        np.concatenate([m.jumps for m in models]),
        headers,
    )


def _records(models: Sequence[ChainModel]) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
    """Return the records of each agent's factors, and its lists of other variables, both flat.

    The records are offset, own variable, other variable, and its stride; each for all factors. A factor with no or
    several other variables has −1 less their number as the third entry, and as the fourth the offset of their variables
    and strides in the lists. All agents' records are computed together.
    """
    columns, others = [m.column_at.size for m in models], [m.other_variable.size for m in models]
    factors = [m.factor_column.size for m in models]
    column = np.concatenate([m.factor_column for m in models]) + np.repeat(_starts(columns)[:-1], factors)
    first = np.concatenate([m.other_start[:-1] for m in models])[column]  # within the agent's other variables
    count = np.concatenate([np.diff(m.other_start) for m in models])[column]
    pairs = np.stack(
        [np.concatenate([getattr(m, name) for m in models]) for name in ("other_variable", "other_stride")]
    )
    place = np.where(count == 1, first + np.repeat(_starts(others)[:-1], factors), 0)
    single = pairs[:, place] if pairs.size else np.zeros((2, column.size), dtype=np.int32)
    records = np.stack([
        np.concatenate([m.column_at for m in models])[column],
        np.concatenate([m.factor_variable for m in models]),
        np.where(count == 1, single[0], -1 - count),
        np.where(count == 1, single[1], 2 * first),
    ]).astype(np.int32)  # fmt: skip
    return (
        [part.reshape(-1) for part in np.split(records, _starts(factors)[1:-1], axis=1)],
        [part.T.reshape(-1) for part in np.split(pairs, _starts(others)[1:-1], axis=1)],
    )


def _starts(sizes: Sequence[int]) -> Ints:
    """Return the offsets of consecutive pieces of some sizes, followed by their total."""
    return start_offsets(np.array(sizes, dtype=np.int64))


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
