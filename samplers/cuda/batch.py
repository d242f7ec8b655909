"""The batch of rows that a GPU samples, and its joint proposals.

Pack several agents' chain models into arrays for the Gibbs kernel, and choose the block size of its launches.

The kernel reads *columns* (a factor's utilities for all values of one variable) from device memory or from a *stage*, a
part of shared memory with the columns of one variable, two variables, or all of them. A *record* names the variables
that select a column. A row is an assignment of the agent's boundary variables; its chains are its runs.

Pack several agents' chain models for the kernel of joint proposals, and choose the block size of its launches.

The kernel proposes new values of all hidden variables at once. It reads each factor through one *column*, the utilities
for all values of one hidden variable (its *own* variable), selected by the values of the *other* variables. The *lanes*
of a chain are the threads that share its work. A *jump table* is a table from which the change of a value is drawn.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.compact_sequences import start_offsets
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.samplers.cuda import layout_kernels as layout
from dmcmc.samplers.cuda.gibbs_kernels import ALL_COLUMNS, DOUBLE_BUFFER, GLOBAL, SINGLE_BUFFER, GibbsKernelShape
from dmcmc.samplers.cuda.layout_kernels import pair_up, variable_starts, write_layout
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.draw_kernels import best_value_weight

_MAX_WORDS_AT_ONCE = 8  # 64-bit words of scores that a thread holds in registers at a time
# Relative speed of a thread, by where it reads columns.
_THREAD_SPEED = {ALL_COLUMNS: 1.0, DOUBLE_BUFFER: 0.85, SINGLE_BUFFER: 0.8, GLOBAL: 0.5}
# Header fields with the offsets of an agent's parts of ``ModelBatch.ints``, in the order of the parts.
_PARTS = (
    layout.DOMAINS_AT,
    layout.VARIABLE_STARTS_AT,
    layout.COUNTS_AT,
    layout.CHOICES_AT,
    layout.WIDE_AT,
    layout.FACTORS_AT,
)
_MIN_COPYING_THREADS = 128  # minimum number of threads that copy a variable's columns while the block waits
# Candidates, best first: two blocks per multiprocessor hide each other's latency.
_BLOCK_SIZES = (384, 768, 256, 192, 128, 96, 64, 32)


class ModelBatch(NamedTuple):
    """Models of agents whose scores have the same layout.

    Attributes
    ----------
    shape : GibbsKernelShape
        Compile-time parameters of the kernel; its ``stage`` is chosen for each launch.
    table : (words,) uint64
        Records and columns, see :mod:`dmcmc.samplers.cuda.layout_kernels`, one agent after another.
    ints : (any,) int32
        Per agent: domain sizes, first words of variables, numbers of columns, interface choices, lists of other
        variables, and (record, variable) of each factor; ``headers`` has the offsets.
    headers : (agents, HEADER_SIZE) int64
        See :mod:`dmcmc.samplers.cuda.layout_kernels`.
    scales : (2 × agents,) float32
        Per agent: penalty of a violation in chain units (utilities times a power of two), and the integer weight of a
        best value in a draw.
    """

    shape: GibbsKernelShape
    table: NDArray[np.uint64]
    ints: NDArray[np.int32]
    headers: NDArray[np.int64]
    scales: NDArray[np.float32]


class GibbsLaunch(NamedTuple):
    """Parameters of a launch of the Gibbs kernel.

    Attributes
    ----------
    shape : GibbsKernelShape
        The kernel.
    threads : int
        Threads per block.
    buffer : int
        64-bit words of shared memory for columns.
    shared : int
        Bytes of shared memory per block, including the states.
    """

    shape: GibbsKernelShape
    threads: int
    buffer: int
    shared: int


def batch_key(model: ChainModel) -> tuple[bool, bool]:
    """Return what agents of one batch share: whether scores have 16 bits, and whether any entry is forbidden."""
    return model.data.dtype == np.uint16, model.violation > 0


def agent_headers(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> NDArray[np.int64]:
    """Return the headers of some agents, with the fields that all kernels use.

    Parameters
    ----------
    models : sequence of ChainModel
        The agents' columns.
    keys : sequence of (int, int)
        Keys of the agents' chains.
    runs : int
        Chains per row.

    Returns
    -------
    (agents, HEADER_SIZE) int64
        See :mod:`dmcmc.samplers.cuda.layout_kernels`.
    """
    headers = np.zeros((len(models), layout.HEADER_SIZE), dtype=np.int64)
    interfaces = [m.domains[m.hidden :].tolist() for m in models]
    variables, hidden = (np.array(sizes) for sizes in ([m.domains.size for m in models], [m.hidden for m in models]))
    rows = np.array([prod(sizes) for sizes in interfaces], dtype=np.int64)
    headers[:, layout.VARIABLES], headers[:, layout.HIDDEN], headers[:, layout.ROWS], headers[:, layout.RUNS] = (
        variables,
        hidden,
        rows,
        runs,
    )
    headers[:, [layout.KEY_0, layout.KEY_1]] = np.array(keys, dtype=np.int64)
    headers[:, layout.VIOLATION_SHIFT] = [m.violation for m in models]
    headers[:, layout.INTERFACE_CHOICES] = [sum([size > 1 for size in sizes]) for sizes in interfaces]
    for field, sizes in (
        (layout.ROWS_BEFORE, rows),
        (layout.STATES_BEFORE, rows * hidden),
        (layout.INTERFACE_BEFORE, variables - hidden),
    ):
        headers[:, field] = start_offsets(sizes)[:-1]
    return headers


def pack_models(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> ModelBatch:
    """Lay out models with equal :func:`batch_key` for the Gibbs kernel."""
    compact, counts_violations = batch_key(models[0])
    entries = 4 if compact else 2
    headers = agent_headers(models, keys, runs)
    starts = [variable_starts(m.column_start, m.column_at, m.data.size, m.width, entries) for m in models]
    size = words = 0
    for header, model, start in zip(headers, models, starts, strict=True):
        n, hidden, factors = model.domains.size, model.hidden, model.factor_column.size
        # A column may have one list: an offset, and a pair for each of its other variables.
        lists = 1 + model.column_at.size + 2 * model.other_variable.size
        header[layout.TABLE_AT], header[layout.FACTORS] = words, factors
        words += int(start[-1])
        for at, part in zip(_PARTS, (n, hidden + 1, 2 * hidden, n - hidden, lists, 2 * factors), strict=True):
            header[at] = size
            size += part
    ints = np.zeros(size + 1, dtype=np.int32)
    table = np.zeros(words + _MAX_WORDS_AT_ONCE, dtype=np.uint64)  # the last column may be read beyond its end
    for header, model, start in zip(headers, models, starts, strict=True):
        source = model.data[: model.data.size // 4 * 4].view(np.uint64) if compact else pair_up(model.data)
        write_layout(model, header, entries, start, source, ints, table[header[layout.TABLE_AT] :])
    domains = np.concatenate([m.domains[: m.hidden] for m in models])
    largest = max(1, -(-int(domains.max(initial=1)) // entries))
    at_once = _words_at_once(largest)
    max_words = -(-largest // at_once) * at_once
    shape = GibbsKernelShape(
        words_at_once=at_once,
        max_words=max_words,
        compact=compact,
        counts_violations=counts_violations,
        stage=GLOBAL,
        byte_values=values_fit_bytes(models),
        no_padding=bool((domains == max_words * entries).all()),
    )
    return ModelBatch(
        shape=shape,
        table=table,
        ints=ints,
        headers=headers,
        scales=np.array([x for m in models for x in (m.penalty, best_value_weight(m.lanes))], dtype=np.float32),
    )


def values_fit_bytes(models: Sequence[ChainModel]) -> bool:
    """Return whether every value fits a byte."""
    return max((int(m.domains.max(initial=1)) for m in models), default=1) <= 256


def _words_at_once(largest: int) -> int:
    """Return the number of words of scores that a thread sums at once: least waste first, then as many as possible."""
    choices = range(min(largest, 2), min(largest, _MAX_WORDS_AT_ONCE) + 1)
    return min(choices, key=lambda w: (-(-largest // w) * w - largest + (-(-largest // w)), -w))


def choose_launch(
    batch: ModelBatch,
    runs: int,
    group: int,
    shared_limit: int,
    processors: int,
    registers: int,
    stages: Collection[int] = (),
) -> GibbsLaunch | None:
    """Choose the block size and the staging of columns; return None if no block fits.

    The choice prefers as many threads as fit a multiprocessor, in blocks as large as possible; smaller blocks if
    otherwise some multiprocessors would have none. All columns are staged if that costs no threads.

    Parameters
    ----------
    batch : ModelBatch
        The agents.
    runs : int
        Chains per row.
    group : int
        Number of chains that must be in one block: the runs of a row if they exchange temperatures, else 1.
    shared_limit : int
        Bytes of shared memory that a block may have; a multiprocessor has about as much.
    processors : int
        Number of multiprocessors.
    registers : int
        Number of threads for which a multiprocessor has enough registers.
    stages : collection of int
        Preferred stagings of columns: one of these is chosen if it fits.
    """
    all_words = largest = 0
    for header in batch.headers:
        begin = batch.ints[
            header[layout.VARIABLE_STARTS_AT] : header[layout.VARIABLE_STARTS_AT] + header[layout.HIDDEN] + 1
        ]
        all_words = max(all_words, int(begin[-1]))
        largest = max(largest, int((begin[1:] - begin[:-1]).max(initial=0)))
    slack, n = batch.shape.words_at_once, int(batch.headers[:, layout.VARIABLES].max())
    value_bytes = 1 if batch.shape.byte_values else 2
    rows = Counter(batch.headers[:, layout.ROWS].tolist())
    chains, total = max(max(rows) * runs, group), sum(r * agents for r, agents in rows.items()) * runs
    best: tuple[tuple[bool, float, int, int], GibbsLaunch] | None = None
    for stage, buffer in (
        (ALL_COLUMNS, all_words + slack),
        (DOUBLE_BUFFER, 2 * (largest + slack)),
        (SINGLE_BUFFER, largest + slack),
        (GLOBAL, 0),
    ):
        for threads in _BLOCK_SIZES:
            shared = 8 * buffer + n * threads * value_bytes
            if shared > shared_limit or threads < group or (threads > 32 and threads >= 2 * chains):
                continue
            if stage in (DOUBLE_BUFFER, SINGLE_BUFFER) and threads < _MIN_COPYING_THREADS:
                continue
            used = threads - threads % group
            blocks = sum(-(-r * runs // used) * agents for r, agents in rows.items())
            # CUDA itself uses 1024 bytes of shared memory per block.
            resident = min(registers // threads, shared_limit // (shared + 1024)) or 1
            active = min(min(blocks, resident * processors) * threads, total)
            score = (
                stage in stages,
                active * _THREAD_SPEED[stage],
                min(blocks, processors),
                -_BLOCK_SIZES.index(threads),
            )
            if best is None or score > best[0]:
                best = score, GibbsLaunch(batch.shape._replace(stage=stage), threads, buffer, shared)
    return best and best[1]


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
        See :mod:`dmcmc.samplers.cuda.layout_kernels`.
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
        for field, part in zip(
            (layout.DOMAINS_AT, layout.VARIABLE_STARTS_AT, layout.FACTORS_AT, layout.WIDE_AT), parts, strict=True
        ):
            header[field] = size
            size += part.size
        ints += parts
        header[layout.TABLE_AT], header[layout.FACTORS] = entries_before, model.factor_column.size
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
    chains = int((headers[:, layout.ROWS] * headers[:, layout.RUNS]).sum())
    work = int(max(headers[:, layout.FACTORS].max(), headers[:, layout.HIDDEN].max() // 4, 1))
    lanes = _MAX_LANES
    while lanes > 1 and (lanes >= 2 * work or (chains * lanes > resident_threads and lanes > 4)):
        lanes //= 2
    # Two states (current and proposed) per chain; 8 bytes per thread for its sum of utilities.
    threads, state = THREADS, 2 * int(headers[:, layout.VARIABLES].max()) * (1 if byte_values else 2)
    while 8 * threads + threads // lanes * state > _MAX_SHARED_BYTES:
        if threads > 32:
            threads //= 2
        elif lanes < _MAX_LANES:
            lanes *= 2
        else:
            return None
    return lanes, threads
