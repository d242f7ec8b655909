# mypy: ignore-errors
"""Draw start assignments backwards through the mini-bucket tables of an elimination on a GPU: one thread per chain."""

from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import draw_backward


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
