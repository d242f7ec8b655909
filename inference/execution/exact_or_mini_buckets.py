"""Eliminate exactly if the memory allows it, otherwise with mini-buckets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import EliminationPlan, EliminationQuery, check_memory
from dmcmc.inference.elimination.plan_kernels import HUGE
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.content_partition import eliminate_by_content
from dmcmc.inference.minibuckets.plan import check_z, largest_fitting, least_z, plan_mini_buckets, upper_bound_on_z
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

MagnitudeLimit = int | float | Callable[[], int | float]  # a function is called only when mini-buckets need the limit

REMEDY = "give the agents fewer interface variables or smaller domains, or raise budget.memory"


@dataclass(frozen=True)
class Relaxation:
    """How far an elimination may be relaxed.

    Attributes
    ----------
    method
        ``exact``; ``mini-bucket``; or ``auto``: exact if the tables fit the memory, otherwise mini-buckets.
    z
        Largest number of variables of a mini-bucket's message; None chooses the largest z that fits the memory.
    partition
        ``scope`` (first fit by size) or ``content`` (greedy by gain).
    moment_matching
        Whether the mini-buckets of a variable are matched before they are eliminated.
    max_z
        Upper limit of z, for exact tables too; inf for none. A single input table that is wider is used nevertheless.
    """

    method: Literal["auto", "exact", "mini-bucket"] = "exact"
    z: int | None = None
    partition: Literal["scope", "content"] = "scope"
    moment_matching: bool = True
    max_z: float = float("inf")

    @property
    def chooses_z(self) -> bool:
        """Whether z is chosen by the memory."""
        return self.method != "exact" and self.z is None


EXACT = Relaxation()


@dataclass(frozen=True)
class RelaxedElimination:
    """A finished elimination, exact or relaxed.

    Attributes
    ----------
    elimination : Elimination
        The elimination.
    z : int or None
        The z of its mini-buckets; None if it is exact.
    margin : float
        Upper bound on the rounding by which the sum of the remaining tables may be too low, beyond that covered by
        :meth:`Arithmetic.outward`; 0 for integers.
    """

    elimination: Elimination
    z: int | None
    margin: float


@dataclass(frozen=True)
class Resources:
    """The resources of an elimination.

    Attributes
    ----------
    memory
        Memory limit of the tables in bytes; None for no limit.
    backend
        Where the elimination runs; content-based partitions run on the CPU threads only.
    magnitude_limit
        See :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    owner
        Name of the agent or step that needs the elimination, for error messages.
    """

    memory: int | None = None
    backend: Backend = CPU
    magnitude_limit: MagnitudeLimit | None = None
    owner: str = ""


UNLIMITED = Resources()


def eliminate_within(
    query: EliminationQuery, relaxation: Relaxation = EXACT, resources: Resources = UNLIMITED
) -> RelaxedElimination:
    """Answer a query within the given resources, exactly or by an upper bound.

    Parameters
    ----------
    query
        The query.
    relaxation
        How far it may be relaxed.
    resources
        Memory, processors and limits.

    Raises
    ------
    ResourceError
        If the tables exceed the memory, or z is smaller than a table needs. :class:`OutOfTime` if the deadline passes.
    """
    return eliminate_first_fitting(query, [(relaxation, resources.memory)], resources)


def eliminate_first_fitting(
    query: EliminationQuery, attempts: Sequence[tuple[Relaxation, int | None]], resources: Resources = UNLIMITED
) -> RelaxedElimination:
    """Answer a query by the first attempt whose tables fit its memory limit.

    Parameters
    ----------
    query
        The query.
    attempts
        Pairs of a relaxation and its memory limit in bytes (None for no limit).
    resources
        Processors and limits; their ``memory`` is not used.

    Raises
    ------
    ResourceError
        If no attempt fits: the error of the last one.
    """
    planned_query = _PlannedQuery(query, resources)
    for relaxation, memory in attempts[:-1]:
        try:
            return planned_query.carry_out(relaxation, memory)
        except OutOfTime:
            raise
        except ResourceError:
            continue
    return planned_query.carry_out(*attempts[-1])


class _PlannedQuery:
    """A query and the plans that were made for it.

    Attributes
    ----------
    query, resources
        The query, and its processors and limits.
    stop : Deadline
        The deadline of the processors.
    exact : EliminationPlan
        The plan of exact elimination.
    """

    def __init__(self, query: EliminationQuery, resources: Resources) -> None:
        self.query, self.resources, self.stop = query, resources, resources.backend.stop
        self.stop.check()
        self.exact = query.exact
        self._plans: dict[tuple[int, bool], EliminationPlan] = {}

    @cached_property
    def min_z(self) -> int:
        """The smallest z that is possible."""
        return least_z(self.query.scopes, self.query.order)

    def carry_out(self, relaxation: Relaxation, memory: int | None) -> RelaxedElimination:
        """Answer the query by one attempt; raise :class:`ResourceError` if it does not fit."""
        query, backend, owner, plan = self.query, self.resources.backend, self.resources.owner, self.exact
        tables, arithmetic = query.tables, query.arithmetic
        entries = None if memory is None else memory // arithmetic.dtype.itemsize
        if relaxation.method == "exact":
            if memory is not None:
                check_memory(plan, arithmetic, memory, owner, REMEDY)
            if plan.width > relaxation.max_z:
                raise ResourceError(
                    f"{owner}: an exact message has {plan.width} variables; the limit is {relaxation.max_z}"
                )
        fits = (entries is None or plan.entries <= entries) and plan.width <= relaxation.max_z
        if relaxation.method != "mini-bucket" and fits:
            return RelaxedElimination(backend.eliminate(tables, plan, arithmetic), None, 0.0)
        z, relaxed = self._relaxed(relaxation, entries, fits)
        if relaxed is plan:
            return RelaxedElimination(backend.eliminate(tables, plan, arithmetic), None, 0.0)
        max_content_entries = None if entries is None else entries // 2
        if memory is not None:
            check_memory(relaxed, arithmetic, memory, f"{owner}, with mini-buckets of z = {z},", REMEDY)
        magnitude_limit = (
            self.resources.magnitude_limit()
            if callable(self.resources.magnitude_limit)
            else self.resources.magnitude_limit
        )
        if relaxation.partition == "content":
            matching = relaxation.moment_matching
            found = eliminate_by_content(
                query, z, matching, backend.threads, max_content_entries, magnitude_limit, backend.stop
            )
            if found is not None:  # otherwise, unmerged tables took more memory than their scopes suggested
                return RelaxedElimination(found.elimination, z, found.margin)
        if relaxation.moment_matching:
            found = backend.eliminate_matched(tables, relaxed, arithmetic, magnitude_limit)
            return RelaxedElimination(found.elimination, z, found.margin)
        return RelaxedElimination(backend.eliminate(tables, relaxed, arithmetic), z, 0.0)

    def _relaxed(self, relaxation: Relaxation, entries: int | None, fits: bool) -> tuple[int, EliminationPlan]:
        """Return z and its scope-based plan; the exact plan itself if no bucket is split."""
        if relaxation.z is not None:
            check_z(relaxation.z, self.query.scopes, self.query.order, self.resources.owner)
        if fits:
            exact_z = max(self.min_z, self.exact.width)
            if relaxation.z is None or relaxation.z >= exact_z:
                return exact_z, self.exact
        if relaxation.z is not None:
            return relaxation.z, self._split(relaxation.z, relaxation.moment_matching)
        # content-based elimination holds two copies of its tables at the end
        entry_limit = HUGE if entries is None else entries // (1 + (relaxation.partition == "content"))
        max_z = upper_bound_on_z(
            self.query.domains, [*self.query.order, *self.query.keep], entry_limit, relaxation.max_z
        )
        return largest_fitting(max_z, self.min_z, entry_limit, lambda z: self._split(z, relaxation.moment_matching))

    def _split(self, z: int, shifts: bool) -> EliminationPlan:
        """Return the scope-based plan for z; cached."""
        if (z, shifts) not in self._plans:
            self.stop.check()
            query = self.query
            self._plans[z, shifts] = plan_mini_buckets(query.scopes, query.domains, query.order, query.keep, z, shifts)
        return self._plans[z, shifts]
