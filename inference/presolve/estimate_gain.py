"""A glance at a problem: whether reducing it is worth its time, by a sample of what could go."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.presolve.dominance import RIVALS
from dmcmc.inference.presolve.limits import Limit
from dmcmc.inference.presolve.small_buckets import pays
from dmcmc.inference.presolve.working_problem import Network
from dmcmc.inference.runtime.types import Array

_SAMPLE = 32  # variables that are looked at
_SMALL = 1 << 30  # entries whose differences fit 32 bits


def promise(problem: Problem) -> float:
    """Return about the part of the variables and values of a problem of dense tables that would go.

    Nothing is forbidden. Looks at some of the variables that only their own agent meets, evenly spread: how many of
    them may be eliminated, and how many of their values are dominated. What follows from that is not seen.
    """
    return problem.known.once("promise", lambda: _promise(problem))


class _Sample(NamedTuple):
    """Variables that are looked at, of problems of one shape.

    Attributes
    ----------
    private, eliminated : int
        How many variables only their own agent meets; how many of the sample may be eliminated.
    size : int
    near : list of int
        Factors over any of the sample.
    left : list of int
        Variables of the sample that may not be eliminated.
    """

    private: int
    eliminated: int
    size: int
    near: list[int]
    left: list[int]


def _promise(problem: Problem) -> float:
    sample = problem.kin.once("sample", lambda: _sample(problem))
    if not sample.private:
        return 0.0
    gone = sample.eliminated + _dominated(problem, sample.near, sample.left)
    return gone / sample.size * sample.private / problem.n_variables


def _sample(problem: Problem) -> _Sample:
    """Choose variables, and find out which of them may be eliminated."""
    scope, lengths = problem.flat.scope, np.diff(problem.flat.scope_start)
    table = np.repeat(np.arange(lengths.size), lengths)  # of each variable in a scope
    first = problem.flat.scope_start[table]
    crossing = np.zeros(lengths.size, dtype=np.bool_)
    crossing[table[problem.owner[scope] != problem.owner[scope[first]]]] = True
    private = np.ones(problem.n_variables, dtype=np.bool_)
    private[scope[crossing[table]]] = False
    own = np.flatnonzero(private)
    if not own.size:
        return _Sample(0, 0, 0, [], [])
    sample = own[np.linspace(0, own.size - 1, min(_SAMPLE, own.size)).astype(np.int64)].tolist()
    near = np.unique(table[np.isin(scope, sample)]).tolist()
    paying = _paying(problem, near, sample)
    left = [v for v, pays in zip(sample, paying, strict=True) if not pays]
    return _Sample(own.size, len(sample) - len(left), len(sample), near, left)


def _paying(problem: Problem, near: Sequence[int], sample: Sequence[int]) -> list[bool]:
    """Return which variables may be eliminated, by the scopes of the factors near them alone."""
    factors = [problem.factors[t] for t in near]
    without = tuple(Factor(factor.scope, np.zeros(factor.shape, dtype=np.int32)) for factor in factors)
    network = Network.of(replace(problem, factors=without), Limit())
    assert network is not None
    return [pays(network, v) or not network.touching[v] for v in sample]


def _dominated(problem: Problem, near: Sequence[int], variables: Sequence[int]) -> float:
    """Return the parts of some variables' values that are dominated, added up; nothing is forbidden.

    As :func:`.dominance.remove_of`, but of all at once, and each variable sees the others' values as they were.
    """
    tables: dict[tuple[int, int], list[tuple[int, Array]]] = {}
    place = {v: i for i, v in enumerate(variables)}
    for t in near:
        factor = problem.factors[t]
        for axis, v in enumerate(factor.scope):
            if v in place:  # the variable's axis last: then all that follows is over long rows
                table = factor.table.swapaxes(axis, -1).reshape(-1, factor.table.shape[axis])
                tables.setdefault(table.shape, []).append((place[v], table))
    most, count = int(problem.domains[list(variables)].max(initial=1)), len(variables)
    sizes, every = problem.domains[list(variables)], np.arange(count)
    left = np.arange(most) < sizes[:, None]
    worth = np.where(left, 0.0, -np.inf)
    data, stacks = problem.flat.data, list[tuple[NDArray[np.int64], Array]]()
    small = data.dtype == np.int32 and bool(data.size) and max(-int(data.min()), int(data.max())) < _SMALL
    for (rest, size), found in tables.items():
        rows = np.array([row for row, _ in found])
        stack: Array = np.empty((rest, len(found), size), np.dtype(np.int32 if small else np.float64))
        for number, (_, table) in enumerate(found):
            stack[:, number] = table
        stacks.append((rows, stack))
        np.add.at(worth[:, :size], rows, stack.sum(axis=0, dtype=np.float64) / max(1, rest))
    rivals = np.argsort(-worth, axis=1, kind="stable")[:, 0]
    for _ in range(RIVALS):
        lead = np.zeros((count, most))
        for rows, stack in stacks:
            best = stack[:, np.arange(rows.size), rivals[rows]]
            np.add.at(lead[:, : stack.shape[2]], rows, (best[:, :, None] - stack).min(axis=0))
        beaten = left & (lead >= 0)
        beaten[every, rivals] = False
        left &= ~beaten
        others = np.where(left, worth, -np.inf)
        others[every, rivals] = -np.inf
        rivals = np.where(others.max(axis=1) > -np.inf, others.argmax(axis=1), rivals)
    return float(((sizes - left.sum(axis=1)) / sizes).sum())
