"""Cache elimination orders and plans of UTIL steps per process: steps of the same structure are planned once.

In its UTIL step an agent joins its tables with its children's messages and eliminates its interface
(:func:`dmcmc.inference.dpop.util_and_value.util_step`). The key of the cache has the scopes, the variables, their
domain sizes and the given order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.flat_tables import FlatTables, flatten_scopes
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.compile import writable_once
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memo import MAX_KEY_SIZE, Memo
from dmcmc.inference.runtime.types import Ints


class StepPlan(NamedTuple):
    """The elimination order and plan of a step.

    Attributes
    ----------
    order : tuple of int
        The eliminated variables, first to last.
    plan : EliminationPlan
        The elimination plan.
    layout : FlatTables or None
        Scopes and offsets of the input tables in one flat array, without entries; None if the tables are not small.
    """

    order: tuple[int, ...]
    plan: EliminationPlan
    layout: FlatTables | None


_MAX_KEYED_DOMAINS = 512  # variables; the domain sizes of smaller problems are part of the key
_MAX_SMALL_CELLS = 1 << 16  # cells plus entries; a smaller step costs less than the choice of the best method
# Steps of which plans are cached: those of a problem with more agents would drop each other. A plan takes about 4 KiB.
_MAX_PLANS = 1 << 14
_PLANS = Memo[StepPlan](_MAX_PLANS)


def step_plan(
    scopes: Sequence[tuple[int, ...]],
    domains: Ints,
    eliminate: Sequence[int],
    keep: Sequence[int],
    given: Sequence[int] | None = None,
    stop: Deadline = NO_DEADLINE,
) -> StepPlan:
    """Return the order and plan of an exact elimination, from the cache if there is one of the same structure.

    Parameters
    ----------
    scopes
        Scopes of the input tables.
    domains : (variables,) int64
        Domain sizes of all variables.
    eliminate, keep
        The variables to eliminate, and those that remain.
    given
        The elimination order; None to search for one.
    stop
        Deadline of the search for an order.
    """

    def make_plan() -> StepPlan:
        """Search for the order and plan the elimination."""
        order = best_order(scopes, domains, eliminate, keep, stop=stop).variables if given is None else tuple(given)
        plan = plan_elimination(scopes, domains, order, keep)
        return StepPlan(order, plan, _layout(scopes, plan) if plan.cells + plan.entries < _MAX_SMALL_CELLS else None)

    if len(scopes) + len(eliminate) + len(keep) > MAX_KEY_SIZE:
        return make_plan()
    full_key = domains.size <= _MAX_KEYED_DOMAINS
    sizes = (domains if full_key else domains[np.array([*eliminate, *keep], dtype=np.int64)]).tobytes()
    key = tuple(scopes), tuple(eliminate), tuple(keep), sizes, domains.size, None if given is None else tuple(given)
    step = _PLANS.find(key)
    if step is None:
        step = make_plan()
        if not stop.over:  # otherwise the order may depend on the clock
            _PLANS.put(key, step)
    if full_key:
        return step
    program = step.plan.program._replace(domains=writable_once(domains))
    return step._replace(plan=replace(step.plan, program=program))


def _layout(scopes: Sequence[tuple[int, ...]], plan: EliminationPlan) -> FlatTables:
    """Return scopes and offsets of a plan's input tables, in the given order, in one flat array."""
    at = np.append(0, np.cumsum(plan.sizes[: len(scopes)]))
    return FlatTables(*flatten_scopes(scopes), at, np.zeros(0, dtype=np.int32))
