"""Batches of descents in NumPy: what a GPU's are held against, and agents to try them with."""

from itertools import product

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import EVEN, SLOPE, STEP
from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SPREAD, Descent, Target
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.utility_matrix import lay_out
from support.semidefinite.dense_agents import dense_agent


class NaiveArrays:
    """NumPy, with passes that go from pair to pair: what kernels of a GPU are held against."""

    module = np

    def put(self, array):
        return array.copy()

    def get(self, array):
        return array.copy()

    def product(self, left, right, out, turned=False, rough=False):
        out[:] = left @ (right.transpose(0, 2, 1) if turned else right)

    def smooth(self, given, found, shape):
        utilities, products, shifts, sizes, words = given
        weights, marginals, maxima = found
        agents, h, d = shape

        def launch(at):
            for b, u, v in product(range(agents), range(h), range(h)):
                if u != v and sizes[b, u] and sizes[b, v]:
                    mine, other = (np.arange(w * d, w * d + sizes[b, w]) for w in (u, v))
                    table = utilities[b][np.ix_(mine, other)] + 2 * products[b][np.ix_(mine, other)]
                    table = table - shifts[b, v, mine][:, None] - shifts[b, u, other]
                    block = np.maximum(0, 1 + words[at, b, SLOPE] * (table - table.max()) / POWER) ** POWER
                    weights[b][np.ix_(mine, other)] = block / block.sum()
                    marginals[b, u, other] = block.sum(axis=0) / block.sum()
                    maxima[b, u, v] = table.max()

        return launch

    def adam(self, arrays, words, agents):
        here, slopes, means, squares = arrays

        def launch(at):
            means[:] = MOMENTUM * means + (1 - MOMENTUM) * slopes
            squares[:] = SPREAD * squares + (1 - SPREAD) * slopes**2
            even, step = (words[at, :, i, None, None] for i in (EVEN, STEP))
            here[:] = here - step * means / (np.sqrt(squares) * even + 1e-8)

        return launch


def descents(hard=0.0):
    """Agents of unlike sizes: variables, values, rows, vectors."""
    locals_ = [
        dense_agent(1, hidden=5, most=9, hard=hard),
        dense_agent(2, hidden=3, most=5, interface=2, hard=hard),
        dense_agent(3, hidden=4, most=6, interface=0, hard=hard),
    ]
    found = [Descent(lay_out(local)) for local in locals_]
    rows = [np.arange(local.rows) for local in locals_]
    targets = [Target(x.network.digits(own), 7.0 * own) for x, own in zip(found, rows, strict=True)]
    return found, targets
