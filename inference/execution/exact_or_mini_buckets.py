"""Exact or with mini-buckets: eliminate as well as the memory allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import Plan, check_memory
from dmcmc.inference.elimination.plan_kernels import HUGE
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.choose_z import largest_fitting, most_z
from dmcmc.inference.minibuckets.content_partition import eliminate_by_content
from dmcmc.inference.minibuckets.plan import check_z, least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

Room = int | float | Callable[[], int | float]  # a function is called where mini-buckets need it

REMEDY = "give the agents fewer interface variables or smaller domains, or raise budget.memory"


@dataclass(frozen=True)
class Relaxation:
    """How much an elimination may give up.

    Attributes
    ----------
    method
        ``exact``; ``mini-bucket``; ``auto``: exact where the tables fit the memory, else mini-buckets.
    z
        The most variables a mini-bucket's message has; None takes the largest z that fits the memory.
    partition
        ``scope`` (first fit by size) or ``content`` (greedy by gain).
    moment_matching
        Whether mini-buckets of a variable are evened out before they are eliminated.
    most
        The largest z that is taken, exact tables included; a table that is wider by itself is taken all the same.
    """

    method: Literal["auto", "exact", "mini-bucket"] = "exact"
    z: int | None = None
    partition: Literal["scope", "content"] = "scope"
    moment_matching: bool = True
    most: int | None = None

    @property
    def open(self) -> bool:
        """Whether z is to be chosen."""
        return self.method != "exact" and self.z is None

    def allows(self, exact: Plan) -> bool:
        """Return whether an exact plan is no wider than the largest z."""
        return self.most is None or exact.width <= self.most

    def takes_exactly(self, exact: Plan, arithmetic: Arithmetic, memory: int | None) -> bool:
        """Return whether an exact plan is what is carried out within so many bytes of tables."""
        fits = memory is None or exact.entries * arithmetic.dtype.itemsize <= memory
        return self.method != "mini-bucket" and fits and self.allows(exact)


EXACT = Relaxation()


@dataclass(frozen=True)
class Relaxed:
    """A finished elimination that may be relaxed.

    Attributes
    ----------
    elimination : Elimination
    z : int or None
        The limit that it was run with; None if it is exact.
    margin : float
        What the sum of its remaining tables may be too low by, through rounding that :meth:`Arithmetic.outward` does
        not know of; 0 for integers.
    """

    elimination: Elimination
    z: int | None
    margin: float


@dataclass(frozen=True)
class Resources:
    """What an elimination may take.

    Attributes
    ----------
    memory
        Bytes of tables; None for no limit.
    backend
        Where it runs; content-based partitions run on its threads alone.
    room
        As in :func:`dmcmc.inference.minibuckets.moment_matching.eliminate_matched`.
    user
        Whose they are, for errors.
    """

    memory: int | None = None
    backend: Backend = CPU
    room: Room | None = None
    user: str = ""


UNLIMITED = Resources()


def eliminate_within(query: Query, relaxation: Relaxation = EXACT, resources: Resources = UNLIMITED) -> Relaxed:
    """Answer a query within some resources, or bound the answer from above.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory, or z is less than a table needs; :class:`OutOfTime` as the backend says.
    """
    return eliminate_first_fitting(query, [(relaxation, resources.memory)], resources)


def eliminate_first_fitting(
    query: Query, attempts: Sequence[tuple[Relaxation, int | None]], resources: Resources = UNLIMITED
) -> Relaxed:
    """Answer a query by the first of some ways, each with its bytes of tables, that fits them.

    Raises
    ------
    ResourceError
        If none does: why the last does not.
    """
    work = _Work(query, resources)
    for relaxation, memory in attempts[:-1]:
        try:
            return work.carry_out(relaxation, memory)
        except OutOfTime:
            raise
        except ResourceError:
            continue
    return work.carry_out(*attempts[-1])


class _Work:
    """A query, and the plans that have been made for it."""

    def __init__(self, query: Query, resources: Resources) -> None:
        self.query, self.resources, self.stop = query, resources, resources.backend.stop
        self.stop.check()
        self.exact = query.exact
        self._plans: dict[tuple[int, bool], Plan] = {}

    @cached_property
    def least(self) -> int:
        """The least z that mini-buckets may have."""
        return least_z(self.query.scopes, self.query.order)

    def carry_out(self, relaxation: Relaxation, memory: int | None) -> Relaxed:
        """Answer the query in one way; :class:`ResourceError` if that does not fit."""
        query, backend, what, plan = self.query, self.resources.backend, self.resources.user, self.exact
        tables, arithmetic = query.tables, query.arithmetic
        entries = None if memory is None else memory // arithmetic.dtype.itemsize
        if relaxation.method == "exact":
            if memory is not None:
                check_memory(plan, arithmetic, memory, what, REMEDY)
            if not relaxation.allows(plan):
                raise ResourceError(f"{what}: exact tables have {plan.width} variables, and may have {relaxation.most}")
        fits = (entries is None or plan.entries <= entries) and relaxation.allows(plan)
        if relaxation.method != "mini-bucket" and fits:
            return Relaxed(backend.eliminate(tables, plan, arithmetic), None, 0.0)
        z, relaxed = self._relaxed(relaxation, entries, fits)
        if relaxed is plan:
            return Relaxed(backend.eliminate(tables, plan, arithmetic), None, 0.0)
        half = None if entries is None else entries // 2
        if memory is not None:
            check_memory(relaxed, arithmetic, memory, f"{what}, with mini-buckets of z = {z},", REMEDY)
        room = self.resources.room() if callable(self.resources.room) else self.resources.room
        if relaxation.partition == "content":
            matching = relaxation.moment_matching
            found = eliminate_by_content(query, z, matching, backend.threads, half, room, backend.stop)
            if half is None or found.elimination.plan.entries <= half:
                return Relaxed(found.elimination, z, found.margin)
            del found  # what was not merged took more than the scopes let expect
        if relaxation.moment_matching:
            found = backend.eliminate_matched(tables, relaxed, arithmetic, room)
            return Relaxed(found.elimination, z, found.margin)
        return Relaxed(backend.eliminate(tables, relaxed, arithmetic), z, 0.0)

    def _relaxed(self, relaxation: Relaxation, entries: int | None, fits: bool) -> tuple[int, Plan]:
        """Return z and the scope-based plan for it; the exact plan itself where nothing is split."""
        if relaxation.z is not None:
            check_z(relaxation.z, self.query.scopes, self.query.order, self.resources.user)
        if fits:
            enough = max(self.least, self.exact.width)
            if relaxation.z is None or relaxation.z >= enough:
                return enough, self.exact
        if relaxation.z is not None:
            return relaxation.z, self._split(relaxation.z, relaxation.moment_matching)
        # content-based elimination ends with two copies of its tables
        room = HUGE if entries is None else entries // (1 + (relaxation.partition == "content"))
        most = most_z(self.query.domains, [*self.query.order, *self.query.keep], room, relaxation.most)
        return largest_fitting(most, self.least, room, lambda z: self._split(z, relaxation.moment_matching))

    def _split(self, z: int, shifts: bool) -> Plan:
        """Return the scope-based plan for z."""
        if (z, shifts) not in self._plans:
            self.stop.check()
            query = self.query
            self._plans[z, shifts] = plan_mini_buckets(query.scopes, query.domains, query.order, query.keep, z, shifts)
        return self._plans[z, shifts]
