# mypy: ignore-errors
"""Kernels of a descent step for all agents of a batch: smoothed maxima of all pairwise tables, and Adam's step.

The bound of an agent's rows is a sum of maxima of unary and pairwise tables. The descent lowers it by changing one
factor vector per value, and messages, which move utility between the tables. ``device_arrays.DeviceArrays`` launches
the kernels. Arrays are flattened in C order: each agent has h hidden variables of d values, n = h·d values in all.
Smaller agents are padded; padded values and variables are skipped. A unit is half the root mean variance of an
agent's pairwise tables.

The table of the pair (u, v) has the entries, for value i of u and value j of v,

    z[i, j] = utilities[i, j] + 2 products[i, j] - messages[v, i] - messages[u, j]

Its softmax weights are w[i, j] / Σ w, where, with the inverse temperature β and POWER = 32,

    w[i, j] = max(0, 1 + β (z[i, j] - max z) / POWER)^POWER,

which approximates exp(β (z[i, j] - max z)) and takes five squarings.
"""

import math
from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SECOND_MOMENT_DECAY
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.runtime.compile import cuda_jit

MAX_BLOCK_THREADS = 256  # per block of a kernel over pairs
# Fields of a step in a schedule: inverse temperature of the maxima over values and over pairs, inverse temperature of
# the maximum over rows (both per unit; the second is not used here), step size in units with Adam's bias correction of
# the first moment, and the factor that corrects the bias of the second moment's root.
INVERSE_TEMPERATURE, ROW_INVERSE_TEMPERATURE, STEP_SIZE, BIAS_CORRECTION = range(4)
FIELDS_PER_STEP = 4


@cache
def smooth_kernel(width):
    """Return the kernel of the softmax weights for variables with at most ``width`` values.

    ``width`` is d rounded up to a multiple of 8: a compile-time constant that several domain sizes share.
    """

    @cuda_jit()
    def smooth_pairs(
        utilities,
        products,
        messages,
        sizes,
        schedule,
        weights,
        marginals,
        maxima,
        n_variables,
        domain,
        blocks_per_variable,
        n_agents,
        step,
    ):
        """Compute the softmax weights of each pair's table, their marginals, and the tables' maxima.

        A block handles one variable u of an agent and several partners v. Thread ``tid`` holds the value j = ``tid`` %
        d of partner number ``tid`` // d, and all values of u: a column of their table, so that neighbouring threads
        access neighbouring addresses. The d threads of a partner combine their columns through shared memory. Each pair
        is processed twice, once from each side, which moves less data than transposing tables. Threads without a table
        still reach every barrier.

        Parameters
        ----------
        utilities, products : (agents, n, n) float32
            Pairwise utilities in units, and inner products of the factor vectors.
        messages : (agents, h, n) float32
            ``messages[v, a]``, for a value a of u, is subtracted from the row of a in the table of the pair (u, v).
        sizes : (agents, h) int32
            Domain sizes; 0 for a padded variable.
        schedule : (steps, agents, FIELDS_PER_STEP) float32
            Parameters of the steps, see ``INVERSE_TEMPERATURE``.
        weights : (agents, n, n) float32
            Output: weight of each entry; the block of a pair sums to one in each of its two orders.
        marginals : (agents, h, n) float32
            Output: sums of the weights over the partner's values, laid out as ``messages``.
        maxima : (agents, h, h) float32
            Output: maximum of each pair's table, in both orders of the pair.
        n_variables, domain : int
            h and d.
        blocks_per_variable : int
            Number of blocks that share one u; each takes other partners v.
        n_agents : int
            Number of agents.
        step : int
            Index of the step in the schedule.
        """
        column_maxima = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        column_masses = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        column = cuda.local.array(width, np.float32)
        h, d, n = np.int32(n_variables), np.int32(domain), np.int32(n_variables * domain)
        tid, block = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        # agent b, its variable u, partner v, and value j of v
        u, b = np.int32((block // blocks_per_variable) % h), np.int32(block // (blocks_per_variable * h))
        v = np.int32((block % blocks_per_variable) * (cuda.blockDim.x // d) + tid // d)
        j = np.int32(tid % d)
        size_u, in_table = np.int32(sizes[b * h + u]), False
        if v < h and v != u:
            in_table = size_u > 0 and j < sizes[b * h + v]
        entry = np.int32((b * n + u * d) * n + v * d + j)
        messages_of_u_at = np.int32((b * h + v) * n + u * d)
        message_of_v_at = np.int32((b * h + u) * n + v * d + j)
        # a weight is max(0, 1 + (z - max z) * factor)^POWER
        factor = schedule[(step * n_agents + b) * FIELDS_PER_STEP + INVERSE_TEMPERATURE] / np.float32(POWER)
        # -3e38 is close to the most negative float32 and stands for minus infinity
        best, zero, one, two = np.float32(-3e38), np.float32(0), np.float32(1), np.float32(2)
        if in_table:
            message = messages[message_of_v_at]
            for i in range(width):
                if i < size_u:
                    position = np.int32(entry + i * n)
                    x = utilities[position] + two * products[position] - messages[messages_of_u_at + i] - message
                    column[i] = x
                    best = max(best, x)
        column_maxima[tid] = best
        cuda.syncthreads()
        first_thread = np.int32(tid - j)
        # maximum over the d columns of the table, one per thread
        for k in range(d):
            best = max(best, column_maxima[first_thread + k])
        mass = zero
        if in_table:
            for i in range(width):
                if i < size_u:
                    x = max(zero, one + (column[i] - best) * factor)
                    x = x * x  # five squarings: x^POWER
                    x = x * x
                    x = x * x
                    x = x * x
                    x = x * x
                    column[i] = x
                    mass += x
        column_masses[tid] = mass
        cuda.syncthreads()
        if in_table:
            total = zero
            for k in range(d):
                total += column_masses[first_thread + k]
            scale = one / total
            for i in range(width):
                if i < size_u:
                    weights[np.int32(entry + i * n)] = column[i] * scale
            marginals[message_of_v_at] = mass * scale
            if j == 0:
                maxima[(b * h + u) * h + v] = best

    return smooth_pairs


@cuda_jit()
def adam(variables, gradient, first_moment, second_moment, schedule, entries_per_agent, n_agents, step):
    """Make an Adam step (Kingma and Ba, 2015); each thread updates entries at a stride of the whole grid.

    With gradient g, first moment a and second moment s: a = MOMENTUM a + (1 - MOMENTUM) g, s = SECOND_MOMENT_DECAY s +
    (1 - SECOND_MOMENT_DECAY) g², and the variable falls by STEP_SIZE a / (BIAS_CORRECTION √s + 1e-8).

    Parameters
    ----------
    variables : (agents, entries_per_agent) float32
        Factor vectors or messages of all agents; updated.
    gradient : (agents, entries_per_agent) float32
        Gradient of the smoothed bound.
    first_moment, second_moment : (agents, entries_per_agent) float32
        Running means of the gradient and of its square (Adam's m and v); updated.
    schedule : (steps, agents, FIELDS_PER_STEP) float32
        Parameters of the steps, see ``INVERSE_TEMPERATURE``.
    entries_per_agent, n_agents : int
        Sizes of the arrays.
    step : int
        Index of the step in the schedule.
    """
    size, threads = np.int32(entries_per_agent * n_agents), np.int32(cuda.gridsize(1))
    for k in range(np.int32(cuda.grid(1)), size, threads):
        offset = np.int32((step * n_agents + k // entries_per_agent) * FIELDS_PER_STEP)
        derivative = gradient[k]
        new_first = np.float32(MOMENTUM) * first_moment[k] + np.float32(1 - MOMENTUM) * derivative
        new_second = (
            np.float32(SECOND_MOMENT_DECAY) * second_moment[k]
            + np.float32(1 - SECOND_MOMENT_DECAY) * derivative * derivative
        )
        first_moment[k] = new_first
        second_moment[k] = new_second
        # 1e-8 is Adam's epsilon, which avoids a division by zero
        denominator = np.float32(math.sqrt(new_second)) * schedule[offset + BIAS_CORRECTION] + np.float32(1e-8)
        variables[k] -= schedule[offset + STEP_SIZE] * new_first / denominator
