"""Choose z: the largest one whose mini-bucket plan fits a number of table entries."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.runtime.types import Ints


def plan_within(
    scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int], keep: Sequence[int], entries: int
) -> tuple[int, EliminationPlan]:
    """Return the largest z whose plan has at most ``entries`` table entries, and its plan.

    If no z fits, the smallest z and its plan are returned. Parameters are those of ``plan_mini_buckets``.
    """
    max_z = upper_bound_on_z(domains, [*order, *keep], entries)
    return largest_fitting(
        max_z, least_z(scopes, order), entries, lambda z: plan_mini_buckets(scopes, domains, order, keep, z)
    )


def upper_bound_on_z(domains: Ints, variables: Sequence[int], entries: int, limit: int | None = None) -> int:
    """Return an upper bound on the useful z: no table over more of the variables fits ``entries``.

    The result is at most ``limit``.
    """
    involved = np.unique(np.array(variables, dtype=np.int64))
    sizes = domains[involved]
    smallest = min((int(d) for d in sizes if d > 1), default=2)
    bound = math.log2(max(1, entries)) / math.log2(smallest) + int((sizes < 2).sum())
    return min(len(involved), int(bound), len(involved) if limit is None else limit)


def largest_fitting(
    most: int, least: int, entries: int, plan_of: Callable[[int], EliminationPlan]
) -> tuple[int, EliminationPlan]:
    """Return the largest z up to ``most`` whose plan has at most ``entries`` table entries, and its plan.

    If no z fits, the smallest z (``least``) and its plan are returned. A plan reports by its width the z that it really
    needs. Every z between this width and the z of the plan gives the same plan and is skipped.
    """
    z = max(least, most)
    while True:
        plan = plan_of(z)
        z = max(least, min(z, plan.width))
        if plan.entries <= entries or z == least:
            return z, plan
        z -= 1
