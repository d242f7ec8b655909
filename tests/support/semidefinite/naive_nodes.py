"""Steps of cases in NumPy, from case to case and pair to pair: what a GPU's are held against."""

from itertools import combinations, permutations

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import EVEN, SLOPE, STEP
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import DAMPED, DEEP, LEAST_LENGTH, MOMENTUM, SPREAD, Passes


class NaiveCases:
    """NumPy, with passes that go from pair to pair."""

    module = np

    def put(self, array):
        return array.copy()

    def get(self, array):
        return array.copy()

    def passes(self, given, work, schedule, shape):
        case = _Naive(given, work, schedule, shape)
        return Passes(case.multiply, case.reach, case.alone, case.smooth, case.slope, case.move)

    def exact_products(self, vectors):
        return vectors @ vectors.transpose(0, 2, 1)

    def maxima(self, given, shape):
        found, d = np.zeros((shape.cases, shape.h, shape.h), dtype=np.int64), shape.d
        for b, sizes in enumerate(given.sizes):
            for u, v in combinations(np.flatnonzero(sizes).tolist(), 2):
                mine, other = (np.arange(w * d, w * d + sizes[w]) for w in (u, v))
                utilities = given.utilities[given.agents[b]][np.ix_(mine, other)].astype(np.int64)
                table = (utilities << 2 * given.bits[b]) + 2 * given.products[b][np.ix_(mine, other)].astype(np.int64)
                table -= given.shifts[b, v, mine][:, None] + given.shifts[b, u, other]
                found[b, u, v] = np.where(utilities < THRESHOLD, NEVER, table).max()
        return found


class _Naive:
    def __init__(self, given, work, schedule, shape):
        self.given, self.work, self.schedule, self.shape = given, work, schedule, shape

    def multiply(self, at):
        for out, half in zip(self.work.products, self.work.halves, strict=True):
            out[:] = half.astype(np.float32) @ half.astype(np.float32).T

    def slope(self, at):
        for out, weights, half in zip(self.work.slopes, self.work.weights, self.work.halves, strict=True):
            out[:] = weights.astype(np.float32) @ half.astype(np.float32)

    def places(self, b, u):
        return np.arange(u * self.shape.d, u * self.shape.d + self.given.sizes[b, u])

    def pairs(self):
        """Each pair of a case, both ways: case, variables, their values, table."""
        for b, sizes in enumerate(self.given.sizes):
            for u, v in permutations(np.flatnonzero(sizes).tolist(), 2):
                mine, other = self.places(b, u), self.places(b, v)
                table = self.given.utilities[self.given.agents[b]][np.ix_(mine, other)]
                table = table + 2 * self.work.products[b][np.ix_(mine, other)].astype(np.float32)
                shifts = self.work.shifts[b]
                yield b, u, v, mine, other, table - shifts[v, mine][:, None] - shifts[u, other]

    def reach(self, at):
        slope = self.schedule[at, SLOPE]
        for b, u, _, _, other, table in self.pairs():
            best = table.max(axis=0)
            self.work.reached[b, u, other] = best + np.log(np.exp((table - best) * slope).sum(axis=0)) / slope

    def alone(self, at):
        n, work, slope = self.shape.n, self.work, self.schedule[at, SLOPE]
        for b, sizes in enumerate(self.given.sizes):
            there = np.flatnonzero(sizes).tolist()
            for w in there:
                places, others = self.places(b, w), [v for v in there if v != w]
                products = work.products[b].astype(np.float32)
                own = np.diag(products)[places] + 2 * products[places, n] + self.given.values[b, places]
                own = own + sum(work.shifts[b, v, places] for v in others)
                reached = {v: work.reached[b, v, places] for v in others}
                reached = {v: np.maximum(x - x.max(), -DEEP) for v, x in reached.items()}
                mean = (np.maximum(own - own.max(), -DEEP) + sum(reached.values())) / len(there)
                for v, x in reached.items():
                    work.reached[b, v, places] = x
                    work.shifts[b, v, places] += DAMPED * (x - mean)
                    own = own + DAMPED * (x - mean)
                share = np.exp((own - own.max()) * slope)
                share /= share.sum()
                weights = work.weights[b]
                weights[places, places] = weights[places, n] = weights[n, places] = share
                work.best[b, w] = own.max()

    def smooth(self, at):
        slope = self.schedule[at, SLOPE]
        for b, u, v, mine, other, table in self.pairs():
            block = np.maximum(0, 1 + slope * (table - table.max()) / POWER) ** POWER
            self.work.weights[b][np.ix_(mine, other)] = block / block.sum()
            self.work.maxima[b, u, v] = table.max()

    def move(self, at):
        work, (step, even) = self.work, self.schedule[at, [STEP, EVEN]]
        slopes = work.slopes.astype(np.float32)
        means = MOMENTUM * work.means.astype(np.float32) + (1 - MOMENTUM) * slopes
        work.means[:] = means
        work.spreads[:] = SPREAD * work.spreads + (1 - SPREAD) * (slopes**2).mean(axis=2)
        work.points[:] = work.points - step * means / (np.sqrt(work.spreads) * even + LEAST_LENGTH)[:, :, None]
        work.halves[:] = work.points
