"""The mini-bucket bound of an agent's rows.

Bound provider ``mini-bucket``: eliminate the hidden variables with tables of limited size, after a dual ascent.

Mini-bucket elimination (Dechter and Rish) splits the tables of an eliminated variable into groups whose joint scopes
are small enough, and eliminates the variable from each group separately. The interface variables stay free. Rows
(assignments of the interface) need not be enumerated, so an agent may have any number of interface variables.

The tables are the potentials of a dual ascent: reparametrised factors with the same sum, which give tighter bounds.

The steps of mini-bucket bounds of an agent: the plan for a z, the largest z that fits, and the elimination.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.contract.tuning import DUAL_SWEEPS, MAX_Z_BYTES, MAX_Z_CELLS, SECONDS_PER_BUCKET, Z_SHARE
from dmcmc.inference.bounds.dual.decomposed_bounds import BoundSummand, encode_parts
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import elimination_of, tables_of
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets, plan_within
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import spread
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT


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


class MiniBucketState:
    """Bound of one agent by mini-buckets; implements ``BoundState``. Each step uses the next larger z.

    z is the largest number of variables that a mini-bucket's message may have. If the potentials of the given dual
    ascent change, the last z is repeated once with the new ones (``refresh_potentials``) before z grows further.

    Parameters
    ----------
    local : LocalProblem
    backend : Backend
        Threads, device and deadline.
    dual : DualState, optional
        The dual ascent whose current potentials replace the factors, and whose bounds are lowered. If None, the state
        makes a short dual ascent itself.
    as_triplets : bool
        Whether a triangle of the dual ascent becomes a table of three variables; otherwise it is added to its pairs.

    Attributes
    ----------
    z : int
        The z of the next step.
    exhausted : bool
        Whether nothing more can be gained, or a larger z would take too much time or memory.
    backend : Backend
        Threads, device and deadline.
    """

    def __init__(
        self, local: LocalProblem, backend: Backend = CPU, dual: DualState | None = None, as_triplets: bool = False
    ) -> None:
        self.local = local
        self.backend = backend
        self._dual_is_given, self._as_triplets = dual is not None, as_triplets
        self._dual = dual or DualState(local, triangles=False)
        if dual is None:
            self._dual.improve(sweeps=0, rows=())
        self._tables: list[EncodedTable] | None = None
        self._cached_plan: tuple[int, EliminationPlan] | None = None
        self._summands: list[BoundSummand] = self._dual.decomposed_bound() if not self._dual.enumerated else []
        # _slowdown: measured seconds of the last step over its estimate, at least 1.
        self.z, self._has_stepped, self._slowdown = 0, False, 1.0
        self._repeated_z: int | None = None  # the z that is being repeated with new potentials
        self.exhausted = not local.hidden

    @property
    def estimated_seconds(self) -> float:
        """Estimated seconds of the next step; inf if there is none, or if it would take too many cells or bytes."""
        if self.exhausted:
            return math.inf
        plan = self._plan()
        if plan.cells > MAX_Z_CELLS or plan.entries * 8 > MEMORY_ACCOUNT.budget_share(Z_SHARE, MAX_Z_BYTES):
            self.exhausted = True
            return math.inf
        return self._slowdown * self._estimate(plan)

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound of all rows together; ``sweeps`` is the number of steps, and ``rows`` is ignored."""
        end = time.perf_counter() + (seconds or 0.0)
        if not self._dual_is_given:
            self._dual.backend = replace(self._dual.backend, stop=self.backend.stop)
        for steps in itertools.count():
            estimated_seconds, proceed = self.estimated_seconds, steps < (1 if sweeps is None else sweeps)
            if seconds is not None:
                proceed = not (steps or self._dual_is_given) or estimated_seconds <= end - time.perf_counter()
            if self.exhausted or self.backend.stop.over or not proceed or not self.step():
                return

    def step(self) -> bool:
        """Eliminate with the next z; return whether it was finished before the deadline."""
        start, plan = time.perf_counter(), self._plan()
        try:
            self._eliminate(self._reparametrised_tables())
        except OutOfTime:
            return False
        self.exhausted |= self.z >= self.local.plan.width
        if self._has_stepped:  # the first step may compile or load something
            self._slowdown = max(1.0, (time.perf_counter() - start) / self._estimate(plan))
        self._has_stepped, self._repeated_z = True, None if self.z != self._repeated_z else self._repeated_z
        self.z += 1
        return True

    def raise_z(self, entries: int) -> None:
        """Raise the z of the next step to the largest one whose tables have at most ``entries`` entries."""
        if not self.exhausted:
            local, scopes = self.local, self._scopes()
            order, width = local.order.variables, local.plan.width
            z, _ = plan_within(scopes, local.domains, order, local.interface, entries, shifts=True, limit=width)
            self.z = max(self.z, z)

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return one table over the interface, or a sum of small tables if there are too many rows."""
        if self._dual.enumerated:
            return self._dual.tables(arithmetic)
        return encode_parts(self._summands, self._dual.layout.scale, self.local, arithmetic)

    def refresh_potentials(self) -> None:
        """Use the new potentials of the given dual ascent; the last z is repeated, as it may be tighter now."""
        self._tables = None
        if self._has_stepped and self._repeated_z is None:
            self.z -= 1
            self._repeated_z = self.z

    def _plan(self) -> EliminationPlan:
        """Return the elimination plan of the next step."""
        if self._cached_plan is None or self._cached_plan[0] != self.z:
            local, scopes, order = self.local, self._scopes(), self.local.order.variables
            self.z = max(self.z, least_z(scopes, order))
            self._cached_plan = self.z, plan_mini_buckets(scopes, local.domains, order, local.interface, self.z, True)
        return self._cached_plan[1]

    def _estimate(self, plan: EliminationPlan) -> float:
        """Return the estimated seconds of a step on a nominal machine: joined cells and an overhead per bucket."""
        return plan.cells * COSTS.seconds_per_bound_cell / self.backend.threads + SECONDS_PER_BUCKET * plan.buckets

    def _scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes of the reparametrised tables."""
        return [table.scope for table in self._reparametrised_tables()]

    def _reparametrised_tables(self) -> list[EncodedTable]:
        """Return the potentials of the dual ascent as int64 tables."""
        if self._tables is None:
            if not self._dual_is_given:
                self._dual.improve(sweeps=DUAL_SWEEPS, rows=())
            names = (*self.local.hidden, *self.local.interface)
            self._tables = tables_of(self._dual.layout.whole, self._dual.potentials, names, self._as_triplets)
        return self._tables

    def _eliminate(self, tables: list[EncodedTable]) -> None:
        """Eliminate the hidden variables and lower the bounds by the result."""
        local = self.local
        arithmetic, remaining = eliminate(local, tables, self.z, self.backend)
        if self._dual.enumerated:
            rows = np.zeros(local.interface_shape, dtype=np.int64)
            for scope, values in remaining:
                rows = arithmetic.add(rows, spread(values, scope, local.interface))
            flat = rows.ravel()
            np.minimum(
                self._dual.bounds,
                np.where(flat < arithmetic.forbidden_below, MINUS_INFINITY, flat),
                out=self._dual.bounds,
            )
            return
        # A forbidden entry, which is far lower, becomes 2 * FORBIDDEN_BELOW: still forbidden as an entry of a summand.
        clipped = [(scope, np.maximum(values, 2 * FORBIDDEN_BELOW)) for scope, values in remaining]
        if _sum_of_maxima(clipped) < _sum_of_maxima(self._summands):
            self._summands = clipped


def _sum_of_maxima(parts: list[BoundSummand]) -> int:
    """Return the sum of the largest entries of all summands."""
    return sum(int(values.max()) for _, values in parts)
