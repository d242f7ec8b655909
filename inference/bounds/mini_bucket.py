"""Provider ``mini-bucket``: the hidden variables are eliminated with bounded tables, after a dual ascent.

The interface stays free and rows are never enumerated, so it takes agents with any number of interface variables.
"""

import itertools
import math
import time
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.decomposed_bounds import Part, encode_parts
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.reparametrised_tables import tables_of
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.choose_z import largest_fitting, most_z
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, Table
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.memory import ACCOUNT

_SHIFTS = 6  # times as many sweeps of dual ascent as a row's sweep brings
_CELLS = 4_000_000_000  # joined cells of the largest z that is tried
_BYTES = 1 << 31
_EACH = 4e-6  # seconds of a mini-bucket, besides its cells
_LOWEST = int(np.iinfo(np.int64).min) // ADDENDS


class MiniBucketState:
    """A bound by mini-buckets; a :class:`.BoundState`. Each step takes the next larger z.

    Attributes
    ----------
    z : int
        Of the next step.
    exhausted : bool
        Whether nothing more is to be gained, or a larger z would take too much.
    backend : Backend
        What its work may take.

    Parameters
    ----------
    dual
        Whose shares the factors are replaced by, as they are; one of its own is ascended a little if None.
    clusters
        Whether its triangles are tables over three variables; else their shares are given back to their pairs.
    """

    def __init__(
        self, local: LocalProblem, backend: Backend = CPU, dual: DualState | None = None, clusters: bool = False
    ) -> None:
        self.local = local
        self.backend = backend
        self._shares_are_given, self._clusters = dual is not None, clusters
        self._dual = dual or DualState(local, triangles=False)
        if dual is None:
            self._dual.improve(sweeps=0, rows=())
        self._tables: list[Table] | None = None
        self._planned: tuple[int, Plan] | None = None
        self._parts: list[Part] = self._dual.parts() if not self._dual.enumerated else []
        self.z, self._begun, self._slower = 0, False, 1.0
        self._again: int | None = None  # z that comes once more
        self.exhausted = not local.hidden

    @property
    def price(self) -> float:
        """About the seconds of the next step; inf if there is none."""
        if self.exhausted:
            return math.inf
        plan = self._plan()
        if plan.cells > _CELLS or plan.entries * 8 > ACCOUNT.part(1 / 8, _BYTES):
            self.exhausted = True
            return math.inf
        return self._slower * self._estimate(plan)

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound, of all rows together; ``sweeps`` counts steps of z."""
        end = time.perf_counter() + (seconds or 0.0)
        if not self._shares_are_given:
            self._dual.backend = replace(self._dual.backend, stop=self.backend.stop)
        for steps in itertools.count():
            price, wanted = self.price, steps < (1 if sweeps is None else sweeps)
            if seconds is not None:
                wanted = not (steps or self._shares_are_given) or price <= end - time.perf_counter()
            if self.exhausted or self.backend.stop.over or not wanted or not self.step():
                return

    def step(self) -> bool:
        """Eliminate with the next z; return whether there was time for it."""
        begun, plan = time.perf_counter(), self._plan()
        try:
            self._eliminate(self._shifted())
        except OutOfTime:
            return False
        self.exhausted |= self.z >= self.local.plan.width
        if self._begun:  # the first may load or compile something
            self._slower = max(1.0, (time.perf_counter() - begun) / self._estimate(plan))
        self._begun, self._again = True, None if self.z != self._again else self._again
        self.z += 1
        return True

    def reach(self, entries: int) -> None:
        """Go on with the largest z whose tables have at most so many entries, if that is larger."""
        if not self.exhausted:
            fits, _ = largest_fitting(
                most_z(self.local.domains, self.local.order.variables, entries, self.local.plan.width),
                least_z(self._scopes(), self.local.order.variables),
                entries,
                self._plan_of,
            )
            self.z = max(self.z, fits)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface, or small ones over its parts where it has too many rows."""
        if self._dual.enumerated:
            return self._dual.tables(arithmetic)
        return encode_parts(self._parts, self._dual.layout.scale, self.local, arithmetic)

    def shares_moved(self) -> None:
        """Take the shares of the given dual ascent anew; the last z comes once more, as it may bring more now."""
        self._tables = None
        if self._begun and self._again is None:
            self.z -= 1
            self._again = self.z

    def _plan(self) -> Plan:
        """Return the plan of the next step."""
        if self._planned is None or self._planned[0] != self.z:
            self.z = max(self.z, least_z(self._scopes(), self.local.order.variables))
            self._planned = self.z, self._plan_of(self.z)
        return self._planned[1]

    def _plan_of(self, z: int) -> Plan:
        local = self.local
        return plan_mini_buckets(self._scopes(), local.domains, local.order.variables, local.interface, z, True)

    def _estimate(self, plan: Plan) -> float:
        """Return about the seconds of a step, on a nominal machine: joining, and some for each mini-bucket."""
        return plan.cells * COSTS.bound_cell / self.backend.threads + _EACH * plan.buckets

    def _scopes(self) -> list[tuple[int, ...]]:
        return [table.scope for table in self._shifted()]

    def _shifted(self) -> list[Table]:
        """Return the factors after a dual ascent, as int64 tables."""
        if self._tables is None:
            if not self._shares_are_given:
                self._dual.improve(sweeps=_SHIFTS, rows=())
            names = (*self.local.hidden, *self.local.interface)
            self._tables = tables_of(self._dual.layout.whole, self._dual.shares, names, _LOWEST, self._clusters)
        return self._tables

    def _eliminate(self, tables: list[Table]) -> None:
        total = sum(int(np.where(t.values == _LOWEST, 0, np.abs(t.values)).max(initial=0)) for t in tables)
        numbers = Arithmetic(np.dtype(np.int64), _LOWEST, total)
        local, relaxation = self.local, Relaxation("mini-bucket", self.z)
        order, keep = local.order.variables, local.interface
        done = eliminate_within(
            Query(tables, local.domains, order, keep, numbers), relaxation, Resources(backend=self.backend)
        )
        left = done.elimination.remaining()
        if self._dual.enumerated:
            rows = np.zeros(local.interface_shape, dtype=np.int64)
            for scope, values in left:
                shape = [int(local.domains[v]) if v in scope else 1 for v in local.interface]
                axes = sorted(range(len(scope)), key=lambda axis, scope=scope: local.interface.index(scope[axis]))  # type: ignore[misc]
                rows = numbers.add(rows, values.transpose(axes).reshape(shape))
            flat = rows.ravel()
            np.minimum(self._dual.bounds, np.where(flat < numbers.threshold, NEVER, flat), out=self._dual.bounds)
            return
        clipped = [(scope, np.maximum(values, 2 * THRESHOLD)) for scope, values in left]
        if _most(clipped) < _most(self._parts):
            self._parts = clipped


def _most(parts: list[Part]) -> int:
    """Return the sum of all parts' largest entries."""
    return sum(int(values.max()) for _, values in parts)


class MiniBucketProvider:
    """Mini-buckets with dual ascent before them."""

    name = "mini-bucket"
    summary = "mini-buckets after dual ascent: any number of interface variables"

    def start(self, local: LocalProblem, backend: Backend = CPU) -> MiniBucketState:
        """Return an agent's bound by dual ascent alone."""
        return MiniBucketState(local, backend)


PROVIDER = MiniBucketProvider()
