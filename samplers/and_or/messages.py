"""Mini-bucket messages of a cost problem: the heuristic of an AND/OR search.

The costs are negated, because elimination maximises; forbidden entries are −∞. The messages are computed on the CPU or
on a GPU (``Backend``), exactly if the memory allows it, and otherwise with the largest z that fits and with moment
matching. Cost shifts over a variable are added to the mini-buckets of this variable only. They cancel out where it is
assigned, so the messages need no correction.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.eliminate import Elimination, new_arena
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.execution import cost_model
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, narrowest
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.branch_and_bound.cost_network import at_most_one_groups
from dmcmc.samplers.toulbar2.costs import CostProblem
from dmcmc.samplers.tuning import common


class MiniBucketMessages(NamedTuple):
    """The costs of a problem and the messages of its mini-buckets.

    Attributes
    ----------
    exact : EliminationPlan
        The plan of exact elimination, whose message scopes are the contexts of the variables. It is not run if its
        tables are too large.
    plan : EliminationPlan
        The plan that was run; its first ``given`` tables are the negated costs.
    entries : ndarray of int32 or int64, shape (plan.entries,)
        All tables of ``plan``.
    arithmetic : Arithmetic
        The arithmetic of the entries.
    given : int
        Number of cost tables.
    z : int or None
        Largest number of variables of a message; None if the messages are exact.
    """

    exact: EliminationPlan
    plan: EliminationPlan
    entries: Array
    arithmetic: Arithmetic
    given: int
    z: int | None


def compute_messages(
    costs: CostProblem, backend: Backend, memory: int, seconds: float, max_z: int | None = None
) -> MiniBucketMessages:
    """Compute the mini-bucket messages of a cost problem.

    Parameters
    ----------
    costs : CostProblem
        The problem: tables, and constraints of type at most one.
    backend : Backend
        Where the elimination runs, and its deadline.
    memory : int
        Memory limit of all tables in bytes.
    seconds : float
        Time of the whole search. On a CPU the messages take about a tenth of it at most.
    max_z : int or None
        Upper limit on the number of variables of a message.

    Raises
    ------
    ResourceError
        If not even the smallest mini-buckets fit the memory, or the deadline passes.
    """
    arithmetic = with_headroom(narrowest(costs.top, True))
    tables, n = list(_negated_costs(costs, arithmetic)), costs.domains.size
    scopes = [table.scope for table in tables]
    order = best_order(scopes, costs.domains, range(n), stop=backend.stop).variables
    exact = plan_elimination(scopes, costs.domains, order)
    if not backend.worth_gpu(common.UNTRIED_SHARE * seconds):
        # A message's entry is the maximum over a column of as many cells as its variable has values.
        cells = common.UNTRIED_SHARE * min(seconds, 1e6) / cost_model.COSTS.seconds_per_bound_cell
        in_time = int(cells / max(1, int(costs.domains.max(initial=1)))) * arithmetic.dtype.itemsize
        memory = min(memory, max(in_time, 2 * sum(table.values.nbytes for table in tables)))
    query = EliminationQuery(tables, costs.domains, order, (), arithmetic, exact)
    found = eliminate_within(
        query,
        Relaxation("auto", max_z=float("inf") if max_z is None else max_z),
        Resources(memory, backend, owner="AND/OR search"),
    )
    done = found.elimination
    return MiniBucketMessages(exact, done.plan, _entries_on_host(done), arithmetic, len(tables), found.z)


def _negated_costs(costs: CostProblem, arithmetic: Arithmetic) -> Iterator[EncodedTable]:
    """Yield all cost tables, negated, and tables that forbid two values of one at-most-one constraint."""
    for scope, flat in zip(costs.scopes, costs.costs, strict=True):
        entries = np.where(flat >= costs.top, arithmetic.lowest, -flat).astype(arithmetic.dtype)
        yield EncodedTable(tuple(scope.tolist()), entries.reshape(costs.domains[scope]))
    excluded: dict[tuple[int, int], NDArray[np.generic]] = {}
    for group in at_most_one_groups(costs):
        for (v, x), (u, y) in combinations(sorted(group), 2):
            if v != u:
                if (v, u) not in excluded:
                    excluded[v, u] = np.zeros(costs.domains[[v, u]], dtype=arithmetic.dtype)
                excluded[v, u][x, y] = arithmetic.lowest_scalar
    for pair, table in excluded.items():
        yield EncodedTable(pair, table)


def _entries_on_host(done: Elimination) -> Array:
    """Return all tables of an elimination in one array; those on a GPU are copied."""
    plan = done.plan
    if done.arena.size >= plan.entries and not done.external_tables:
        return done.arena
    entries = new_arena(plan, done.arithmetic)
    for t in range(plan.tables):
        location = plan.locations[t]
        entries[location.begin : location.end] = np.asarray(done.table(t).values).reshape(-1)
    return entries
