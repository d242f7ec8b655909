"""The plan of mini-buckets, and the largest size that fits.

Mini-bucket plans: an elimination whose messages have at most z variables (GpuBE journal paper, §2.2).

A bucket whose message would have more variables is split into mini-buckets, which are eliminated separately
(mini-bucket elimination, Dechter and Rish 2003). Each of them may choose another value of the variable, so the result
is an upper bound on the exact one. A mini-bucket plan is an ordinary ``EliminationPlan`` in which consecutive buckets
of one variable are its mini-buckets. The same kernels run it, and VALUE reads all mini-buckets of a variable together.
With z at least the induced width it is the exact plan.

Choose z, the largest number of variables of a mini-bucket's message, so that the tables of a plan fit the memory.

A larger z gives a tighter bound and larger tables: an entry count of up to (domain size)^z per message.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import BucketProgram, EliminationPlan, rank_of, table_offsets
from dmcmc.inference.minibuckets.plan_kernels import first_fit, measure_plan
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Ints


class Partition(NamedTuple):
    """Mini-buckets in the order of elimination, as :func:`first_fit` returns them; all arrays are int64.

    Tables are numbered: first the inputs, then one message per mini-bucket. The rank of a variable is its position in
    the elimination order; kept variables come last.

    Attributes
    ----------
    scope_start, scope
        Scope of table t, sorted by rank: ``scope[scope_start[t]:scope_start[t + 1]]``.
    variable : (mini-buckets,)
        The variable that each mini-bucket eliminates.
    member_start, members
        Tables of mini-bucket g: ``members[member_start[g]:member_start[g + 1]]``.
    remaining
        Tables over kept variables.
    """

    scope_start: Ints
    scope: Ints
    variable: Ints
    member_start: Ints
    members: Ints
    remaining: Ints


def least_z(scopes: Sequence[Sequence[int]], order: Sequence[int]) -> int:
    """Return the smallest possible z: the number of variables that the largest table keeps without its first variable.

    >>> least_z([(0, 1, 2), (1, 2)], [0, 1, 2])
    2
    """
    eliminated = set(order)
    return max((len(s) - 1 for s in scopes if not eliminated.isdisjoint(s)), default=0)


def check_z(z: int, scopes: Sequence[Sequence[int]], order: Sequence[int], what: str = "") -> None:
    """Raise :class:`ResourceError` if z is too small for the tables; the message names the smallest z.

    ``what`` is the beginning of the message: what the tables belong to.
    """
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
) -> EliminationPlan:
    """Plan mini-bucket elimination with scope-based partitioning.

    Parameters
    ----------
    scopes, domains, order, keep
        As in :func:`dmcmc.inference.elimination.plan.plan_elimination`.
    z
        Largest number of variables of a message, without the eliminated one (journal paper, Example 4, Corollary 1).
    shifts
        Give each of several mini-buckets of a variable one more input: a cost-shift table over that variable. These
        tables follow the input tables in the order of the mini-buckets, and each is the last input of its mini-bucket
        (:mod:`dmcmc.inference.minibuckets.moment_matching`).

    Returns
    -------
    EliminationPlan

    Raises
    ------
    ResourceError
        If a single table needs a larger z.

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


def assemble(parts: Partition, domains: Ints, rank: Ints, shifts: bool = False) -> EliminationPlan:
    """Return a partition as a plan, with one cost-shift table per mini-bucket of a split bucket if ``shifts``.

    A cost-shift table over a variable is added to one of the variable's mini-buckets; moment matching fills it in.
    ``rank`` (variables,) int64 is each variable's position in the elimination order.
    """
    groups = parts.variable.size
    n_inputs = parts.scope_start.size - 1 - groups
    start, scope, input_start, inputs = parts.scope_start, parts.scope, parts.member_start, parts.members
    remaining = parts.remaining
    if shifts:
        matched_groups = np.flatnonzero(shares_variable(parts.variable))
        n_shifts = matched_groups.size
        input_scopes_end = int(start[n_inputs])
        scope = np.concatenate([scope[:input_scopes_end], parts.variable[matched_groups], scope[input_scopes_end:]])
        start = np.concatenate([start[:n_inputs], input_scopes_end + np.arange(n_shifts), start[n_inputs:] + n_shifts])
        inputs = np.where(inputs >= n_inputs, inputs + n_shifts, inputs)
        inputs = np.insert(inputs, input_start[matched_groups + 1], n_inputs + np.arange(n_shifts))
        input_start = input_start.copy()
        input_start[1:] += np.cumsum(shares_variable(parts.variable))
        remaining = np.where(remaining >= n_inputs, remaining + n_shifts, remaining)
    domains = writable_once(domains)
    size, cells, row_axes = measure_plan(start, scope, rank, domains, parts.variable, input_start, inputs)
    program = BucketProgram(
        domains, start, scope, table_offsets(size), parts.variable, input_start, inputs, cells, row_axes
    )
    return EliminationPlan(program, size, tuple(remaining.tolist()))


def shares_variable(variable: Ints) -> NDArray[np.bool_]:
    """Return for each bucket whether another bucket has the same variable: (buckets,) bool."""
    has_sibling = np.zeros(variable.size, dtype=np.bool_)
    equals_next = variable[1:] == variable[:-1]
    has_sibling[:-1] |= equals_next
    has_sibling[1:] |= equals_next
    return has_sibling


def plan_within(
    scopes: Sequence[Sequence[int]],
    domains: Ints,
    order: Sequence[int],
    keep: Sequence[int],
    entries: int,
    shifts: bool = False,
    limit: float = math.inf,
    stop: Deadline = NO_DEADLINE,
) -> tuple[int, EliminationPlan]:
    """Return the largest z whose plan fits, and its plan; if no z fits, the smallest z and its plan.

    Parameters
    ----------
    scopes, domains, order, keep, shifts
        As in :func:`plan_mini_buckets`.
    entries
        As in :func:`largest_fitting`.
    limit : float
        The largest z.
    stop : Deadline
        Checked before each plan.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """

    def plan_of(z: int) -> EliminationPlan:
        """Return the plan for z."""
        stop.check()
        return plan_mini_buckets(scopes, domains, order, keep, z, shifts)

    max_z = upper_bound_on_z(domains, order, entries, limit)
    return largest_fitting(max_z, least_z(scopes, order), entries, plan_of)


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
    max_z: int,
    min_z: int,
    entries: int,
    plan_of: Callable[[int], EliminationPlan],
    max_cells: float = math.inf,
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
    max_cells : float
        Largest number of joined cells.
    """
    z = max(min_z, max_z)
    while True:
        plan = plan_of(z)
        z = max(min_z, min(z, plan.width))
        if (plan.entries <= entries and plan.cells <= max_cells) or z == min_z:
            return z, plan
        z -= 1
