"""Orders and plans of UTIL steps: those of a step of the same shape, where there has been one in this process."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.flat_tables import FlatTables, laid_out
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import LARGEST, Memo
from dmcmc.inference.runtime.types import Ints


class Planned(NamedTuple):
    """In which order variables are eliminated, and what that does.

    Attributes
    ----------
    order : tuple of int
    plan : Plan
    layout : FlatTables or None
        How the tables lie one after another, without their entries; None where they are not small.
    """

    order: tuple[int, ...]
    plan: Plan
    layout: FlatTables | None


_WHOLE = 512  # variables of problems whose sizes are part of what plans are known by
_SMALL = 1 << 16  # joined cells, and entries of tables, of what takes less than to look at how it is best done
_PLANS = Memo[Planned]()


def planned(
    scopes: Sequence[tuple[int, ...]],
    domains: Ints,
    eliminate: Sequence[int],
    keep: Sequence[int],
    given: Sequence[int] | None = None,
    stop: Stop = NO_STOP,
) -> Planned:
    """Return how some variables are eliminated exactly from tables over some scopes.

    Parameters
    ----------
    given
        The order, where there is one; None: one is searched for.
    """

    def made() -> Planned:
        order = best_order(scopes, domains, eliminate, keep, stop=stop).variables if given is None else tuple(given)
        plan = plan_elimination(scopes, domains, order, keep)
        return Planned(order, plan, _layout(scopes, plan) if plan.cells + plan.entries < _SMALL else None)

    if len(scopes) + len(eliminate) + len(keep) > LARGEST:
        return made()
    whole = domains.size <= _WHOLE
    sizes = (domains if whole else domains[np.array([*eliminate, *keep], dtype=np.int64)]).tobytes()
    key = tuple(scopes), tuple(eliminate), tuple(keep), sizes, domains.size, None if given is None else tuple(given)
    found = _PLANS.find(key)
    if found is None:
        found = made()
        if not stop.over:  # else the order may depend on the clock
            _PLANS.put(key, found)
    if whole:
        return found
    program = found.plan.program._replace(domains=writable_once(domains))
    return found._replace(plan=replace(found.plan, program=program))


def _layout(scopes: Sequence[tuple[int, ...]], plan: Plan) -> FlatTables:
    """Return how a plan's tables lie one after another, as they are given."""
    at = np.append(0, np.cumsum(plan.sizes[: len(scopes)]))
    return FlatTables(*laid_out(scopes), at, np.zeros(0, dtype=np.int32))
