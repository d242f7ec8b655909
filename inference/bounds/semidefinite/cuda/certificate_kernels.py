# mypy: ignore-errors
"""Exact maxima of all pairs' tables of a batch's cases, for certificates; laid out as in :mod:`.case_kernels`."""

from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import MOST_THREADS
from dmcmc.inference.runtime.compile import cuda_jit


@cache
def maxima_kernel(domain):
    """Return the kernel for variables of so many values."""
    d = np.uint32(domain)

    @cuda_jit()
    def exact_maxima(utilities, agents, products, shifts, sizes, bits, maxima, rows, variables):
        """Set the maxima of all pairs' tables in whole numbers, 4^bits times as large as utilities; NEVER for none.

        In: utilities (agents, n, n) int32; agents (cases,); products (cases, m, m) float64, whole numbers; shifts
        (cases, h, n) int64; sizes (cases, h); bits (cases,). Out: maxima (cases, h, h), of pairs whose first variable
        comes first; the others stay as they are.
        """
        bests = cuda.shared.array(MOST_THREADS, np.int64)
        h, m, n = np.uint32(variables), np.uint32(rows), np.uint32(variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        start = np.uint32(cuda.threadIdx.y * d)
        best, live = np.int64(NEVER), False
        if v < h and u < v and sizes[b * h + u] > 0:
            live = j < sizes[b * h + v]
        if live:
            place = np.uint32((b * m + u * d) * m + v * d + j)
            worth = np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            given, taken = np.uint32((b * h + v) * n + u * d), shifts[np.uint32((b * h + u) * n + v * d + j)]
            finer = np.int64(2 * bits[b])
            for i in range(sizes[b * h + u]):
                utility = np.int64(utilities[worth])
                if utility >= THRESHOLD:
                    x = (utility << finer) + 2 * np.int64(products[place])
                    best = max(best, x - shifts[np.uint32(given + np.uint32(i))] - taken)
                worth, place = np.uint32(worth + n), np.uint32(place + m)
        bests[np.uint32(start + j)] = best
        cuda.syncthreads()
        if live and j == 0:
            for q in range(sizes[b * h + v]):
                best = max(best, bests[np.uint32(start + np.uint32(q))])
            maxima[(b * h + u) * h + v] = best

    return exact_maxima
