"""Assignments from a dual ascent's shares: tables whose maxima agree are rounded, one variable after the other.

The tighter the bound, the more the shares say about what is best (sequential rounding: Kolmogorov 2006, §3).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.rounding_kernels import round_tables
from dmcmc.inference.bounds.dual.shifted import tables_of
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.model.flat import flatten

_MOST, _ENTRIES = 2048, 1 << 22  # variables, and entries of all tables: more take too long
_FORBIDDEN = -(1 << 50)  # far below all sums of shares, and exact beside them
_NOISE = (0.0, 0.03, 0.1, 0.3)  # in typical spreads of a variable's scores, in turn


def roundings(state: DualState, seed: int, count: int = len(_NOISE)) -> Iterator[NDArray[np.int64]]:
    """Yield assignments of a state's hidden variables and interface, in that order: first without noise.

    Nothing where there are too many variables or entries.
    """
    whole = state.layout.whole
    n = whole.domains.size
    if not 0 < n <= _MOST or state.shares.pair.size + state.shares.star.size > _ENTRIES:
        return
    tables = [t for t in tables_of(whole, state.shares, range(n), _FORBIDDEN, clusters=False) if t.scope]
    rng = np.random.Generator(np.random.Philox(seed))
    spread = _spread(tables)
    for number in range(count):
        noise = _NOISE[number % len(_NOISE)] * spread * rng.gumbel(size=(n, int(whole.domains.max())))
        yield rounded(tables, whole.domains, noise)


def rounded(tables: Sequence[Table], domains: NDArray[np.int64], noise: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return an assignment of tables' variables.

    Each time, every free variable's values are scored by what its tables have at most, given what is fixed; the
    variable whose best value leads by most takes it.

    Parameters
    ----------
    noise : (n, widest) float64
        Added to the scores; zeros for none.
    """
    flat = flatten([t.scope for t in tables], [t.values for t in tables])
    order = np.argsort(flat.scope, kind="stable")
    start = np.searchsorted(flat.scope[order], np.arange(domains.size + 1))
    found: NDArray[np.int64] = round_tables(
        domains.astype(np.int64), flat.scope_start, flat.scope, flat.strides(domains), flat.at[:-1],
        flat.data.astype(np.float64), start, order, noise,
    )  # fmt: skip
    return found


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
    rounded([Table((0, 1), np.zeros((2, 2), dtype=np.int64))], np.full(2, 2), np.zeros((2, 2)))
