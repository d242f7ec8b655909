"""NumPy reference for batches of descents, and agents to run them on."""

from itertools import product

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import BIAS_CORRECTION, INVERSE_TEMPERATURE, STEP_SIZE
from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SECOND_MOMENT_DECAY, Descent, Target
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.utility_matrix import build_utility_matrix
from support.semidefinite.dense_agents import dense_agent


class NaiveArrays:
    """NumPy arrays with kernels that loop over pairs: the reference for the GPU kernels."""

    module = np
    padded = True

    def put(self, array):
        return array.copy()

    def get(self, array):
        return array.copy()

    def product(self, left, right, out, transposed=False, low_precision=False):
        out[:] = left @ (right.transpose(0, 2, 1) if transposed else right)

    def value_maxima(self, entries, variables):
        return np.stack([part.max(axis=2) for part in np.split(entries, variables, axis=2)], axis=2)

    def value_weights(self, entries, best, inverse_temperatures, totals):
        parts = []
        for u, part in enumerate(np.split(entries, best.shape[2], axis=2)):
            weights = np.exp((part - best[:, :, u, None]) * inverse_temperatures[:, None, None])
            parts.append(weights / weights.sum(axis=2, keepdims=True) * totals[:, :, u, None])
        return np.concatenate(parts, axis=2)

    def smooth(self, inputs, outputs, shape):
        utilities, products, messages, sizes, parameters = inputs
        weights, marginals, maxima = outputs
        agents, h, d = shape

        def launch(step):
            for b, u, v in product(range(agents), range(h), range(h)):
                if u != v and sizes[b, u] and sizes[b, v]:
                    values_u, values_v = (np.arange(w * d, w * d + sizes[b, w]) for w in (u, v))
                    table = utilities[b][np.ix_(values_u, values_v)] + 2 * products[b][np.ix_(values_u, values_v)]
                    table = table - messages[b, v, values_u][:, None] - messages[b, u, values_v]
                    block = (
                        np.maximum(0, 1 + parameters[step, b, INVERSE_TEMPERATURE] * (table - table.max()) / POWER)
                        ** POWER
                    )
                    weights[b][np.ix_(values_u, values_v)] = block / block.sum()
                    marginals[b, u, values_v] = block.sum(axis=0) / block.sum()
                    maxima[b, u, v] = table.max()

        return launch

    def adam(self, arrays, parameters, agents):
        variables, gradient, first_moment, second_moment = arrays

        def launch(step):
            first_moment[:] = MOMENTUM * first_moment + (1 - MOMENTUM) * gradient
            second_moment[:] = SECOND_MOMENT_DECAY * second_moment + (1 - SECOND_MOMENT_DECAY) * gradient**2
            bias_correction, step_size = (parameters[step, :, i, None, None] for i in (BIAS_CORRECTION, STEP_SIZE))
            variables[:] = variables - step_size * first_moment / (np.sqrt(second_moment) * bias_correction + 1e-8)

        return launch


def descents(hard=0.0):
    """Return descents of agents with different numbers of variables, values, rows and vectors, and their targets."""
    locals_ = [
        dense_agent(1, hidden=5, max_domain=9, hard=hard),
        dense_agent(2, hidden=3, max_domain=5, interface=2, hard=hard),
        dense_agent(3, hidden=4, max_domain=6, interface=0, hard=hard),
    ]
    found = [Descent(build_utility_matrix(local)) for local in locals_]
    rows = [np.arange(local.rows) for local in locals_]
    targets = [Target(x.matrix.digits(own), 7.0 * own) for x, own in zip(found, rows, strict=True)]
    return found, targets
