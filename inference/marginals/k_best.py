"""Find the k best assignments from a junction tree of maxima (Nilsson 1998).

Lawler's partition: the assignments that are not found yet are divided into subsets, each with a prefix of fixed values
and a set of excluded values of the next variable. Max-marginals given the prefix are the best objective of each subset,
so that the next best assignment is in the subset with the best one.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.runtime.types import Ints, Label, Number


@dataclass(order=True)
class _Subset:
    """Assignments with a prefix of fixed values, without some values of the next variable.

    Attributes
    ----------
    loss : int or float
        The negative of the best utility of its assignments.
    number : int
        Subsets with equal utility are searched in the order of their numbers.
    prefix : tuple of label
        The values of the first variables.
    utilities : dict
        The best utility with each value of the next variable that is not excluded.
    """

    loss: Number
    number: int
    prefix: tuple[Label, ...] = field(compare=False)
    utilities: dict[Label, Number] = field(compare=False)


def best_assignments(tree: JunctionTree) -> Iterator[Ints]:
    """Yield all assignments that break no hard constraint, the best first.

    Each takes at most one query per variable. The evidence of the tree is replaced.

    Parameters
    ----------
    tree : JunctionTree
        A tree of maxima (``maximise=True``).

    Yields
    ------
    (variables,) int64
        The value indices of the next best assignment. Ties are broken by the order of variables and values.

    Raises
    ------
    OutOfTime
        If the tree's deadline passes.

    Examples
    --------
    >>> from dmcmc import Factor, Problem
    >>> problem = Problem(("a", "b"), [2, 2], ("me",), [0, 0], (Factor.of((0, 1), [[1, 7], [5, float("-inf")]]),))
    >>> [values.tolist() for values in best_assignments(JunctionTree(problem, maximise=True))]
    [[0, 1], [1, 0], [0, 0]]
    """
    names = tree.problem.variables
    if not names and math.isfinite(tree.total()):
        yield np.zeros(0, dtype=np.int64)
    if not names:
        return
    tree.set_evidence({})
    queue, number = list[_Subset](), 0
    if utilities := _utilities(tree, names[0]):
        queue.append(_Subset(-max(utilities.values()), number, (), utilities))
    while queue:
        subset = heapq.heappop(queue)
        prefix, utilities = subset.prefix, subset.utilities
        while True:
            value = max(utilities, key=utilities.__getitem__)
            others = {other: utility for other, utility in utilities.items() if other != value}
            if others:
                number += 1
                heapq.heappush(queue, _Subset(-max(others.values()), number, prefix, others))
            prefix = (*prefix, value)
            tree.set_evidence(dict(zip(names, prefix, strict=False)))
            if len(prefix) == len(names):
                break
            utilities = _utilities(tree, names[len(prefix)])
        yield tree.problem.values_of(dict(zip(names, prefix, strict=True)))


def _utilities(tree: JunctionTree, name: str) -> dict[Label, Number]:
    """Return the best utility with each value of a variable, without values that no allowed assignment has."""
    to_utility = tree.problem.to_own_sense  # its own inverse
    return {label: to_utility(number) for label, number in tree.marginal(name).items() if number is not None}
