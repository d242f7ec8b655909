"""Several agents' chain models as the kernel of joint proposals reads them, and how its launches are divided."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.cuda.batch import heads_of
from dmcmc.samplers.cuda.descriptors import (
    DOMAINS_AT,
    FACTORS,
    FACTORS_AT,
    HIDDEN,
    ROWS,
    RUNS,
    STARTS_AT,
    TABLE,
    VARIABLES,
    WIDE_AT,
)
from dmcmc.samplers.model.chain_model import ChainModel

THREADS = 128  # of a block
_MOST_LANES = 32
_SHARED = 48 << 10  # bytes that a block may have without asking


class Joint(NamedTuple):
    """Models of agents whose data have one dtype.

    Attributes
    ----------
    data : (entries,) uint16 or int32
    ints : (any,) int32
        Of each agent: domain sizes, where its variables' tables of jumps begin, the records of its factors (place, own
        variable, other variable, its stride; each for all factors) and the variables and strides of those that have
        several others.
    jumps : (any,) uint32
    heads : (agents, HEADER) int64
        See :mod:`dmcmc.samplers.cuda.descriptors`.
    """

    data: Array
    ints: NDArray[np.int32]
    jumps: NDArray[np.uint32]
    heads: NDArray[np.int64]


def join(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> Joint:
    """Lay out models whose data have one dtype."""
    heads, ints = heads_of(models, keys, runs), list[NDArray[np.int32]]()
    place = entries = jumps = 0

    def put(values: NDArray[Any]) -> int:
        nonlocal place
        ints.append(values.astype(np.int32).reshape(-1))
        place += values.size
        return place - values.size

    for head, model in zip(heads, models, strict=True):
        head[TABLE], head[FACTORS] = entries, model.factor_column.size
        head[DOMAINS_AT], head[STARTS_AT] = put(model.domains), put(model.jump_at + jumps)
        records, others = _records(model)
        head[FACTORS_AT], head[WIDE_AT] = put(records), put(others)
        entries += model.data.size
        jumps += model.jumps.size
    return Joint(
        np.concatenate([m.data for m in models]),
        np.concatenate([*ints, np.zeros(1, dtype=np.int32)]),
        np.concatenate([m.jumps for m in models]),
        heads,
    )


def _records(model: ChainModel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return place, own variable, other variable and its stride of each factor, (4, factors), and lists of others.

    With no or several other variables the third is −1 less their number, and the fourth where they begin in the lists.
    """
    column, own = model.factor_column, model.factor_variable
    first = model.other_start[column].astype(np.int64)
    count = model.other_start[column + 1] - first
    others = np.stack([model.other_variable, model.other_stride], axis=1).astype(np.int64)
    at = np.minimum(first, max(0, len(others) - 1))
    one = count == 1
    variable = np.where(one, others[at, 0] if len(others) else -1, -1 - count)
    stride = np.where(one, others[at, 1] if len(others) else 0, 2 * first)
    return np.stack([model.column_at[column], own, variable, stride]).astype(np.int64), others.reshape(-1)


def choose_lanes(heads: NDArray[np.int64], small: bool, room: int) -> tuple[int, int] | None:
    """Return lanes a chain and threads a block; None where no block's states fit.

    As many lanes as a chain has work for, fewer where there are more chains than the device holds at a time.

    Parameters
    ----------
    small
        Whether values take one byte, otherwise two.
    room
        Threads that the device holds at a time.
    """
    chains = int((heads[:, ROWS] * heads[:, RUNS]).sum())
    work = int(max(heads[:, FACTORS].max(), heads[:, HIDDEN].max() // 4, 1))
    lanes = _MOST_LANES
    while lanes > 1 and (lanes >= 2 * work or (chains * lanes > room and lanes > 4)):
        lanes //= 2
    threads, state = THREADS, 2 * int(heads[:, VARIABLES].max()) * (1 if small else 2)
    while 8 * threads + threads // lanes * state > _SHARED:
        if threads > 32:
            threads //= 2
        elif lanes < _MOST_LANES:
            lanes *= 2
        else:
            return None
    return lanes, threads
