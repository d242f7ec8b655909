"""The steps of mini-bucket bounds of an agent: the plan for a z, the largest z that fits, and the elimination."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.dual.reparametrised_tables import elimination_of
from dmcmc.inference.bounds.tuning.mini_buckets import SECONDS_PER_BUCKET
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.choose_z import largest_fitting, upper_bound_on_z
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.compile import KernelSet

Scopes = Sequence[tuple[int, ...]]


def plan_of(local: LocalProblem, scopes: Scopes, z: int) -> EliminationPlan:
    """Return the mini-bucket elimination of an agent's hidden variables, given the scopes of its tables and z."""
    return plan_mini_buckets(scopes, local.domains, local.order.variables, local.interface, z, True)


def least_z_of(local: LocalProblem, scopes: Scopes) -> int:
    """Return the smallest z: each table fits a mini-bucket."""
    return least_z(scopes, local.order.variables)


def largest_z(local: LocalProblem, scopes: Scopes, entries: int) -> int:
    """Return the largest z whose tables have at most ``entries`` entries; the smallest z if none has."""
    most = upper_bound_on_z(local.domains, local.order.variables, entries, local.plan.width)
    found, _ = largest_fitting(most, least_z_of(local, scopes), entries, partial(plan_of, local, scopes))
    return found


def seconds_of(plan: EliminationPlan, threads: int) -> float:
    """Return the estimated seconds of a plan on a nominal machine: joined cells and an overhead per bucket."""
    return plan.cells * COSTS.seconds_per_bound_cell / threads + SECONDS_PER_BUCKET * plan.buckets


def eliminate(
    local: LocalProblem, tables: Sequence[EncodedTable], z: int, backend: Backend
) -> tuple[Arithmetic, tuple[EncodedTable, ...]]:
    """Eliminate an agent's hidden variables with mini-buckets; return the arithmetic and the tables that remain.

    Raises
    ------
    OutOfTime
        If the deadline of the backend passes.
    """
    query = elimination_of(tables, local.domains, local.order.variables, local.interface)
    done = eliminate_within(query, Relaxation("mini-bucket", z), Resources(backend=backend))
    return query.arithmetic, done.elimination.remaining()


def compile_mini_buckets() -> None:
    """Compile the kernels of mini-buckets of potentials, with and without tables of three variables."""
    pairs = tuple(Factor.of(scope, np.zeros((2, 2))) for scope in ((0, 1), (1, 2), (0, 2)))
    local = divide(Problem(("x0", "x1", "x2"), np.full(3, 2), ("a",), np.zeros(3, dtype=np.int64), pairs)).locals[0]
    tables = [EncodedTable(scope, np.zeros([2] * len(scope), dtype=np.int64)) for scope in ((0, 1), (1, 2), (0, 1, 2))]
    for z, chosen in ((1, tables[:2]), (2, tables)):
        eliminate(local, chosen, z, CPU)
    compile_matching(np.dtype(np.int64))  # larger agents have split buckets


MINI_BUCKET_BOUNDS = KernelSet("mini-bucket bounds", compile_mini_buckets)
