"""Assignments from a dual ascent's shares: tables whose maxima agree are rounded, one variable after the other.

The tighter the bound, the more the shares say about what is best (sequential rounding: Kolmogorov 2006, §3).
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.reparametrised_tables import tables_of
from dmcmc.inference.bounds.dual.rounding_kernels import Room, Shared, round_rows
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.compile import writable
from dmcmc.inference.runtime.threads import run_watched

MOST, ENTRIES = 2048, 1 << 22  # variables, and entries of all tables: more take too long
_FORBIDDEN = -(1 << 50)  # far below all sums of shares; so many add up without wrapping that none has more
_NOISE = (0.0, 0.03, 0.1, 0.3)  # in typical spreads of a variable's scores, in turn

Ints = NDArray[np.int64]


class Rounding:
    """Tables to be rounded, as they are or given the values of some of their variables.

    Parameters
    ----------
    tables : sequence of Table
        int64, over at least one variable each.
    domains : (n,) int64
        Of the free variables, then of those that rows give.
    free : int
    noise : (several, n, widest) int64
        Added to the scores of values; rows take turns.
    """

    def __init__(self, tables: Sequence[Table], domains: Ints, free: int, noise: Ints) -> None:
        flat, n = flatten([t.scope for t in tables], [t.values for t in tables]), domains.size
        order = np.argsort(flat.scope, kind="stable")
        sizes = domains[flat.scope]
        self.shared = Shared(
            domains.astype(np.int64), flat.scope_start, flat.scope, flat.strides(domains), writable(flat.at[:-1]),
            flat.data.astype(np.int64), np.searchsorted(flat.scope[order], np.arange(n + 1)), order,
            np.repeat(np.arange(flat.scope_start.size - 1), np.diff(flat.scope_start)), np.cumsum(sizes) - sizes,
        )  # fmt: skip
        self.free, self.noise = free, noise
        self.said, self.widest = int(sizes.sum()), int(np.diff(flat.scope_start).max(initial=1))

    @property
    def work(self) -> int:
        """About how many entries are read for a row."""
        return self.said + self.shared.data.size

    def rows(self, rows: Ints, backend: Backend = CPU) -> Ints:
        """Return the free variables' values for some rows, (rows, free), on threads; first values where time is up."""
        found = np.zeros((rows.size, self.free), dtype=np.int64)
        halt, pieces = np.zeros(1, dtype=np.uint8), max(1, min(backend.threads, rows.size))
        cuts = [slice(rows.size * i // pieces, rows.size * (i + 1) // pieces) for i in range(pieces)]
        tasks = [
            partial(round_rows, self.shared, self.free, rows[cut], self.noise, self._room(), found[cut], halt)
            for cut in cuts
        ]
        run_watched(tasks, backend.threads, backend.stop, halt)
        return found

    def _room(self) -> Room:
        n = self.shared.domains.size
        sizes = (n, self.noise.shape[1:], self.said, n, n, self.widest)
        return Room(*(np.zeros(size, dtype=np.int64) for size in sizes))


def rounding_of(state: DualState, seed: int, given: bool = False) -> Rounding | None:
    """Return the shares of a state, to be rounded; None where there are too many variables or entries.

    Parameters
    ----------
    given
        Whether rows give the values of the interface, without noise; else all variables are free, and rows take turns
        in how much noise they have.
    """
    whole = state.layout.whole
    n = whole.domains.size
    if not 0 < n <= MOST or state.shares.pair.size + state.shares.star.size > ENTRIES:
        return None
    tables = [t for t in tables_of(whole, state.shares, range(n), _FORBIDDEN, clusters=False) if t.scope]
    shape = (1 if given else len(_NOISE), n, int(whole.domains.max()))
    noise = np.zeros(shape)
    if not given:
        gumbel = np.random.Generator(np.random.Philox(seed)).gumbel(size=shape)
        noise = np.array(_NOISE)[:, None, None] * _spread(tables) * gumbel
    return Rounding(tables, whole.domains, state.layout.n_hidden if given else n, np.rint(noise).astype(np.int64))


def roundings(state: DualState, seed: int) -> Iterator[Ints]:
    """Yield assignments of a state's hidden variables and interface, in that order: first without noise.

    Nothing where there are too many variables or entries.
    """
    rounding = rounding_of(state, seed)
    if rounding is not None:
        for number in range(len(_NOISE)):
            yield rounding.rows(np.array([number]))[0]


def _spread(tables: Sequence[Table]) -> float:
    """Return the typical spread of what one table says of one variable's values."""
    spreads = []
    for table in tables:
        for axis in range(table.values.ndim):
            best = table.values.max(axis=tuple(i for i in range(table.values.ndim) if i != axis))
            finite = best[best > _FORBIDDEN]
            spreads.append(float(finite.std()) if finite.size else 0.0)
    return float(np.sqrt(np.mean(np.square(spreads)))) if spreads else 1.0


def compile_rounding() -> None:
    """Compile what rounding uses."""
    table = Table((0, 1), np.zeros((2, 2), dtype=np.int64))
    Rounding([table], np.full(2, 2), 2, np.zeros((1, 2, 2), dtype=np.int64)).rows(np.zeros(1, dtype=np.int64))
