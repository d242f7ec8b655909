"""NumPy version of the per-row descent steps, one node and pair at a time: the reference for the GPU kernels."""

from itertools import permutations

import numpy as np

from dmcmc.inference.bounds.contract.tuning import (
    ADAM_EPSILON,
    MAX_UTILITY_DROP,
    MESSAGE_DAMPING,
    MOMENTUM,
    SECOND_MOMENT_DECAY,
)
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import BIAS_CORRECTION, INVERSE_TEMPERATURE, STEP_SIZE
from dmcmc.inference.bounds.semidefinite.node_steps import (
    POWER,
    NodeInputs,
    NodeShape,
    NodeWorkspace,
    StepPasses,
)


class NaiveNodes:
    """NumPy arrays whose passes loop over pairs; implements the protocol of ``node_steps``."""

    module = np
    half = np.float16

    def put(self, array):
        return array.copy()

    def get(self, array):
        return array.copy()

    def passes(self, given: NodeInputs, work: NodeWorkspace, schedule, shape: NodeShape):
        one = _NaivePasses(given, work, schedule, shape)
        return StepPasses(
            one.multiply, one.value_maxima, one.update_messages, one.pair_weights, one.gradient, one.adam_step
        )


class _NaivePasses:
    def __init__(self, given: NodeInputs, work: NodeWorkspace, schedule, shape: NodeShape):
        self.given, self.work, self.schedule, self.shape = given, work, schedule, shape

    def multiply(self, step):
        for out, half in zip(self.work.products, self.work.half_vectors, strict=True):
            out[:] = half.astype(np.float32) @ half.astype(np.float32).T

    def gradient(self, step):
        for out, weights, half in zip(self.work.gradients, self.work.weights, self.work.half_vectors, strict=True):
            out[:] = weights.astype(np.float32) @ half.astype(np.float32)

    def positions(self, b, u):
        return np.arange(u * self.shape.d, u * self.shape.d + self.given.sizes[b, u])

    def pairs(self):
        """Yield each pair of each node in both orders: node, variables, positions of their values, table."""
        for b, sizes in enumerate(self.given.sizes):
            for u, v in permutations(np.flatnonzero(sizes).tolist(), 2):
                values_u, values_v = self.positions(b, u), self.positions(b, v)
                table = self.given.utilities[self.given.agents[b]][np.ix_(values_u, values_v)]
                table = table + 2 * self.work.products[b][np.ix_(values_u, values_v)].astype(np.float32)
                messages = self.work.messages[b]
                yield b, u, v, values_u, values_v, table - messages[v, values_u][:, None] - messages[u, values_v]

    def value_maxima(self, step):
        inverse_temperature = self.schedule[step, INVERSE_TEMPERATURE]
        for b, u, _, _, values_v, table in self.pairs():
            best = table.max(axis=0)
            total = np.exp((table - best) * inverse_temperature).sum(axis=0)
            self.work.value_maxima[b, u, values_v] = best + np.log(total) / inverse_temperature

    def update_messages(self, step):
        n, work, inverse_temperature = self.shape.n, self.work, self.schedule[step, INVERSE_TEMPERATURE]
        for b, sizes in enumerate(self.given.sizes):
            existing = np.flatnonzero(sizes).tolist()
            for w in existing:
                positions, others = self.positions(b, w), [v for v in existing if v != w]
                products = work.products[b].astype(np.float32)
                unary = np.diag(products)[positions] + 2 * products[positions, n] + self.given.values[b, positions]
                unary = unary + sum(work.messages[b, v, positions] for v in others)
                maxima = {v: work.value_maxima[b, v, positions] for v in others}
                maxima = {v: np.maximum(x - x.max(), -MAX_UTILITY_DROP) for v, x in maxima.items()}
                mean = (np.maximum(unary - unary.max(), -MAX_UTILITY_DROP) + sum(maxima.values())) / len(existing)
                for v, x in maxima.items():
                    work.value_maxima[b, v, positions] = x
                    work.messages[b, v, positions] += MESSAGE_DAMPING * (x - mean)
                    unary = unary + MESSAGE_DAMPING * (x - mean)
                weights_of_values = np.exp((unary - unary.max()) * inverse_temperature)
                weights_of_values /= weights_of_values.sum()
                weights = work.weights[b]
                weights[positions, positions] = weights[positions, n] = weights[n, positions] = weights_of_values
                work.best[b, w] = unary.max()

    def pair_weights(self, step):
        inverse_temperature = self.schedule[step, INVERSE_TEMPERATURE]
        for b, u, v, values_u, values_v, table in self.pairs():
            block = np.maximum(0, 1 + inverse_temperature * (table - table.max()) / POWER) ** POWER
            self.work.weights[b][np.ix_(values_u, values_v)] = block / block.sum()
            self.work.maxima[b, u, v] = table.max()

    def adam_step(self, step):
        work, (step_size, bias_correction) = self.work, self.schedule[step, [STEP_SIZE, BIAS_CORRECTION]]
        gradients = work.gradients.astype(np.float32)
        first_moment = MOMENTUM * work.first_moment.astype(np.float32) + (1 - MOMENTUM) * gradients
        work.first_moment[:] = first_moment
        second_moments = (gradients**2).mean(axis=2)
        work.second_moment[:] = SECOND_MOMENT_DECAY * work.second_moment + (1 - SECOND_MOMENT_DECAY) * second_moments
        denominator = np.sqrt(work.second_moment) * bias_correction + ADAM_EPSILON
        work.vectors[:] = work.vectors - step_size * first_moment / denominator[:, :, None]
        work.half_vectors[:] = work.vectors
