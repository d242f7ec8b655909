# mypy: ignore-errors
"""Metropolis-Hastings with joint proposals on an NVIDIA GPU: several threads per chain.

A *row* is an assignment of an agent's boundary variables (its interface); several chains, the runs, sample the agent's
hidden variables for each row. A *trial* proposes new values of all hidden variables and evaluates all factors once. So
the threads of a chain (its *lanes*) work independently: they take turns at variables, four per block of random bits,
and at factors. The chains of a thread block are neighbouring runs and rows of one agent::

    shared memory:  sums[thread]                              int64, utility of the factors of one lane
                    z[chain, current | proposed, variable]    two states per chain, one or two bytes per value;
                                                              swapped when a proposal is accepted

Every lane adds the sums of its chain, so all come to the same decision, with two barriers per trial. The chains are
those of :func:`dmcmc.samplers.methods.metropolis.step`, up to the last bit of a logarithm.

A factor is read through one of its *columns*: its utilities for all values of one hidden variable (its *own* variable),
contiguous in memory, given the values of its *other* variables. Utilities are integers in *chain units* (utilities
times a power of two, rounded). A forbidden entry adds −2^k; the acceptance test subtracts a finite penalty instead (the
*eased* utility).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda, types

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.cuda import layout_kernels as layout
from dmcmc.samplers.cuda.chain_kernels import chain_of_thread
from dmcmc.samplers.model.proposal_kernels import jump, reflected
from dmcmc.samplers.model.state_kernels import eased_utility, philox, uniform

ACCEPT_BLOCK = 1 << 23  # block of the chain's counter for the acceptance test: above those of all variables


@lru_cache
def joint_kernel(byte_values: bool) -> Any:
    """Return the kernel for values of one byte or of two; it is compiled when it is first launched."""
    value_type = types.uint8 if byte_values else types.uint16

    @cuda.jit(device=True, inline="always")
    def entry_offset(ints, at, factors, f, lists_at, shared_z, z):
        """Return the offset of the entry of factor f, in the agent's data, for the values at ``shared_z[z:]``.

        The factors' records are four arrays of length ``factors`` at ``ints[at:]``: offset of the column for which all
        other variables are 0, own variable, other variable, stride of the other variable in entries. If a factor has no
        or several other variables, the third field is −1 less their number. Then the fourth is the offset, from
        ``lists_at`` on, of their (variable, stride) pairs in ``ints``.
        """
        offset = ints[at + f] + np.int32(shared_z[z + np.uint32(ints[at + factors + f])])
        other, stride = ints[at + np.uint32(2) * factors + f], ints[at + np.uint32(3) * factors + f]
        if other >= 0:
            return offset + np.int32(shared_z[z + np.uint32(other)]) * stride
        list_at = lists_at + np.uint32(stride)  # then ``other`` is −1 less the number of others
        for o in range(np.uint32(-1 - other)):
            w = np.uint32(ints[list_at + np.uint32(2) * o])
            offset += np.int32(shared_z[z + w]) * ints[list_at + np.uint32(2) * o + np.uint32(1)]
        return offset

    @cuda.jit(device=True, inline="always")
    def utility_of(data, ints, base, at, factors, lists_at, shared_z, z, sums, tid, lane, lanes):
        """Return the utility of the state at ``shared_z[z:]``; all threads of a block call this together.

        ``sums`` is shared memory, one int64 per thread. Each of a chain's ``lanes`` threads sums some factors; every
        lane then adds the sums of all lanes. ``tid`` is the thread's index in its block and ``lane`` that in its chain.
        ``base`` is the offset of the agent's columns in ``data``; for ``at``, ``factors`` and ``lists_at`` see
        ``entry_offset``.
        """
        total, f = np.int64(0), lane
        while f + lanes < factors:  # two factors at a time: more loads in flight
            first_entry = entry_offset(ints, at, factors, f, lists_at, shared_z, z)
            second_entry = entry_offset(ints, at, factors, f + lanes, lists_at, shared_z, z)
            total += np.int64(data[base + np.int64(first_entry)]) + np.int64(data[base + np.int64(second_entry)])
            f += np.uint32(2) * lanes
        if f < factors:
            total += np.int64(data[base + np.int64(entry_offset(ints, at, factors, f, lists_at, shared_z, z))])
        sums[tid] = total
        cuda.syncthreads()
        total = np.int64(0)
        for i in range(lanes):
            total += sums[tid - lane + np.uint32(i)]
        return total

    @cuda_jit()
    def joint(
        data, ints, jumps, penalties, headers, parts, part_of_block, temperatures, trials, first, lanes, best_states,
        best_utility,
    ):  # fmt: skip
        """Run one round; ``lanes`` threads run one chain.

        A proposal is accepted if log(u) · temperature < gain of eased utility, with u uniform in (0, 1).

        Parameters
        ----------
        data : (entries,) uint16 or int32
            The agents' columns, one agent after another, in chain units.
        ints : (any,) int32
            Domain sizes, offsets of jump tables, and records of factors; the headers have the offsets (columns
            ``..._AT``).
        jumps : (any,) uint32
            Alias tables of the proposal, 256 words per distinct domain size: a draw of round(N(0, √|D|)) from one
            random word, added to the current value and reflected at the ends of the domain.
        penalties : (agents,) float64
            Penalty of a violation, in chain units.
        headers : (agents · HEADER_SIZE,) int64
            Sizes, offsets and random key of each agent; ``layout`` names the columns.
        parts : (parts · PART_SIZE,) int64
            Parts of the launch, consecutive rows of one agent each: agent, first row, number of rows, first thread
            block.
        part_of_block : (blocks,) int32
            The part that each block works on.
        temperatures : (agents · trials,) float32
            In chain units.
        trials, first : int
            Number of trials, and number of the first one, from 1; trial 0 draws the first state.
        lanes : int
            Threads per chain, a power of two up to 32.
        best_states : (hidden · all chains,) uint8 or uint16
            Written: best state of each chain; variables first, then chains. ``hidden`` is the largest of all agents.
        best_utility : (all chains,) int64
            Written: its utility in chain units, with −2^k per violation.
        """
        sums = cuda.shared.array(0, types.int64)
        shared_z = cuda.shared.array(0, value_type)
        tid, threads, lanes = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x), np.uint32(lanes)
        chain, lane, chains = tid // lanes, tid % lanes, threads // lanes
        # An idle thread repeats chain 0 without writing.
        agent, h, row, run, active = chain_of_thread(parts, part_of_block, headers, chains, chain)
        n, hidden = np.uint32(headers[h + layout.VARIABLES]), np.uint32(headers[h + layout.HIDDEN])
        domains, starts = np.uint32(headers[h + layout.DOMAINS_AT]), np.uint32(headers[h + layout.VARIABLE_STARTS_AT])
        base, at, factors = (
            headers[h + layout.TABLE_AT],
            np.uint32(headers[h + layout.FACTORS_AT]),
            np.uint32(headers[h + layout.FACTORS]),
        )
        lists_at, violation, penalty = (
            np.uint32(headers[h + layout.WIDE_AT]),
            headers[h + layout.VIOLATION_SHIFT],
            penalties[agent],
        )
        k0, k1 = np.uint64(headers[h + layout.KEY_0]), np.uint64(headers[h + layout.KEY_1])
        global_chain = np.uint64(cuda.blockIdx.x) * np.uint64(chains) + np.uint64(chain)
        all_chains = np.uint64(cuda.gridDim.x) * np.uint64(chains)
        # The states follow the sums, whose 8 bytes per thread are 8 values of one byte or 4 of two.
        current = np.uint32(8 if byte_values else 4) * threads + np.uint32(2) * chain * n
        proposal = current + n

        # First state: interface values from the row's number, hidden values drawn.
        if lane == 0:
            quotient, v = row, n
            while v > hidden:
                v -= np.uint32(1)
                size = np.uint32(ints[domains + v])
                shared_z[current + v] = quotient % size
                shared_z[proposal + v] = quotient % size
                quotient = np.uint32(quotient // size)
        block = lane
        while np.uint32(4) * block < hidden:
            w0, w1, w2, w3 = philox(k0, k1, row, run, 0, block)
            for i in range(4):
                v = np.uint32(4) * block + np.uint32(i)
                if v < hidden:
                    word = w0 if i == 0 else (w1 if i == 1 else (w2 if i == 2 else w3))
                    size = ints[domains + v]
                    shared_z[current + v] = min(np.int32(uniform(word) * size), size - np.int32(1))
            block += lanes
        cuda.syncthreads()
        utility = utility_of(data, ints, base, at, factors, lists_at, shared_z, current, sums, tid, lane, lanes)
        best = utility
        if active:
            v = lane
            while v < hidden:
                best_states[np.uint64(v) * all_chains + global_chain] = shared_z[current + v]
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
                        moved = np.int32(shared_z[current + v]) + jump(jumps, ints[starts + v], word)
                        shared_z[proposal + v] = reflected(moved, ints[domains + v])
                block += lanes
            w0, w1, w2, w3 = philox(k0, k1, row, run, trial, ACCEPT_BLOCK)
            # A proposal is accepted with probability min(1, exp(gain / temperature)); the logarithm is negative.
            largest_loss = math.log(uniform(w0)) * temperatures[agent * trials + t]
            cuda.syncthreads()
            proposed = utility_of(data, ints, base, at, factors, lists_at, shared_z, proposal, sums, tid, lane, lanes)
            if largest_loss < eased_utility(proposed, violation, penalty) - eased_utility(utility, violation, penalty):
                utility = proposed
                current, proposal = proposal, current
                if utility > best:
                    best = utility
                    if active:
                        v = lane
                        while v < hidden:
                            best_states[np.uint64(v) * all_chains + global_chain] = shared_z[current + v]
                            v += lanes
        if active and lane == 0:
            best_utility[global_chain] = best

    return joint
