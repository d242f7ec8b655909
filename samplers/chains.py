"""The loop that drives chains, compiled once around each sampler's functions."""

import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from dmcmc.samplers.protocol import Sampler

# What the loop calls; compile_chains binds these names to a sampler's compiled functions.
init: Callable[..., Any]
step: Callable[..., Any]


def _chains(model, shape, first, count, runs, temperatures, key, best, states):
    """Run chains ``first`` to ``first + count``; chain c is run ``c % runs`` of row ``c // runs``.

    best (count,) and states (count, hidden) receive each chain's best utility and state; shape (|B|,) decodes rows.
    """
    n, hidden = model.domains.size, model.hidden
    z = np.zeros(n, dtype=np.int32)
    kept = np.zeros(n, dtype=np.int32)
    scores = np.zeros((hidden, model.lanes), dtype=model.data.dtype)
    scratch = np.zeros(model.lanes, dtype=np.int32)
    for c in range(count):
        row, run = (first + c) // runs, (first + c) % runs
        rest = row
        for b in range(shape.size - 1, -1, -1):
            z[hidden + b] = rest % shape[b]
            rest //= shape[b]
        rng = (key[0], key[1], np.uint64(row), np.uint64(run))
        utility = init(model, z, scores, rng)
        top = utility
        kept[:] = z
        for trial in range(temperatures.size):
            utility = step(model, z, scores, utility, scratch, rng, trial + 1, temperatures[trial])
            if utility > top:
                top = utility
                kept[:] = z
        best[c] = top
        for v in range(hidden):
            states[c, v] = kept[v]


@lru_cache
def compile_chains(sampler: Sampler) -> Callable[..., None]:
    """Return the chain loop compiled around a sampler's functions, cached on disk by their sources."""
    source = inspect.getsource(sampler.init) + inspect.getsource(sampler.step)
    name = f"chains_{sampler.name}_{hashlib.sha256(source.encode()).hexdigest()[:12]}".replace("-", "_")
    loop = FunctionType(
        _chains.__code__, {**_chains.__globals__, "init": njit(sampler.init), "step": njit(sampler.step)}, name
    )
    loop.__qualname__ = name
    compiled: Callable[..., None] = njit(cache=True, nogil=True)(loop)
    return compiled
