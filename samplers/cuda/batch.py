"""Several agents' chain models as one set of arrays for the GPU, and how a launch over their rows is divided."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.cuda.descriptors import (
    CHOICES,
    CHOICES_AT,
    COUNTS_AT,
    DOMAINS_AT,
    FACTORS,
    FACTORS_AT,
    HEADER,
    HIDDEN,
    INTERFACE_BEFORE,
    KEY_0,
    KEY_1,
    ROWS,
    ROWS_BEFORE,
    RUNS,
    STARTS_AT,
    STATES_BEFORE,
    TABLE,
    VARIABLES,
    VIOLATION,
    WIDE_AT,
)
from dmcmc.samplers.cuda.gibbs_kernels import GLOBAL, SINGLE, TURNS, WHOLE, Shape
from dmcmc.samplers.cuda.layout import lay_out
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.draw_kernels import share_unit

_MOST_WORDS = 8  # words of scores in registers at once
_WORTH = {WHOLE: 1.0, TURNS: 0.85, SINGLE: 0.8, GLOBAL: 0.5}  # of a thread, by where it finds columns
_COPIERS = 128  # threads that it takes to copy a variable's columns while others wait
_THREADS = (384, 768, 256, 192, 128, 96, 64, 32)  # the earlier the better: two blocks hide each other's waiting


class Batch(NamedTuple):
    """Models of agents whose scores are stored alike.

    Attributes
    ----------
    shape : Shape
        What a kernel for them is compiled for; its ``stage`` is decided for each launch.
    table : (words,) uint64
        Of :class:`dmcmc.samplers.cuda.layout.Layout`, one agent after another.
    ints : (any,) int32
    heads : (agents, HEADER) int64
        See :mod:`dmcmc.samplers.cuda.descriptors`.
    scales : (2 × agents,) float32
        Penalty of a violation and weight of a best value, of each agent.
    """

    shape: Shape
    table: NDArray[np.uint64]
    ints: NDArray[np.int32]
    heads: NDArray[np.int64]
    scales: NDArray[np.float32]


class Launch(NamedTuple):
    """How a kernel is launched: its shape, threads a block, words of columns and bytes in all of shared memory."""

    shape: Shape
    threads: int
    buffer: int
    shared: int


def alike(model: ChainModel) -> tuple[bool, bool]:
    """Return what agents of one batch have in common: scores of 16 bits, and whether they count violations."""
    return model.data.dtype == np.uint16, model.violation > 0


def heads_of(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> NDArray[np.int64]:
    """Return what every launch has to know of each agent, shape (agents, HEADER); see :class:`Batch`."""
    heads = np.zeros((len(models), HEADER), dtype=np.int64)
    rows_before = values_before = interface_before = 0
    for head, model, key in zip(heads, models, keys, strict=True):
        n, hidden = model.domains.size, model.hidden
        rows = int(np.prod(model.domains[hidden:], dtype=np.int64))
        head[VARIABLES], head[HIDDEN] = n, hidden
        head[ROWS], head[ROWS_BEFORE] = rows, rows_before
        head[KEY_0], head[KEY_1] = key
        head[VIOLATION], head[INTERFACE_BEFORE] = model.violation, interface_before
        head[CHOICES] = np.count_nonzero(model.domains[hidden:] > 1)
        head[STATES_BEFORE], head[RUNS] = values_before, runs
        rows_before += rows
        values_before += rows * hidden
        interface_before += n - hidden
    return heads


def pack(models: Sequence[ChainModel], keys: Sequence[tuple[int, int]], runs: int) -> Batch:
    """Lay out models that are :func:`alike` for the Gibbs kernel."""
    compact, hard = alike(models[0])
    ints: list[NDArray[np.int32]] = []
    tables: list[NDArray[np.uint64]] = []
    heads = heads_of(models, keys, runs)
    place = words = 0

    def put(values: NDArray[Any]) -> int:
        nonlocal place
        ints.append(np.ascontiguousarray(values, dtype=np.int32).reshape(-1))
        place += values.size
        return place - values.size

    for head, model in zip(heads, models, strict=True):
        layout = lay_out(model)
        choice = model.domains[model.hidden :] > 1
        factors = np.stack([layout.record[model.factor_column], model.factor_variable], axis=1)
        head[TABLE], head[FACTORS] = words, model.factor_column.size
        head[DOMAINS_AT], head[STARTS_AT] = put(model.domains), put(layout.begin)
        head[COUNTS_AT], head[CHOICES_AT] = put(layout.counts), put(np.cumsum(choice) - choice)
        head[WIDE_AT], head[FACTORS_AT] = put(layout.wide), put(factors)
        tables.append(layout.table)
        words += layout.table.size
    entries = 4 if compact else 2
    domains = np.concatenate([m.domains[: m.hidden] for m in models])
    largest = max(1, -(-int(domains.max(initial=1)) // entries))
    at_once = _words_at_once(largest)
    most = -(-largest // at_once) * at_once
    shape = Shape(
        words=at_once,
        most=most,
        compact=compact,
        hard=hard,
        stage=GLOBAL,
        small=fit_bytes(models),
        full=bool((domains == most * entries).all()),
    )
    slack = np.zeros(_MOST_WORDS, dtype=np.uint64)  # the last column may be read beyond its end
    return Batch(
        shape=shape,
        table=np.concatenate([*tables, slack]),
        ints=np.concatenate([*ints, np.zeros(1, dtype=np.int32)]),
        heads=heads,
        scales=np.array([x for m in models for x in (m.penalty, share_unit(m.lanes))], dtype=np.float32),
    )


def fit_bytes(models: Sequence[ChainModel]) -> bool:
    """Return whether every value fits a byte."""
    return max((int(m.domains.max(initial=1)) for m in models), default=1) <= 256


def _words_at_once(largest: int) -> int:
    """Return how many words of scores a thread adds up at once: least waste, then as many as possible."""
    choices = range(min(largest, 2), min(largest, _MOST_WORDS) + 1)
    return min(choices, key=lambda w: (-(-largest // w) * w - largest + (-(-largest // w)), -w))


def choose_launch(
    batch: Batch,
    runs: int,
    group: int,
    shared_limit: int,
    processors: int,
    registers: int,
    stages: Collection[int] = (),
) -> Launch | None:
    """Choose blocks from the problem's sizes and the card, or return None where no block fits.

    As many threads as fit a multiprocessor, the largest blocks first; smaller ones where otherwise some
    multiprocessors would have none. Columns are staged whole where that costs no threads.

    Parameters
    ----------
    group
        Chains that must be in one block.
    shared_limit
        Bytes of shared memory that a block may have; a multiprocessor has about that.
    processors
        Multiprocessors.
    registers
        Threads that a multiprocessor's registers allow.
    stages
        How columns are staged by preference: one of these, where any of them fits.
    """
    whole = turn = 0
    for head in batch.heads:
        begin = batch.ints[head[STARTS_AT] : head[STARTS_AT] + head[HIDDEN] + 1]
        whole = max(whole, int(begin[-1]))
        turn = max(turn, int((begin[1:] - begin[:-1]).max(initial=0)))
    slack, n = batch.shape.words, int(batch.heads[:, VARIABLES].max())
    value = 1 if batch.shape.small else 2
    rows = Counter(batch.heads[:, ROWS].tolist())
    chains, total = max(max(rows) * runs, group), sum(r * agents for r, agents in rows.items()) * runs
    best: tuple[tuple[bool, float, int, int], Launch] | None = None
    for stage, buffer in ((WHOLE, whole + slack), (TURNS, 2 * (turn + slack)), (SINGLE, turn + slack), (GLOBAL, 0)):
        for threads in _THREADS:
            shared = 8 * buffer + n * threads * value
            if shared > shared_limit or threads < group or (threads > 32 and threads >= 2 * chains):
                continue
            if stage in (TURNS, SINGLE) and threads < _COPIERS:
                continue
            used = threads - threads % group
            blocks = sum(-(-r * runs // used) * agents for r, agents in rows.items())
            resident = min(registers // threads, shared_limit // (shared + 1024)) or 1
            active = min(min(blocks, resident * processors) * threads, total)
            score = (stage in stages, active * _WORTH[stage], min(blocks, processors), -_THREADS.index(threads))
            if best is None or score > best[0]:
                best = score, Launch(batch.shape._replace(stage=stage), threads, buffer, shared)
    return best and best[1]
