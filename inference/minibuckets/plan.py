"""Mini-bucket plans: an elimination whose messages have at most z variables (GpuBE journal paper, §2.2).

A bucket whose message would have more is split; each part, a mini-bucket, is eliminated by itself. Then every part may
choose its own value of the variable, so the result bounds the exact one from above. A mini-bucket plan is an ordinary
:class:`Plan` in which neighbouring buckets of one variable are its mini-buckets: the same kernels run it, and VALUE
looks at all mini-buckets of a variable together. With z at least the induced width it is the exact plan.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import Plan, Program, places, rank_of
from dmcmc.inference.minibuckets.plan_kernels import first_fit, measure
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Ints


class Partition(NamedTuple):
    """Mini-buckets in the order of elimination; the fields are as :func:`first_fit` returns them."""

    scope_start: Ints
    scope: Ints
    variable: Ints
    member_start: Ints
    members: Ints
    remaining: Ints


def least_z(scopes: Sequence[Sequence[int]], order: Sequence[int]) -> int:
    """Return the least z that is possible: what the largest table has left without its first variable.

    >>> least_z([(0, 1, 2), (1, 2)], [0, 1, 2])
    2
    """
    eliminated = set(order)
    return max((len(s) - 1 for s in scopes if not eliminated.isdisjoint(s)), default=0)


def check_z(z: int, scopes: Sequence[Sequence[int]], order: Sequence[int], what: str = "") -> None:
    """Raise :class:`ResourceError` if z is too small for the tables; says the least that works."""
    least = least_z(scopes, order)
    if z < least:
        raise ResourceError(
            f"{what}{': ' if what else ''}z = {z} is too small: there is a table over {least + 1} variables, and"
            f" eliminating one leaves {least}; the least z is {least}"
        )


def plan_mini_buckets(
    scopes: Sequence[Sequence[int]],
    domains: Ints,
    order: Sequence[int],
    keep: Sequence[int] = (),
    z: int = 1,
    shifts: bool = False,
) -> Plan:
    """Plan mini-bucket elimination with scope-based partitioning.

    Parameters
    ----------
    scopes, domains, order, keep
        As in :func:`dmcmc.inference.elimination.plan.plan_elimination`.
    z
        The most variables a message has; the eliminated one is not counted (journal paper, Example 4, Corollary 1).
    shifts
        Give each of several mini-buckets of a variable one more input, a table over that variable alone: they follow
        the given tables, in the order of the mini-buckets, and are the last input of each
        (:mod:`dmcmc.inference.minibuckets.moment_matching`).

    Raises
    ------
    ResourceError
        If a table by itself needs a larger z.

    Examples
    --------
    >>> plan = plan_mini_buckets([(0, 1), (0, 2), (0, 3)], np.array([2, 2, 2, 2]), [0, 1, 2, 3], z=2)
    >>> plan.program.variable.tolist(), plan.scope(plan.output(0)), plan.scope(plan.output(1))
    ([0, 0, 1, 2, 3], (1, 2), (3,))
    """
    check_z(z, scopes, order)
    start = np.cumsum([0, *(len(s) for s in scopes)])
    flat = np.array([v for s in scopes for v in s], dtype=np.int64)
    eliminated = np.array(order, dtype=np.int64)
    rank = rank_of(domains, order, keep)
    found = first_fit(start, flat, rank, eliminated, min(z, domains.size))
    return assemble(Partition(*found), domains, rank, shifts)


def assemble(parts: Partition, domains: Ints, rank: Ints, shifts: bool = False) -> Plan:
    """Return a partition as a plan, with tables for shifts if wanted."""
    groups = parts.variable.size
    given = parts.scope_start.size - 1 - groups
    start, scope, input_start, inputs = parts.scope_start, parts.scope, parts.member_start, parts.members
    remaining = parts.remaining
    if shifts:
        shifted = np.flatnonzero(shared(parts.variable))
        extra = shifted.size
        cut = int(start[given])
        scope = np.concatenate([scope[:cut], parts.variable[shifted], scope[cut:]])
        start = np.concatenate([start[:given], cut + np.arange(extra), start[given:] + extra])
        inputs = np.where(inputs >= given, inputs + extra, inputs)
        inputs = np.insert(inputs, input_start[shifted + 1], given + np.arange(extra))
        input_start = input_start.copy()
        input_start[1:] += np.cumsum(shared(parts.variable))
        remaining = np.where(remaining >= given, remaining + extra, remaining)
    domains = writable_once(domains)
    size, cells, low = measure(start, scope, rank, domains, parts.variable, input_start, inputs)
    program = Program(domains, start, scope, places(size), parts.variable, input_start, inputs, cells, low)
    return Plan(program, size, tuple(remaining.tolist()))


def shared(variable: Ints) -> NDArray[np.bool_]:
    """Return for each bucket whether its variable has another one: (buckets,) bool."""
    both = np.zeros(variable.size, dtype=np.bool_)
    same = variable[1:] == variable[:-1]
    both[:-1] |= same
    both[1:] |= same
    return both
