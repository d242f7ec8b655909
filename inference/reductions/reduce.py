"""Reduce a problem: what cannot be in the only best answer is taken out, and put back into the answer."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.reductions.consistency import enforce
from dmcmc.inference.reductions.dominance import remove_dominated
from dmcmc.inference.reductions.network import Infeasible, Network
from dmcmc.inference.reductions.small_buckets import eliminate_small
from dmcmc.inference.runtime.deadline import NO_STOP, Stop

_ROUNDS = 8  # of all reductions; most problems need two


@dataclass(frozen=True)
class Removed:
    """What reductions took out, by which of them.

    Attributes
    ----------
    inconsistent, dominated : int
        Values without support, and values that others are never worse than.
    fixed, eliminated, free : int
        Variables that had one value left, that were maximised out, and that no table is over.
    factors : int
        How many fewer factors there are.
    cells : int
        How many fewer entries their tables have.
    seconds : float
    """

    inconsistent: int = 0
    dominated: int = 0
    fixed: int = 0
    eliminated: int = 0
    free: int = 0
    factors: int = 0
    cells: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) > 0 for f in fields(self) if f.name != "seconds")


@dataclass(frozen=True)
class Reduction:
    """A smaller problem with the same optimum.

    Attributes
    ----------
    problem : Problem
        Dense; the agents are the same. Its constant has what fixed and eliminated variables are worth.
    infeasible : bool
        Whether it is proven that every assignment is forbidden; ``problem`` is the one that was given then.
    removed : Removed
    roundings : int
        How often floats were added on the way: what the constant and the tables may be off by is counted by it.
    """

    problem: Problem
    infeasible: bool
    removed: Removed
    roundings: int
    _restore: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def restore(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an assignment of the given problem for one of the reduced one, of the same utility or better."""
        return self._restore(values)


def reduce(problem: Problem, stop: Stop = NO_STOP) -> Reduction:
    """Reduce a problem of dense tables.

    In rounds: values without support go (generalised arc consistency), then variables with one value left, values that
    are dominated, and variables whose elimination leaves no more cells than there were. The time is linear in the
    tables; when it is time to stop, what has been reduced by then is returned.

    An assignment of the reduced problem is worth what the restored one is worth in the given problem, up to the
    rounding of floats, and an optimal one is restored to an optimal one. Not every optimal assignment is left.
    """
    start = time.perf_counter()
    counts = dict.fromkeys(("inconsistent", "dominated", "fixed", "eliminated"), 0)
    try:
        network = Network.of(problem)
        if network is None:
            return Reduction(problem, False, Removed(), 0, lambda values: values)
        for _ in range(_ROUNDS):
            before = sum(counts.values())
            counts["inconsistent"] += enforce(network, stop)
            counts["fixed"] += _fix(network)
            counts["dominated"] += remove_dominated(network, stop)
            counts["fixed"] += _fix(network)
            counts["eliminated"] += eliminate_small(network, stop)
            if sum(counts.values()) == before or stop.over:
                break
    except Infeasible:
        removed = Removed(**counts, seconds=time.perf_counter() - start)
        return Reduction(problem, True, removed, 0, lambda values: values)
    return _finished(problem, network, counts, start)


def _fix(network: Network) -> int:
    """Take out variables that have one value left."""
    single = [v for v in network.open() if len(network.left[v]) == 1]
    for v in single:
        network.fix(v)
    return len(single)


def _finished(problem: Problem, network: Network, counts: Mapping[str, int], start: float) -> Reduction:
    """Return the network as a problem of its own."""
    variables = network.open()
    number = {v: i for i, v in enumerate(variables)}
    factors = tuple(
        Factor(tuple(number[v] for v in scope), normalise(table))
        for scope, table in network.tables.items()
        if scope or table.item() != 0
    )
    labels = [None if (own := problem.labels[v]) is None else tuple(own[x] for x in network.left[v]) for v in variables]
    reduced = Problem(
        variables=tuple(problem.variables[v] for v in variables),
        domains=np.array([len(network.left[v]) for v in variables], dtype=np.int64),
        agents=problem.agents,
        owner=problem.owner[variables],
        factors=factors,
        labels=tuple(labels),
        sense=problem.sense,
        name=problem.name,
    )
    removed = Removed(
        **counts,
        free=problem.n_variables - len(variables) - counts["fixed"] - counts["eliminated"],
        factors=len(problem.factors) - len(factors),
        cells=sum(f.table.size for f in problem.factors) - sum(f.table.size for f in factors),
        seconds=time.perf_counter() - start,
    )

    def restore(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return network.restore({v: int(values[i]) for v, i in number.items()})

    return Reduction(reduced, False, removed, len(problem.factors) + counts["eliminated"], restore)
