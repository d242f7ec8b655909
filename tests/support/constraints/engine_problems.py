"""Random problems with every kind of factor that search engines take."""

import numpy as np

from dmcmc import Factor, Problem
from dmcmc.inference.model.automaton import unroll
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden, normalise

HARD = -np.inf


def automaton(rng, scope, shape, paid):
    """Return a random automaton with three states; some transitions are forbidden."""
    target = rng.integers(0, 3, (len(shape), 3, max(shape)))
    utility = rng.integers(-5, 6, target.shape) * paid
    hard = rng.random(target.shape) < 0.2

    def step(position, state, value):
        where = position, state, value
        return int(target[where]), None if hard[where] else int(utility[where])

    return unroll(scope, shape, 0, step)


def sparse(rng, scope, shape, floats):
    """Return a sparse factor with random tuples and a random default, which may be forbidden."""
    tuples = np.unique(np.column_stack([rng.integers(0, size, 5) for size in shape]), axis=0).astype(np.int32)
    utilities = rng.normal(size=len(tuples) + 1) if floats else rng.integers(-5, 6, len(tuples) + 1).astype(float)
    utilities[rng.random(utilities.size) < 0.3] = HARD
    return SparseFactor(scope, shape, tuples, normalise(utilities))


def random_problem(seed):
    """Return a problem with dense and sparse tables, automata with and without costs, and a linear constraint."""
    rng = np.random.default_rng(seed)
    n, floats = int(rng.integers(2, 6)), seed % 3 == 0
    domains = rng.integers(1, 5, n)
    factors = []
    for arity in (1, 1, 2, 2, 3):
        scope = tuple(rng.permutation(n)[: min(n, arity)].tolist())
        shape = tuple(domains[list(scope)].tolist())
        values = rng.normal(size=shape) if floats else rng.integers(-9, 10, shape).astype(float)
        if rng.random() < 0.5:  # few levels
            values = np.where(values > 4, 3.0, 0.0)
        factors.append(Factor.of(scope, np.where(rng.random(shape) < 0.15, HARD, values)))
    for i in range(3):
        scope = tuple(rng.permutation(n)[: rng.integers(2, n + 1)].tolist())
        shape = tuple(domains[list(scope)].tolist())
        factors.append(sparse(rng, scope, shape, floats) if i == 2 else automaton(rng, scope, shape, paid=i))
    everything = tuple(range(n))
    factors.append(
        unroll(everything, domains.tolist(), 0, lambda i, s, a: (s + (a == 1), None if s + (a == 1) > 1 else 0))
    )
    return Problem(tuple(f"x{v}" for v in everything), domains, ("a",), np.zeros(n, dtype=np.int64), tuple(factors))


def constrained_problem(seed, largest=3):
    """Return a problem of two or more intervals with every class of global constraints, and unary utilities."""
    rng = np.random.default_rng(seed)
    build = Problem.build()
    n = int(rng.integers(2, largest + 1))
    starts = [build.variable(f"s{i}", sorted(rng.choice(8, 4, replace=False).tolist())) for i in range(n)]
    places = [build.variable(f"p{i}", rng.permutation(3)[: rng.integers(1, 4)].tolist()) for i in range(n)]
    durations = rng.integers(1, 4, n).tolist()
    cost = [None if rng.random() < 0.3 else int(rng.integers(1, 5)) for _ in range(9)]
    build.no_overlap(starts, durations, cost=cost[0]).no_overlap(starts, durations, places, cost=cost[1])
    build.cumulative(starts, durations, rng.integers(0, 3, n).tolist(), 2, cost=cost[2])
    build.all_different(places, exempt=[0], cost=cost[3])
    build.count([*starts, *places], [1, 2], (1, 2), cost=cost[4]).breaks(starts, durations, cost=cost[5])
    build.precedence(starts[0], starts[1], int(rng.integers(-1, 3)), cost=cost[6])
    if rng.random() < 0.5:
        index = build.variable("index", n)
        build.element(index, places, build.variable("result", 3), cost=cost[7])
    build.constraint("adjacency", starts, {"times": labels(build, starts), "durations": durations}, cost=1)
    given = {"times": labels(build, starts), "durations": durations, "places": labels(build, places), "gap": 1}
    build.constraint("place_changes", [*starts, *places], given, cost=cost[8] or 1)
    for name in starts:
        build.factor([name], rng.integers(0, 20, 4))
    return build.problem()


def labels(build, names):
    """Return the labels of variables."""
    problem = build.problem()
    position = {name: i for i, name in enumerate(problem.variables)}
    found = [problem.labels[position[name]] or range(problem.domains[position[name]]) for name in names]
    return [list(values) for values in found]


def utilities_of(problem):
    """Return the utility of every feasible assignment, by the tables of all factors."""
    total = np.zeros(problem.domains)
    for factor in problem.factors:
        table = np.where(forbidden(factor.table), HARD, factor.table.astype(float))
        shape = np.ones(problem.n_variables, dtype=int)
        shape[list(factor.scope)] = table.shape
        total += table.transpose(np.argsort(factor.scope)).reshape(shape)
    return {tuple(values.tolist()): total[tuple(values)] for values in np.argwhere(total > HARD)}
