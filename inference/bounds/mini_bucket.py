"""Provider ``mini-bucket``: the hidden variables are eliminated with bounded tables, after a dual ascent.

The interface stays free and rows are never enumerated, so it takes agents with any number of interface variables.
"""

import time
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.parts import Part, encode_parts
from dmcmc.inference.bounds.dual.scale import NEVER, THRESHOLD
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.execution.costs import COSTS
from dmcmc.inference.execution.relaxation import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic, Table
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.memory import ACCOUNT

_SHIFTS = 6  # times as many sweeps of dual ascent as a row's sweep brings
_CELLS = 4_000_000_000  # joined cells of the largest z that is tried
_BYTES = 1 << 31
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
    """

    def __init__(self, local: LocalProblem, backend: Backend = CPU, dual: DualState | None = None) -> None:
        self.local = local
        self.backend = backend
        self._shares_are_given = dual is not None
        self._dual = dual or DualState(local, triangles=False)
        if dual is None:
            self._dual.improve(sweeps=0, rows=())
        self._tables: list[Table] | None = None
        self._parts: list[Part] = self._dual.parts() if not self._dual.enumerated else []
        self.z = 0
        self.exhausted = not local.hidden

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound, of all rows together; ``sweeps`` counts steps of z."""
        end = time.perf_counter() + (seconds or 0.0)
        steps = 0
        if not self._shares_are_given:
            self._dual.backend = replace(self._dual.backend, stop=self.backend.stop)
        while not self.exhausted and not self.backend.stop.over:
            tables = self._shifted()
            scopes = [t.scope for t in tables]
            order = self.local.order.variables
            self.z = max(self.z, least_z(scopes, order))
            plan = plan_mini_buckets(scopes, self.local.domains, order, self.local.interface, self.z, True)
            left = end - time.perf_counter()
            if seconds is None and steps >= (1 if sweeps is None else sweeps):
                return
            if (
                seconds is not None
                and (steps or self._shares_are_given)
                and plan.cells * COSTS.bound_cell > left * self.backend.threads
            ):
                return
            if plan.cells > _CELLS or plan.entries * 8 > ACCOUNT.part(1 / 8, _BYTES):
                self.exhausted = True
                return
            try:
                self._step(tables)
            except OutOfTime:
                return
            self.exhausted |= self.z >= self.local.plan.width
            self.z += 1
            steps += 1

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface, or small ones over its parts where it has too many rows."""
        if self._dual.enumerated:
            return self._dual.tables(arithmetic)
        return encode_parts(self._parts, self._dual.layout.scale, self.local, arithmetic)

    def shares_moved(self) -> None:
        """Take the shares of the given dual ascent anew; z stays, as what it brought may be better now."""
        self._tables = None
        self.z = max(0, self.z - 1)

    def _shifted(self) -> list[Table]:
        """Return the factors after a dual ascent, as int64 tables."""
        if self._tables is None:
            if not self._shares_are_given:
                self._dual.improve(sweeps=_SHIFTS, rows=())
            whole, shares = self._dual.layout.whole, self._dual.shares
            names = (*self.local.hidden, *self.local.interface)
            domains = whole.domains.tolist()
            found: list[Part] = [((names[v],), shares.unary[v, :d]) for v, d in enumerate(domains)]
            for e, (a, b) in enumerate(whole.pairs.tolist()):
                found.append(((names[a], names[b]), shares.pair[e][: domains[a], : domains[b]]))
            for s in range(whole.star_at.size - 1):
                scope = whole.star_scope[whole.star_start[s] : whole.star_start[s + 1]].tolist()
                entries = shares.star[whole.star_at[s] : whole.star_at[s + 1]]
                found.append((tuple(names[v] for v in scope), entries.reshape([domains[v] for v in scope])))
            self._tables = [Table(scope, np.where(t < THRESHOLD, _LOWEST, t.astype(np.int64))) for scope, t in found]
        return self._tables

    def _step(self, tables: list[Table]) -> None:
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
