"""The choice of z: the largest whose mini-bucket plan fits."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.runtime.types import Ints


def plan_within(
    scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int], keep: Sequence[int], entries: int
) -> tuple[int, Plan]:
    """Return the largest z whose plan has at most ``entries`` table entries, and that plan; the least z if none has."""
    most = most_z(domains, [*order, *keep], entries)
    return largest_fitting(
        most, least_z(scopes, order), entries, lambda z: plan_mini_buckets(scopes, domains, order, keep, z)
    )


def most_z(domains: Ints, variables: Sequence[int], entries: int, limit: int | None = None) -> int:
    """Return a z that no larger one can beat: no table over more variables fits ``entries``, whatever the variables.

    It is no more than ``limit``.
    """
    involved = np.unique(np.array(variables, dtype=np.int64))
    sizes = domains[involved]
    smallest = min((int(d) for d in sizes if d > 1), default=2)
    most = math.log2(max(1, entries)) / math.log2(smallest) + int((sizes < 2).sum())
    return min(len(involved), int(most), len(involved) if limit is None else limit)


def largest_fitting(most: int, least: int, entries: int, plan_of: Callable[[int], Plan]) -> tuple[int, Plan]:
    """Return the largest z up to ``most`` whose plan has at most ``entries`` table entries, and that plan.

    That of the least z if none has. A plan says how large z need be for it (its width), and any z between that and the
    one it was made for gives the same plan: those are skipped.
    """
    z = max(least, most)
    while True:
        plan = plan_of(z)
        z = max(least, min(z, plan.width))
        if plan.entries <= entries or z == least:
            return z, plan
        z -= 1
