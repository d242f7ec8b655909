# mypy: ignore-errors
"""GPU kernel for the exact maxima of the nodes' pairwise tables, which certificates add up.

A certificate is an upper bound that is computed exactly in integers. A node is a row of an agent (an assignment of its
boundary variables) with some hidden variables fixed. Arrays are flattened in C order: each node has h variables of d
values, n = h·d values, and m > n factor vectors, one per value; vector number n is the row's.
"""

from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import MAX_BLOCK_THREADS
from dmcmc.inference.runtime.compile import cuda_jit


@cache
def maxima_kernel(domain):
    """Return the kernel for variables of ``domain`` values."""
    d = np.uint32(domain)

    @cuda_jit()
    def exact_maxima(utilities, agents, products, messages, sizes, bits, maxima, n_vectors, n_variables):
        """Compute the exact maxima of the pairwise tables in multiples of 4^-bits of a utility.

        The table of the pair (u, v) has the entry utilities · 4^bits + 2 products - (message of u's value) - (message
        of v's value). A block handles one variable u (``blockIdx.y``) of a node (``blockIdx.z``) and several partners v
        > u; a thread has one value j of v. The maximum of a table without allowed entries is ``MINUS_INFINITY``.

        Parameters
        ----------
        utilities : (agents, n, n) int32
            Pairwise utilities; entries below ``FORBIDDEN_BELOW`` are forbidden.
        agents : (nodes,) int32
            Agent of each node.
        products : (nodes, m, m) float64
            Gram matrices of the factor vectors: integers in multiples of 4^-bits.
        messages : (nodes, h, n) int64
            Messages in multiples of 4^-bits: entry (v, a) is subtracted from the entries of value a of u in the table
            of the pair (u, v).
        sizes : (nodes, h) int32
            Domain sizes; 0 for a fixed or padded variable.
        bits : (nodes,) int64
            Fraction bits of a vector component; a product of two components has twice as many.
        maxima : (nodes, h, h) int64
            Output for the pairs (u, v) with u < v; other entries are not written.
        n_vectors, n_variables : int
            m and h.
        """
        column_maxima = cuda.shared.array(MAX_BLOCK_THREADS, np.int64)
        h, m, n = np.uint32(n_variables), np.uint32(n_vectors), np.uint32(n_variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        first_thread = np.uint32(cuda.threadIdx.y * d)
        best, in_table = np.int64(MINUS_INFINITY), False
        if v < h and u < v and sizes[b * h + u] > 0:
            in_table = j < sizes[b * h + v]
        if in_table:
            position = np.uint32((b * m + u * d) * m + v * d + j)
            utility_at = np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            messages_of_u_at = np.uint32((b * h + v) * n + u * d)
            message = messages[np.uint32((b * h + u) * n + v * d + j)]
            fraction_bits = np.int64(2 * bits[b])
            for i in range(sizes[b * h + u]):
                utility = np.int64(utilities[utility_at])
                if utility >= FORBIDDEN_BELOW:
                    x = (utility << fraction_bits) + 2 * np.int64(products[position])
                    best = max(best, x - messages[np.uint32(messages_of_u_at + np.uint32(i))] - message)
                utility_at, position = np.uint32(utility_at + n), np.uint32(position + m)
        column_maxima[np.uint32(first_thread + j)] = best
        cuda.syncthreads()
        # the first thread of a table combines the maxima of its columns
        if in_table and j == 0:
            for k in range(sizes[b * h + v]):
                best = max(best, column_maxima[np.uint32(first_thread + np.uint32(k))])
            maxima[(b * h + u) * h + v] = best

    return exact_maxima
