"""Exact or with mini-buckets: eliminate as well as the memory allows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import Plan, check_memory, plan_elimination
from dmcmc.inference.elimination.plan_kernels import HUGE
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.minibuckets.choose_z import plan_within
from dmcmc.inference.minibuckets.content import eliminate_by_content
from dmcmc.inference.minibuckets.plan import check_z, least_z, plan_mini_buckets
from dmcmc.inference.runtime.errors import ResourceError

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
        As in :func:`dmcmc.inference.minibuckets.matching.eliminate_matched`.
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
    tables, arithmetic = query.tables, query.arithmetic
    memory, backend, what = resources.memory, resources.backend, resources.user
    entries = None if memory is None else memory // arithmetic.dtype.itemsize
    plan = plan_elimination(query.scopes, query.domains, query.order, query.keep)
    if relaxation.method == "exact":
        if memory is not None:
            check_memory(plan, arithmetic, memory, what, REMEDY)
        if not relaxation.allows(plan):
            raise ResourceError(
                f"{what} would have tables of {plan.width} variables; at most {relaxation.most} are wanted"
            )
    if relaxation.method != "mini-bucket" and (entries is None or plan.entries <= entries) and relaxation.allows(plan):
        return Relaxed(backend.eliminate(tables, plan, arithmetic), None, 0.0)
    z, relaxed = _plan(query, relaxation, plan, entries, what)
    if relaxed is plan:
        return Relaxed(backend.eliminate(tables, plan, arithmetic), None, 0.0)
    half = None if entries is None else entries // 2
    room = resources.room() if callable(resources.room) else resources.room
    if memory is not None:
        check_memory(relaxed, arithmetic, memory, f"{what}, with mini-buckets of z = {z},", REMEDY)
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


def _plan(query: Query, relaxation: Relaxation, exact: Plan, entries: int | None, what: str) -> tuple[int, Plan]:
    """Return z and the scope-based plan for it; the exact plan itself where nothing is split."""
    scopes, domains, order, keep = query.scopes, query.domains, query.order, query.keep
    if relaxation.z is not None:
        check_z(relaxation.z, scopes, order, what)
    least = least_z(scopes, order)
    if (entries is None or exact.entries <= entries) and relaxation.allows(exact):
        enough = max(least, exact.width)
        if relaxation.z is None or relaxation.z >= enough:
            return enough, exact
    shifts = relaxation.moment_matching
    if relaxation.z is not None:
        return relaxation.z, plan_mini_buckets(scopes, domains, order, keep, relaxation.z, shifts)
    # content-based elimination ends with two copies of its tables
    room = HUGE if entries is None else entries // (1 + (relaxation.partition == "content"))
    return plan_within(scopes, domains, order, keep, room, shifts, relaxation.most)
