# mypy: ignore-errors
"""Redraw blocks of many chains on an NVIDIA GPU: a block of threads a chain, all moves of a launch one after the other.

A move is that of :mod:`dmcmc.samplers.blocks.block_gibbs_kernels`: the block's factors are conditioned on all other values,
each bucket's tables are joined and projected, and values are drawn backward. The joined tables stay in the chain's
arena, so that the draw of a variable reads one row of its bucket's. It is drawn with Gumbel's noise, keyed by chain,
move, variable and value; at temperature 0 a best value is taken, and among several the one with the largest noise.
"""

import math

import numpy as np
from numba import config, cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.cuda import descriptors as w
from dmcmc.samplers.model.rng_kernels import philox, uniform

THREADS = 4 if config.ENABLE_CUDASIM else 128  # of a chain
WIDEST = 1024  # values of a variable
SALT, SHIFT = 4, 3  # below the number of a move: no other draw with this key has it


@cuda.jit(device=True)
def add_up(mine, shared):
    """Return the sum of what all threads of a chain have; all of them call it."""
    t = cuda.threadIdx.x
    cuda.syncthreads()
    shared[t] = mine
    cuda.syncthreads()
    total = 0.0
    for i in range(THREADS):
        total += shared[i]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def worth_of_factors(code, p, data, z):
    """Return what this thread's factors of a move are worth."""
    mine = 0.0
    for t in range(cuda.threadIdx.x, code[p + w.GIVEN], THREADS):
        r = p + code[p + w.RECORDS + t]
        at, pair = code[r + w.DATA], r + w.FACTOR
        for _ in range(code[r + w.OUTSIDE]):
            at += z[code[pair]] * code[pair + 1]
            pair += 2
        for _ in range(code[r + w.INSIDE]):
            at += z[code[pair]] * code[pair + 2]
            pair += 3
        mine += data[at]
    return mine


@cuda.jit(device=True)
def condition(code, p, data, z, arena, temperature):
    """Write a move's factors, given all variables outside, to the arena."""
    for t in range(code[p + w.GIVEN]):
        r = p + code[p + w.RECORDS + t]
        base, pair = code[r + w.DATA], r + w.FACTOR
        for _ in range(code[r + w.OUTSIDE]):
            base += z[code[pair]] * code[pair + 1]
            pair += 2
        inside, to = np.int32(code[r + w.INSIDE]), code[r + w.TO]
        for i in range(cuda.threadIdx.x, code[r + w.ENTRIES], THREADS):
            at, rest = base, np.int32(i)
            for j in range(inside - 1, -1, -1):
                domain = np.int32(code[pair + 3 * j + 1])
                following = rest // domain
                at += (rest - following * domain) * code[pair + 3 * j + 2]
                rest = following
            entry = data[at]
            arena[to + i] = entry / temperature if temperature > 0 else entry


@cuda.jit(device=True)
def join(code, r, arena):
    """Write the sum of a bucket's inputs."""
    axes, domain = np.int32(code[r + w.AXES]), np.int32(code[r + w.DOMAIN])
    scope = r + w.BUCKET
    for i in range(cuda.threadIdx.x, code[r + w.CELLS], THREADS):
        outer = np.int32(i) // domain
        x = np.int32(i) - outer * domain
        total, record = 0.0, scope + 2 * axes
        for _ in range(code[r + w.INPUTS]):
            at, rest = code[record] + x * code[record + 1], outer
            for j in range(axes - 1, -1, -1):
                size = np.int32(code[scope + 2 * j + 1])
                following = rest // size
                at += (rest - following * size) * code[record + 2 + j]
                rest = following
            total += arena[at]
            record += 2 + axes
        arena[code[r + w.JOINED] + i] = total


@cuda.jit(device=True)
def project(code, r, arena, temperature):
    """Write a bucket's message: the largest of the joined entries over its variable, or the log of their sum."""
    domain, to, joined = code[r + w.DOMAIN], code[r + w.MESSAGE], code[r + w.JOINED]
    for i in range(cuda.threadIdx.x, code[r + w.CELLS] // domain, THREADS):
        first = joined + i * domain
        top = arena[first]
        for x in range(1, domain):
            top = max(top, arena[first + x])
        if temperature > 0:
            mass = 0.0
            for x in range(domain):
                mass += math.exp(arena[first + x] - top)
            top += math.log(mass)
        arena[to + i] = top


@cuda.jit(device=True)
def draw(code, r, arena, z, temperature, noise, key0, key1, chain, number):
    """Draw a bucket's variable, given those that were drawn before it."""
    domain, v = code[r + w.DOMAIN], code[r + w.VARIABLE]
    at, pair = np.int64(0), r + w.BUCKET
    for _ in range(code[r + w.AXES]):
        at = at * code[pair + 1] + z[code[pair]]
        pair += 2
    at = code[r + w.JOINED] + at * domain
    for x in range(cuda.threadIdx.x, domain, THREADS):
        word = philox(key0, key1, chain, number << SHIFT | SALT, v, x)[0]
        noise[x] = -math.log(-math.log(uniform(word)))
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        best = 0
        for x in range(1, domain):
            one, other = arena[at + x], arena[at + best]
            if temperature > 0:
                better = one + noise[x] > other + noise[best]
            else:
                better = one > other or (one == other and noise[x] > noise[best])
            if better:
                best = x
        z[v] = best
    cuda.syncthreads()


@cuda_jit()
def redraw_chains(
    code, begin, temperatures, moves, first, scope_start, scope, stride, table_at, data, chains, n, restart, gain,
    zs, bests, tops, arenas, room, key0, key1,
):  # fmt: skip
    """Make the same moves in all chains.

    Parameters
    ----------
    code, begin : (words,), (moves,) int64
        See :mod:`dmcmc.samplers.blocks.cuda.descriptors`; where each move begins.
    temperatures : (moves,) float64
    first : int
        Number of the first move.
    scope_start, scope, stride, table_at, data
        The factors, all of them dense, as in :class:`dmcmc.samplers.blocks.block_workspace.Priced`.
    restart : bool
        Begin with the best states.
    gain : float
        What a state must be better by to count as better.
    zs, bests : (chains · n,) int32
        States of the chains, and the best of each at the end of a move at temperature 0.
    tops : (chains,) float64
        What the best states are worth.
    arenas, room
        Scratch, and the entries of it that a block of threads has.
    """
    shared = cuda.shared.array(THREADS, np.float64)
    noise = cuda.shared.array(WIDEST, np.float64)
    t = cuda.threadIdx.x
    arena = arenas[cuda.blockIdx.x * room : (cuda.blockIdx.x + 1) * room]
    for chain in range(cuda.blockIdx.x, chains, cuda.gridDim.x):
        z, best, top = zs[chain * n : (chain + 1) * n], bests[chain * n : (chain + 1) * n], tops[chain]
        if restart:
            for v in range(t, n, THREADS):
                z[v] = best[v]
        cuda.syncthreads()
        mine = 0.0
        for f in range(t, scope_start.size - 1, THREADS):
            at = table_at[f]
            for s in range(scope_start[f], scope_start[f + 1]):
                at += z[scope[s]] * stride[s]
            mine += data[at]
        worth = add_up(mine, shared)
        for m in range(moves):
            p, temperature = begin[m], temperatures[m]
            size, given = code[p + w.SIZE], code[p + w.GIVEN]
            worth -= add_up(worth_of_factors(code, p, data, z), shared)
            condition(code, p, data, z, arena, temperature)
            cuda.syncthreads()
            for b in range(size):
                r = p + code[p + w.RECORDS + given + b]
                join(code, r, arena)
                cuda.syncthreads()
                project(code, r, arena, temperature)
                cuda.syncthreads()
            for b in range(size - 1, -1, -1):
                r = p + code[p + w.RECORDS + given + b]
                draw(code, r, arena, z, temperature, noise, key0, key1, chain, first + m)
            worth += add_up(worth_of_factors(code, p, data, z), shared)
            if temperature <= 0 and worth > top + gain:
                top = worth
                for v in range(t, n, THREADS):
                    best[v] = z[v]
        if t == 0:
            tops[chain] = top
        cuda.syncthreads()
