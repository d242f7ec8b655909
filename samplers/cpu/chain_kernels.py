# mypy: ignore-errors
"""The loops that run Markov chains on the CPU, compiled once around each sampler's functions.

A row is an assignment of an agent's boundary variables (its interface); several chains, its runs, sample the agent's
hidden variables for it. A loop runs one round of trials for a range of rows and stores the best state of each row.
``_chains`` runs one chain after the other; ``_exchange`` runs all chains of a row together, for parallel tempering.
``_trace`` runs one chain again and records every state, for statistics: random numbers are a function of the row, the
run and the trial, so the chain is the one that sampling has run, on whatever device that was.

Arrays of a chain: ``z`` (n,) int32, the state, hidden variables first; ``scores`` (hidden, lanes) uint16 or int32, the
utility of each value of each hidden variable, given the others; ``scratch`` (max(lanes, hidden),) int32. Utilities are
integers in chain units, see :mod:`dmcmc.samplers.model.chain_model`.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit, uncached_njit
from dmcmc.samplers.model.state_kernels import (
    change,
    eased,
    exchanges,
    feasible,
    fill_scores,
    new_arrays,
    set_hidden,
    set_interface,
    start_row,
    sweep_greedily,
)

if TYPE_CHECKING:
    from dmcmc.samplers.contract.protocol import Sampler

# Names that the loops use; bind() replaces them by a sampler's compiled functions. ``scored`` is whether the sampler
# keeps ``scores`` up to date, ``advance`` is ``_advance`` compiled.
init: Callable[..., Any]
step: Callable[..., Any]
scored: bool
advance: Callable[..., Any]


def _chains(
    model, shape, begin, end, runs, temperatures, ladder, first, warm, repair, descent, key, before, after, halt
):
    """Run one round in rows ``begin`` to ``end`` − 1, one chain after the other.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows are in C order.
    begin, end : int
        The rows.
    runs : int
        Chains per row.
    temperatures : (trials,) float32
        Temperature of each trial, in chain units; 0 takes the best value.
    ladder : (runs,) float32
        Unused here: the temperature factors of runs that exchange.
    warm : bool
        Whether run 0 of a row starts from the row's best state and other runs from that of a neighbouring row; if not,
        from ``init``.
    repair : bool
        Whether rows whose best state violates no hard constraint are left out.
    descent : int
        Maximum number of greedy sweeps that improve each chain's best state at the end.
    first : int
        Number of the round's first trial, from 1.
    key : (2,) uint64
        Key of the agent's chains.
    before, after : ((rows,) int64, (rows, hidden) integers)
        Best utility and state of each row before the round (read) and after it (written). At a tie the earlier state
        stays, then that of the lowest run.
    halt : (1,) uint8
        Nonzero ends the round: the current chain's best state is stored, and later rows are not written.

    Returns
    -------
    int
        Number of trials made.
    """
    z, scores, scratch = new_arrays(model)
    best_state = z.copy()
    trials_made = 0
    for row in range(begin, end):
        if halt[0] != 0:
            break
        store_row(model, row, before[0][row], before[1][row], after)
        if repair and feasible(model, before[0][row]):
            continue
        set_interface(model, shape, row, z)
        for run in range(runs):
            if run > 0 and halt[0] != 0:
                break
            rng = (key[0], key[1], np.uint64(row), np.uint64(run))
            if warm:
                utility = set_hidden(model, before[1][start_row(shape, row, run, key, first)], z, scores)
            else:
                utility = np.int64(init(model, z, scores, rng))
            best_utility = utility
            copy_entries(z, best_state)
            for t in range(temperatures.size):
                if halt[0] != 0:
                    break
                trials_made += 1
                utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperatures[t]))
                if utility > best_utility:
                    best_utility = utility
                    copy_entries(z, best_state)
            if descent > 0:
                best_utility = descend(model, best_state, z, scores, scored, best_utility, descent)
                copy_entries(z, best_state)
            if best_utility > after[0][row]:
                store_row(model, row, best_utility, best_state, after)
    return trials_made


def _exchange(
    model, shape, begin, end, runs, temperatures, ladder, first, warm, repair, descent, key, before, after, halt
):
    """Run one round like ``_chains``, with all runs of a row at once: each is on a rung of the temperature ladder.

    States stay in their run and rungs move: run r starts on rung r. After an odd trial, rungs 2i and 2i + 1 may
    exchange their runs; after an even trial, rungs 2i + 1 and 2i + 2.
    """
    state_like, scores_like, scratch = new_arrays(model)
    z = np.zeros((runs, state_like.size), dtype=np.int32)
    scores = np.zeros((runs, *scores_like.shape), dtype=scores_like.dtype)
    best_states = np.zeros_like(z)
    utility, best_utility = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    run_on_rung = np.arange(runs)
    trials_made = 0
    for row in range(begin, end):
        if halt[0] != 0:
            break
        store_row(model, row, before[0][row], before[1][row], after)
        if repair and feasible(model, before[0][row]):
            continue
        for run in range(runs):
            set_interface(model, shape, row, z[run])
            if warm:
                source = before[1][start_row(shape, row, run, key, first)]
                utility[run] = set_hidden(model, source, z[run], scores[run])
            else:
                utility[run] = init(model, z[run], scores[run], (key[0], key[1], np.uint64(row), np.uint64(run)))
            run_on_rung[run], best_utility[run] = run, utility[run]
            best_states[run] = z[run]
        for t in range(temperatures.size):
            if halt[0] != 0:
                break
            trials_made += runs
            for rung in range(runs):
                advance(
                    model,
                    z,
                    scores,
                    best_states,
                    (utility, best_utility),
                    run_on_rung[rung],
                    scratch,
                    (key[0], key[1], np.uint64(row), np.uint64(run_on_rung[rung])),
                    first + t,
                    np.float32(temperatures[t] * ladder[rung]),
                )
            swap_rungs(model, utility, run_on_rung, temperatures[t], ladder, key, row, first + t)
        for run in range(runs):
            if descent > 0:
                best_utility[run] = descend(
                    model, best_states[run], z[run], scores[run], scored, best_utility[run], descent
                )
                best_states[run] = z[run]
            if best_utility[run] > after[0][row]:
                store_row(model, row, best_utility[run], best_states[run], after)
    return trials_made


def _advance(model, z, scores, best_states, utilities, run, scratch, rng, trial, temperature):
    """Make one trial of one run of a row; ``utilities`` are the runs' utility and best utility, each (runs,) int64."""
    utility, best_utility = utilities
    utility[run] = step(model, z[run], scores[run], utility[run], scratch, rng, trial, temperature)
    if utility[run] > best_utility[run]:
        best_utility[run] = utility[run]
        for v in range(model.hidden):
            best_states[run, v] = z[run, v]


@njit(allocates=False)
def swap_rungs(model, utility, run_on_rung, temperature, ladder, key, row, trial):
    """Let every other pair of neighbouring rungs exchange their runs, with the acceptance rule of parallel tempering.

    A rung is a temperature of the ladder; a run is a chain, with a state.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    utility : (runs,) int64
        Utility of each run's state.
    run_on_rung : (runs,) int64
        The run on each rung; changed.
    temperature : float32
        Temperature of rung 0, in chain units.
    ladder : (runs,) float32
        Factor of the temperature of each rung.
    key : (2,) uint64
        Key of the agent's chains.
    row, trial : int
        Counter of the random bits.
    """
    for rung in range((trial + 1) % 2, run_on_rung.size - 1, 2):
        cold, hot = run_on_rung[rung], run_on_rung[rung + 1]
        cold_temperature, hot_temperature = temperature * ladder[rung], temperature * ladder[rung + 1]
        rise = eased(model, utility[hot]) - eased(model, utility[cold])
        if exchanges(cold_temperature, hot_temperature, rise, key[0], key[1], row, rung, trial):
            run_on_rung[rung], run_on_rung[rung + 1] = hot, cold


@njit(allocates=False)
def descend(model, target, z, scores, scored, utility, sweeps):
    """Change ``z`` to the state ``target`` of the same row and improve it by greedy sweeps; return its utility.

    ``scored`` is whether ``scores`` match ``z`` before.
    """
    for v in range(model.hidden):
        if z[v] != target[v]:
            if scored:
                change(model, z, scores, v, target[v])
            else:
                z[v] = target[v]
    if not scored:
        fill_scores(model, z, scores)
    return sweep_greedily(model, z, scores, utility, sweeps)


@njit(allocates=False)
def store_row(model, row, utility, z, best):
    """Store a row's best utility and state in ``best``, the arrays of utilities and states."""
    best[0][row] = utility
    for v in range(model.hidden):
        best[1][row, v] = z[v]


def _trace(model, shape, row, run, temperatures, first, key, utilities, states):
    """Run one chain from a random start and record it.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows are in C order.
    row, run : int
        The chain.
    temperatures : (trials,) float32
        Temperature of each trial, in chain units.
    first : int
        Number of the first trial.
    key : (2,) uint64
        Key of the agent's chains.
    utilities : (trials,) int64
        Result: the utility after each trial, in chain units.
    states : (trials, hidden) int32
        Result: the hidden values after each trial.
    """
    z, scores, scratch = new_arrays(model)
    set_interface(model, shape, row, z)
    rng = (key[0], key[1], np.uint64(row), np.uint64(run))
    utility = np.int64(init(model, z, scores, rng))
    for t in range(temperatures.size):
        utility = np.int64(step(model, z, scores, utility, scratch, rng, first + t, temperatures[t]))
        utilities[t] = utility
        for v in range(model.hidden):
            states[t, v] = z[v]


def compile_chains(sampler: "Sampler") -> Callable[..., int]:
    """Return the loop over chains, compiled around a sampler's functions."""
    return bind(_exchange if sampler.exchange else _chains, sampler)


def compile_trace(sampler: "Sampler") -> Callable[..., None]:
    """Return the loop that records a chain, compiled around a sampler's functions."""
    return bind(_trace, sampler)


@lru_cache
def bind(loop: FunctionType, sampler: "Sampler") -> Callable[..., Any]:
    """Compile a loop in which ``init``, ``step``, ``scored`` and ``advance`` are a sampler's.

    The result is cached on disk under a hash of the sources of the sampler's modules, including their helpers and
    constants.
    """
    source = "".join(inspect.getsource(inspect.getmodule(f) or f) for f in (sampler.init, sampler.step))
    digest = hashlib.sha256(f"{sampler.scored} {source}".encode()).hexdigest()[:12]
    name = f"{loop.__name__}_{sampler.init.__module__}_{digest}".replace(".", "_")
    # Reference counting would cost more than the draws; without it these functions must not allocate.
    compile_without_counts = uncached_njit(allocates=False)
    namespace = {
        **loop.__globals__,
        "init": compile_without_counts(sampler.init),
        "step": compile_without_counts(sampler.step),
        "scored": sampler.scored,
    }
    namespace["advance"] = compile_without_counts(
        FunctionType(_advance.__code__, {**_advance.__globals__, **namespace}, name + "_advance")
    )
    bound = FunctionType(loop.__code__, namespace, name)
    bound.__qualname__, bound.__dict__["recreate"] = name, partial(bind, loop, sampler)
    compiled: Callable[..., Any] = njit(nogil=True)(bound)
    return compiled
