# mypy: ignore-errors
"""Metropolis-Hastings with joint proposals on an NVIDIA GPU: several threads a chain.

A trial moves all variables and evaluates all factors once, so its parts need nothing of each other: the threads of a
chain (*lanes*) take turns at variables, four of one random block each, and at factors. The chains of a block are
neighbouring runs and rows of one agent::

    shared memory:  sums[thread]                 what a lane's factors are worth
                    z[chain, now | then, variable]   two states a chain, one or two bytes a value; they change places
                                                 when a proposal is accepted

Every lane adds up its chain's sums and so comes to the same decision: two barriers a trial. The chains are those of
:func:`dmcmc.samplers.methods.metropolis.step`, but for the last bit of a logarithm.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda.descriptors import (
    AGENT,
    DOMAINS_AT,
    FACTORS,
    FACTORS_AT,
    FIRST_BLOCK,
    FIRST_ROW,
    HEADER,
    HIDDEN,
    KEY_0,
    KEY_1,
    PART,
    PART_ROWS,
    RUNS,
    STARTS_AT,
    TABLE,
    VARIABLES,
    VIOLATION,
    WIDE_AT,
)
from dmcmc.samplers.model.proposal_kernels import jump, reflected
from dmcmc.samplers.model.rng_kernels import philox, uniform
from dmcmc.samplers.model.state_kernels import eased_by

ACCEPT = 1 << 23  # block of the counter that decides on acceptance


@lru_cache
def joint_kernel(small: bool) -> Any:
    """Return the kernel for values that fit a byte, or two; compiled when it is first launched."""
    value_type = types.uint8 if small else types.uint16

    @cuda.jit(device=True, inline="always")
    def place_of(ints, at, factors, f, general, shared_z, z):
        """Return where a factor's entry is: records hold place, own variable, other variable and its stride."""
        place = ints[at + f] + np.int32(shared_z[z + np.uint32(ints[at + factors + f])])
        other, stride = ints[at + np.uint32(2) * factors + f], ints[at + np.uint32(3) * factors + f]
        if other >= 0:
            return place + np.int32(shared_z[z + np.uint32(other)]) * stride
        listed = general + np.uint32(stride)  # −1 − others, and where those are
        for o in range(np.uint32(-1 - other)):
            w = np.uint32(ints[listed + np.uint32(2) * o])
            place += np.int32(shared_z[z + w]) * ints[listed + np.uint32(2) * o + np.uint32(1)]
        return place

    @cuda.jit(device=True, inline="always")
    def worth_of(data, ints, base, at, factors, general, shared_z, z, sums, tid, lane, lanes):
        """Return the utility of a chain's state; all threads of a block come here."""
        total, f = np.int64(0), lane
        while f + lanes < factors:  # two at a time: more loads in flight
            one = place_of(ints, at, factors, f, general, shared_z, z)
            two = place_of(ints, at, factors, f + lanes, general, shared_z, z)
            total += np.int64(data[base + np.int64(one)]) + np.int64(data[base + np.int64(two)])
            f += np.uint32(2) * lanes
        if f < factors:
            total += np.int64(data[base + np.int64(place_of(ints, at, factors, f, general, shared_z, z))])
        sums[tid] = total
        cuda.syncthreads()
        total = np.int64(0)
        for i in range(lanes):
            total += sums[tid - lane + np.uint32(i)]
        return total

    @cuda_jit()
    def joint(
        data, ints, jumps, penalties, heads, entries, where, temperatures, trials, first, lanes, best_states,
        best_utility,
    ):  # fmt: skip
        sums = cuda.shared.array(0, types.int64)
        shared_z = cuda.shared.array(0, value_type)
        tid, threads, lanes = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x), np.uint32(lanes)
        chain, lane, chains = tid // lanes, tid % lanes, threads // lanes
        e = where[cuda.blockIdx.x]
        agent = np.int64(entries[PART * e + AGENT])
        h = agent * HEADER
        n, hidden, runs = np.uint32(heads[h + VARIABLES]), np.uint32(heads[h + HIDDEN]), np.uint32(heads[h + RUNS])
        domains, starts = np.uint32(heads[h + DOMAINS_AT]), np.uint32(heads[h + STARTS_AT])
        base, at, factors = heads[h + TABLE], np.uint32(heads[h + FACTORS_AT]), np.uint32(heads[h + FACTORS])
        general, violation, penalty = np.uint32(heads[h + WIDE_AT]), heads[h + VIOLATION], penalties[agent]
        index = (np.uint32(cuda.blockIdx.x) - np.uint32(entries[PART * e + FIRST_BLOCK])) * chains + chain
        live = index < np.uint32(entries[PART * e + PART_ROWS]) * runs
        if not live:
            index = np.uint32(0)  # repeats a chain; never written
        row, run = np.uint32(entries[PART * e + FIRST_ROW]) + index // runs, index % runs
        k0, k1 = np.uint64(heads[h + KEY_0]), np.uint64(heads[h + KEY_1])
        slot = np.uint64(cuda.blockIdx.x) * np.uint64(chains) + np.uint64(chain)
        slots = np.uint64(cuda.gridDim.x) * np.uint64(chains)
        now = np.uint32(8 if small else 4) * threads + np.uint32(2) * chain * n
        then = now + n

        # The first state: interface values from the row's number, hidden ones drawn.
        if lane == 0:
            rest, v = row, n
            while v > hidden:
                v -= np.uint32(1)
                size = np.uint32(ints[domains + v])
                shared_z[now + v] = rest % size
                shared_z[then + v] = rest % size
                rest = np.uint32(rest // size)
        block = lane
        while np.uint32(4) * block < hidden:
            w0, w1, w2, w3 = philox(k0, k1, row, run, 0, block)
            for i in range(4):
                v = np.uint32(4) * block + np.uint32(i)
                if v < hidden:
                    word = w0 if i == 0 else (w1 if i == 1 else (w2 if i == 2 else w3))
                    size = ints[domains + v]
                    shared_z[now + v] = min(np.int32(uniform(word) * size), size - np.int32(1))
            block += lanes
        cuda.syncthreads()
        utility = worth_of(data, ints, base, at, factors, general, shared_z, now, sums, tid, lane, lanes)
        top = utility
        if live:
            v = lane
            while v < hidden:
                best_states[np.uint64(v) * slots + slot] = shared_z[now + v]
                v += lanes

        for t in range(trials):
            trial = np.uint32(first) + np.uint32(t)
            block = lane
            while np.uint32(4) * block < hidden:
                w0, w1, w2, w3 = philox(k0, k1, row, run, trial, block)
                for i in range(4):
                    v = np.uint32(4) * block + np.uint32(i)
                    if v < hidden:
                        word = w0 if i == 0 else (w1 if i == 1 else (w2 if i == 2 else w3))
                        moved = np.int32(shared_z[now + v]) + jump(jumps, ints[starts + v], word)
                        shared_z[then + v] = reflected(moved, ints[domains + v])
                block += lanes
            w0, w1, w2, w3 = philox(k0, k1, row, run, trial, ACCEPT)
            worst = math.log(uniform(w0)) * temperatures[agent * trials + t]
            cuda.syncthreads()
            proposed = worth_of(data, ints, base, at, factors, general, shared_z, then, sums, tid, lane, lanes)
            if worst < eased_by(proposed, violation, penalty) - eased_by(utility, violation, penalty):
                utility = proposed
                now, then = then, now
                if utility > top:
                    top = utility
                    if live:
                        v = lane
                        while v < hidden:
                            best_states[np.uint64(v) * slots + slot] = shared_z[now + v]
                            v += lanes
        if live and lane == 0:
            best_utility[slot] = top

    return joint
