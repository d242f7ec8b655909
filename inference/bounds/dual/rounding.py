"""Round the potentials of a dual ascent to assignments, one variable after another.

The tighter the bound, the better the potentials identify an optimal assignment (sequential rounding: Kolmogorov 2006,
section 3). Noise on the scores gives further assignments (perturb and MAP). ``rounding_kernels`` describes the
procedure.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import MAX_ROUNDED_VARIABLES, ROUNDING_NOISE
from dmcmc.inference.bounds.dual.graph import tables_of
from dmcmc.inference.bounds.dual.rounding_kernels import RoundingWorkspace, round_rows
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor_graph import graph_of_tables
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.dual_bound import DualState

_FORBIDDEN = -(1 << 50)  # far below every sum of potentials; 2^12 of them add up without overflow

Ints = NDArray[np.int64]


class Rounding:
    """Tables to round to assignments, with all variables free or with some of them fixed by a row.

    Parameters
    ----------
    tables : sequence of EncodedTable
        int64 tables over at least one variable each.
    domains : (n,) int64
        Domain sizes of the free variables, then of those that a row fixes.
    free : int
        Number of free variables.
    noise : (k, n, largest domain size) int64
        Added to the scores of the values; row r uses ``noise[r % k]``.

    Attributes
    ----------
    graph : FactorGraph
        The factor graph of the tables.
    marginal_start : (positions,) int64
        Offsets of the max-marginals of each table for each of its variables.
    marginal_entries : int
        Number of max-marginal entries: the sum of the domain sizes over all scopes.
    max_arity : int
        Largest number of variables of a table.
    """

    def __init__(self, tables: Sequence[EncodedTable], domains: Ints, free: int, noise: Ints) -> None:
        flat = flatten([t.scope for t in tables], [t.values for t in tables])
        flat = flat._replace(data=flat.data.astype(np.int64))
        self.graph = graph_of_tables(flat, domains.astype(np.int64), free)
        self.free, self.noise, self.marginal_start = free, noise, self.graph.vector_start
        self.marginal_entries = int(self.graph.domains[flat.scope].sum())
        self.max_arity = int(np.diff(flat.scope_start).max(initial=1))

    def rows(self, rows: Ints, backend: Backend = CPU) -> Ints:
        """Round some rows on the backend's threads; ``rows`` are row numbers in C order over the fixed variables.

        Returns
        -------
        (rows, free) int64
            Values of the free variables; 0 for rows that are not reached before the deadline.
        """
        assignments = np.zeros((rows.size, self.free), dtype=np.int64)
        halt, n_parts = np.zeros(1, dtype=np.uint8), max(1, min(backend.threads, rows.size))
        slices = [slice(rows.size * i // n_parts, rows.size * (i + 1) // n_parts) for i in range(n_parts)]
        tasks = [
            partial(round_rows, self.graph, rows[part], self.noise, self._new_workspace(), assignments[part], halt)
            for part in slices
        ]
        run_until_deadline(tasks, backend.threads, backend.stop, halt)
        return assignments

    def _new_workspace(self) -> RoundingWorkspace:
        """Return a zeroed workspace for one thread."""
        n = self.graph.domains.size
        sizes = (n, self.noise.shape[1:], self.marginal_entries, n, n, self.max_arity)
        return RoundingWorkspace(self.marginal_start, *(np.zeros(size, dtype=np.int64) for size in sizes))


def rounding_of(state: "DualState", seed: int, fixed_interface: bool = False) -> Rounding | None:
    """Prepare the potentials of a bound for rounding; return None if there are too many variables or entries.

    Parameters
    ----------
    state : DualState
    seed : int
        Seed of the noise, which is Gumbel distributed.
    fixed_interface : bool
        True if rows fix the interface variables; there is no noise then. False leaves all variables free, and the row
        number selects the amount of noise, from none to the largest.
    """
    whole = state.layout.whole
    n = whole.domains.size
    if (
        not 0 < n <= MAX_ROUNDED_VARIABLES
        or state.potentials.pair.size + state.potentials.higher_order.size > MAX_EXAMINED_ENTRIES
    ):
        return None
    tables = [t for t in tables_of(whole, state.potentials, range(n), lowest=_FORBIDDEN) if t.scope]
    shape = (1 if fixed_interface else len(ROUNDING_NOISE), n, int(whole.domains.max()))
    noise = np.zeros(shape)
    if not fixed_interface:
        gumbel = np.random.Generator(np.random.Philox(seed)).gumbel(size=shape)
        noise = np.array(ROUNDING_NOISE)[:, None, None] * _typical_deviation(tables) * gumbel
    return Rounding(
        tables, whole.domains, state.layout.n_hidden if fixed_interface else n, np.rint(noise).astype(np.int64)
    )


def rounded_assignments(state: "DualState", seed: int) -> Iterator[Ints]:
    """Yield assignments of hidden and interface variables, in that order, the first one without noise.

    Nothing is yielded if there are too many variables or entries.
    """
    rounding = rounding_of(state, seed)
    if rounding is not None:
        for number in range(len(ROUNDING_NOISE)):
            yield rounding.rows(np.array([number]))[0]


def _typical_deviation(tables: Sequence[EncodedTable]) -> float:
    """Return the typical standard deviation (root mean square) of the max-marginals of one table over one variable."""
    deviations = []
    for table in tables:
        for axis in range(table.values.ndim):
            best = table.values.max(axis=tuple(i for i in range(table.values.ndim) if i != axis))
            finite = best[best > _FORBIDDEN]
            deviations.append(float(finite.std()) if finite.size else 0.0)
    return float(np.sqrt(np.mean(np.square(deviations)))) if deviations else 1.0


def compile_rounding() -> None:
    """Compile the kernels of rounding by rounding one pair of binary variables."""
    table = EncodedTable((0, 1), np.zeros((2, 2), dtype=np.int64))
    Rounding([table], np.full(2, 2), 2, np.zeros((1, 2, 2), dtype=np.int64)).rows(np.zeros(1, dtype=np.int64))


ROUNDING_KERNELS = KernelSet("rounding", compile_rounding)
