"""The choice of z: the largest whose mini-bucket plan fits."""

import math
from collections.abc import Sequence

import numpy as np

from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.runtime.types import Ints


def plan_within(
    scopes: Sequence[Sequence[int]],
    domains: Ints,
    order: Sequence[int],
    keep: Sequence[int],
    entries: int,
    shifts: bool = False,
    limit: int | None = None,
) -> tuple[int, Plan]:
    """Return the largest z whose plan has at most ``entries`` table entries, and that plan; the least z if none has.

    No z above ``limit`` is tried.

    A plan says how large z need be for it (its width), and any z between that and the one it was made for gives the
    same plan: those are skipped.
    """
    least = least_z(scopes, order)
    involved = np.unique(np.array([*order, *keep], dtype=np.int64))
    sizes = domains[involved]
    # a table over that many variables does not fit, whatever the variables
    smallest = min((int(d) for d in sizes if d > 1), default=2)
    most = math.log2(max(1, entries)) / math.log2(smallest) + int((sizes < 2).sum())
    z = max(least, min(len(involved), int(most), len(involved) if limit is None else limit))
    while True:
        plan = plan_mini_buckets(scopes, domains, order, keep, z, shifts)
        z = max(least, min(z, plan.width))
        if plan.entries <= entries or z == least:
            return z, plan
        z -= 1
