"""Propagate hard global constraints: remove values that no assignment within the remaining domains uses."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.limits import PresolveLimit

Masks = Sequence[NDArray[np.bool_]]


def propagate_constraints(problem: Problem, limit: PresolveLimit) -> Masks | None:
    """Propagate the hard global constraints of a problem until nothing changes or the limit is reached.

    Parameters
    ----------
    problem : Problem
        The problem.
    limit : PresolveLimit
        Limit on the work.

    Returns
    -------
    sequence of ndarray of bool, shape (values,), or None
        For each variable, its remaining values; None if the problem is proven infeasible.
    """
    masks = [np.ones(size, dtype=np.bool_) for size in problem.domains.tolist()]
    hard = [f for f in problem.factors if isinstance(f, GlobalConstraint) and f.cost is None]
    of_variable: dict[int, list[int]] = {}
    for number, constraint in enumerate(hard):
        for v in constraint.scope:
            of_variable.setdefault(v, []).append(number)
    queue, waiting = deque(range(len(hard))), [True] * len(hard)
    while queue and not limit.over:
        number = queue.popleft()
        waiting[number], constraint = False, hard[number]
        limit.charge(1, sum(constraint.shape))
        kept = constraint.propagate([masks[v] for v in constraint.scope])
        if kept is None:
            return None
        for v, mask in zip(constraint.scope, kept, strict=True):
            if np.count_nonzero(mask) == np.count_nonzero(masks[v]):
                continue
            masks[v] = mask
            for other in of_variable[v]:
                if not waiting[other]:
                    waiting[other] = True
                    queue.append(other)
    return masks
