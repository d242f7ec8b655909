# mypy: ignore-errors
"""Device functions by which a thread block chooses a node's branching variable; they agree with the CPU kernels.

``run_nodes`` calls the three functions in their order here, with all threads of the block. The max-marginal of a value
is its unary entry plus, for each pairwise table over its variable, the largest entry with this value.

Arguments that the functions share; n hidden variables, tables of W columns:

* block : Block, with the index arrays of all graphs, see ``dmcmc.inference.bounds.dual.cuda.descriptors``. A
  graph has a header, whose fields have named offsets: ``descriptors[graph + N]`` is n
* graph : int32, position of the header of the node's graph in ``descriptors``
* tables : (entries,) int32, working tables of the node, unary tables (n, W) first; the maxima of the unary and pairwise
  tables start at ``descriptors[graph + MAXIMA_AT]``
* max_marginals : (n * W + n,) int64, max-marginal of each value, followed by one score per variable
"""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.branch_and_bound.bounder import LEAF
from dmcmc.inference.bounds.dual.cuda.ascent_kernels import max_marginal, sum_of_maxima
from dmcmc.inference.bounds.dual.cuda.descriptors import N
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN_BELOW
from dmcmc.inference.bounds.tuning.search import BRANCH_GAP_BITS, BRANCH_SHARE


@cuda.jit(device=True)
def find_max_marginals(block, graph, tables, max_marginals):
    """Compute the max-marginal of each value in its unary and pairwise tables; ``MINUS_INFINITY`` for a removed value.

    Each thread computes one value at a time.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    for task in range(np.int32(cuda.threadIdx.x), np.int32(n * width), np.int32(cuda.blockDim.x)):
        v = np.int32(task // width)
        if tables[np.uint32(task)] < FORBIDDEN_BELOW:
            max_marginals[task] = MINUS_INFINITY
        else:
            max_marginals[task] = max_marginal(block, graph, tables, v, np.int32(task - v * width))
    cuda.syncthreads()


@cuda.jit(device=True)
def score_variables(block, graph, tables, max_marginals):
    """Write each variable's score behind the max-marginals: the sum of its values' gaps, or -1 if it has one value.

    The gap of a value is the sum of the maxima of the unary and pairwise tables minus the value's max-marginal.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    for v in range(np.int32(cuda.threadIdx.x), n, np.int32(cuda.blockDim.x)):
        largest = sum_of_maxima(block, graph, tables, v)
        total_gap, n_allowed = np.int64(0), np.int32(0)
        for i in range(width):
            value = max_marginals[v * width + i]
            if value != MINUS_INFINITY:
                n_allowed += np.int32(1)
                total_gap += largest - value
        max_marginals[n * width + v] = total_gap if n_allowed > 1 else np.int64(-1)
    cuda.syncthreads()


@cuda.jit(device=True)
def choose_variable(block, graph, max_marginals, margin, in_first_branch):
    """Return the variable with the largest score, or ``LEAF`` if every variable has one value.

    The first branch takes the best value of the variable. If the values' mean gap (score / number of values) is less
    than ``margin`` / 2^``BRANCH_GAP_BITS``, it takes the best 1 / ``BRANCH_SHARE`` of the values instead: removing the
    best value alone would hardly lower the bound of the second branch.

    Parameters
    ----------
    margin : int64
        Distance by which the bound has to fall to close the node.
    in_first_branch : (W,) uint8
        Output: 1 for the values of the first branch, otherwise 0.
    """
    width, n = np.int32(8 * len(block.octets)), np.int32(block.descriptors[graph + N])
    chosen, highest = np.int64(LEAF), np.int64(-1)
    for v in range(n):
        if max_marginals[n * width + v] > highest:
            chosen, highest = np.int64(v), max_marginals[n * width + v]
    for i in range(np.int32(cuda.threadIdx.x), width, np.int32(cuda.blockDim.x)):
        in_first_branch[i], n_allowed, n_better = 0, np.int32(0), np.int32(0)
        if chosen >= 0 and max_marginals[chosen * width + i] != MINUS_INFINITY:
            own_value = max_marginals[chosen * width + i]
            for j in range(width):
                other = max_marginals[chosen * width + j]
                if other != MINUS_INFINITY:
                    n_allowed += np.int32(1)
                    if other > own_value or (other == own_value and j < i):
                        n_better += np.int32(1)
        if n_allowed > 0:
            # ``highest`` is the sum of the gaps of the chosen variable's values
            takes_best_only = highest // n_allowed >= margin >> BRANCH_GAP_BITS
            in_first_branch[i] = n_better < (
                np.int32(1) if takes_best_only else max(np.int32(1), np.int32(n_allowed // BRANCH_SHARE))
            )
    return chosen
