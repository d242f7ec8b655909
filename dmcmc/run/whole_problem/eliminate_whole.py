"""Eliminate all variables of a problem, with mini-buckets if the settings or the memory ask for them."""

from dataclasses import replace

from dmcmc.inference.dpop.memory_shares import split_memory
from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import RelaxedElimination, Resources, eliminate_within
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import LONG_BUDGET
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import cores
from dmcmc.solving.planning.combination_plan import relaxation_of
from dmcmc.solving.planning.divided_problem import DividedProblem, order_search_budget


def eliminate_whole(parts: DividedProblem, stop: Deadline) -> RelaxedElimination:
    """Eliminate all variables."""
    dense, config, arithmetic = parts.problem, parts.config, parts.arithmetic
    backend = replace(Backend.of(config.device, cores()), stop=stop)
    tables = [arithmetic.encode(f) for f in dense.factors if f.scope]
    scopes = [t.scope for t in tables]
    seconds = config.budget.time
    order_budget = LONG_BUDGET if seconds is None else min(LONG_BUDGET, order_search_budget(seconds))
    order = best_order(scopes, dense.domains, range(dense.n_variables), budget=order_budget, stop=stop).variables
    stop.check()
    query = EliminationQuery(tables, dense.domains, order, (), arithmetic)
    shares = split_memory(config.budget.bytes, parts.original, parts.problem)
    resources = Resources(shares.work, backend, owner="the whole problem")
    return eliminate_within(query, relaxation_of(config.combine), resources)
