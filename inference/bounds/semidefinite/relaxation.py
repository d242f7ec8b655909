"""Semidefinite bounds of the rows of a dual ascent: better where a dense agent has many hidden variables."""

import time
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.dual_bound import SHIFTS, DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.semidefinite.certificate import Square, bounds_with, whole_square
from dmcmc.inference.bounds.semidefinite.descent import TRIAL, Descent, Point, Target, room_bytes
from dmcmc.inference.bounds.semidefinite.descent_state import Progress
from dmcmc.inference.bounds.semidefinite.initial_factors import STEPS
from dmcmc.inference.bounds.semidefinite.row_dual_ascent import ascended
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network, lay_out, takes
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array, Floats, Ints

_RANK = 1 / 2  # of the values, at most, is how many vectors a descent has
_MOST_VALUES, _MOST_BYTES, _SHARE = 4096, 1 << 30, 1 / 16  # values; for the work on one agent: bytes, of the memory
_MOST_ROWS, _DENSE = 1 << 12, 0.2  # of pairs; with fewer triangles are as good
_LEAST_HIDDEN, _LEAST_ON_GPU = 30, 16  # variables
ROWS = 64  # are lowered at a time: those that are furthest beyond their limits
_HOPE = 2.0  # times what the second half of a trial has brought may come after it
_TIMED, _LEAST_STEPS, _CERTIFICATE = 5, 8, 3  # steps: that tell their pace, that a turn has at least, and that end it
_ASCENT = 0.25  # of the time may go to the ascent after a descent
_SWEEP = 1e-8  # seconds of an ascent for a pair of values and each of some rows: an estimate
_ENTRY, _PRODUCT = 7e-9, 3e-11  # seconds of a step for a pair of values, and for each vector of it: an estimate


class Opened(NamedTuple):
    """What a turn of a lift goes by: its descent and what that lowers; rows that still matter, and their limits."""

    descent: Descent
    target: Target
    rows: Ints
    limits: Floats


class Turn(NamedTuple):
    """A lift's turn that has begun."""

    lift: "Lift"
    opened: Opened


class Lift:
    """Lowers the bounds of a dual ascent's rows.

    Attributes
    ----------
    exhausted : bool
        Whether it is of no use.
    own : .progress.Progress
        Of what comes after its rows' common square, on a GPU.
    """

    def __init__(self, state: DualState) -> None:
        self.state, self.own = state, Progress()
        self._network: Network | None = None
        self._descent: Descent | None = None
        self._tried, self._ascends, self._ascended, self._certified = False, True, 0.0, 0.0
        self._pace = 0.0
        self._values = sum(int(state.local.domains[v]) for v in state.local.hidden)
        fits = self._values <= _MOST_VALUES and room_bytes(self._values) <= ACCOUNT.part(_SHARE, _MOST_BYTES)
        self.exhausted = not (fits and state.enumerated and takes(state.local))

    @property
    def steps(self) -> int:
        """How many steps have been made."""
        return 0 if self._descent is None else self._descent.steps

    @property
    def made(self) -> int:
        """How much work has been done, of any kind."""
        return self.steps + self.own.made

    @property
    def pace(self) -> float:
        """About the seconds of a step."""
        n = self._values
        return self._pace or n * n * (_ENTRY + _PRODUCT * _RANK * n)

    @property
    def unknown(self) -> bool:
        """Whether it has not had the steps yet by which it can be judged."""
        return not self.exhausted and self.steps < TRIAL // 2

    @property
    def trial_seconds(self) -> float:
        """About how long it takes one core until it is of use, if it is at all."""
        return (max(0, TRIAL // 2 - self.steps) + self._setting_out) * self.pace

    @property
    def _setting_out(self) -> int:
        """Steps that what comes before the first one takes as long as."""
        return 0 if self.steps else STEPS

    def improve(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        rows: Rows | None = None,
        limits: Array | None = None,
    ) -> None:
        """Lower the bounds of rows, on the calling thread.

        Parameters
        ----------
        seconds
            The result then depends on the machine.
        steps
            In place of seconds.
        rows
            Those that still matter; None for all.
        limits : (rows of the interface,) or None
            Utilities: what a row has to exceed to be in anything better. The row that is furthest beyond is lowered.
        """
        start = time.perf_counter()
        if seconds is not None and seconds < self.least_seconds:
            return  # all of it would be setting out
        with products_on_one_thread():
            opened = self.open(rows, limits)
            if opened is None:
                return
            first, stop = [start], self.state.backend.stop
            ascends = self.ascends(opened, seconds)

            def more(made: int) -> bool:
                if seconds is None:
                    return made < (TRIAL if steps is None else steps) and not stop.over
                now = time.perf_counter()
                if not made:
                    first[0] = now
                elif made >= _TIMED:
                    self._pace = (now - first[0]) / made
                return now + self.ending(opened, ascends) < start + seconds and not stop.over

            self.close(opened, opened.descent.run(opened.target, more), ascends)

    @property
    def least_seconds(self) -> float:
        """The fewest seconds of one core that a turn is of use with, about."""
        return max(_LEAST_STEPS, self._setting_out) * self.pace

    def lay_out(self) -> Network:
        """Return the agent's factors as a lift has them; many small arrays, so several threads would be no quicker."""
        self._network = self._network or lay_out(self.state.local)
        return self._network

    def open(self, rows: Rows | None = None, limits: Array | None = None) -> Opened | None:
        """Return what a turn goes by, as in :meth:`improve`; None where there is nothing to do."""
        state = self.state
        chosen = state.rows(rows)
        chosen = chosen[state.bounds[chosen] > NEVER]
        if self.exhausted or not chosen.size or state.backend.stop.over:
            return None
        if self._descent is None:
            self._descent = Descent(self.lay_out())
        if self._descent.unit <= 0:
            self.exhausted = True
            return None
        wanted = self._limits(chosen, limits)
        first = np.sort(np.argsort(wanted - state.bounds[chosen], kind="stable")[:ROWS])
        target = Target(self._descent.network.digits(chosen[first]), wanted[first])
        return Opened(self._descent, target, chosen, wanted)

    def ascends(self, opened: Opened, seconds: float | None) -> bool:
        """Return whether an ascent is to follow a descent in so many seconds."""
        return self._ascends and (seconds is None or self._ascent(opened.rows.size) <= _ASCENT * seconds)

    def ending(self, opened: Opened, ascends: bool) -> float:
        """Return about the seconds of one core that come after the steps."""
        certificate = max(_CERTIFICATE * self.pace, self._certified)
        return certificate + ascends * self._ascent(opened.rows.size)

    def close(self, opened: Opened, point: Point, ascends: bool) -> None:
        """Take in what steps have led to."""
        (descent, _, chosen, limits), start = opened, time.perf_counter()
        if not self._tried and len(descent.trial) == 2:
            self._tried = True
            half, end = descent.trial
            beyond = float((self.state.bounds[chosen] - limits).max())
            self.exhausted = end - _HOPE * (half - end) >= beyond
        square = whole_square(descent.network, *descent.scaled(point))
        if square is not None:
            self.lower(chosen, bounds_with(descent.network, square, chosen))
            self._certified = time.perf_counter() - start
            if ascends and not self.state.backend.stop.over:
                self._ascend(descent.network, square, chosen, limits)

    def _ascent(self, rows: int) -> float:
        """Return about the seconds of an ascent after a descent."""
        return self._ascended or _SWEEP * (SHIFTS + min(rows, ROWS)) * self._values**2

    def _limits(self, chosen: Ints, limits: Array | None) -> Floats:
        """Return rows' limits in the scale; none where a row has none."""
        if limits is None:
            return np.zeros(chosen.size)
        wanted = self.state.layout.scale.encode_all(np.asarray(limits)[chosen])
        return np.zeros(chosen.size) if (wanted <= NEVER).any() else wanted.astype(np.float64)

    def _ascend(self, network: Network, square: Square, chosen: Ints, limits: Floats) -> None:
        """Shift utilities in the rows that are furthest beyond their limits; not again where none gains by it."""
        state, start = self.state, time.perf_counter()
        first = np.sort(np.argsort(limits - state.bounds[chosen], kind="stable")[:ROWS])
        rows = chosen[first][state.bounds[chosen[first]] > NEVER]
        if rows.size:
            self._ascends = self.lower(rows, ascended(state.local, network, square, rows, state.backend.stop))
            self._ascended = time.perf_counter() - start

    def lower(self, rows: Ints, found: Ints) -> bool:
        """Lower bounds of rows; return whether any became lower."""
        bounds = self.state.bounds
        lower = bool((found < bounds[rows]).any())
        bounds[rows] = np.minimum(bounds[rows], found)
        return lower


class LiftRequest(NamedTuple):
    """A lift, and the rows and limits of :meth:`Lift.improve`."""

    lift: Lift
    rows: Rows | None
    limits: Array | None


def suits(local: LocalProblem, on_gpu: bool = False) -> bool:
    """Return whether a lift may be better for an agent than dual ascent with triangles."""
    hidden, least = set(local.hidden), _LEAST_ON_GPU if on_gpu else _LEAST_HIDDEN
    if len(hidden) < least or local.rows > _MOST_ROWS or not takes(local):
        return False
    pairs = {frozenset(hidden.intersection(factor.scope)) for factor in local.factors}
    return sum(len(pair) == 2 for pair in pairs) >= _DENSE * len(hidden) * (len(hidden) - 1) / 2


def follows_search(local: LocalProblem) -> bool:
    """Return whether a search in an agent's rows goes first: it closes them where they are easy, and lifts do not."""
    return len(local.hidden) < _LEAST_HIDDEN


def compile_lift() -> None:
    """Compile what a lift uses."""
    tables = [Factor.of(scope, [[0, 1], [1, 0]]) for scope in ((0, 1), (1, 2), (0, 2))]
    local = LocalProblem(0, (2,), (0, 1), tuple(tables), np.full(3, 2))
    Lift(DualState(local, triangles=True)).improve(steps=1)
