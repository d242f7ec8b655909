"""Reduce a problem: what cannot be in the only best answer is taken out, and put back into the answer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.presolve.all_different import groups_of
from dmcmc.inference.presolve.arc_consistency import enforce
from dmcmc.inference.presolve.dominance import remove_dominated
from dmcmc.inference.presolve.equivalent_variables import merge_copies
from dmcmc.inference.presolve.limits import Limit
from dmcmc.inference.presolve.restrict_domains import restricted
from dmcmc.inference.presolve.small_buckets import eliminate_small
from dmcmc.inference.presolve.working_problem import Infeasible, Network

_ROUNDS = 16  # of all reductions; most problems need two

Groups = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Removed:
    """What reductions took out, by which of them.

    Attributes
    ----------
    inconsistent, dominated : int
        Values without support, and values that others are never worse than.
    fixed, merged, eliminated, free : int
        Variables that had one value left, that were copies of others, that were maximised out, and that no table is
        over.
    factors : int
        How many fewer factors there are.
    cells : int
        How many fewer entries their tables have.
    seconds : float
    """

    inconsistent: int = 0
    dominated: int = 0
    fixed: int = 0
    merged: int = 0
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
        The agents are the same. Its constant has what fixed and eliminated variables are worth.
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

    def then(self, further: "Reduction") -> "Reduction":
        """Return this reduction and one of what it has left as one."""
        both = {f.name: getattr(self.removed, f.name) + getattr(further.removed, f.name) for f in fields(Removed)}
        return Reduction(
            further.problem,
            further.infeasible,
            Removed(**both),
            self.roundings + further.roundings,
            lambda values: self.restore(further.restore(values)),
        )


def reduce(
    problem: Problem, memory: int, limit: Limit | None = None, dense: Problem | None = None, merge: bool = False
) -> Reduction:
    """Reduce a problem.

    In rounds: values without support go (generalised arc consistency, all-different by matching), then variables with
    one value left, values that are dominated, and variables whose elimination leaves no more cells than there were. The
    time is linear in the tables; when it is time to stop, what has been reduced by then is returned.

    An assignment of the reduced problem is worth what the restored one is worth in the given problem, up to the
    rounding of floats, and an optimal one is restored to an optimal one. Not every optimal assignment is left.

    Of a problem of several agents, an agent's variables that others meet lose values by arc consistency only, which is
    what neighbours can tell each other; all else is done to variables that only their own agent meets.

    Parameters
    ----------
    problem
        Any. Where one of its factors is too large for a table, values go and nothing else: the factors stay what they
        are, over fewer values.
    memory
        Bytes that one expanded table may take.
    limit
        What all this may take; None for what it takes.
    dense
        The problem as dense tables (:func:`.densify`), where that has been made.
    merge
        Make variables one that are copies of each other, whoever owns them: an agent's tables over its copy become
        tables over another agent's variable. Only where the problem is one of dense tables.
    """
    limit, groups = limit or Limit(), groups_of(problem)
    dense = dense or densify(problem, memory).problem
    if dense.n_variables == problem.n_variables:
        return _reduced(dense, groups, limit, merge)
    start = time.perf_counter()
    try:
        network = Network.of(dense, limit)
        gone = 0 if network is None else enforce(network, groups)
    except Infeasible:
        return _hopeless(problem, Removed(seconds=time.perf_counter() - start))
    if network is None or not gone:
        return _untouched(problem)
    own = problem.n_variables
    left = network.left[:own]
    narrow = restricted(problem, left)
    removed = Removed(inconsistent=_values(problem) - _values(narrow), seconds=time.perf_counter() - start)
    removed = replace(removed, cells=_cells(problem) - _cells(narrow))
    small = Reduction(narrow, False, removed, 0, lambda values: _chosen(left, values))
    dense = densify(narrow, memory).problem
    if dense.n_variables > own:
        return small
    return small.then(_reduced(dense, (), limit))  # equal indices are not equal values any more


def _reduced(problem: Problem, groups: Groups, limit: Limit, merge: bool = False) -> Reduction:
    """Reduce a problem of dense tables."""
    start = time.perf_counter()
    counts = dict.fromkeys(("inconsistent", "dominated", "fixed", "merged", "eliminated"), 0)
    try:
        network = Network.of(problem, limit)
        if network is None:
            return _untouched(problem)
        for _ in range(_ROUNDS):
            before = sum(counts.values())
            counts["inconsistent"] += enforce(network, groups)
            counts["fixed"] += _fix(network)
            counts["merged"] += merge_copies(network) if merge else 0
            counts["dominated"] += remove_dominated(network)
            counts["fixed"] += _fix(network)
            counts["eliminated"] += eliminate_small(network)
            if sum(counts.values()) == before or limit.over:
                break
    except Infeasible:
        return _hopeless(problem, Removed(**counts, seconds=time.perf_counter() - start))
    return _finished(problem, network, counts, start)


def _untouched(problem: Problem) -> Reduction:
    return Reduction(problem, False, Removed(), 0, lambda values: values)


def _hopeless(problem: Problem, removed: Removed) -> Reduction:
    return Reduction(problem, True, removed, 0, lambda values: values)


def _chosen(left: Sequence[NDArray[np.int64]], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices into what is left of domains as indices into the domains."""
    pairs = zip(left, values.tolist(), strict=True)
    return np.array([own[value] for own, value in pairs], dtype=np.int64)


def _values(problem: Problem) -> int:
    return int(problem.domains.sum())


def _cells(problem: Problem) -> int:
    """Return the entries of all arrays that hold a problem's utilities."""
    return sum(array.size for factor in problem.factors for array in factor.arrays())


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
        free=problem.n_variables - len(variables) - sum(counts[way] for way in ("fixed", "merged", "eliminated")),
        factors=len(problem.factors) - len(factors),
        cells=sum(f.table.size for f in problem.factors) - sum(f.table.size for f in factors),
        seconds=time.perf_counter() - start,
    )

    def restore(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return network.restore({v: int(values[i]) for v, i in number.items()})

    return Reduction(reduced, False, removed, len(problem.factors) + counts["merged"] + counts["eliminated"], restore)
