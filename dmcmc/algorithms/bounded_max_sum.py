"""Bounded Max-Sum: remove the least important edges of the factor graph until it is a tree, and solve that exactly.

Source: Rogers, Farinelli, Stranders, Jennings: Bounded approximate decentralised coordination via the max-sum
algorithm, Artificial Intelligence 175, 2011.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dmcmc.algorithms.contract import Algorithm, Values
from dmcmc.algorithms.layout import integer_tables
from dmcmc.algorithms.network import BYTES, AgentNetwork, Draws
from dmcmc.inference.runtime.types import Ints


class _TreeFactor(NamedTuple):
    """A factor of the tree: its variables that are left, the one nearest to the root first, and its utilities."""

    scope: tuple[int, ...]
    table: Ints


def bounded_max_sum(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Yield the best assignment of a tree, and prove an upper bound on the utility of all assignments.

    The weight of an edge is the most that the variable can change the factor. A maximum spanning tree of the factor
    graph keeps its edges; a factor takes its least utility over the variables that it loses. The bound is the best
    utility of the tree, plus for each factor the most that it has lost.
    """
    factors, lost = _tree(network)
    n, domains = network.problem.n_variables, network.layout.domains
    scores = [np.zeros(size, dtype=np.int64) for size in domains]
    for factor in reversed(factors):
        scores[factor.scope[0]] += _with_scores(factor, scores).reshape(factor.table.shape[0], -1).max(axis=1)
    below = {v for factor in factors for v in factor.scope[1:]}
    roots = [v for v in range(n) if v not in below]
    values = np.zeros(n, dtype=np.int64)
    for v in roots:
        values[v] = scores[v].argmax()
    for factor in factors:
        total = _with_scores(factor, scores)[values[factor.scope[0]]]
        values[list(factor.scope[1:])] = np.unravel_index(total.argmax(), total.shape)
    network.bound = sum(int(scores[v].max()) for v in roots) + lost
    _count_messages(network, factors)
    yield values


def _tree(network: AgentNetwork) -> tuple[list[_TreeFactor], int]:
    """Return the factors of the tree, those nearer to a root first, and by how much its factors are too small."""
    tables, n = integer_tables(network.problem)[0], network.problem.n_variables
    edges = [
        (-int((table.max(axis=axis) - table.min(axis=axis)).max()), f, axis)
        for f, (scope, table) in enumerate(tables)
        for axis in range(len(scope))
    ]
    component, kept = list(range(n + len(tables))), [list[int]() for _ in tables]

    def root_of(node: int) -> int:
        while component[node] != node:
            component[node] = node = component[component[node]]
        return node

    for _, f, axis in sorted(edges):
        ends = root_of(n + f), root_of(tables[f][0][axis])
        if ends[0] != ends[1]:
            component[ends[0]] = ends[1]
            kept[f].append(axis)
    factors_of, lost, reduced = [list[int]() for _ in range(n)], 0, list[tuple[list[int], Ints]]()
    for f, (scope, table) in enumerate(tables):
        removed = tuple(axis for axis in range(len(scope)) if axis not in kept[f])
        least = table.min(axis=removed)
        lost += int((table.max(axis=removed) - least).max())
        reduced.append(([scope[axis] for axis in sorted(kept[f])], least))
        for axis in kept[f]:
            factors_of[scope[axis]].append(f)
    found, seen = list[_TreeFactor](), set[int]()
    for root in range(n):
        waiting = [root]
        for v in waiting:
            for f in factors_of[v]:
                if f not in seen:
                    seen.add(f)
                    variables, least = reduced[f]
                    others = tuple(u for u in variables if u != v)
                    found.append(_TreeFactor((v, *others), np.moveaxis(least, variables.index(v), 0)))
                    waiting.extend(others)
    return found, lost


def _with_scores(factor: _TreeFactor, scores: list[Ints]) -> Ints:
    """Return the table of a factor plus the utilities below each of its variables except the first one."""
    total, arity = factor.table, len(factor.scope)
    for axis, v in enumerate(factor.scope[1:], 1):
        total = total + scores[v].reshape([-1 if i == axis else 1 for i in range(arity)])
    return total


def _count_messages(network: AgentNetwork, factors: list[_TreeFactor]) -> None:
    """Count the messages of Max-Sum on the tree: one in each direction of each edge between different agents.

    The agent of a factor's variable nearest to the root computes the factor.
    """
    owner, domains = network.problem.owner, network.problem.domains
    pairs = [(f.scope[0], v) for f in factors for v in f.scope[1:] if owner[f.scope[0]] != owner[v]]
    first, variables = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    network.count_messages("TO_FACTOR", owner[variables], BYTES * domains[variables])
    network.count_messages("FROM_FACTOR", owner[first], BYTES * domains[variables])


BOUNDED_MAX_SUM = Algorithm(
    "bounded-max-sum",
    "Max-Sum on a spanning tree of the factor graph: one exact pass, with a proven bound",
    bounded_max_sum,
    kind="inference with a bound",
    paper="Rogers, Farinelli, Stranders, Jennings: Bounded max-sum, Artificial Intelligence 175, 2011",
)
