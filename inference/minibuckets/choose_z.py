"""Choose z, the largest number of variables of a mini-bucket's message, so that the tables of a plan fit the memory.

A larger z gives a tighter bound and larger tables: an entry count of up to (domain size)^z per message.
"""

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


def upper_bound_on_z(domains: Ints, variables: Sequence[int], entries: int, limit: float = math.inf) -> int:
    """Return an upper bound on the useful z: no table over more of the variables fits ``entries``.

    The bound is log(entries) / log(smallest domain size above 1), plus the number of variables with one value, which do
    not enlarge a table. The result is at most ``limit``, and at most the number of variables.
    """
    involved = np.unique(np.array(variables, dtype=np.int64))
    domain_sizes = domains[involved]
    smallest = min((int(d) for d in domain_sizes if d > 1), default=2)
    bound = math.log2(max(1, entries)) / math.log2(smallest) + int((domain_sizes < 2).sum())
    return int(min(len(involved), bound, limit))


def largest_fitting(
    max_z: int, min_z: int, entries: int, plan_of: Callable[[int], EliminationPlan]
) -> tuple[int, EliminationPlan]:
    """Return the largest z up to ``max_z`` whose plan has at most ``entries`` table entries, and its plan.

    If no z fits, ``min_z``, the smallest possible z, and its plan are returned. A plan reports by its width the z that
    it really needs. Every z between this width and the z of the plan gives the same plan and is skipped.

    Parameters
    ----------
    max_z, min_z : int
        Limits of z.
    entries : int
        Largest number of table entries.
    plan_of : callable
        Returns the plan for a z.
    """
    z = max(min_z, max_z)
    while True:
        plan = plan_of(z)
        z = max(min_z, min(z, plan.width))
        if plan.entries <= entries or z == min_z:
            return z, plan
        z -= 1
