# mypy: ignore-errors
"""Kernels of a descent step for all nodes of a batch; ``node_arrays`` launches them.

A node is a row of an agent (an assignment of its boundary variables) with some hidden variables fixed. Its bound is a
sum of maxima of unary and pairwise tables, to which the descent adds products of factor vectors. The arrays are
flattened in C order: each node has h variables of d values, n = h·d values, and m > n factor vectors, one per value;
vector number n is the row's, later ones are padding. Fixed and padded variables are skipped; padded values are
forbidden in the tables. A unit is half the root mean variance of an agent's pairwise tables.

The table of the pair (u, v) has the entries, for value i of u and value j of v,

    z[i, j] = utilities[i, j] + 2 products[i, j] - messages[v, i] - messages[u, j]

With the inverse temperature β, the smoothed max-marginal of j is (1 / β) log Σ_i exp(β z[i, j]). The softmax weights
are w[i, j] / Σ w with w[i, j] = max(0, 1 + β (z[i, j] - max z) / POWER)^POWER, which approximates exp(β (z[i, j] - max
z)); POWER = 32 takes five squarings.

In the kernels over pairs, a block handles one variable u (``blockIdx.y``) of a node (``blockIdx.z``) and several
partners v > u. A thread holds one value j of v and all values of u, a column of the table, so that neighbouring threads
access neighbouring addresses. The transposed table goes through shared memory; after a barrier, j is a value of u.

In ``adam_step``, ``threadIdx.y`` selects a factor vector and the threads of ``threadIdx.x`` share its components.

Indices are unsigned and the domain size is a compile-time constant of each kernel, which halves the number of
instructions.

Array arguments shared by the kernels:

* utilities (agents, n, n) float32: pairwise utilities, in units
* agents (nodes,) int32: agent of each node
* products (nodes, m, m) float16: Gram matrices of the vectors
* messages, maxima_of_values (nodes, h, n) float32: entry (v, a) belongs to the table of v and the variable u of value
  a. The message is subtracted from that table and added to the unary utility of a; the other is the max-marginal of a
* sizes (nodes, h) int32: domain sizes; 0 for a fixed or padded variable
* schedule (steps, FIELDS_PER_STEP) float32: parameters of the steps; ``step`` is the index of the current one
* weights (nodes, m, m) float16: softmax weights
* n_variables, n_vectors: h and m
"""

import math
from functools import cache

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.contract.tuning import (
    ADAM_EPSILON,
    MAX_UTILITY_DROP,
    MESSAGE_DAMPING,
    MOMENTUM,
    SECOND_MOMENT_DECAY,
)
from dmcmc.inference.bounds.semidefinite.node_steps import POWER
from dmcmc.inference.runtime.compile import cuda_jit

# Fields of a step in a schedule: inverse temperature of the maxima per unit, step size in units with Adam's bias
# correction of the first moment, and the factor that corrects the bias of the second moment's root.
INVERSE_TEMPERATURE, STEP_SIZE, BIAS_CORRECTION = range(3)
FIELDS_PER_STEP = 3
MAX_BLOCK_THREADS = 256  # per block of a kernel over pairs
TABLE_BYTES = 40 << 10  # shared memory per block for transposed tables; the rest of the 48 KiB is for reductions
MAXIMUM_THREADS = 8  # threads that compute partial maxima over a variable's values; chosen by measurement
ENTRIES_PER_LOAD = 4  # entries that a thread loads before it uses the first one, which hides the latency
_LOW = np.float32(-1e30)  # stands for minus infinity; finite, so that no difference is NaN


def tables_per_block(domain: int) -> int:
    """Return how many tables of a domain size fit into the shared memory of a block; 0 if a single one does not.

    A table has ``domain`` rows of ``domain`` + 1 float32: the extra column avoids bank conflicts. Each table takes
    ``domain`` threads of the block.
    """
    return min(MAX_BLOCK_THREADS // domain, TABLE_BYTES // (4 * domain * (domain + 1)))


@cache
def value_maxima_kernel(domain):
    """Return the kernel of the smoothed max-marginals for variables of ``domain`` values."""
    d, stride, entries = np.uint32(domain), np.uint32(domain + 1), tables_per_block(domain) * domain * (domain + 1)

    # log-sum-exp over the other variable's values gives the smoothed max-marginal
    @cuda_jit(fastmath=True)
    def value_maxima(
        utilities, agents, products, messages, sizes, schedule, maxima_of_values, n_variables, n_vectors, step
    ):
        """Compute the smoothed max-marginals of both variables' values in each pairwise table.

        The threads hold columns of the table before the barrier and rows after it. ``maxima_of_values`` is the output;
        the module defines the formula and all arguments.
        """
        transposed = cuda.shared.array(entries, np.float32)
        column = cuda.local.array(domain, np.float32)
        h, m, n = np.uint32(n_variables), np.uint32(n_vectors), np.uint32(n_variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(u + np.uint32(1) + cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        exists = v < h and sizes[b * h + u] > 0 and sizes[b * h + v] > 0
        table_start = np.uint32(cuda.threadIdx.y * d * stride)
        inverse_temperature = schedule[np.uint32(step * FIELDS_PER_STEP + INVERSE_TEMPERATURE)]
        total = np.float32(0)
        two = np.float32(2)
        if exists and j < sizes[b * h + v]:
            position = np.uint32((b * m + u * d) * m + v * d + j)
            utility_at = np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            messages_of_u_at = np.uint32((b * h + v) * n + u * d)
            message_of_v_at = np.uint32((b * h + u) * n + v * d + j)
            message, best = messages[message_of_v_at], _LOW
            for i in range(domain):
                x = (
                    utilities[utility_at]
                    + two * np.float32(products[position])
                    - messages[np.uint32(messages_of_u_at + i)]
                    - message
                )
                column[i] = x
                transposed[np.uint32(table_start + np.uint32(i) * stride + j)] = x
                best = max(best, x)
                utility_at, position = np.uint32(utility_at + n), np.uint32(position + m)
            for i in range(domain):
                total += np.float32(math.exp((column[i] - best) * inverse_temperature))
            maxima_of_values[message_of_v_at] = best + np.float32(math.log(total)) / inverse_temperature
        else:
            for i in range(domain):
                transposed[np.uint32(table_start + np.uint32(i) * stride + j)] = _LOW
        cuda.syncthreads()
        if exists and j < sizes[b * h + u]:  # from now on j is a value of u
            best, total, position = _LOW, np.float32(0), np.uint32(table_start + j * stride)
            for i in range(domain):
                column[i] = transposed[np.uint32(position + np.uint32(i))]
                best = max(best, column[i])
            for i in range(domain):
                total += np.float32(math.exp((column[i] - best) * inverse_temperature))
            maxima_of_values[np.uint32((b * h + v) * n + u * d + j)] = (
                best + np.float32(math.log(total)) / inverse_temperature
            )

    return value_maxima


@cache
def message_kernel(domain):
    """Return the kernel of the message update for variables of ``domain`` values."""
    d, n_partial = np.uint32(domain), min(MAXIMUM_THREADS, domain)

    @cuda_jit(fastmath=True)
    def update_messages(
        products,
        messages,
        maxima_of_values,
        values,
        sizes,
        table_counts,
        schedule,
        weights,
        best,
        n_variables,
        n_vectors,
        step,
    ):
        """Move each variable's messages such that its max-marginals become equal in all tables; set the unary weights.

        A block handles one variable w (``blockIdx.y``) of a node (``blockIdx.z``). ``threadIdx.x`` is a value j of w;
        the groups of ``threadIdx.y`` share the partners v. The target of value j is the mean, over all tables with w,
        of its max-marginal minus the table's maximum; such a difference counts as at least -``MAX_UTILITY_DROP``. Each
        message moves by ``MESSAGE_DAMPING`` times the difference to the target, and the unary utility of j absorbs the
        sum of these moves. The unary weights are exp(β (x[j] - max x)) / Σ exp(β (x - max x)) for unary utilities x.

        Parameters
        ----------
        values : (nodes, n) float32
            Unary utilities, in units.
        table_counts : (nodes,) float32
            Number of tables over each variable: one per pair and the unary one.
        maxima_of_values : (nodes, h, n) float32
            In: max-marginals of the pairwise tables. Out: the max-marginals minus each table's maximum.
        messages : (nodes, h, n) float32
            Updated.
        weights : (nodes, m, m) float16
            Output: softmax weights of the values, on the diagonal and in row n and column n.
        best : (nodes, h) float32
            Output: maximum of each variable's unary table.
        """
        buffer_a = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        buffer_b = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        h, m, n = np.uint32(n_variables), np.uint32(n_vectors), np.uint32(n_variables * d)
        j, group, n_groups = np.uint32(cuda.threadIdx.x), np.uint32(cuda.threadIdx.y), np.uint32(cuda.blockDim.y)
        w, b = np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        max_drop, zero, damped = np.float32(-MAX_UTILITY_DROP), np.float32(0), np.float32(MESSAGE_DAMPING)
        if sizes[b * h + w] > 0:  # uniform within a block, which the barriers require
            is_value, first_thread = j < sizes[b * h + w], np.uint32(group * d)
            thread_index, sum_maxima, sum_messages = np.uint32(first_thread + j), zero, zero
            # partners per group: all groups make the same number of rounds, which the barriers require
            n_rounds = np.uint32((h + n_groups - np.uint32(1)) // n_groups)
            for round_index in range(n_rounds):
                v = np.uint32(round_index * n_groups + group)
                position = np.uint32((b * h + v) * n + w * d + j)
                x, is_pair = _LOW, False
                if v < h and v != w and is_value:
                    is_pair = sizes[b * h + v] > 0
                if is_pair:
                    x = maxima_of_values[position]
                buffer_a[thread_index] = x
                cuda.syncthreads()
                maximum = _LOW
                if j < MAXIMUM_THREADS:  # two-stage maximum: fewer reads of shared memory
                    for k in range(np.int32(j), domain, MAXIMUM_THREADS):
                        maximum = max(maximum, buffer_a[np.uint32(first_thread + np.uint32(k))])
                    buffer_b[thread_index] = maximum
                cuda.syncthreads()
                for k in range(n_partial):
                    maximum = max(maximum, buffer_b[np.uint32(first_thread + k)])
                if is_pair:
                    x = max(x - maximum, max_drop)
                    maxima_of_values[position] = x
                    sum_maxima += x
                    sum_messages += messages[position]
            cuda.syncthreads()
            buffer_a[thread_index] = sum_maxima
            buffer_b[thread_index] = sum_messages
            cuda.syncthreads()
            sum_maxima, sum_messages = zero, zero
            for k in range(n_groups):
                sum_maxima += buffer_a[np.uint32(k * d + j)]
                sum_messages += buffer_b[np.uint32(k * d + j)]
            cuda.syncthreads()
            row_start, column = np.uint32((b * m + w * d + j) * m), np.uint32(w * d + j)
            unary = _LOW
            if is_value:
                # unary table: twice the product with the row's vector, the utility, the squared norm, and the messages
                unary = (
                    np.float32(2) * np.float32(products[np.uint32(row_start + n)]) + values[np.uint32(b * n + column)]
                )
                unary += np.float32(products[np.uint32(row_start + column)]) + sum_messages
            buffer_a[thread_index] = unary
            cuda.syncthreads()
            maximum, n_tables = _LOW, table_counts[b]
            for k in range(domain):
                maximum = max(maximum, buffer_a[np.uint32(first_thread + k)])
            target = (max(unary - maximum, max_drop) + sum_maxima) / n_tables
            for round_index in range(n_rounds):
                v = np.uint32(round_index * n_groups + group)
                is_pair = False
                if v < h and v != w and is_value:
                    is_pair = sizes[b * h + v] > 0
                if is_pair:
                    position = np.uint32((b * h + v) * n + column)
                    messages[position] += damped * (maxima_of_values[position] - target)
            if is_value:
                # the sum of the moves of the n_tables - 1 messages
                unary += damped * (sum_maxima - (n_tables - np.float32(1)) * target)
            buffer_b[thread_index] = unary
            cuda.syncthreads()
            maximum = _LOW
            total = zero
            inverse_temperature = schedule[np.uint32(step * FIELDS_PER_STEP + INVERSE_TEMPERATURE)]
            for k in range(domain):
                maximum = max(maximum, buffer_b[np.uint32(first_thread + k)])
            for k in range(domain):
                total += np.float32(math.exp((buffer_b[np.uint32(first_thread + k)] - maximum) * inverse_temperature))
            if is_value and group == 0:
                weight = np.float16(np.float32(math.exp((unary - maximum) * inverse_temperature)) / total)
                weights[np.uint32(row_start + column)] = weight
                weights[np.uint32(row_start + n)] = weight
                weights[np.uint32((b * m + n) * m + column)] = weight
                if j == 0:
                    best[b * h + w] = maximum

    return update_messages


@cache
def pair_weights_kernel(domain):
    """Return the kernel of the pairwise weights for variables of ``domain`` values."""
    d, stride, entries = np.uint32(domain), np.uint32(domain + 1), tables_per_block(domain) * domain * (domain + 1)

    @cuda_jit(fastmath=True)
    def pair_weights(
        utilities, agents, products, messages, sizes, schedule, weights, maxima, n_variables, n_vectors, step
    ):
        """Compute the softmax weights of each pairwise table, in both orders of the pair, and the tables' maxima.

        The module defines the formula. Outputs: the entries of ``weights`` for pairs of values, and ``maxima``
        (nodes, h, h) float32, the same maximum in both orders of the pair.
        """
        transposed = cuda.shared.array(entries, np.float32)
        column_maxima = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        column_masses = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
        column = cuda.local.array(domain, np.float32)
        h, m, n = np.uint32(n_variables), np.uint32(n_vectors), np.uint32(n_variables * d)
        j, u, b = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockIdx.y), np.uint32(cuda.blockIdx.z)
        v = np.uint32(u + np.uint32(1) + cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
        first_thread, table_start = np.uint32(cuda.threadIdx.y * d), np.uint32(cuda.threadIdx.y * d * stride)
        thread_index, exists = np.uint32(first_thread + j), v < h and sizes[b * h + u] > 0
        in_table = exists and j < sizes[b * h + v]
        # a weight is max(0, 1 + (z - max z) * factor)^POWER
        factor = schedule[np.uint32(step * FIELDS_PER_STEP + INVERSE_TEMPERATURE)] / np.float32(POWER)
        best, zero, one, two = _LOW, np.float32(0), np.float32(1), np.float32(2)
        entry = np.uint32((b * m + u * d) * m + v * d + j)
        if in_table:
            position, utility_at = entry, np.uint32((np.uint32(agents[b]) * n + u * d) * n + v * d + j)
            messages_of_u_at = np.uint32((b * h + v) * n + u * d)
            message = messages[np.uint32((b * h + u) * n + v * d + j)]
            for i in range(domain):
                x = (
                    utilities[utility_at]
                    + two * np.float32(products[position])
                    - messages[np.uint32(messages_of_u_at + i)]
                    - message
                )
                column[i] = x
                best = max(best, x)
                utility_at, position = np.uint32(utility_at + n), np.uint32(position + m)
        column_maxima[thread_index] = best
        cuda.syncthreads()
        for k in range(domain):
            best = max(best, column_maxima[np.uint32(first_thread + k)])
        mass = zero
        if in_table:
            for i in range(domain):
                x = max(zero, one + (column[i] - best) * factor)
                x = x * x  # five squarings: x^POWER
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                column[i] = x
                mass += x
        column_masses[thread_index] = mass
        cuda.syncthreads()
        total = zero
        for k in range(domain):
            total += column_masses[np.uint32(first_thread + k)]
        # the largest weight is 1, so only a missing table has a smaller total
        scale, position = one / max(total, one), entry
        if in_table:
            for i in range(domain):
                x = column[i] * scale
                weights[position] = np.float16(x)
                transposed[np.uint32(table_start + np.uint32(i) * stride + j)] = x
                position = np.uint32(position + m)
            if j == 0:
                maxima[(b * h + u) * h + v] = best
                maxima[(b * h + v) * h + u] = best
        cuda.syncthreads()
        if exists and j < sizes[b * h + u]:  # from now on j is a value of u
            position, source = np.uint32((b * m + v * d) * m + u * d + j), np.uint32(table_start + j * stride)
            for i in range(sizes[b * h + v]):
                weights[position] = np.float16(transposed[np.uint32(source + np.uint32(i))])
                position = np.uint32(position + m)

    return pair_weights


@cuda_jit(fastmath=True)
def adam_step(vectors, half_vectors, gradients, first_moment, second_moment, schedule, n_vectors, width, step):
    """Make an Adam step in which all components of a factor vector share one second moment.

    With gradient g, first moment a and second moment s of a vector: a = MOMENTUM a + (1 - MOMENTUM) g, s =
    SECOND_MOMENT_DECAY s + (1 - SECOND_MOMENT_DECAY) mean(g²), and the vector falls by STEP_SIZE a / (BIAS_CORRECTION
    √s + ADAM_EPSILON). Each thread loads ``ENTRIES_PER_LOAD`` components before it writes any.

    Parameters
    ----------
    vectors : (n_vectors, width) float32
        Factor vectors of all nodes; updated.
    half_vectors : (n_vectors, width) float16
        Output: copy of the vectors, the input of the next step's matrix products.
    gradients : (n_vectors, width) float16
        Gradients.
    first_moment : (n_vectors, width) float16
        Running mean of the gradients (Adam's m); updated.
    second_moment : (n_vectors,) float32
        Running mean of each vector's mean squared gradient (Adam's v); updated.
    schedule : (steps, FIELDS_PER_STEP) float32
        Parameters of the steps, see ``INVERSE_TEMPERATURE``.
    n_vectors, width : int
        Number of vectors of all nodes together, and components per vector.
    step : int
        Index of the step in the schedule.
    """
    partial_sums = cuda.shared.array(MAX_BLOCK_THREADS, np.float32)
    current, momentum = cuda.local.array(ENTRIES_PER_LOAD, np.float32), cuda.local.array(ENTRIES_PER_LOAD, np.float32)
    gradient = cuda.local.array(ENTRIES_PER_LOAD, np.float32)
    lane, lanes = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    row = np.uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    first_partial = np.uint32(cuda.threadIdx.y * lanes)
    offset = np.uint32(step * FIELDS_PER_STEP)
    size = np.uint32(width)
    exists, start, square_sum, moment = row < n_vectors, np.uint32(row * size), np.float32(0), np.float32(0)
    if exists:
        moment = second_moment[row]
        q = lane
        while q < size:
            x = np.float32(gradients[np.uint32(start + q)])
            square_sum += x * x
            q = np.uint32(q + lanes)
    partial_sums[np.uint32(first_partial + lane)] = square_sum
    cuda.syncthreads()
    if exists:
        square_sum = np.float32(0)
        for i in range(lanes):
            square_sum += partial_sums[np.uint32(first_partial + np.uint32(i))]
        moment = np.float32(SECOND_MOMENT_DECAY) * moment + np.float32(
            1 - SECOND_MOMENT_DECAY
        ) * square_sum / np.float32(width)
        if lane == 0:
            second_moment[row] = moment
        denominator = np.float32(math.sqrt(moment)) * schedule[np.uint32(offset + BIAS_CORRECTION)] + np.float32(
            ADAM_EPSILON
        )
        step_length = schedule[np.uint32(offset + STEP_SIZE)] / denominator
        last_component = np.uint32(size - np.uint32(1))
        component = lane
        while component < size:
            for i in range(ENTRIES_PER_LOAD):
                index = np.uint32(start + min(np.uint32(component + np.uint32(i) * lanes), last_component))
                current[i] = vectors[index]
                gradient[i] = np.float32(gradients[index])
                momentum[i] = np.float32(first_moment[index])
            for i in range(ENTRIES_PER_LOAD):
                momentum[i] = np.float32(MOMENTUM) * momentum[i] + np.float32(1 - MOMENTUM) * gradient[i]
                current[i] -= step_length * momentum[i]
            for i in range(ENTRIES_PER_LOAD):
                q = np.uint32(component + np.uint32(i) * lanes)
                if q < size:
                    index = np.uint32(start + q)
                    vectors[index] = current[i]
                    half_vectors[index] = np.float16(current[i])
                    first_moment[index] = np.float16(momentum[i])
            component = np.uint32(component + np.uint32(ENTRIES_PER_LOAD) * lanes)
