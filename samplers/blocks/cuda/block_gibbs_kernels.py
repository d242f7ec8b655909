# mypy: ignore-errors
"""Gibbs steps on blocks, and starts from mini-buckets, on a GPU.

Redraw blocks of many chains on an NVIDIA GPU: one thread block per chain makes all moves of a launch in sequence.

A move is the one of :mod:`dmcmc.samplers.blocks.block_gibbs_kernels`. The block's factors are conditioned on all other
values, the tables of each bucket are joined and projected, and values are drawn backwards. The joined tables stay in
the arena, so that the draw of a variable reads one row of its bucket's table. Values are drawn by the Gumbel-max trick:
Gumbel noise, keyed by chain, move, variable and value, is added to each score, and the largest sum wins. At temperature
0 a best value is taken, and the noise breaks ties. The threads of a thread block share the factors, the cells of a
table, or the values of a variable.

Arguments that several functions share:

descriptor : (words,) int64
    All moves of the launch, one after another. ``p`` is the offset of a move, and ``r`` that of one of its records: one
    record per factor and one per bucket. ``field.NAME`` is the offset of a word within the move or record; the names
    are explained above. In short: a move has SIZE buckets and GIVEN factors,
    and from RECORDS on the offsets of their records. A factor's record has its offset in ``data`` (DATA) and,
    conditioned, in the arena (TO, with ENTRIES entries); from FACTOR on (variable, stride) of its OUTSIDE variables
    outside the block, then (variable, domain size, stride) of its INSIDE ones. A bucket's record has its VARIABLE with
    domain size DOMAIN, the offsets of its joined table (JOINED, with CELLS entries) and of its MESSAGE; from BUCKET on
    (variable, domain size) of its AXES axes, then per input (of INPUTS) the offset, the variable's stride and the axes'
    strides.
z : (n,) int32
    The chain's state.
data : (entries,) float64
    Tables of all factors.
arena : (entries,) float64
    Tables of the move's elimination.
temperature : float
    Tables are divided by it; 0 maximises.

Draw start assignments backwards through the mini-bucket tables of an elimination on a GPU: one thread per chain.

Layout of a block move's descriptor, an array of int64 words from which the GPU kernel knows how to redraw the block.

The redraw is a bucket elimination: the factors are conditioned on the variables outside the block and written to the
*arena*, a workspace of tables. Then each bucket joins its input tables and sends a message, a table over its axes.
All offsets in a descriptor are relative to its first word. ``descriptor_kernels`` writes descriptors,
``block_gibbs_kernels`` reads them.

A descriptor begins with SIZE (variables of the block) and GIVEN (factors that have a variable in the block). From
RECORDS on follow the offsets of the GIVEN factor records and of the SIZE bucket records.

A factor record: DATA, the table's offset in the data of all factors; TO, the conditioned table's offset in the arena;
ENTRIES, its number of entries there; OUTSIDE and INSIDE, the number of variables outside and inside the block. From
FACTOR on follow (variable, stride) per variable outside and (variable, domain size, stride) per variable inside; the
last of these is the last axis in the arena.

A bucket record: VARIABLE and its domain size DOMAIN; JOINED, the joined table's offset in the arena, and CELLS, its
number of entries; MESSAGE, the message's offset in the arena; INPUTS, the number of input tables; AXES, the number of
variables of the message. From BUCKET on follow (variable, domain size) per axis, then per input its offset in the
arena, its stride of the bucket's variable and its strides of the axes (0 for an axis that it does not have). The joined
table has the message's axes, and the bucket's variable last.
"""

import math

import numpy as np
from numba import config, cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import draw_backward
from dmcmc.samplers.model.state_kernels import philox, uniform

SIZE, GIVEN, RECORDS = range(3)
DATA, TO, ENTRIES, OUTSIDE, INSIDE, FACTOR = range(6)  # factor record; FACTOR: offset of its pairs
VARIABLE, DOMAIN, JOINED, CELLS, MESSAGE, INPUTS, AXES, BUCKET = range(8)  # bucket record; BUCKET: offset of its axes


THREADS = 4 if config.ENABLE_CUDASIM else 128  # threads per chain
MAX_DOMAIN = 1024  # maximum domain size: one float64 of shared memory per value
DRAW_SALT = 4  # low bits of the second counter word of the random numbers: no other draw with this key has these bits
SALT_BITS = 3  # number of these bits; the number of the move is in the bits above


@cuda.jit(device=True)
def sum_over_threads(value, shared):
    """Return the sum of the values of all threads of a thread block; a collective call."""
    t = cuda.threadIdx.x
    cuda.syncthreads()
    shared[t] = value
    cuda.syncthreads()
    total = 0.0
    for i in range(THREADS):
        total += shared[i]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def utility_of_factors(descriptor, p, data, z):
    """Return the utility, at ``z``, of this thread's share of the factors of the move at offset p."""
    utility = 0.0
    for t in range(cuda.threadIdx.x, descriptor[p + GIVEN], THREADS):
        r = p + descriptor[p + RECORDS + t]
        at, pair = descriptor[r + DATA], r + FACTOR
        for _ in range(descriptor[r + OUTSIDE]):
            at += z[descriptor[pair]] * descriptor[pair + 1]
            pair += 2
        for _ in range(descriptor[r + INSIDE]):
            at += z[descriptor[pair]] * descriptor[pair + 2]
            pair += 3
        utility += data[at]
    return utility


@cuda.jit(device=True)
def condition(descriptor, p, data, z, arena, temperature):
    """Write the factors of the move at offset p to the arena, conditioned on all variables outside the block."""
    for t in range(descriptor[p + GIVEN]):
        r = p + descriptor[p + RECORDS + t]
        base, pair = descriptor[r + DATA], r + FACTOR
        for _ in range(descriptor[r + OUTSIDE]):
            base += z[descriptor[pair]] * descriptor[pair + 1]
            pair += 2
        inside, target = np.int32(descriptor[r + INSIDE]), descriptor[r + TO]
        for i in range(cuda.threadIdx.x, descriptor[r + ENTRIES], THREADS):
            at, remainder = base, np.int32(i)
            for j in range(inside - 1, -1, -1):
                domain = np.int32(descriptor[pair + 3 * j + 1])
                quotient = remainder // domain
                at += (remainder - quotient * domain) * descriptor[pair + 3 * j + 2]
                remainder = quotient
            entry = data[at]
            arena[target + i] = entry / temperature if temperature > 0 else entry


@cuda.jit(device=True)
def join(descriptor, r, arena):
    """Write the sum of the inputs of the bucket at offset r to the arena, with the bucket's variable as last axis."""
    axes, domain = np.int32(descriptor[r + AXES]), np.int32(descriptor[r + DOMAIN])
    scope = r + BUCKET
    for i in range(cuda.threadIdx.x, descriptor[r + CELLS], THREADS):
        outer = np.int32(i) // domain
        x = np.int32(i) - outer * domain
        total, record = 0.0, scope + 2 * axes
        for _ in range(descriptor[r + INPUTS]):
            at, remainder = descriptor[record] + x * descriptor[record + 1], outer
            for j in range(axes - 1, -1, -1):
                size = np.int32(descriptor[scope + 2 * j + 1])
                quotient = remainder // size
                at += (remainder - quotient * size) * descriptor[record + 2 + j]
                remainder = quotient
            total += arena[at]
            record += 2 + axes
        arena[descriptor[r + JOINED] + i] = total


@cuda.jit(device=True)
def project(descriptor, r, arena, temperature):
    """Write a bucket's message: the maximum of the joined table over the bucket's variable, or log-sum-exp above 0."""
    domain, target, joined = descriptor[r + DOMAIN], descriptor[r + MESSAGE], descriptor[r + JOINED]
    for i in range(cuda.threadIdx.x, descriptor[r + CELLS] // domain, THREADS):
        first = joined + i * domain
        top = arena[first]
        for x in range(1, domain):
            top = max(top, arena[first + x])
        if temperature > 0:
            mass = 0.0
            for x in range(domain):
                mass += math.exp(arena[first + x] - top)
            top += math.log(mass)
        arena[target + i] = top


@cuda.jit(device=True)
def draw(descriptor, r, arena, z, temperature, noise, key0, key1, chain, number):
    """Draw a bucket's variable given those drawn before it, and write its value to ``z``.

    ``noise``, (MAX_DOMAIN,) float64, is shared memory. ``key0``, ``key1`` are the key of the random numbers; ``chain``
    and ``number``, the number of the move, belong to their counter.
    """
    domain, v = descriptor[r + DOMAIN], descriptor[r + VARIABLE]
    at, pair = np.int64(0), r + BUCKET
    for _ in range(descriptor[r + AXES]):
        at = at * descriptor[pair + 1] + z[descriptor[pair]]
        pair += 2
    at = descriptor[r + JOINED] + at * domain
    for x in range(cuda.threadIdx.x, domain, THREADS):
        word = philox(key0, key1, chain, number << SALT_BITS | DRAW_SALT, v, x)[0]
        noise[x] = -math.log(-math.log(uniform(word)))
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        best = 0
        for x in range(1, domain):
            score, best_score = arena[at + x], arena[at + best]
            if temperature > 0:
                better = score + noise[x] > best_score + noise[best]
            else:
                better = score > best_score or (score == best_score and noise[x] > noise[best])
            if better:
                best = x
        z[v] = best
    cuda.syncthreads()


@cuda_jit()
def redraw_chains(
    descriptor, begin, temperatures, moves, first, scope_start, scope, stride, table_at, data, chains, n, restart,
    min_gain, states, best_states, best_utilities, arenas, arena_size, key0, key1,
):  # fmt: skip
    """Make the same moves in all chains; thread blocks loop over the chains.

    A chain's utility is computed once, then updated by the difference of the moved factors before and after each move.

    Parameters
    ----------
    descriptor, begin : (words,), (moves,) int64
        The moves as described above; offset of each move.
    temperatures : (moves,) float64
        Temperature of each move.
    moves, first : int
        Number of moves, and number of the first move.
    scope_start : (factors + 1,) int64
        The variables of factor f are ``scope[scope_start[f]:scope_start[f + 1]]``; all factors are dense tables.
    scope, stride : (scope entries,) int64
        Variables of all factors, and the stride of each in its table, in entries.
    table_at : (factors,) int64
        Offset of each table in ``data``.
    data : (entries,) float64
        The tables; forbidden entries have a large finite loss.
    chains, n : int
        Number of chains and of variables.
    restart : bool
        Whether to begin with the best states; otherwise with ``states``, which are updated in both cases.
    min_gain : float
        A state counts as better only if it gains more than this.
    states, best_states : (chains · n,) int32
        State of each chain, and its best state after any move at temperature 0.
    best_utilities : (chains,) float64
        Utility of the best states.
    arenas : (thread blocks · arena_size,) float64
        Scratch memory.
    arena_size : int
        Entries of ``arenas`` per thread block.
    key0, key1 : uint64
        Key of the random numbers.
    """
    shared = cuda.shared.array(THREADS, np.float64)
    noise = cuda.shared.array(MAX_DOMAIN, np.float64)
    t = cuda.threadIdx.x
    arena = arenas[cuda.blockIdx.x * arena_size : (cuda.blockIdx.x + 1) * arena_size]
    for chain in range(cuda.blockIdx.x, chains, cuda.gridDim.x):
        z, best_state, best_utility = (
            states[chain * n : (chain + 1) * n],
            best_states[chain * n : (chain + 1) * n],
            best_utilities[chain],
        )
        if restart:
            for v in range(t, n, THREADS):
                z[v] = best_state[v]
        cuda.syncthreads()
        partial = 0.0
        for f in range(t, scope_start.size - 1, THREADS):
            at = table_at[f]
            for s in range(scope_start[f], scope_start[f + 1]):
                at += z[scope[s]] * stride[s]
            partial += data[at]
        utility = sum_over_threads(partial, shared)
        for m in range(moves):
            p, temperature = begin[m], temperatures[m]
            size, factors = descriptor[p + SIZE], descriptor[p + GIVEN]
            utility -= sum_over_threads(utility_of_factors(descriptor, p, data, z), shared)
            condition(descriptor, p, data, z, arena, temperature)
            cuda.syncthreads()
            for b in range(size):
                r = p + descriptor[p + RECORDS + factors + b]
                join(descriptor, r, arena)
                cuda.syncthreads()
                project(descriptor, r, arena, temperature)
                cuda.syncthreads()
            for b in range(size - 1, -1, -1):
                r = p + descriptor[p + RECORDS + factors + b]
                draw(descriptor, r, arena, z, temperature, noise, key0, key1, chain, first + m)
            utility += sum_over_threads(utility_of_factors(descriptor, p, data, z), shared)
            if temperature <= 0 and utility > best_utility + min_gain:
                best_utility = utility
                for v in range(t, n, THREADS):
                    best_state[v] = z[v]
        if t == 0:
            best_utilities[chain] = best_utility
        cuda.syncthreads()


@cuda_jit()
def draw_chains(
    domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperatures, numbers,
    chains, n, key0, key1, states, begin, end,
):  # fmt: skip
    """Draw the eliminated variables of all chains by ``draw_backward``; thread t draws chain t.

    Parameters
    ----------
    domains, scope_start, scope, table_at, variable, input_start, inputs : int64 arrays
        The elimination program, see ``dmcmc.inference.elimination.plan.BucketProgram``; ``table_at`` is its ``at``.
    arena : (entries,) int64
        The tables of the elimination.
    lowest : int
        The representation of −∞ in the arena; entries below half of it are forbidden.
    temperatures : (chains,) float64
        Temperature of each chain's start, in the units of the tables; 0 takes the best value, on a tie the smallest.
    numbers : (chains,) int64
        Counter of the random numbers of each chain's start.
    chains, n : int
        Number of chains and of variables.
    key0, key1 : uint64
        Key of the random numbers.
    states : (chains · n,) int32
        Receives the values, chain after chain. Values of the variables that are not eliminated are given.
    begin, end : int
        This launch draws from buckets ``end`` - 1 down to ``begin``. The range has all mini-buckets of each of its
        variables.
    """
    chain = cuda.grid(1)
    if chain >= chains:
        return
    draw_backward(
        domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperatures[chain], key0,
        key1, chain, numbers[chain], states, chain * n, begin, end,
    )  # fmt: skip
