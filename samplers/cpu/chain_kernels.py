# mypy: ignore-errors
"""The loops that drive chains, compiled once around each sampler's functions."""

import hashlib
import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numba
import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.rng_kernels import philox, uniform
from dmcmc.samplers.model.start_kernels import SWAP_BLOCK, start_row
from dmcmc.samplers.model.state_kernels import change, eased, evaluate, feasible, fill_scores, greedy_sweep, new_arrays

# What the loops call; bind gives these names to a sampler's compiled functions.
init: Callable[..., Any]
step: Callable[..., Any]
scored: bool
advance: Callable[..., Any]


def _chains(
    model, shape, begin, end, runs, temperatures, ladder, first, warm, repair, descent, key, before, after, halt
):
    """Let rows ``begin`` to ``end`` make a round, one chain after the other.

    Parameters
    ----------
    shape : (|B|,) int64
        Decodes rows.
    temperatures, ladder, warm, repair, descent
        See :class:`dmcmc.samplers.model.rounds.Round`.
    first : int
        Number of the first trial, from 1.
    key : (2,) uint64
    before, after : ((rows,) int64, (rows, hidden) integers)
        Each row's best utility and state; read and written. Ties go to what was there, then to the first run.
    halt : (1,) uint8
        Not 0 when it is time to end: what the chain at hand has found is kept, other rows stay as they are.

    Returns
    -------
    int
        Trials made.
    """
    z, scores, scratch = new_arrays(model)
    kept = z.copy()
    made = 0
    for row in range(begin, end):
        if halt[0] != 0:
            break
        keep(model, row, before[0][row], before[1][row], after)
        if repair and feasible(model, before[0][row]):
            continue
        place_row(model, shape, row, z)
        for run in range(runs):
            if run > 0 and halt[0] != 0:
                break
            rng = (key[0], key[1], np.uint64(row), np.uint64(run))
            if warm:
                utility = start_warm(model, before[1][start_row(shape, row, run, key, first)], z, scores)
            else:
                utility = np.int64(init(model, z, scores, rng))
            top = utility
            copy_entries(z, kept)
            for t in range(temperatures.size):
                if halt[0] != 0:
                    break
                made += 1
                utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperatures[t]))
                if utility > top:
                    top = utility
                    copy_entries(z, kept)
            if descent > 0:
                top = descend(model, kept, z, scores, scored, top, descent)
                copy_entries(z, kept)
            if top > after[0][row]:
                keep(model, row, top, kept, after)
    return made


def _exchange(
    model, shape, begin, end, runs, temperatures, ladder, first, warm, repair, descent, key, before, after, halt
):
    """Like ``_chains``, all runs of a row at once: each on a rung of the ladder, neighbours exchange rungs.

    States stay in their run, rungs move: run r starts on rung r. After trial t the rungs 2i and 2i + 1 are held against
    each other if t is odd, 2i + 1 and 2i + 2 if it is even.
    """
    alone, table, scratch = new_arrays(model)
    z = np.zeros((runs, alone.size), dtype=np.int32)
    scores = np.zeros((runs, *table.shape), dtype=table.dtype)
    kept = np.zeros_like(z)
    utility, top = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    run_of = np.arange(runs)
    made = 0
    for row in range(begin, end):
        if halt[0] != 0:
            break
        keep(model, row, before[0][row], before[1][row], after)
        if repair and feasible(model, before[0][row]):
            continue
        for run in range(runs):
            place_row(model, shape, row, z[run])
            if warm:
                source = before[1][start_row(shape, row, run, key, first)]
                utility[run] = start_warm(model, source, z[run], scores[run])
            else:
                utility[run] = init(model, z[run], scores[run], (key[0], key[1], np.uint64(row), np.uint64(run)))
            run_of[run], top[run] = run, utility[run]
            kept[run] = z[run]
        for t in range(temperatures.size):
            if halt[0] != 0:
                break
            made += runs
            for rung in range(runs):
                advance(
                    model,
                    z,
                    scores,
                    kept,
                    (utility, top),
                    run_of[rung],
                    scratch,
                    (key[0], key[1], np.uint64(row), np.uint64(run_of[rung])),
                    first + t,
                    np.float32(temperatures[t] * ladder[rung]),
                )
            swap_rungs(model, utility, run_of, temperatures[t], ladder, key, row, first + t)
        for run in range(runs):
            if descent > 0:
                top[run] = descend(model, kept[run], z[run], scores[run], scored, top[run], descent)
                kept[run] = z[run]
            if top[run] > after[0][row]:
                keep(model, row, top[run], kept[run], after)
    return made


def _advance(model, z, scores, kept, worth, run, scratch, rng, trial, temperature):
    """Let one run of a row make a trial; ``worth`` is the runs' (utility, best utility)."""
    utility, top = worth
    utility[run] = step(model, z[run], scores[run], utility[run], scratch, rng, trial, temperature)
    if utility[run] > top[run]:
        top[run] = utility[run]
        for v in range(model.hidden):
            kept[run, v] = z[run, v]


@njit(_nrt=False)
def swap_rungs(model, utility, run_of, temperature, ladder, key, row, trial):
    """Let every other pair of neighbouring rungs exchange their runs, so that detailed balance holds."""
    for rung in range((trial + 1) % 2, run_of.size - 1, 2):
        cold, hot = run_of[rung], run_of[rung + 1]
        steeper = 1.0 / (temperature * ladder[rung]) - 1.0 / (temperature * ladder[rung + 1])
        rise = eased(model, utility[hot]) - eased(model, utility[cold])
        words = philox(key[0], key[1], row, rung, trial, SWAP_BLOCK)
        if math.log(uniform(words[0])) < steeper * rise:
            run_of[rung], run_of[rung + 1] = hot, cold


@njit(_nrt=False)
def place_row(model, shape, row, z):
    """Set the interface variables to a row's values."""
    for b in range(shape.size - 1, -1, -1):
        z[model.hidden + b] = row % shape[b]
        row //= shape[b]


@njit(_nrt=False)
def start_warm(model, source, z, scores):
    """Set the hidden variables to given values; return the utility."""
    for v in range(model.hidden):
        z[v] = source[v]
    fill_scores(model, z, scores)
    return evaluate(model, z)


@njit(_nrt=False)
def descend(model, best, z, scores, scored, utility, sweeps):
    """Go to a state of the same row and improve it greedily; return its utility."""
    for v in range(model.hidden):
        if z[v] != best[v]:
            if scored:
                change(model, z, scores, v, best[v])
            else:
                z[v] = best[v]
    if not scored:
        fill_scores(model, z, scores)
    for _ in range(sweeps):
        better = greedy_sweep(model, z, scores, utility)
        if better == utility:
            break
        utility = better
    return utility


@njit(_nrt=False)
def keep(model, row, utility, z, rows):
    """Note a row's best utility and state."""
    rows[0][row] = utility
    for v in range(model.hidden):
        rows[1][row, v] = z[v]


def compile_chains(sampler: Sampler) -> Callable[..., int]:
    """Return the loop compiled around a sampler's functions."""
    return bind(_exchange if sampler.exchange else _chains, sampler)


@lru_cache
def bind(loop: FunctionType, sampler: Sampler) -> Callable[..., Any]:
    """Compile a function in which ``init``, ``step``, ``scored`` and ``advance`` are a sampler's.

    It is cached on disk by the sources of the sampler's modules: helpers and constants count too.
    """
    source = "".join(inspect.getsource(inspect.getmodule(f) or f) for f in (sampler.init, sampler.step))
    digest = hashlib.sha256(f"{sampler.scored} {source}".encode()).hexdigest()[:12]
    name = f"{loop.__name__}_{sampler.init.__module__}_{digest}".replace(".", "_")
    # Without reference counts, which cost more than the draws: they may not allocate.
    bare = numba.njit(_nrt=False)
    names = {**loop.__globals__, "init": bare(sampler.init), "step": bare(sampler.step), "scored": sampler.scored}
    names["advance"] = bare(FunctionType(_advance.__code__, {**_advance.__globals__, **names}, name + "_advance"))
    bound = FunctionType(loop.__code__, names, name)
    bound.__qualname__ = name
    compiled: Callable[..., Any] = njit(nogil=True)(bound)
    return compiled
